//! Floating-point counters, with the precision that clients of such counters have always seen.
//!
//! Redis adds in the 80-bit format of x86 and writes 17 decimals, so that 0.1 and 0.2 make 0.3. To
//! answer alike on every machine the same arithmetic is done here in integers: a mantissa of 64 bits,
//! rounded to nearest, ties to even. Three steps: text to number, sum, number to text; each exact but
//! for that one rounding.

use std::fmt;

use super::wide::Wide;

/// The greatest power of two a number may start with.
const EXPONENT_MAX: i32 = 16383;
/// Numbers that start below this power of two are zero.
const EXPONENT_MIN: i32 = -16446;
/// The longest text that is read at all.
const TEXT_BYTES_MAX: usize = 5 * 1024;
/// Decimals written, before trailing zeros go.
const DECIMALS: u32 = 17;
/// A decimal exponent beyond every number that could be read.
const DECIMAL_EXPONENT_BOUND: i64 = 20_000;

/// A number with a mantissa of 64 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Float80 {
    negative: bool,
    size: Size,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Size {
    Zero,
    /// `mantissa * 2^exponent`; the mantissa's top bit is set.
    Finite {
        mantissa: u64,
        exponent: i32,
    },
    Infinite,
}

impl Float80 {
    /// Zero.
    pub const ZERO: Float80 = Float80 { negative: false, size: Size::Zero };

    /// Reads a number as C reads one: decimal or hexadecimal, with an exponent, or `inf`. Refused are
    /// surrounding spaces, `nan`, and numbers beyond the range.
    pub fn parse(text: &[u8]) -> Option<Float80> {
        if text.len() >= TEXT_BYTES_MAX {
            return None;
        }
        let (negative, digits) = match text {
            [b'-', rest @ ..] => (true, rest),
            [b'+', rest @ ..] => (false, rest),
            rest => (false, rest),
        };
        let size = match digits {
            [b'0', b'x' | b'X', hex @ ..] => parse_hexadecimal(hex)?,
            [b'i' | b'I', ..] => parse_infinity(digits)?,
            decimal => parse_decimal(decimal)?,
        };
        Some(Float80 { negative, size })
    }

    /// Whether this is a number, and not infinity.
    pub fn is_finite(self) -> bool {
        self.size != Size::Infinite
    }

    /// The sum, unless it is no finite number.
    pub fn plus(self, other: Float80) -> Option<Float80> {
        match (self.size, other.size) {
            (Size::Infinite, _) | (_, Size::Infinite) => None,
            (Size::Zero, _) => Some(other),
            (_, Size::Zero) => Some(self),
            (Size::Finite { exponent: a, .. }, Size::Finite { exponent: b, .. }) if a < b => {
                other.plus_smaller(self)
            }
            _ => self.plus_smaller(other),
        }
    }

    /// Adds a finite number whose exponent is not greater.
    fn plus_smaller(self, smaller: Float80) -> Option<Float80> {
        let (Size::Finite { mantissa: a, exponent }, Size::Finite { mantissa: b, exponent: low }) =
            (self.size, smaller.size)
        else {
            return None;
        };
        // Room below for the bits that are shifted out, and one above for the carry.
        const GUARD: u32 = 62;
        let a = u128::from(a) << GUARD;
        let b = shift_right_sticky(u128::from(b) << GUARD, (exponent - low) as u32);
        let (negative, sum) = match (self.negative == smaller.negative, a >= b) {
            (true, _) => (self.negative, a + b),
            (false, true) => (self.negative, a - b),
            (false, false) => (smaller.negative, b - a),
        };
        match round(sum, exponent - GUARD as i32) {
            Size::Infinite => None,
            size => Some(Float80 { negative, size }),
        }
    }
}

impl fmt::Display for Float80 {
    /// Plain decimals, at most 17 of them, without trailing zeros.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = match self.size {
            Size::Zero => "0".to_owned(),
            Size::Infinite => "inf".to_owned(),
            Size::Finite { mantissa, exponent } if exponent >= 0 => {
                let mut whole = Wide::from(mantissa);
                whole.shift_left(exponent as u32);
                whole.into_decimal()
            }
            Size::Finite { mantissa, exponent } => decimals(mantissa, exponent.unsigned_abs()),
        };
        let sign = if self.negative && digits != "0" { "-" } else { "" };
        write!(f, "{sign}{digits}")
    }
}

