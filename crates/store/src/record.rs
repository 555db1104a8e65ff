//! Builds the record of the transactions that ran under one lock.
//!
//! Requests arrive in batches, and consecutive ones resemble each other. An entry that resembles the entry before it is
//! encoded as its values only. Consecutive deliveries to one consumer at one time are merged into one change. This
//! change is kept back until another change follows or the record is finished.

use std::cell::Cell;

use millstream_engine::stream::EncodedValues;
use millstream_engine::{Effect, Rearrangement, StreamEffect, StreamId};
use smallvec::SmallVec;

use crate::codec::{self, LastEntry};

/// Capacity above which a buffer is freed after use.
const KEEP_BYTES: usize = 1 << 20;

thread_local! {
    /// An empty record, kept to reuse its buffer.
    static SPARE: Cell<Option<Box<Record>>> = const { Cell::new(None) };
}

#[derive(Default)]
pub(crate) struct Record {
    bytes: Vec<u8>,
    /// The entry at the end of `bytes`, if the last change is an entry.
    entry: Option<LastEntry>,
    /// Deliveries merged so far. They come after everything in `bytes`.
    delivery: Option<Delivery>,
    /// Number of bytes that encode redeliveries, by which consumers read their own pending entries again.
    redelivered_bytes: usize,
    /// Number of moves, copies, swaps and clears.
    pub(crate) rearrangements: u64,
}

/// Consecutive deliveries to one consumer, merged so far.
struct Delivery {
    db: u32,
    /// Key, group and consumer, concatenated. `ends` are the ends of the key and of the group.
    names: SmallVec<[u8; 64]>,
    ends: [usize; 2],
    last: StreamId,
    count: u64,
    at_ms: u64,
    pending: bool,
}

impl Record {
    pub(crate) fn begin() -> Box<Record> {
        SPARE.take().unwrap_or_default()
    }

    /// Keeps the buffer of a record that was appended to the log.
    pub(crate) fn recycle(mut self: Box<Record>) {
        if self.bytes.capacity() <= KEEP_BYTES {
            (self.entry, self.delivery, self.redelivered_bytes, self.rearrangements) = (None, None, 0, 0);
            self.bytes.clear();
            SPARE.set(Some(self));
        }
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    #[inline(always)]
    pub(crate) fn put(&mut self, db: u32, key: &[u8], effect: &Effect<'_>) {
        match effect {
            Effect::Stream(delivery @ StreamEffect::Deliver { .. }) => self.put_delivery(db, key, delivery),
            _ => self.put_other(db, key, effect),
        }
    }

    /// Adds an entry that was appended to a stream. `encoded` is its encoding in the stream's block.
    #[inline]
    pub(crate) fn put_entry(
        &mut self,
        (db, key): (u32, &[u8]),
        entry: (StreamId, &[&[u8]]),
        encoded: Option<EncodedValues<'_>>,
    ) {
        if self.delivery.is_some() {
            self.end_delivery();
        }
        codec::put_entry(&mut self.entry, &mut self.bytes, (db, key), entry, encoded);
    }

    pub(crate) fn put_rearrangement(&mut self, change: &Rearrangement<'_>) {
        self.rearrangements += 1;
        codec::put_rearrangement(self.bytes(), change);
    }

    pub(crate) fn finish(&mut self) -> &[u8] {
        self.bytes()
    }

    /// Returns true if consumers only read their own pending entries again. Redis does not count that as a change.
    pub(crate) fn is_only_redelivery(&self) -> bool {
        self.redelivered_bytes == self.bytes.len() && self.delivery.is_none()
    }

    #[inline(never)]
    fn put_other(&mut self, db: u32, key: &[u8], effect: &Effect<'_>) {
        let begin = self.bytes().len();
        codec::put_change(&mut self.bytes, db, key, effect);
        if let Effect::Stream(StreamEffect::Redeliver { .. }) = effect {
            self.redelivered_bytes += self.bytes.len() - begin;
        }
    }

    #[inline(never)]
    fn put_delivery(&mut self, db: u32, key: &[u8], effect: &StreamEffect<'_>) {
        let StreamEffect::Deliver { group, consumer, last, count, at_ms, pending } = *effect else {
            unreachable!("{effect:?} is not a delivery")
        };
        if let Some(run) = &mut self.delivery {
            if (run.db, run.at_ms, run.pending) == (db, at_ms, pending) && run.is_for(key, group, consumer) {
                run.last = last;
                run.count += count;
                return;
            }
            self.end_delivery();
        }
        let mut names = SmallVec::from_slice(key);
        names.extend_from_slice(group);
        let ends = [key.len(), names.len()];
        names.extend_from_slice(consumer);
        self.delivery = Some(Delivery { db, names, ends, last, count, at_ms, pending });
    }

    /// Returns the buffer for the next change.
    #[inline]
    fn bytes(&mut self) -> &mut Vec<u8> {
        self.entry = None;
        if self.delivery.is_some() {
            self.end_delivery();
        }
        &mut self.bytes
    }

    fn end_delivery(&mut self) {
        let Some(run) = self.delivery.take() else { return };
        let Delivery { db, last, count, at_ms, pending, .. } = run;
        let (key, group, consumer) = run.names();
        let effect = StreamEffect::Deliver { group, consumer, last, count, at_ms, pending };
        codec::put_change(self.bytes(), db, key, &Effect::Stream(effect));
    }
}

impl Delivery {
    #[inline]
    fn names(&self) -> (&[u8], &[u8], &[u8]) {
        let [key, group] = self.ends;
        (&self.names[..key], &self.names[key..group], &self.names[group..])
    }

