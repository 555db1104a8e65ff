//! The limits of blocking commands: their timeouts and their number of keys.

use super::float::parse_float;
use crate::errors::{self, CommandError};
use crate::number;

/// Maximum timeout in milliseconds. The sum of a timeout and the current Unix time must fit in an `i64`, so 2^43 ms are
/// reserved for the Unix time. They are enough until the year 2248.
const TIMEOUT_MS_MAX: u64 = i64::MAX as u64 - (1 << 43);

/// Maximum number of keys of a command that can block. The server keeps several hundred bytes for each key that a
/// client is blocked on.
const BLOCKING_KEYS_MAX: usize = 65_536;

/// Refuses a command that can block if it has too many keys, even if it would not block now.
pub(super) fn check_blocking_keys(count: usize) -> Result<(), CommandError> {
    if count > BLOCKING_KEYS_MAX { Err(errors::TOO_MANY_BLOCKING_KEYS) } else { Ok(()) }
}

/// Parses a timeout in milliseconds; 0 means no limit.
pub(super) fn parse_timeout_ms(text: &[u8]) -> Result<u64, CommandError> {
    let ms = number::parse_i64(text).ok_or(errors::TIMEOUT_NOT_AN_INTEGER)?;
    in_range(u64::try_from(ms).map_err(|_| errors::TIMEOUT_NEGATIVE)?)
}

/// Parses a timeout in seconds, which can have decimals. Returns it in milliseconds, rounded up; 0 means no limit.
pub(super) fn parse_timeout_seconds(text: &[u8]) -> Result<u64, CommandError> {
    let seconds = parse_float(text).ok_or(errors::TIMEOUT_NOT_A_FLOAT)?;
    let ms = (seconds * 1000.0).ceil();
    if ms < 0.0 {
        return Err(errors::TIMEOUT_NEGATIVE);
    }
    // The cast turns a number beyond 64 bits into the greatest `u64`, which is out of range too.
    in_range(ms as u64)
}

fn in_range(ms: u64) -> Result<u64, CommandError> {
    if ms > TIMEOUT_MS_MAX { Err(errors::TIMEOUT_OUT_OF_RANGE) } else { Ok(ms) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn number_of_keys_is_limited_and_the_error_names_the_limit() {
        assert_eq!(check_blocking_keys(BLOCKING_KEYS_MAX), Ok(()));
        assert_eq!(check_blocking_keys(BLOCKING_KEYS_MAX + 1), Err(errors::TOO_MANY_BLOCKING_KEYS));
        assert!(errors::TOO_MANY_BLOCKING_KEYS.to_string().ends_with(&BLOCKING_KEYS_MAX.to_string()));
    }

    #[test]
    fn milliseconds_must_be_integers_that_are_not_negative() {
        assert_eq!(parse_timeout_ms(b"0"), Ok(0));
        assert_eq!(parse_timeout_ms(b"1500"), Ok(1500));
        assert_eq!(parse_timeout_ms(b"1.5"), Err(errors::TIMEOUT_NOT_AN_INTEGER));
        assert_eq!(parse_timeout_ms(b"-1"), Err(errors::TIMEOUT_NEGATIVE));
        assert_eq!(parse_timeout_ms(b"9223372036854775807"), Err(errors::TIMEOUT_OUT_OF_RANGE));
    }

    #[test]
    fn seconds_are_rounded_up_to_milliseconds() {
        assert_eq!(parse_timeout_seconds(b"0"), Ok(0));
        assert_eq!(parse_timeout_seconds(b"1.5"), Ok(1500));
        assert_eq!(parse_timeout_seconds(b"0.0001"), Ok(1));
        assert_eq!(parse_timeout_seconds(b"-0.0001"), Ok(0));
        assert_eq!(parse_timeout_seconds(b"x"), Err(errors::TIMEOUT_NOT_A_FLOAT));
        assert_eq!(parse_timeout_seconds(b"nan"), Err(errors::TIMEOUT_NOT_A_FLOAT));
        assert_eq!(parse_timeout_seconds(b"-0.5"), Err(errors::TIMEOUT_NEGATIVE));
        assert_eq!(parse_timeout_seconds(b"-inf"), Err(errors::TIMEOUT_NEGATIVE));
        assert_eq!(parse_timeout_seconds(b"inf"), Err(errors::TIMEOUT_OUT_OF_RANGE));
        assert_eq!(parse_timeout_seconds(b"1e300"), Err(errors::TIMEOUT_OUT_OF_RANGE));
    }
}
