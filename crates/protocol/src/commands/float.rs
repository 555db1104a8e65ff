//! Floating-point arguments.

/// Parses a number as C's `strtod` does, but accepts neither white space around it nor hexadecimal digits.
///
/// `inf` and `infinity` are accepted. Returns `None` for `nan`, and for digits whose value is too large for an `f64`.
pub(super) fn parse_float(text: &[u8]) -> Option<f64> {
    let text = std::str::from_utf8(text).ok()?;
    let number: f64 = text.parse().ok()?;
    let spelled_out = text.trim_start_matches(['+', '-']).starts_with(['i', 'I']);
    (!number.is_nan() && (number.is_finite() || spelled_out)).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_with_surplus_characters_are_rejected() {
        for (text, number) in [("1.5", 1.5), ("-3e2", -300.0), (".5", 0.5), ("5.", 5.0), ("+1", 1.0)] {
            assert_eq!(parse_float(text.as_bytes()), Some(number), "{text}");
        }
        assert_eq!(parse_float(b"inf"), Some(f64::INFINITY));
        assert_eq!(parse_float(b"-Infinity"), Some(f64::NEG_INFINITY));
        for text in ["", " 1", "1 ", "1x", "nan", "-nan", "1e5000", "e5", "."] {
            assert_eq!(parse_float(text.as_bytes()), None, "{text}");
        }
    }
}
