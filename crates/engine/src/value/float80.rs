//! Floating-point arithmetic for INCRBYFLOAT and HINCRBYFLOAT, with the precision of Redis.
//!
//! Redis adds in the 80-bit format of x86 and prints 17 decimals, so that 0.1 plus 0.2 is 0.3. `rustc_apfloat` does the
//! same arithmetic on every machine.

use std::fmt;

use rustc_apfloat::ieee::X87DoubleExtended;
use rustc_apfloat::{Float, Round, Status};

/// Text of this length or longer is rejected.
const TEXT_BYTES_MAX: usize = 5 * 1024;
/// Number of decimals written, before trailing zeros are removed.
const DECIMALS: u32 = 17;
/// The exponent field of a number whose mantissa, taken as an integer, is its value.
const EXPONENT_OF_INTEGER: u32 = 16383 + 63;

/// A floating-point number with a 64-bit mantissa.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Float80(X87DoubleExtended);

impl Float80 {
    /// Zero.
    pub const ZERO: Float80 = Float80(X87DoubleExtended::ZERO);

    /// Parses a number as C does: decimal or hexadecimal, with an optional exponent, or `inf`. Rejects
    /// surrounding spaces, `nan`, and numbers out of range.
    pub fn parse(text: &[u8]) -> Option<Float80> {
        if text.len() >= TEXT_BYTES_MAX {
            return None;
        }
        let mut text = std::str::from_utf8(text).ok()?.to_ascii_lowercase();
        let digits = text.strip_prefix(['-', '+']).unwrap_or(&text);
        if matches!(digits, "inf" | "infinity") {
            let infinity = X87DoubleExtended::INFINITY;
            return Some(Float80(if text.starts_with('-') { -infinity } else { infinity }));
        }
        if !digits.starts_with(|first: char| first.is_ascii_digit() || first == '.') {
            return None;
        }
        let is_hexadecimal = digits.starts_with("0x");
        match digits.split_once(if is_hexadecimal { 'p' } else { 'e' }) {
            Some((_, exponent)) if !exponent.ends_with(|last: char| last.is_ascii_digit()) => return None,
            // C needs no exponent, `rustc_apfloat` does.
            None if is_hexadecimal => text.push_str("p0"),
            _ => {}
        }
        let parsed = X87DoubleExtended::from_str_r(&text, Round::NearestTiesToEven).ok()?;
        let number = parsed.value;
        let is_in_range = number.is_finite() && (!number.is_zero() || parsed.status == Status::OK);
        is_in_range.then_some(Float80(number))
    }

    /// Returns whether this is not an infinity.
    pub fn is_finite(self) -> bool {
        self.0.is_finite()
    }

    /// Returns the sum, or `None` if it is not finite.
    pub fn plus(self, other: Float80) -> Option<Float80> {
        let sum = (self.0 + other.0).value;
        sum.is_finite().then_some(Float80(sum))
    }
}

impl fmt::Display for Float80 {
    /// Writes plain decimal text with at most 17 decimals and no trailing zeros.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = self.0.abs();
        let bits = number.to_bits();
        let exponent = (bits >> 64) as u32;
        let digits = if !number.is_finite() {
            "inf".to_owned()
        } else if exponent >= EXPONENT_OF_INTEGER {
            whole(bits as u64, exponent - EXPONENT_OF_INTEGER)
        } else {
            decimals(bits as u64, EXPONENT_OF_INTEGER - exponent.max(1))
        };
        let sign = if self.0.is_negative() && digits != "0" { "-" } else { "" };
        write!(f, "{sign}{digits}")
    }
}

/// Returns the decimal text of `mantissa * 2^shift`. `rustc_apfloat` would take milliseconds for a large number.
fn whole(mantissa: u64, mut shift: u32) -> String {
    const GROUP: u64 = 1_000_000_000;
    // Groups of nine digits, the last ones first. A shift by 29 bits carries less than a group.
    let mut groups = vec![mantissa % GROUP, mantissa / GROUP % GROUP, mantissa / GROUP / GROUP];
    while shift > 0 {
        let (step, mut carry) = (shift.min(29), 0);
        for group in &mut groups {
            let shifted = (*group << step) + carry;
            (*group, carry) = (shifted % GROUP, shifted / GROUP);
        }
        groups.push(carry);
        shift -= step;
    }
    let text: String = groups.iter().rev().map(|group| format!("{group:09}")).collect();
    text.trim_start_matches('0').to_owned()
}

/// Returns the decimal text of `mantissa / 2^shift`.
fn decimals(mantissa: u64, shift: u32) -> String {
    const SCALE: u128 = 10u128.pow(DECIMALS);
    let exact = u128::from(mantissa) * SCALE;
    let whole = exact.checked_shr(shift).unwrap_or(0);
    let rest = exact - whole.checked_shl(shift).unwrap_or(0);
    // Rounds to nearest, ties to even. The number has at most 121 bits, so half of it is known to be less if the shift
    // is large.
    let half = 1u128.checked_shl(shift - 1).unwrap_or(u128::MAX);
    let scaled = whole + u128::from(rest > half || (rest == half && whole & 1 == 1));
    let text = format!("{}.{:017}", scaled / SCALE, scaled % SCALE);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
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
            (
                "1e300",
                "1",
                "100000000000000000000899732407955919387052394427329074793826008232126564659618093575584915\
                 208375049719035037250861427483590359255618467298391309626052074864628732713564184365329408\
                 425510760601678972665293237003055138294762099454029477278188962060617926761162709741065056\
                 7187386105690089424915104006144",
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
