//! Limits the number of lines that clients cause, per kind of event, address, user and command. Events beyond the limit
//! are counted, and a line at the end of the interval gives their number.

use std::collections::BTreeMap;

use super::EventKind;
use super::line::{FieldValue, Line};

/// Milliseconds for which events of one source are counted together.
const INTERVAL_MS: u64 = 10_000;
/// Number of words in the name of an administrative command.
const COMMAND_WORDS: usize = 2;
/// Maximum number of sources, per kind of event, that are counted separately. Further ones share a count.
const SOURCES_MAX: usize = 1_000;
/// Maximum bytes shown of a text from a client, such as a user name.
const TEXT_BYTES_MAX: usize = 100;

pub(super) struct ClientEvent<'a> {
    pub(super) kind: EventKind,
    pub(super) address: &'a str,
    /// The user, or an empty text.
    pub(super) user: &'a str,
    /// The details, or an empty text.
    pub(super) what: &'a str,
}

impl ClientEvent<'_> {
    /// Returns the line about the event. `more` is the number of further events, or 0.
    pub(super) fn line(&self, more: u64) -> Line {
        let mut fields = Vec::new();
        if let Some(name) = self.kind.audit_name() {
            fields.push(("event", FieldValue::Word(name)));
        }
        let texts = [("address", self.address), ("user", self.user), (self.kind.detail_name(), self.what)];
        let texts = texts.into_iter().filter(|(_, text)| !text.is_empty());
        fields.extend(texts.map(|(name, text)| (name, FieldValue::Text(cut(text)))));
        if more > 0 {
            fields.push(("more", FieldValue::Number(more)));
        }
        Line::new(self.kind.level(), self.kind.message().to_owned(), fields)
    }
}

#[derive(Default)]
pub(super) struct RateLimit {
    recent: BTreeMap<LimitKey, Recent>,
}

/// What the limit on lines applies to. Events that differ in any of these have their own limit: many harmless events
/// must not hide another one.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct LimitKey {
    kind: EventKind,
    host: String,
    user: String,
    /// The first words of the details: of an administrative command, its name.
    what: String,
}

impl LimitKey {
    fn of(event: &ClientEvent<'_>) -> LimitKey {
        LimitKey {
            kind: event.kind,
            host: host(event.address).to_owned(),
            user: event.user.to_owned(),
            what: event.what.split(' ').take(COMMAND_WORDS).collect::<Vec<_>>().join(" "),
        }
    }

    /// Returns the source that comes before all others of its kind.
    fn first(kind: EventKind) -> LimitKey {
        LimitKey { kind, host: String::new(), user: String::new(), what: String::new() }
    }
}

struct Recent {
    began_ms: u64,
    lines: u32,
    unlogged: u64,
}

