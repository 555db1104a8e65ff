//! Parses durations, times, ids and stream positions from the command line, and formats times.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use millstream_worker::backend::StreamId;
pub(crate) use millstream_worker::operate::wording::format_time;

/// Parses a duration such as `500ms`, `30s`, `5m`, `2h`, `7d` or `1h30m`.
pub(crate) fn parse_duration(text: &str) -> Result<Duration, String> {
    let invalid = || "expected a duration such as 500ms, 30s, 5m, 1h30m or 7d".to_owned();
    let mut rest = text.trim();
    let mut total = Duration::ZERO;
    if rest.is_empty() {
        return Err(invalid());
    }
    while !rest.is_empty() {
        let digits_end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(invalid)?;
        let (number, after) = rest.split_at(digits_end);
        let unit_end = after.find(|c: char| c.is_ascii_digit()).unwrap_or(after.len());
        let (unit, after) = after.split_at(unit_end);
        let seconds = match unit.trim() {
            "ms" => 0.001,
            "s" => 1.0,
            "m" | "min" => 60.0,
            "h" => 3600.0,
            "d" => 86_400.0,
            "w" => 604_800.0,
            _ => return Err(invalid()),
        };
        let number: f64 = number.parse().map_err(|_| invalid())?;
        let part = Duration::try_from_secs_f64(number * seconds).map_err(|_| invalid())?;
        total = total.checked_add(part).ok_or_else(invalid)?;
        rest = after;
    }
    Ok(total)
}

/// Parses a time and returns it in milliseconds since 1970.
///
/// Accepts `2026-11-15`, `2026-11-15T10:30`, `2026-11-15 10:30:00` and `2026-11-15T10:30:00+02:00`. A time without a
/// zone is in UTC. Also accepts milliseconds since 1970, with at least 11 digits.
pub(crate) fn parse_time(text: &str) -> Result<u64, String> {
    let invalid = || "expected a time such as 2026-11-15 or 2026-11-15T10:30:00Z".to_owned();
    if text.len() > 10 && text.bytes().all(|byte| byte.is_ascii_digit()) {
        return text.parse().map_err(|_| invalid());
    }
    calendar_time(text.trim()).ok_or_else(invalid)
}

fn calendar_time(text: &str) -> Option<u64> {
    let (date, rest) = match text.find(['T', ' ']) {
        Some(at) => (&text[..at], &text[at + 1..]),
        None => (text, ""),
    };
    let mut date = date.split('-').map(str::parse::<i64>);
    let (year, month, day) = (date.next()?.ok()?, date.next()?.ok()?, date.next()?.ok()?);
    let valid = (1970..=9999).contains(&year) && (1..=12).contains(&month) && (1..=31).contains(&day);
    if !valid || date.next().is_some() {
        return None;
    }
    let (clock, offset_seconds) = split_zone(rest)?;
    let mut parts = clock.split(':').filter(|part| !part.is_empty());
    let mut part = |limit: f64| match parts.next() {
        None => Some(0.0),
        Some(text) => text.parse::<f64>().ok().filter(|number| (0.0..limit).contains(number)),
    };
    let seconds = part(24.0)? * 3600.0 + part(60.0)? * 60.0 + part(61.0)?;
    let whole = days_since_epoch(year, month, day) * 86_400 - offset_seconds;
    u64::try_from(whole * 1000 + (seconds * 1000.0) as i64).ok()
}

/// Splits a time of day from its zone. Returns the time and its offset from UTC in seconds.
fn split_zone(text: &str) -> Option<(&str, i64)> {
    if let Some(clock) = text.strip_suffix(['Z', 'z']) {
        return Some((clock, 0));
    }
    let Some(at) = text.rfind(['+', '-']) else { return Some((text, 0)) };
    let (hours, minutes) = text[at + 1..].split_once(':').unwrap_or((&text[at + 1..], "0"));
    let seconds = i64::from(hours.parse::<u8>().ok()?) * 3600 + i64::from(minutes.parse::<u8>().ok()?) * 60;
    Some((&text[..at], if text[at..].starts_with('-') { -seconds } else { seconds }))
}

