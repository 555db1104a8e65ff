//! Stops the server: on a signal, on SHUTDOWN, or when the program that embeds the server asks for it.

use std::io;
use std::time::{Duration, Instant};

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// A request to stop the server. Clones share it.
#[derive(Clone)]
pub struct Shutdown {
    asked: watch::Sender<bool>,
}

impl Default for Shutdown {
    fn default() -> Self {
        Shutdown { asked: watch::Sender::new(false) }
    }
}

impl Shutdown {
    /// Asks the server to stop. Further calls have no effect.
    pub fn begin(&self) {
        self.asked.send_replace(true);
    }

    /// Whether the server was asked to stop.
    pub fn has_begun(&self) -> bool {
        *self.asked.borrow()
    }

    /// Resolves when the server is asked to stop.
    pub async fn begun(&self) {
        let mut asked = self.asked.subscribe();
        // The wait cannot fail, because `self` keeps the sender.
        let _ = asked.wait_for(|asked| *asked).await;
    }
}

/// How long after a signal further ones are ignored. Some programs send each signal twice, such as `timeout`: to the
/// process and to its group.
const REPEAT_INTERVAL: Duration = Duration::from_secs(1);

/// Stops the server on the first SIGTERM or SIGINT. The second one ends the process.
pub(crate) fn listen_for_signals(shutdown: Shutdown) -> io::Result<JoinHandle<()>> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    Ok(tokio::spawn(async move {
        let mut last: Option<Instant> = None;
        loop {
            let code = tokio::select! {
                _ = terminate.recv() => 128 + 15,
                _ = interrupt.recv() => 128 + 2,
            };
            if last.is_some_and(|last| last.elapsed() < REPEAT_INTERVAL) {
                continue;
            }
            if shutdown.has_begun() {
                std::process::exit(code);
            }
            last = Some(Instant::now());
            shutdown.begin();
        }
    }))
}
