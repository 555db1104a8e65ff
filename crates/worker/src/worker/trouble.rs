//! Times when the store cannot be reached: told once when they begin, and once when they are over.

use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;
use tracing::{info, warn};

use crate::backend::Error;
use crate::backoff::Backoff;

/// What could not be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Doing {
    Preparing,
    Reading,
    Claiming,
    Extending,
    Settling,
    DeadLettering,
}

impl Doing {
    fn bit(self) -> u8 {
        1 << self as u8
    }

    fn as_str(self) -> &'static str {
        match self {
            Doing::Preparing => "prepare the group",
            Doing::Reading => "read",
            Doing::Claiming => "claim idle messages",
            Doing::Extending => "extend leases",
            Doing::Settling => "settle",
            Doing::DeadLettering => "write dead letters",
        }
    }
}

/// Which of the things to do fail at present. Several tasks share it, so that one outage is one warning.
#[derive(Debug, Default)]
pub(crate) struct Trouble {
    failing: AtomicU8,
    since: Mutex<Option<Instant>>,
}

impl Trouble {
    /// Something failed. True if this is how the trouble begins.
    pub(crate) fn begins(&self, place: &str, stream: &str, doing: Doing, error: &Error) -> bool {
        let before = self.failing.fetch_or(doing.bit(), Ordering::AcqRel);
        if before != 0 {
            return false;
        }
        *self.since.lock() = Some(Instant::now());
        warn!(stream, place, %error, "cannot {}; trying again until it works", doing.as_str());
        true
    }

    /// Something works. True if this is how the trouble ends.
    pub(crate) fn is_over(&self, place: &str, stream: &str, doing: Doing) -> bool {
        if self.failing.load(Ordering::Relaxed) == 0 {
            return false;
        }
        let before = self.failing.fetch_and(!doing.bit(), Ordering::AcqRel);
        if before != doing.bit() {
            return false;
        }
        let since = self.since.lock().take();
        let seconds = since.map_or(0.0, |since| since.elapsed().as_secs_f64());
        info!(stream, place, "back to work after {seconds:.1} s");
        true
    }
}

/// How long to wait between tries: from a tenth of a second to five.
#[derive(Debug)]
pub(crate) struct Patience {
    backoff: Backoff,
    tries: u64,
}

impl Patience {
    pub(crate) fn new() -> Patience {
        let backoff = Backoff::exponential(Duration::from_millis(100)..Duration::from_secs(5));
        Patience { backoff, tries: 0 }
    }

    pub(crate) fn next(&mut self) -> Duration {
        self.tries += 1;
        self.backoff.delay(self.tries)
    }

    pub(crate) fn reset(&mut self) {
        self.tries = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::ErrorKind;

    #[test]
    fn an_outage_begins_once_and_ends_once() {
        let (trouble, error) = (Trouble::default(), Error::new(ErrorKind::Unreachable, "refused"));
        assert!(!trouble.is_over("memory:", "orders", Doing::Reading));
        assert!(trouble.begins("memory:", "orders", Doing::Reading, &error));
        assert!(!trouble.begins("memory:", "orders", Doing::Reading, &error));
        assert!(!trouble.begins("memory:", "orders", Doing::Settling, &error));
        assert!(!trouble.is_over("memory:", "orders", Doing::Extending));
        assert!(!trouble.is_over("memory:", "orders", Doing::Reading));
        assert!(trouble.is_over("memory:", "orders", Doing::Settling));
    }

    #[test]
    fn patience_is_bounded() {
        let mut patience = Patience::new();
        assert!((0..100).all(|_| patience.next() <= Duration::from_secs(5)));
        patience.reset();
        assert!(patience.next() <= Duration::from_millis(100));
    }
}
