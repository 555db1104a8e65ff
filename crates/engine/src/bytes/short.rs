//! Short texts: most names and values take fewer bytes than a call to compare or copy them takes instructions.

/// The longest text that is short.
pub(crate) const BYTES_MAX: usize = 16;

/// The first and the last `N` bytes of a text that has as many, and at most twice as many: together all of it.
#[inline(always)]
pub(crate) fn ends<const N: usize>(text: &[u8]) -> (&[u8; N], &[u8; N]) {
    match (text.first_chunk(), text.last_chunk()) {
        (Some(first), Some(last)) => (first, last),
        _ => unreachable!("a text of {} bytes has no {N}", text.len()),
    }
}

/// Whether two texts are the same.
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
    fn texts_are_equal_if_every_byte_is() {
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
