//! A chunk: up to 256 consecutive rows of a pending list, in columns, in one allocation.
//!
//! ```text
//! bytes:  | ms × capacity | seq × capacity | time × capacity | consumer × capacity | count × capacity | 8 |
//!         ^ starts[0]     ^ starts[1]      ^ starts[2]       ^ starts[3]           ^ starts[4]
//! ```
//!
//! The last 8 bytes are padding, so that a number of any width can be read with an 8-byte load.
//!
//! Each column has its own base and width ([`Encoding`]). A column whose numbers are all equal takes no
//! bytes. Every column has `capacity` slots. The `len` slots from slot `head` on hold the rows in the order
//! of their ids; the others are free. When a row is removed, either the rows before it or the rows after it
//! move to close the gap, whichever are fewer.
//!
//! The consumer column holds 0 for a row without an owner, and otherwise the owner's handle plus one. The
//! time column of a row without an owner holds its release stamp or due time.
//!
//! A number that does not fit makes its column wider. Columns become narrow again when the chunk is
//! re-fitted: when it is half empty, and after a number of changes equal to a quarter of its capacity. So an
//! outlier that was removed does not cost memory for long, and no single change costs much.
//!
//! A chunk does not know its neighbours and keeps no summary of itself. A page keeps the summaries of its
//! chunks.

mod visit;

use std::cmp::Ordering;
use std::iter;
use std::ops::Range;

use super::column::{Column, Encoding, Extent, READ_BYTES, Width};
use super::{ConsumerHandle, NewRows, PendingEntry};
use crate::StreamId;

pub(super) const ROWS_MAX: usize = 256;
/// A chunk of this size or smaller keeps its memory: re-fitting it would cost more than it saves.
const KEEP_BYTES_MAX: usize = 256;
/// Capacities are multiples of this, up to [`ROWS_MAX`].
const CAPACITY_STEP: usize = 8;

const COLUMNS: usize = 5;
const MS: usize = 0;
const SEQ: usize = 1;
const TIME: usize = 2;
const CONSUMER: usize = 3;
const COUNT: usize = 4;

/// The value in the consumer column of a row without an owner.
const UNOWNED: u64 = 0;

/// A pending entry as one number per column.
type Row = [u64; COLUMNS];

/// A run of pending entries in columns.
#[derive(Clone)]
pub(super) struct Chunk {
    bytes: Box<[u8]>,
    bases: [u64; COLUMNS],
    starts: [u16; COLUMNS],
    head: u16,
    len: u16,
    /// Slots per column: at least `head + len`, at most [`ROWS_MAX`].
    capacity: u16,
    unowned: u16,
    widths: [Width; COLUMNS],
    /// Replacements and removals since the chunk was last re-fitted. Saturates.
    changes: u8,
}

impl Chunk {
    /// Creates a chunk of full capacity with one row. It starts with the column widths of `previous`, because
    /// its rows will probably be similar.
    pub(super) fn following(previous: &Chunk, entry: &PendingEntry) -> Chunk {
        let row = row_of(entry);
        let encodings = std::array::from_fn(|k| previous.encoding(k).starting_at(row[k]));
        let mut chunk = Chunk::empty(encodings, ROWS_MAX);
        chunk.write(0, &row);
        chunk.count_added(entry);
        chunk
    }

    /// Adds the first row to an empty chunk, whose capacity and column widths stay as they are.
    pub(super) fn push_first(&mut self, entry: &PendingEntry) {
        let row = row_of(entry);
        self.bases = std::array::from_fn(|k| self.encoding(k).starting_at(row[k]).base);
        (self.head, self.changes) = (0, 0);
        self.push(entry);
    }

