//! Finds out, for many ids in one pass, which entries groups still need.
//!
//! A group refers to an entry if the group has not read it yet, or if the entry is pending in the group. With
//! many groups it would be too slow to ask each group about each entry. So a command creates one view:
//!
//! 1. The smallest position of all groups. All entries after it are unread in at least one group.
//! 2. A heap with the first pending entry in the range of ids, for each group that has one.
//!
//! Callers then ask for ids in ascending order. The top of the heap is the next pending entry of any group.
//! Pending entries before the requested id are replaced by the next one of their group. So a group without
//! pending entries in the range costs nothing more. Creating the view costs O(groups). An id costs O(1), plus
//! O(log rows + log groups) for each group whose pending entry was passed.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::ControlFlow;

use super::{Group, IdRange, Stream};
use crate::StreamId;
use crate::pending::PendingList;

/// The references of groups to a range of ids. The default has no references.
#[derive(Default)]
pub(super) struct ReferenceView<'s> {
    /// All groups have read up to this id; `None` if there are no groups.
    read_through: Option<StreamId>,
    lists: Vec<&'s PendingList>,
    /// The next pending entry of each list that has one left: its id and the index of the list.
    next: BinaryHeap<Reverse<(StreamId, usize)>>,
}

impl<'s> ReferenceView<'s> {
    /// Creates a view of `range`. Ignores the pending entries of `without`, because they are about to be
    /// removed.
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

    /// Returns the smallest position of all groups; `None` if there are no groups. At least one group has not
    /// read the entries after it.
    pub(super) fn read_through(&self) -> Option<StreamId> {
        self.read_through
    }

    /// Returns whether any group has not read or not acknowledged the entry. Ids must ascend from call to
    /// call.
    pub(super) fn is_referenced(&mut self, id: StreamId) -> bool {
        self.read_through.is_some_and(|read_through| read_through < id) || self.is_pending(id)
    }

    /// Returns whether the entry is pending in any group. Ids must ascend from call to call.
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

    /// Finds the next pending entry of a list from `id` on.
    fn advance(&mut self, list: usize, id: StreamId) {
        self.lists[list].walk(id, Default::default(), |row| {
            self.next.push(Reverse((row.id, list)));
            ControlFlow::Break(())
        });
    }
}
