//! Comparing and copying short texts without a function call. For most names and values the call would cost
//! more than the work.

pub(crate) const BYTES_MAX: usize = 16;

/// Returns the first and the last `N` bytes of a text of `N` to `2 * N` bytes. Together they cover the whole
/// text.
#[inline(always)]
pub(crate) fn ends<const N: usize>(text: &[u8]) -> (&[u8; N], &[u8; N]) {
    match (text.first_chunk(), text.last_chunk()) {
        (Some(first), Some(last)) => (first, last),
        _ => unreachable!("a text of {} bytes has fewer than {N}", text.len()),
    }
}

/// Returns whether two texts are equal.
#[inline(always)]
pub fn equal(a: &[u8], b: &[u8]) -> bool {
    if a.len() != b.len() {
        return false;
    }
    match a.len() {
        4..8 => ends::<4>(a) == ends::<4>(b),
        8..=BYTES_MAX => ends::<8>(a) == ends::<8>(b),
        _ => a == b,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_compares_every_byte() {
        let text: Vec<u8> = (1..=40).collect();
        for length in 0..=text.len() {
            let mut other = text[..length].to_vec();
            assert!(equal(&text[..length], &other));
            assert!(length == 0 || !equal(&text[..length], &text[..length - 1]));
            for at in 0..length {
                other[at] ^= 1;
                assert!(!equal(&text[..length], &other), "byte {at} of {length}");
                other[at] ^= 1;
            }
        }
    }
}
