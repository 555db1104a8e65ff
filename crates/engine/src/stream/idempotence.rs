//! What producers have sent, so that what is sent again is not added again.
//!
//! ```text
//! ProducerHistory ── kept:      number -> producer, iid, entry, time      in the order they were remembered
//!                 └─ producers: name -> iid -> number, and its numbers in order
//! ```
//!
//! A producer's memory ends with age (`duration_s`) and size (`max_size`): the oldest goes first. Age is looked at when something is
//! decided or remembered, with the time that comes with it, so replaying effects forgets the same. Everything that was
//! too old when the last entry was remembered is gone, whoever's it was: so memory is bounded by what was sent
//! within one duration.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use super::Stream;
use super::parts::BadPart;
use crate::{Refusal, StreamId};

/// How long, and how much of each producer, is remembered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdempotenceLimits {
    /// Seconds.
    pub duration_s: u64,
    /// Entries of one producer.
    pub max_size: u64,
}

impl Default for IdempotenceLimits {
    fn default() -> Self {
        IdempotenceLimits { duration_s: 100, max_size: 100 }
    }
}

impl IdempotenceLimits {
    /// Whether what was remembered at `since_ms` is forgotten at `now_ms`.
    fn is_over(self, since_ms: u64, now_ms: u64) -> bool {
        since_ms.saturating_add(self.duration_s.saturating_mul(1000)) <= now_ms
    }
}

/// What a stream says of its memory at some moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdempotenceInfo {
    /// The limits in force.
    pub limits: IdempotenceLimits,
    /// Producers of which something is remembered.
    pub producers: u64,
    /// Entries that are remembered.
    pub iids: u64,
    /// Entries ever remembered.
    pub added: u64,
    /// How often something was sent again.
    pub duplicates: u64,
}

/// Something that is remembered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remembered<'a> {
    /// Who sent it.
    pub producer: &'a [u8],
    /// The producer's name for it.
    pub iid: &'a [u8],
    /// The entry it became.
    pub id: StreamId,
    /// Its age counts from here.
    pub since_ms: u64,
}

/// The memory of one stream.
#[derive(Clone, Debug)]
pub(super) struct ProducerHistory {
    limits: IdempotenceLimits,
    kept: BTreeMap<u64, Kept>,
    producers: BTreeMap<Arc<[u8]>, Producer>,
    next_number: u64,
    added: u64,
    duplicates: u64,
}

#[derive(Clone, Debug)]
struct Kept {
    producer: Arc<[u8]>,
    iid: Arc<[u8]>,
    id: StreamId,
    since_ms: u64,
}

#[derive(Clone, Debug, Default)]
struct Producer {
    by_iid: BTreeMap<Arc<[u8]>, u64>,
    /// Rising.
    numbers: VecDeque<u64>,
}

impl ProducerHistory {
    fn new(limits: IdempotenceLimits) -> ProducerHistory {
        ProducerHistory {
            limits,
            kept: BTreeMap::new(),
            producers: BTreeMap::new(),
            next_number: 0,
            added: 0,
            duplicates: 0,
        }
    }

    fn find(&self, producer: &[u8], iid: &[u8]) -> Option<&Kept> {
        self.kept.get(self.producers.get(producer)?.by_iid.get(iid)?)
    }

    fn configure(&mut self, limits: IdempotenceLimits) {
        if limits != self.limits {
            self.kept.clear();
            self.producers.clear();
            self.limits = limits;
        }
    }

    fn remember(&mut self, producer: &[u8], iid: &[u8], id: StreamId, at_ms: u64) {
        self.forget_old(at_ms);
        // An entry may have an id in the future: that must not make the memory of it endless.
        self.keep(&Remembered { producer, iid, id, since_ms: id.ms.min(at_ms) });
        self.added = self.added.saturating_add(1);
        let most = self.limits.max_size.max(1);
        while let Some(numbers) = self.producers.get(producer).map(|producer| &producer.numbers)
            && numbers.len() as u64 > most
        {
            self.forget(numbers[0]);
        }
    }

    fn keep(&mut self, what: &Remembered<'_>) {
        if let Some(&before) = self.producers.get(what.producer).and_then(|found| found.by_iid.get(what.iid))
        {
            self.forget(before);
        }
        let name = match self.producers.get_key_value(what.producer) {
            Some((name, _)) => Arc::clone(name),
            None => Arc::from(what.producer),
        };
        let (number, iid) = (self.next_number, Arc::<[u8]>::from(what.iid));
        self.next_number += 1;
        let producer = self.producers.entry(Arc::clone(&name)).or_default();
        producer.by_iid.insert(Arc::clone(&iid), number);
        producer.numbers.push_back(number);
        self.kept.insert(number, Kept { producer: name, iid, id: what.id, since_ms: what.since_ms });
    }

    /// Forgets from the oldest on what is over. One that is behind a younger one, because it was recorded by hand, goes
    /// when that does.
    fn forget_old(&mut self, now_ms: u64) {
        while let Some((&number, oldest)) = self.kept.first_key_value()
            && self.limits.is_over(oldest.since_ms, now_ms)
        {
            self.forget(number);
        }
    }

    fn forget(&mut self, number: u64) {
        let Some(kept) = self.kept.remove(&number) else { return };
        let Some(producer) = self.producers.get_mut(&kept.producer) else { return };
        producer.by_iid.remove(&kept.iid);
        if let Ok(at) = producer.numbers.binary_search(&number) {
            producer.numbers.remove(at);
        }
        if producer.numbers.is_empty() {
            self.producers.remove(&kept.producer);
        }
    }

