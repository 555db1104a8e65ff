//! Signals that ask the process to stop: SIGTERM, SIGINT (Ctrl-C) and SIGHUP. On systems without signals, Ctrl-C.

use std::fmt;
use std::io;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::Instant;
use tracing::error;

/// How long after a signal further ones are ignored.
///
/// Many programs send a signal twice: `timeout` to the process and to its group, service managers SIGTERM and SIGHUP, a
/// closing terminal SIGHUP from the kernel and from the shell.
pub const REPEAT_INTERVAL: Duration = Duration::from_secs(1);

/// Completes when the process is asked to stop: by SIGTERM, by SIGINT (Ctrl-C), or by SIGHUP unless the process was
/// started with SIGHUP ignored, as by `nohup`.
///
/// ```no_run
/// # async fn run(worker: millstream_worker::Worker) -> Result<(), millstream_worker::Error> {
/// let report = worker.run_until(millstream_worker::shutdown_signal()).await?;
/// # Ok(())
/// # }
/// ```
///
/// Once the future has been polled, these signals do not end the process by themselves any more. To let a second signal
/// end it, use [`ShutdownSignals`].
pub async fn shutdown_signal() {
    match ShutdownSignals::listen() {
        Ok(mut signals) => {
            signals.next().await;
        }
        Err(error) => {
            error!(%error, "cannot handle signals: a signal ends this process without a drain");
            std::future::pending().await
        }
    }
}

/// A signal that asks the process to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ShutdownSignal {
    /// SIGTERM.
    Terminate,
    /// SIGINT, which Ctrl-C sends.
    Interrupt,
    /// SIGHUP.
    HangUp,
}

impl ShutdownSignal {
    /// Returns the number of the signal. If it ends a process, the exit code is 128 plus this number by convention.
    pub fn number(self) -> i32 {
        match self {
            ShutdownSignal::HangUp => 1,
            ShutdownSignal::Interrupt => 2,
            ShutdownSignal::Terminate => 15,
        }
    }
}

impl fmt::Display for ShutdownSignal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ShutdownSignal::Terminate => "SIGTERM",
            ShutdownSignal::Interrupt => "SIGINT",
            ShutdownSignal::HangUp => "SIGHUP",
        })
    }
}

/// Receives the signals that ask the process to stop. Signals within [`REPEAT_INTERVAL`] of the one before are ignored.
///
/// The usual reaction to the first one is a drain, and to the second one to end at once:
///
/// ```no_run
/// # async fn run(worker: millstream_worker::Worker) -> Result<(), Box<dyn std::error::Error>> {
/// let mut signals = millstream_worker::shutdown::ShutdownSignals::listen()?;
/// let handle = worker.handle();
/// let two_signals = async {
///     signals.next().await;
///     handle.drain();
///     signals.next().await
/// };
/// tokio::select! {
///     report = worker.run() => println!("{}", report?),
///     signal = two_signals => std::process::exit(128 + signal.number()),
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct ShutdownSignals {
    received: mpsc::UnboundedReceiver<ShutdownSignal>,
}

impl ShutdownSignals {
    /// Installs the signal handlers. From now on, the signals do not end the process by themselves.
    pub fn listen() -> io::Result<ShutdownSignals> {
        let mut handlers = Handlers::install()?;
        let (sender, received) = mpsc::unbounded_channel();
        // A task of its own notes when a signal arrives, however late the caller asks for it.
        tokio::spawn(async move {
            let mut filter = RepeatFilter::default();
            loop {
                let signal = tokio::select! {
                    signal = handlers.next() => signal,
                    () = sender.closed() => return,
                };
                // Sending fails only if the receiver was dropped, and then the task ends.
                if filter.admits(Instant::now()) && sender.send(signal).is_err() {
                    return;
                }
            }
        });
        Ok(ShutdownSignals { received })
    }

    /// Waits for the next signal that is not a repetition.
    pub async fn next(&mut self) -> ShutdownSignal {
        match self.received.recv().await {
            Some(signal) => signal,
            // The runtime of the task has stopped.
            None => std::future::pending().await,
        }
    }
}

/// Recognizes repeated signals.
#[derive(Debug, Default)]
struct RepeatFilter {
    /// When the last signal arrived that was no repetition.
    last: Option<Instant>,
}

impl RepeatFilter {
    fn admits(&mut self, now: Instant) -> bool {
        let is_new = self.last.is_none_or(|last| now >= last + REPEAT_INTERVAL);
        if is_new {
            self.last = Some(now);
        }
        is_new
    }
}

#[cfg(unix)]
struct Handlers {
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
    /// `None` if SIGHUP is ignored.
    hang_up: Option<tokio::signal::unix::Signal>,
}

#[cfg(unix)]
impl Handlers {
    fn install() -> io::Result<Handlers> {
        use tokio::signal::unix::{SignalKind, signal};
        let hang_up = if ignores_hang_up() { None } else { Some(signal(SignalKind::hangup())?) };
        Ok(Handlers {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hang_up,
        })
    }

    async fn next(&mut self) -> ShutdownSignal {
        let hang_up = async {
            match &mut self.hang_up {
                Some(hang_up) => hang_up.recv().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = self.terminate.recv() => ShutdownSignal::Terminate,
            _ = self.interrupt.recv() => ShutdownSignal::Interrupt,
            _ = hang_up => ShutdownSignal::HangUp,
        }
    }
}

/// Whether the process ignores SIGHUP, because its parent does. Only Linux tells.
#[cfg(unix)]
fn ignores_hang_up() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    // A bit for each signal. SIGHUP is number 1.
    ignored.and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok()).is_some_and(|bits| bits & 1 == 1)
}

#[cfg(not(unix))]
struct Handlers;

#[cfg(not(unix))]
impl Handlers {
    fn install() -> io::Result<Handlers> {
        Ok(Handlers)
    }

    async fn next(&mut self) -> ShutdownSignal {
        match tokio::signal::ctrl_c().await {
            Ok(()) => ShutdownSignal::Interrupt,
            Err(_) => std::future::pending().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_within_the_interval_are_repetitions() {
        let (mut filter, first) = (RepeatFilter::default(), Instant::now());
        let milli = Duration::from_millis(1);
        assert!(filter.admits(first));
        assert!(!filter.admits(first + milli) && !filter.admits(first + REPEAT_INTERVAL - milli));
        assert!(filter.admits(first + REPEAT_INTERVAL));
        assert!(!filter.admits(first + REPEAT_INTERVAL * 2 - milli));
        assert!(filter.admits(first + REPEAT_INTERVAL * 2));
    }
}
