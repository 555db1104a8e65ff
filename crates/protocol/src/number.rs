//! Numbers as Redis reads and writes them.

pub use millstream_engine::bytes::number::parse_integer as parse_i64;

/// Whole numbers up to here are written without an exponent: every one of them is exact.
const WHOLE_MAX: f64 = (1u64 << 52) as f64;

/// Reads an unsigned 64-bit integer in its one canonical spelling.
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

/// Writes a floating-point number in the fewest digits that read back as the same number.
pub fn format_f64(number: f64) -> String {
    if number.is_nan() {
        return "nan".to_owned();
    }
    if number.is_infinite() {
        return if number > 0.0 { "inf" } else { "-inf" }.to_owned();
    }
    if number.fract() == 0.0 && number.abs() < WHOLE_MAX {
        return format!("{number:.0}");
    }
    let scientific = format!("{number:e}");
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let digits = mantissa.bytes().filter(u8::is_ascii_digit).count() as i32;
    // The power of ten of the last digit decides: a few zeros are written out, many become an exponent.
    let last_power = exponent - (digits - 1);
    let plain = if last_power >= 0 { exponent < digits + 7 } else { last_power > -7 || exponent.abs() < 4 };
    if plain { format!("{number}") } else { format!("{mantissa}e{exponent:+}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resp::seeded::Seeded;

    #[test]
    fn integers_have_one_spelling() {
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
    fn unsigned_integers_reach_further() {
        assert_eq!(parse_u64(b"18446744073709551615"), Some(u64::MAX));
        for text in ["18446744073709551616", "-1", "-0", "00", ""] {
            assert_eq!(parse_u64(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn floats_are_written_short() {
        let cases = [
            (0.0, "0"),
            (-0.0, "-0"),
            (3.0, "3"),
            (-2.5, "-2.5"),
            (0.1, "0.1"),
            (1.0 / 3.0, "0.3333333333333333"),
            (4503599627370495.0, "4503599627370495"),
            (1e20, "1e+20"),
            (123_456_789e15, "1.23456789e+23"),
            (0.000_001, "0.000001"),
            (1e-7, "1e-7"),
            (1.5e-9, "1.5e-9"),
            (f64::INFINITY, "inf"),
            (f64::NEG_INFINITY, "-inf"),
            (f64::NAN, "nan"),
        ];
        for (number, text) in cases {
            assert_eq!(format_f64(number), text);
        }
    }

    #[test]
    fn floats_read_back_as_the_same_number() {
        let mut random = Seeded::new(7);
        for _ in 0..20_000 {
            let number = f64::from_bits(random.next());
            if !number.is_nan() {
                assert_eq!(format_f64(number).parse::<f64>().map(f64::to_bits), Ok(number.to_bits()));
            }
        }
    }
}
