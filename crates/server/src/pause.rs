//! CLIENT PAUSE: delays commands until a given time.

use std::sync::atomic::{AtomicU64, Ordering};

use millstream_protocol::commands::PauseMode;
use tokio::sync::Notify;

/// The pause in force, if any.
///
/// Times are in nanoseconds of the server's uptime. Whole milliseconds would let a pause end up to a millisecond
/// too early.
#[derive(Default)]
pub(crate) struct Pause {
    /// Until when writes are delayed; 0 if they are not.
    writes_until_ns: AtomicU64,
    /// Until when all commands are delayed; 0 if they are not.
    all_until_ns: AtomicU64,
    ended: Notify,
}

impl Pause {
    /// Delays commands until `until_ns`. A pause that lasts longer stays in force.
    pub(crate) fn begin(&self, mode: PauseMode, until_ns: u64) {
        let until = match mode {
            PauseMode::Write => &self.writes_until_ns,
            PauseMode::All => &self.all_until_ns,
        };
        until.fetch_max(until_ns.max(1), Ordering::Relaxed);
    }

    pub(crate) fn end(&self) {
        self.writes_until_ns.store(0, Ordering::Relaxed);
        self.all_until_ns.store(0, Ordering::Relaxed);
        self.ended.notify_waiters();
    }

    /// Whether a pause was begun and not ended by hand; its time may be over. Called for every command, so it reads
    /// no clock.
    pub(crate) fn may_be_active(&self) -> bool {
        self.writes_until_ns.load(Ordering::Relaxed) | self.all_until_ns.load(Ordering::Relaxed) != 0
    }

    /// Returns the uptime in nanoseconds until which a command is delayed, if it is.
    pub(crate) fn paused_until_ns(&self, writes: bool, now_ns: u64) -> Option<u64> {
        let all = self.all_until_ns.load(Ordering::Relaxed);
        let until = if writes { all.max(self.writes_until_ns.load(Ordering::Relaxed)) } else { all };
        (until > now_ns).then_some(until)
    }

    pub(crate) fn ended(&self) -> impl Future<Output = ()> {
        self.ended.notified()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_are_delayed_by_both_modes_and_reads_by_one() {
        let pause = Pause::default();
        assert!(!pause.may_be_active());
        pause.begin(PauseMode::Write, 100);
        assert_eq!(pause.paused_until_ns(true, 50), Some(100));
        assert_eq!(pause.paused_until_ns(false, 50), None);
        pause.begin(PauseMode::All, 80);
        assert_eq!(pause.paused_until_ns(true, 50), Some(100));
        assert_eq!(pause.paused_until_ns(false, 50), Some(80));
        assert_eq!(pause.paused_until_ns(false, 80), None);
        pause.begin(PauseMode::All, 60);
        assert_eq!(pause.paused_until_ns(false, 70), Some(80));
        pause.end();
        assert_eq!(pause.paused_until_ns(true, 0), None);
    }
}
