//! A stream implemented in the slow and obvious way: ordered maps, one row at a time.

mod newer;

use std::collections::{BTreeMap, BTreeSet};

use millstream_engine::stream::{ClaimOptions, IdRange, IdempotenceLimits};
use millstream_engine::{IdSpec, StreamId, TrimBy};

pub(crate) type NaiveEntry = Vec<(Vec<u8>, Vec<u8>)>;
/// Owner (empty if released), delivery time in milliseconds, delivery count.
pub(crate) type NaiveRow = (Vec<u8>, u64, u64);
/// Id, delivery time in milliseconds and delivery count of claimed entries.
type Rows = Vec<(StreamId, u64, u64)>;

#[derive(Default)]
pub(crate) struct NaiveStream {
    pub(crate) entries: BTreeMap<StreamId, NaiveEntry>,
    pub(crate) last_id: StreamId,
    pub(crate) max_deleted: StreamId,
    pub(crate) entries_added: u64,
    pub(crate) groups: BTreeMap<Vec<u8>, NaiveGroup>,
    pub(crate) producer_history: Option<NaiveProducerHistory>,
    /// Delayed entries by ticket, and the number of the last ticket.
    pub(crate) delayed: BTreeMap<StreamId, NaiveEntry>,
    pub(crate) last_ticket: u64,
}

/// What idempotent adds remember. `kept` holds producer, idempotent id, entry id and time in milliseconds, the oldest
/// first.
#[derive(Default)]
pub(crate) struct NaiveProducerHistory {
    pub(crate) limits: IdempotenceLimits,
    pub(crate) kept: Vec<(Vec<u8>, Vec<u8>, StreamId, u64)>,
    pub(crate) added: u64,
    pub(crate) duplicates: u64,
}

#[derive(Default)]
pub(crate) struct NaiveGroup {
    pub(crate) last_id: StreamId,
    /// Entries that were removed before the group read them, and the greatest id among them.
    pub(crate) missed: (u64, StreamId),
    pub(crate) consumers: BTreeSet<Vec<u8>>,
    pub(crate) pending: BTreeMap<StreamId, NaiveRow>,
    /// Released ids, in the order of their release.
    pub(crate) released: Vec<StreamId>,
    /// Ids that were released with a due time in milliseconds.
    pub(crate) waiting: BTreeSet<(u64, StreamId)>,
}

impl NaiveGroup {
    fn leave_queue(&mut self, id: &StreamId) {
        self.released.retain(|released| released != id);
        self.waiting.retain(|(_, waiting)| waiting != id);
    }

    fn remove(&mut self, id: &StreamId) -> bool {
        self.leave_queue(id);
        self.pending.remove(id).is_some()
    }

    fn give(&mut self, id: StreamId, row: NaiveRow) {
        self.leave_queue(&id);
        self.pending.insert(id, row);
    }

    fn has_no_owner(&self, id: &StreamId) -> bool {
        self.released.contains(id) || self.waiting.iter().any(|(_, waiting)| waiting == id)
    }

    fn is_waiting(&self, id: &StreamId, now_ms: u64) -> bool {
        self.waiting.iter().any(|(due_ms, waiting)| waiting == id && *due_ms > now_ms)
    }

    fn is_idle(&self, id: &StreamId, min_idle_ms: u64, now_ms: u64) -> bool {
        self.has_no_owner(id) || now_ms.saturating_sub(self.pending[id].1) >= min_idle_ms
    }

    pub(crate) fn consumer_counts(&self) -> Vec<(Vec<u8>, u64)> {
        let owned = |name: &Vec<u8>| self.pending.values().filter(|row| row.0 == *name).count() as u64;
        self.consumers.iter().map(|name| (name.clone(), owned(name))).collect()
    }
}

impl NaiveStream {
    pub(crate) fn last_entry(&self) -> StreamId {
        self.entries.keys().next_back().copied().unwrap_or_default()
    }

