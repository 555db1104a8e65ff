//! Takes snapshots: when the log has grown enough, and when a client asks for one.

use std::io;
use std::sync::Arc;
use std::thread;
use std::time::Instant;

use millstream_store::{SnapshotFailed, priority};

use crate::event_log::Level;
use crate::persistence::{BackgroundSave, SnapshotPurpose};
use crate::state::Server;

impl Server {
    pub(crate) fn save(&self) -> Result<(), SnapshotFailed> {
        self.save_for(SnapshotPurpose::Save)
    }

    fn save_for(&self, purpose: SnapshotPurpose) -> Result<(), SnapshotFailed> {
        let begun = Instant::now();
        let taken = self.store.take_snapshot().map(|_| self.store.now_ms() / 1000);
        self.persistence.note(purpose, begun.elapsed(), &taken);
        if taken.is_ok() {
            let seconds = begun.elapsed().as_secs_f64();
            self.event_log.write(Level::Verbose, &format!("took a snapshot in {seconds:.3} s"));
        }
        taken.map(|_| ())
    }

    /// Takes a snapshot on a separate thread.
    ///
    /// If a snapshot for the other purpose is running and `schedule` is set, schedules this one after it. If any other
    /// snapshot is running, refuses.
    pub(crate) fn save_in_background(
        self: &Arc<Self>,
        purpose: SnapshotPurpose,
        schedule: bool,
    ) -> io::Result<BackgroundSave> {
        let decision = self.persistence.begin(purpose, schedule);
        if decision != BackgroundSave::Started {
            return Ok(decision);
        }
        let server = Arc::clone(self);
        let spawned = thread::Builder::new().name("snapshot".to_owned()).spawn(move || {
            priority::lower();
            let mut next = Some(purpose);
            while let Some(purpose) = next {
                if let Err(error) = server.save_for(purpose)
                    && !server.shutdown.has_begun()
                {
                    let message = format!("a snapshot failed, so the log stays as long as it is: {error}");
                    server.event_log.write(Level::Warning, &message);
                }
                next = server.persistence.finish();
            }
        });
        if spawned.is_err() {
            self.persistence.cancel();
        }
        spawned.map(|_| decision)
    }
}