    fn empty(encodings: [Encoding; COLUMNS], capacity: usize) -> Chunk {
        let mut starts = [0; COLUMNS];
        let mut end = 0;
        for (start, encoding) in starts.iter_mut().zip(encodings) {
            *start = end as u16;
            end += capacity * encoding.width.bytes();
        }
        let bytes = if end == 0 { 0 } else { end + READ_BYTES };
        Chunk {
            bytes: vec![0; bytes].into_boxed_slice(),
            bases: encodings.map(|encoding| encoding.base),
            starts,
            head: 0,
            len: 0,
            capacity: capacity as u16,
            unowned: 0,
            widths: encodings.map(|encoding| encoding.width),
            changes: 0,
        }
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        usize::from(self.len)
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    #[inline]
    pub(super) fn is_full(&self) -> bool {
        self.len() == ROWS_MAX
    }

    #[inline]
    pub(super) fn id(&self, at: usize) -> StreamId {
        StreamId::new(self.read(MS, at), self.read(SEQ, at))
    }

    #[inline]
    pub(super) fn first_id(&self) -> StreamId {
        self.id(0)
    }

    #[inline]
    pub(super) fn last_id(&self) -> StreamId {
        self.id(self.len() - 1)
    }

    pub(super) fn first(&self) -> Option<PendingEntry> {
        (!self.is_empty()).then(|| self.entry(0))
    }

    pub(super) fn last(&self) -> Option<PendingEntry> {
        (!self.is_empty()).then(|| self.entry(self.len() - 1))
    }

    /// Returns the row with this id as it is stored.
    #[inline]
    pub(super) fn get(&self, id: StreamId) -> Option<PendingEntry> {
        self.find(id).ok().map(|row| self.stored(row))
    }

    pub(super) fn entry(&self, at: usize) -> PendingEntry {
        self.stored(at).without_stamp()
    }

    /// Returns row `at` as it is stored: a released row has its stamp or due time as delivery time.
    #[inline]
    pub(super) fn stored(&self, at: usize) -> PendingEntry {
        self.stored_as(at, self.id(at))
    }

    /// Returns row `at`, whose id is `id`, as it is stored.
    #[inline(always)]
    fn stored_as(&self, at: usize, id: StreamId) -> PendingEntry {
        PendingEntry {
            id,
            consumer: owner_of(self.read(CONSUMER, at)),
            delivered_at_ms: self.read(TIME, at),
            deliveries: self.read(COUNT, at),
        }
    }

    pub(super) fn first_time_ms(&self) -> u64 {
        self.read(TIME, 0)
    }

    pub(super) fn unowned(&self) -> usize {
        self.unowned.into()
    }

    /// Returns the index of the row with this id, or the index at which it would be inserted.
    pub(super) fn find(&self, id: StreamId) -> Result<usize, usize> {
        let low = self.column(MS).count_below(id.ms);
        if low == self.len() || self.read(MS, low) != id.ms {
            return Err(low);
        }
        let Some(ahead) = id.seq.checked_sub(self.read(SEQ, low)) else { return Err(low) };
        // Within a millisecond the sequence numbers ascend. So the row is `ahead` rows further, or fewer if
        // ids in between are missing.
        let ahead = usize::try_from(ahead).unwrap_or(ROWS_MAX).min(self.len() - 1 - low);
        match self.id(low + ahead).cmp(&id) {
            Ordering::Equal => Ok(low + ahead),
            Ordering::Less => Err(low + ahead + 1),
            Ordering::Greater => self.find_between(low, low + ahead, id),
        }
    }

    /// Searches the rows `low..high`. The id of row `high` is greater than `id`.
    fn find_between(&self, mut low: usize, mut high: usize, id: StreamId) -> Result<usize, usize> {
        while low < high {
            let middle = (low + high) / 2;
            match self.id(middle).cmp(&id) {
                Ordering::Equal => return Ok(middle),
                Ordering::Less => low = middle + 1,
                Ordering::Greater => high = middle,
            }
        }
        Err(low)
    }

    /// Appends a row. The chunk is not full, and the id is greater than all others.
    #[inline]
    pub(super) fn push(&mut self, entry: &PendingEntry) {
        let row = row_of(entry);
        self.make_room(&row);
        self.write(self.len(), &row);
        self.count_added(entry);
    }

    /// Appends rows of `run`, starting with its row `from`, as many as fit but at least one. The chunk is not
    /// full, and the ids are greater than all others. Returns how many were appended.
    pub(super) fn push_run(&mut self, run: &NewRows<'_>, from: usize) -> usize {
        // If the first row fits, most others do too.
        self.make_room(&row_of(&run.row(from)));
        let free_slots = usize::from(self.capacity - self.head - self.len);
        let ids = &run.ids[from..];
        let (ms, seq) = (self.encoding(MS), self.encoding(SEQ));
        let count = count_fitting(&ids[..ids.len().min(free_slots)], ms, seq);
        let rows = self.len()..self.len() + count;
        let (seqs, times) = (self.range_of(SEQ, rows.clone()), self.range_of(TIME, rows.clone()));
        let owners = self.range_of(CONSUMER, rows.clone());
        let counts = self.range_of(COUNT, rows.clone());
        let mss = self.range_of(MS, rows);
        ms.write_run(&mut self.bytes[mss], ids[..count].iter().map(|id| id.ms));
        seq.write_run(&mut self.bytes[seqs], ids[..count].iter().map(|id| id.seq));
        let time = self.encoding(TIME);
        time.write_run(&mut self.bytes[times], iter::repeat(run.delivered_at_ms));
        let owner = owner_number(Some(run.consumer));
        let consumer = self.encoding(CONSUMER);
        consumer.write_run(&mut self.bytes[owners], iter::repeat(owner));
        let deliveries = self.encoding(COUNT);
        deliveries.write_run(&mut self.bytes[counts], iter::repeat(1));
        self.len += count as u16;
        count
    }

    pub(super) fn insert(&mut self, at: usize, entry: &PendingEntry) {
        let row = row_of(entry);
        self.make_room(&row);
        self.shift(at..self.len(), at + 1);
        self.write(at, &row);
        self.count_added(entry);
    }

    /// Replaces row `at`. Returns whether the chunk was re-fitted.
    pub(super) fn replace(&mut self, at: usize, entry: &PendingEntry) -> bool {
        let row = row_of(entry);
        if !self.holds(&row) {
            self.widen_for(&row);
        }
        self.unowned -= u16::from(self.is_unowned(at));
        self.unowned += u16::from(entry.consumer.is_none());
        self.write(at, &row);
        self.count_change()
    }

    /// Removes row `at`, whose id is `id`. Returns the row as it was stored, and whether the chunk was
    /// re-fitted.
    #[inline(always)]
    pub(super) fn take(&mut self, at: usize, id: StreamId) -> (PendingEntry, bool) {
        let stored = self.stored_as(at, id);
        (stored, self.remove(at))
    }

    #[inline(always)]
    fn remove(&mut self, at: usize) -> bool {
        self.unowned -= u16::from(self.is_unowned(at));
        let forwards = at < self.len() / 2;
        let (moved, to) = if forwards { (0..at, 1) } else { (at + 1..self.len(), at) };
        if !moved.is_empty() {
            self.shift(moved, to);
        }
        self.head += u16::from(forwards);
        self.len -= 1;
        self.count_change()
    }

    pub(super) fn remove_consumer(&mut self, consumer: ConsumerHandle) -> usize {
        let handle = owner_number(Some(consumer));
        let consumers = self.column(CONSUMER);
        let Some(first) = consumers.find_equal(0, handle) else { return 0 };
        let mut kept = Chunk::empty(self.encodings(), self.capacity.into());
        let (mut from, mut gone) = (0, Some(first));
        while let Some(at) = gone {
            if from < at {
                kept.extend(self, from..at);
            }
            from = at + 1;
            gone = consumers.find_equal(from, handle);
        }
        kept.extend(self, from..self.len());
        let removed = self.len() - kept.len();
        *self = kept;
        self.fit();
        removed
    }

    pub(super) fn split(&mut self) -> Chunk {
        let half = self.len() / 2;
        let upper = self.fitted(half..self.len());
        *self = self.fitted(0..half);
        upper
    }

    pub(super) fn merge(&mut self, next: &Chunk) {
        let encodings = std::array::from_fn(|k| {
            Encoding::narrowest(self.column(k).extent().join(next.column(k).extent()))
        });
        let mut both = Chunk::empty(encodings, capacity_for(self.len() + next.len()));
        both.extend(self, 0..self.len());
        both.extend(next, 0..next.len());
        *self = both;
    }

    /// Re-fits the chunk: makes every column as narrow as its numbers allow, and frees slots if half of them
    /// are unused.
    pub(super) fn fit(&mut self) {
        let encodings = self.narrowest_encodings(0..self.len());
        let capacity = if self.is_half_empty() { capacity_for(self.len()) } else { self.capacity.into() };
        self.changes = 0;
        if capacity != usize::from(self.capacity)
            || (0..COLUMNS).any(|k| encodings[k].width != self.widths[k])
        {
            self.rebuild(encodings, capacity);
        }
    }

    pub(super) fn allocated_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Returns whether re-fitting would free slots. In a page only the last chunk can be in this state, while
    /// it fills up.
    #[inline]
    pub(super) fn is_half_empty(&self) -> bool {
        self.bytes.len() > KEEP_BYTES_MAX
            && self.len() * 2 < self.capacity.into()
            && usize::from(self.capacity) > CAPACITY_STEP
    }

    /// Returns whether row `at` exists, has an owner and was delivered at this time.
    #[inline]
    pub(super) fn was_delivered_at(&self, at: usize, time_ms: u64) -> bool {
        at < self.len() && self.read(TIME, at) == time_ms && !self.is_unowned(at)
    }

    #[inline]
    fn is_unowned(&self, at: usize) -> bool {
        self.unowned > 0 && self.read(CONSUMER, at) == UNOWNED
    }

    #[inline]
    fn count_added(&mut self, entry: &PendingEntry) {
        self.len += 1;
        self.unowned += u16::from(entry.consumer.is_none());
    }

    #[inline]
    fn count_change(&mut self) -> bool {
        self.changes = self.changes.saturating_add(1);
        if self.bytes.len() <= KEEP_BYTES_MAX {
            return false;
        }
        let often = usize::from(self.capacity / 4).max(CAPACITY_STEP);
        let due = usize::from(self.changes) >= often || self.is_half_empty();
        if due && self.len > 0 {
            self.fit();
        }
        due
    }

    #[inline(always)]
    fn make_room(&mut self, row: &Row) {
        debug_assert!(!self.is_full());
        if self.head + self.len == self.capacity {
            self.make_free_slot();
        }
        if !self.holds(row) {
            self.widen_for(row);
        }
    }

    /// Makes a free slot at the end. Moves the rows to the front if that frees at least a quarter of the
    /// slots; otherwise increases the capacity by half.
    #[cold]
    fn make_free_slot(&mut self) {
        let (len, capacity) = (self.len(), usize::from(self.capacity));
        if len * 4 <= capacity * 3 {
            for k in 0..COLUMNS {
                let rows = self.range_of(k, 0..len);
                self.bytes.copy_within(rows, self.starts[k].into());
            }
            self.head = 0;
        } else {
            self.rebuild(self.encodings(), capacity_for(len + len / 2 + 1));
        }
    }

    #[inline]
    fn holds(&self, row: &Row) -> bool {
        (0..COLUMNS).all(|k| self.encoding(k).holds(row[k]))
    }

    #[cold]
    fn widen_for(&mut self, row: &Row) {
        let encodings = std::array::from_fn(|k| {
            let encoding = self.encoding(k);
            if encoding.holds(row[k]) {
                encoding
            } else {
                Encoding::with_headroom(self.column(k).extent().join(Extent::of(row[k])))
            }
        });
        // A small chunk keeps its unused slots. After widening, they could take too much memory.
        let keeps_room = self.bytes.len() > KEEP_BYTES_MAX || self.len() * 2 >= self.capacity.into();
        self.rebuild(encodings, if keeps_room { self.capacity.into() } else { capacity_for(self.len() + 1) });
    }

    fn rebuild(&mut self, encodings: [Encoding; COLUMNS], capacity: usize) {
        let mut next = Chunk::empty(encodings, capacity);
        next.extend(self, 0..self.len());
        next.changes = self.changes;
        *self = next;
    }

    fn fitted(&self, rows: Range<usize>) -> Chunk {
        let mut chunk = Chunk::empty(self.narrowest_encodings(rows.clone()), capacity_for(rows.len()));
        chunk.extend(self, rows);
        chunk
    }

    fn narrowest_encodings(&self, rows: Range<usize>) -> [Encoding; COLUMNS] {
        std::array::from_fn(|k| Encoding::narrowest(self.rows_of(k, rows.clone()).extent()))
    }

    fn extend(&mut self, source: &Chunk, rows: Range<usize>) {
        for k in 0..COLUMNS {
            let (encoding, column) = (self.encoding(k), source.rows_of(k, rows.clone()));
            let range = self.range_of(k, self.len()..self.len() + rows.len());
            let target = &mut self.bytes[range];
            if encoding == source.encoding(k) {
                target.copy_from_slice(column.bytes());
            } else {
                encoding.write_all(target, column.decode(&mut [0; ROWS_MAX]));
            }
        }
        self.len += rows.len() as u16;
        if source.unowned > 0 {
            self.unowned += rows.filter(|at| source.is_unowned(*at)).count() as u16;
        }
    }

    fn shift(&mut self, rows: Range<usize>, to: usize) {
        for k in 0..COLUMNS {
            if self.widths[k] != Width::Zero {
                let moved = self.range_of(k, rows.clone());
                self.bytes.copy_within(moved, self.offset_of(k, to));
            }
        }
    }

    #[inline(always)]
    fn read(&self, k: usize, at: usize) -> u64 {
        self.encoding(k).read(&self.bytes, self.offset_of(k, at))
    }

    #[inline(always)]
    fn write(&mut self, at: usize, row: &Row) {
        for (k, value) in row.iter().enumerate() {
            let offset = self.offset_of(k, at);
            self.encoding(k).write(&mut self.bytes, offset, *value);
        }
    }

    #[inline]
    fn column(&self, k: usize) -> Column<'_> {
        self.rows_of(k, 0..self.len())
    }

