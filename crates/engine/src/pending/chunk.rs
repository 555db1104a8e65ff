//! A chunk: up to 256 consecutive rows of a pending list, in columns, in one allocation.
//!
//! ```text
//! bytes:  | ms × capacity | seq × capacity | time × capacity | consumer × capacity | count × capacity | 8 |
//!         ^ starts[0]     ^ starts[1]      ^ starts[2]       ^ starts[3]           ^ starts[4]
//! ```
//!
//! The last 8 bytes mean nothing: a number of any width can be read as if it had 8.
//!
//! Each column has its own base and width ([`Form`]); a column whose numbers are all equal takes no bytes.
//! `len` places of every column, from place `head` on, are rows in the order of their ids; the rest is room.
//! A row that goes leaves a gap, which the fewer rows close: those before it or those after it.
//!
//! The consumer column holds 0 for a row that nobody owns, and otherwise the owner's handle plus one. The time
//! column of a row that nobody owns holds the stamp of its release.
//!
//! A number that does not fit makes its column wider. Columns become narrow again when the chunk is
//! re-fitted: when it is half empty, and after as many changes as a quarter of its capacity, so that an
//! outlier that has gone does not cost memory for long and no single change costs much.
//!
//! A chunk knows nothing of its neighbours, and keeps no summary of itself: its shelf does.

mod visit;

use std::cmp::Ordering;
use std::iter;
use std::ops::Range;

use super::column::{Column, Extent, Form, READ_BYTES, Width};
use super::{ConsumerHandle, NewRows, PendingEntry};
use crate::StreamId;

/// The most rows a chunk holds.
pub(super) const ROWS_MAX: usize = 256;
/// A chunk that takes no more bytes than this keeps them: fitting it would cost more than it gives.
const KEPT_BYTES: usize = 256;
/// Capacities are multiples of this, except that none is greater than [`ROWS_MAX`].
const CAPACITY_STEP: usize = 8;

const COLUMNS: usize = 5;
const MS: usize = 0;
const SEQ: usize = 1;
const TIME: usize = 2;
const CONSUMER: usize = 3;
const COUNT: usize = 4;

/// What the consumer column holds for a row that nobody owns.
const UNOWNED: u64 = 0;

/// A pending entry as one number per column.
type Row = [u64; COLUMNS];

/// See the module.
#[derive(Clone)]
pub(super) struct Chunk {
    bytes: Box<[u8]>,
    bases: [u64; COLUMNS],
    starts: [u16; COLUMNS],
    /// The place of the first row.
    head: u16,
    len: u16,
    /// Places in every column; at least `head + len`, at most [`ROWS_MAX`].
    capacity: u16,
    /// How many rows nobody owns.
    unowned: u16,
    widths: [Width; COLUMNS],
    /// Replacements and removals since the chunk was last fitted, as far as this can count them.
    changes: u8,
}

impl Chunk {
    /// A chunk with one row and room for all, which expects its rows to look like those of `previous`.
    pub(super) fn following(previous: &Chunk, entry: &PendingEntry) -> Chunk {
        let row = row_of(entry);
        let forms = std::array::from_fn(|k| previous.form(k).starting_at(row[k]));
        let mut chunk = Chunk::empty(forms, ROWS_MAX);
        chunk.write(0, &row);
        chunk.count_in(entry);
        chunk
    }

    /// Adds a row to a chunk without any, in the places and widths of rows that have gone.
    pub(super) fn begin(&mut self, entry: &PendingEntry) {
        let row = row_of(entry);
        self.bases = std::array::from_fn(|k| self.form(k).starting_at(row[k]).base);
        (self.head, self.changes) = (0, 0);
        self.push(entry);
    }

