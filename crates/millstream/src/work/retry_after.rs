//! Parses the HTTP header `Retry-After`: seconds, or a date.

use std::time::{Duration, SystemTime};

/// Returns the time to wait from `now`. `None` if the value is neither a number of seconds nor a date.
pub(super) fn parse(value: &str, now: SystemTime) -> Option<Duration> {
    let value = value.trim();
    if value.bytes().all(|byte| byte.is_ascii_digit()) {
        return value.parse().ok().map(Duration::from_secs);
    }
    let date = httpdate::parse_http_date(value).ok()?;
    // A date in the past means: retry now.
    Some(date.duration_since(now).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;

    #[test]
    fn seconds_and_dates_are_parsed() {
        let now = UNIX_EPOCH + Duration::from_secs(784_111_777);
        assert_eq!(parse("120", now), Some(Duration::from_secs(120)));
        assert_eq!(parse(" 0 ", now), Some(Duration::ZERO));
        assert_eq!(parse("Sun, 06 Nov 1994 08:49:47 GMT", now), Some(Duration::from_secs(10)));
        assert_eq!(parse("Sun, 06 Nov 1994 08:00:00 GMT", now), Some(Duration::ZERO));
        for invalid in ["", "soon", "-1", "1.5", "99999999999999999999"] {
            assert_eq!(parse(invalid, now), None, "{invalid}");
        }
    }
}
