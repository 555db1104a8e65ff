//! Entries that producers add to a stream one after the other: of what is like the entry before, nothing is written again.
//!
//! ```text
//! entry := 33  db:number  key:text  id  count:number  (name:text value:text)…
//! next  := 56  length:number  value…    the key, the names, and the id that follows: those of the entry before it in the record
//! value := number of (length << 1), that many bytes | number of (signed << 1 | 1)
//! ```
//!
//! What `next` has behind its tag is what the stream's block has of the entry, byte for byte: it is copied, and the block knows
//! whether the names are the same.

use millstream_engine::StreamId;
use millstream_engine::bytes::number::{IntegerText, parse_integer};
use millstream_engine::bytes::{Draft, short, varint};
use millstream_engine::stream::{Laid, is_packed};

use super::effect::tag;
use super::wire::{CodecError, Reader};

/// The entry that was written last: where its key is in the record, and the block that has it as its values alone.
pub(crate) struct LastEntry {
    db: u32,
    key: (usize, usize),
    id: StreamId,
    block: StreamId,
}

/// Appends an entry, all of it or what is not like the last one in `out`; it is the last then, if the next may be like it.
#[inline]
pub(crate) fn put_entry(
    last: &mut Option<LastEntry>,
    out: &mut Vec<u8>,
    (db, key): (u32, &[u8]),
    (id, fields): (StreamId, &[&[u8]]),
    laid: Option<Laid<'_>>,
) {
    if let (Some(last), Some(laid)) = (&mut *last, laid)
        && last.block == laid.block
        && last.id.next() == Some(id)
        && last.db == db
        && short::equal(&out[last.key.0..last.key.1], key)
    {
        last.id = id;
        out.reserve(1 + laid.values.len());
        out.push(tag::APPEND_NEXT);
        out.extend_from_slice(laid.values);
        return;
    }
    let key = put_whole(out, (db, key), id, fields);
    *last = laid.map(|laid| LastEntry { db, key, id, block: laid.block });
}

/// Appends all of an entry, and says where its key is.
#[inline(never)]
fn put_whole(out: &mut Vec<u8>, (db, key): (u32, &[u8]), id: StreamId, fields: &[&[u8]]) -> (usize, usize) {
    let mut draft = Draft::new(out);
    draft.byte(tag::APPEND);
    draft.number(u64::from(db));
    draft.text(key);
    let key_end = draft.position();
    draft.number(id.ms);
    draft.number(id.seq);
    draft.number(fields.len() as u64 / 2);
    fields.iter().for_each(|text| draft.text(text));
    draft.finish();
    (key_end - key.len(), key_end)
}

/// A value of `next`.
pub(super) enum NextValue<'p> {
    Text(&'p [u8]),
    Number(IntegerText),
}

impl<'p> NextValue<'p> {
    pub(super) fn read(reader: &mut Reader<'p>) -> Result<NextValue<'p>, CodecError> {
        let head = reader.number()?;
        if head & 1 == 1 {
            let number = varint::unzigzag(head >> 1);
            return match is_packed(number) {
                true => Ok(NextValue::Number(IntegerText::new(number))),
                false => Err(reader.error("a number that would be text")),
            };
        }
        let text = reader.bytes(head >> 1)?;
        match parse_integer(text) {
            Some(number) if is_packed(number) => Err(reader.error("text that would be a number")),
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
