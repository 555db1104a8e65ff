//! Stands between a running server and its syncs, by `strace`: makes one fail, or all of them slow.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// What happens to the server's syncs.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Trick {
    /// The n-th of each thread is not done and returns EIO; later ones work, as after a real failure.
    Fail { nth: u32 },
    /// Each begins that much later.
    Delay { millis: u64 },
}

/// A running `strace`. Ends with the traced process, or on drop.
pub(crate) struct Tracer {
    child: Child,
    log: PathBuf,
}

impl Tracer {
    /// Attaches to a process with all its threads. The error says why it cannot.
    pub(crate) fn attach(pid: u32, trick: Trick, log: &Path) -> Result<Tracer, String> {
        let _ = std::fs::remove_file(log);
        let what = match trick {
            Trick::Fail { nth } => format!("error=EIO:when={nth}"),
            Trick::Delay { millis } => format!("delay_enter={}", millis * 1000),
        };
        let child = Command::new("strace")
            .args(["-f", "-ttt", "-e", "trace=fdatasync,fsync,sync_file_range", "-e"])
            .arg(format!("inject=fdatasync,fsync:{what}"))
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

    /// When the first sync was made to fail, in seconds since 1970.
    pub(crate) fn failed_at(&self) -> Option<f64> {
        let text = std::fs::read_to_string(&self.log).ok()?;
        let line = text.lines().find(|line| line.contains("(INJECTED)") && line.contains("EIO"))?;
        // A line is: process, time, call.
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
        // Fails only when it has ended with the traced process.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
