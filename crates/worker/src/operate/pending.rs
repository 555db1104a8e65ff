//! Lists the pending entries of a group, and acts on them: claim, acknowledge, release, extend.
//!
//! An action gets the rows as they were listed. It does not change a row that has another owner or another delivery
//! count now. It reads the rows again just before it acts, and the store compares once more where it can: the owner
//! and the delivery count for a release, the owner for an extension, the idle time for a claim. Acknowledgements have
//! no such comparison in any store.

use std::collections::BTreeMap;
use std::time::Duration;

use schemars::JsonSchema;
use serde::Serialize;

use super::operation::{Admins, Done, Effect, OnProgress, Operate, Planned};
use super::plan::Plan;
use crate::backend::{
    Acknowledgement, Admin, Consumer, Error, Fields, PendingFilter, PendingRow, Range, Release, StreamId,
};
use crate::monitor::{StuckRule, known_records};
use crate::retry_record::RetryRecord;

/// Number of pending entries per call.
const PAGE: usize = 1000;
/// Number of rows that are looked up again per call.
const RELISTED: usize = 100;
/// Number of entries that are read per call for the fields of rows.
const ENTRIES: usize = 32;

/// Which pending entries to list or change. All conditions that are set must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PendingQuery {
    /// Only entries of this consumer.
    pub consumer: Option<String>,
    /// Only entries that have been idle for at least this long. Released entries always match.
    pub idle_min: Option<Duration>,
    /// Only entries that were delivered at least this often.
    pub deliveries_min: Option<u64>,
    /// Only entries that count as stuck in the health of the group: delivered five times, or idle for five minutes. A
    /// released entry has no idle time.
    pub stuck: bool,
}

impl PendingQuery {
    fn matches(&self, row: &PendingRow) -> bool {
        self.deliveries_min.is_none_or(|least| row.deliveries >= least)
            && (!self.stuck || StuckRule::default().is_stuck(row))
    }

    fn filter(&self, first: StreamId) -> PendingFilter {
        PendingFilter {
            consumer: self.consumer.clone(),
            min_idle: self.idle_min,
            ..PendingFilter::starting_at(first, PAGE)
        }
    }
}

/// A page of pending entries.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct PendingPage {
    /// The entries, in the order of their ids.
    pub rows: Vec<ListedRow>,
    /// Number of entries of the group that match.
    pub matched: u64,
    /// Whether that number is exact. If not, it is a lower bound.
    pub exact: bool,
    /// The id after which the next page begins. `None` after the last page.
    pub next: Option<StreamId>,
}

/// A pending entry, what its group remembers about it, and its fields.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ListedRow {
    /// The pending entry.
    pub row: PendingRow,
    /// Its failed attempts.
    pub record: RetryRecord,
    /// Its fields. `None` if it was deleted from the stream.
    pub fields: Option<Fields>,
}

/// Lists pending entries after an id, and counts all that match. Examines at most `scan` rows to count them, and to
/// fill the page.
pub async fn list(
    backend: &dyn Admin,
    stream: &str,
    group: &str,
    query: &PendingQuery,
    after: Option<StreamId>,
    count: usize,
    scan: usize,
) -> Result<PendingPage, Error> {
    let (all, exact) = select(backend, stream, group, query, StreamId::MIN, scan).await?;
    let first = after.map_or(Some(StreamId::MIN), StreamId::next);
    let (mut rows, complete) = match (first, after) {
        (None, _) => (Vec::new(), true),
        (Some(_), None) => (all.clone(), exact),
        (Some(first), Some(_)) => select(backend, stream, group, query, first, scan).await?,
    };
    let has_more = rows.len() > count || !complete;
    rows.truncate(count);
    let ids: Vec<StreamId> = rows.iter().map(|row| row.id).collect();
    let (records, _) = known_records(backend, stream, group, &ids).await?;
    let mut fields = fields_of(backend, stream, &ids).await?;
    let listed = rows.into_iter().zip(records).map(|(row, record)| ListedRow {
        fields: fields.remove(&row.id),
        record: record.unwrap_or_default(),
        row,
    });
    Ok(PendingPage {
        rows: listed.collect(),
        matched: all.len() as u64,
        exact,
        next: ids.last().copied().filter(|_| has_more),
    })
}

