//! Shell commands that handle messages. Each runs in its own process group, so that its children are stopped with it.
//!
//! A command begins only after the watchdog has its process group: until then, its shell waits for a line on standard
//! input. If the worker is killed before that, the line never comes, and the shell exits.

use std::io::{self, Write};
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::net::unix::pipe;
use tokio::process::{Child, ChildStdout, Command};
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::timeout;

use super::broken_command::CommandCheck;
use super::console::{Console, HandlerLine, LineOrigin};
use super::handler_log::HandlerLog;
use super::watchdog::Watchdog;
use crate::ops::connection::PASSWORD_VARIABLE;
use crate::ops::trace::{TRACEPARENT_VARIABLE, TRACESTATE_VARIABLE};

/// Maximum time to read the rest of the output of a process that has ended. Its children may keep its standard error
/// open.
const OUTPUT_TIMEOUT: Duration = Duration::from_millis(200);
/// Maximum number of bytes of standard output that the worker passes on for one attempt of a message or batch. As much
/// as an answer of a long-lived program.
const STDOUT_BYTES_MAX: usize = 1024 * 1024;
/// Maximum length of an output line. Longer lines are forwarded in pieces.
const LINE_BYTES_MAX: usize = 8 * 1024;

/// Variables that can hold a password of the store. Commands do not inherit them from the worker.
const SECRET_VARIABLES: [&str; 3] = ["MILLSTREAM_URL", PASSWORD_VARIABLE, "MILLSTREAM_REQUIREPASS"];

/// A shell command that handles messages, and the settings that all of its processes share.
pub(super) struct Shell {
    pub(super) command: String,
    /// Maximum time for one message or one batch. `None` for no limit.
    pub(super) timeout: Option<Duration>,
    pub(super) console: Console,
    pub(super) watchdog: Arc<Watchdog>,
    pub(super) check: Arc<CommandCheck>,
}

/// A running command. If it is dropped while it runs, it is killed with all of its children.
pub(super) struct Process {
    child: Child,
    stdin: Option<pipe::Sender>,
    group: Option<Pid>,
    watchdog: Arc<Watchdog>,
    ended: bool,
    stderr: Forwarder,
    /// `None` unless standard output is forwarded.
    stdout: Option<OutputForwarder>,
}

impl Shell {
    /// Starts `sh -c command`, after `set_up` has configured it. Forwards its standard error line by line; `origin`
    /// says which message a line is about.
    pub(super) fn start(
        &self,
        origin: impl Fn() -> LineOrigin + Send + 'static,
        set_up: impl FnOnce(&mut Command),
    ) -> io::Result<Process> {
        let mut shell = Command::new("sh");
        let (reader, mut writer) = io::pipe()?;
        // On one line with the command, so that error messages of the shell have the right line number.
        shell.arg("-c").arg(format!("read -r _ || exit; {}", self.command));
        shell.process_group(0).stdin(reader).stderr(Stdio::piped());
        for name in SECRET_VARIABLES {
            shell.env_remove(name);
        }
        // The trace of the worker itself is not that of its messages.
        shell.env_remove(TRACEPARENT_VARIABLE).env_remove(TRACESTATE_VARIABLE);
        set_up(&mut shell);
        let mut child = shell.spawn()?;
        let group = child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
        if let Some(group) = group {
            self.watchdog.add(group);
        }
        // Fails only if the shell has already ended.
        let _ = writer.write_all(b"\n");
        let stdin = Some(pipe::Sender::from_owned_fd(writer.into())?);
        let mut log = HandlerLog::to(self.console.clone());
        let stderr =
            Forwarder::new(child.stderr.take(), move |line| log.line(origin(), HandlerLine::stderr(line)));
        Ok(Process {
            child,
            stdin,
            group,
            watchdog: Arc::clone(&self.watchdog),
            ended: false,
            stderr,
            stdout: None,
        })
    }
}

