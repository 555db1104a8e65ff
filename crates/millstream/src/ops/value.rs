//! Formats counts, ages, lags and fields for tables and for JSON.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use millstream_worker::backend::{Fields, StreamId};
use millstream_worker::monitor::{Lag, Missed, MissedAccuracy};
use serde_json::{Map, Value, json};

use super::safe_text::printable;

/// Cell of a table that has no value.
pub(crate) const ABSENT: &str = "-";

/// Formats a number with separators: `1,234,567`.
pub(crate) fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut shown = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            shown.push(',');
        }
        shown.push(digit);
    }
    shown
}

/// Formats a number with its noun: `1 entry`, `2,000 entries`.
pub(crate) fn counted(number: u64, one: &str, many: &str) -> String {
    format!("{} {}", count(number), if number == 1 { one } else { many })
}

/// Formats a lag: `1,234`, or `≥10,000` if it is a lower bound.
pub(crate) fn format_lag(lag: Lag) -> String {
    let at_least = if lag.is_exact() { "" } else { "≥" };
    format!("{at_least}{}", count(lag.count))
}

/// Formats the number of missed entries: `400`, `≥400` or `≤400` if it is a bound, `?` if it is unknown.
pub(crate) fn format_missed(missed: Missed) -> String {
    match missed.accuracy {
        MissedAccuracy::Exact => count(missed.count),
        MissedAccuracy::AtLeast => format!("≥{}", count(missed.count)),
        MissedAccuracy::AtMost => format!("≤{}", count(missed.count)),
        MissedAccuracy::Unknown => "?".to_owned(),
    }
}

/// Formats a duration in at most two units, the largest ones: `850ms`, `12s`, `2m 3s`.
pub(crate) fn age(duration: Duration) -> String {
    let seconds = duration.as_secs();
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match () {
        () if seconds == 0 => format!("{}ms", duration.as_millis()),
        () if minutes == 0 => format!("{seconds}s"),
        () if hours == 0 => format!("{minutes}m {}s", seconds % 60),
        () if days == 0 => format!("{hours}h {}m", minutes % 60),
        () => format!("{days}d {}h", hours % 24),
    }
}

/// Formats a duration like [`age`], or returns [`ABSENT`] for `None`.
pub(crate) fn age_or_absent(duration: Option<Duration>) -> String {
    duration.map_or_else(|| ABSENT.to_owned(), age)
}

/// Returns the age of an entry by the time in its id. `None` if the id is not a time in the past.
pub(crate) fn age_of(id: StreamId) -> Option<Duration> {
    millstream_worker::message::age_of(id, SystemTime::now())
}

/// Returns a duration in milliseconds, the unit of all durations in JSON.
pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Returns a time in milliseconds since 1970.
pub(crate) fn millis_since_epoch(time: SystemTime) -> u64 {
    millis(time.duration_since(UNIX_EPOCH).unwrap_or_default())
}

/// Cuts a text to this number of characters, with `…` at the end.
pub(crate) fn clipped(text: &str, chars_max: usize) -> String {
    match text.char_indices().nth(chars_max) {
        None => text.to_owned(),
        Some(_) => {
            let kept: String = text.chars().take(chars_max - 1).collect();
            format!("{kept}…")
        }
    }
}

/// Formats fields on one line: `item=book note="two words"`.
pub(crate) fn fields_line(fields: &Fields) -> String {
    let field = |(name, value): &(Bytes, Bytes)| {
        let value = printable(value);
        let quoted = value.is_empty() || value.contains([' ', '"']);
        let value = if quoted { format!("\"{}\"", value.replace('"', "\\\"")) } else { value };
        format!("{}={value}", printable(name))
    };
    fields.iter().map(field).collect::<Vec<_>>().join(" ")
}

/// Returns fields as a JSON object.
///
/// A name that occurs more than once has an array of values. A value that is not UTF-8 is `{"hex": "…"}`. In a name,
/// bytes that are not UTF-8 are escaped.
pub(crate) fn fields_json(fields: &Fields) -> Value {
    let mut object = Map::new();
    for (name, value) in fields {
        let value = bytes_json(value);
        let name = std::str::from_utf8(name).map_or_else(|_| printable(name), str::to_owned);
        match object.entry(name) {
            serde_json::map::Entry::Vacant(vacant) => {
                vacant.insert(value);
            }
            serde_json::map::Entry::Occupied(mut occupied) => match occupied.get_mut() {
                Value::Array(values) => values.push(value),
                first => *first = json!([first.take(), value]),
            },
        }
    }
    Value::Object(object)
}

fn bytes_json(bytes: &[u8]) -> Value {
    match std::str::from_utf8(bytes) {
        Ok(text) => Value::from(text),
        Err(_) => {
            let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            json!({ "hex": hex })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_have_separators() {
        assert_eq!(
            [0, 999, 1000, 1_234_567].map(count),
            ["0", "999", "1,000", "1,234,567"].map(str::to_owned)
        );
        assert_eq!(counted(1, "entry", "entries"), "1 entry");
        assert_eq!(counted(2000, "entry", "entries"), "2,000 entries");
    }

    #[test]
    fn ages_have_at_most_two_units() {
        let shown = |ms| age(Duration::from_millis(ms));
        assert_eq!(shown(850), "850ms");
        assert_eq!(shown(12_999), "12s");
        assert_eq!(shown(123_000), "2m 3s");
        assert_eq!(shown(3_600_000), "1h 0m");
        assert_eq!(shown(273_600_000), "3d 4h");
    }

    #[test]
    fn ids_that_are_no_times_have_no_age() {
        assert_eq!(age_of(StreamId::new(1, 1)), None);
        assert!(age_of(StreamId::new(1_700_000_000_000, 0)).is_some());
        assert_eq!(age_of(StreamId::MAX), None);
    }

    #[test]
    fn fields_are_formatted_as_a_line_and_as_json() {
        let field = |name: &'static str, value: &'static [u8]| (Bytes::from(name), Bytes::from(value));
        let fields = vec![field("a", b"1"), field("b", b"two words"), field("a", b"\xff"), field("c", b"")];
        assert_eq!(fields_line(&fields), "a=1 b=\"two words\" a=\\xff c=\"\"");
        assert_eq!(fields_json(&fields), json!({"a": ["1", {"hex": "ff"}], "b": "two words", "c": ""}));
    }

    #[test]
    fn long_text_is_clipped() {
        assert_eq!(clipped("short", 5), "short");
        assert_eq!(clipped("longer", 5), "long…");
    }
}
