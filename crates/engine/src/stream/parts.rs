//! A stream taken apart, to be kept outside of memory, and put together again.
//!
//! Taking apart: [`Stream::counters`], [`Stream::blocks`], [`Stream::groups`], [`Stream::history_counters`],
//! [`Stream::remembered`]. Putting together: a
//! [`StreamBuilder`] is given the same parts in the same order. It trusts none of them: whatever it
//! accepts is a stream that [`Stream::check`] finds sound, and one made of a stream's own parts answers and changes
//! exactly as that stream does.
//!
//! How parts are written down is not known here.

use std::fmt;

use super::block::Block;
use super::blocks::AnyBlock;
use super::idempotence::{HistoryCounters, Remembered};
use super::visit::IdRange;
use super::{Group, Stream};
use crate::StreamId;
use crate::pending::PendingEntry;

/// What a stream knows besides its entries and groups.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// The greatest id ever given.
    pub last_id: StreamId,
    /// The greatest id deleted by name.
    pub max_deleted_id: StreamId,
    /// No entry beyond this id was ever deleted or trimmed.
    pub gone_through: StreamId,
    /// Entries ever added.
    pub entries_added: u64,
}

/// A run of entries, and what cannot be found out from its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockParts<'a> {
    /// The names, then the entries, packed.
    pub bytes: &'a [u8],
    /// How many names come first.
    pub name_count: u32,
    /// The id of the first entry ever written here.
    pub base: StreamId,
    /// The id of the last entry ever written here.
    pub last_id: StreamId,
    /// Entries ever written here.
    pub slots: u32,
    /// What Redis' node would take, without its two counters.
    pub node_bytes: u64,
}

/// What is wrong with a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadPart(pub &'static str);

impl fmt::Display for BadPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for BadPart {}

/// Counts go up by one now and then: below this they can do so for ever.
const COUNT_MAX: u64 = 3 << 62;

impl Stream {
    /// What the stream knows besides its entries and groups.
    pub fn counters(&self) -> Counters {
        Counters {
            last_id: self.entries.last_id,
            max_deleted_id: self.entries.max_deleted_id,
            gone_through: self.entries.gone_through,
            entries_added: self.entries.entries_added,
        }
    }

    /// The blocks that have entries, oldest first; new entries join the last. There are [`Stream::block_count`] of them.
    pub fn blocks(&self) -> impl Iterator<Item = BlockParts<'_>> {
        self.entries.blocks.in_use().map(AnyBlock::parts)
    }
}

/// Puts a stream together: its blocks in order, then each group with its consumers and its pending entries.
#[derive(Debug)]
pub struct StreamBuilder {
    stream: Stream,
    /// The group that consumers and pending entries are for.
    group: Option<(Box<[u8]>, Group)>,
}

impl StreamBuilder {
    /// Begins a stream.
    pub fn new(counters: &Counters) -> Result<StreamBuilder, BadPart> {
        if counters.entries_added > COUNT_MAX {
            return Err(BadPart("more entries were added than can be"));
        }
        let mut stream = Stream::new();
        stream.entries.last_id = counters.last_id;
        stream.entries.max_deleted_id = counters.max_deleted_id;
        stream.entries.gone_through = counters.gone_through;
        stream.entries.entries_added = counters.entries_added;
        Ok(StreamBuilder { stream, group: None })
    }

    /// The next block.
    pub fn block(&mut self, parts: &BlockParts<'_>) -> Result<(), BadPart> {
        let entries = &mut self.stream.entries;
        let mut block = Block::from_parts(parts)?;
        if block.last_id() > entries.last_id {
            // The last id was set back over entries that are deleted: the next entry comes before them.
            block.forget_dead();
        }
        if block.last_id() > entries.last_id {
            return Err(BadPart("an entry lies beyond the stream's last id"));
        }
        entries.length += block.live();
        entries.blocks.join(block)
    }

