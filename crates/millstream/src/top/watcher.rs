//! Looks at the store, over and over. What goes wrong is told, and then it tries again.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use millstream_worker::Admin;
use millstream_worker::backend::Capabilities;
use millstream_worker::monitor::{Monitor, StreamSnapshot};
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;

use crate::ops::Failure;
use crate::ops::connection::Common;

/// The pattern that all streams match.
pub(super) const EVERYTHING: &str = "*";

/// What a look brought.
#[derive(Clone, Debug)]
pub(super) struct Look {
    /// Where the store is.
    pub(super) place: String,
    /// Which streams were looked for.
    pub(super) pattern: String,
    /// What it does natively.
    pub(super) capabilities: Capabilities,
    /// The streams by name, with their groups.
    pub(super) streams: Vec<StreamSnapshot>,
}

/// A look, or why there was none.
pub(super) type Seen = Result<Look, String>;

/// How often to look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pace {
    /// From the end of a look to the beginning of the next.
    pub(super) interval: Duration,
    /// Not at all for now.
    pub(super) paused: bool,
    /// Grows when somebody wants a look at once.
    pub(super) asked: u64,
}

/// Looks at a store.
pub(super) struct Watcher {
    common: Common,
    pattern: String,
    backend: Option<Arc<dyn Admin>>,
    ever_connected: bool,
}

impl Watcher {
    /// Will look at the streams that match the pattern.
    pub(super) fn new(common: Common, pattern: String) -> Watcher {
        Watcher { common, pattern, backend: None, ever_connected: false }
    }

    /// Takes a look, connecting first if need be.
    pub(super) async fn look(&mut self) -> Result<Look, Failure> {
        let backend = match &self.backend {
            Some(backend) => Arc::clone(backend),
            None => self.common.connect().await?,
        };
        self.ever_connected = true;
        self.backend = Some(Arc::clone(&backend));
        let streams = Monitor::new(Arc::clone(&backend)).streams(&self.pattern).await;
        if streams.is_err() {
            // What comes back may be another server: its abilities are to be found out anew.
            self.backend = None;
        }
        Ok(Look {
            place: backend.place(),
            pattern: self.pattern.clone(),
            capabilities: backend.capabilities(),
            streams: streams?,
        })
    }

    /// Looks again and again. Ends only if trying again would be of no use.
    pub(super) async fn watch(
        mut self,
        mut pace: watch::Receiver<Pace>,
        seen: mpsc::Sender<Seen>,
    ) -> Result<Infallible, Failure> {
        loop {
            let look = match self.look().await {
                Ok(look) => Ok(look),
                Err(failure) if self.ever_connected || matches!(failure, Failure::Connection(_)) => {
                    Err(failure.to_string())
                }
                Err(failure) => return Err(failure),
            };
            // Nobody listens any more only when all this is being dropped.
            if seen.send(look).await.is_err() {
                std::future::pending::<()>().await;
            }
            wait(&mut pace).await;
        }
    }
}

/// Waits until it is time for another look. Every change of the pace begins the interval anew.
async fn wait(pace: &mut watch::Receiver<Pace>) {
    let before = *pace.borrow_and_update();
    let mut now = before;
    loop {
        let changed = if now.paused {
            pace.changed().await
        } else {
            match timeout(now.interval, pace.changed()).await {
                Ok(changed) => changed,
                Err(_) => return,
            }
        };
        now = *pace.borrow_and_update();
        let resumed = before.paused && !now.paused;
        if changed.is_err() || resumed || now.asked != before.asked {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLOW: Pace = Pace { interval: Duration::from_secs(3600), paused: false, asked: 0 };

    #[tokio::test]
    async fn asking_and_resuming_end_the_wait_and_pausing_does_not() {
        let (sender, mut pace) = watch::channel(SLOW);
        sender.send(Pace { asked: 1, ..SLOW }).unwrap();
        let asked = async {
            tokio::task::yield_now().await;
            sender.send(Pace { asked: 2, ..SLOW }).unwrap();
        };
        tokio::join!(wait(&mut pace), asked);
        sender.send(Pace { paused: true, ..SLOW }).unwrap();
        let resumed = async {
            tokio::task::yield_now().await;
            sender.send(SLOW).unwrap();
        };
        tokio::join!(wait(&mut pace), resumed);
        let paused = Pace { paused: true, interval: Duration::from_millis(1), asked: 0 };
        sender.send(paused).unwrap();
        let waited = timeout(Duration::from_millis(50), wait(&mut pace)).await;
        assert!(waited.is_err(), "a pause has no end of its own");
    }
}