    #[inline]
    fn is_for(&self, key: &[u8], group: &[u8], consumer: &[u8]) -> bool {
        self.names() == (key, group, consumer)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use millstream_engine::{BlockLimits, Stream};

    use super::*;
    use crate::codec::RecordedChange;

    fn entry(seq: u64, fields: &'static [&'static [u8]]) -> StreamEffect<'static> {
        StreamEffect::Append { id: StreamId::new(5, seq), fields }
    }

    fn deliver(consumer: &'static [u8], last: u64, count: u64) -> StreamEffect<'static> {
        let last = StreamId::new(last, 0);
        StreamEffect::Deliver { group: b"g", consumer, last, count, at_ms: 7, pending: true }
    }

    fn changes(record: &mut Record) -> Vec<String> {
        let mut found = Vec::new();
        codec::replay(record.finish(), &mut |change| {
            found.push(match change {
                RecordedChange::Key { db, key, effect } => format!("{db} {} {effect:?}", key.escape_ascii()),
                RecordedChange::Rearrange(change) => format!("{change:?}"),
            });
        })
        .unwrap();
        found
    }

    /// Returns the decoded changes of a record to which these changes were added one by one.
    fn joined(puts: &[(u32, &[u8], StreamEffect<'_>)]) -> Vec<String> {
        changes(&mut record_of(puts))
    }

    fn record_of(puts: &[(u32, &[u8], StreamEffect<'_>)]) -> Record {
        let (mut record, mut streams) = (Record::default(), Streams::new());
        puts.iter().for_each(|(db, key, effect)| put(&mut record, &mut streams, (*db, key), effect));
        record
    }

    type Streams<'a> = BTreeMap<(u32, &'a [u8]), Stream>;

    fn put<'a>(
        record: &mut Record,
        streams: &mut Streams<'a>,
        place: (u32, &'a [u8]),
        effect: &StreamEffect<'_>,
    ) {
        let StreamEffect::Append { id, fields } = *effect else {
            return record.put(place.0, place.1, &Effect::Stream(*effect));
        };
        let stream = streams.entry(place).or_default();
        let encoded = stream.append(id, fields, BlockLimits { max_bytes: 0, max_entries: 3 });
        record.put_entry(place, (id, fields), encoded);
    }

    #[test]
    fn consecutive_deliveries_become_one_change() {
        let pieces = [
            (0, &b"k"[..], deliver(b"c", 3, 3)),
            (0, b"k", deliver(b"c", 4, 1)),
            (0, b"k", deliver(b"c", 9, 2)),
        ];
        assert_eq!(joined(&pieces), joined(&[(0, b"k", deliver(b"c", 9, 6))]));
        assert_eq!(joined(&pieces).len(), 1);
    }

    #[test]
    fn different_delivery_or_other_change_ends_the_merging() {
        let first = (0, &b"key"[..], deliver(b"c", 3, 3));
        let StreamEffect::Deliver { consumer, last, count, .. } = deliver(b"c", 4, 1) else { unreachable!() };
        let changed =
            |group, at_ms, pending| StreamEffect::Deliver { group, consumer, last, count, at_ms, pending };
        for next in [
            (1, &b"key"[..], deliver(b"c", 4, 1)),
            (0, b"ke", changed(b"yg", 7, true)),
            (0, b"key", deliver(b"d", 4, 1)),
            (0, b"key", changed(b"h", 7, true)),
            (0, b"key", changed(b"g", 8, true)),
            (0, b"key", changed(b"g", 7, false)),
        ] {
            let both = joined(&[first, next]);
            assert_eq!(both, [joined(&[first]), joined(&[next])].concat());
        }
        let ack = (0, &b"key"[..], StreamEffect::Ack { group: b"g", ids: &[StreamId::new(3, 0)] });
        assert_eq!(
            joined(&[first, ack, first]),
            [joined(&[first]), joined(&[ack]), joined(&[first])].concat()
        );
    }

    #[test]
    fn entries_are_decoded_whatever_they_have_in_common() {
        let first = (0, &b"key"[..], entry(1, &[b"name", b"v", b"", b"1"]));
        for (next, bytes) in [
            ((0, &b"key"[..], entry(2, &[b"name", b"other", b"", b""])), 9),
            ((0, b"key", entry(2, &[b"name", b"1234567890", b"", b""])), 8),
            ((0, b"key", entry(3, &[b"name", b"v", b"", b"1"])), 19),
            ((1, b"key", entry(2, &[b"name", b"v", b"", b"1"])), 19),
            ((0, b"kez", entry(2, &[b"name", b"v", b"", b"1"])), 19),
            ((0, b"key", entry(2, &[b"name", b"v"])), 16),
            ((0, b"key", entry(2, &[b"nam", b"v", b"", b"1"])), 18),
            ((0, b"key", entry(2, &[b"name", b"v", b"n", b"1"])), 20),
            ((0, b"key", deliver(b"c", 5, 1)), 14),
        ] {
            assert_eq!(joined(&[first, next]), [joined(&[first]), joined(&[next])].concat());
            let length = |puts: &[_]| record_of(puts).finish().len();
            assert_eq!(length(&[first, next]) - length(&[first]), bytes, "{next:?}");
        }
    }

    #[test]
    fn short_form_is_used_only_within_a_block_with_the_same_field_names() {
        const ALIKE: &[&[u8]] = &[b"name", b"v"];
        const OTHER: &[&[u8]] = &[b"other", b"v"];
        let lengths = |fields: &[&'static [&'static [u8]]]| {
            let of = |count: usize| {
                let entries =
                    (1..).zip(fields).take(count).map(|(seq, fields)| (0, &b"k"[..], entry(seq, fields)));
                let puts: Vec<_> = entries.collect();
                let each: Vec<_> = puts.iter().flat_map(|put| joined(&[*put])).collect();
                assert_eq!(joined(&puts), each);
                record_of(&puts).finish().len()
            };
            (0..fields.len()).map(|before| of(before + 1) - of(before)).collect::<Vec<_>>()
        };
        let (whole, next) = (14, 4);
        assert_eq!(lengths(&[ALIKE; 5]), [whole, next, next, whole, next]);
        // A block stores only the field names of its first entry.
        assert_eq!(lengths(&[ALIKE, OTHER, OTHER]), [whole, whole + 1, whole + 1]);
        assert_eq!(lengths(&[ALIKE, OTHER, ALIKE]), [whole, whole + 1, whole]);
    }

    #[test]
    fn new_record_is_empty_whatever_the_previous_contained() {
        for _ in 0..2 {
            let mut record = Record::begin();
            assert!(record.finish().is_empty());
            let mut streams = Streams::new();
            put(&mut record, &mut streams, (0, b"k"), &entry(1, &[b"n", b"v"]));
            record.put_rearrangement(&Rearrangement::Clear(3));
            put(&mut record, &mut streams, (0, b"k"), &entry(2, &[b"n", b"v"]));
            record.put(0, b"k", &Effect::Stream(deliver(b"c", 1, 1)));
            assert_eq!(changes(&mut record).len(), 4);
            record.put(0, b"k", &Effect::Stream(deliver(b"c", 1, 1)));
            record.recycle();
        }
    }
}
