//! Counters of what a worker has done: for its report, and for the metrics of each stream.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use crate::message::age_of;
use crate::metrics::{Processed, WorkerMetrics};
use crate::outcome::{Outcome, Reason};
use crate::worker::message::{FinishedJob, JobResult};
use crate::worker::stream::Subscription;

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// What a worker has done so far or in total.
        ///
        /// Each delivery ends in one of two ways. Either the message is done: it was acknowledged, skipped,
        /// deduplicated or dead-lettered. Or it can be delivered again: it was retried or released, its lease was
        /// lost, or it stayed unsettled.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct Report {
            $($(#[$doc])* pub $name: u64,)*
        }

        /// The counters behind a [`Report`].
        #[derive(Debug, Default)]
        pub(crate) struct Counters {
            $($name: AtomicU64,)*
        }

        impl Counters {
            pub(crate) fn report(&self) -> Report {
                Report { $($name: self.$name.load(Ordering::Relaxed),)* }
            }
        }
    };
}

counters! {
    /// Messages read or claimed.
    received,
    /// Messages acknowledged because a handler has processed them.
    acknowledged,
    /// Failed attempts that are followed by a back-off.
    retried,
    /// Messages moved to the dead letters.
    dead,
    /// Messages acknowledged because they were processed before.
    deduplicated,
    /// Messages acknowledged because the handler skipped them.
    skipped,
    /// Messages released at a pause or a drain. Other workers can claim them immediately.
    released,
    /// Received messages that had been delivered before: retries, and messages taken over from other workers.
    redelivered,
    /// Messages taken over by another worker while they were in flight here. Their outcomes were ignored.
    lost_leases,
    /// Messages that could not be settled: the store was unreachable until the worker ended, or the group was
    /// deleted.
    unsettled,
    /// Handler calls that panicked.
    panics,
    /// Handler calls that exceeded the timeout.
    timeouts,
    /// How often the circuit breaker opened.
    breaker_openings,
    /// How often the worker created its group again, because somebody had deleted it.
    groups_recreated,
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
            (
                if self.breaker_openings == 1 { "breaker opening" } else { "breaker openings" },
                self.breaker_openings,
            ),
            (
                if self.groups_recreated == 1 { "group recreated" } else { "groups recreated" },
                self.groups_recreated,
            ),
        ];
        let mut nonzero = others.iter().filter(|(_, count)| *count > 0);
        nonzero.try_for_each(|(name, count)| write!(f, ", {count} {name}"))
    }
}

fn add(counter: &AtomicU64, count: u64) {
    counter.fetch_add(count, Ordering::Relaxed);
}

impl Counters {
    pub(crate) fn received(&self, subscription: &Subscription, count: u64) {
        add(&self.received, count);
        subscription.metrics.received.add(count);
    }

    /// Counts messages that were received and that a handler may have seen before.
    pub(crate) fn redelivered(&self, count: u64) {
        add(&self.redelivered, count);
    }

    /// Counts finished jobs, before they are settled.
    pub(crate) fn finished(&self, subscription: &Subscription, jobs: &[FinishedJob]) {
        let now = SystemTime::now();
        for FinishedJob { job, result, run_time } in jobs {
            let (JobResult::Outcome(outcome) | JobResult::Uncounted(outcome)) = result else { continue };
            if matches!(outcome, Outcome::NotStarted(_)) {
                continue;
            }
            subscription.metrics.process_duration.observe_duration(*run_time);
            let attempt = job.attempt().number();
            subscription.metrics.deliveries.observe(attempt);
            if attempt == 1 {
                let age = age_of(job.id, now).unwrap_or_default();
                subscription.metrics.delivery_latency.observe_duration(age.saturating_sub(*run_time));
            }
            match outcome.failure().map(|failure| failure.reason) {
                Some(Reason::Panic) => {
                    add(&self.panics, 1);
                    subscription.metrics.panics.increment();
                }
                Some(Reason::Timeout) => {
                    add(&self.timeouts, 1);
                    subscription.metrics.timeouts.increment();
                }
                _ => {}
            }
        }
    }

    /// Counts messages that were acknowledged in one call, of which `were_pending` were still pending.
    pub(crate) fn acknowledged(
        &self,
        subscription: &Subscription,
        acknowledged: &[FinishedJob],
        were_pending: u64,
    ) {
        let count = |wanted: &JobResult| {
            acknowledged.iter().filter(|finished| finished.result == *wanted).count() as u64
        };
        let missing = (acknowledged.len() as u64).saturating_sub(were_pending);
        let done = count(&JobResult::Outcome(Outcome::Ack)).saturating_sub(missing);
        let skipped = count(&JobResult::Outcome(Outcome::Skip));
        let duplicates = count(&JobResult::Duplicate);
        add(&self.acknowledged, done);
        self.left_unsettled(missing);
        add(&self.skipped, skipped);
        add(&self.deduplicated, duplicates);
        subscription.metrics.processed(Processed::Ack).add(done);
        subscription.metrics.processed(Processed::Skip).add(skipped);
        subscription.metrics.processed(Processed::Dedup).add(duplicates);
        subscription.metrics.dedupe_hits.add(duplicates);
        subscription.metrics.ack_batch_size.observe(acknowledged.len() as u64);
    }

    /// Counts messages that back off before their next attempt.
    pub(crate) fn retried(&self, subscription: &Subscription, count: u64) {
        add(&self.retried, count);
        subscription.metrics.processed(Processed::Retry).add(count);
    }

    /// Counts a message that was moved to the dead letters.
    pub(crate) fn dead_lettered(&self, subscription: &Subscription, reason: Reason) {
        add(&self.dead, 1);
        subscription.metrics.processed(Processed::Dead).increment();
        subscription.metrics.dead_lettered(reason).increment();
    }

    pub(crate) fn released(&self, subscription: &Subscription, count: u64) {
        add(&self.released, count);
        subscription.metrics.processed(Processed::Nack).add(count);
    }

    /// Counts messages that another worker has taken over.
    pub(crate) fn lost(&self, subscription: &Subscription, count: u64) {
        add(&self.lost_leases, count);
        subscription.metrics.lease_lost.add(count);
    }

    /// Counts that the circuit breaker has opened.
    pub(crate) fn breaker_opened(&self, metrics: &[Arc<WorkerMetrics>]) {
        add(&self.breaker_openings, 1);
        for metrics in metrics {
            metrics.breaker_open.set(1.0);
            metrics.breaker_openings.increment();
        }
    }

    /// Counts that the worker has created a deleted group again.
    pub(crate) fn group_recreated(&self) {
        add(&self.groups_recreated, 1);
    }

    /// Counts messages that could not be settled.
    pub(crate) fn left_unsettled(&self, count: u64) {
        add(&self.unsettled, count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_lists_only_nonzero_counts() {
        let report = Report { received: 9, acknowledged: 7, dead: 2, ..Report::default() };
        assert_eq!(report.to_string(), "9 received, 7 acknowledged, 2 dead");
        let report = Report { panics: 1, timeouts: 2, ..report };
        assert_eq!(report.to_string(), "9 received, 7 acknowledged, 2 dead, 1 panic, 2 timeouts");
    }
}
