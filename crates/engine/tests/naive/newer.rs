//! The newer commands on the naive stream: deletion by references, releases, claiming reads, idempotent adds.

use millstream_engine::stream::{Deletion, IdempotenceLimits, PriorDelivery};
use millstream_engine::{NackMode, References, StreamId, TrimBy};

use super::{NaiveEntry, NaiveProducerHistory, NaiveStream, most, once_more};

impl NaiveStream {
    fn is_referenced(&self, id: &StreamId) -> bool {
        self.groups.values().any(|group| group.last_id < *id || group.pending.contains_key(id))
    }

    fn forget(&mut self, id: &StreamId) {
        self.groups.values_mut().for_each(|group| _ = group.remove(id));
    }

    pub(crate) fn delete_referenced(&mut self, ids: &[StreamId], references: References) -> Vec<Deletion> {
        let mut answers = Vec::new();
        for id in ids {
            match references {
                References::Acked if self.is_referenced(id) => {
                    answers.push(Deletion::Referenced);
                    continue;
                }
                References::Delete => self.forget(id),
                _ => {}
            }
            answers.push(match self.delete(&[*id]) {
                0 => Deletion::NotFound,
                _ => Deletion::Deleted,
            });
        }
        answers
    }

    pub(crate) fn ack_delete(
        &mut self,
        group: &[u8],
        ids: &[StreamId],
        references: References,
    ) -> Vec<Deletion> {
        let mut answers = Vec::new();
        for id in ids {
            if self.acknowledge(group, &[*id]) == 0 {
                answers.push(Deletion::NotFound);
                continue;
            }
            match references {
                References::Acked if self.is_referenced(id) => {
                    answers.push(Deletion::Referenced);
                    continue;
                }
                References::Delete => self.forget(id),
                _ => {}
            }
            self.delete(&[*id]);
            answers.push(Deletion::Deleted);
        }
        answers
    }

    /// Trims exactly, entry by entry, and returns the removed ids.
    pub(crate) fn trim_referenced(&mut self, by: TrimBy, references: References) -> Vec<StreamId> {
        let mut gone = Vec::new();
        for id in self.entries.keys().copied().collect::<Vec<_>>() {
            let is_over = match by {
                TrimBy::MaxLen(keep) => self.entries.len() as u64 <= keep,
                TrimBy::MinId(first) => id >= first,
            };
            if is_over {
                break;
            }
            if references == References::Acked && self.is_referenced(&id) {
                continue;
            }
            if references == References::Delete {
                self.forget(&id);
            }
            self.remove(&id);
            gone.push(id);
        }
        gone
    }

    pub(crate) fn nack(
        &mut self,
        group: &[u8],
        ids: &[StreamId],
        mode: NackMode,
        (deliveries, force): (Option<u64>, bool),
        not_before_ms: Option<u64>,
    ) -> usize {
        let group = self.groups.get_mut(group).unwrap();
        let mut count = 0;
        for id in ids {
            let before = match group.pending.get(id) {
                Some(row) => row.2,
                None if force && self.entries.contains_key(id) => 0,
                None => continue,
            };
            let after = deliveries.unwrap_or(match mode {
                NackMode::Silent => before.saturating_sub(1),
                NackMode::Fail => before,
                NackMode::Fatal => i64::MAX as u64,
            });
            group.give(*id, (Vec::new(), 0, after));
            match not_before_ms {
                None => group.released.push(*id),
                Some(not_before_ms) => drop(group.waiting.insert((not_before_ms, *id))),
            }
            count += 1;
        }
        count
    }

