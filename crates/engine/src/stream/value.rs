//! Field values inside a block: text as it is, or a number in fewer bytes.
//!
//! A value that is the canonical decimal form of an integer is kept as that integer and written out
//! again on reading, byte for byte the same.

use super::{listpack, varint};
use crate::value::number::parse_integer;

/// A value of an entry, as it lies in its block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueRef<'a> {
    /// The bytes themselves.
    Bytes(&'a [u8]),
    /// A number; its decimal form is the value.
    Int(i64),
}

impl ValueRef<'_> {
    /// The value as bytes of its own.
    pub fn to_vec(self) -> Vec<u8> {
        match self {
            ValueRef::Bytes(bytes) => bytes.to_vec(),
            ValueRef::Int(number) => number.to_string().into_bytes(),
        }
    }
}

/// Numbers beyond this do not fit a tagged varint and stay text.
const PACKED_MAX: i64 = (1 << 61) - 1;

/// Appends a value: a tag of `length << 1` and the bytes, or of `number << 1 | 1`. Returns what a
/// listpack would take for it.
pub(super) fn put(out: &mut Vec<u8>, value: &[u8]) -> u64 {
    match parse_integer(value) {
        Some(number) if is_packed(number) => {
            varint::put(out, varint::zigzag(number) << 1 | 1);
            listpack::integer_bytes(number)
        }
        number => {
            varint::put(out, (value.len() as u64) << 1);
            out.extend_from_slice(value);
            number.map_or_else(|| listpack::bytes_of_length(value.len()), listpack::integer_bytes)
        }
    }
}

/// Whether a number is kept as one.
pub(super) fn is_packed(number: i64) -> bool {
    (-PACKED_MAX..=PACKED_MAX).contains(&number)
}

/// Reads the value at `*at` and moves past it.
#[inline]
pub(super) fn take<'a>(bytes: &'a [u8], at: &mut usize) -> ValueRef<'a> {
    let tag = varint::take(bytes, at);
    if tag & 1 == 1 {
        return ValueRef::Int(varint::unzigzag(tag >> 1));
    }
    let start = *at;
    *at += (tag >> 1) as usize;
    ValueRef::Bytes(&bytes[start..*at])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_canonical_forms_are_integers() {
        for (text, number) in [
            (&b"0"[..], Some(0)),
            (b"-1", Some(-1)),
            (b"9223372036854775807", Some(i64::MAX)),
            (b"-9223372036854775808", Some(i64::MIN)),
            (b"9223372036854775808", None),
            (b"00", None),
            (b"-0", None),
            (b"+1", None),
            (b"1 ", None),
            (b"", None),
            (b"-", None),
            (b"99999999999999999999", None),
        ] {
            assert_eq!(parse_integer(text), number, "{}", String::from_utf8_lossy(text));
        }
    }

    #[test]
    fn values_come_back_byte_for_byte() {
        let values =
            [&b""[..], b"text", b"42", b"-7", b"042", b"9223372036854775807", b"-9223372036854775808"];
        let mut bytes = Vec::new();
        values.iter().for_each(|value| {
            put(&mut bytes, value);
        });
        let mut at = 0;
        for value in values {
            assert_eq!(take(&bytes, &mut at).to_vec(), value);
        }
        assert_eq!(at, bytes.len());
    }
}
