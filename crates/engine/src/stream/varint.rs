//! Numbers in as few bytes as they need: seven bits a byte, low bits first, the top bit says "more".

/// What the greatest number takes.
pub(super) const BYTES_MAX: usize = 10;

/// The bytes of a number, and how many they are.
#[inline(never)]
pub(super) fn encode(mut value: u64) -> ([u8; BYTES_MAX], usize) {
    let (mut bytes, mut length) = ([0; BYTES_MAX], 0);
    while value >= 0x80 {
        bytes[length] = value as u8 | 0x80;
        value >>= 7;
        length += 1;
    }
    bytes[length] = value as u8;
    (bytes, length + 1)
}

/// Reads the number at `*at` and moves past it. `bytes` was written by [`encode`].
#[inline(always)]
pub(super) fn take(bytes: &[u8], at: &mut usize) -> u64 {
    let first = bytes[*at];
    *at += 1;
    if first < 0x80 {
        return u64::from(first);
    }
    let second = bytes[*at];
    let value = u64::from(first & 0x7f) | u64::from(second & 0x7f) << 7;
    *at += 1;
    if second < 0x80 {
        return value;
    }
    // By value: a place whose address is taken cannot live in a register.
    let (value, end) = take_long(bytes, *at, value);
    *at = end;
    value
}

#[inline(never)]
fn take_long(bytes: &[u8], mut at: usize, mut value: u64) -> (u64, usize) {
    let mut shift = 14;
    loop {
        let byte = bytes[at];
        at += 1;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return (value, at);
        }
        shift += 7;
    }
}

/// Small magnitudes become small numbers, whatever their sign.
pub(super) fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

/// The inverse of [`zigzag`].
pub(super) fn unzigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_back_as_they_went_in() {
        let mut bytes = Vec::new();
        let numbers = [0, 1, 127, 128, 16_383, 16_384, u64::from(u32::MAX), u64::MAX];
        for (encoded, length) in numbers.map(encode) {
            bytes.extend_from_slice(&encoded[..length]);
        }
        let mut at = 0;
        for number in numbers {
            assert_eq!(take(&bytes, &mut at), number);
        }
        assert_eq!(at, bytes.len());
        for number in [0, -1, 1, i64::MAX, i64::MIN] {
            assert_eq!(unzigzag(zigzag(number)), number);
        }
    }
}
