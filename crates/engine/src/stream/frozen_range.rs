//! A range of entries as it was at one moment, to be read in slices while the stream changes. It shares the
//! blocks of the stream.

use super::entries::Entries;
use super::{Delivery, EntryRef, EntrySink, IdRange, Stream};
use crate::StreamId;

/// A range of entries of a stream, frozen at one moment.
#[derive(Debug)]
pub struct FrozenRange {
    /// Contains only the blocks that hold the entries.
    stream: Stream,
    range: IdRange,
    left: u64,
    backward: bool,
    /// Whether these are delayed entries. `stream` then has a copy of the delayed set instead of blocks.
    delayed: bool,
}

impl Stream {
    /// Returns the number of entries with an id in this range.
    pub fn query_count(&self, range: IdRange) -> u64 {
        if range.first > range.last {
            return 0;
        }
        let before = range.first.prev().map_or(0, |before| self.entries.live_through(before));
        self.entries.live_through(range.last) - before
    }

    /// Freezes the first `count` entries of a range, or the last ones if it is read backwards.
    pub fn freeze_range(&self, range: IdRange, count: u64, backward: bool) -> FrozenRange {
        let matching = self.query_count(range);
        let left = count.min(matching);
        let before = range.first.prev().map_or(0, |before| self.entries.live_through(before));
        let skipped = if backward { matching - left } else { 0 };
        let (first, last) = (before + skipped + 1, before + skipped + left);
        let range = IdRange { first: self.id_of(first), last: self.id_of(last) };
        let blocks = if left > 0 { self.entries.blocks.shared(range) } else { Default::default() };
        let entries = Entries { blocks, last_entry_id: StreamId::MAX, ..Entries::default() };
        FrozenRange { stream: Stream { entries, ..Stream::new() }, range, left, backward, delayed: false }
    }

    /// Freezes the first `count` delayed entries of a range of tickets.
    pub fn freeze_delayed(&self, range: IdRange, count: u64) -> FrozenRange {
        let left = self.delayed().map_or(0, |delayed| delayed.query_count(range).min(count));
        let stream = Stream { delayed: self.delayed.clone(), ..Stream::new() };
        FrozenRange { stream, range, left, backward: false, delayed: true }
    }

    fn id_of(&self, rank: u64) -> StreamId {
        if rank == self.entries.length {
            return self.entries.last_entry_id;
        }
        self.entries.blocks.id_of_rank(rank).unwrap_or(StreamId::MIN)
    }
}

impl FrozenRange {
    /// Returns the number of entries that were not visited yet.
    pub fn left(&self) -> u64 {
        self.left
    }

    /// Returns the last id and the number of the entries that are left.
    pub fn delivery(&self) -> Delivery {
        Delivery { last: self.range.last, count: self.left }
    }

    /// Visits entries, starting where the last call ended, until the sink breaks. The entry at which it
    /// breaks counts as visited.
    pub fn visit(&mut self, sink: &mut impl EntrySink) {
        let mut last = None;
        let mut recording = |entry: &EntryRef<'_>| {
            last = Some(entry.id());
            sink.entry(entry)
        };
        let left = Some(self.left);
        let visited = match self.backward {
            false if self.delayed => {
                self.stream.delayed().map_or(0, |set| set.visit_range(self.range, left, &mut recording))
            }
            false => self.stream.visit_range(self.range, None, &mut recording),
            true => self.stream.visit_range_back(self.range, None, &mut recording),
        };
        self.left -= visited;
        let blocks = &mut self.stream.entries.blocks;
        match (last.and_then(StreamId::next), last.and_then(StreamId::prev)) {
            (Some(next), _) if !self.backward => {
                self.range.first = next;
                blocks.drop_before(next);
            }
            (_, Some(previous)) if self.backward => {
                self.range.last = previous;
                blocks.drop_after(previous);
            }
            _ => {}
        }
    }

    /// Returns the rest for freeing: it can hold the last references to blocks of a long stream.
    pub fn into_stream(self) -> Stream {
        self.stream
    }
}

#[cfg(test)]
mod tests {
    use std::ops::ControlFlow;

    use super::*;
    use crate::{BlockLimits, StreamEffect};

    const LIMITS: BlockLimits = BlockLimits { max_bytes: 4096, max_entries: 7 };

