//! One line of the event log, as text or JSON. Text from clients is escaped: a client cannot forge a line.

use std::fmt::Write as _;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::Level;

/// A line that is not formatted yet.
#[derive(Debug)]
pub(super) struct Line {
    time: Duration,
    level: Level,
    message: String,
    fields: Vec<(&'static str, FieldValue)>,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum FieldValue {
    /// A word of the server's own.
    Word(&'static str),
    /// Any text. In a line of text it is quoted.
    Text(String),
    Number(u64),
}

impl Line {
    pub(super) fn new(level: Level, message: String, fields: Vec<(&'static str, FieldValue)>) -> Line {
        let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Line { time, level, message, fields }
    }

    /// Formats the line as text: the time, the level, the message, and the fields as `name=value`.
    pub(super) fn text(&self) -> String {
        let mut line = format!("{} {:<7} {}", utc(self.time), self.level.name(), one_line(&self.message));
        for (name, value) in &self.fields {
            let _ = match value {
                FieldValue::Word(word) => write!(line, " {name}={word}"),
                FieldValue::Text(text) => write!(line, " {name}=\"{}\"", text.escape_default()),
                FieldValue::Number(number) => write!(line, " {name}={number}"),
            };
        }
        line + "\n"
    }

    /// Formats the line as a JSON object with `time`, `level`, `message` and the fields.
    pub(super) fn json(&self) -> String {
        let mut line = format!("{{\"time\":\"{}\",\"level\":\"{}\"", utc(self.time), self.level.name());
        let _ = write!(line, ",\"message\":{}", json_string(&self.message));
        for (name, value) in &self.fields {
            let _ = match value {
                FieldValue::Word(word) => write!(line, ",\"{name}\":{}", json_string(word)),
                FieldValue::Text(text) => write!(line, ",\"{name}\":{}", json_string(text)),
                FieldValue::Number(number) => write!(line, ",\"{name}\":{number}"),
            };
        }
        line + "}\n"
    }
}

fn one_line(message: &str) -> String {
    let mut text = String::with_capacity(message.len());
    for c in message.chars() {
        if c.is_control() { text.extend(c.escape_default()) } else { text.push(c) }
    }
    text
}

/// Returns a text as a JSON string of printable ASCII.
fn json_string(text: &str) -> String {
    let mut json = String::with_capacity(text.len() + 2);
    json.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => json.extend(['\\', c]),
            ' '..='~' => json.push(c),
            _ => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    let _ = write!(json, "\\u{unit:04x}");
                }
            }
        }
    }
    json.push('"');
    json
}

/// Formats a time since 1970 as in RFC 3339: `2026-11-18T05:23:49.120Z`.
fn utc(since_1970: Duration) -> String {
    let seconds = since_1970.as_secs();
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = civil_date(days);
    let (hour, minute, millis) = (second / 3600, second / 60 % 60, since_1970.subsec_millis());
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{:02}.{millis:03}Z", second % 60)
}

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

    fn line() -> Line {
        let fields = vec![
            ("event", FieldValue::Word("command")),
            ("user", FieldValue::Text("a\"\r\n\u{1b}[31mé😀 x=\"".to_owned())),
            ("more", FieldValue::Number(3)),
        ];
        let time = Duration::from_millis(1_794_980_760_783);
        Line { time, level: Level::Notice, message: "no\nspace \u{1b}".to_owned(), fields }
    }

    #[test]
    fn text_of_clients_cannot_forge_a_line() {
        assert_eq!(
            line().text(),
            "2026-11-18T05:46:00.783Z notice  no\\nspace \\u{1b} event=command \
             user=\"a\\\"\\r\\n\\u{1b}[31m\\u{e9}\\u{1f600} x=\\\"\" more=3\n"
        );
        assert_eq!(
            line().json(),
            "{\"time\":\"2026-11-18T05:46:00.783Z\",\"level\":\"notice\",\"message\":\"no\\u000aspace \\u001b\",\
             \"event\":\"command\",\"user\":\"a\\\"\\u000d\\u000a\\u001b[31m\\u00e9\\ud83d\\ude00 x=\\\"\",\"more\":3}\n"
        );
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
