//! A name for an entry made of its fields: the same fields, in whatever order, have the same name.

use xxhash_rust::xxh3::Xxh3;

/// 128 bits that tell the content of an entry: name, value, name, value…
pub fn fingerprint(fields: &[&[u8]]) -> [u8; 16] {
    let (mut low_sum, mut high_sum, mut low_xor, mut high_xor) = (0u64, 0u64, 0u64, 0u64);
    for pair in fields.chunks_exact(2) {
        let mut hash = Xxh3::new();
        hash.update(pair[0]);
        // The length stands between them, or ("ab", "c") would be ("a", "bc").
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
    fn order_does_not_matter_and_everything_else_does() {
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
    fn one_pair_is_its_hash_mixed() {
        let hash = xxhash_rust::xxh3::xxh3_128(b"ab\x02\0\0\0\0\0\0\0c");
        let (low, high) = (hash as u64, (hash >> 64) as u64);
        let mixed = (low ^ high.rotate_left(1), high ^ low.rotate_left(1));
        let bytes = fingerprint(&[b"ab", b"c"]);
        let found = u128::from_le_bytes(bytes);
        assert_eq!((found as u64, (found >> 64) as u64), mixed);
    }
}
