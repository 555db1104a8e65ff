//! Formats ages, lags and fields for tables.

use std::time::{Duration, SystemTime};

use bytes::Bytes;
use millstream_worker::backend::{Fields, StreamId};
use millstream_worker::monitor::{Lag, Missed, MissedAccuracy};
pub(crate) use millstream_worker::operate::wording::{age, count, counted, millis, millis_since_epoch};

use super::safe_text::printable;

/// Cell of a table that has no value.
pub(crate) const ABSENT: &str = "-";

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

/// Formats a duration like [`age`], or returns [`ABSENT`] for `None`.
pub(crate) fn age_or_absent(duration: Option<Duration>) -> String {
    duration.map_or_else(|| ABSENT.to_owned(), age)
}

/// Returns the age of an entry by the time in its id. `None` if the id is not a time in the past.
pub(crate) fn age_of(id: StreamId) -> Option<Duration> {
    millstream_worker::message::age_of(id, SystemTime::now())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_that_are_no_times_have_no_age() {
        assert_eq!(age_of(StreamId::new(1, 1)), None);
        assert!(age_of(StreamId::new(1_700_000_000_000, 0)).is_some());
        assert_eq!(age_of(StreamId::MAX), None);
    }

    #[test]
    fn fields_are_formatted_as_a_line() {
        let field = |name: &'static str, value: &'static [u8]| (Bytes::from(name), Bytes::from(value));
        let fields = vec![field("a", b"1"), field("b", b"two words"), field("a", b"\xff"), field("c", b"")];
        assert_eq!(fields_line(&fields), "a=1 b=\"two words\" a=\\xff c=\"\"");
    }

    #[test]
    fn long_text_is_clipped() {
        assert_eq!(clipped("short", 5), "short");
        assert_eq!(clipped("longer", 5), "long…");
    }
}