    #[inline]
    fn rows_of(&self, k: usize, rows: Range<usize>) -> Column<'_> {
        Column::new(self.encoding(k), &self.bytes[self.range_of(k, rows.clone())], rows.len())
    }

    #[inline(always)]
    fn offset_of(&self, k: usize, at: usize) -> usize {
        // Wrapping is safe: only a row index far out of range could overflow, and the access to `bytes` would
        // fail.
        let offset = usize::from(self.head).wrapping_add(at).wrapping_mul(self.widths[k].bytes());
        usize::from(self.starts[k]).wrapping_add(offset)
    }

    #[inline(always)]
    fn range_of(&self, k: usize, rows: Range<usize>) -> Range<usize> {
        self.offset_of(k, rows.start)..self.offset_of(k, rows.end)
    }

    #[inline(always)]
    fn encoding(&self, k: usize) -> Encoding {
        Encoding { base: self.bases[k], width: self.widths[k] }
    }

    fn encodings(&self) -> [Encoding; COLUMNS] {
        std::array::from_fn(|k| self.encoding(k))
    }

    pub(super) fn check(&self) -> Result<(), String> {
        let (len, capacity) = (self.len(), usize::from(self.capacity));
        let end = usize::from(self.head) + len;
        let fail = |what: &str| Err(format!("chunk of {len} rows, capacity {capacity}: {what}"));
        if len == 0 || end > capacity || capacity > ROWS_MAX {
            return fail("length or capacity out of range");
        }
        let expected = Chunk::empty(self.encodings(), capacity);
        if expected.starts != self.starts || expected.bytes.len() != self.bytes.len() {
            return fail("the columns have wrong offsets");
        }
        if (0..COLUMNS).any(|k| self.widths[k] == Width::Eight && self.bases[k] != 0) {
            return fail("a column of width eight has a base other than zero");
        }
        if (0..COLUMNS).any(|k| self.column(k).min() < self.bases[k]) {
            return fail("a number is smaller than the base of its column");
        }
        if (1..len).any(|at| self.id(at - 1) >= self.id(at)) {
            return fail("ids do not ascend");
        }
        if self.column(CONSUMER).max() > owner_number(Some(ConsumerHandle(u32::MAX))) {
            return fail("a consumer number is greater than any handle");
        }
        if (0..len).filter(|at| self.read(CONSUMER, *at) == UNOWNED).count() != self.unowned() {
            return fail("the number of rows without an owner is wrong");
        }
        Ok(())
    }
}

