//! Failing calls to the store: one log line when an outage begins, and one when it is over.

use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;
use tracing::{debug, info, warn};

use crate::backend::{Error, ErrorKind};
use crate::backoff::Backoff;

/// A kind of call to the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Preparing,
    Reading,
    Claiming,
    Extending,
    Settling,
    DeadLettering,
    Deduplicating,
    Discovering,
    Sharing,
}

impl Operation {
    fn bit(self) -> u16 {
        1 << self as u8
    }

    fn as_str(self) -> &'static str {
        match self {
            Operation::Preparing => "create the consumer group",
            Operation::Reading => "read messages",
            Operation::Claiming => "claim idle messages",
            Operation::Extending => "extend leases",
            Operation::Settling => "settle messages",
            Operation::DeadLettering => "write dead letters",
            Operation::Deduplicating => "look up which messages were handled before",
            Operation::Discovering => "list streams",
            Operation::Sharing => "find out which worker owns the stream",
        }
    }
}

/// Calls that the store has refused for some time, although it can be reached: it is full, or something is missing.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Refusal {
    since: Instant,
    /// The last error.
    pub error: String,
}

impl Refusal {
    /// Returns for how long the store has refused calls.
    pub fn lasts_for(&self) -> Duration {
        self.since.elapsed()
    }
}

/// The operations that currently fail. All tasks of a subscription share it, so one outage causes one warning.
#[derive(Debug, Default)]
pub(crate) struct Outage {
    /// One bit for each failing operation.
    failing: AtomicU16,
    since: Mutex<Option<Instant>>,
    /// Set if the store answered the last failed call.
    refusal: Mutex<Option<Refusal>>,
    /// Whether log and metrics do not report it, because another outage does.
    is_unlogged: bool,
}

impl Outage {
    /// An outage that log and metrics do not report: that of one stream of many.
    pub(crate) fn unlogged() -> Outage {
        Outage { is_unlogged: true, ..Outage::default() }
    }

    /// Records a failed call. Returns true if the outage begins with it.
    pub(crate) fn record_failure(
        &self,
        store: &str,
        stream: &str,
        operation: Operation,
        error: &Error,
    ) -> bool {
        let before = self.failing.fetch_or(operation.bit(), Ordering::AcqRel);
        let refuses = !matches!(error.kind(), ErrorKind::Unreachable | ErrorKind::Busy);
        let mut refusal = self.refusal.lock();
        let since = refusal.take().map_or_else(Instant::now, |refusal| refusal.since);
        *refusal = refuses.then(|| Refusal { since, error: error.to_string() });
        drop(refusal);
        if self.is_unlogged {
            debug!(stream, store, %error, "cannot {}", operation.as_str());
        }
        if before != 0 || self.is_unlogged {
            return false;
        }
        *self.since.lock() = Some(Instant::now());
        warn!(stream, store, %error, "cannot {}: retrying until it succeeds", operation.as_str());
        true
    }

    /// Returns the refusal, if the store answers and refuses calls.
    pub(crate) fn refusal(&self) -> Option<Refusal> {
        self.refusal.lock().clone()
    }

    /// Records a successful call. Returns true if the outage ends with it.
    pub(crate) fn record_success(&self, store: &str, stream: &str, operation: Operation) -> bool {
        if self.failing.load(Ordering::Relaxed) == 0 {
            return false;
        }
        let before = self.failing.fetch_and(!operation.bit(), Ordering::AcqRel);
        if before != operation.bit() {
            return false;
        }
        *self.refusal.lock() = None;
        if self.is_unlogged {
            return false;
        }
        let since = self.since.lock().take();
        let seconds = since.map_or(0.0, |since| since.elapsed().as_secs_f64());
        info!(stream, store, "calls to the store succeed again after {seconds:.1} s");
        true
    }
}

/// The delays between failing calls to the store: they grow from 100 ms to 5 s, with jitter.
#[derive(Debug)]
pub(crate) struct StoreBackoff {
    backoff: Backoff,
    attempts: u64,
}

impl StoreBackoff {
    pub(crate) fn new() -> StoreBackoff {
        let backoff = Backoff::exponential(Duration::from_millis(100)..Duration::from_secs(5));
        StoreBackoff { backoff, attempts: 0 }
    }

    /// Returns the next delay. Before jitter, it is twice the previous one, up to the maximum.
    pub(crate) fn next_delay(&mut self) -> Duration {
        self.attempts += 1;
        self.backoff.delay(self.attempts)
    }

    pub(crate) fn reset(&mut self) {
        self.attempts = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outage_begins_once_and_ends_once() {
        let (outage, error) = (Outage::default(), Error::new(ErrorKind::Unreachable, "refused"));
        assert!(!outage.record_success("memory:", "orders", Operation::Reading));
        assert!(outage.record_failure("memory:", "orders", Operation::Reading, &error));
        assert!(!outage.record_failure("memory:", "orders", Operation::Reading, &error));
        assert!(!outage.record_failure("memory:", "orders", Operation::Settling, &error));
        assert!(!outage.record_success("memory:", "orders", Operation::Extending));
        assert!(!outage.record_success("memory:", "orders", Operation::Reading));
        assert!(outage.record_success("memory:", "orders", Operation::Settling));
    }

    #[test]
    fn a_refusal_lasts_until_calls_succeed_or_the_store_is_unreachable() {
        let (outage, full) = (Outage::default(), Error::new(ErrorKind::NotWritable, "disk full"));
        for ends in [Some(Error::new(ErrorKind::Unreachable, "refused")), None] {
            outage.record_failure("memory:", "orders", Operation::Settling, &full);
            let since = outage.refusal().unwrap().since;
            outage.record_failure("memory:", "orders", Operation::Settling, &full);
            assert_eq!(outage.refusal(), Some(Refusal { since, error: "disk full".into() }));
            match ends {
                Some(error) => drop(outage.record_failure("memory:", "orders", Operation::Settling, &error)),
                None => drop(outage.record_success("memory:", "orders", Operation::Settling)),
            }
            assert_eq!(outage.refusal(), None);
        }
    }

    #[test]
    fn delays_are_bounded() {
        let mut backoff = StoreBackoff::new();
        assert!((0..100).all(|_| backoff.next_delay() <= Duration::from_secs(5)));
        backoff.reset();
        assert!(backoff.next_delay() <= Duration::from_millis(100));
    }
}
