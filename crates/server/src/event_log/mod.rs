//! The event log: the lines that the server writes to standard error, as text or JSON. (The log without "event" is the
//! one on disk that contains the data.)
//!
//! There are two ways to add a line:
//!
//! * A thread that can wait for standard error writes a line of its own at once: [`EventLog::write`].
//! * An event that a client causes only adds a line to a list, and the number of lines is limited: [`EventLog::note`].
//!   The timekeeper writes the list, so a slow standard error delays no client.
//!
//! The audit log is the part of the event log that says who connected, logged in and changed something.

mod kind;
mod limit;
mod line;

use std::io::{self, Write};
use std::sync::atomic::{AtomicU8, Ordering};

use parking_lot::Mutex;

pub(crate) use kind::EventKind;

use crate::settings::{Id, Settings};
use limit::{ClientEvent, RateLimit};
use line::{FieldValue, Line};

/// Maximum number of lines about clients that wait to be written. Further lines are counted and dropped.
const UNWRITTEN_LINES_MAX: usize = 1_000;

/// How important a line is. The names are those of Redis' `loglevel`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Level {
    Debug,
    Verbose,
    Notice,
    Warning,
}

impl Level {
    fn name(self) -> &'static str {
        match self {
            Level::Debug => "debug",
            Level::Verbose => "verbose",
            Level::Notice => "notice",
            Level::Warning => "warning",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    Text,
    Json,
}

pub(crate) struct EventLog {
    /// The smallest [`Level`] of lines that are written, as a number. One more than the largest: none are written.
    level: AtomicU8,
    /// The [`Format`] as a number.
    format: AtomicU8,
    state: Mutex<State>,
    /// Locked while a thread writes, so that lines stay in order. No thread that serves clients locks it.
    writing: Mutex<()>,
}

#[derive(Default)]
struct State {
    unwritten: Vec<Line>,
    dropped_lines: u64,
    limit: RateLimit,
}

impl EventLog {
    pub(crate) fn new(settings: &Settings) -> EventLog {
        let log = EventLog {
            level: AtomicU8::new(0),
            format: AtomicU8::new(0),
            state: Mutex::default(),
            writing: Mutex::new(()),
        };
        log.configure(settings);
        log
    }

    pub(crate) fn configure(&self, settings: &Settings) {
        let level = match &*settings.text(Id::LogLevel) {
            "debug" => Level::Debug as u8,
            "verbose" => Level::Verbose as u8,
            "warning" => Level::Warning as u8,
            "nothing" => Level::Warning as u8 + 1,
            _ => Level::Notice as u8,
        };
        let format = if settings.text(Id::LogFormat) == "json" { Format::Json } else { Format::Text };
        self.level.store(level, Ordering::Relaxed);
        self.format.store(format as u8, Ordering::Relaxed);
    }

    pub(crate) fn has(&self, level: Level) -> bool {
        level as u8 >= self.level.load(Ordering::Relaxed)
    }

    /// Writes a line. Waits until standard error has taken it.
    pub(crate) fn write(&self, level: Level, message: &str) {
        if self.has(level) {
            self.state.lock().unwritten.push(Line::new(level, message.to_owned(), Vec::new()));
            self.write_lines();
        }
    }

    /// Adds a line about a client, unless there are too many. `address` is the client's address with its port. `user`
    /// is the client's user, and `what` has the details. Both can contain text that a client has chosen, but must not
    /// contain passwords or data.
    pub(crate) fn note(
        &self,
        kind: EventKind,
        address: &str,
        user: Option<&str>,
        what: &str,
        uptime_ms: u64,
    ) {
        // The setting `audit-log` decides about the lines of the audit log.
        if !kind.is_audit() && !self.has(kind.level()) {
            return;
        }
        let event = ClientEvent { kind, address, user: user.unwrap_or_default(), what };
        let mut state = self.state.lock();
        if state.limit.admit(&event, uptime_ms) {
            state.push(event.line(0));
        }
    }

    /// Writes the lines that wait, and the number of unlogged events of each interval that has ended.
    pub(crate) fn write_waiting(&self, uptime_ms: u64) {
        let has_lines = {
            let mut state = self.state.lock();
            for line in state.limit.take_ended(uptime_ms) {
                state.push(line);
            }
            if state.dropped_lines > 0 {
                let dropped = std::mem::take(&mut state.dropped_lines);
                let message = "standard error is slow: lines about clients were dropped".to_owned();
                state.unwritten.push(Line::new(
                    Level::Warning,
                    message,
                    vec![("dropped", FieldValue::Number(dropped))],
                ));
            }
            !state.unwritten.is_empty()
        };
        if has_lines {
            self.write_lines();
        }
    }

    /// Like [`write_waiting`](Self::write_waiting), at the end of the server: all intervals end now.
    pub(crate) fn write_last(&self) {
        self.write_waiting(u64::MAX);
    }

    fn write_lines(&self) {
        let _turn = self.writing.lock();
        let lines = std::mem::take(&mut self.state.lock().unwritten);
        let is_json = self.format.load(Ordering::Relaxed) == Format::Json as u8;
        for line in lines {
            let text = if is_json { line.json() } else { line.text() };
            // If standard error is closed, there is no place left to report it.
            let _ = io::stderr().write_all(text.as_bytes());
        }
    }
}

impl State {
    fn push(&mut self, line: Line) {
        if self.unwritten.len() < UNWRITTEN_LINES_MAX {
            self.unwritten.push(line);
        } else {
            self.dropped_lines += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_level_decides_which_lines_are_written() {
        let settings = Settings::new();
        let log = EventLog::new(&settings);
        let levels = [Level::Debug, Level::Verbose, Level::Notice, Level::Warning];
        for (name, count) in [("debug", 4), ("verbose", 3), ("notice", 2), ("warning", 1), ("nothing", 0)] {
            settings.set(Id::LogLevel, name).unwrap();
            log.configure(&settings);
            assert_eq!(levels.iter().filter(|level| log.has(**level)).count(), count, "{name}");
        }
        // The audit log has a setting of its own.
        log.note(EventKind::IdleClient, "1.2.3.4:5", None, "", 0);
        log.note(EventKind::FailedLogin, "1.2.3.4:5", None, "", 0);
        assert_eq!(log.state.lock().unwritten.len(), 1);
    }

    #[test]
    fn the_number_of_lines_that_wait_is_limited() {
        let log = EventLog::new(&Settings::new());
        for host in 0..UNWRITTEN_LINES_MAX + 2 {
            let kind = if host % 2 == 0 { EventKind::Connected } else { EventKind::LoggedIn };
            log.note(kind, &format!("{host}:1"), None, "", 0);
        }
        let state = log.state.lock();
        assert_eq!((state.unwritten.len(), state.dropped_lines), (UNWRITTEN_LINES_MAX, 2));
    }
}
