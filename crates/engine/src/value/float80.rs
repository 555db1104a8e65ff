//! Floating-point arithmetic for INCRBYFLOAT and HINCRBYFLOAT, with the precision of Redis.
//!
//! Redis adds in the 80-bit format of x86 and prints 17 decimals, so that 0.1 plus 0.2 is 0.3. To give the
//! same results on every machine, this file does the same arithmetic with integers: a 64-bit mantissa,
//! rounded to nearest, ties to even. There are three steps: text to number, sum, number to text. Each is
//! exact except for one rounding.

use std::fmt;

use super::big_uint::BigUint;

/// Greatest exponent of the leading bit.
const EXPONENT_MAX: i32 = 16383;
/// A number whose leading bit has a smaller exponent is rounded to zero.
const EXPONENT_MIN: i32 = -16446;
/// Text of this length or longer is rejected.
const TEXT_BYTES_MAX: usize = 5 * 1024;
/// Number of decimals written, before trailing zeros are removed.
const DECIMALS: u32 = 17;
/// A decimal exponent greater than that of any number in range.
const DECIMAL_EXPONENT_BOUND: i64 = 20_000;

/// A floating-point number with a 64-bit mantissa.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Float80 {
    negative: bool,
    magnitude: Magnitude,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Magnitude {
    Zero,
    /// `mantissa * 2^exponent`. The top bit of the mantissa is set.
    Finite {
        mantissa: u64,
        exponent: i32,
    },
    Infinite,
}

impl Float80 {
    /// Zero.
    pub const ZERO: Float80 = Float80 { negative: false, magnitude: Magnitude::Zero };

    /// Parses a number as C does: decimal or hexadecimal, with an optional exponent, or `inf`. Rejects
    /// surrounding spaces, `nan`, and numbers out of range.
    pub fn parse(text: &[u8]) -> Option<Float80> {
        if text.len() >= TEXT_BYTES_MAX {
            return None;
        }
        let (negative, digits) = match text {
            [b'-', rest @ ..] => (true, rest),
            [b'+', rest @ ..] => (false, rest),
            rest => (false, rest),
        };
        let magnitude = match digits {
            [b'0', b'x' | b'X', hex @ ..] => parse_hexadecimal(hex)?,
            [b'i' | b'I', ..] => parse_infinity(digits)?,
            decimal => parse_decimal(decimal)?,
        };
        Some(Float80 { negative, magnitude })
    }

    /// Returns whether this is not an infinity.
    pub fn is_finite(self) -> bool {
        self.magnitude != Magnitude::Infinite
    }

    /// Returns the sum, or `None` if it is not finite.
    pub fn plus(self, other: Float80) -> Option<Float80> {
        match (self.magnitude, other.magnitude) {
            (Magnitude::Infinite, _) | (_, Magnitude::Infinite) => None,
            (Magnitude::Zero, _) => Some(other),
            (_, Magnitude::Zero) => Some(self),
            (Magnitude::Finite { exponent: a, .. }, Magnitude::Finite { exponent: b, .. }) if a < b => {
                other.plus_smaller(self)
            }
            _ => self.plus_smaller(other),
        }
    }

    /// Adds a finite number with an exponent that is not greater.
    fn plus_smaller(self, smaller: Float80) -> Option<Float80> {
        let (Magnitude::Finite { mantissa: a, exponent }, Magnitude::Finite { mantissa: b, exponent: low }) =
            (self.magnitude, smaller.magnitude)
        else {
            return None;
        };
        // The guard bits below the mantissa receive the bits that are shifted out. There is still a bit above
        // it for the carry.
        const GUARD: u32 = 62;
        let a = u128::from(a) << GUARD;
        let b = shift_right_sticky(u128::from(b) << GUARD, (exponent - low) as u32);
        let (negative, sum) = match (self.negative == smaller.negative, a >= b) {
            (true, _) => (self.negative, a + b),
            (false, true) => (self.negative, a - b),
            (false, false) => (smaller.negative, b - a),
        };
        match round(sum, exponent - GUARD as i32) {
            Magnitude::Infinite => None,
            magnitude => Some(Float80 { negative, magnitude }),
        }
    }
}

impl fmt::Display for Float80 {
    /// Writes plain decimal text with at most 17 decimals and no trailing zeros.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = match self.magnitude {
            Magnitude::Zero => "0".to_owned(),
            Magnitude::Infinite => "inf".to_owned(),
            Magnitude::Finite { mantissa, exponent } if exponent >= 0 => {
                let mut whole = BigUint::from(mantissa);
                whole.shift_left(exponent as u32);
                whole.into_decimal()
            }
            Magnitude::Finite { mantissa, exponent } => decimals(mantissa, exponent.unsigned_abs()),
        };
        let sign = if self.negative && digits != "0" { "-" } else { "" };
        write!(f, "{sign}{digits}")
    }
}