/// Returns the pending entries from an id on that match, and whether these are all. Examines at most `scan` rows.
pub async fn select(
    backend: &dyn Admin,
    stream: &str,
    group: &str,
    query: &PendingQuery,
    first: StreamId,
    scan: usize,
) -> Result<(Vec<PendingRow>, bool), Error> {
    let (mut found, mut scanned, mut filter) = (Vec::new(), 0, query.filter(first));
    loop {
        filter.count = PAGE.min(scan - scanned);
        if filter.count == 0 {
            // Perhaps no further row exists, but the scan ends here.
            return Ok((found, false));
        }
        let rows = backend.pending(stream, group, &filter).await?;
        scanned += rows.len();
        let next = rows.last().filter(|_| rows.len() == filter.count).and_then(|row| row.id.next());
        found.extend(rows.into_iter().filter(|row| query.matches(row)));
        match next {
            Some(next) => filter.first = next,
            None => return Ok((found, true)),
        }
    }
}

/// Returns those of these entries that are pending. `ids` can be in any order.
pub async fn rows_of(
    backend: &dyn Admin,
    stream: &str,
    group: &str,
    ids: &[StreamId],
) -> Result<Vec<PendingRow>, Error> {
    let mut wanted = ids.to_vec();
    wanted.sort_unstable();
    wanted.dedup();
    let (mut found, mut rest) = (Vec::new(), &wanted[..]);
    while let [first, .., last] | [first @ last] = rest {
        let filter = PendingFilter { last: *last, ..PendingFilter::starting_at(*first, RELISTED) };
        let page = backend.pending(stream, group, &filter).await?;
        let Some(reached) = page.last().map(|row| row.id) else { break };
        found.extend(page.into_iter().filter(|row| rest.binary_search(&row.id).is_ok()));
        rest = &rest[rest.partition_point(|id| *id <= reached)..];
    }
    Ok(found)
}

/// Returns the fields of those of these entries that are in the stream. `ids` are sorted.
async fn fields_of(
    backend: &dyn Admin,
    stream: &str,
    ids: &[StreamId],
) -> Result<BTreeMap<StreamId, Fields>, Error> {
    let (mut found, mut rest) = (BTreeMap::new(), ids);
    while let [first, .., last] | [first @ last] = rest {
        let range = Range { last: *last, ..Range::starting_at(*first, ENTRIES.min(rest.len())) };
        let page = backend.range(stream, range).await?;
        let Some(reached) = page.last().map(|entry| entry.id) else { break };
        let wanted = page.into_iter().filter(|entry| rest.binary_search(&entry.id).is_ok());
        found.extend(wanted.map(|entry| (entry.id, entry.fields)));
        rest = &rest[rest.partition_point(|id| *id <= reached)..];
    }
    Ok(found)
}

/// What to do with pending entries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PendingChange {
    /// Move them to a consumer. Counts as a delivery. Entries that were deleted from the stream stay where they are.
    Claim {
        /// The consumer that takes them over.
        consumer: String,
    },
    /// Acknowledge them without processing them.
    Acknowledge,
    /// Release them, so that any consumer can claim them immediately.
    Release,
    /// Reset their idle times.
    Extend,
}

/// What a change did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct Changed {
    /// Number of rows that were given.
    pub asked: u64,
    /// Number of rows that were changed.
    pub done: u64,
    /// Number of rows that had another owner or another delivery count, or were no longer pending.
    pub changed_hands: u64,
    /// Number of rows that cannot be changed: the entry was deleted from the stream, or, for an extension, has no
    /// owner.
    pub skipped: u64,
}

