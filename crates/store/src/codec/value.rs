//! Encodes values: a kind, then the content in the layout that it has in memory.
//!
//! ```text
//! value := 1 text | 10 stream | 3 list | (4 | 5) hash | (6 | 7 | 8) set
//! list  := count:number  text…
//! hash  := count:number  (text text)…       packed | a table
//! set   := count:number  text…              sorted integers | packed | a table
//! ```

use millstream_engine::Value;
use millstream_engine::value::{Hash, Hashing, Layout, List, Set, Text};

use super::stream::{StreamKind, put_stream, read_stream};
use super::wire::{ByteReader, CodecError, put_number, put_text};

const STRING: u8 = 1;
/// Only in snapshots of version 1.
const STREAM_PLAIN: u8 = 2;
const LIST: u8 = 3;
const HASH_PACKED: u8 = 4;
const HASH_TABLE: u8 = 5;
const SET_INTEGERS: u8 = 6;
const SET_PACKED: u8 = 7;
const SET_TABLE: u8 = 8;
/// Only in snapshots of version 1.
const STREAM_FULL: u8 = 9;
const STREAM: u8 = 10;

pub(crate) fn put_value(out: &mut Vec<u8>, value: &Value) {
    put_value_in_parts(out, value, &mut |_| {});
}

/// Like [`put_value`], but calls `pause` after each part of a stream. `pause` can take the output so far.
pub(crate) fn put_value_in_parts(out: &mut Vec<u8>, value: &Value, pause: &mut dyn FnMut(&mut Vec<u8>)) {
    out.push(kind_of(value));
    match value {
        Value::String(text) => put_text(out, text.as_bytes()),
        Value::Stream(stream) => put_stream(out, stream, pause),
        Value::List(list) => {
            put_number(out, list.len() as u64);
            list.range(0..list.len()).for_each(|value| put_text(out, value));
        }
        Value::Hash(hash) => {
            put_number(out, hash.len() as u64);
            hash.visit(|field, value| {
                put_text(out, field);
                put_text(out, value);
            });
        }
        Value::Set(set) => {
            put_number(out, set.len() as u64);
            set.visit(|member| put_text(out, member));
        }
    }
}

fn kind_of(value: &Value) -> u8 {
    match value {
        Value::String(_) => STRING,
        Value::Stream(_) => STREAM,
        Value::List(_) => LIST,
        Value::Hash(hash) => match hash.layout() {
            Layout::Table => HASH_TABLE,
            _ => HASH_PACKED,
        },
        Value::Set(set) => match set.layout() {
            Layout::Table => SET_TABLE,
            Layout::Packed => SET_PACKED,
            _ => SET_INTEGERS,
        },
    }
}

/// Decodes a value from all of these bytes. Its tables use this hash function.
pub(crate) fn take_value(bytes: &[u8], hashing: &Hashing) -> Result<Value, CodecError> {
    let mut reader = ByteReader::new(bytes);
    let value = read_value(&mut reader, hashing)?;
    reader.finish()?;
    Ok(value)
}

pub(crate) fn read_value(reader: &mut ByteReader<'_>, hashing: &Hashing) -> Result<Value, CodecError> {
    Ok(match reader.byte()? {
        STRING => Value::String(Text::new(reader.text()?)),
        STREAM => Value::Stream(Box::new(read_stream(reader, StreamKind::WithSettings)?)),
        STREAM_PLAIN => Value::Stream(Box::new(read_stream(reader, StreamKind::Plain)?)),
        STREAM_FULL => Value::Stream(Box::new(read_stream(reader, StreamKind::Full)?)),
        LIST => Value::List(Box::new(read_list(reader)?)),
        HASH_PACKED => Value::Hash(Box::new(read_hash(reader, Layout::Packed, hashing)?)),
        HASH_TABLE => Value::Hash(Box::new(read_hash(reader, Layout::Table, hashing)?)),
        SET_INTEGERS => Value::Set(Box::new(read_set(reader, Layout::SortedIntegers, hashing)?)),
        SET_PACKED => Value::Set(Box::new(read_set(reader, Layout::Packed, hashing)?)),
        SET_TABLE => Value::Set(Box::new(read_set(reader, Layout::Table, hashing)?)),
        _ => return Err(reader.error("unknown kind of value; a newer version may have written it")),
    })
}

fn read_list(reader: &mut ByteReader<'_>) -> Result<List, CodecError> {
    let count = item_count(reader, 1)?;
    let list = List::of((0..count).map_while(|_| reader.text().ok()));
    check_items(reader, list.len() == count)?;
    Ok(list)
}

fn read_hash(reader: &mut ByteReader<'_>, layout: Layout, hashing: &Hashing) -> Result<Hash, CodecError> {
    let count = item_count(reader, 2)?;
    let pairs = (0..count).map_while(|_| Some((reader.text().ok()?, reader.text().ok()?)));
    let hash = Hash::with_layout(layout, count, pairs, hashing);
    check_items(reader, hash.len() == count && hash.layout() == layout)?;
    Ok(hash)
}

fn read_set(reader: &mut ByteReader<'_>, layout: Layout, hashing: &Hashing) -> Result<Set, CodecError> {
    let count = item_count(reader, 1)?;
    let members = (0..count).map_while(|_| reader.text().ok());
    let set = Set::with_layout(layout, count, members, hashing);
    check_items(reader, set.len() == count && set.layout() == layout)?;
    Ok(set)
}

/// Reads the number of items. Empty collections are not valid values.
fn item_count(reader: &mut ByteReader<'_>, bytes_each: usize) -> Result<usize, CodecError> {
    match reader.count(bytes_each)? {
        0 => Err(reader.error("an empty collection")),
        count => Ok(count),
    }
}

/// Returns an error if items are missing, occur twice, or do not have the announced layout.
fn check_items(reader: &ByteReader<'_>, holds: bool) -> Result<(), CodecError> {
    if holds { Ok(()) } else { Err(reader.error("the items do not match the announced number or layout")) }
}
