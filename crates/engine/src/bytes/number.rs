//! Integers as text. A string, a field or a member counts as an integer only in this canonical form.

/// Parses canonical decimal text: no plus sign, no leading zeros, no spaces.
#[inline]
pub fn parse_integer(text: &[u8]) -> Option<i64> {
    match text {
        [b'1'..=b'9', ..] => parse_magnitude(text).and_then(|magnitude| i64::try_from(magnitude).ok()),
        [b'-', digits @ ..] => {
            parse_magnitude(digits).and_then(|magnitude| 0i64.checked_sub_unsigned(magnitude))
        }
        [b'0'] => Some(0),
        _ => None,
    }
}

/// Parses digits whose value is at least 1, with no more digits than the greatest `i64` has.
#[inline]
fn parse_magnitude(digits: &[u8]) -> Option<u64> {
    if !matches!(digits.first(), Some(b'1'..=b'9')) || digits.len() > IntegerText::DIGITS_MAX {
        return None;
    }
    let mut magnitude = 0u64;
    for digit in digits {
        let digit = digit.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        // Cannot overflow: 19 nines fit into 64 bits.
        magnitude = magnitude.wrapping_mul(10).wrapping_add(u64::from(digit));
    }
    Some(magnitude)
}

/// The canonical text of an integer, without an allocation.
#[derive(Clone, Copy, Debug)]
pub struct IntegerText {
    /// The text is at the end, from `start` on.
    bytes: [u8; IntegerText::BYTES],
    start: usize,
}

impl IntegerText {
    const DIGITS_MAX: usize = 19;
    const BYTES: usize = Self::DIGITS_MAX + 1;

    /// Formats `integer`.
    pub fn new(integer: i64) -> IntegerText {
        let mut text = IntegerText { bytes: [0; Self::BYTES], start: Self::BYTES };
        let mut rest = integer.unsigned_abs();
        loop {
            text.prepend(b'0' + (rest % 10) as u8);
            rest /= 10;
            if rest == 0 {
                break;
            }
        }
        if integer < 0 {
            text.prepend(b'-');
        }
        text
    }

    fn prepend(&mut self, byte: u8) {
        self.start -= 1;
        self.bytes[self.start] = byte;
    }

    /// Returns the text.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[self.start..]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parse_integer_accepts_only_canonical_text() {
        for bad in ["", "-", "+1", "01", "-0", "-01", "1 ", " 1", "1.0", "0x1", "9223372036854775808"] {
            assert_eq!(parse_integer(bad.as_bytes()), None, "{bad:?}");
        }
        assert_eq!(parse_integer(b"-9223372036854775809"), None);
        assert_eq!(parse_integer(b"99999999999999999999"), None);
    }

    #[test]
    fn parse_integer_inverts_integer_text() {
        for integer in [0, 1, -1, 10, -90, 1234567890, i64::MAX, i64::MIN] {
            let text = IntegerText::new(integer);
            assert_eq!(text.as_bytes(), integer.to_string().as_bytes());
            assert_eq!(parse_integer(text.as_bytes()), Some(integer));
        }
    }
}
