//! One entry, read where it lies: nothing is copied.

use std::ops::{ControlFlow, Range};

use super::block::{Place, take_text};
use super::value::{self, StoredValue, ValueRef};
use crate::StreamId;

/// An entry in its block.
#[derive(Clone, Copy)]
pub struct EntryRef<'a> {
    id: StreamId,
    /// The whole block.
    bytes: &'a [u8],
    /// Where the first field begins.
    at: usize,
    /// Where the entry ends.
    end: u32,
    pairs: u32,
    /// Where the names end that this entry shares with others of its block; `None` if each stands before its value.
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

    /// The entry's id.
    #[inline]
    pub fn id(&self) -> StreamId {
        self.id
    }

    /// How many fields it has.
    #[inline]
    pub fn field_count(&self) -> usize {
        self.pairs as usize
    }

    /// Equal for entries of one block that have the same names in the same order; `None` for an entry with names of its own.
    /// Means nothing once the stream has changed.
    #[inline]
    pub fn shared_names_identity(&self) -> Option<usize> {
        self.shared_names_end.map(|_| self.bytes.as_ptr() as usize)
    }

    /// The names that it shares with others, as they lie in the block: where these bytes are equal, so are the names.
    #[inline]
    pub fn shared_names(&self) -> Option<&'a [u8]> {
        self.shared_names_end.map(|end| &self.bytes[..end as usize])
    }

    /// The fields in order.
    #[inline]
    pub fn fields(&self) -> Fields<'a> {
        Fields { entry: *self, names_at: 0, left: self.pairs }
    }

    /// The names in order.
    pub fn names(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        self.fields().map(|(name, _)| name)
    }

    /// The values in the order of the names.
    #[inline]
    pub fn values(&self) -> Values<'a> {
        Values(self.fields())
    }

    /// The same for an entry that shares its names, for whoever copies them: short ones come with the bytes behind
    /// them, so that a copy need not know their length.
    #[inline(always)]
    pub fn stored_values(&self) -> StoredValues<'a> {
        debug_assert!(self.shared_names_end.is_some());
        StoredValues { bytes: self.bytes, at: self.at }
    }

    /// The place behind the entry.
    #[inline(always)]
    pub(super) fn end(&self) -> Place {
        Place { offset: self.end, before: self.id }
    }
}

/// The fields of an entry, name and value.
#[derive(Clone)]
pub struct Fields<'a> {
    /// `at` moves on as fields are taken.
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

/// The values of an entry. Names that it shares are not read.
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

/// The values of an entry that shares its names.
#[derive(Clone)]
pub struct StoredValues<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> StoredValues<'a> {
    /// The next one. Not to be asked more often than the entry has fields.
    #[inline(always)]
    pub fn take(&mut self) -> StoredValue<'a> {
        value::take_stored(self.bytes, &mut self.at)
    }
}

/// Takes entries as they are read.
pub trait EntrySink {
    /// Whether there is room for the entry. If not, reading ends before it: it counts as not read.
    #[inline]
    fn wants(&mut self, _entry: &EntryRef<'_>) -> bool {
        true
    }

    /// Takes one entry. `Break` ends the reading after it.
    fn entry(&mut self, entry: &EntryRef<'_>) -> ControlFlow<()>;
}

impl<F: FnMut(&EntryRef<'_>) -> ControlFlow<()>> EntrySink for F {
    fn entry(&mut self, entry: &EntryRef<'_>) -> ControlFlow<()> {
        self(entry)
    }
}