impl RateLimit {
    /// Counts an event. Returns whether it gets a line of its own.
    pub(super) fn admit(&mut self, event: &ClientEvent<'_>, uptime_ms: u64) -> bool {
        let (kind, mut source) = (event.kind, LimitKey::of(event));
        if !self.recent.contains_key(&source) && self.count_of(kind) >= SOURCES_MAX {
            source = LimitKey { host: "other addresses".into(), ..LimitKey::first(kind) };
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

    /// Removes the intervals that have ended. Returns a line for each that has unlogged events.
    pub(super) fn take_ended(&mut self, uptime_ms: u64) -> Vec<Line> {
        let mut lines = Vec::new();
        self.recent.retain(|LimitKey { kind, host, user, what }, recent| {
            let is_running = uptime_ms.saturating_sub(recent.began_ms) < INTERVAL_MS;
            if !is_running && recent.unlogged > 0 {
                let event = ClientEvent { kind: *kind, address: host, user, what };
                lines.push(event.line(recent.unlogged));
            }
            is_running
        });
        lines
    }

    fn count_of(&self, kind: EventKind) -> usize {
        self.recent.range(LimitKey::first(kind)..).take_while(|(source, _)| source.kind == kind).count()
    }
}

fn host(addr: &str) -> &str {
    addr.rsplit_once(':').map_or(addr, |(host, _)| host)
}

fn cut(text: &str) -> String {
    match text.len() {
        0..=TEXT_BYTES_MAX => text.to_owned(),
        _ => {
            let end = (0..=TEXT_BYTES_MAX).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
            format!("{}...", &text[..end])
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl RateLimit {
        fn note(&mut self, kind: EventKind, address: &str, user: &str, what: &str) -> Option<String> {
            let event = ClientEvent { kind, address, user, what };
            self.admit(&event, 100).then(|| without_time(&event.line(0)))
        }

        fn ended(&mut self, uptime_ms: u64) -> Vec<String> {
            self.take_ended(uptime_ms).iter().map(without_time).collect()
        }
    }

    fn without_time(line: &Line) -> String {
        line.text().trim_end().split_once(' ').expect("a time").1.to_owned()
    }

    #[test]
    fn events_of_an_address_beyond_the_limit_are_counted() {
        let mut limit = RateLimit::default();
        let failed = EventKind::FailedLogin;
        let first = limit.note(failed, "1.2.3.4:1", "bob", "").unwrap();
        assert_eq!(first, "notice  audit event=failed-login address=\"1.2.3.4:1\" user=\"bob\"");
        for port in 2..=5 {
            assert_eq!(limit.note(failed, &format!("1.2.3.4:{port}"), "bob", ""), None);
        }
        assert!(limit.note(failed, "1.2.3.5:1", "", "").is_some());
        assert!(limit.note(EventKind::Connected, "1.2.3.4:1", "", "").is_some());
        assert!(limit.ended(100 + INTERVAL_MS - 1).is_empty());
        let ended = limit.ended(100 + INTERVAL_MS);
        assert_eq!(ended, ["notice  audit event=failed-login address=\"1.2.3.4\" user=\"bob\" more=4"]);
        assert!(limit.note(failed, "1.2.3.4:6", "bob", "").is_some());
    }

    #[test]
    fn administrative_commands_get_more_lines() {
        let mut limit = RateLimit::default();
        let most = EventKind::Command.lines_max();
        assert_eq!(most, 20);
        for number in 0..most {
            let what = format!("ACL SETUSER user{number}");
            let line = limit.note(EventKind::Command, "[::1]:5", "u", &what).unwrap();
            assert!(line.ends_with(&format!("address=\"[::1]:5\" user=\"u\" what=\"{what}\"")), "{line}");
        }
        assert_eq!(limit.note(EventKind::Command, "[::1]:5", "u", "ACL SETUSER last"), None);
        let ended = limit.ended(u64::MAX);
        assert_eq!(
            ended,
            ["notice  audit event=command address=\"[::1]\" user=\"u\" what=\"ACL SETUSER\" more=1"]
        );
    }

    #[test]
    fn many_events_do_not_hide_another_command_or_user() {
        let mut limit = RateLimit::default();
        for _ in 0..100 {
            limit.note(EventKind::Command, "1.2.3.4:5", "u", "SLOWLOG RESET");
            limit.note(EventKind::LoggedIn, "1.2.3.4:5", "u", "");
        }
        assert!(limit.note(EventKind::Command, "1.2.3.4:5", "u", "FLUSHALL").is_some());
        assert!(limit.note(EventKind::LoggedIn, "1.2.3.4:5", "admin", "").is_some());
    }

    #[test]
    fn the_number_of_addresses_is_limited() {
        let mut limit = RateLimit::default();
        let mut admitted = 0;
        for host in 0..2 * SOURCES_MAX {
            admitted += usize::from(limit.note(EventKind::Connected, &format!("{host}:1"), "", "").is_some());
        }
        assert_eq!((admitted, limit.recent.len()), (SOURCES_MAX + 1, SOURCES_MAX + 1));
        let expected = format!("event=connected address=\"other addresses\" more={}", SOURCES_MAX - 1);
        assert!(limit.ended(u64::MAX)[0].ends_with(&expected));
    }

    #[test]
    fn long_texts_are_cut() {
        let line = |what: &str| {
            RateLimit::default().note(EventKind::FailedHandshake, "1.2.3.4:5", "", what).unwrap()
        };
        let longest = "y".repeat(TEXT_BYTES_MAX);
        assert!(line(&longest).ends_with(&format!("error=\"{longest}\"")));
        assert_eq!(
            line(&(longest.clone() + "y")),
            format!("notice  the TLS handshake failed address=\"1.2.3.4:5\" error=\"{longest}...\"")
        );
        assert!(line(&("y".repeat(99) + "é")).ends_with("y...\""), "cut between characters");
    }
}
