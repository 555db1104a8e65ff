//! Integers in the spelling that Redis accepts.

pub use millstream_engine::bytes::number::parse_integer as parse_i64;

/// Parses an unsigned 64-bit integer. Only the canonical spelling is accepted: no sign, no leading zeros.
pub fn parse_u64(text: &[u8]) -> Option<u64> {
    match text {
        [b'0'] => Some(0),
        [b'1'..=b'9', ..] if text.len() <= 20 => text.iter().try_fold(0u64, |number, byte| {
            let digit = byte.wrapping_sub(b'0');
            if digit > 9 {
                return None;
            }
            number.checked_mul(10)?.checked_add(u64::from(digit))
        }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_canonical_integers_are_accepted() {
        for text in ["0", "7", "-7", "9223372036854775807", "-9223372036854775808"] {
            assert_eq!(parse_i64(text.as_bytes()).map(|number| number.to_string()).as_deref(), Some(text));
        }
        for text in [
            "",
            "-",
            "+1",
            " 1",
            "1 ",
            "01",
            "-0",
            "-01",
            "1a",
            "0x1",
            "1.0",
            "9223372036854775808",
            "-9223372036854775809",
            "99999999999999999999",
            "100000000000000000000000",
        ] {
            assert_eq!(parse_i64(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn unsigned_integers_go_up_to_u64_max() {
        assert_eq!(parse_u64(b"18446744073709551615"), Some(u64::MAX));
        for text in ["18446744073709551616", "-1", "-0", "00", ""] {
            assert_eq!(parse_u64(text.as_bytes()), None, "{text}");
        }
    }
}
