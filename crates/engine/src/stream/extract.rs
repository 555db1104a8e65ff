//! A run of entries as it was at one moment, to be read bit by bit while the stream goes on: it shares the blocks.

use super::entries::Entries;
use super::{Delivery, EntryRef, EntrySink, IdRange, Stream};
use crate::StreamId;

/// Entries of a stream, as they were when they were extracted.
#[derive(Debug)]
pub struct Extract {
    /// Nothing but the blocks that hold the entries.
    stream: Stream,
    /// What was not shown yet.
    range: IdRange,
    left: u64,
    backward: bool,
}

impl Stream {
    /// How many entries have an id in this range.
    pub fn query_count(&self, range: IdRange) -> u64 {
        if range.first > range.last {
            return 0;
        }
        let before = range.first.prev().map_or(0, |before| self.entries.live_through(before));
        self.entries.live_through(range.last) - before
    }

    /// The first entries of a range, or the last, backwards; at most `count`.
    pub fn extract(&self, range: IdRange, count: u64, backward: bool) -> Extract {
        let there = self.query_count(range);
        let left = count.min(there);
        let before = range.first.prev().map_or(0, |before| self.entries.live_through(before));
        let skipped = if backward { there - left } else { 0 };
        let (first, last) = (before + skipped + 1, before + skipped + left);
        let range = IdRange { first: self.id_of(first), last: self.id_of(last) };
        let blocks = if left > 0 { self.entries.blocks.shared(range) } else { Default::default() };
        let entries = Entries { blocks, last_entry_id: StreamId::MAX, ..Entries::default() };
        Extract { stream: Stream { entries, ..Stream::new() }, range, left, backward }
    }

    /// The id of the entry that has this many before it and itself.
    fn id_of(&self, rank: u64) -> StreamId {
        if rank == self.entries.length {
            return self.entries.last_entry_id;
        }
        self.entries.blocks.id_of_rank(rank).unwrap_or(StreamId::MIN)
    }
}

impl Extract {
    /// How many entries were not shown yet.
    pub fn left(&self) -> u64 {
        self.left
    }

    /// What is to be shown, as a run of entries.
    pub fn delivery(&self) -> Delivery {
        Delivery { last: self.range.last, count: self.left }
    }

    /// Shows entries, from where the last call ended, until the sink breaks: what it breaks at counts as shown.
    pub fn visit(&mut self, sink: &mut impl EntrySink) {
        let mut last = None;
        let mut noting = |entry: &EntryRef<'_>| {
            last = Some(entry.id());
            sink.entry(entry)
        };
        let shown = match self.backward {
            false => self.stream.visit_range(self.range, None, &mut noting),
            true => self.stream.visit_range_back(self.range, None, &mut noting),
        };
        self.left -= shown;
        let blocks = &mut self.stream.entries.blocks;
        match (last.and_then(StreamId::next), last.and_then(StreamId::prev)) {
            (Some(next), _) if !self.backward => {
                self.range.first = next;
                blocks.let_go_before(next);
            }
            (_, Some(previous)) if self.backward => {
                self.range.last = previous;
                blocks.let_go_after(previous);
            }
            _ => {}
        }
    }

    /// What is left of it, to be freed: it may hold the last of a long stream.
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

    fn shown(visit: impl FnOnce(&mut dyn FnMut(&EntryRef<'_>) -> ControlFlow<()>)) -> Vec<StreamId> {
        let mut ids = Vec::new();
        visit(&mut |entry: &EntryRef<'_>| {
            ids.push(entry.id());
            ControlFlow::Continue(())
        });
        ids
    }

    /// A stream with gaps and whole blocks missing.
    fn stream(entries: u64, seed: u64) -> Stream {
        let mut stream = Stream::new();
        for n in 1..=entries {
            let id = StreamId::new(n / 3, n % 3 + 1);
            stream.apply(&StreamEffect::Append { id, fields: &[b"n", b"1"] }, LIMITS);
        }
        let gone = |n: &u64| (n / 20) % 4 == seed % 4 || (n * 7 + seed).is_multiple_of(5);
        let ids: Vec<_> = (1..entries).filter(gone).map(|n| StreamId::new(n / 3, n % 3 + 1)).collect();
        stream.apply(&StreamEffect::DeleteEntries { ids: &ids }, LIMITS);
        stream.check().unwrap();
        stream
    }

    #[test]
    fn an_extract_shows_what_a_visit_shows_however_it_is_cut() {
        for seed in 0..40u64 {
            let mut stream = stream(50 + 13 * seed, seed);
            for (first, last) in [(0, 1000), (0, 20), (7, 9), (seed, 2 * seed), (5, 4), (900, 1000)] {
                let range = IdRange { first: StreamId::new(first, 0), last: StreamId::new(last, 2) };
                for (count, backward) in
                    [(1, false), (9, true), (30, false), (u64::MAX, true), (u64::MAX, false)]
                {
                    let whole = shown(|mut sink| {
                        match backward {
                            false => stream.visit_range(range, Some(count), &mut sink),
                            true => stream.visit_range_back(range, Some(count), &mut sink),
                        };
                    });
                    let mut extract = stream.extract(range, count, backward);
                    assert_eq!(extract.left(), whole.len() as u64, "{range:?} {count} {backward}");
                    if !whole.is_empty() {
                        assert_eq!(extract.delivery().last, *whole.iter().max().unwrap());
                    }
                    let mut pieces = Vec::new();
                    while extract.left() > 0 {
                        let mut room = 1 + (seed as usize + pieces.len()) % 11;
                        extract.visit(&mut |entry: &EntryRef<'_>| {
                            pieces.push(entry.id());
                            room -= 1;
                            if room == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
                        });
                    }
                    assert_eq!(pieces, whole, "{range:?} {count} {backward}");
                }
                assert_eq!(
                    stream.query_count(range),
                    shown(|mut sink| {
                        stream.visit_range(range, None, &mut sink);
                    })
                    .len() as u64
                );
            }
            let all = stream.extract(IdRange::ALL, u64::MAX, false);
            let before = all.left();
            // Whatever becomes of the stream, the extract stays.
            let last = stream.last_entry_id();
            stream.apply(&StreamEffect::TrimThrough { last: StreamId::new(10, 0) }, LIMITS);
            stream.apply(&StreamEffect::DeleteEntries { ids: &[last] }, LIMITS);
            let mut all = all;
            assert_eq!(shown(|mut sink| all.visit(&mut sink)).len() as u64, before);
        }
    }
}