    pub(crate) fn next_id(&self, spec: IdSpec, now_ms: u64) -> Option<StreamId> {
        let last = self.last_id;
        let id = match spec {
            IdSpec::Explicit(id) => id,
            IdSpec::Auto | IdSpec::Delayed(_) if now_ms > last.ms => StreamId::new(now_ms, 0),
            IdSpec::Auto | IdSpec::Delayed(_) if last.seq < u64::MAX => StreamId::new(last.ms, last.seq + 1),
            IdSpec::Auto | IdSpec::Delayed(_) => StreamId::new(last.ms.checked_add(1)?, 0),
            IdSpec::AutoSeq(ms) if ms == last.ms => StreamId::new(ms, last.seq.checked_add(1)?),
            IdSpec::AutoSeq(ms) => StreamId::new(ms, 0),
        };
        (id > last).then_some(id)
    }

    pub(crate) fn add(&mut self, id: StreamId, fields: &[&[u8]]) {
        let fields = fields.chunks(2).map(|pair| (pair[0].to_vec(), pair[1].to_vec())).collect();
        self.entries.insert(id, fields);
        self.last_id = id;
        self.entries_added += 1;
    }

    pub(crate) fn trim_count(&self, by: TrimBy) -> u64 {
        match by {
            TrimBy::MaxLen(keep) => (self.entries.len() as u64).saturating_sub(keep),
            TrimBy::MinId(first) => self.entries.range(..first).count() as u64,
        }
    }

    pub(crate) fn trim_through(&mut self, last: StreamId) -> u64 {
        let gone: Vec<StreamId> = self.entries.range(..=last).map(|(id, _)| *id).collect();
        gone.iter().for_each(|id| _ = self.remove(id));
        gone.len() as u64
    }

    /// Removes an entry. A group that has not read it misses it.
    pub(crate) fn remove(&mut self, id: &StreamId) -> bool {
        let exists = self.entries.remove(id).is_some();
        for group in self.groups.values_mut().filter(|group| exists && group.last_id < *id) {
            group.missed = (group.missed.0 + 1, group.missed.1.max(*id));
        }
        exists
    }

    pub(crate) fn delete(&mut self, ids: &[StreamId]) -> usize {
        let mut count = 0;
        for id in ids {
            if self.remove(id) {
                self.max_deleted = self.max_deleted.max(*id);
                count += 1;
            }
        }
        count
    }

    pub(crate) fn create_group(&mut self, name: &[u8], last_id: StreamId) {
        self.groups.insert(name.to_vec(), NaiveGroup { last_id, ..NaiveGroup::default() });
    }

    pub(crate) fn create_consumer(&mut self, group: &[u8], name: &[u8]) {
        self.groups.get_mut(group).unwrap().consumers.insert(name.to_vec());
    }

    pub(crate) fn delete_consumer(&mut self, group: &[u8], name: &[u8]) {
        let group = self.groups.get_mut(group).unwrap();
        group.consumers.remove(name);
        group.pending.retain(|_, row| row.0 != name);
    }

    pub(crate) fn lag(&self, group: &[u8]) -> u64 {
        let last = self.groups[group].last_id;
        self.entries.keys().filter(|id| **id > last).count() as u64
    }

    pub(crate) fn deliver(
        &mut self,
        group: &[u8],
        consumer: &[u8],
        count: Option<u64>,
        pending: bool,
        now_ms: u64,
    ) -> Vec<(StreamId, NaiveEntry)> {
        let group = self.groups.get_mut(group).unwrap();
        let new = self.entries.iter().filter(|(id, _)| **id > group.last_id);
        let shown: Vec<_> = new.take(most(count)).map(|(id, fields)| (*id, fields.clone())).collect();
        if let Some((last, _)) = shown.last() {
            group.last_id = *last;
            group.consumers.insert(consumer.to_vec());
        }
        if pending {
            shown.iter().for_each(|(id, _)| group.give(*id, (consumer.to_vec(), now_ms, 1)));
        }
        shown
    }

