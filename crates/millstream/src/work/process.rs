//! A shell command in a process group of its own, so that everything it started ends with it.

use std::io;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::console::Console;
use super::guard::Guard;

/// How long what a process wrote last may take to arrive: somebody it started may hold its standard error open.
const LAST_WORDS: Duration = Duration::from_millis(200);
/// A longer line is passed on in pieces.
const LINE_BYTES_MAX: usize = 8 * 1024;

/// A shell command that messages are handed to, and what its processes share.
pub(super) struct Shell {
    pub(super) command: String,
    /// How long one message, or one batch, may take.
    pub(super) timeout: Option<Duration>,
    pub(super) console: Console,
    pub(super) guard: Arc<Guard>,
}

/// A running command. Dropped while it runs, it is killed with everything it started.
pub(super) struct Process {
    child: Child,
    group: Option<Pid>,
    guard: Arc<Guard>,
    ended: bool,
    complaints: Followed,
    output: Option<Followed>,
}

impl Shell {
    /// Starts `sh -c command` after `set_up` has had its way. Its standard error is passed on, line by line.
    pub(super) fn start(&self, set_up: impl FnOnce(&mut Command)) -> io::Result<Process> {
        let mut shell = Command::new("sh");
        shell.arg("-c").arg(&self.command).process_group(0).stdin(Stdio::piped()).stderr(Stdio::piped());
        set_up(&mut shell);
        let mut child = shell.spawn()?;
        let group = child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
        if let Some(group) = group {
            self.guard.begin(group);
        }
        let console = self.console.clone();
        let complaints = Followed::new(child.stderr.take(), move |line| console.write(line));
        Ok(Process { child, group, guard: Arc::clone(&self.guard), ended: false, complaints, output: None })
    }
}

impl Process {
    /// Where it reads. There once.
    pub(super) fn take_stdin(&mut self) -> Option<ChildStdin> {
        self.child.stdin.take()
    }

    /// What it writes, if that was asked for. There once.
    pub(super) fn take_stdout(&mut self) -> Option<ChildStdout> {
        self.child.stdout.take()
    }

    /// Passes on what it writes, line by line, if that was asked for.
    pub(super) fn pass_on_output(&mut self, console: &Console) {
        let console = console.clone();
        self.output = self.take_stdout().map(|out| Followed::new(Some(out), move |line| console.print(line)));
    }

    /// Waits until it ends.
    pub(super) async fn wait(&mut self) -> io::Result<ExitStatus> {
        let status = self.child.wait().await;
        self.ended = true;
        status
    }

    /// Whether it has ended by itself.
    pub(super) fn has_ended(&mut self) -> bool {
        self.ended = self.ended || !matches!(self.child.try_wait(), Ok(None));
        self.ended
    }

    /// Asks it and everything it started to end.
    pub(super) fn terminate(&self) {
        self.signal(Signal::TERM);
    }

    /// Asks it to end, and makes it end when it has had so long.
    pub(super) async fn stop(&mut self, patience: Duration) {
        self.terminate();
        // Whether it ended is found out by waiting once more below.
        let _ = timeout(patience, self.wait()).await;
        // Also what it started and what did not listen.
        self.signal(Signal::KILL);
        let _ = self.wait().await;
    }

    /// The last line of its standard error, when what it wrote has been passed on.
    pub(super) async fn last_words(&mut self) -> Option<String> {
        // What has not come by then belongs to somebody it started.
        let _ = timeout(LAST_WORDS, async {
            if let Some(output) = &mut self.output {
                output.ended().await;
            }
            self.complaints.ended().await;
        })
        .await;
        self.complaints.last()
    }

    fn signal(&self, signal: Signal) {
        if let Some(group) = self.group {
            // It fails only when nobody of the group is left.
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
            self.guard.end(group);
        }
    }
}

/// What a process writes: passed on, and the last line kept.
struct Followed {
    lines: Arc<Mutex<Lines>>,
    task: JoinHandle<()>,
}

impl Followed {
    fn new(
        from: Option<impl AsyncRead + Unpin + Send + 'static>,
        each: impl Fn(&[u8]) + Send + 'static,
    ) -> Followed {
        let lines = Arc::new(Mutex::new(Lines::default()));
        let shared = Arc::clone(&lines);
        let task = tokio::spawn(async move {
            let Some(mut from) = from else { return };
            let mut buffer = vec![0; 4096];
            // An error is the end, too.
            while let Ok(count @ 1..) = from.read(&mut buffer).await {
                shared.lock().push(&buffer[..count], &each);
            }
            shared.lock().end(&each);
        });
        Followed { lines, task }
    }

    /// Waits until everything has been passed on. May be asked again.
    async fn ended(&mut self) {
        if !self.task.is_finished() {
            // It fails only where it panicked, and then there is nothing more to come.
            let _ = (&mut self.task).await;
        }
    }

    fn last(&self) -> Option<String> {
        let lines = self.lines.lock();
        let last = String::from_utf8_lossy(&lines.last).trim().to_owned();
        (!last.is_empty()).then_some(last)
    }
}

/// Bytes cut into lines.
#[derive(Debug, Default)]
struct Lines {
    /// What came after the last end of a line.
    open: Vec<u8>,
    /// The last line that is not blank.
    last: Vec<u8>,
}

impl Lines {
    /// Takes bytes, and gives the lines that they complete, each with its end.
    fn push(&mut self, bytes: &[u8], mut each: impl FnMut(&[u8])) {
        for byte in bytes {
            if *byte != b'\n' {
                self.open.push(*byte);
            }
            if *byte == b'\n' || self.open.len() == LINE_BYTES_MAX {
                self.close(&mut each);
            }
        }
    }

    /// Nothing more comes: what has no end gets one.
    fn end(&mut self, mut each: impl FnMut(&[u8])) {
        if !self.open.is_empty() {
            self.close(&mut each);
        }
    }

    fn close(&mut self, each: &mut impl FnMut(&[u8])) {
        let mut line = std::mem::take(&mut self.open);
        if !line.trim_ascii().is_empty() {
            self.last.clone_from(&line);
        }
        line.push(b'\n');
        each(&line);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_passed_on_whole_and_the_last_is_kept() {
        let (mut lines, mut seen) = (Lines::default(), Vec::new());
        for part in ["one\ntw", "o\n\n  \nthr", "ee"] {
            lines.push(part.as_bytes(), |line| seen.push(String::from_utf8_lossy(line).into_owned()));
        }
        assert_eq!(seen, ["one\n", "two\n", "\n", "  \n"]);
        assert_eq!(lines.last, b"two");
        for _ in 0..2 {
            lines.end(|line| seen.push(String::from_utf8_lossy(line).into_owned()));
        }
        assert_eq!((seen.len(), &lines.last[..]), (5, &b"three"[..]));
    }

    #[test]
    fn an_endless_line_takes_no_more_than_its_share() {
        let (mut lines, mut pieces) = (Lines::default(), 0);
        lines.push(&vec![b'x'; LINE_BYTES_MAX * 3 + 1], |_| pieces += 1);
        assert_eq!((pieces, lines.open.len()), (3, 1));
    }
}