/// Returns the decimal text of `mantissa / 2^shift`.
fn decimals(mantissa: u64, shift: u32) -> String {
    const SCALE: u128 = 10u128.pow(DECIMALS);
    let scaled = round_half_even(u128::from(mantissa) * SCALE, shift);
    let (whole, fraction) = (scaled / SCALE, scaled % SCALE);
    let text = format!("{whole}.{fraction:017}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn parse_infinity(text: &[u8]) -> Option<Magnitude> {
    let known = text.eq_ignore_ascii_case(b"inf") || text.eq_ignore_ascii_case(b"infinity");
    known.then_some(Magnitude::Infinite)
}

fn parse_decimal(text: &[u8]) -> Option<Magnitude> {
    let NumberParts { mut digits, fraction_digits, significant, exponent } = parse_parts(text, 10)?;
    let exponent = exponent - i64::from(fraction_digits);
    if digits.is_zero() {
        return Some(Magnitude::Zero);
    }
    // Rejected early: the exact computation would take long, and the result would be out of range.
    if (exponent + i64::from(significant)).abs() > DECIMAL_EXPONENT_BOUND / 2 {
        return None;
    }
    let power = exponent.unsigned_abs() as u32;
    if exponent >= 0 {
        digits.multiply_by_ten_to(power);
        return in_range(round_big(&digits, 0, false));
    }
    // Shifts left so far that the quotient has more bits than a mantissa, to have bits to round by.
    let divisor_bits = power * 10 / 3 + 1;
    let shift = (divisor_bits + 66).saturating_sub(digits.bits());
    digits.shift_left(shift);
    let inexact = digits.divide_by_ten_to(power);
    in_range(round_big(&digits, -(shift as i32), inexact))
}

fn parse_hexadecimal(text: &[u8]) -> Option<Magnitude> {
    let NumberParts { digits, fraction_digits, exponent, .. } = parse_parts(text, 16)?;
    if digits.is_zero() {
        return Some(Magnitude::Zero);
    }
    let exponent = exponent - 4 * i64::from(fraction_digits);
    in_range(round_big(&digits, exponent.clamp(-100_000, 100_000) as i32, false))
}

/// Returns `None` for a number out of range.
fn in_range(magnitude: Magnitude) -> Option<Magnitude> {
    matches!(magnitude, Magnitude::Finite { .. }).then_some(magnitude)
}

/// The parsed parts of a number's text.
struct NumberParts {
    digits: BigUint,
    /// Number of digits after the point.
    fraction_digits: u32,
    /// Number of digits without leading zeros.
    significant: u32,
    exponent: i64,
}

/// Parses digits with an optional point among them, and an optional exponent.
fn parse_parts(text: &[u8], base: u32) -> Option<NumberParts> {
    let mut parts =
        NumberParts { digits: BigUint::default(), fraction_digits: 0, significant: 0, exponent: 0 };
    let (mut seen_point, mut seen_digit) = (false, false);
    let mut rest = text;
    while let [byte, after @ ..] = rest {
        if *byte == b'.' && !seen_point {
            seen_point = true;
        } else if let Some(digit) = char::from(*byte).to_digit(base) {
            seen_digit = true;
            parts.digits.multiply_add(base, digit);
            parts.fraction_digits += u32::from(seen_point);
            parts.significant += u32::from(!parts.digits.is_zero());
        } else {
            break;
        }
        rest = after;
    }
    let marker = if base == 16 { b'p' } else { b'e' };
    match rest {
        [] => {}
        [mark, exponent @ ..] if mark.eq_ignore_ascii_case(&marker) => {
            parts.exponent = parse_exponent(exponent)?
        }
        _ => return None,
    }
    seen_digit.then_some(parts)
}

fn parse_exponent(text: &[u8]) -> Option<i64> {
    let (sign, digits) = match text {
        [b'-', rest @ ..] => (-1, rest),
        [b'+', rest @ ..] => (1, rest),
        rest => (1, rest),
    };
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    // Any greater exponent is out of range too, so the value can be capped.
    let bounded = digits.iter().fold(0i64, |sum, digit| (sum * 10 + i64::from(digit - b'0')).min(1 << 40));
    Some(sign * bounded)
}

fn round_big(number: &BigUint, exponent: i32, inexact: bool) -> Magnitude {
    // Two bits below the mantissa and a sticky bit for all lower bits give the same rounding as all bits.
    let surplus = number.bits().saturating_sub(66);
    let sticky = inexact || number.any_bit_below(surplus);
    let high = u128::from(number.bits_from(surplus + 64)) << 64 | u128::from(number.bits_from(surplus));
    round(high << 1 | u128::from(sticky), exponent + surplus as i32 - 1)
}

/// Returns the number nearest to `bits * 2^exponent`.
fn round(bits: u128, exponent: i32) -> Magnitude {
    if bits == 0 {
        return Magnitude::Zero;
    }
    let surplus = i32::try_from(u128::BITS - bits.leading_zeros()).unwrap_or(0) - 64;
    let (mantissa, exponent) = match surplus {
        ..=0 => ((bits << -surplus) as u64, exponent + surplus),
        _ => {
            let rounded = round_half_even(bits, surplus as u32);
            // Rounding up can carry into a 65th bit. All bits below it are then zero.
            let carried = (rounded >> 64) as i32;
            ((rounded >> carried) as u64, exponent + surplus + carried)
        }
    };
    match exponent + 63 {
        EXPONENT_MIN..=EXPONENT_MAX => Magnitude::Finite { mantissa, exponent },
        ..EXPONENT_MIN => Magnitude::Zero,
        _ => Magnitude::Infinite,
    }
}

/// Returns `number / 2^shift`, rounded to nearest, ties to even.
fn round_half_even(number: u128, shift: u32) -> u128 {
    if shift == 0 {
        return number;
    }
    if shift >= u128::BITS {
        return 0;
    }
    let whole = number >> shift;
    let half = 1u128 << (shift - 1);
    let rest = number & (half | (half - 1));
    whole + u128::from(rest > half || (rest == half && whole & 1 == 1))
}

/// Shifts right. If a set bit is shifted out, the lowest bit of the result is set.
fn shift_right_sticky(number: u128, shift: u32) -> u128 {
    if shift >= u128::BITS {
        return u128::from(number != 0);
    }
    let kept = number >> shift;
    kept | u128::from(kept << shift != number)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(a: &str, b: &str) -> Option<String> {
        let (a, b) = (Float80::parse(a.as_bytes()).unwrap(), Float80::parse(b.as_bytes()).unwrap());
        a.plus(b).map(|sum| sum.to_string())
    }

    /// Expected sums are the replies of Redis 7.0.15 to INCRBYFLOAT.
    #[test]
    fn sums_match_80_bit_arithmetic() {
        let known = [
            ("0.1", "0.2", "0.3"),
            ("10.50", "0.1", "10.6"),
            ("5.0e3", "2.0e2", "5200"),
            ("3", "-3", "0"),
            ("-0", "-0", "0"),
            ("1", "-0x.8p-1", "0.75"),
            ("0x1.8p3", "+5", "17"),
            (".5", "5.", "5.5"),
            ("1e-18", "-5e-18", "0"),
            ("5e-18", "0", "0"),
            ("1.1", "1.1", "2.2"),
            ("999.999999", "3.6e-4951", "999.99999900000000003"),
            ("17861890456799444112.752856274680", "0", "17861890456799444113"),
            ("18446744073709551615", "1", "18446744073709551616"),
            ("18446744073709551615", "0.5", "18446744073709551616"),
            ("18446744073709551614", "0.5", "18446744073709551614"),
            ("18446744073709551614", "0x8000000000000001p-64", "18446744073709551615"),
            ("18446744073709551613", "0.5", "18446744073709551614"),
            ("99999999999999999999999", "0.1", "100000000000000000000000"),
            ("1e30", "-1e12", "999999999999999998993903910912"),
            ("1.00000000000000000000000015", "0", "1"),
            ("0.37914881672469192", "-0.37914881672469191", "0.00000000000000001"),
            ("-55330e-3509", "1", "1"),
            (
                "1e100",
                "1",
                "9999999999999999999669353532207342619498699019828496079271391541752018669482644324418977840117055488",
            ),
            ("3.0e3", "200", "3200"),
            ("1e17", "1e-17", "100000000000000000"),
        ];
        for (a, b, expected) in known {
            assert_eq!(sum(a, b).as_deref(), Some(expected), "{a} + {b}");
        }
    }

    #[test]
    fn parse_rejects_text_that_is_not_a_number() {
        for bad in
            ["", " 1", "1 ", "abc", "nan", "1e", "e5", ".", "-", "0x", "1..2", "--1", "1e5000", "1e-5000"]
        {
            assert_eq!(Float80::parse(bad.as_bytes()), None, "{bad:?}");
        }
        assert_eq!(Float80::parse(&[b'1'; TEXT_BYTES_MAX]), None);
    }

    #[test]
    fn parse_accepts_infinity_but_no_sum_is_infinite() {
        assert!(!Float80::parse(b"-inf").unwrap().is_finite());
        assert!(Float80::parse(b"1e4932").unwrap().is_finite());
        assert_eq!(sum("1.1e4932", "1.1e4932"), None);
        assert_eq!(sum("inf", "1"), None);
        assert_eq!(sum("1", "-Infinity"), None);
    }
}