impl Process {
    /// Takes the standard input of the process. Returns `None` the second time.
    pub(super) fn take_stdin(&mut self) -> Option<pipe::Sender> {
        self.stdin.take()
    }

    /// Takes the standard output of the process, if it is piped. Returns `None` the second time.
    pub(super) fn take_stdout(&mut self) -> Option<ChildStdout> {
        self.child.stdout.take()
    }

    pub(super) fn forward_stdout(&mut self, console: &Console, origin: LineOrigin) {
        self.stdout = self.take_stdout().map(|out| OutputForwarder::new(out, console.clone(), origin));
    }

    pub(super) async fn wait(&mut self) -> io::Result<ExitStatus> {
        let status = self.child.wait().await;
        self.ended = true;
        status
    }

    /// Sends SIGTERM to the process and its children.
    pub(super) fn terminate(&self) {
        self.signal(Signal::TERM);
    }

    /// Sends SIGTERM, and SIGKILL if the process still runs after the grace period. Waits until it has ended. Returns
    /// how it ended, which can be an exit code of its own if it was ending already.
    pub(super) async fn stop(&mut self, grace: Duration) -> Option<ExitStatus> {
        self.terminate();
        // On a timeout, SIGKILL follows.
        let _ = timeout(grace, self.wait()).await;
        // Also kills children that ignored SIGTERM.
        self.signal(Signal::KILL);
        self.wait().await.ok()
    }

    /// Returns the last line of its standard error, after its output has been forwarded.
    pub(super) async fn last_stderr_line(&mut self) -> Option<String> {
        if let Some(stdout) = &mut self.stdout {
            stdout.finish().await;
        }
        // Output that arrives later comes from a child of the process.
        let _ = timeout(OUTPUT_TIMEOUT, self.stderr.finish()).await;
        self.stderr.last_line()
    }

    fn signal(&self, signal: Signal) {
        if let Some(group) = self.group {
            // Fails only if no process of the group is left.
            let _ = kill_process_group(group, signal);
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if !self.ended {
            self.signal(Signal::KILL);
        }
        if let Some(group) = self.group {
            self.watchdog.remove(group);
        }
    }
}

/// A task that forwards the output of a process line by line and keeps the last line.
struct Forwarder {
    lines: Arc<Mutex<Lines>>,
    task: JoinHandle<()>,
}

impl Forwarder {
    fn new(
        from: Option<impl AsyncRead + Unpin + Send + 'static>,
        mut forward: impl FnMut(&[u8]) + Send + 'static,
    ) -> Forwarder {
        let lines = Arc::new(Mutex::new(Lines::default()));
        let shared = Arc::clone(&lines);
        let task = tokio::spawn(async move {
            let Some(mut from) = from else { return };
            let mut buffer = vec![0; 4096];
            // An error ends the output too.
            while let Ok(count @ 1..) = from.read(&mut buffer).await {
                shared.lock().push(&buffer[..count], &mut forward);
            }
            shared.lock().finish(&mut forward);
        });
        Forwarder { lines, task }
    }

    /// Waits until all output has been forwarded. Can be called again.
    async fn finish(&mut self) {
        if !self.task.is_finished() {
            // Fails only if the task panicked, and then no more output follows.
            let _ = (&mut self.task).await;
        }
    }