    /// Returns the entries of a claiming read, at most `count`, and what was known of each before.
    pub(crate) fn read_claiming(
        &mut self,
        group: &[u8],
        consumer: &[u8],
        min_idle_ms: u64,
        count: Option<u64>,
        now_ms: u64,
    ) -> Vec<(StreamId, NaiveEntry, Option<PriorDelivery>)> {
        let found = self.groups.get_mut(group).unwrap();
        let mut order = found.released.clone();
        order.extend(found.waiting.iter().filter(|(due_ms, _)| *due_ms <= now_ms).map(|(_, id)| *id));
        let owned = found.pending.iter().filter(|(id, _)| !found.has_no_owner(id));
        let mut owned: Vec<(u64, StreamId)> = owned.map(|(id, row)| (row.1, *id)).collect();
        owned.sort_unstable();
        order.extend(owned.into_iter().map(|(_, id)| id));
        let mut shown = Vec::new();
        for id in order {
            if shown.len() >= most(count) {
                break;
            }
            let (Some(entry), true) = (self.entries.get(&id), found.is_idle(&id, min_idle_ms, now_ms)) else {
                continue;
            };
            let is_owned = !found.has_no_owner(&id);
            let (_, delivered_at_ms, deliveries) = found.pending[&id].clone();
            let idle_ms = is_owned.then(|| now_ms.saturating_sub(delivered_at_ms));
            shown.push((id, entry.clone(), Some(PriorDelivery { idle_ms, deliveries })));
            found.consumers.insert(consumer.to_vec());
            found.give(id, (consumer.to_vec(), now_ms, once_more(deliveries, true)));
        }
        let left = count.map(|count| count - shown.len() as u64);
        let new = self.deliver(group, consumer, left, true, now_ms);
        shown.extend(new.into_iter().map(|(id, entry)| (id, entry, None)));
        shown
    }

    pub(crate) fn extend(
        &mut self,
        group: &[u8],
        consumer: &[u8],
        ids: &[StreamId],
        now_ms: u64,
    ) -> Vec<bool> {
        let group = self.groups.get_mut(group).unwrap();
        let mut own = |id: &StreamId| {
            let row = group.pending.get_mut(id).filter(|row| row.0 == consumer);
            row.map(|row| row.1 = now_ms).is_some()
        };
        ids.iter().map(&mut own).collect()
    }

    pub(crate) fn adopt(&mut self, group: &[u8], from: &[u8], to: &[u8]) {
        let group = self.groups.get_mut(group).unwrap();
        if group.consumers.remove(from) {
            group.consumers.insert(to.to_vec());
            let own = group.pending.values_mut().filter(|row| row.0 == from);
            own.for_each(|row| row.0 = to.to_vec());
        }
    }

    pub(crate) fn configure(&mut self, limits: IdempotenceLimits) {
        let history = self
            .producer_history
            .get_or_insert_with(|| NaiveProducerHistory { limits, ..NaiveProducerHistory::default() });
        if history.limits != limits {
            history.kept.clear();
            history.limits = limits;
        }
    }

    pub(crate) fn recall(&self, producer: &[u8], iid: &[u8], now_ms: u64) -> Option<StreamId> {
        let history = self.producer_history.as_ref()?;
        let mut live = history.kept.iter().filter(|kept| kept.3 + history.limits.duration_s * 1000 > now_ms);
        live.find(|kept| kept.0 == producer && kept.1 == iid).map(|kept| kept.2)
    }

    pub(crate) fn remember(&mut self, producer: &[u8], iid: &[u8], id: StreamId, now_ms: u64) {
        let history = self.producer_history.as_mut().unwrap();
        let is_over = |since_ms: u64| since_ms + history.limits.duration_s * 1000 <= now_ms;
        let old = history.kept.iter().take_while(|kept| is_over(kept.3)).count();
        history.kept.drain(..old);
        history.kept.retain(|kept| kept.0 != producer || kept.1 != iid);
        history.kept.push((producer.to_vec(), iid.to_vec(), id, id.ms.min(now_ms)));
        history.added += 1;
        let own = history.kept.iter().filter(|kept| kept.0 == producer).count() as u64;
        if own > history.limits.max_size {
            let oldest = history.kept.iter().position(|kept| kept.0 == producer).unwrap();
            history.kept.remove(oldest);
        }
    }
}
