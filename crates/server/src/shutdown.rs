//! Stopping: asked for by a signal, by SHUTDOWN, or by the program that embeds the server.

use std::io;

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Whether the server is to stop.
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
    /// Asks the server to stop. Asking again changes nothing.
    pub fn begin(&self) {
        self.asked.send_replace(true);
    }

    /// Whether it was asked.
    pub fn has_begun(&self) -> bool {
        *self.asked.borrow()
    }

    /// Resolves when it is asked.
    pub(crate) async fn begun(&self) {
        let mut asked = self.asked.subscribe();
        // The sender lives as long as `self`, so waiting cannot fail.
        let _ = asked.wait_for(|asked| *asked).await;
    }
}

/// Stops at the first SIGTERM or SIGINT; ends the process at the second.
pub(crate) fn listen_for_signals(shutdown: Shutdown) -> io::Result<JoinHandle<()>> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    Ok(tokio::spawn(async move {
        loop {
            let code = tokio::select! {
                _ = terminate.recv() => 128 + 15,
                _ = interrupt.recv() => 128 + 2,
            };
            if shutdown.has_begun() {
                std::process::exit(code);
            }
            shutdown.begin();
        }
    }))
}
