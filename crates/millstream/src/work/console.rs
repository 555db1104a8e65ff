//! The output of a worker: the log, the output of handler processes, and on a terminal a status line below them.

use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use indicatif::ProgressBar;
use serde_json::Map;

use crate::ops::log::{LogFormat, json_line};
use crate::ops::output::{bar_style, progress_is_visible};

/// Interval at which the spinner of the status line moves.
const TICK: Duration = Duration::from_millis(120);

/// Standard error, with a status line if it is a terminal. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Console {
    status: ProgressBar,
    format: LogFormat,
}

/// The message that a process is handling when it writes a line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct LineOrigin {
    /// Its id, or that of the first message of a batch. `None` if it is not known which message the line is about.
    pub(super) id: Option<String>,
    /// Number of further messages in the batch.
    pub(super) more: usize,
}

/// What a process writes about a message.
#[derive(Clone, Copy, Debug)]
pub(super) struct HandlerLine<'a> {
    pub(super) level: &'static str,
    /// Where it was written.
    pub(super) source: &'static str,
    /// One line, or several that belong together.
    pub(super) text: &'a [u8],
}

impl HandlerLine<'_> {
    /// A line on standard error.
    pub(super) fn stderr(text: &[u8]) -> HandlerLine<'_> {
        HandlerLine { level: "info", source: "stderr", text }
    }
}

impl Console {
    /// Creates a console. It has a status line if `with_status` is set and standard error is a terminal.
    pub(super) fn new(with_status: bool, format: LogFormat) -> Console {
        if !with_status || !progress_is_visible() {
            return Console { status: ProgressBar::hidden(), format };
        }
        let status = ProgressBar::new_spinner().with_style(bar_style("{spinner} {elapsed} {wide_msg}"));
        status.enable_steady_tick(TICK);
        Console { status, format }
    }

    pub(super) fn has_status(&self) -> bool {
        !self.status.is_hidden()
    }

    pub(super) fn set_status(&self, text: String) {
        self.status.set_message(text);
    }

    pub(super) fn end_status(&self) {
        self.status.finish_and_clear();
    }

    /// Whether standard output is on the same terminal as the status line.
    pub(super) fn shares_screen(&self) -> bool {
        self.has_status() && io::stdout().is_terminal()
    }

    /// Writes to standard output: whole lines above the status line, if there is one.
    pub(super) fn print(&self, bytes: &[u8]) {
        // If the output is closed, there is no place left to report it.
        let _ = self.status.suspend(|| {
            let mut out = io::stdout().lock();
            out.write_all(bytes).and_then(|()| out.flush())
        });
    }

    /// Writes whole lines to standard error, above the status line.
    pub(super) fn write(&self, lines: &[u8]) {
        // If the output is closed, there is no place left to report it.
        let _ = self.status.suspend(|| io::stderr().lock().write_all(lines));
    }

    /// Writes what a handler process wrote, with the id of its message: each line in text, one object in JSON. The
    /// bytes are not changed, except in JSON.
    pub(super) fn write_handler_line(&self, origin: &LineOrigin, line: HandlerLine<'_>) {
        let text = line.text.strip_suffix(b"\n").unwrap_or(line.text);
        match self.format {
            LogFormat::Text => {
                let prefix = origin.prefix();
                let lines = text.split(|byte| *byte == b'\n');
                self.write(
                    &lines.map(|line| [prefix.as_bytes(), line, b"\n"].concat()).collect::<Vec<_>>().concat(),
                );
            }
            LogFormat::Json => {
                let mut fields = Map::from_iter([("source".to_owned(), line.source.into())]);
                fields.insert("id".to_owned(), origin.id.clone().into());
                if origin.more > 0 {
                    fields.insert("messages".to_owned(), (origin.more + 1).into());
                }
                let message = String::from_utf8_lossy(text).into_owned();
                self.write(json_line(line.level, message.into(), fields).as_bytes());
            }
        }
    }
}

impl LineOrigin {
    fn prefix(&self) -> String {
        match (&self.id, self.more) {
            (None, _) => "- | ".to_owned(),
            (Some(id), 0) => format!("{id} | "),
            (Some(id), more) => format!("{id} (+{more}) | "),
        }
    }
}
