//! Takes snapshots: when the log has grown enough, and when somebody asks.

use std::io;
use std::sync::Arc;
use std::thread;
use std::time::Instant;

use millstream_store::{SnapshotFailed, priority};

use crate::persistence::{Background, Purpose};
use crate::state::Server;

impl Server {
    /// Takes a snapshot now, on this thread.
    pub(crate) fn save(&self) -> Result<(), SnapshotFailed> {
        self.save_for(Purpose::Save)
    }

    fn save_for(&self, purpose: Purpose) -> Result<(), SnapshotFailed> {
        let begun = Instant::now();
        let taken = self.store.take_snapshot().map(|_| self.store.now_ms() / 1000);
        self.persistence.note(purpose, begun.elapsed(), &taken);
        taken.map(|_| ())
    }

    /// Takes a snapshot on a thread of its own, if none is being taken, or after that one if `schedule` is set.
    pub(crate) fn save_in_background(
        self: &Arc<Self>,
        purpose: Purpose,
        schedule: bool,
    ) -> io::Result<Background> {
        let answer = self.persistence.begin(purpose, schedule);
        if answer != Background::Begun {
            return Ok(answer);
        }
        let server = Arc::clone(self);
        let spawned = thread::Builder::new().name("snapshot".to_owned()).spawn(move || {
            priority::lower();
            let mut wanted = Some(purpose);
            while let Some(purpose) = wanted {
                if let Err(error) = server.save_for(purpose)
                    && !server.shutdown.has_begun()
                {
                    eprintln!("millstream: {error}");
                }
                wanted = server.persistence.next();
            }
        });
        if spawned.is_err() {
            self.persistence.not_begun();
        }
        spawned.map(|_| answer)
    }
}
