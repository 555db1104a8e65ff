//! Delivery: gives the next entries of a group to one of its consumers, and shows them to the caller at the
//! same time.

use std::ops::ControlFlow;

use smallvec::SmallVec;

use super::entries::Entries;
use super::missed::TrimmedEntries;
use super::{Delivery, EntryRef, EntrySink, Group, Stream};
use crate::pending::ConsumerHandle;
use crate::{Refusal, StreamId};

/// Maximum number of entries added to the pending list per call.
const IDS_PER_CALL: usize = 32;

/// The consumer that gets entries, the time, and whether the entries become pending.
#[derive(Clone, Copy, Debug)]
pub struct Recipient<'a> {
    /// The name of the consumer.
    pub consumer: &'a [u8],
    /// The time of the delivery (Unix milliseconds).
    pub at_ms: u64,
    /// Whether the entries become pending.
    pub pending: bool,
}

/// What [`Stream::deliver`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivered {
    /// The consumer got these entries.
    Entries(Delivery),
    /// There was nothing to deliver, or the group has reached its MAXPENDING. Nothing has changed.
    Nothing,
    /// The consumer does not exist. Nothing has changed, and the caller must create it.
    NeedsConsumer,
    /// The entries would become pending in a group with a lease. Nothing has changed, and the caller must look for
    /// pending entries that are [ready](Stream::visit_ready) first.
    NeedsReady,
}

impl Delivered {
    /// Returns the entries that the consumer got.
    pub fn entries(self) -> Option<Delivery> {
        match self {
            Delivered::Entries(delivery) => Some(delivery),
            Delivered::Nothing | Delivered::NeedsConsumer | Delivered::NeedsReady => None,
        }
    }
}

impl Stream {
    /// Delivers the next entries of the group to a consumer, at most `count`, and passes each to `sink`. An
    /// entry at which the sink breaks counts as delivered.
    ///
    /// Decides and applies in one step: the change is that of a
    /// [`StreamEffect::Deliver`](crate::StreamEffect::Deliver) with the returned values.
    #[inline]
    pub fn deliver(
        &mut self,
        group: &[u8],
        to: &Recipient<'_>,
        count: Option<u64>,
        sink: &mut impl EntrySink,
    ) -> Result<Delivered, Refusal> {
        let group = self.groups.get_mut(group).ok_or(Refusal::NoGroup)?;
        if group.rules.is_some() {
            if to.pending {
                return Ok(Delivered::NeedsReady);
            }
            if group.room() == 0 {
                return Ok(Delivered::Nothing);
            }
        }
        let Some(consumer) = group.consumers.find(to.consumer) else { return Ok(Delivered::NeedsConsumer) };
        let (to, count) = ((consumer, to), count.unwrap_or(u64::MAX));
        let delivery = group.deliver(&self.entries, to, count, sink, &mut self.trimmed_entries);
        Ok(delivery.map_or(Delivered::Nothing, Delivered::Entries))
    }
}

