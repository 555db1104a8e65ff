//! How texts for operators write counts, ages, times and names.

use std::fmt::Write;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Days from March of the year 0 to the beginning of 1970.
const DAYS_BEFORE_EPOCH: u64 = 719_468;

/// Formats a number with separators: `1,234,567`.
pub fn count(number: u64) -> String {
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
pub fn counted(number: u64, one: &str, many: &str) -> String {
    format!("{} {}", count(number), if number == 1 { one } else { many })
}

/// Formats a duration in at most two units, the largest ones: `850ms`, `12s`, `2m 3s`.
pub fn age(duration: Duration) -> String {
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

/// Returns a duration in milliseconds, the unit of all durations in JSON.
pub fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Returns a time in milliseconds since 1970.
pub fn millis_since_epoch(time: SystemTime) -> u64 {
    millis(time.duration_since(UNIX_EPOCH).unwrap_or_default())
}

/// Formats milliseconds since 1970 as `2026-11-15T10:30:00.123Z`.
pub fn format_time(ms: u64) -> String {
    let (days, of_day) = (ms / 86_400_000, ms % 86_400_000);
    let (year, month, day) = date_of(days);
    let (hours, minutes, seconds) = (of_day / 3_600_000, of_day / 60_000 % 60, of_day / 1000 % 60);
    format!("{year:04}-{month:02}-{day:02}T{hours:02}:{minutes:02}:{seconds:02}.{:03}Z", ms % 1000)
}

/// Returns the year, month and day of a number of days since 1970.
fn date_of(days: u64) -> (u64, u64, u64) {
    let days = days + DAYS_BEFORE_EPOCH;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day_of_year = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let (year, month) = (era * 400 + year, if month < 10 { month + 3 } else { month - 9 });
    (if month <= 2 { year + 1 } else { year }, month, day)
}

/// Converts text to one line that is safe on a terminal: escapes control characters, characters that change the
/// direction of text, and bytes that are not UTF-8.
pub fn printable(text: impl AsRef<[u8]>) -> String {
    let text = text.as_ref();
    let mut shown = String::with_capacity(text.len());
    for chunk in text.utf8_chunks() {
        chunk.valid().chars().for_each(|c| push_printable(&mut shown, c));
        for byte in chunk.invalid() {
            write!(shown, "\\x{byte:02x}").expect("writing to a string cannot fail");
        }
    }
    shown
}

/// Appends a character, escaped if it is [unsafe](is_unsafe).
pub fn push_printable(shown: &mut String, c: char) {
    if is_unsafe(c) { shown.extend(c.escape_default()) } else { shown.push(c) }
}

/// Whether a character can change a terminal, or how the rest of a line reads.
pub fn is_unsafe(c: char) -> bool {
    let changes_direction =
        matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let ends_line = matches!(c, '\u{2028}' | '\u{2029}');
    c.is_control() || changes_direction || ends_line
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
    fn control_characters_and_other_bytes_are_escaped() {
        assert_eq!(printable("a\u{1b}[2J\né"), "a\\u{1b}[2J\\né");
        assert_eq!(printable(b"\xff\x00z"), "\\xff\\u{0}z");
        assert_eq!(printable("\u{9b}2J\u{7f}\r\u{7}"), "\\u{9b}2J\\u{7f}\\r\\u{7}");
        assert_eq!(
            printable("\u{202e}gpj\u{2069}\u{200f}\u{2028}"),
            "\\u{202e}gpj\\u{2069}\\u{200f}\\u{2028}"
        );
        assert_eq!(printable("日本 שלום 😀"), "日本 שלום 😀");
    }
}
