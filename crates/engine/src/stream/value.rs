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

/// Text of at most this many bytes is short.
pub const SHORT_TEXT: usize = 16;

/// A value for whoever copies it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoredValue<'a> {
    /// The first so many of these bytes; the rest is anything.
    Short(&'a [u8; SHORT_TEXT], usize),
    /// The bytes themselves: there are many, or they lie at the very end of the block.
    Bytes(&'a [u8]),
    /// A number; its decimal form is the value.
    Int(i64),
}

/// Numbers beyond this do not fit a tagged varint and stay text.
const PACKED_MAX: i64 = (1 << 61) - 1;

/// Appends a value: a tag of `length << 1` and the bytes, or of `number << 1 | 1`. Returns what a
/// listpack would take for it.
#[inline]
pub(super) fn put(out: &mut Vec<u8>, value: &[u8]) -> u64 {
    // Most text shows by its first byte that it is no number.
    if matches!(value.first(), Some(b'0'..=b'9' | b'-')) {
        return put_numeric(out, value);
    }
    put_bytes(out, value);
    listpack::bytes_of_length(value.len())
}

/// The same for a value that may be a number.
#[inline(never)]
fn put_numeric(out: &mut Vec<u8>, value: &[u8]) -> u64 {
    match parse_integer(value) {
        Some(number) if is_packed(number) => {
            varint::put(out, varint::zigzag(number) << 1 | 1);
            listpack::integer_bytes(number)
        }
        number => {
            put_bytes(out, value);
            number.map_or_else(|| listpack::bytes_of_length(value.len()), listpack::integer_bytes)
        }
    }
}

#[inline]
fn put_bytes(out: &mut Vec<u8>, value: &[u8]) {
    varint::put(out, (value.len() as u64) << 1);
    out.extend_from_slice(value);
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

/// The same, for whoever copies it.
#[inline(always)]
pub(super) fn take_stored<'a>(bytes: &'a [u8], at: &mut usize) -> StoredValue<'a> {
    let tag = varint::take(bytes, at);
    if tag & 1 == 1 {
        return StoredValue::Int(varint::unzigzag(tag >> 1));
    }
    let (start, length) = (*at, (tag >> 1) as usize);
    *at += length;
    match bytes.get(start..).and_then(<[u8]>::first_chunk) {
        Some(window) if length <= SHORT_TEXT => StoredValue::Short(window, length),
        _ => StoredValue::Bytes(&bytes[start..*at]),
    }
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
        let values = [
            &b""[..],
            b"of sixteen bytes",
            b"of seventeen byte",
            b"text",
            b"42",
            b"-7",
            b"042",
            b"9223372036854775807",
            b"-9223372036854775808",
        ];
        let mut bytes = Vec::new();
        values.iter().for_each(|value| {
            put(&mut bytes, value);
        });
        let mut at = 0;
        for value in values {
            let mut stored_at = at;
            assert_eq!(take(&bytes, &mut at).to_vec(), value);
            let stored = match take_stored(&bytes, &mut stored_at) {
                StoredValue::Short(window, length) => window[..length].to_vec(),
                StoredValue::Bytes(bytes) => bytes.to_vec(),
                StoredValue::Int(number) => number.to_string().into_bytes(),
            };
            assert_eq!((stored, stored_at), (value.to_vec(), at));
        }
        assert_eq!(at, bytes.len());
    }
}
