//! The terminal, shared by the log, the programs that run, and a status line that stays below them.

use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use indicatif::ProgressBar;
use tracing_subscriber::fmt::MakeWriter;

use crate::ops::output::{bar_style, progress_is_seen};

/// How often the status line moves.
const TICK: Duration = Duration::from_millis(120);

/// Standard error, with a status line where a person looks at it. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Console {
    status: ProgressBar,
}

impl Console {
    /// With a status line if it is wanted and can be seen.
    pub(super) fn new(wanted: bool) -> Console {
        if !wanted || !progress_is_seen() {
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

    /// Whether what is written to standard output ends up on the same screen as the status line.
    pub(super) fn shares_screen(&self) -> bool {
        self.has_status() && io::stdout().is_terminal()
    }

    /// Writes whole lines to standard output, above the status line.
    pub(super) fn print(&self, lines: &[u8]) {
        // Nobody is there to be told if this fails.
        let _ = self.status.suspend(|| {
            let mut out = io::stdout().lock();
            out.write_all(lines).and_then(|()| out.flush())
        });
    }

    /// Writes whole lines to standard error, above the status line.
    pub(super) fn write(&self, lines: &[u8]) {
        // Nobody is there to be told if this fails.
        let _ = self.status.suspend(|| io::stderr().lock().write_all(lines));
    }
}

/// One entry of the log on its way out.
pub(super) struct Entry<'a>(&'a Console);

impl Write for Entry<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Console {
    type Writer = Entry<'a>;

    fn make_writer(&'a self) -> Entry<'a> {
        Entry(self)
    }
}
