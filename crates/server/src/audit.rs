//! The audit log: who connected, who logged in or failed to, and who changed settings or users or removed data with an
//! administrative command. One line per event on standard error.
//!
//! Other machines cause these events, so the number of lines is limited, per kind of event, address, user and command. Events
//! beyond the limit are counted, and a line at the end of the interval gives their number. Text from clients is escaped: a client
//! cannot forge a line.
//!
//! An event only adds its line to a list. The timekeeper writes the list, so a slow standard error delays no client.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;

/// Milliseconds for which events of one source are counted together.
const INTERVAL_MS: u64 = 10_000;
/// Maximum number of lines per interval and source for administrative commands. Other events get one line.
const COMMAND_LINES_MAX: u32 = 20;
/// Number of words in the name of an administrative command.
const COMMAND_WORDS: usize = 2;
/// Maximum number of sources, per kind of event, that are counted separately. Further ones share a count.
const SOURCES_MAX: usize = 1_000;
/// Maximum number of lines that wait to be written. Further lines are counted and dropped.
const UNWRITTEN_LINES_MAX: usize = 1_000;
/// Maximum bytes shown of a text from a client, such as a user name.
const TEXT_BYTES_MAX: usize = 100;

/// A kind of event. Each kind has its own limit on lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum AuditKind {
    /// A client connected.
    Connected,
    /// The server refused a connection.
    Refused,
    /// A client logged in.
    LoggedIn,
    /// A client sent a wrong password, or the name of a user that does not exist or is disabled.
    FailedLogin,
    /// The server closed the connection of a client that did not log in in time.
    LoginTimeout,
    /// A client sent data of another protocol.
    ForeignProtocol,
    /// A client ran an administrative command that changed something.
    Command,
}

impl AuditKind {
    fn name(self) -> &'static str {
        match self {
            AuditKind::Connected => "connected",
            AuditKind::Refused => "refused",
            AuditKind::LoggedIn => "logged-in",
            AuditKind::FailedLogin => "failed-login",
            AuditKind::LoginTimeout => "login-timeout",
            AuditKind::ForeignProtocol => "foreign-protocol",
            AuditKind::Command => "command",
        }
    }

    fn lines_max(self) -> u32 {
        if self == AuditKind::Command { COMMAND_LINES_MAX } else { 1 }
    }
}

/// The lines that are not written yet, and the recent events by their source.
#[derive(Default)]
pub(crate) struct AuditLog {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    recent: BTreeMap<Source, Recent>,
    lines: Vec<String>,
    dropped_lines: u64,
}

/// What the limit on lines applies to. Events that differ in any of these have their own limit: many harmless events must
/// not hide another one.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Source {
    kind: AuditKind,
    /// The address without its port.
    host: String,
    /// The user, or an empty text.
    user: String,
    /// The first words of the details: of an administrative command, its name.
    what: String,
}

impl Source {
    /// Returns the source that comes before all others of its kind.
    fn first(kind: AuditKind) -> Source {
        Source { kind, host: String::new(), user: String::new(), what: String::new() }
    }
}

/// The events of one source in the current interval.
struct Recent {
    began_ms: u64,
    lines: u32,
    unlogged: u64,
}

impl AuditLog {
    /// Records an event. `addr` is the client's address with its port. `user` is the client's user, and `what` has the
    /// details. Both can contain text that a client has chosen, but must not contain passwords or data.
    pub(crate) fn note(&self, kind: AuditKind, addr: &str, user: Option<&str>, what: &str, uptime_ms: u64) {
        let mut state = self.state.lock();
        let user = user.unwrap_or_default();
        let source = Source {
            kind,
            host: host(addr).to_owned(),
            user: user.to_owned(),
            what: what.split(' ').take(COMMAND_WORDS).collect::<Vec<_>>().join(" "),
        };
        if state.admit(source, uptime_ms) {
            state.push(line(kind, addr, user, what));
        }
    }