    pub(crate) fn history(
        &mut self,
        group: &[u8],
        consumer: &[u8],
        after: StreamId,
        count: Option<u64>,
        now_ms: u64,
    ) -> Vec<(StreamId, Option<NaiveEntry>)> {
        let rows = self.groups.get_mut(group).unwrap().pending.iter_mut();
        let own = rows.filter(|(id, row)| **id > after && row.0 == consumer).take(most(count));
        own.map(|(id, row)| {
            let entry = self.entries.get(id).cloned();
            if entry.is_some() {
                (row.1, row.2) = (now_ms, once_more(row.2, true));
            }
            (*id, entry)
        })
        .collect()
    }

    pub(crate) fn acknowledge(&mut self, group: &[u8], ids: &[StreamId]) -> usize {
        let group = self.groups.get_mut(group).unwrap();
        ids.iter().filter(|id| group.remove(id)).count()
    }

    pub(crate) fn claim(
        &mut self,
        group: &[u8],
        consumer: &[u8],
        ids: &[StreamId],
        options: &ClaimOptions,
        now_ms: u64,
    ) -> (Rows, Vec<StreamId>) {
        let group = self.groups.get_mut(group).unwrap();
        group.consumers.insert(consumer.to_vec());
        let time = options.delivered_at_ms.filter(|at_ms| *at_ms <= now_ms).unwrap_or(now_ms);
        let (mut rows, mut gone) = (Vec::new(), Vec::new());
        for id in ids {
            if !self.entries.contains_key(id) {
                gone.extend(group.remove(id).then_some(*id));
                continue;
            }
            let deliveries = match group.pending.get(id) {
                Some(_) if !group.is_idle(id, options.min_idle_ms, now_ms) => continue,
                Some(row) => row.2,
                None if options.force => 1,
                None => continue,
            };
            let deliveries = options.deliveries.unwrap_or(once_more(deliveries, !options.just_ids));
            group.give(*id, (consumer.to_vec(), time, deliveries));
            rows.push((*id, time, deliveries));
        }
        (rows, gone)
    }

    pub(crate) fn auto_claim(
        &mut self,
        group: &[u8],
        consumer: &[u8],
        start: StreamId,
        count: u64,
        min_idle_ms: u64,
        now_ms: u64,
    ) -> (Rows, Vec<StreamId>, Option<StreamId>) {
        let group = self.groups.get_mut(group).unwrap();
        group.consumers.insert(consumer.to_vec());
        let (mut rows, mut gone) = (Vec::new(), Vec::new());
        let all: Vec<StreamId> = group.pending.range(start..).map(|(id, _)| *id).collect();
        let mut looked_at = 0;
        for id in &all {
            if looked_at == count * 10 || (rows.len() + gone.len()) as u64 == count {
                break;
            }
            looked_at += 1;
            if !self.entries.contains_key(id) {
                group.remove(id);
                gone.push(*id);
            } else if group.is_idle(id, min_idle_ms, now_ms) && !group.is_waiting(id, now_ms) {
                let deliveries = once_more(group.pending[id].2, true);
                group.give(*id, (consumer.to_vec(), now_ms, deliveries));
                rows.push((*id, now_ms, deliveries));
            }
        }
        (rows, gone, all.get(looked_at as usize).copied())
    }

    pub(crate) fn range(
        &self,
        range: IdRange,
        count: Option<u64>,
        back: bool,
    ) -> Vec<(StreamId, NaiveEntry)> {
        if range.first > range.last {
            return Vec::new();
        }
        let all = self.entries.range(range.first..=range.last).map(|(id, fields)| (*id, fields.clone()));
        match back {
            true => all.rev().take(most(count)).collect(),
            false => all.take(most(count)).collect(),
        }
    }
}

fn most(count: Option<u64>) -> usize {
    count.map_or(usize::MAX, |count| count as usize)
}

fn once_more(deliveries: u64, counts: bool) -> u64 {
    if counts { (deliveries + 1).min(i64::MAX as u64) } else { deliveries }
}
