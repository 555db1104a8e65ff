//! The state of snapshots: the running one, the scheduled one, and the results of the last ones.

use std::time::{Duration, Instant};

use millstream_store::SnapshotFailed;
use parking_lot::Mutex;

/// Why a snapshot is taken. Both purposes produce the same snapshot, but INFO reports them separately, as in Redis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SnapshotPurpose {
    /// For SAVE or BGSAVE.
    Save,
    /// For BGREWRITEAOF, or because the log has grown enough.
    Rewrite,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BackgroundSave {
    Started,
    /// The snapshot will start after the running one.
    Scheduled,
    /// The request is refused, because a snapshot for this purpose is running.
    Refused(SnapshotPurpose),
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LastSnapshot {
    /// How long it took; `None` if no snapshot was attempted since the server started.
    pub(crate) took: Option<Duration>,
    pub(crate) failed: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct SnapshotState {
    /// The purpose of the snapshot running in the background, and when it started.
    pub(crate) running: Option<(SnapshotPurpose, Instant)>,
    pub(crate) scheduled: Option<SnapshotPurpose>,
    pub(crate) last_save: LastSnapshot,
    /// The last snapshot for [`SnapshotPurpose::Rewrite`].
    pub(crate) last_rewrite: LastSnapshot,
    pub(crate) taken: u64,
    /// When the last successful snapshot was taken, or when the server started, in Unix seconds.
    pub(crate) last_save_s: u64,
    pub(crate) error: Option<String>,
}

pub(crate) struct Persistence {
    state: Mutex<SnapshotState>,
}

impl Persistence {
    pub(crate) fn new(now_s: u64) -> Persistence {
        Persistence {
            state: Mutex::new(SnapshotState {
                running: None,
                scheduled: None,
                last_save: LastSnapshot::default(),
                last_rewrite: LastSnapshot::default(),
                taken: 0,
                last_save_s: now_s,
                error: None,
            }),
        }
    }

    pub(crate) fn state(&self) -> SnapshotState {
        self.state.lock().clone()
    }

    pub(crate) fn running(&self) -> Option<SnapshotPurpose> {
        self.state.lock().running.map(|(purpose, _)| purpose)
    }

    pub(crate) fn last_save_s(&self) -> u64 {
        self.state.lock().last_save_s
    }

    /// Marks a snapshot as running, unless another is running.
    ///
    /// If one for the other purpose is running and `schedule` is true, the snapshot is scheduled after it.
    pub(crate) fn begin(&self, purpose: SnapshotPurpose, schedule: bool) -> BackgroundSave {
        let mut state = self.state.lock();
        match state.running {
            None => {
                state.running = Some((purpose, Instant::now()));
                BackgroundSave::Started
            }
            Some((running, _)) if running != purpose && schedule => {
                state.scheduled = Some(purpose);
                BackgroundSave::Scheduled
            }
            Some((running, _)) => BackgroundSave::Refused(running),
        }
    }

    /// Records how long a snapshot took, and its result: on success, when it was taken, in Unix seconds.
    pub(crate) fn note(
        &self,
        purpose: SnapshotPurpose,
        took: Duration,
        result: &Result<u64, SnapshotFailed>,
    ) {
        let mut state = self.state.lock();
        let last = LastSnapshot { took: Some(took), failed: result.is_err() };
        match purpose {
            SnapshotPurpose::Save => state.last_save = last,
            SnapshotPurpose::Rewrite => state.last_rewrite = last,
        }
        state.error = result.as_ref().err().map(ToString::to_string);
        if let Ok(now_s) = result {
            state.taken += 1;
            state.last_save_s = *now_s;
        }
    }

    /// Undoes [`Persistence::begin`]. Called if the thread of a snapshot could not be started.
    pub(crate) fn cancel(&self) {
        self.state.lock().running = None;
    }

    /// Marks the running snapshot as finished. If another is scheduled, marks that one as running and returns its
    /// purpose.
    pub(crate) fn finish(&self) -> Option<SnapshotPurpose> {
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
    fn one_snapshot_runs_and_one_for_the_other_purpose_can_be_scheduled() {
        let persistence = Persistence::new(5);
        assert_eq!(persistence.begin(SnapshotPurpose::Rewrite, false), BackgroundSave::Started);
        assert_eq!(
            persistence.begin(SnapshotPurpose::Rewrite, true),
            BackgroundSave::Refused(SnapshotPurpose::Rewrite)
        );
        assert_eq!(
            persistence.begin(SnapshotPurpose::Save, false),
            BackgroundSave::Refused(SnapshotPurpose::Rewrite)
        );
        assert_eq!(persistence.begin(SnapshotPurpose::Save, true), BackgroundSave::Scheduled);
        assert_eq!(persistence.finish(), Some(SnapshotPurpose::Save));
        assert_eq!(persistence.running(), Some(SnapshotPurpose::Save));
        assert_eq!(
            persistence.begin(SnapshotPurpose::Save, true),
            BackgroundSave::Refused(SnapshotPurpose::Save)
        );
        assert_eq!(persistence.finish(), None);
        assert_eq!(persistence.running(), None);
    }

    #[test]
    fn failure_is_reported_until_the_next_success() {
        let persistence = Persistence::new(5);
        let failed = Err(SnapshotFailed::File(io::Error::other("broken")));
        persistence.note(SnapshotPurpose::Save, Duration::from_secs(2), &failed);
        let state = persistence.state();
        assert!(state.last_save.failed && !state.last_rewrite.failed);
        assert_eq!((state.taken, state.last_save_s), (0, 5));
        assert!(state.error.unwrap().contains("broken"));
        persistence.note(SnapshotPurpose::Save, Duration::from_secs(2), &Ok(9));
        let state = persistence.state();
        assert_eq!(
            (state.last_save.failed, state.taken, state.last_save_s, state.error),
            (false, 1, 9, None)
        );
    }
}
