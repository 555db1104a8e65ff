//! Variable-length numbers: seven bits per byte, low bits first. A set top bit means that another byte
//! follows.

/// Maximum number of bytes of an encoded number.
pub const BYTES_MAX: usize = 10;

/// Number of bits that the first eight bytes hold.
const LOW_BITS: u32 = 56;
const LOW_MASK: u64 = (1 << LOW_BITS) - 1;
/// The top bit of each of eight bytes: set if another byte follows.
pub const MORE: u64 = 0x8080_8080_8080_8080;

/// Encodes a number. Returns a buffer and how many of its bytes are used.
#[inline(never)]
pub fn encode(value: u64) -> ([u8; BYTES_MAX], usize) {
    let mut bytes = [0; BYTES_MAX];
    let (low, rest) = (spread(value & LOW_MASK), value >> LOW_BITS);
    let (low, length) = match rest {
        0 => {
            // The highest set bit decides which byte is the last.
            let last = (63 - (value | 1).leading_zeros()) / 7;
            (low | MORE & !(u64::MAX << (8 * last)), last as usize + 1)
        }
        _ => (low | MORE, 9 + usize::from(rest >= 0x80)),
    };
    bytes[..8].copy_from_slice(&low.to_le_bytes());
    bytes[8] = rest as u8;
    bytes[9] = (rest >> 7) as u8;
    (bytes, length)
}

/// Spreads eight groups of seven bits over eight bytes: first moves the halves apart, then the quarters, then
/// the eighths.
#[inline]
fn spread(value: u64) -> u64 {
    let halves = (value & 0x0fff_ffff) | ((value & 0x00ff_ffff_f000_0000) << 4);
    let quarters = (halves & 0x0000_3fff_0000_3fff) | ((halves & 0x0fff_c000_0fff_c000) << 2);
    (quarters & 0x007f_007f_007f_007f) | ((quarters & 0x3f80_3f80_3f80_3f80) << 1)
}

/// Reads the number at `*at` and moves past it. `bytes` was written by [`encode`].
#[inline(always)]
pub(crate) fn take(bytes: &[u8], at: &mut usize) -> u64 {
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
    // Passed by value: a variable whose address is taken cannot be kept in a register.
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

/// Maps signed to unsigned numbers so that small magnitudes of either sign become small numbers.
pub fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

/// The inverse of [`zigzag`].
pub fn unzigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decoding_inverts_encoding() {
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