    fn empty(forms: [Form; COLUMNS], capacity: usize) -> Chunk {
        let mut starts = [0; COLUMNS];
        let mut end = 0;
        for (start, form) in starts.iter_mut().zip(forms) {
            *start = end as u16;
            end += capacity * form.width.bytes();
        }
        let bytes = if end == 0 { 0 } else { end + READ_BYTES };
        Chunk {
            bytes: vec![0; bytes].into_boxed_slice(),
            bases: forms.map(|form| form.base),
            starts,
            head: 0,
            len: 0,
            capacity: capacity as u16,
            unowned: 0,
            widths: forms.map(|form| form.width),
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

    /// The row of `id`, as it is stored.
    #[inline]
    pub(super) fn get(&self, id: StreamId) -> Option<PendingEntry> {
        self.find(id).ok().map(|row| self.stored(row))
    }

    /// Row `at`, for everybody to see.
    pub(super) fn entry(&self, at: usize) -> PendingEntry {
        self.stored(at).reported()
    }

    /// Row `at`, with the stamp of its release in place of the delivery time if nobody owns it.
    #[inline]
    pub(super) fn stored(&self, at: usize) -> PendingEntry {
        self.stored_as(at, self.id(at))
    }

    /// The same when its id is known.
    #[inline(always)]
    fn stored_as(&self, at: usize, id: StreamId) -> PendingEntry {
        PendingEntry {
            id,
            consumer: owner_of(self.read(CONSUMER, at)),
            delivered_at_ms: self.read(TIME, at),
            deliveries: self.read(COUNT, at),
        }
    }

    /// A time or stamp of one of the rows.
    pub(super) fn some_time(&self) -> u64 {
        self.read(TIME, 0)
    }

    /// How many rows nobody owns.
    pub(super) fn unowned(&self) -> usize {
        self.unowned.into()
    }

    /// The row of `id`, or the row it would be.
    pub(super) fn find(&self, id: StreamId) -> Result<usize, usize> {
        let low = self.column(MS).count_below(id.ms);
        if low == self.len() || self.read(MS, low) != id.ms {
            return Err(low);
        }
        let Some(ahead) = id.seq.checked_sub(self.read(SEQ, low)) else { return Err(low) };
        // Within a millisecond sequence numbers ascend: the row is `ahead` further, or less if some between
        // are missing.
        let ahead = usize::try_from(ahead).unwrap_or(ROWS_MAX).min(self.len() - 1 - low);
        match self.id(low + ahead).cmp(&id) {
            Ordering::Equal => Ok(low + ahead),
            Ordering::Less => Err(low + ahead + 1),
            Ordering::Greater => self.find_between(low, low + ahead, id),
        }
    }

    /// The same, when row `low` is not greater and row `high` is.
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

    /// Adds a row after the last. The chunk is not full, and the id is greater than all.
    #[inline]
    pub(super) fn push(&mut self, entry: &PendingEntry) {
        let row = row_of(entry);
        self.make_room_for(&row);
        self.write(self.len(), &row);
        self.count_in(entry);
    }

    /// Adds rows of a run from its row `from` on after the last, as many as there are places for; at least one. The chunk
    /// is not full, and the ids are greater than all. Says how many they were.
    pub(super) fn push_run(&mut self, run: &NewRows<'_>, from: usize) -> usize {
        // What the first row needs, most others need too.
        self.make_room_for(&row_of(&run.row(from)));
        let places = usize::from(self.capacity - self.head - self.len);
        let ids = &run.ids[from..];
        let (ms, seq) = (self.form(MS), self.form(SEQ));
        let count = count_fitting(&ids[..ids.len().min(places)], ms, seq);
        let rows = self.len()..self.len() + count;
        let (seqs, times) = (self.places(SEQ, rows.clone()), self.places(TIME, rows.clone()));
        let owners = self.places(CONSUMER, rows.clone());
        let counts = self.places(COUNT, rows.clone());
        let mss = self.places(MS, rows);
        ms.write_run(&mut self.bytes[mss], ids[..count].iter().map(|id| id.ms));
        seq.write_run(&mut self.bytes[seqs], ids[..count].iter().map(|id| id.seq));
        let time = self.form(TIME);
        time.write_run(&mut self.bytes[times], iter::repeat(run.delivered_at_ms));
        let owner = owner_number(Some(run.consumer));
        let consumer = self.form(CONSUMER);
        consumer.write_run(&mut self.bytes[owners], iter::repeat(owner));
        let deliveries = self.form(COUNT);
        deliveries.write_run(&mut self.bytes[counts], iter::repeat(1));
        self.len += count as u16;
        count
    }

    /// Adds a row before row `at`. The chunk is not full.
    pub(super) fn insert(&mut self, at: usize, entry: &PendingEntry) {
        let row = row_of(entry);
        self.make_room_for(&row);
        self.shift(at..self.len(), at + 1);
        self.write(at, &row);
        self.count_in(entry);
    }

    /// Puts another row in the place of row `at`. Says whether the chunk was re-fitted.
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

    /// Takes out row `at`, which is that of `id`. Returns it as it was stored, and whether the chunk was re-fitted.
    #[inline(always)]
    pub(super) fn take(&mut self, at: usize, id: StreamId) -> (PendingEntry, bool) {
        let stored = self.stored_as(at, id);
        (stored, self.remove(at))
    }

    /// Takes row `at` out. Says whether the chunk was re-fitted.
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

    /// Takes out all rows of a consumer and says how many they were.
    pub(super) fn remove_consumer(&mut self, consumer: ConsumerHandle) -> usize {
        let handle = owner_number(Some(consumer));
        let consumers = self.column(CONSUMER);
        let Some(first) = consumers.find_equal(0, handle) else { return 0 };
        let mut kept = Chunk::empty(self.forms(), self.capacity.into());
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

    /// Keeps the first half of the rows and returns the other.
    pub(super) fn split(&mut self) -> Chunk {
        let half = self.len() / 2;
        let upper = self.fitted(half..self.len());
        *self = self.fitted(0..half);
        upper
    }

    /// Takes all rows of `next`, which follow this chunk's.
    pub(super) fn absorb(&mut self, next: &Chunk) {
        let forms =
            std::array::from_fn(|k| Form::covering(self.column(k).extent().join(next.column(k).extent())));
        let mut both = Chunk::empty(forms, capacity_for(self.len() + next.len()));
        both.extend(self, 0..self.len());
        both.extend(next, 0..next.len());
        *self = both;
    }

    /// Makes every column as narrow as its numbers allow, and gives back room when half of it is unused.
    pub(super) fn fit(&mut self) {
        let forms = self.tight_forms(0..self.len());
        let capacity = if self.is_half_empty() { capacity_for(self.len()) } else { self.capacity.into() };
        self.changes = 0;
        if capacity != usize::from(self.capacity) || (0..COLUMNS).any(|k| forms[k].width != self.widths[k]) {
            self.lay_out(forms, capacity);
        }
    }

    pub(super) fn allocated_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Whether fitting would give back room. Of a list's chunks only the last may be so, before it fills.
    #[inline]
    pub(super) fn is_half_empty(&self) -> bool {
        self.bytes.len() > KEPT_BYTES
            && self.len() * 2 < self.capacity.into()
            && usize::from(self.capacity) > CAPACITY_STEP
    }

    /// Whether there is a row `at` that somebody owns and that was delivered at this time.
    #[inline]
    pub(super) fn was_delivered_at(&self, at: usize, time_ms: u64) -> bool {
        at < self.len() && self.read(TIME, at) == time_ms && !self.is_unowned(at)
    }

    #[inline]
    fn is_unowned(&self, at: usize) -> bool {
        self.unowned > 0 && self.read(CONSUMER, at) == UNOWNED
    }

    #[inline]
    fn count_in(&mut self, entry: &PendingEntry) {
        self.len += 1;
        self.unowned += u16::from(entry.consumer.is_none());
    }

    #[inline]
    fn count_change(&mut self) -> bool {
        self.changes = self.changes.saturating_add(1);
        if self.bytes.len() <= KEPT_BYTES {
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
    fn make_room_for(&mut self, row: &Row) {
        debug_assert!(!self.is_full());
        if self.head + self.len == self.capacity {
            self.make_place();
        }
        if !self.holds(row) {
            self.widen_for(row);
        }
    }

    /// Moves the rows to the beginning. If that does not free a quarter of the places, there will be half as
    /// many more.
    #[cold]
    fn make_place(&mut self) {
        let (len, capacity) = (self.len(), usize::from(self.capacity));
        if len * 4 <= capacity * 3 {
            for k in 0..COLUMNS {
                let rows = self.places(k, 0..len);
                self.bytes.copy_within(rows, self.starts[k].into());
            }
            self.head = 0;
        } else {
            self.lay_out(self.forms(), capacity_for(len + len / 2 + 1));
        }
    }

    #[inline]
    fn holds(&self, row: &Row) -> bool {
        (0..COLUMNS).all(|k| self.form(k).holds(row[k]))
    }

    #[cold]
    fn widen_for(&mut self, row: &Row) {
        let forms = std::array::from_fn(|k| {
            let form = self.form(k);
            if form.holds(row[k]) {
                form
            } else {
                Form::roomy(self.column(k).extent().join(Extent::of(row[k])))
            }
        });
        // Room that was small enough to keep may no longer be.
        let keeps_room = self.bytes.len() > KEPT_BYTES || self.len() * 2 >= self.capacity.into();
        self.lay_out(forms, if keeps_room { self.capacity.into() } else { capacity_for(self.len() + 1) });
    }

    fn lay_out(&mut self, forms: [Form; COLUMNS], capacity: usize) {
        let mut next = Chunk::empty(forms, capacity);
        next.extend(self, 0..self.len());
        next.changes = self.changes;
        *self = next;
    }

    fn fitted(&self, rows: Range<usize>) -> Chunk {
        let mut chunk = Chunk::empty(self.tight_forms(rows.clone()), capacity_for(rows.len()));
        chunk.extend(self, rows);
        chunk
    }

    fn tight_forms(&self, rows: Range<usize>) -> [Form; COLUMNS] {
        std::array::from_fn(|k| Form::covering(self.rows_of(k, rows.clone()).extent()))
    }

    /// Copies rows of `source` after the last. There is room, and the forms hold them.
    fn extend(&mut self, source: &Chunk, rows: Range<usize>) {
        for k in 0..COLUMNS {
            let (form, column) = (self.form(k), source.rows_of(k, rows.clone()));
            let places = self.places(k, self.len()..self.len() + rows.len());
            let target = &mut self.bytes[places];
            if form == source.form(k) {
                target.copy_from_slice(column.bytes());
            } else {
                form.write_all(target, column.decode(&mut [0; ROWS_MAX]));
            }
        }
        self.len += rows.len() as u16;
        if source.unowned > 0 {
            self.unowned += rows.filter(|at| source.is_unowned(*at)).count() as u16;
        }
    }

    /// Moves rows of all columns, so that the first of them becomes row `to`.
    fn shift(&mut self, rows: Range<usize>, to: usize) {
        for k in 0..COLUMNS {
            if self.widths[k] != Width::Zero {
                let moved = self.places(k, rows.clone());
                self.bytes.copy_within(moved, self.place(k, to));
            }
        }
    }

    #[inline(always)]
    fn read(&self, k: usize, at: usize) -> u64 {
        self.form(k).read(&self.bytes, self.place(k, at))
    }

    #[inline(always)]
    fn write(&mut self, at: usize, row: &Row) {
        for (k, value) in row.iter().enumerate() {
            let place = self.place(k, at);
            self.form(k).write(&mut self.bytes, place, *value);
        }
    }

    #[inline]
    fn column(&self, k: usize) -> Column<'_> {
        self.rows_of(k, 0..self.len())
    }

    #[inline]
    fn rows_of(&self, k: usize, rows: Range<usize>) -> Column<'_> {
        Column::new(self.form(k), &self.bytes[self.places(k, rows.clone())], rows.len())
    }

    /// Where in `bytes` column `k` keeps row `at`.
    #[inline(always)]
    fn place(&self, k: usize, at: usize) -> usize {
        // Sums of small numbers: only a row that is far from there could make them overflow, and the place would
        // not be in `bytes`.
        let places = usize::from(self.head).wrapping_add(at).wrapping_mul(self.widths[k].bytes());
        usize::from(self.starts[k]).wrapping_add(places)
    }

    #[inline(always)]
    fn places(&self, k: usize, rows: Range<usize>) -> Range<usize> {
        self.place(k, rows.start)..self.place(k, rows.end)
    }

    #[inline(always)]
    fn form(&self, k: usize) -> Form {
        Form { base: self.bases[k], width: self.widths[k] }
    }

    fn forms(&self) -> [Form; COLUMNS] {
        std::array::from_fn(|k| self.form(k))
    }

    /// Verifies what the module and the fields promise.
    pub(super) fn check(&self) -> Result<(), String> {
        let (len, capacity) = (self.len(), usize::from(self.capacity));
        let end = usize::from(self.head) + len;
        let fail = |what: &str| Err(format!("chunk of {len} rows, capacity {capacity}: {what}"));
        if len == 0 || end > capacity || capacity > ROWS_MAX {
            return fail("length or capacity out of range");
        }
        let expected = Chunk::empty(self.forms(), capacity);
        if expected.starts != self.starts || expected.bytes.len() != self.bytes.len() {
            return fail("columns lie where they should not");
        }
        if (0..COLUMNS).any(|k| self.widths[k] == Width::Eight && self.bases[k] != 0) {
            return fail("a column of full width has a base");
        }
        if (0..COLUMNS).any(|k| self.column(k).min() < self.bases[k]) {
            return fail("a number wrapped around");
        }
        if (1..len).any(|at| self.id(at - 1) >= self.id(at)) {
            return fail("ids do not ascend");
        }
        if self.column(CONSUMER).max() > owner_number(Some(ConsumerHandle(u32::MAX))) {
            return fail("a consumer is not a handle");
        }
        if (0..len).filter(|at| self.read(CONSUMER, *at) == UNOWNED).count() != self.unowned() {
            return fail("rows that nobody owns are miscounted");
        }
        Ok(())
    }
}

impl Default for Chunk {
    /// A chunk without rows. Takes no memory of its own: its columns have no width.
    fn default() -> Chunk {
        Chunk::empty([Form::covering(Extent::of(0)); COLUMNS], CAPACITY_STEP)
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

/// What the consumer column holds for a row of this owner.
#[inline]
fn owner_number(owner: Option<ConsumerHandle>) -> u64 {
    owner.map_or(UNOWNED, |handle| u64::from(handle.0) + 1)
}

#[inline]
fn owner_of(number: u64) -> Option<ConsumerHandle> {
    number.checked_sub(1).map(|handle| ConsumerHandle(handle as u32))
}

/// How many of these ids, which ascend and of which the first fits, fit before one does not.
fn count_fitting(ids: &[StreamId], ms: Form, seq: Form) -> usize {
    match ids {
        // Within a millisecond everything lies between the first and the last.
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
    fn a_window_that_moves_on_stays_small() {
        for window in (1..40).chain([127, 128, 253, 254]) {
            let mut chunk = Chunk::default();
            chunk.begin(&entry(0));
            for n in 1..2000 {
                chunk.push(&entry(n));
                assert!(!chunk.is_half_empty(), "{} of {} places", chunk.len, chunk.capacity);
                if n > window {
                    chunk.remove(0);
                }
                assert!(!chunk.is_half_empty(), "{} of {} places", chunk.len, chunk.capacity);
            }
            chunk.check().expect("sound");
            assert_eq!(chunk.first_id(), StreamId::new(1999 - window, 0));
            let bytes = 4 * usize::from(chunk.capacity) + READ_BYTES;
            assert!(chunk.allocated_bytes() <= bytes, "ids and times in two bytes");
        }
    }

    #[test]
    fn ids_are_found_among_gaps_in_a_millisecond() {
        let ids = [(5, 1), (5, 2), (5, 9), (6, 0), (6, 300), (9, 7)].map(|(ms, seq)| StreamId::new(ms, seq));
        let mut chunk = Chunk::default();
        chunk.begin(&PendingEntry { id: ids[0], ..entry(0) });
        for id in &ids[1..] {
            chunk.push(&PendingEntry { id: *id, ..entry(0) });
        }
        for (ms, seq) in (4..=10).flat_map(|ms| (0..=301).map(move |seq| (ms, seq))) {
            let id = StreamId::new(ms, seq);
            assert_eq!(chunk.find(id), ids.binary_search(&id), "{id}");
        }
    }
}