impl Default for Chunk {
    /// Returns a chunk without rows. It allocates nothing, because its columns have width zero.
    fn default() -> Chunk {
        Chunk::empty([Encoding::narrowest(Extent::of(0)); COLUMNS], CAPACITY_STEP)
    }
}

#[inline]
fn row_of(entry: &PendingEntry) -> Row {
    let mut row = [0; COLUMNS];
    row[MS] = entry.id.ms;
    row[SEQ] = entry.id.seq;
    row[TIME] = entry.delivered_at_ms;
    row[CONSUMER] = owner_number(entry.consumer);
    row[COUNT] = entry.deliveries;
    row
}

#[inline]
fn owner_number(owner: Option<ConsumerHandle>) -> u64 {
    owner.map_or(UNOWNED, |handle| u64::from(handle.0) + 1)
}

#[inline]
fn owner_of(number: u64) -> Option<ConsumerHandle> {
    number.checked_sub(1).map(|handle| ConsumerHandle(handle as u32))
}

/// Returns how many of these ids fit before the first one that does not. The ids ascend, and the first one
/// fits.
fn count_fitting(ids: &[StreamId], ms: Encoding, seq: Encoding) -> usize {
    match ids {
        // Within one millisecond all sequence numbers are between the first and the last.
        [first, .., last] if first.ms == last.ms && seq.holds(last.seq) => ids.len(),
        [.., last] if ms.holds(last.ms) => ids.iter().take_while(|id| seq.holds(id.seq)).count(),
        _ => ids.iter().take_while(|id| ms.holds(id.ms) && seq.holds(id.seq)).count(),
    }
}

