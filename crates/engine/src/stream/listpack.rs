//! Computes how many bytes Redis would need for a node.
//!
//! A node of Redis is a listpack. Redis starts a new node when the size in bytes or the number of entries
//! reaches a limit. Approximate trimming removes whole nodes, so users can see where nodes end. Our blocks
//! end where the nodes of Redis would end, and for that we count the bytes of a listpack. Nothing is stored
//! in this format.
//!
//! ```text
//! node  := header(6) count deleted field-count name… 0 entry… end(1)
//! entry := flags ms-delta seq-delta [field-count] [name] value… element-count
//! ```

use crate::bytes::number::parse_integer;

/// Bytes of an empty listpack: header and end mark.
const EMPTY_LISTPACK_BYTES: u64 = 7;

/// Returns the bytes of a node before its first entry, without its two counters.
pub(super) fn head_bytes(fields: &[&[u8]]) -> u64 {
    let names: u64 = fields.iter().step_by(2).map(|name| text_bytes(name)).sum();
    EMPTY_LISTPACK_BYTES + integer_bytes(fields.len() as i64 / 2) + names + integer_bytes(0)
}

pub(super) fn counter_bytes(live: u64, deleted: u64) -> u64 {
    integer_bytes(live as i64) + integer_bytes(deleted as i64)
}

/// Returns the bytes of an entry without its names and values. Its id differs by `ms_delta` and `seq_delta`
/// from the first id of the node.
#[inline(always)]
pub(super) fn entry_overhead_bytes(ms_delta: i64, seq_delta: i64, pairs: usize, same_names: bool) -> u64 {
    let pairs = pairs as i64;
    let counts = match same_names {
        true => integer_bytes(pairs + 3),
        false => integer_bytes(pairs) + integer_bytes(2 * pairs + 4),
    };
    let flags = 2;
    flags + integer_bytes(ms_delta) + integer_bytes(seq_delta) + counts
}

pub(super) fn text_bytes(text: &[u8]) -> u64 {
    parse_integer(text).map_or_else(|| bytes_of_length(text.len()), integer_bytes)
}

/// Returns the bytes of a text that is not an integer.
#[inline]
pub(super) fn bytes_of_length(len: usize) -> u64 {
    let len = len as u64;
    with_back_length(match len {
        0..64 => 1 + len,
        64..4096 => 2 + len,
        _ => 5 + len,
    })
}

/// Returns the bytes of an integer, including its length.
#[inline]
pub(super) fn integer_bytes(value: i64) -> u64 {
    match value {
        0..=127 => 2,
        -4096..=4095 => 3,
        -0x8000..=0x7fff => 4,
        -0x80_0000..=0x7f_ffff => 5,
        -0x8000_0000..=0x7fff_ffff => 6,
        _ => 10,
    }
}

/// Adds the bytes of an element's own length at its end, which allows reading a listpack backwards.
#[inline]
fn with_back_length(len: u64) -> u64 {
    len + match len {
        0..=127 => 1,
        128..=16_382 => 2,
        16_383..=2_097_150 => 3,
        2_097_151..=268_435_454 => 4,
        _ => 5,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_match_listpack_elements() {
        assert_eq!(integer_bytes(127), 2);
        assert_eq!(integer_bytes(128), 3);
        assert_eq!(integer_bytes(-1), 3);
        assert_eq!(integer_bytes(1 << 40), 10);
        assert_eq!(text_bytes(b""), 2);
        assert_eq!(text_bytes(b"42"), 2);
        assert_eq!(text_bytes(b"042"), 5);
        assert_eq!(text_bytes(&[b'x'; 63]), 65);
        assert_eq!(text_bytes(&[b'x'; 64]), 67);
        assert_eq!(text_bytes(&[b'x'; 126]), 130);
    }
}