impl Changed {
    fn add(&mut self, other: &Changed) {
        self.asked = self.asked.saturating_add(other.asked);
        self.done = self.done.saturating_add(other.done);
        self.changed_hands = self.changed_hands.saturating_add(other.changed_hands);
        self.skipped = self.skipped.saturating_add(other.skipped);
    }
}

/// Which pending entries to change.
#[derive(Clone, Debug)]
pub enum PendingSelection {
    /// Those with these ids. Entries that change hands after the plan do not make it out of date; they are left alone.
    Ids(Vec<StreamId>),
    /// All that match. The plan is out of date if one of them changes hands.
    Matching {
        /// What they match.
        query: PendingQuery,
        /// Maximum number of entries to examine.
        scan: usize,
    },
}

/// Changes pending entries of a group.
#[derive(Clone, Debug)]
pub struct ChangePending {
    /// The name of the stream.
    pub stream: String,
    /// The name of the group.
    pub group: String,
    /// Which entries.
    pub selection: PendingSelection,
    /// What to do with them.
    pub change: PendingChange,
}

/// A change of pending entries.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct PendingEffect {
    /// The name of the stream.
    pub stream: String,
    /// The name of the group.
    pub group: String,
    /// Whether these are all that match.
    pub exact: bool,
    /// What was done.
    #[serde(flatten)]
    pub changed: Changed,
    /// Number of the entries.
    #[serde(skip)]
    pub matched: u64,
    /// The entries, until they are changed.
    #[serde(skip)]
    pub rows: Vec<PendingRow>,
}

impl Operate for ChangePending {
    type Effect = PendingEffect;

    async fn plan(&self, backend: &Admins, _: Option<&str>) -> Planned<PendingEffect> {
        let (stream, group) = (&*self.stream, &*self.group);
        let (rows, exact) = match &self.selection {
            PendingSelection::Ids(ids) => (rows_of(&**backend, stream, group, ids).await?, true),
            PendingSelection::Matching { query, scan } => {
                select(&**backend, stream, group, query, StreamId::MIN, *scan).await?
            }
        };
        let bound = rows.last().map(|row| row.id).unwrap_or_default();
        let seen: Vec<_> = rows.iter().map(|row| (row.id, row.consumer.clone(), row.deliveries)).collect();
        let matched = rows.len() as u64;
        let changed = Changed { asked: matched, ..Changed::default() };
        let (stream, group) = (self.stream.clone(), self.group.clone());
        let effect = PendingEffect { stream, group, exact, changed, matched, rows };
        let (stream, group) = (&self.stream, &self.group);
        Ok(match &self.selection {
            PendingSelection::Ids(ids) => {
                Plan::new(effect, StreamId::MIN, &(stream, group, &self.change, ids))
            }
            PendingSelection::Matching { .. } => {
                Plan::new(effect, bound, &(stream, group, &self.change, seen))
            }
        })
    }

    async fn execute(
        &self,
        backend: &Admins,
        plan: Plan<PendingEffect>,
        report: OnProgress<'_, PendingEffect>,
    ) -> Done<PendingEffect> {
        let mut effect = plan.effect;
        let rows = std::mem::take(&mut effect.rows);
        effect.changed = Changed::default();
        for step in rows.chunks(PAGE) {
            let changed = change(&**backend, &self.stream, &self.group, &self.change, step).await?;
            effect.changed.add(&changed);
            report(&effect);
        }
        Ok(Some(effect))
    }
}

impl Effect for PendingEffect {
    fn matched(&self) -> u64 {
        self.matched
    }

    fn done(&self) -> u64 {
        self.changed.done
    }

    fn takes_long(&self) -> bool {
        self.matched > PAGE as u64
    }

    fn name(&mut self) -> Option<&mut String> {
        Some(&mut self.stream)
    }

    fn add(&mut self, other: PendingEffect) {
        self.changed.add(&other.changed);
        self.exact &= other.exact;
        self.matched += other.matched;
    }
}