    fn info(&self, now_ms: u64) -> IdempotenceInfo {
        let mut over: BTreeMap<&Arc<[u8]>, usize> = BTreeMap::new();
        for kept in self.kept.values() {
            if self.limits.is_over(kept.since_ms, now_ms) {
                *over.entry(&kept.producer).or_default() += 1;
            }
        }
        let silent =
            over.iter().filter(|(name, over)| self.producers[**name].numbers.len() == **over).count();
        IdempotenceInfo {
            limits: self.limits,
            producers: (self.producers.len() - silent) as u64,
            iids: (self.kept.len() - over.values().sum::<usize>()) as u64,
            added: self.added,
            duplicates: self.duplicates,
        }
    }

    pub(super) fn memory_bytes(&self) -> usize {
        /// Places in three trees and a queue, and the two counters of a shared text.
        const PER_IID: usize = size_of::<Kept>() + 3 * size_of::<u64>() + size_of::<Arc<[u8]>>() + 16;
        const PER_PRODUCER: usize = size_of::<Producer>() + size_of::<Arc<[u8]>>() + 16;
        let iids: usize = self.kept.values().map(|kept| kept.iid.len() + PER_IID * 3 / 2).sum();
        let producers: usize = self.producers.keys().map(|name| name.len() + PER_PRODUCER * 3 / 2).sum();
        size_of::<ProducerHistory>() + iids + producers
    }

    pub(super) fn check(&self) -> Result<(), String> {
        let mut counted = 0;
        for (name, producer) in &self.producers {
            let mut numbers: Vec<u64> = producer.by_iid.values().copied().collect();
            numbers.sort_unstable();
            if numbers.is_empty() || !producer.numbers.iter().eq(&numbers) {
                return Err(format!("producer {}: its names and their order differ", name.escape_ascii()));
            }
            if numbers.len() as u64 > self.limits.max_size.max(1) {
                return Err(format!("producer {}: {} remembered", name.escape_ascii(), numbers.len()));
            }
            for (iid, number) in &producer.by_iid {
                let kept = self.kept.get(number);
                if kept.is_none_or(|kept| kept.producer != *name || kept.iid != *iid) {
                    return Err(format!("producer {}: number {number} is not its own", name.escape_ascii()));
                }
            }
            counted += numbers.len();
        }
        match counted == self.kept.len() {
            true => Ok(()),
            false => Err(format!("producers remember {counted}, {} are kept", self.kept.len())),
        }
    }
}

/// The part of a memory that [`Stream::remembered`] does not show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HistoryCounters {
    /// The limits in force.
    pub limits: IdempotenceLimits,
    /// Entries ever remembered.
    pub added: u64,
    /// How often something was sent again.
    pub duplicates: u64,
}

impl Stream {
    /// The entry that the producer has sent under this name, if that is remembered at this time.
    pub fn query_remembered(&self, producer: &[u8], iid: &[u8], now_ms: u64) -> Option<StreamId> {
        let history = self.history.as_ref()?;
        let kept = history.find(producer, iid)?;
        (!history.limits.is_over(kept.since_ms, now_ms)).then_some(kept.id)
    }

    /// Whether an entry that is there may be recorded as this one; false if it is already.
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
            Some(_) => Err(Refusal::RememberedOtherwise),
        }
    }

    /// The stream's own limits; `None` while nothing was remembered or configured.
    pub fn idempotence_limits(&self) -> Option<IdempotenceLimits> {
        self.history.as_ref().map(|history| history.limits)
    }

    /// What the stream says of its memory; a stream without one has these limits.
    pub fn query_idempotence(&self, otherwise: IdempotenceLimits, now_ms: u64) -> IdempotenceInfo {
        self.history
            .as_ref()
            .map_or_else(|| ProducerHistory::new(otherwise).info(now_ms), |history| history.info(now_ms))
    }

    /// What the memory counts; `None` if the stream has none.
    pub fn history_counters(&self) -> Option<HistoryCounters> {
        let history = self.history.as_ref()?;
        Some(HistoryCounters { limits: history.limits, added: history.added, duplicates: history.duplicates })
    }

    /// Everything that is remembered, oldest first, also what is over and was not forgotten yet.
    pub fn remembered(&self) -> impl ExactSizeIterator<Item = Remembered<'_>> {
        let kept = self.history.as_ref().map_or(const { &BTreeMap::new() }, |history| &history.kept);
        kept.values().map(|kept| Remembered {
            producer: &kept.producer,
            iid: &kept.iid,
            id: kept.id,
            since_ms: kept.since_ms,
        })
    }

    pub(super) fn configure_history(&mut self, limits: IdempotenceLimits) {
        match &mut self.history {
            Some(history) => history.configure(limits),
            None => self.history = Some(Box::new(ProducerHistory::new(limits))),
        }
    }

    /// Limits come first: without them nothing is remembered.
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

    /// Begins a memory that was kept outside.
    pub(super) fn load_history(&mut self, counters: &HistoryCounters) {
        let mut history = ProducerHistory::new(counters.limits);
        (history.added, history.duplicates) = (counters.added, counters.duplicates);
        self.history = Some(Box::new(history));
    }

    /// The next thing remembered, in order.
    pub(super) fn load_remembered(&mut self, what: &Remembered<'_>) -> Result<(), BadPart> {
        let Some(history) = &mut self.history else { return Err(BadPart("remembered without limits")) };
        if history.find(what.producer, what.iid).is_some() {
            return Err(BadPart("a producer's name for an entry comes twice"));
        }
        history.keep(what);
        let most = history.limits.max_size.max(1);
        match history.producers[what.producer].numbers.len() as u64 > most {
            true => Err(BadPart("more of a producer is remembered than may be")),
            false => Ok(()),
        }
    }
}