fn capacity_for(rows: usize) -> usize {
    rows.next_multiple_of(CAPACITY_STEP).clamp(CAPACITY_STEP, ROWS_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(n: u64) -> PendingEntry {
        PendingEntry {
            id: StreamId::new(n, 0),
            consumer: Some(ConsumerHandle(1)),
            delivered_at_ms: 1000 + n,
            deliveries: 1,
        }
    }

    #[test]
    fn sliding_window_of_rows_stays_small() {
        for window in (1..40).chain([127, 128, 253, 254]) {
            let mut chunk = Chunk::default();
            chunk.push_first(&entry(0));
            for n in 1..2000 {
                chunk.push(&entry(n));
                assert!(!chunk.is_half_empty(), "{} of {} slots", chunk.len, chunk.capacity);
                if n > window {
                    chunk.remove(0);
                }
                assert!(!chunk.is_half_empty(), "{} of {} slots", chunk.len, chunk.capacity);
            }
            chunk.check().expect("sound");
            assert_eq!(chunk.first_id(), StreamId::new(1999 - window, 0));
            let bytes = 4 * usize::from(chunk.capacity) + READ_BYTES;
            assert!(chunk.allocated_bytes() <= bytes, "ids and times take two bytes each");
        }
    }

    #[test]
    fn find_handles_missing_sequence_numbers() {
        let ids = [(5, 1), (5, 2), (5, 9), (6, 0), (6, 300), (9, 7)].map(|(ms, seq)| StreamId::new(ms, seq));
        let mut chunk = Chunk::default();
        chunk.push_first(&PendingEntry { id: ids[0], ..entry(0) });
        for id in &ids[1..] {
            chunk.push(&PendingEntry { id: *id, ..entry(0) });
        }
        for (ms, seq) in (4..=10).flat_map(|ms| (0..=301).map(move |seq| (ms, seq))) {
            let id = StreamId::new(ms, seq);
            assert_eq!(chunk.find(id), ids.binary_search(&id), "{id}");
        }
    }
}
