//! Reading ranges of entries, counting, trimming and deleting entries, and removing streams.

use std::iter;

use millstream_engine::stream::{DeleteDecision, Deletion, IdRange, ReferencedTrim};
use millstream_engine::{Exactness, References, Refusal, Stream, StreamEffect, StreamId, Trim};

use super::{EntrySelection, EntryVerb, ResultSink, Verb};
use crate::store::MemoryPurpose;
use crate::txn::Txn;

/// Trims the oldest entries of a stream. Returns the number of removed entries.
#[derive(Clone, Copy, Debug)]
pub struct TrimStream<B = Vec<u8>> {
    pub key: B,
    /// How to trim.
    pub trim: Trim,
    /// What happens to pending entries that the trim removes from the stream.
    pub references: References,
}

impl<B: AsRef<[u8]>> Verb for TrimStream<B> {
    type Output = u64;

    fn keys(&self) -> impl Iterator<Item = &[u8]> {
        iter::once(self.key.as_ref())
    }

    fn run(&mut self, txn: &mut Txn<'_>) -> Result<u64, Refusal> {
        let (key, limits) = (self.key.as_ref(), txn.settings().block_limits());
        let Some(stream) = txn.stream(key)? else { return Ok(0) };
        if self.references == References::Keep {
            let Some(decision) = stream.decide_trim(&self.trim, limits) else { return Ok(0) };
            txn.apply_stream(key, StreamEffect::TrimThrough { last: decision.through });
            return Ok(decision.count);
        }
        let found = stream.decide_trim_referenced(&self.trim, self.references, limits);
        Ok(found.map_or(0, |found| apply_trim(txn, key, &found)))
    }
}

impl<B: AsRef<[u8]>> TrimStream<B> {
    /// Does a part of an exact trim with DELREF or ACKED, so that other clients can run in between. The first step has
    /// no `rest`. Returns the number of removed entries, and what is left to the next step; `None` after the last one.
    ///
    /// All other trims are done in one step.
    pub fn step(
        &mut self,
        txn: &mut Txn<'_>,
        rest: Option<IdRange>,
    ) -> Result<(u64, Option<IdRange>), Refusal> {
        if self.trim.exactness == Exactness::Approximate || self.references == References::Keep {
            return Ok((self.run(txn)?, None));
        }
        let key = self.key.as_ref();
        let Some(stream) = txn.stream(key)? else { return Ok((0, None)) };
        let rest = rest.unwrap_or(stream.all_ids());
        let found = stream.decide_trim_step(&self.trim, self.references, rest);
        Ok((apply_trim(txn, key, &found), found.rest))
    }
}

/// Returns the number of removed entries.
fn apply_trim(txn: &mut Txn<'_>, key: &[u8], found: &ReferencedTrim) -> u64 {
    match found.ids.last() {
        None => {}
        Some(&last) if !found.has_gaps => txn.apply_stream(key, StreamEffect::TrimThrough { last }),
        Some(_) => txn.apply_stream(key, StreamEffect::TrimEntries { ids: &found.ids }),
    }
    forget(txn, key, &found.forgotten);
    found.ids.len() as u64
}

/// Deletes entries. Returns the number of deleted entries.
#[derive(Clone, Copy, Debug)]
pub struct Delete<B = Vec<u8>, I = Vec<StreamId>> {
    pub key: B,
    pub ids: I,
}

impl<B: AsRef<[u8]>, I: AsRef<[StreamId]>> Verb for Delete<B, I> {
    type Output = u64;

    fn keys(&self) -> impl Iterator<Item = &[u8]> {
        iter::once(self.key.as_ref())
    }

    fn run(&mut self, txn: &mut Txn<'_>) -> Result<u64, Refusal> {
        let Some(stream) = txn.stream(self.key.as_ref())? else { return Ok(0) };
        let ids = stream.decide_delete(self.ids.as_ref());
        check_marks(txn, stream, References::Keep, ids.len())?;
        if !ids.is_empty() {
            txn.apply_stream(self.key.as_ref(), StreamEffect::DeleteEntries { ids: &ids });
        }
        Ok(ids.len() as u64)
    }
}

/// Deletes entries. Returns the outcome for each id.
#[derive(Clone, Copy, Debug)]
pub struct DeleteEx<B = Vec<u8>, I = Vec<StreamId>> {
    pub key: B,
    pub ids: I,
    /// What happens if deleted entries are pending.
    pub references: References,
}

impl<B: AsRef<[u8]>, I: AsRef<[StreamId]>> Verb for DeleteEx<B, I> {
    type Output = Vec<Deletion>;

    fn keys(&self) -> impl Iterator<Item = &[u8]> {
        iter::once(self.key.as_ref())
    }

    fn run(&mut self, txn: &mut Txn<'_>) -> Result<Vec<Deletion>, Refusal> {
        let (key, ids) = (self.key.as_ref(), self.ids.as_ref());
        let Some(stream) = txn.stream(key)? else { return Ok(vec![Deletion::NotFound; ids.len()]) };
        let decision = stream.decide_delete_referenced(ids, self.references);
        check_marks(txn, stream, self.references, decision.deleted.len())?;
        Ok(apply_deletion(txn, key, decision))
    }
}

/// Memory that the row of a deleted entry takes in a group with a lease until the server removes it.
const MARK_BYTES: u64 = 40;

/// Returns an error if memory has no room for the rows of this many deleted entries, and some can be pending in a group
/// with a lease. With ACKED, none is pending. With DELREF, the rows are removed too.
pub(super) fn check_marks(
    txn: &Txn<'_>,
    stream: &Stream,
    references: References,
    deleted: usize,
) -> Result<(), Refusal> {
    if references != References::Keep || deleted == 0 {
        return Ok(());
    }
    let checked = txn.store().check_memory(MemoryPurpose::Consumers, deleted as u64 * MARK_BYTES);
    checked.or_else(|refusal| if stream.may_mark_gone() { Err(refusal) } else { Ok(()) })
}

