//! Field values inside a block: text as it is, or a number in fewer bytes.
//!
//! A value that is the canonical decimal form of an integer is kept as that integer and written out
//! again on reading, byte for byte the same.

use super::listpack;
use crate::bytes::number::parse_integer;
use crate::bytes::{Draft, varint};

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

/// Writes a value: a tag of `length << 1` and the bytes, or of `number << 1 | 1`. Returns what a
/// listpack would take for it.
#[inline(always)]
pub(super) fn put(out: &mut Draft<'_>, value: &[u8]) -> u64 {
    // Most text shows by its first byte that it is no number.
    let number = match value.first() {
        Some(b'-'..=b'9') => parse_integer(value),
        _ => None,
    };
    let Some(number) = number else {
        out.number_and_text((value.len() as u64) << 1, value);
        return listpack::bytes_of_length(value.len());
    };
    match is_packed(number) {
        true => out.number(varint::zigzag(number) << 1 | 1),
        false => out.number_and_text((value.len() as u64) << 1, value),
    }
    listpack::integer_bytes(number)
}

/// Whether a number is kept as one.
#[inline]
pub fn is_packed(number: i64) -> bool {
    (-PACKED_MAX..=PACKED_MAX).contains(&number)
}

/// Reads the value at `*at` and moves past it.
#[inline(always)]
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
    if let Some((&tag, rest)) = bytes.get(*at..).and_then(<[u8]>::split_first)
        && tag & 1 == 0
        && usize::from(tag >> 1) <= SHORT_TEXT
        && let Some(window) = rest.first_chunk()
    {
        let length = usize::from(tag >> 1);
        *at += 1 + length;
        return StoredValue::Short(window, length);
    }
    match take(bytes, at) {
        ValueRef::Bytes(text) => StoredValue::Bytes(text),
        ValueRef::Int(number) => StoredValue::Int(number),
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
        let mut draft = Draft::new(&mut bytes);
        values.iter().for_each(|value| {
            put(&mut draft, value);
        });
        draft.finish();
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