/// The text of `mantissa / 2^shift`.
fn decimals(mantissa: u64, shift: u32) -> String {
    const SCALE: u128 = 10u128.pow(DECIMALS);
    let scaled = round_half_even(u128::from(mantissa) * SCALE, shift);
    let (whole, fraction) = (scaled / SCALE, scaled % SCALE);
    let text = format!("{whole}.{fraction:017}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn parse_infinity(text: &[u8]) -> Option<Size> {
    let known = text.eq_ignore_ascii_case(b"inf") || text.eq_ignore_ascii_case(b"infinity");
    known.then_some(Size::Infinite)
}

fn parse_decimal(text: &[u8]) -> Option<Size> {
    let Scanned { mut digits, fraction_digits, significant, exponent } = scan(text, 10)?;
    let exponent = exponent - i64::from(fraction_digits);
    if digits.is_zero() {
        return Some(Size::Zero);
    }
    // Far outside the range there is nothing to compute, only much of it.
    if (exponent + i64::from(significant)).abs() > DECIMAL_EXPONENT_BOUND / 2 {
        return None;
    }
    let power = exponent.unsigned_abs() as u32;
    if exponent >= 0 {
        digits.multiply_by_ten_to(power);
        return in_range(round_wide(&digits, 0, false));
    }
    // Enough bits above the point that the quotient has more than a mantissa, with bits to round by.
    let divisor_bits = power * 10 / 3 + 1;
    let shift = (divisor_bits + 66).saturating_sub(digits.bits());
    digits.shift_left(shift);
    let inexact = digits.divide_by_ten_to(power);
    in_range(round_wide(&digits, -(shift as i32), inexact))
}

fn parse_hexadecimal(text: &[u8]) -> Option<Size> {
    let Scanned { digits, fraction_digits, exponent, .. } = scan(text, 16)?;
    if digits.is_zero() {
        return Some(Size::Zero);
    }
    let exponent = exponent - 4 * i64::from(fraction_digits);
    in_range(round_wide(&digits, exponent.clamp(-100_000, 100_000) as i32, false))
}

/// A number beyond the range cannot be read.
fn in_range(size: Size) -> Option<Size> {
    matches!(size, Size::Finite { .. }).then_some(size)
}

/// The parts of a number's text.
struct Scanned {
    digits: Wide,
    /// How many digits stand after the point.
    fraction_digits: u32,
    /// How many digits count, leading zeros apart.
    significant: u32,
    exponent: i64,
}

/// Takes a number apart: digits with an optional point among them, and an optional exponent.
fn scan(text: &[u8], base: u32) -> Option<Scanned> {
    let mut scanned = Scanned { digits: Wide::default(), fraction_digits: 0, significant: 0, exponent: 0 };
    let (mut seen_point, mut seen_digit) = (false, false);
    let mut rest = text;
    while let [byte, after @ ..] = rest {
        if *byte == b'.' && !seen_point {
            seen_point = true;
        } else if let Some(digit) = char::from(*byte).to_digit(base) {
            seen_digit = true;
            scanned.digits.multiply_add(base, digit);
            scanned.fraction_digits += u32::from(seen_point);
            scanned.significant += u32::from(!scanned.digits.is_zero());
        } else {
            break;
        }
        rest = after;
    }
    let marker = if base == 16 { b'p' } else { b'e' };
    match rest {
        [] => {}
        [mark, exponent @ ..] if mark.eq_ignore_ascii_case(&marker) => {
            scanned.exponent = scan_exponent(exponent)?
        }
        _ => return None,
    }
    seen_digit.then_some(scanned)
}

fn scan_exponent(text: &[u8]) -> Option<i64> {
    let (sign, digits) = match text {
        [b'-', rest @ ..] => (-1, rest),
        [b'+', rest @ ..] => (1, rest),
        rest => (1, rest),
    };
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    // A longer exponent says nothing that a bound does not.
    let bounded = digits.iter().fold(0i64, |sum, digit| (sum * 10 + i64::from(digit - b'0')).min(1 << 40));
    Some(sign * bounded)
}

fn round_wide(number: &Wide, exponent: i32, inexact: bool) -> Size {
    // Two bits past the mantissa and one that stands for all the others round as the whole would.
    let surplus = number.bits().saturating_sub(66);
    let sticky = inexact || number.any_bit_below(surplus);
    let high = u128::from(number.bits_from(surplus + 64)) << 64 | u128::from(number.bits_from(surplus));
    round(high << 1 | u128::from(sticky), exponent + surplus as i32 - 1)
}

/// The nearest number to `bits * 2^exponent`.
fn round(bits: u128, exponent: i32) -> Size {
    if bits == 0 {
        return Size::Zero;
    }
    let surplus = i32::try_from(u128::BITS - bits.leading_zeros()).unwrap_or(0) - 64;
    let (mantissa, exponent) = match surplus {
        ..=0 => ((bits << -surplus) as u64, exponent + surplus),
        _ => {
            let rounded = round_half_even(bits, surplus as u32);
            // Rounding up may carry into a sixty-fifth bit; what is below it is then zero.
            let carried = (rounded >> 64) as i32;
            ((rounded >> carried) as u64, exponent + surplus + carried)
        }
    };
    match exponent + 63 {
        EXPONENT_MIN..=EXPONENT_MAX => Size::Finite { mantissa, exponent },
        ..EXPONENT_MIN => Size::Zero,
        _ => Size::Infinite,
    }
}

/// `number / 2^shift`, to the nearest, ties to even.
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

/// Shifts right; if a set bit is lost, the lowest bit stands for it.
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

    /// Sums as a Redis 7.0.15 answers INCRBYFLOAT.
    #[test]
    fn sums_are_those_of_80_bit_arithmetic() {
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
    fn text_that_is_no_number_is_refused() {
        for bad in
            ["", " 1", "1 ", "abc", "nan", "1e", "e5", ".", "-", "0x", "1..2", "--1", "1e5000", "1e-5000"]
        {
            assert_eq!(Float80::parse(bad.as_bytes()), None, "{bad:?}");
        }
        assert_eq!(Float80::parse(&[b'1'; TEXT_BYTES_MAX]), None);
    }

    #[test]
    fn infinity_is_read_but_never_a_sum() {
        assert!(!Float80::parse(b"-inf").unwrap().is_finite());
        assert!(Float80::parse(b"1e4932").unwrap().is_finite());
        assert_eq!(sum("1.1e4932", "1.1e4932"), None);
        assert_eq!(sum("inf", "1"), None);
        assert_eq!(sum("1", "-Infinity"), None);
    }
}
