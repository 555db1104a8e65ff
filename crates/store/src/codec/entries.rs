//! Encodes entries of a stream. An entry that resembles the one before it is encoded as its values only.
//!
//! ```text
//! entry := 33  db:number  key:text  id  count:number  (name:text value:text)…
//! next  := 56  length:number  value…    same key and field names as the entry before it in the record; the next id
//! value := number of (length << 1), that many bytes | number of (signed << 1 | 1)
//! ```
//!
//! The bytes of `next` after its tag are the same as in the stream's block, so they are copied from there. The block
//! also knows whether the field names are the same.

use millstream_engine::StreamId;
use millstream_engine::bytes::number::{IntegerText, parse_integer};
use millstream_engine::bytes::{Appender, short, varint};
use millstream_engine::stream::{EncodedValues, is_packed};

use super::effect::tag;
use super::wire::{ByteReader, CodecError};

/// The entry that was encoded last: the range of its key in the record, and the block that contains it.
pub(crate) struct LastEntry {
    db: u32,
    key: (usize, usize),
    id: StreamId,
    block: StreamId,
}

/// Appends an entry in full, or as values only if it resembles `last`. Updates `last`.
#[inline]
pub(crate) fn put_entry(
    last: &mut Option<LastEntry>,
    out: &mut Vec<u8>,
    (db, key): (u32, &[u8]),
    (id, fields): (StreamId, &[&[u8]]),
    encoded: Option<EncodedValues<'_>>,
) {
    if let (Some(last), Some(encoded)) = (&mut *last, encoded)
        && last.block == encoded.block
        && last.id.next() == Some(id)
        && last.db == db
        && short::equal(&out[last.key.0..last.key.1], key)
    {
        last.id = id;
        out.reserve(1 + encoded.values.len());
        out.push(tag::APPEND_NEXT);
        out.extend_from_slice(encoded.values);
        return;
    }
    let key = put_whole(out, (db, key), id, fields);
    *last = encoded.map(|encoded| LastEntry { db, key, id, block: encoded.block });
}

/// Appends an entry in full. Returns the range of its key in `out`.
#[inline(never)]
fn put_whole(out: &mut Vec<u8>, (db, key): (u32, &[u8]), id: StreamId, fields: &[&[u8]]) -> (usize, usize) {
    let mut appender = Appender::new(out);
    appender.byte(tag::APPEND);
    appender.number(u64::from(db));
    appender.text(key);
    let key_end = appender.position();
    appender.number(id.ms);
    appender.number(id.seq);
    appender.number(fields.len() as u64 / 2);
    fields.iter().for_each(|text| appender.text(text));
    appender.finish();
    (key_end - key.len(), key_end)
}

pub(super) enum NextValue<'p> {
    Text(&'p [u8]),
    Number(IntegerText),
}

impl<'p> NextValue<'p> {
    pub(super) fn read(reader: &mut ByteReader<'p>) -> Result<NextValue<'p>, CodecError> {
        let head = reader.number()?;
        if head & 1 == 1 {
            let number = varint::unzigzag(head >> 1);
            return match is_packed(number) {
                true => Ok(NextValue::Number(IntegerText::new(number))),
                false => Err(reader.error("a number that must be encoded as text")),
            };
        }
        let text = reader.bytes(head >> 1)?;
        match parse_integer(text) {
            Some(number) if is_packed(number) => Err(reader.error("a text that must be encoded as a number")),
            _ => Ok(NextValue::Text(text)),
        }
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        match self {
            NextValue::Text(text) => text,
            NextValue::Number(number) => number.as_bytes(),
        }
    }
}
