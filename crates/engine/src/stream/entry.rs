//! One entry, read in place without copying.

use std::ops::{ControlFlow, Range};

use smallvec::SmallVec;

use super::block::{EntryPosition, take_text};
use super::value::{self, StoredValue, ValueRef};
use crate::StreamId;
use crate::bytes::number::IntegerText;

/// A reference to an entry in its block.
#[derive(Clone, Copy)]
pub struct EntryRef<'a> {
    id: StreamId,
    bytes: &'a [u8],
    at: usize,
    end: u32,
    pairs: u32,
    /// The end of the field names that this entry shares with others of its block. `None` if the entry has
    /// its own names, each before its value.
    shared_names_end: Option<u32>,
}

impl<'a> EntryRef<'a> {
    #[inline(always)]
    pub(super) fn new(
        id: StreamId,
        bytes: &'a [u8],
        fields: Range<usize>,
        pairs: u32,
        shared_names_end: Option<u32>,
    ) -> EntryRef<'a> {
        EntryRef { id, bytes, at: fields.start, end: fields.end as u32, pairs, shared_names_end }
    }

    /// Returns the id of the entry.
    #[inline]
    pub fn id(&self) -> StreamId {
        self.id
    }

    /// Returns the number of fields.
    #[inline]
    pub fn field_count(&self) -> usize {
        self.pairs as usize
    }

    /// Returns a number that is equal for entries of one block that have the same field names in the same
    /// order; `None` for an entry with its own names. Valid only until the stream changes.
    #[inline]
    pub fn shared_names_identity(&self) -> Option<usize> {
        self.shared_names_end.map(|_| self.bytes.as_ptr() as usize)
    }

    /// Returns the field names that the entry shares with others of its block, as the block encodes them;
    /// `None` if the entry has its own names. If the bytes of two entries are equal, their names are equal.
    #[inline]
    pub fn shared_names(&self) -> Option<&'a [u8]> {
        self.shared_names_end.map(|end| &self.bytes[..end as usize])
    }

    /// Returns the fields in order.
    #[inline]
    pub fn fields(&self) -> Fields<'a> {
        Fields { entry: *self, names_at: 0, left: self.pairs }
    }

    /// Returns the field names in order.
    pub fn names(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        self.fields().map(|(name, _)| name)
    }

    /// Returns the values in the order of the names.
    #[inline]
    pub fn values(&self) -> Values<'a> {
        Values(self.fields())
    }

    /// Calls `with` with all names and values as text: name, value, name, value…
    pub fn with_texts<R>(&self, with: impl FnOnce(&[&[u8]]) -> R) -> R {
        let as_integer = |value: ValueRef<'_>| match value {
            ValueRef::Int(number) => Some(IntegerText::new(number)),
            ValueRef::Bytes(_) => None,
        };
        let integers: SmallVec<[Option<IntegerText>; 8]> = self.values().map(as_integer).collect();
        let mut texts: SmallVec<[&[u8]; 16]> = SmallVec::with_capacity(2 * self.field_count());
        for ((name, value), integer) in self.fields().zip(&integers) {
            texts.push(name);
            texts.push(match (value, integer) {
                (_, Some(integer)) => integer.as_bytes(),
                (ValueRef::Bytes(bytes), None) => bytes,
                (ValueRef::Int(_), None) => unreachable!("every integer has a text"),
            });
        }
        with(&texts)
    }

    /// Returns the number of bytes of the fields in the block, without shared names.
    pub(super) fn stored_bytes(&self) -> u64 {
        u64::from(self.end) - self.at as u64
    }

    /// Returns the total length of all names and values as text.
    pub fn text_bytes(&self) -> u64 {
        let value_bytes = |value: ValueRef<'_>| match value {
            ValueRef::Bytes(bytes) => bytes.len(),
            ValueRef::Int(number) => IntegerText::new(number).as_bytes().len(),
        };
        self.fields().map(|(name, value)| (name.len() + value_bytes(value)) as u64).sum()
    }

    /// Returns the values of an entry that shares its field names, for copying. Short values come with the
    /// bytes that follow them, so that they can be copied with a fixed length.
    #[inline(always)]
    pub fn stored_values(&self) -> StoredValues<'a> {
        debug_assert!(self.shared_names_end.is_some());
        StoredValues { bytes: self.bytes, at: self.at }
    }

    #[inline(always)]
    pub(super) fn end(&self) -> EntryPosition {
        EntryPosition { offset: self.end, previous_id: self.id }
    }
}

/// An iterator over the fields of an entry: name and value.
#[derive(Clone)]
pub struct Fields<'a> {
    /// Its `at` advances with each field.
    entry: EntryRef<'a>,
    names_at: usize,
    left: u32,
}

impl<'a> Iterator for Fields<'a> {
    type Item = (&'a [u8], ValueRef<'a>);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        let entry = &mut self.entry;
        let name = match entry.shared_names_end {
            Some(_) => take_text(entry.bytes, &mut self.names_at),
            None => take_text(entry.bytes, &mut entry.at),
        };
        Some((name, value::take(entry.bytes, &mut entry.at)))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left as usize, Some(self.left as usize))
    }
}

/// An iterator over the values of an entry. Does not read shared field names.
#[derive(Clone)]
pub struct Values<'a>(Fields<'a>);

impl<'a> Iterator for Values<'a> {
    type Item = ValueRef<'a>;

    #[inline]
    fn next(&mut self) -> Option<ValueRef<'a>> {
        let fields = &mut self.0;
        if fields.entry.shared_names_end.is_none() {
            return fields.next().map(|(_, value)| value);
        }
        fields.left = fields.left.checked_sub(1)?;
        Some(value::take(fields.entry.bytes, &mut fields.entry.at))
    }
}

/// Reads the values of an entry that shares its field names.
#[derive(Clone)]
pub struct StoredValues<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> StoredValues<'a> {
    /// Returns the next value. Must not be called more often than the entry has fields.
    #[inline(always)]
    pub fn take(&mut self) -> StoredValue<'a> {
        value::take_stored(self.bytes, &mut self.at)
    }
}

/// Receives entries as they are read.
pub trait EntrySink {
    /// Returns whether the sink accepts the entry. If not, reading ends before this entry, which counts as
    /// not read.
    #[inline]
    fn wants(&mut self, _entry: &EntryRef<'_>) -> bool {
        true
    }

    /// Receives one entry. `Break` ends the reading after it.
    fn entry(&mut self, entry: &EntryRef<'_>) -> ControlFlow<()>;
}

impl<F: FnMut(&EntryRef<'_>) -> ControlFlow<()>> EntrySink for F {
    fn entry(&mut self, entry: &EntryRef<'_>) -> ControlFlow<()> {
        self(entry)
    }
}
