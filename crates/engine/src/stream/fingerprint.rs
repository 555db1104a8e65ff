//! A fingerprint of the fields of an entry. The order of the fields does not matter.

use xxhash_rust::xxh3::Xxh3;

/// Returns a 128-bit fingerprint of fields: name, value, name, value…
pub fn fingerprint(fields: &[&[u8]]) -> [u8; 16] {
    let (mut low_sum, mut high_sum, mut low_xor, mut high_xor) = (0u64, 0u64, 0u64, 0u64);
    for pair in fields.chunks_exact(2) {
        let mut hash = Xxh3::new();
        hash.update(pair[0]);
        // The length separates name and value; otherwise ("ab", "c") would equal ("a", "bc").
        hash.update(&(pair[0].len() as u64).to_le_bytes());
        hash.update(pair[1]);
        let hash = hash.digest128();
        let (low, high) = (hash as u64, (hash >> 64) as u64);
        (low_sum, high_sum) = (low_sum.wrapping_add(low), high_sum.wrapping_add(high));
        (low_xor, high_xor) = (low_xor ^ low, high_xor ^ high);
    }
    let low = low_sum ^ high_xor.rotate_left(1);
    let high = high_sum ^ low_xor.rotate_left(1);
    (u128::from(high) << 64 | u128::from(low)).to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fingerprint_depends_on_everything_but_field_order() {
        let one = fingerprint(&[b"a", b"1", b"b", b"2"]);
        assert_eq!(one, fingerprint(&[b"b", b"2", b"a", b"1"]));
        for other in [
            fingerprint(&[b"a", b"2", b"b", b"1"]),
            fingerprint(&[b"a", b"1"]),
            fingerprint(&[b"a", b"1", b"b", b"2", b"b", b"2"]),
            fingerprint(&[b"a1", b"", b"b", b"2"]),
            fingerprint(&[b"a", b"1b", b"", b"2"]),
        ] {
            assert_ne!(one, other);
        }
    }

    #[test]
    fn fingerprint_of_one_field_is_its_mixed_hash() {
        let hash = xxhash_rust::xxh3::xxh3_128(b"ab\x02\0\0\0\0\0\0\0c");
        let (low, high) = (hash as u64, (hash >> 64) as u64);
        let mixed = (low ^ high.rotate_left(1), high ^ low.rotate_left(1));
        let bytes = fingerprint(&[b"ab", b"c"]);
        let found = u128::from_le_bytes(bytes);
        assert_eq!((found as u64, (found >> 64) as u64), mixed);
    }
}
