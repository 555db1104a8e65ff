//! Fast formatting of decimal numbers. Most numbers in a reply are lengths of a few digits.

/// The two digits of the numbers 00, 01 … 99.
pub(super) const PAIRS: [[u8; 2]; 100] = {
    let mut pairs = [[0; 2]; 100];
    let mut number = 0;
    while number < 100 {
        pairs[number] = [b'0' + (number / 10) as u8, b'0' + (number % 10) as u8];
        number += 1;
    }
    pairs
};

/// Maximum number of digits of a `u64`.
pub(super) const DIGITS_MAX: usize = 20;

#[inline]
pub(super) fn digit_count(number: u64) -> usize {
    match number {
        0..10 => 1,
        10..100 => 2,
        100..1000 => 3,
        _ => number.ilog10() as usize + 1,
    }
}

/// Returns the digits of a number below 10,000, with leading zeros.
#[inline(always)]
pub(super) fn four_digits(number: u64) -> [u8; 4] {
    let ([a, b], [c, d]) = (PAIRS[(number / 100 % 100) as usize], PAIRS[(number % 100) as usize]);
    [a, b, c, d]
}

/// Writes a number that has exactly `into.len()` digits.
#[inline]
pub(super) fn write_digits(mut number: u64, into: &mut [u8]) {
    let mut end = into.len();
    while end >= 2 {
        into[end - 2..end].copy_from_slice(&PAIRS[(number % 100) as usize]);
        number /= 100;
        end -= 2;
    }
    if end == 1 {
        into[0] = b'0' + (number % 10) as u8;
    }
}

#[inline]
pub(super) fn push_line(buffer: &mut Vec<u8>, number: u64) {
    if number < 10 {
        buffer.extend_from_slice(&[b'0' + number as u8, b'\r', b'\n']);
    } else if number < 100 {
        let [tens, ones] = PAIRS[number as usize];
        buffer.extend_from_slice(&[tens, ones, b'\r', b'\n']);
    } else if number < 1000 {
        let [_, hundreds, tens, ones] = four_digits(number);
        buffer.extend_from_slice(&[hundreds, tens, ones, b'\r', b'\n']);
    } else {
        push_long_line(buffer, number);
    }
}

#[inline(never)]
fn push_long_line(buffer: &mut Vec<u8>, number: u64) {
    buffer.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
    buffer.extend_from_slice(b"\r\n");
}

/// Appends `first`, a number and a line end: the header of a string, an array or a map.
#[inline(always)]
pub(super) fn push_header(buffer: &mut Vec<u8>, first: u8, number: usize) {
    if number < 10 {
        buffer.extend_from_slice(&[first, b'0' + number as u8, b'\r', b'\n']);
    } else {
        push_long_header(buffer, first, number);
    }
}

#[inline(never)]
fn push_long_header(buffer: &mut Vec<u8>, first: u8, number: usize) {
    if number < 100 {
        let [tens, ones] = PAIRS[number];
        buffer.extend_from_slice(&[first, tens, ones, b'\r', b'\n']);
    } else {
        buffer.push(first);
        push_long_line(buffer, number as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_those_of_the_standard_library() {
        let edges = (0..=19).flat_map(|power| {
            let ten = 10u64.pow(power);
            [ten - 1, ten, ten + 1, ten.saturating_mul(9)]
        });
        for number in edges.chain([u64::MAX, u64::MAX - 1, 12_345_678_901_234_567_890]) {
            let expected = number.to_string();
            let mut digits = vec![0; digit_count(number)];
            write_digits(number, &mut digits);
            assert_eq!(digits, expected.as_bytes());
            if number < 10_000 {
                assert_eq!(four_digits(number), format!("{number:04}").as_bytes());
            }
            let mut pushed = Vec::new();
            push_line(&mut pushed, number);
            assert_eq!(pushed, format!("{expected}\r\n").as_bytes());
            pushed.clear();
            push_header(&mut pushed, b'$', number as usize);
            assert_eq!(pushed, format!("${expected}\r\n").as_bytes());
        }
    }
}
