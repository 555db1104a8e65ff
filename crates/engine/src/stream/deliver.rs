//! Delivering: the next entries of a group go to one of its consumers, while whoever asked for them looks at them.

use std::ops::ControlFlow;

use smallvec::SmallVec;

use super::entries::Entries;
use super::{Delivery, EntryRef, EntrySink, Group, Stream};
use crate::{Refusal, StreamId};

/// Number of entries added to the pending list per call.
const AT_ONCE: usize = 32;

/// Who is given entries, when, and whether they await acknowledgement.
#[derive(Clone, Copy, Debug)]
pub struct Recipient<'a> {
    /// The consumer's name. It joins its group if it is new.
    pub consumer: &'a [u8],
    /// The moment, in Unix milliseconds.
    pub at_ms: u64,
    /// Whether they await acknowledgement.
    pub pending: bool,
}

impl Stream {
    /// Gives a consumer what its group has not delivered yet, at most `count`, and shows it to `sink`. This is its own decision:
    /// the change is that of [`StreamEffect::Deliver`](crate::StreamEffect::Deliver) with what is returned. An entry the sink
    /// breaks at counts as delivered. `None`: nothing was delivered, and nothing has changed.
    #[inline]
    pub fn deliver(
        &mut self,
        group: &[u8],
        to: &Recipient<'_>,
        count: Option<u64>,
        sink: &mut impl EntrySink,
    ) -> Result<Option<Delivery>, Refusal> {
        let group = self.groups.get_mut(group).ok_or(Refusal::NoGroup)?;
        Ok(group.deliver(&self.entries, to, count.unwrap_or(u64::MAX), sink))
    }
}

impl Group {
    /// The same for the group of these entries.
    #[inline(never)]
    pub(super) fn deliver(
        &mut self,
        entries: &Entries,
        to: &Recipient<'_>,
        most: u64,
        sink: &mut impl EntrySink,
    ) -> Option<Delivery> {
        if most == 0 || !entries.has_after(self.last_id) {
            return None;
        }
        let mut cursor = entries.cursor_after(self)?;
        let (mut count, mut behind_last) = (0, None);
        let mut ids = SmallVec::<[StreamId; AT_ONCE]>::new();
        entries.blocks.visit_from(&mut cursor, |entry| {
            behind_last = None;
            if !sink.wants(entry) {
                return ControlFlow::Break(());
            }
            if ids.len() == AT_ONCE {
                self.receive(entries, to, &ids);
                ids.clear();
            }
            ids.push(entry.id());
            count += 1;
            behind_last = Some(entry.end());
            sink.entry(entry)?;
            if count < most { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        self.receive(entries, to, &ids);
        if count > 0 {
            // The visit stands before the entry it broke off at.
            self.cursor = Some(behind_last.map_or(cursor, |place| cursor.at(place)));
        }
        (count > 0).then_some(Delivery { last: self.last_id, count })
    }

    /// These entries, which follow, are the consumer's.
    #[inline]
    fn receive(&mut self, entries: &Entries, to: &Recipient<'_>, ids: &[StreamId]) {
        let Some(&last) = ids.last() else { return };
        let handle = self.consumers.join(to.consumer, to.at_ms);
        let consumer = self.consumers.get_mut(handle);
        consumer.seen_at_ms = to.at_ms;
        if to.pending {
            consumer.active_at_ms = Some(to.at_ms);
        }
        self.entries_read = entries.entries_read_after(self, ids);
        self.last_id = last;
        if to.pending {
            self.set_pending_run(ids, handle, to.at_ms);
        }
    }
}

/// Takes entries up to this one, and looks at none.
pub(super) struct UpTo(pub(super) StreamId);

impl EntrySink for UpTo {
    #[inline]
    fn wants(&mut self, entry: &EntryRef<'_>) -> bool {
        entry.id() <= self.0
    }

    #[inline]
    fn entry(&mut self, _: &EntryRef<'_>) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BlockLimits, StreamEffect};

    /// Has room for so many entries, and ends the reading after so many.
    struct Choosy {
        room: u64,
        enough: u64,
        shown: Vec<u64>,
    }

    impl EntrySink for Choosy {
        fn wants(&mut self, _: &EntryRef<'_>) -> bool {
            (self.shown.len() as u64) < self.room
        }

        fn entry(&mut self, entry: &EntryRef<'_>) -> ControlFlow<()> {
            self.shown.push(entry.id().ms);
            if self.shown.len() as u64 == self.enough {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        }
    }

    /// A stream of entries 1 to `count`, in blocks of ten, and a group at its start.
    fn stream_of(count: u64) -> Stream {
        let (mut stream, limits) = (Stream::new(), BlockLimits { max_bytes: 0, max_entries: 10 });
        for ms in 1..=count {
            stream.append(StreamId::new(ms, 0), &[b"f", b"v"], limits);
        }
        let create = StreamEffect::GroupCreate { group: b"g", last_id: StreamId::MIN, entries_read: Some(0) };
        stream.apply(&create, limits);
        stream
    }

    #[test]
    fn whoever_has_enough_is_given_no_more_and_the_next_goes_on_there() {
        const ENTRIES: u64 = 3 * AT_ONCE as u64;
        const NEVER: u64 = u64::MAX;
        let to = Recipient { consumer: b"c", at_ms: 7, pending: true };
        for most in 1..=ENTRIES + 1 {
            for (count, room, enough) in [(most, NEVER, NEVER), (NEVER, most, NEVER), (NEVER, NEVER, most)] {
                let mut stream = stream_of(ENTRIES);
                let mut sink = Choosy { room, enough, shown: Vec::new() };
                let mut next = 1;
                while next <= ENTRIES {
                    sink.shown.clear();
                    let delivery = stream.deliver(b"g", &to, Some(count), &mut sink).unwrap().unwrap();
                    let last = ENTRIES.min(next + most - 1);
                    assert_eq!(delivery, Delivery { last: StreamId::new(last, 0), count: last + 1 - next });
                    assert!(sink.shown.iter().copied().eq(next..=last), "{most}: {:?}", sink.shown);
                    stream.check().unwrap();
                    let group = stream.group(b"g").unwrap();
                    assert_eq!((group.pending().len(), group.entries_read()), (last, Some(last)));
                    let consumer = group.consumer_at(group.consumer(b"c").unwrap());
                    assert_eq!((consumer.seen_at_ms, consumer.active_at_ms), (7, Some(7)));
                    next = last + 1;
                }
                assert_eq!(stream.deliver(b"g", &to, None, &mut sink), Ok(None));
            }
        }
    }

    #[test]
    fn nothing_changes_where_nothing_is_delivered() {
        let mut stream = stream_of(1);
        let before = format!("{stream:?}");
        let to = Recipient { consumer: b"c", at_ms: 7, pending: true };
        let mut full = Choosy { room: 0, enough: 1, shown: Vec::new() };
        assert_eq!(stream.deliver(b"g", &to, None, &mut full), Ok(None));
        assert_eq!(stream.deliver(b"g", &to, Some(0), &mut UpTo(StreamId::MAX)), Ok(None));
        assert_eq!(stream.deliver(b"h", &to, None, &mut UpTo(StreamId::MAX)), Err(Refusal::NoGroup));
        assert_eq!(format!("{stream:?}"), before);
    }
}
