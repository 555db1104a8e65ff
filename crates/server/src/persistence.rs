//! How it stands with snapshots: what runs, what is wanted, what became of the last.

use std::time::{Duration, Instant};

use millstream_store::SnapshotFailed;
use parking_lot::Mutex;

/// What a snapshot in the background is for. It is the same snapshot; Redis has two commands and tells them apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// BGSAVE.
    Save,
    /// BGREWRITEAOF, and the log having grown enough.
    Rewrite,
}

/// What came of asking for a snapshot in the background.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Background {
    /// It is being taken.
    Begun,
    /// It is taken after the one that is being taken.
    Scheduled,
    /// Nothing: one is being taken for this purpose.
    Refused(Purpose),
}

/// What became of the last snapshot for one purpose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LastRun {
    /// How long it took, if there was one.
    pub(crate) took: Option<Duration>,
    /// Whether it failed.
    pub(crate) failed: bool,
}

/// How it stands with snapshots.
#[derive(Clone, Debug)]
pub(crate) struct SnapshotState {
    /// What one is being taken for in the background, and since when.
    pub(crate) running: Option<(Purpose, Instant)>,
    /// What the next one is for, if one is wanted.
    pub(crate) scheduled: Option<Purpose>,
    /// The last one for BGSAVE, or for SAVE.
    pub(crate) last_save: LastRun,
    /// The last one that made the log shorter.
    pub(crate) last_rewrite: LastRun,
    /// How many were taken.
    pub(crate) taken: u64,
    /// When the data was last known to be in a snapshot, or the server began, in Unix seconds.
    pub(crate) last_save_s: u64,
    /// Why the last one failed, if it did.
    pub(crate) error: Option<String>,
}

/// Snapshots: what runs, what is wanted, what became of the last.
pub(crate) struct Persistence {
    state: Mutex<SnapshotState>,
}

impl Persistence {
    pub(crate) fn new(now_s: u64) -> Persistence {
        Persistence {
            state: Mutex::new(SnapshotState {
                running: None,
                scheduled: None,
                last_save: LastRun::default(),
                last_rewrite: LastRun::default(),
                taken: 0,
                last_save_s: now_s,
                error: None,
            }),
        }
    }

    /// How it stands.
    pub(crate) fn state(&self) -> SnapshotState {
        self.state.lock().clone()
    }

    /// What a snapshot is being taken for in the background.
    pub(crate) fn running(&self) -> Option<Purpose> {
        self.state.lock().running.map(|(purpose, _)| purpose)
    }

    /// When the last one was taken, in Unix seconds.
    pub(crate) fn last_save_s(&self) -> u64 {
        self.state.lock().last_save_s
    }

    /// Decides whether one may begin, and if so notes that it has.
    pub(crate) fn begin(&self, purpose: Purpose, schedule: bool) -> Background {
        let mut state = self.state.lock();
        match state.running {
            None => {
                state.running = Some((purpose, Instant::now()));
                Background::Begun
            }
            Some((running, _)) if running != purpose && schedule => {
                state.scheduled = Some(purpose);
                Background::Scheduled
            }
            Some((running, _)) => Background::Refused(running),
        }
    }

    pub(crate) fn note(&self, purpose: Purpose, took: Duration, result: &Result<u64, SnapshotFailed>) {
        let mut state = self.state.lock();
        let last = LastRun { took: Some(took), failed: result.is_err() };
        match purpose {
            Purpose::Save => state.last_save = last,
            Purpose::Rewrite => state.last_rewrite = last,
        }
        state.error = result.as_ref().err().map(ToString::to_string);
        if let Ok(now_s) = result {
            state.taken += 1;
            state.last_save_s = *now_s;
        }
    }

    /// The thread that was to take one could not be started.
    pub(crate) fn not_begun(&self) {
        self.state.lock().running = None;
    }

    /// One has ended. The purpose of the next, if one is wanted; it counts as running.
    pub(crate) fn next(&self) -> Option<Purpose> {
        let mut state = self.state.lock();
        let next = state.scheduled.take();
        state.running = next.map(|purpose| (purpose, Instant::now()));
        next
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn one_at_a_time_and_the_other_purpose_may_be_next() {
        let persistence = Persistence::new(5);
        assert_eq!(persistence.begin(Purpose::Rewrite, false), Background::Begun);
        assert_eq!(persistence.begin(Purpose::Rewrite, true), Background::Refused(Purpose::Rewrite));
        assert_eq!(persistence.begin(Purpose::Save, false), Background::Refused(Purpose::Rewrite));
        assert_eq!(persistence.begin(Purpose::Save, true), Background::Scheduled);
        assert_eq!(persistence.next(), Some(Purpose::Save));
        assert_eq!(persistence.running(), Some(Purpose::Save));
        assert_eq!(persistence.begin(Purpose::Save, true), Background::Refused(Purpose::Save));
        assert_eq!(persistence.next(), None);
        assert_eq!(persistence.running(), None);
    }

    #[test]
    fn a_failure_is_remembered_until_the_next_success() {
        let persistence = Persistence::new(5);
        let failed = Err(SnapshotFailed::File(io::Error::other("broken")));
        persistence.note(Purpose::Save, Duration::from_secs(2), &failed);
        let state = persistence.state();
        assert!(state.last_save.failed && !state.last_rewrite.failed);
        assert_eq!((state.taken, state.last_save_s), (0, 5));
        assert!(state.error.unwrap().contains("broken"));
        persistence.note(Purpose::Save, Duration::from_secs(2), &Ok(9));
        let state = persistence.state();
        assert_eq!(
            (state.last_save.failed, state.taken, state.last_save_s, state.error),
            (false, 1, 9, None)
        );
    }
}
