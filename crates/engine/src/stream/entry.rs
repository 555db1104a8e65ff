//! One entry, read where it lies: nothing is copied.

use std::ops::ControlFlow;

use super::block::{Place, take_text};
use super::value::{self, ValueRef};
use crate::StreamId;

/// An entry in its block.
#[derive(Clone, Copy)]
pub struct EntryRef<'a> {
    id: StreamId,
    /// The block up to the end of this entry.
    bytes: &'a [u8],
    /// Where the first field begins.
    at: usize,
    pairs: u32,
    /// The names this entry shares with others of its block; otherwise each stands before its value.
    shared_names: Option<&'a [u8]>,
}

impl<'a> EntryRef<'a> {
    pub(super) fn new(
        id: StreamId,
        bytes: &'a [u8],
        at: usize,
        pairs: u32,
        shared_names: Option<&'a [u8]>,
    ) -> EntryRef<'a> {
        EntryRef { id, bytes, at, pairs, shared_names }
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
        self.shared_names.map(|names| names.as_ptr() as usize)
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

    /// The place behind the entry.
    #[inline]
    pub(super) fn end(&self) -> Place {
        Place { offset: self.bytes.len() as u32, before: self.id }
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
        let name = match entry.shared_names {
            Some(names) => take_text(names, &mut self.names_at),
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
        if fields.entry.shared_names.is_none() {
            return fields.next().map(|(_, value)| value);
        }
        fields.left = fields.left.checked_sub(1)?;
        Some(value::take(fields.entry.bytes, &mut fields.entry.at))
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
