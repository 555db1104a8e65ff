//! Unsigned integers of any size, with the few operations that exact decimal conversion needs.

/// A number in base 2^32, least significant digit first, without leading zeros.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct BigUint {
    digits: Vec<u32>,
}

/// The greatest power of ten that fits into one digit, and its exponent.
const TEN_POWER: u32 = 1_000_000_000;
const TEN_POWER_EXPONENT: u32 = 9;

impl BigUint {
    pub(super) fn is_zero(&self) -> bool {
        self.digits.is_empty()
    }

    pub(super) fn bits(&self) -> u32 {
        match self.digits.last() {
            Some(top) => self.digits.len() as u32 * u32::BITS - top.leading_zeros(),
            None => 0,
        }
    }

    /// Computes `self * factor + addend` in place.
    pub(super) fn multiply_add(&mut self, factor: u32, addend: u32) {
        let mut carry = u64::from(addend);
        for digit in &mut self.digits {
            carry += u64::from(*digit) * u64::from(factor);
            *digit = carry as u32;
            carry >>= u32::BITS;
        }
        if carry > 0 {
            self.digits.push(carry as u32);
        }
    }

    /// Divides in place and returns the remainder.
    pub(super) fn divide(&mut self, divisor: u32) -> u32 {
        let mut remainder = 0u64;
        for digit in self.digits.iter_mut().rev() {
            let dividend = remainder << u32::BITS | u64::from(*digit);
            *digit = (dividend / u64::from(divisor)) as u32;
            remainder = dividend % u64::from(divisor);
        }
        self.trim();
        remainder as u32
    }

    pub(super) fn multiply_by_ten_to(&mut self, exponent: u32) {
        for _ in 0..exponent / TEN_POWER_EXPONENT {
            self.multiply_add(TEN_POWER, 0);
        }
        self.multiply_add(10u32.pow(exponent % TEN_POWER_EXPONENT), 0);
    }

    /// Divides in place and returns whether there was a remainder.
    pub(super) fn divide_by_ten_to(&mut self, exponent: u32) -> bool {
        let mut inexact = false;
        for _ in 0..exponent / TEN_POWER_EXPONENT {
            inexact |= self.divide(TEN_POWER) != 0;
        }
        inexact | (self.divide(10u32.pow(exponent % TEN_POWER_EXPONENT)) != 0)
    }

    pub(super) fn shift_left(&mut self, bits: u32) {
        if self.is_zero() {
            return;
        }
        self.multiply_add(1 << (bits % u32::BITS), 0);
        self.digits.splice(0..0, std::iter::repeat_n(0, (bits / u32::BITS) as usize));
    }

    /// Returns the 64 bits from bit `from` on.
    pub(super) fn bits_from(&self, from: u32) -> u64 {
        let digit = |at: usize| u128::from(self.digits.get(at).copied().unwrap_or(0));
        let at = (from / u32::BITS) as usize;
        ((digit(at + 2) << 64 | digit(at + 1) << 32 | digit(at)) >> (from % u32::BITS)) as u64
    }

    /// Returns whether any bit below bit `end` is set.
    pub(super) fn any_bit_below(&self, end: u32) -> bool {
        let whole = ((end / u32::BITS) as usize).min(self.digits.len());
        let part = self.digits.get(whole).map_or(0, |digit| digit & ((1 << (end % u32::BITS)) - 1));
        part != 0 || self.digits[..whole].iter().any(|&digit| digit != 0)
    }

    /// Returns the decimal text.
    pub(super) fn into_decimal(mut self) -> String {
        let mut groups = Vec::new();
        while !self.is_zero() {
            groups.push(self.divide(TEN_POWER));
        }
        let mut text = groups.pop().unwrap_or(0).to_string();
        groups.iter().rev().for_each(|group| text.push_str(&format!("{group:09}")));
        text
    }

    fn trim(&mut self) {
        while self.digits.last() == Some(&0) {
            self.digits.pop();
        }
    }
}

impl From<u64> for BigUint {
    fn from(number: u64) -> Self {
        let mut number = BigUint { digits: vec![number as u32, (number >> u32::BITS) as u32] };
        number.trim();
        number
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn multiplying_and_dividing_by_powers_of_ten_are_inverse() {
        let mut number = BigUint::from(12_345);
        number.multiply_by_ten_to(40);
        assert_eq!(number.clone().into_decimal(), format!("12345{}", "0".repeat(40)));
        assert!(!number.divide_by_ten_to(40));
        assert!(number.divide_by_ten_to(1));
        assert_eq!(number, BigUint::from(1234));
    }

    #[test]
    fn shift_left_moves_all_bits() {
        let mut number = BigUint::from(u64::MAX);
        number.shift_left(77);
        assert_eq!(number.bits(), 141);
        assert_eq!(number.bits_from(77), u64::MAX);
        assert_eq!(number.bits_from(76), u64::MAX << 1);
        assert!(!number.any_bit_below(77) && number.any_bit_below(78));
    }
}