    fn visited_ids(visit: impl FnOnce(&mut dyn FnMut(&EntryRef<'_>) -> ControlFlow<()>)) -> Vec<StreamId> {
        let mut ids = Vec::new();
        visit(&mut |entry: &EntryRef<'_>| {
            ids.push(entry.id());
            ControlFlow::Continue(())
        });
        ids
    }

    /// Creates a stream with gaps, in which whole blocks are missing.
    fn stream(entries: u64, seed: u64) -> Stream {
        let mut stream = Stream::new();
        for n in 1..=entries {
            let id = StreamId::new(n / 3, n % 3 + 1);
            stream.apply(&StreamEffect::Append { id, fields: &[b"n", b"1"] }, LIMITS);
        }
        let is_deleted = |n: &u64| (n / 20) % 4 == seed % 4 || (n * 7 + seed).is_multiple_of(5);
        let ids: Vec<_> = (1..entries).filter(is_deleted).map(|n| StreamId::new(n / 3, n % 3 + 1)).collect();
        stream.apply(&StreamEffect::DeleteEntries { ids: &ids }, LIMITS);
        stream.check().unwrap();
        stream
    }

    #[test]
    fn frozen_delayed_entries_read_in_slices_match_one_visit() {
        let mut stream = Stream::new();
        for n in 1..=500 {
            let ticket = StreamId::new(n * 37 % 101, n);
            stream.apply(&StreamEffect::Delay { ticket, fields: &[b"n", b"1"], at_ms: 0 }, LIMITS);
        }
        let delayed = stream.delayed().unwrap().clone();
        for (first, last, count) in [(0, 200, 1000), (3, 40, 50), (50, 60, 1), (7, 6, 9), (300, 400, 9)] {
            let range = IdRange { first: StreamId::new(first, 0), last: StreamId::new(last, u64::MAX) };
            let whole = visited_ids(|mut sink| {
                delayed.visit_range(range, Some(count), &mut sink);
            });
            let mut frozen = stream.freeze_delayed(range, count);
            assert_eq!(frozen.left(), whole.len() as u64, "{range:?}");
            // Changes to the stream do not affect the frozen range.
            stream.apply(&StreamEffect::Undelay { tickets: &whole[..whole.len().min(3)] }, LIMITS);
            let mut pieces = Vec::new();
            while frozen.left() > 0 {
                let mut slice_left = 1 + pieces.len() % 11;
                frozen.visit(&mut |entry: &EntryRef<'_>| {
                    pieces.push(entry.id());
                    slice_left -= 1;
                    if slice_left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
                });
            }
            assert_eq!(pieces, whole, "{range:?}");
            stream = Stream { delayed: Some(Box::new(delayed.clone())), ..stream };
        }
    }

    #[test]
    fn frozen_range_read_in_slices_matches_one_visit() {
        for seed in 0..40u64 {
            let mut stream = stream(50 + 13 * seed, seed);
            for (first, last) in [(0, 1000), (0, 20), (7, 9), (seed, 2 * seed), (5, 4), (900, 1000)] {
                let range = IdRange { first: StreamId::new(first, 0), last: StreamId::new(last, 2) };
                for (count, backward) in
                    [(1, false), (9, true), (30, false), (u64::MAX, true), (u64::MAX, false)]
                {
                    let whole = visited_ids(|mut sink| {
                        match backward {
                            false => stream.visit_range(range, Some(count), &mut sink),
                            true => stream.visit_range_back(range, Some(count), &mut sink),
                        };
                    });
                    let mut frozen = stream.freeze_range(range, count, backward);
                    assert_eq!(frozen.left(), whole.len() as u64, "{range:?} {count} {backward}");
                    if !whole.is_empty() {
                        assert_eq!(frozen.delivery().last, *whole.iter().max().unwrap());
                    }
                    let mut pieces = Vec::new();
                    while frozen.left() > 0 {
                        let mut slice_left = 1 + (seed as usize + pieces.len()) % 11;
                        frozen.visit(&mut |entry: &EntryRef<'_>| {
                            pieces.push(entry.id());
                            slice_left -= 1;
                            if slice_left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
                        });
                    }
                    assert_eq!(pieces, whole, "{range:?} {count} {backward}");
                }
                assert_eq!(
                    stream.query_count(range),
                    visited_ids(|mut sink| {
                        stream.visit_range(range, None, &mut sink);
                    })
                    .len() as u64
                );
            }
            let all = stream.freeze_range(IdRange::ALL, u64::MAX, false);
            let before = all.left();
            // Changes to the stream do not affect the frozen range.
            let last = stream.last_entry_id();
            stream.apply(&StreamEffect::TrimThrough { last: StreamId::new(10, 0) }, LIMITS);
            stream.apply(&StreamEffect::DeleteEntries { ids: &[last] }, LIMITS);
            let mut all = all;
            assert_eq!(visited_ids(|mut sink| all.visit(&mut sink)).len() as u64, before);
        }
    }
}
