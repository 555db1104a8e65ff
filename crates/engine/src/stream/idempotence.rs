//! The producer history: what producers have sent, so that an entry that is sent twice is added once (XADD
//! IDMP).
//!
//! ```text
//! ProducerHistory ── items:     number -> producer, iid, entry, time      in the order they were recorded
//!                 └─ producers: name -> iid -> number, and its numbers in order
//! ```
//!
//! The history of a producer is limited by age (`duration_s`) and by number (`max_size`); the oldest items
//! are removed first. Ages are checked when something is decided or recorded, at the time that the request or
//! effect carries. So replaying effects removes the same items. Recording an item removes expired items of
//! all producers. So the history is no larger than what was sent within one duration.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use super::Stream;
use super::parts::InvalidPart;
use crate::{Refusal, StreamId};

/// Limits of the producer history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdempotenceLimits {
    /// Maximum age of an item in seconds.
    pub duration_s: u64,
    /// Maximum number of items of one producer.
    pub max_size: u64,
}

impl Default for IdempotenceLimits {
    fn default() -> Self {
        IdempotenceLimits { duration_s: 100, max_size: 100 }
    }
}

impl IdempotenceLimits {
    fn has_expired(self, since_ms: u64, now_ms: u64) -> bool {
        since_ms.saturating_add(self.duration_s.saturating_mul(1000)) <= now_ms
    }
}

/// What XINFO reports about the producer history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdempotenceInfo {
    /// The limits in force.
    pub limits: IdempotenceLimits,
    /// Number of producers with at least one item.
    pub producers: u64,
    /// Number of items.
    pub iids: u64,
    /// Number of items ever recorded.
    pub added: u64,
    /// Number of duplicates that were not added.
    pub duplicates: u64,
}

/// An item of the producer history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HistoryItem<'a> {
    /// The name of the producer.
    pub producer: &'a [u8],
    /// The id that the producer gave the entry.
    pub iid: &'a [u8],
    /// The entry that was added.
    pub id: StreamId,
    /// The time from which its age counts (Unix milliseconds).
    pub since_ms: u64,
}

#[derive(Clone, Debug)]
pub(super) struct ProducerHistory {
    limits: IdempotenceLimits,
    items: BTreeMap<u64, OwnedItem>,
    producers: BTreeMap<Arc<[u8]>, Producer>,
    next_number: u64,
    added: u64,
    duplicates: u64,
}

#[derive(Clone, Debug)]
struct OwnedItem {
    producer: Arc<[u8]>,
    iid: Arc<[u8]>,
    id: StreamId,
    since_ms: u64,
}

#[derive(Clone, Debug, Default)]
struct Producer {
    by_iid: BTreeMap<Arc<[u8]>, u64>,
    numbers: VecDeque<u64>,
}

impl ProducerHistory {
    fn new(limits: IdempotenceLimits) -> ProducerHistory {
        ProducerHistory {
            limits,
            items: BTreeMap::new(),
            producers: BTreeMap::new(),
            next_number: 0,
            added: 0,
            duplicates: 0,
        }
    }

    fn find(&self, producer: &[u8], iid: &[u8]) -> Option<&OwnedItem> {
        self.items.get(self.producers.get(producer)?.by_iid.get(iid)?)
    }

    fn configure(&mut self, limits: IdempotenceLimits) {
        if limits != self.limits {
            self.items.clear();
            self.producers.clear();
            self.limits = limits;
        }
    }

    fn remember(&mut self, producer: &[u8], iid: &[u8], id: StreamId, at_ms: u64) {
        self.remove_expired(at_ms);
        // The id of an entry can be in the future. Then the age counts from now, or the item would be kept
        // too long.
        self.insert(&HistoryItem { producer, iid, id, since_ms: id.ms.min(at_ms) });
        self.added = self.added.saturating_add(1);
        let max_items = self.limits.max_size.max(1);
        while let Some(numbers) = self.producers.get(producer).map(|producer| &producer.numbers)
            && numbers.len() as u64 > max_items
        {
            self.remove(numbers[0]);
        }
    }

