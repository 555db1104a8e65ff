//! Which entries groups still need, asked for many ids at once.
//!
//! An entry is referred to by a group that has not read it yet, and by a group in which it is pending. With many groups nobody
//! may ask each of them about each entry. So a view is made once for a command:
//!
//! 1. The smallest position of all groups: whatever lies beyond it is unread by somebody.
//! 2. Of each group whose pending entries reach into the ids in question, the first such row, in a heap.
//!
//! Ids are then asked in rising order. The top of the heap is the next row anywhere; rows that were passed are searched
//! on from the id asked, so a group without rows there costs nothing more. Making the view costs O(groups), an id costs O(1)
//! and O(log rows + log groups) for each group whose row was passed.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::ControlFlow;

use super::{Group, IdRange, Stream};
use crate::StreamId;
use crate::pending::PendingList;

/// What groups need of a range of ids. The default: nothing.
#[derive(Default)]
pub(super) struct ReferenceView<'s> {
    /// Every group has read up to here; `None` without groups.
    read_through: Option<StreamId>,
    lists: Vec<&'s PendingList>,
    /// The next row of each list that has one left.
    next: BinaryHeap<Reverse<(StreamId, usize)>>,
}

impl<'s> ReferenceView<'s> {
    /// What the groups need of `range`. Rows of `without` are about to go and do not count.
    pub(super) fn new(stream: &'s Stream, range: IdRange, without: Option<&Group>) -> ReferenceView<'s> {
        let read_through = stream.groups.values().map(|group| group.last_id).min();
        let lists = stream
            .groups
            .values()
            .filter(|group| without.is_none_or(|without| !std::ptr::eq(*group, without)));
        let mut view = ReferenceView { read_through, lists: Vec::new(), next: BinaryHeap::new() };
        for list in lists.map(|group| &group.pending) {
            let (Some(first), Some(last)) = (list.first(), list.last_id()) else { continue };
            if first.id <= range.last && last >= range.first {
                view.lists.push(list);
                view.advance(view.lists.len() - 1, range.first);
            }
        }
        view
    }

    /// No entry beyond this id can go: some group has not read it.
    pub(super) fn read_through(&self) -> Option<StreamId> {
        self.read_through
    }

    /// Whether any group has yet to read or to acknowledge the entry. Ids rise from call to call.
    pub(super) fn is_referenced(&mut self, id: StreamId) -> bool {
        self.read_through.is_some_and(|read_through| read_through < id) || self.is_pending(id)
    }

    /// Whether the entry is pending in any group. Ids rise from call to call.
    pub(super) fn is_pending(&mut self, id: StreamId) -> bool {
        while let Some(&Reverse((next, list))) = self.next.peek() {
            if next >= id {
                return next == id;
            }
            self.next.pop();
            self.advance(list, id);
        }
        false
    }

    /// Finds the next row of a list from `id` on.
    fn advance(&mut self, list: usize, id: StreamId) {
        self.lists[list].walk(id, Default::default(), |row| {
            self.next.push(Reverse((row.id, list)));
            ControlFlow::Break(())
        });
    }
}