    /// Returns the lines that were added since the last call. Adds the number of unlogged events of each interval that
    /// has ended.
    pub(crate) fn take_lines(&self, uptime_ms: u64) -> Vec<String> {
        let mut state = self.state.lock();
        let is_running = |recent: &Recent| uptime_ms.saturating_sub(recent.began_ms) < INTERVAL_MS;
        let mut unlogged = Vec::new();
        state.recent.retain(|Source { kind, host, user, what }, recent| {
            if !is_running(recent) && recent.unlogged > 0 {
                unlogged.push(format!("{} more={}", line(*kind, host, user, what), recent.unlogged));
            }
            is_running(recent)
        });
        unlogged.into_iter().for_each(|line| state.push(line));
        if state.dropped_lines > 0 {
            let dropped = std::mem::take(&mut state.dropped_lines);
            state.lines.push(format!("audit: standard error is slow, lines dropped: {dropped}"));
        }
        std::mem::take(&mut state.lines)
    }

    /// Like [`take_lines`](Self::take_lines), at the end of the server: all intervals end now.
    pub(crate) fn take_last_lines(&self) -> Vec<String> {
        self.take_lines(u64::MAX)
    }
}

impl State {
    /// Counts an event. Returns whether it gets a line of its own.
    fn admit(&mut self, mut source: Source, uptime_ms: u64) -> bool {
        let kind = source.kind;
        if !self.recent.contains_key(&source) && self.count_of(kind) >= SOURCES_MAX {
            source = Source { host: "other addresses".into(), ..Source::first(kind) };
        }
        let new = Recent { began_ms: uptime_ms, lines: 0, unlogged: 0 };
        let recent = self.recent.entry(source).or_insert(new);
        if recent.lines < kind.lines_max() {
            recent.lines += 1;
            return true;
        }
        recent.unlogged += 1;
        false
    }

    fn count_of(&self, kind: AuditKind) -> usize {
        self.recent.range(Source::first(kind)..).take_while(|(source, _)| source.kind == kind).count()
    }

    fn push(&mut self, line: String) {
        if self.lines.len() < UNWRITTEN_LINES_MAX {
            self.lines.push(line);
        } else {
            self.dropped_lines += 1;
        }
    }
}

fn line(kind: AuditKind, address: &str, user: &str, what: &str) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let mut line = format!("audit: time={} event={} address=\"{}\"", utc(now), kind.name(), escaped(address));
    for (name, text) in [("user", user), ("what", what)] {
        if !text.is_empty() {
            let _ = write!(line, " {name}=\"{}\"", escaped(text));
        }
    }
    line
}

/// Returns an address without its port.
fn host(addr: &str) -> &str {
    addr.rsplit_once(':').map_or(addr, |(host, _)| host)
}

/// Returns a text in printable ASCII and without unescaped quotes, cut if it is long.
fn escaped(text: &str) -> String {
    let bytes = text.as_bytes();
    let shown = bytes[..bytes.len().min(TEXT_BYTES_MAX)].escape_ascii();
    if bytes.len() > TEXT_BYTES_MAX { format!("{shown}...") } else { shown.to_string() }
}

/// Formats a time since 1970 as in RFC 3339: `2026-11-18T05:23:49.120Z`.
fn utc(since_1970: Duration) -> String {
    let seconds = since_1970.as_secs();
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = civil_date(days);
    let (hour, minute, millis) = (second / 3600, second / 60 % 60, since_1970.subsec_millis());
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{:02}.{millis:03}Z", second % 60)
}