pub(super) fn apply_deletion(txn: &mut Txn<'_>, key: &[u8], decision: DeleteDecision) -> Vec<Deletion> {
    if !decision.deleted.is_empty() {
        txn.apply_stream(key, StreamEffect::DeleteEntries { ids: &decision.deleted });
    }
    forget(txn, key, &decision.forgotten);
    decision.answers
}

pub(super) fn forget(txn: &mut Txn<'_>, key: &[u8], ids: &[StreamId]) {
    if !ids.is_empty() {
        txn.apply_stream(key, StreamEffect::Forget { ids });
    }
}

/// New values of a stream's counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamCounters {
    /// The greatest id that the stream has ever used.
    pub last_id: StreamId,
    /// Number of entries ever added; `None` leaves it unchanged.
    pub entries_added: Option<u64>,
    /// The greatest deleted id; `None` leaves it unchanged.
    pub max_deleted_id: Option<StreamId>,
}

/// Sets the counters of a stream (XSETID).
#[derive(Clone, Copy, Debug)]
pub struct SetCounters<B = Vec<u8>> {
    pub key: B,
    /// The new values.
    pub counters: StreamCounters,
}

impl<B: AsRef<[u8]>> Verb for SetCounters<B> {
    type Output = ();

    fn keys(&self) -> impl Iterator<Item = &[u8]> {
        iter::once(self.key.as_ref())
    }

    fn run(&mut self, txn: &mut Txn<'_>) -> Result<(), Refusal> {
        let StreamCounters { last_id, entries_added, max_deleted_id } = self.counters;
        let stream = txn.stream(self.key.as_ref())?.ok_or(Refusal::NoSuchKey)?;
        stream.decide_set_id(last_id, entries_added)?;
        // No entry has the id 0-0. Like Redis, treat it as "not given".
        let max_deleted_id = max_deleted_id.filter(|id| *id != StreamId::MIN);
        let effect = StreamEffect::SetId { last_id, entries_added, max_deleted_id };
        txn.apply_stream(self.key.as_ref(), effect);
        Ok(())
    }
}

/// Returns the number of entries of a stream; 0 if it does not exist.
#[derive(Clone, Copy, Debug)]
pub struct Length<B = Vec<u8>> {
    pub key: B,
}

impl<B: AsRef<[u8]>> Verb for Length<B> {
    type Output = u64;
    const CHANGES: bool = false;

    fn keys(&self) -> impl Iterator<Item = &[u8]> {
        iter::once(self.key.as_ref())
    }

    fn run(&mut self, txn: &mut Txn<'_>) -> Result<u64, Refusal> {
        Ok(txn.stream(self.key.as_ref())?.map_or(0, |stream| stream.len()))
    }
}

/// Removes a key with a value of any type. Returns false if it does not exist.
#[derive(Clone, Copy, Debug)]
pub struct Remove<B = Vec<u8>> {
    pub key: B,
}

impl<B: AsRef<[u8]>> Verb for Remove<B> {
    type Output = bool;

    fn keys(&self) -> impl Iterator<Item = &[u8]> {
        iter::once(self.key.as_ref())
    }

    fn run(&mut self, txn: &mut Txn<'_>) -> Result<bool, Refusal> {
        Ok(txn.delete(self.key.as_ref()))
    }
}

/// Removes a stream with its groups. Returns false if it does not exist. Refuses a key that is not a stream.
#[derive(Clone, Copy, Debug)]
pub struct RemoveStream<B = Vec<u8>> {
    pub key: B,
}

impl<B: AsRef<[u8]>> Verb for RemoveStream<B> {
    type Output = bool;

    fn keys(&self) -> impl Iterator<Item = &[u8]> {
        iter::once(self.key.as_ref())
    }

    fn run(&mut self, txn: &mut Txn<'_>) -> Result<bool, Refusal> {
        let exists = txn.stream(self.key.as_ref())?.is_some();
        Ok(exists && txn.delete(self.key.as_ref()))
    }
}

/// Returns the entries in a range of ids.
#[derive(Clone, Copy, Debug)]
pub struct Range<B = Vec<u8>> {
    pub key: B,
    /// The range of ids; `None` is an empty range.
    pub ids: Option<IdRange>,
    /// Maximum number of entries; `None`: no limit.
    pub count: Option<u64>,
    /// Whether to return the entries in descending order of ids. A `count` then selects those with the greatest ids.
    pub reversed: bool,
}

impl<B: AsRef<[u8]>> Range<B> {
    /// Selects the entries without copying them; `None` if the stream does not exist or the range is empty.
    #[inline]
    pub fn find<'t>(&self, txn: &'t Txn<'_>) -> Result<Option<EntrySelection<'t>>, Refusal> {
        let (Some(stream), Some(ids)) = (txn.stream(self.key.as_ref())?, self.ids) else { return Ok(None) };
        Ok(Some(EntrySelection { stream, ids, count: self.count, reversed: self.reversed }))
    }
}

impl<B: AsRef<[u8]>> EntryVerb for Range<B> {
    const CHANGES: bool = false;

    fn keys(&self) -> impl Iterator<Item = &[u8]> {
        iter::once(self.key.as_ref())
    }

    fn run_into(&mut self, txn: &mut Txn<'_>, sink: &mut impl ResultSink) -> Result<(), Refusal> {
        if let Some(found) = self.find(txn)? {
            found.send_to(sink);
        }
        Ok(())
    }
}
