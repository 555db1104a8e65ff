//! Inserts entries into the middle of a block and removes entries from its bytes.
//!
//! Only blocks of delayed entries change in this way. Such a block has no deleted entries, its base is the id
//! of its first entry, and it does not count the bytes that a node of Redis would take.

use super::{Block, EntryPosition, SAME_NAMES, put_head};
use crate::StreamId;
use crate::bytes::Appender;
use crate::stream::entry::EntryRef;

impl Block {
    /// Builds a block of these entries, which ascend. All share the field names of the entry in the middle
    /// if they can: the first entry is more often an exception, because a block keeps its names.
    pub(in crate::stream) fn of_entries(entries: &[EntryRef<'_>]) -> Option<Block> {
        let first = entries.first()?.id();
        let mut block = entries[entries.len() / 2].with_texts(|fields| Block::new(first, fields, Vec::new()));
        for entry in entries {
            entry.with_texts(|fields| {
                block.push(entry.id(), fields);
            });
        }
        block.node_bytes = 0;
        Some(block)
    }

    pub(in crate::stream) fn insert(&mut self, id: StreamId, fields: &[&[u8]]) {
        let view = self.view();
        let at = view.seek(view.start(), id);
        let tail = self.cut(at, at);
        if tail.first.is_none() {
            self.push(id, fields);
            self.node_bytes = 0;
            return;
        }
        if id < self.base {
            self.set_base(id);
        }
        self.push(id, fields);
        self.join(tail);
    }

    /// Removes the entry `id` from the bytes. Returns false if it does not exist. The caller drops a block
    /// that is empty afterwards.
    pub(in crate::stream) fn take_out(&mut self, id: StreamId) -> bool {
        let view = self.view();
        let from = view.seek(view.start(), id);
        match view.entry_at(&from) {
            Some((entry, _)) if entry.id() == id => {
                let to = entry.end();
                self.take_out_between(from, to, 1);
                true
            }
            _ => false,
        }
    }

    /// Removes the first `count` entries from the bytes, which end at `to`.
    pub(in crate::stream) fn take_out_first(&mut self, count: u32, to: EntryPosition) {
        self.take_out_between(self.view().start(), to, count);
    }

    fn take_out_between(&mut self, from: EntryPosition, to: EntryPosition, count: u32) {
        let tail = self.cut(from, to);
        self.live -= count;
        if let Some((first, _)) = tail.first
            && from.offset == self.names_end
        {
            self.set_base(first);
        }
        self.last_id = self.stored_last_id;
        (self.stored, self.slots) = (self.live, self.live);
        self.join(tail);
    }

    /// Removes the bytes from `from` on. Returns those from `to` on, without the id of their first entry.
    fn cut(&mut self, from: EntryPosition, to: EntryPosition) -> Tail {
        let head = self.view().entry_at(&to).map(|(entry, _)| {
            let flags = if entry.shared_names_identity().is_some() { SAME_NAMES } else { 0 };
            (entry.id(), flags)
        });
        let tail = match head {
            None => Tail { first: None, last_id: StreamId::MIN, body: Vec::new() },
            Some(_) => {
                let body = to.offset as usize + self.head_len(&to);
                Tail { first: head, last_id: self.last_id, body: self.bytes[body..].to_vec() }
            }
        };
        self.bytes.truncate(from.offset as usize);
        self.stored_last_id = from.previous_id;
        tail
    }

    /// Appends entries that [`cut`](Block::cut) has removed.
    fn join(&mut self, tail: Tail) {
        self.node_bytes = 0;
        let Some((first, flags)) = tail.first else { return };
        let mut appender = Appender::new(&mut self.bytes);
        put_head(&mut appender, self.stored_last_id, first, flags);
        appender.bytes(&tail.body);
        appender.finish();
        (self.last_id, self.stored_last_id) = (tail.last_id, tail.last_id);
    }

    /// Makes `id`, which is appended next, the first entry of the block.
    fn set_base(&mut self, id: StreamId) {
        (self.base, self.stored_last_id, self.start_previous_id) = (id, id, id);
    }

    /// Sets the bytes that a node of Redis would take to 0: delayed entries do not use them.
    pub(in crate::stream) fn forget_node_bytes(&mut self) {
        self.node_bytes = 0;
    }

    pub(in crate::stream) fn stored_bytes(&self) -> usize {
        self.bytes.len()
    }
}

struct Tail {
    first: Option<(StreamId, u8)>,
    last_id: StreamId,
    body: Vec<u8>,
}