    fn insert(&mut self, item: &HistoryItem<'_>) {
        if let Some(&before) = self.producers.get(item.producer).and_then(|found| found.by_iid.get(item.iid))
        {
            self.remove(before);
        }
        let name = match self.producers.get_key_value(item.producer) {
            Some((name, _)) => Arc::clone(name),
            None => Arc::from(item.producer),
        };
        let (number, iid) = (self.next_number, Arc::<[u8]>::from(item.iid));
        self.next_number += 1;
        let producer = self.producers.entry(Arc::clone(&name)).or_default();
        producer.by_iid.insert(Arc::clone(&iid), number);
        producer.numbers.push_back(number);
        self.items.insert(number, OwnedItem { producer: name, iid, id: item.id, since_ms: item.since_ms });
    }

    /// Removes expired items, starting with the oldest. An expired item after one that has not expired stays
    /// until that one expires. This happens only for items recorded with XIDMPRECORD.
    fn remove_expired(&mut self, now_ms: u64) {
        while let Some((&number, oldest)) = self.items.first_key_value()
            && self.limits.has_expired(oldest.since_ms, now_ms)
        {
            self.remove(number);
        }
    }

    fn remove(&mut self, number: u64) {
        let Some(item) = self.items.remove(&number) else { return };
        let Some(producer) = self.producers.get_mut(&item.producer) else { return };
        producer.by_iid.remove(&item.iid);
        if let Ok(at) = producer.numbers.binary_search(&number) {
            producer.numbers.remove(at);
        }
        if producer.numbers.is_empty() {
            self.producers.remove(&item.producer);
        }
    }

    fn info(&self, now_ms: u64) -> IdempotenceInfo {
        let mut expired: BTreeMap<&Arc<[u8]>, usize> = BTreeMap::new();
        for item in self.items.values() {
            if self.limits.has_expired(item.since_ms, now_ms) {
                *expired.entry(&item.producer).or_default() += 1;
            }
        }
        let without_items = expired
            .iter()
            .filter(|(name, expired)| self.producers[**name].numbers.len() == **expired)
            .count();
        IdempotenceInfo {
            limits: self.limits,
            producers: (self.producers.len() - without_items) as u64,
            iids: (self.items.len() - expired.values().sum::<usize>()) as u64,
            added: self.added,
            duplicates: self.duplicates,
        }
    }

    pub(super) fn memory_bytes(&self) -> usize {
        /// Three tree positions, a queue position, and the two counters of a shared text.
        const PER_IID: usize = size_of::<OwnedItem>() + 3 * size_of::<u64>() + size_of::<Arc<[u8]>>() + 16;
        const PER_PRODUCER: usize = size_of::<Producer>() + size_of::<Arc<[u8]>>() + 16;
        let iids: usize = self.items.values().map(|item| item.iid.len() + PER_IID * 3 / 2).sum();
        let producers: usize = self.producers.keys().map(|name| name.len() + PER_PRODUCER * 3 / 2).sum();
        size_of::<ProducerHistory>() + iids + producers
    }

    pub(super) fn check(&self) -> Result<(), String> {
        let mut counted = 0;
        for (name, producer) in &self.producers {
            let label = name.escape_ascii();
            let mut numbers: Vec<u64> = producer.by_iid.values().copied().collect();
            numbers.sort_unstable();
            if numbers.is_empty() || !producer.numbers.iter().eq(&numbers) {
                return Err(format!("producer {label}: its index of iids and its list of items differ"));
            }
            if numbers.len() as u64 > self.limits.max_size.max(1) {
                return Err(format!("producer {label}: {} items are more than its limit", numbers.len()));
            }
            for (iid, number) in &producer.by_iid {
                let item = self.items.get(number);
                if item.is_none_or(|item| item.producer != *name || item.iid != *iid) {
                    return Err(format!(
                        "producer {label}: item {number} is missing or belongs to another producer"
                    ));
                }
            }
            counted += numbers.len();
        }
        match counted == self.items.len() {
            true => Ok(()),
            false => {
                Err(format!("the producers have {counted} items, but the history has {}", self.items.len()))
            }
        }
    }
}

