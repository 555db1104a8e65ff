//! The terminal output of a worker: the log, the output of handler processes, and a status line below them.

use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use indicatif::ProgressBar;
use tracing_subscriber::fmt::MakeWriter;

use crate::ops::output::{bar_style, progress_is_visible};
use crate::ops::safe_text::printable_styled;

/// Interval at which the spinner of the status line moves.
const TICK: Duration = Duration::from_millis(120);

/// Standard error, with a status line if it is a terminal. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Console {
    status: ProgressBar,
}

impl Console {
    /// Creates a console. It has a status line if `with_status` is set and standard error is a terminal.
    pub(super) fn new(with_status: bool) -> Console {
        if !with_status || !progress_is_visible() {
            return Console { status: ProgressBar::hidden() };
        }
        let status = ProgressBar::new_spinner().with_style(bar_style("{spinner} {elapsed} {wide_msg}"));
        status.enable_steady_tick(TICK);
        Console { status }
    }

    /// Whether there is a status line.
    pub(super) fn has_status(&self) -> bool {
        !self.status.is_hidden()
    }

    /// Changes the status line.
    pub(super) fn set_status(&self, text: String) {
        self.status.set_message(text);
    }

    /// Removes the status line.
    pub(super) fn end_status(&self) {
        self.status.finish_and_clear();
    }

    /// Whether standard output is on the same terminal as the status line.
    pub(super) fn shares_screen(&self) -> bool {
        self.has_status() && io::stdout().is_terminal()
    }

    /// Writes whole lines to standard output, above the status line.
    pub(super) fn print(&self, lines: &[u8]) {
        // If the output is closed, there is no place left to report it.
        let _ = self.status.suspend(|| {
            let mut out = io::stdout().lock();
            out.write_all(lines).and_then(|()| out.flush())
        });
    }

    /// Writes whole lines to standard error, above the status line.
    pub(super) fn write(&self, lines: &[u8]) {
        // If the output is closed, there is no place left to report it.
        let _ = self.status.suspend(|| io::stderr().lock().write_all(lines));
    }
}

/// Writes log lines above the status line, safe for a terminal. The output of handlers is not changed.
pub(super) struct LogWriter<'a>(&'a Console);

impl Write for LogWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(printable_styled(&String::from_utf8_lossy(bytes)).as_bytes());
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Console {
    type Writer = LogWriter<'a>;

    fn make_writer(&'a self) -> LogWriter<'a> {
        LogWriter(self)
    }
}
