//! Intercepts the syncs of a running server with `strace`: makes one fail, or slows all of them.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The fault that is injected into the server's syncs.
#[derive(Clone, Copy, Debug)]
pub(crate) enum SyncFault {
    /// The n-th sync of each thread is not executed and returns EIO. Later syncs work, as after a real failure.
    Fail { nth: u32 },
    /// Each sync is delayed by this time.
    Delay { millis: u64 },
}

/// A running `strace`. It ends with the traced process, or on drop.
pub(crate) struct Tracer {
    child: Child,
    log: PathBuf,
}

impl Tracer {
    /// Attaches to a process and all its threads. The error states why that is not possible.
    pub(crate) fn attach(pid: u32, sync_fault: SyncFault, log: &Path) -> Result<Tracer, String> {
        let _ = std::fs::remove_file(log);
        let injection = match sync_fault {
            SyncFault::Fail { nth } => format!("error=EIO:when={nth}"),
            SyncFault::Delay { millis } => format!("delay_enter={}", millis * 1000),
        };
        let child = Command::new("strace")
            .args(["-f", "-ttt", "-e", "trace=fdatasync,fsync,sync_file_range", "-e"])
            .arg(format!("inject=fdatasync,fsync:{injection}"))
            .arg("-o")
            .arg(log)
            .args(["-p", &pid.to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| format!("strace: {error}"))?;
        let mut tracer = Tracer { child, log: log.to_owned() };
        if tracer.is_attached_to(pid) {
            Ok(tracer)
        } else {
            Err("strace cannot attach to the server".to_owned())
        }
    }

    /// Returns the time at which strace made the first sync fail, in Unix seconds.
    pub(crate) fn failed_at(&self) -> Option<f64> {
        let text = std::fs::read_to_string(&self.log).ok()?;
        let line = text.lines().find(|line| line.contains("(INJECTED)") && line.contains("EIO"))?;
        // Fields of a line: process, time, call.
        line.split_whitespace().nth(1)?.parse().ok()
    }

    fn is_attached_to(&mut self, pid: u32) -> bool {
        let deadline = Instant::now() + Duration::from_secs(3);
        while Instant::now() < deadline && matches!(self.child.try_wait(), Ok(None)) {
            let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
            if status.lines().any(|line| line.starts_with("TracerPid:") && !line.ends_with("\t0")) {
                return true;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        false
    }
}

impl Drop for Tracer {
    fn drop(&mut self) {
        // Fails only if strace has already ended with the traced process.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