/// Returns year, month and day of a number of days since 1970.
fn civil_date(days: u64) -> (u64, u64, u64) {
    let (mut year, mut left) = (1970, days);
    let is_leap =
        |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    while left >= 365 + u64::from(is_leap(year)) {
        left -= 365 + u64::from(is_leap(year));
        year += 1;
    }
    let february = 28 + u64::from(is_leap(year));
    let mut month = 1;
    for days_of_month in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30] {
        if left < days_of_month {
            break;
        }
        left -= days_of_month;
        month += 1;
    }
    (year, month, left + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns lines without the time.
    fn without_time(lines: &[String]) -> Vec<String> {
        let cut =
            |line: &String| line.split_once(" event=").map_or(line.clone(), |(_, rest)| rest.to_owned());
        lines.iter().map(cut).collect()
    }

    #[test]
    fn events_of_an_address_beyond_the_limit_are_counted() {
        let log = AuditLog::default();
        for port in 1..=5 {
            log.note(AuditKind::FailedLogin, &format!("1.2.3.4:{port}"), Some("bob"), "", 100);
        }
        log.note(AuditKind::FailedLogin, "1.2.3.5:1", None, "", 100);
        log.note(AuditKind::Connected, "1.2.3.4:1", None, "", 100);
        let lines = log.take_lines(100 + INTERVAL_MS - 1);
        let first = "failed-login address=\"1.2.3.4:1\" user=\"bob\"";
        let others = ["failed-login address=\"1.2.3.5:1\"", "connected address=\"1.2.3.4:1\""];
        assert_eq!(without_time(&lines), [first, others[0], others[1]]);
        let lines = log.take_lines(100 + INTERVAL_MS);
        assert_eq!(without_time(&lines), ["failed-login address=\"1.2.3.4\" user=\"bob\" more=4"]);
        log.note(AuditKind::FailedLogin, "1.2.3.4:6", None, "", 100 + INTERVAL_MS);
        assert_eq!(log.take_last_lines().len(), 1);
        assert!(log.take_last_lines().is_empty());
    }

    #[test]
    fn administrative_commands_get_more_lines() {
        let log = AuditLog::default();
        for number in 0..=COMMAND_LINES_MAX {
            let what = format!("ACL SETUSER user{number}");
            log.note(AuditKind::Command, "[::1]:5", Some("u"), &what, 0);
        }
        let lines = log.take_last_lines();
        assert_eq!(lines.len(), COMMAND_LINES_MAX as usize + 1);
        let lines = without_time(&lines);
        assert_eq!(lines[0], "command address=\"[::1]:5\" user=\"u\" what=\"ACL SETUSER user0\"");
        assert_eq!(lines.last().unwrap(), "command address=\"[::1]\" user=\"u\" what=\"ACL SETUSER\" more=1");
    }

    #[test]
    fn many_events_do_not_hide_another_command_or_user() {
        let log = AuditLog::default();
        for _ in 0..100 {
            log.note(AuditKind::Command, "1.2.3.4:5", Some("u"), "SLOWLOG RESET", 0);
            log.note(AuditKind::LoggedIn, "1.2.3.4:5", Some("u"), "", 0);
        }
        log.note(AuditKind::Command, "1.2.3.4:5", Some("u"), "FLUSHALL", 0);
        log.note(AuditKind::LoggedIn, "1.2.3.4:5", Some("admin"), "", 0);
        let lines = without_time(&log.take_lines(0));
        assert!(
            lines.contains(&"command address=\"1.2.3.4:5\" user=\"u\" what=\"FLUSHALL\"".into()),
            "{lines:?}"
        );
        assert!(lines.contains(&"logged-in address=\"1.2.3.4:5\" user=\"admin\"".into()), "{lines:?}");
    }

    #[test]
    fn numbers_of_addresses_and_of_lines_are_limited() {
        let log = AuditLog::default();
        for host in 0..2 * SOURCES_MAX {
            log.note(AuditKind::Connected, &format!("{host}:1"), None, "", 0);
        }
        let lines = without_time(&log.take_lines(0));
        assert_eq!(lines.len(), UNWRITTEN_LINES_MAX + 1);
        assert!(lines.last().unwrap().ends_with("lines dropped: 1"), "{lines:?}");
        assert_eq!(log.state.lock().recent.len(), SOURCES_MAX + 1);
        let lines = without_time(&log.take_last_lines());
        assert_eq!(lines, [format!("connected address=\"other addresses\" more={}", SOURCES_MAX - 1)]);
    }

    #[test]
    fn text_of_clients_cannot_forge_a_line() {
        let log = AuditLog::default();
        log.note(AuditKind::Command, "/tmp/a\nb\" x=\":0", Some("a\"\r\n\u{1b}[31mé"), &"y".repeat(101), 0);
        let expected = format!(
            "command address=\"/tmp/a\\nb\\\" x=\\\":0\" user=\"a\\\"\\r\\n\\x1b[31m\\xc3\\xa9\" what=\"{}...\"",
            "y".repeat(100)
        );
        assert_eq!(without_time(&log.take_last_lines()), [expected]);
    }

    #[test]
    fn times_are_formatted_as_utc() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00.007Z"),
            (951_782_399, "2000-02-28T23:59:59.007Z"),
            (951_868_799, "2000-02-29T23:59:59.007Z"),
            (1_709_251_200, "2024-03-01T00:00:00.007Z"),
            (4_102_444_799, "2099-12-31T23:59:59.007Z"),
            (4_107_542_400, "2100-03-01T00:00:00.007Z"),
        ] {
            assert_eq!(utc(Duration::from_secs(seconds) + Duration::from_millis(7)), text);
        }
    }
}
