//! What a worker has done: counted for its report, and in the metrics of each stream.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use super::job::Ended;
use super::lane::Lane;
use super::verdict::End;
use crate::message::age_of;
use crate::metrics::Processed;
use crate::outcome::{Outcome, Reason};

macro_rules! tally {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// What a worker has done so far, or in all.
        ///
        /// Every message that was received is in the end acknowledged, skipped, deduplicated, dead, released or retried, or it
        /// was lost to another worker, or could not be settled. The last four are why a message may be delivered again.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct Report {
            $($(#[$doc])* pub $name: u64,)*
        }

        /// The same numbers while they grow.
        #[derive(Debug, Default)]
        pub(crate) struct Tally {
            $($name: AtomicU64,)*
        }

        impl Tally {
            pub(crate) fn report(&self) -> Report {
                Report { $($name: self.$name.load(Ordering::Relaxed),)* }
            }
        }
    };
}

tally! {
    /// Messages read or claimed.
    received,
    /// Messages done.
    acknowledged,
    /// Tries that failed and were put aside for another.
    retried,
    /// Messages moved to the dead letters.
    dead,
    /// Messages acknowledged because they were processed before.
    deduplicated,
    /// Messages that the handler said were not for it.
    skipped,
    /// Messages released, to be claimed by anyone at once: at a pause or a drain.
    released,
    /// Messages of which this was not the first delivery: retries, and what other workers left behind.
    redelivered,
    /// Messages taken over by another worker while they were here. Their outcomes did not count.
    lost_leases,
    /// Messages whose end could not be told to the store: it was out of reach until the worker ended, or the group was
    /// deleted.
    unsettled,
    /// Handlers that panicked.
    panics,
    /// Handlers that took too long.
    timeouts,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} received, {} acknowledged", self.received, self.acknowledged)?;
        let others = [
            ("skipped", self.skipped),
            ("deduplicated", self.deduplicated),
            ("dead", self.dead),
            ("retried", self.retried),
            ("released", self.released),
            ("redelivered", self.redelivered),
            (if self.lost_leases == 1 { "lost lease" } else { "lost leases" }, self.lost_leases),
            ("unsettled", self.unsettled),
            (if self.panics == 1 { "panic" } else { "panics" }, self.panics),
            (if self.timeouts == 1 { "timeout" } else { "timeouts" }, self.timeouts),
        ];
        let mut told = others.iter().filter(|(_, count)| *count > 0);
        told.try_for_each(|(name, count)| write!(f, ", {count} {name}"))
    }
}

fn add(counter: &AtomicU64, count: u64) {
    counter.fetch_add(count, Ordering::Relaxed);
}

impl Tally {
    /// Messages came into hand, some of them not for the first time.
    pub(crate) fn received(&self, lane: &Lane, count: u64, again: u64) {
        add(&self.received, count);
        add(&self.redelivered, again);
        lane.metrics.received.add(count);
    }

    /// Messages came to an end in our hands; what becomes of them is another matter.
    pub(crate) fn ended(&self, lane: &Lane, gathered: &[Ended]) {
        let now = SystemTime::now();
        for Ended { job, end, took } in gathered {
            let End::Outcome(outcome) = end else { continue };
            lane.metrics.process_duration.observe_duration(*took);
            lane.metrics.deliveries.observe(job.attempt);
            if job.attempt == 1 {
                let age = age_of(job.id, now).unwrap_or_default();
                lane.metrics.delivery_latency.observe_duration(age.saturating_sub(*took));
            }
            match outcome.failure().map(|failure| failure.reason) {
                Some(Reason::Panic) => {
                    add(&self.panics, 1);
                    lane.metrics.panics.increment();
                }
                Some(Reason::Timeout) => {
                    add(&self.timeouts, 1);
                    lane.metrics.timeouts.increment();
                }
                _ => {}
            }
        }
    }

    /// Messages were acknowledged, in one call, and so many of them were there to be.
    pub(crate) fn acknowledged(&self, lane: &Lane, acknowledged: &[Ended], there: u64) {
        let count = |wanted: &End| acknowledged.iter().filter(|ended| ended.end == *wanted).count() as u64;
        let missing = (acknowledged.len() as u64).saturating_sub(there);
        let done = count(&End::Outcome(Outcome::Ack)).saturating_sub(missing);
        let skipped = count(&End::Outcome(Outcome::Skip));
        let duplicates = count(&End::Duplicate);
        add(&self.acknowledged, done);
        self.left_unsettled(missing);
        add(&self.skipped, skipped);
        add(&self.deduplicated, duplicates);
        lane.metrics.processed(Processed::Ack).add(done);
        lane.metrics.processed(Processed::Skip).add(skipped);
        lane.metrics.processed(Processed::Dedup).add(duplicates);
        lane.metrics.dedupe_hits.add(duplicates);
        lane.metrics.ack_batch_size.observe(acknowledged.len() as u64);
    }

    /// Messages were put aside for another try.
    pub(crate) fn retried(&self, lane: &Lane, count: u64) {
        add(&self.retried, count);
        lane.metrics.processed(Processed::Retry).add(count);
    }

    /// A message was moved to the dead letters.
    pub(crate) fn dead_lettered(&self, lane: &Lane, reason: Reason) {
        add(&self.dead, 1);
        lane.metrics.processed(Processed::Dead).increment();
        lane.metrics.dead(reason).increment();
    }

    /// Messages were released.
    pub(crate) fn released(&self, lane: &Lane, count: u64) {
        add(&self.released, count);
        lane.metrics.processed(Processed::Nack).add(count);
    }

    /// Messages turned out to be somebody else's.
    pub(crate) fn lost(&self, lane: &Lane, count: u64) {
        add(&self.lost_leases, count);
        lane.metrics.lease_lost.add(count);
    }

    /// What became of messages could not be told.
    pub(crate) fn left_unsettled(&self, count: u64) {
        add(&self.unsettled, count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_tells_what_happened_and_nothing_else() {
        let report = Report { received: 9, acknowledged: 7, dead: 2, ..Report::default() };
        assert_eq!(report.to_string(), "9 received, 7 acknowledged, 2 dead");
        let report = Report { panics: 1, timeouts: 2, ..report };
        assert_eq!(report.to_string(), "9 received, 7 acknowledged, 2 dead, 1 panic, 2 timeouts");
    }
}
