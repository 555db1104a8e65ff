//! Finds out, for many ids in one pass, which entries groups still need.
//!
//! A group refers to an entry if the group has not read it yet, or if the entry is pending in the group. Thousands of
//! groups can have ten thousand pending entries each. So a [`ReferenceView`] never visits them all:
//!
//! 1. It asks one group after the other about all ids in question, and then only about those that no group needed so
//!    far. In most streams the groups need the same entries, so the first group answers for all.
//! 2. It begins with the group that needed the entries of the last trim.
//!
//! Creating a view costs nothing. It looks at each group once if the first one does not need all ids. Then a group
//! costs at most one step per id in question and one step per pending entry between them.

use std::cell::RefCell;
use std::{fmt, mem, ptr};

use super::{Group, Stream};
use crate::StreamId;

/// The name of the group that last needed all entries which a trim asked about. Only a hint, not part of the state.
#[derive(Clone, Default)]
pub(super) struct NeedingGroup(RefCell<Option<Box<[u8]>>>);

impl fmt::Debug for NeedingGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("NeedingGroup")
    }
}

/// The references of groups to entries.
pub(super) struct ReferenceView<'s> {
    stream: &'s Stream,
    /// A group whose pending entries do not count, because they are about to be removed.
    without: Option<&'s Group>,
    /// The group that is asked first.
    hint: Option<(&'s [u8], &'s Group)>,
    groups: Option<AllGroups<'s>>,
    /// Number of questions so far: ids times groups.
    pub(super) questions: u64,
}

struct AllGroups<'s> {
    /// All groups have read up to this id; `None` if there are no groups.
    read_through: Option<StreamId>,
    /// The groups with pending entries. Those that needed most are the first ones.
    pending: Vec<(&'s [u8], &'s Group)>,
}

impl<'s> ReferenceView<'s> {
    pub(super) fn new(stream: &'s Stream, without: Option<&'s Group>) -> ReferenceView<'s> {
        let name = stream.needing.0.borrow();
        let hint = name.as_ref().and_then(|name| stream.groups.get_key_value(name));
        let hint = hint.map(|(name, group)| (&**name, group));
        let hint = hint.filter(|(_, group)| without.is_none_or(|without| !ptr::eq(*group, without)));
        ReferenceView { stream, without, hint, groups: None, questions: 0 }
    }

    /// Returns an upper bound of the ids of entries that all groups have read.
    pub(super) fn read_through_at_most(&self) -> StreamId {
        let known = self.groups.as_ref().and_then(|groups| groups.read_through);
        known.or(self.hint.map(|(_, group)| group.last_id)).unwrap_or(StreamId::MAX)
    }

    /// Keeps those of these ids, which ascend, that every group has read and acknowledged.
    pub(super) fn retain_unreferenced(&mut self, ids: &mut Vec<StreamId>) {
        if let Some((_, group)) = self.hint {
            self.ask(group, ids);
            ids.truncate(ids.partition_point(|id| *id <= group.last_id));
        }
        if ids.is_empty() {
            return;
        }
        if let Some(read_through) = self.groups().read_through {
            ids.truncate(ids.partition_point(|id| *id <= read_through));
        }
        self.retain_not_pending(ids);
    }

    /// Keeps those of these ids, which ascend, that are pending in no group.
    pub(super) fn retain_not_pending(&mut self, ids: &mut Vec<StreamId>) {
        self.groups();
        let Some(mut groups) = self.groups.take() else { return };
        for at in 0..groups.pending.len() {
            if ids.is_empty() {
                break;
            }
            let (name, group) = groups.pending[at];
            self.ask(group, ids);
            if ids.is_empty() {
                // The other groups keep their order.
                groups.pending[..=at].rotate_right(1);
                let mut hint = self.stream.needing.0.borrow_mut();
                if hint.as_deref() != Some(name) {
                    *hint = Some(name.into());
                }
            }
        }
        self.groups = Some(groups);
    }

    /// Keeps those ids that are not pending in this group.
    fn ask(&mut self, group: &Group, ids: &mut Vec<StreamId>) {
        self.questions += ids.len() as u64;
        let asked = mem::take(ids);
        group.pending.find_all(&asked, |id, is_pending| ids.extend((!is_pending).then_some(id)));
    }

    fn groups(&mut self) -> &AllGroups<'s> {
        let (stream, without) = (self.stream, self.without);
        self.groups.get_or_insert_with(|| {
            let mut all = AllGroups { read_through: None, pending: Vec::new() };
            for (name, group) in &stream.groups {
                all.read_through = Some(all.read_through.map_or(group.last_id, |id| id.min(group.last_id)));
                if !group.pending.is_empty() && without.is_none_or(|without| !ptr::eq(group, without)) {
                    all.pending.push((name, group));
                }
            }
            all
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BlockLimits, StreamEffect};

    /// A stream of these entries, with groups that have read them all and acknowledged those of the second argument.
    fn stream(entries: u64, groups: u8, is_acknowledged: impl Fn(u8, u64) -> bool) -> Stream {
        let (mut stream, limits) = (Stream::new(), BlockLimits::default());
        let ids: Vec<StreamId> = (1..=entries).map(|ms| StreamId::new(ms, 0)).collect();
        for &id in &ids {
            stream.apply(&StreamEffect::Append { id, fields: &[b"n", b"1"] }, limits);
        }
        for name in 0..groups {
            let (group, last) = (&[name][..], StreamId::new(entries, 0));
            let ids: Vec<_> = ids.iter().copied().filter(|id| is_acknowledged(name, id.ms)).collect();
            for effect in [
                StreamEffect::GroupCreate { group, last_id: StreamId::MIN, entries_read: None },
                StreamEffect::Deliver {
                    group,
                    consumer: b"c",
                    last,
                    count: entries,
                    at_ms: 1,
                    pending: true,
                },
                StreamEffect::Ack { group, ids: &ids },
            ] {
                stream.apply(&effect, limits);
            }
        }
        stream
    }

    fn unreferenced(stream: &Stream, entries: u64) -> (Vec<u64>, u64) {
        let mut ids: Vec<_> = (1..=entries).map(|ms| StreamId::new(ms, 0)).collect();
        let mut view = ReferenceView::new(stream, None);
        view.retain_unreferenced(&mut ids);
        (ids.iter().map(|id| id.ms).collect(), view.questions)
    }

    #[test]
    fn one_group_answers_for_many_that_need_the_same_entries() {
        let stream = stream(2000, 50, |_, _| false);
        assert_eq!(unreferenced(&stream, 2000), (vec![], 2000));
        // The last group needs them all. So it is asked first from the second time on.
        let stream = self::stream(2000, 50, |group, ms| group < 49 && ms % 2 == 0);
        let first_time = unreferenced(&stream, 2000);
        assert_eq!((first_time.0.len(), first_time.1), (0, 2000 + 49 * 1000));
        assert_eq!(unreferenced(&stream, 2000), (vec![], 2000));
    }

    #[test]
    fn an_entry_is_kept_if_one_group_of_many_needs_it() {
        let stream = stream(600, 30, |group, ms| ms % 30 != u64::from(group));
        assert_eq!(unreferenced(&stream, 600), (vec![], 600 * 31 / 2));
        let stream = self::stream(600, 30, |group, ms| ms % 31 != u64::from(group));
        assert_eq!(unreferenced(&stream, 600).0, (1..=600).filter(|ms| ms % 31 == 30).collect::<Vec<_>>());
    }
}