    /// The next group, in the order of names.
    pub fn group(
        &mut self,
        name: &[u8],
        last_id: StreamId,
        entries_read: Option<u64>,
    ) -> Result<(), BadPart> {
        self.end_group();
        if self.stream.groups.last_key_value().is_some_and(|(last, _)| **last >= *name) {
            return Err(BadPart("groups are not in the order of their names"));
        }
        if entries_read.is_some_and(|read| read > COUNT_MAX) {
            return Err(BadPart("a group has read more entries than can be"));
        }
        self.group = Some((name.into(), Group::new(last_id, entries_read)));
        Ok(())
    }

    /// The next consumer of the last group, in the order of names. Pending entries name the first one 0, the
    /// next 1, and so on.
    pub fn consumer(
        &mut self,
        name: &[u8],
        seen_at_ms: u64,
        active_at_ms: Option<u64>,
    ) -> Result<(), BadPart> {
        let Some((_, group)) = &mut self.group else { return Err(BadPart("a consumer without a group")) };
        if group.consumers().next_back().is_some_and(|(last, ..)| last >= name) {
            return Err(BadPart("consumers are not in the order of their names"));
        }
        let handle = group.consumers.join(name, seen_at_ms);
        group.consumers.get_mut(handle).active_at_ms = active_at_ms;
        Ok(())
    }

    /// The next pending entry of the last group, in the order of ids.
    pub fn pending(&mut self, row: PendingEntry) -> Result<(), BadPart> {
        let Some((_, group)) = &mut self.group else {
            return Err(BadPart("a pending entry without a group"));
        };
        if group.pending.last_id().is_some_and(|last| last >= row.id) {
            return Err(BadPart("pending entries are not in the order of their ids"));
        }
        if row.consumer.is_some_and(|owner| owner.0 as usize >= group.consumers().len()) {
            return Err(BadPart("a pending entry belongs to no consumer"));
        }
        group.set_pending(row);
        Ok(())
    }

    /// The order in which the pending entries of the last group that belong to nobody were released: all of them, each once.
    pub fn released(&mut self, ids: &[StreamId]) -> Result<(), BadPart> {
        let Some((_, group)) = &mut self.group else {
            return Err(BadPart("released entries without a group"));
        };
        let mut sorted = ids.to_vec();
        sorted.sort_unstable();
        sorted.dedup();
        if sorted.len() != ids.len() || sorted.len() as u64 != group.pending.released_len() {
            return Err(BadPart("not every released entry comes once"));
        }
        let rows = ids.iter().map(|id| group.pending.get(*id).filter(|row| row.consumer.is_none()));
        let rows: Option<Vec<PendingEntry>> = rows.collect();
        let rows = rows.ok_or(BadPart("a released entry is not pending, or belongs to somebody"))?;
        rows.into_iter().for_each(|row| group.set_pending(row));
        Ok(())
    }

    /// What the stream remembers of producers, without what that is.
    pub fn memory(&mut self, counters: &HistoryCounters) -> Result<(), BadPart> {
        if counters.added > COUNT_MAX || counters.duplicates > COUNT_MAX {
            return Err(BadPart("more was remembered than can be"));
        }
        self.stream.load_history(counters);
        Ok(())
    }

    /// The next thing that is remembered, oldest first.
    pub fn remembered(&mut self, what: &Remembered<'_>) -> Result<(), BadPart> {
        self.stream.load_remembered(what)
    }

    /// The stream, complete.
    pub fn finish(mut self) -> Stream {
        self.end_group();
        let entries = &mut self.stream.entries;
        let start = entries.blocks.seek(StreamId::MIN);
        entries.first_id = entries.blocks.next(start).map_or(StreamId::MIN, |entry| entry.id());
        entries.blocks.visit_back(IdRange::ALL, |entry| {
            entries.last_entry_id = entry.id();
            false
        });
        self.stream
    }

    fn end_group(&mut self) {
        if let Some((name, group)) = self.group.take() {
            self.stream.groups.insert(name, group);
        }
    }
}