    fn last_line(&self) -> Option<String> {
        let lines = self.lines.lock();
        let last = String::from_utf8_lossy(&lines.last).trim().to_owned();
        (!last.is_empty()).then_some(last)
    }
}

/// A task that forwards the beginning of a process's standard output, and says how much it left out. It writes whole
/// lines if there is a status line below them, otherwise the bytes as they are.
struct OutputForwarder {
    task: JoinHandle<()>,
    /// Whether bytes are being written. The reader of our own standard output can be slow.
    is_writing: Arc<AtomicBool>,
}

impl OutputForwarder {
    fn new(mut from: ChildStdout, console: Console, origin: LineOrigin) -> OutputForwarder {
        let is_writing = Arc::new(AtomicBool::new(false));
        let writing = Arc::clone(&is_writing);
        let task = tokio::spawn(async move {
            let (mut buffer, mut lines) = (vec![0; 4096], Lines::default());
            let (mut room, mut left_out) = (STDOUT_BYTES_MAX, 0);
            let print = async |bytes: Vec<u8>| {
                writing.store(true, Ordering::Relaxed);
                let console = console.clone();
                // Fails only if printing panicked.
                let _ = spawn_blocking(move || console.print(&bytes)).await;
                writing.store(false, Ordering::Relaxed);
            };
            // An error ends the output too.
            while let Ok(count @ 1..) = from.read(&mut buffer).await {
                let fits = count.min(room);
                room -= fits;
                left_out += (count - fits) as u64;
                let mut bytes = Vec::new();
                match console.shares_screen() {
                    true => lines.push(&buffer[..fits], |line| bytes.extend_from_slice(line)),
                    false => bytes.extend_from_slice(&buffer[..fits]),
                }
                if !bytes.is_empty() {
                    print(bytes).await;
                }
            }
            let mut bytes = Vec::new();
            lines.finish(|line| bytes.extend_from_slice(line));
            print(bytes).await;
            if left_out > 0 {
                let text = format!("[{left_out} more bytes of standard output left out]");
                console.write_handler_line(&origin, HandlerLine::stderr(text.as_bytes()));
            }
        });
        OutputForwarder { task, is_writing }
    }

    /// Waits until all output has been forwarded. Output that arrives late comes from a child of the process, and is
    /// not waited for. Can be called again.
    async fn finish(&mut self) {
        while !self.task.is_finished() {
            let ended = timeout(OUTPUT_TIMEOUT, &mut self.task).await;
            if ended.is_ok() || !self.is_writing.load(Ordering::Relaxed) {
                return;
            }
        }
    }
}

#[derive(Debug, Default)]
struct Lines {
    /// The bytes after the last newline.
    partial: Vec<u8>,
    /// The last complete line that is not blank.
    last: Vec<u8>,
}

impl Lines {
    /// Adds bytes, and passes each line that they complete to `forward`, with its newline.
    fn push(&mut self, bytes: &[u8], mut forward: impl FnMut(&[u8])) {
        for byte in bytes {
            if *byte != b'\n' {
                self.partial.push(*byte);
            }
            if *byte == b'\n' || self.partial.len() == LINE_BYTES_MAX {
                self.complete_line(&mut forward);
            }
        }
    }

    /// Ends the output: passes the last line to `forward` even if it had no newline.
    fn finish(&mut self, mut forward: impl FnMut(&[u8])) {
        if !self.partial.is_empty() {
            self.complete_line(&mut forward);
        }
    }

    fn complete_line(&mut self, forward: &mut impl FnMut(&[u8])) {
        let mut line = std::mem::take(&mut self.partial);
        if !line.trim_ascii().is_empty() {
            self.last.clone_from(&line);
        }
        line.push(b'\n');
        forward(&line);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_lines_are_forwarded_and_the_last_is_kept() {
        let (mut lines, mut seen) = (Lines::default(), Vec::new());
        for part in ["one\ntw", "o\n\n  \nthr", "ee"] {
            lines.push(part.as_bytes(), |line| seen.push(String::from_utf8_lossy(line).into_owned()));
        }
        assert_eq!(seen, ["one\n", "two\n", "\n", "  \n"]);
        assert_eq!(lines.last, b"two");
        for _ in 0..2 {
            lines.finish(|line| seen.push(String::from_utf8_lossy(line).into_owned()));
        }
        assert_eq!((seen.len(), &lines.last[..]), (5, &b"three"[..]));
    }

    #[test]
    fn a_long_line_is_forwarded_in_pieces() {
        let (mut lines, mut pieces) = (Lines::default(), 0);
        lines.push(&vec![b'x'; LINE_BYTES_MAX * 3 + 1], |_| pieces += 1);
        assert_eq!((pieces, lines.partial.len()), (3, 1));
    }
}
