//! CLIENT PAUSE: for a while, commands wait instead of running.

use std::sync::atomic::{AtomicU64, Ordering};

use millstream_protocol::commands::PauseMode;
use tokio::sync::Notify;

/// The pause in force, if any. Times are nanoseconds of the server's uptime: counted in whole milliseconds, a
/// pause could end almost one too early.
#[derive(Default)]
pub(crate) struct Pause {
    /// When writes go on; 0 if they are not held back.
    writes_until_ns: AtomicU64,
    /// When everything goes on; 0 if it is not held back.
    all_until_ns: AtomicU64,
    ended: Notify,
}

impl Pause {
    /// Holds commands back until then. A pause already longer than this stays.
    pub(crate) fn begin(&self, mode: PauseMode, until_ns: u64) {
        let until = match mode {
            PauseMode::Write => &self.writes_until_ns,
            PauseMode::All => &self.all_until_ns,
        };
        until.fetch_max(until_ns.max(1), Ordering::Relaxed);
    }

    /// Lets every command go on.
    pub(crate) fn end(&self) {
        self.writes_until_ns.store(0, Ordering::Relaxed);
        self.all_until_ns.store(0, Ordering::Relaxed);
        self.ended.notify_waiters();
    }

    /// Whether any pause was begun and not ended: asked for every command, so it does not look at the time.
    pub(crate) fn may_hold(&self) -> bool {
        self.writes_until_ns.load(Ordering::Relaxed) | self.all_until_ns.load(Ordering::Relaxed) != 0
    }

    /// The uptime in nanoseconds until which a command is held back, if it is.
    pub(crate) fn held_until_ns(&self, writes: bool, now_ns: u64) -> Option<u64> {
        let all = self.all_until_ns.load(Ordering::Relaxed);
        let until = if writes { all.max(self.writes_until_ns.load(Ordering::Relaxed)) } else { all };
        (until > now_ns).then_some(until)
    }

    /// Resolves when a pause is ended by hand.
    pub(crate) fn ended(&self) -> impl Future<Output = ()> {
        self.ended.notified()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_wait_for_both_pauses_and_reads_for_one() {
        let pause = Pause::default();
        assert!(!pause.may_hold());
        pause.begin(PauseMode::Write, 100);
        assert_eq!(pause.held_until_ns(true, 50), Some(100));
        assert_eq!(pause.held_until_ns(false, 50), None);
        pause.begin(PauseMode::All, 80);
        assert_eq!(pause.held_until_ns(true, 50), Some(100));
        assert_eq!(pause.held_until_ns(false, 50), Some(80));
        assert_eq!(pause.held_until_ns(false, 80), None);
        pause.begin(PauseMode::All, 60);
        assert_eq!(pause.held_until_ns(false, 70), Some(80));
        pause.end();
        assert_eq!(pause.held_until_ns(true, 0), None);
    }
}