/// The limits and counters of a producer history. [`Stream::history_items`] returns its items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HistoryCounters {
    /// The limits in force.
    pub limits: IdempotenceLimits,
    /// Number of items ever recorded.
    pub added: u64,
    /// Number of duplicates that were not added.
    pub duplicates: u64,
}

impl Stream {
    /// Returns the id of the entry that the producer has sent with this `iid`, if the history has an item for
    /// it that has not expired.
    pub fn query_remembered(&self, producer: &[u8], iid: &[u8], now_ms: u64) -> Option<StreamId> {
        let history = self.history.as_ref()?;
        let item = history.find(producer, iid)?;
        (!history.limits.has_expired(item.since_ms, now_ms)).then_some(item.id)
    }

    /// Decides whether an existing entry can be recorded for this `iid`. Returns false if it is recorded
    /// already.
    pub fn decide_record(
        &self,
        producer: &[u8],
        iid: &[u8],
        id: StreamId,
        now_ms: u64,
    ) -> Result<bool, Refusal> {
        if !self.contains(id) {
            return Err(Refusal::NoSuchEntry);
        }
        match self.query_remembered(producer, iid, now_ms) {
            None => Ok(true),
            Some(found) if found == id => Ok(false),
            Some(_) => Err(Refusal::IidConflict),
        }
    }

    /// Returns the stream's own limits; `None` if nothing was recorded or configured.
    pub fn idempotence_limits(&self) -> Option<IdempotenceLimits> {
        self.history.as_ref().map(|history| history.limits)
    }

    /// Returns the state of the producer history. A stream without one reports the limits `default_limits`.
    pub fn query_idempotence(&self, default_limits: IdempotenceLimits, now_ms: u64) -> IdempotenceInfo {
        self.history
            .as_ref()
            .map_or_else(|| ProducerHistory::new(default_limits).info(now_ms), |history| history.info(now_ms))
    }

    /// Returns the limits and counters of the producer history; `None` if the stream has none.
    pub fn history_counters(&self) -> Option<HistoryCounters> {
        let history = self.history.as_ref()?;
        Some(HistoryCounters { limits: history.limits, added: history.added, duplicates: history.duplicates })
    }

    /// Returns all items, oldest first, including expired items that were not removed yet.
    pub fn history_items(&self) -> impl ExactSizeIterator<Item = HistoryItem<'_>> {
        let items = self.history.as_ref().map_or(const { &BTreeMap::new() }, |history| &history.items);
        items.values().map(|item| HistoryItem {
            producer: &item.producer,
            iid: &item.iid,
            id: item.id,
            since_ms: item.since_ms,
        })
    }

    pub(super) fn configure_history(&mut self, limits: IdempotenceLimits) {
        match &mut self.history {
            Some(history) => history.configure(limits),
            None => self.history = Some(Box::new(ProducerHistory::new(limits))),
        }
    }

    /// Records an item. Does nothing if no limits were configured.
    pub(super) fn remember(&mut self, producer: &[u8], iid: &[u8], id: StreamId, at_ms: u64) {
        if let Some(history) = &mut self.history {
            history.remember(producer, iid, id, at_ms);
        }
    }

    pub(super) fn count_repeat(&mut self) {
        if let Some(history) = &mut self.history {
            history.duplicates = history.duplicates.saturating_add(1);
        }
    }

    /// Creates the producer history from stored counters, without items.
    pub(super) fn load_history(&mut self, counters: &HistoryCounters) {
        let mut history = ProducerHistory::new(counters.limits);
        (history.added, history.duplicates) = (counters.added, counters.duplicates);
        self.history = Some(Box::new(history));
    }

    pub(super) fn load_history_item(&mut self, item: &HistoryItem<'_>) -> Result<(), InvalidPart> {
        let Some(history) = &mut self.history else {
            return Err(InvalidPart("an item of the producer history comes before its limits"));
        };
        if history.find(item.producer, item.iid).is_some() {
            return Err(InvalidPart("a producer has two items with the same iid"));
        }
        history.insert(item);
        let max_items = history.limits.max_size.max(1);
        match history.producers[item.producer].numbers.len() as u64 > max_items {
            true => Err(InvalidPart("a producer has more items than the limit of its stream")),
            false => Ok(()),
        }
    }
}