impl Group {
    /// Delivers up to `max_count` of these entries to a consumer of this group.
    #[inline(never)]
    pub(super) fn deliver(
        &mut self,
        entries: &Entries,
        to: (ConsumerHandle, &Recipient<'_>),
        max_count: u64,
        sink: &mut impl EntrySink,
        trimmed_entries: &mut TrimmedEntries,
    ) -> Option<Delivery> {
        if max_count == 0 || !entries.has_after(self.last_id) {
            return None;
        }
        let mut cursor = entries.cursor_after(self)?;
        let (mut count, mut after_last) = (0, None);
        let mut ids = SmallVec::<[StreamId; IDS_PER_CALL]>::new();
        entries.blocks.visit_from(&mut cursor, |entry| {
            after_last = None;
            if !sink.wants(entry) {
                return ControlFlow::Break(());
            }
            if ids.len() == IDS_PER_CALL {
                self.record_delivery(entries, to, &ids);
                ids.clear();
            }
            ids.push(entry.id());
            count += 1;
            after_last = Some(entry.end());
            sink.entry(entry)?;
            if count < max_count { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        self.record_delivery(entries, to, &ids);
        if count > 0 {
            // If the visit ended at an accepted entry, the cursor is still before that entry.
            self.cursor = Some(after_last.map_or(cursor, |position| cursor.at(position)));
            if self.behind_since.is_some() {
                trimmed_entries.catch_up(self);
            }
        }
        (count > 0).then_some(Delivery { last: self.last_id, count })
    }

    /// Records that the consumer got these entries, which are the next ones of the group.
    #[inline]
    fn record_delivery(
        &mut self,
        entries: &Entries,
        (handle, to): (ConsumerHandle, &Recipient<'_>),
        ids: &[StreamId],
    ) {
        let Some(&last) = ids.last() else { return };
        self.consumers.remember(handle);
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

/// Accepts entries up to this id and ignores their content.
pub(super) struct AcceptThrough(pub(super) StreamId);

impl EntrySink for AcceptThrough {
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

    /// Accepts `capacity` entries, and breaks after `stop_after` entries.
    struct LimitedSink {
        capacity: u64,
        stop_after: u64,
        seen: Vec<u64>,
    }

    impl EntrySink for LimitedSink {
        fn wants(&mut self, _: &EntryRef<'_>) -> bool {
            (self.seen.len() as u64) < self.capacity
        }

        fn entry(&mut self, entry: &EntryRef<'_>) -> ControlFlow<()> {
            self.seen.push(entry.id().ms);
            if self.seen.len() as u64 == self.stop_after {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        }
    }

    /// Creates a stream of entries 1 to `count` in blocks of ten, and a group at its start.
    fn stream_of(count: u64) -> Stream {
        let (mut stream, limits) = (Stream::new(), BlockLimits { max_bytes: 0, max_entries: 10 });
        for ms in 1..=count {
            stream.append(StreamId::new(ms, 0), &[b"f", b"v"], limits);
        }
        let create = StreamEffect::GroupCreate { group: b"g", last_id: StreamId::MIN, entries_read: Some(0) };
        stream.apply(&create, limits);
        stream.apply(&StreamEffect::ConsumerCreate { group: b"g", consumer: b"c", at_ms: 1 }, limits);
        stream
    }

    #[test]
    fn deliver_stops_at_each_limit_and_continues_after_it() {
        const ENTRIES: u64 = 3 * IDS_PER_CALL as u64;
        const NEVER: u64 = u64::MAX;
        let to = Recipient { consumer: b"c", at_ms: 7, pending: true };
        for max_count in 1..=ENTRIES + 1 {
            for (count, capacity, stop_after) in
                [(max_count, NEVER, NEVER), (NEVER, max_count, NEVER), (NEVER, NEVER, max_count)]
            {
                let mut stream = stream_of(ENTRIES);
                let mut sink = LimitedSink { capacity, stop_after, seen: Vec::new() };
                let mut next = 1;
                while next <= ENTRIES {
                    sink.seen.clear();
                    let delivery =
                        stream.deliver(b"g", &to, Some(count), &mut sink).unwrap().entries().unwrap();
                    let last = ENTRIES.min(next + max_count - 1);
                    assert_eq!(delivery, Delivery { last: StreamId::new(last, 0), count: last + 1 - next });
                    assert!(sink.seen.iter().copied().eq(next..=last), "{max_count}: {:?}", sink.seen);
                    stream.check().unwrap();
                    let group = stream.group(b"g").unwrap();
                    assert_eq!((group.pending().len(), group.entries_read()), (last, Some(last)));
                    let consumer = group.consumer_at(group.consumer(b"c").unwrap());
                    assert_eq!((consumer.seen_at_ms, consumer.active_at_ms), (7, Some(7)));
                    next = last + 1;
                }
                assert_eq!(stream.deliver(b"g", &to, None, &mut sink), Ok(Delivered::Nothing));
            }
        }
    }

    #[test]
    fn deliver_changes_nothing_if_it_delivers_nothing() {
        let mut stream = stream_of(1);
        let before = format!("{stream:?}");
        let to = Recipient { consumer: b"c", at_ms: 7, pending: true };
        let mut full = LimitedSink { capacity: 0, stop_after: 1, seen: Vec::new() };
        assert_eq!(stream.deliver(b"g", &to, None, &mut full), Ok(Delivered::Nothing));
        let none = stream.deliver(b"g", &to, Some(0), &mut AcceptThrough(StreamId::MAX));
        assert_eq!(none, Ok(Delivered::Nothing));
        assert_eq!(stream.deliver(b"h", &to, None, &mut AcceptThrough(StreamId::MAX)), Err(Refusal::NoGroup));
        let new = Recipient { consumer: b"new", ..to };
        let undelivered = stream.deliver(b"g", &new, None, &mut AcceptThrough(StreamId::MAX));
        assert_eq!(undelivered, Ok(Delivered::NeedsConsumer));
        assert_eq!(format!("{stream:?}"), before);
    }
}