/// Returns the days from the beginning of 1970 to a date of the Gregorian calendar.
///
/// Counts years from March, so that a leap day is the last day of its year.
fn days_since_epoch(year: i64, month: i64, day: i64) -> i64 {
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let leap_days = year / 4 - year / 100 + year / 400;
    let days_of_months = (153 * month + 2) / 5;
    365 * year + leap_days + days_of_months + day - 1 - DAYS_BEFORE_EPOCH
}

/// Days from 1 March of the year 0 to the beginning of 1970.
const DAYS_BEFORE_EPOCH: i64 = 719_468;

/// Returns the current time in milliseconds since 1970.
pub(crate) fn now_ms() -> u64 {
    super::value::millis(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default())
}

/// Parses an entry id: `1731664200000-0`, or only the milliseconds.
pub(crate) fn parse_id(text: &str) -> Result<StreamId, String> {
    millstream_protocol::ids::parse_id(text.as_bytes())
        .map_err(|_| "expected an id of the form MS-SEQ, for example 1731664200000-0".to_owned())
}

/// A position in a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Position {
    /// The oldest entry.
    Earliest,
    /// The next entry that is added.
    Latest,
    /// The entry with this id, or the first one after it.
    At(StreamId),
}

/// Parses `earliest`, `latest`, an id, a time, or a duration before now such as `10m`.
pub(crate) fn parse_position(text: &str) -> Result<Position, String> {
    match text {
        "earliest" | "0" => return Ok(Position::Earliest),
        "latest" | "$" => return Ok(Position::Latest),
        _ => {}
    }
    let at_ms = |ms| Position::At(StreamId::new(ms, 0));
    parse_id(text)
        .map(Position::At)
        .or_else(|_| parse_time(text).map(at_ms))
        .or_else(|_| {
            parse_duration(text).map(|ago| at_ms(now_ms().saturating_sub(super::value::millis(ago))))
        })
        .map_err(|_| {
            "expected earliest, latest, an id, a time such as 2026-11-15T10:30:00Z, or a duration before now such as 10m"
                .to_owned()
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_parsed() {
        let ms = |text| parse_duration(text).map(|duration| duration.as_millis());
        assert_eq!(ms("500ms"), Ok(500));
        assert_eq!(ms("1h30m"), Ok(5_400_000));
        assert_eq!(ms("1.5s"), Ok(1500));
        assert_eq!(ms("2m 3s"), Ok(123_000));
        for invalid in ["", "10", "x", "5 apples", "-3s", "s", "1e9w"] {
            assert!(ms(invalid).unwrap_err().contains("expected a duration"), "{invalid}");
        }
    }

    #[test]
    fn times_are_parsed_and_formatted() {
        assert_eq!(parse_time("1970-01-01"), Ok(0));
        assert_eq!(parse_time("2024-02-29T12:30:15.5Z"), Ok(1_709_209_815_500));
        assert_eq!(parse_time("2024-02-29 14:30:15+02:00"), Ok(1_709_209_815_000));
        assert_eq!(parse_time("1709209815000"), Ok(1_709_209_815_000));
        for invalid in ["", "2024", "2024-13-01", "2024-01-01T25:00", "2024-01-01Tx", "yesterday"] {
            assert!(parse_time(invalid).is_err(), "{invalid}");
        }
        for ms in [0, 951_782_400_000, 1_709_209_815_500, 4_107_542_399_999] {
            assert_eq!(parse_time(&format_time(ms)), Ok(ms));
        }
        assert_eq!(format_time(1_709_209_815_500), "2024-02-29T12:30:15.500Z");
    }

    #[test]
    fn positions_are_parsed() {
        assert_eq!(parse_position("earliest"), Ok(Position::Earliest));
        assert_eq!(parse_position("latest"), Ok(Position::Latest));
        assert_eq!(parse_position("5-1"), Ok(Position::At(StreamId::new(5, 1))));
        assert_eq!(parse_position("1970-01-02"), Ok(Position::At(StreamId::new(86_400_000, 0))));
        assert!(matches!(parse_position("10m"), Ok(Position::At(id)) if id.ms > 1_700_000_000_000));
        assert!(parse_position("never").unwrap_err().contains("earliest, latest"));
    }
}
