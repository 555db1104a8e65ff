//! Field values in a block: text, or an integer in fewer bytes.
//!
//! A value that is the canonical decimal text of an integer is stored as that integer, unless the integer is
//! too large (`PACKED_MAX`). Reading the value gives the same text, byte for byte.

use super::listpack;
use crate::bytes::number::parse_integer;
use crate::bytes::{Appender, varint};

/// A value of an entry, as stored in its block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueRef<'a> {
    /// The bytes themselves.
    Bytes(&'a [u8]),
    /// An integer. Its decimal text is the value.
    Int(i64),
}

impl ValueRef<'_> {
    /// Returns the value as owned bytes.
    pub fn to_vec(self) -> Vec<u8> {
        match self {
            ValueRef::Bytes(bytes) => bytes.to_vec(),
            ValueRef::Int(number) => number.to_string().into_bytes(),
        }
    }
}

/// Maximum length of a short text in bytes.
pub const SHORT_TEXT: usize = 16;

/// A value of an entry, for copying.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoredValue<'a> {
    /// A short text: the array starts with its bytes, as many as the number states. The other bytes are
    /// arbitrary.
    Short(&'a [u8; SHORT_TEXT], usize),
    /// A text that is long or at the very end of the block.
    Bytes(&'a [u8]),
    /// An integer. Its decimal text is the value.
    Int(i64),
}

/// Integers with a greater magnitude do not fit into a tagged varint and are stored as text.
const PACKED_MAX: i64 = (1 << 61) - 1;

/// Writes a value: `length << 1` and the bytes, or `zigzag(integer) << 1 | 1`. Returns the bytes that a
/// listpack would take for it.
#[inline(always)]
pub(super) fn put(out: &mut Appender<'_>, value: &[u8]) -> u64 {
    // The first byte of most text shows that it is not an integer.
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

/// Returns whether an integer is stored as such, and not as text.
#[inline]
pub fn is_packed(number: i64) -> bool {
    (-PACKED_MAX..=PACKED_MAX).contains(&number)
}

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

/// Reads the value at `*at` for copying and moves past it.
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
    fn parse_integer_accepts_only_canonical_values() {
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
    fn reading_a_value_returns_the_written_bytes() {
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
        let mut appender = Appender::new(&mut bytes);
        values.iter().for_each(|value| {
            put(&mut appender, value);
        });
        appender.finish();
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