/// Changes pending entries that are still as they were listed.
pub async fn change(
    backend: &dyn Admin,
    stream: &str,
    group: &str,
    change: &PendingChange,
    listed: &[PendingRow],
) -> Result<Changed, Error> {
    let mut total = Changed { asked: listed.len() as u64, ..Changed::default() };
    for page in listed.chunks(PAGE) {
        let (now, skipped) = unchanged(backend, stream, group, change, page).await?;
        total.skipped += skipped;
        total.done += match change {
            PendingChange::Claim { consumer } => {
                backend.claim(Consumer::new(stream, group, consumer), &now).await?.len() as u64
            }
            PendingChange::Acknowledge => {
                let ids: Vec<StreamId> = now.iter().map(|row| row.id).collect();
                let done = Acknowledgement { forget: ids.clone(), ids, remember: Vec::new() };
                backend.acknowledge(stream, group, &done).await?
            }
            PendingChange::Release => release(backend, stream, group, &now).await?,
            PendingChange::Extend => extend(backend, stream, group, &now).await?,
        };
    }
    total.changed_hands = total.asked.saturating_sub(total.done).saturating_sub(total.skipped);
    Ok(total)
}

/// Returns the rows that are still as they were listed and can be changed, and the number of those that cannot.
async fn unchanged(
    backend: &dyn Admin,
    stream: &str,
    group: &str,
    change: &PendingChange,
    listed: &[PendingRow],
) -> Result<(Vec<PendingRow>, u64), Error> {
    let ids: Vec<StreamId> = listed.iter().map(|row| row.id).collect();
    let mut now: BTreeMap<StreamId, PendingRow> =
        rows_of(backend, stream, group, &ids).await?.into_iter().map(|row| (row.id, row)).collect();
    let is_same = |before: &PendingRow, now: &PendingRow| {
        before.consumer == now.consumer && before.deliveries == now.deliveries
    };
    let same = listed.iter().filter_map(|row| now.remove(&row.id).filter(|now| is_same(row, now)));
    let same: Vec<PendingRow> = same.collect();
    let found = same.len();
    let can_change: Vec<PendingRow> = match change {
        PendingChange::Acknowledge => same,
        // A released row need not be released again, and has no lease to extend.
        PendingChange::Release | PendingChange::Extend => {
            same.into_iter().filter(|row| row.consumer.is_some()).collect()
        }
        PendingChange::Claim { .. } => {
            let mut ids: Vec<StreamId> = same.iter().map(|row| row.id).collect();
            ids.sort_unstable();
            let existing = fields_of(backend, stream, &ids).await?;
            same.into_iter().filter(|row| existing.contains_key(&row.id)).collect()
        }
    };
    let skipped = (found - can_change.len()) as u64;
    Ok((can_change, skipped))
}

fn by_owner(rows: &[PendingRow]) -> BTreeMap<&str, Vec<&PendingRow>> {
    let mut by_owner: BTreeMap<&str, Vec<&PendingRow>> = BTreeMap::new();
    for row in rows {
        if let Some(owner) = &row.consumer {
            by_owner.entry(owner).or_default().push(row);
        }
    }
    by_owner
}

async fn release(backend: &dyn Admin, stream: &str, group: &str, rows: &[PendingRow]) -> Result<u64, Error> {
    let mut released = 0;
    for (owner, rows) in by_owner(rows) {
        let releases: Vec<Release> =
            rows.iter().map(|row| Release::counted(row.id, row.deliveries)).collect();
        released += backend.release(Consumer::new(stream, group, owner), &releases).await?;
    }
    Ok(released)
}

async fn extend(backend: &dyn Admin, stream: &str, group: &str, rows: &[PendingRow]) -> Result<u64, Error> {
    let mut extended = 0;
    for (owner, rows) in by_owner(rows) {
        let ids: Vec<StreamId> = rows.iter().map(|row| row.id).collect();
        extended += backend.extend(Consumer::new(stream, group, owner), &ids).await?.len() as u64;
    }
    Ok(extended)
}
