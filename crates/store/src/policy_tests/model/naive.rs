//! The naive model: streams as ordered maps, and policies as functions of a row and the time.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use millstream_engine::policy::{Backoff, Policy, actual_deliveries, is_rejected};
use millstream_engine::stream::{ClaimOptions, EntryRef, IdRange, NackOptions};
use millstream_engine::{NackMode, Stream, StreamId};

/// Name, value, name, value…
pub(super) type Fields = Vec<Vec<u8>>;
pub(super) type Place = (u32, Vec<u8>);

const DELIVERIES_MAX: u64 = i64::MAX as u64;
/// Added to the count of a rejected entry in a group with a limit.
const REJECTED: u64 = 1 << 62;

#[derive(Clone, Debug, PartialEq)]
pub(super) struct NaiveRow {
    /// `None`: it was released.
    pub(super) owner: Option<Vec<u8>>,
    pub(super) delivered_at_ms: u64,
    pub(super) count: u64,
}

/// The values in force in a group with a lease.
pub(super) struct Rules {
    pub(super) lease_ms: u64,
    pub(super) limit: Option<u64>,
    backoff: Option<Backoff>,
    pub(super) max_pending: Option<u64>,
    pub(super) consumer_ttl_ms: Option<u64>,
    pub(super) dead_letters: Option<Vec<u8>>,
}

impl Rules {
    fn new(own: &Policy, of_stream: &Policy) -> Option<Rules> {
        let on = |own: Option<u64>, default: Option<u64>| own.or(default).filter(|value| *value != 0);
        let dead_letters = own.dead_letters.clone().or_else(|| of_stream.dead_letters.clone());
        Some(Rules {
            lease_ms: on(own.lease_ms, of_stream.lease_ms)?,
            limit: on(own.max_deliveries, of_stream.max_deliveries),
            backoff: own.backoff.or(of_stream.backoff).filter(|backoff| backoff.first_ms > 0),
            max_pending: on(own.max_pending, of_stream.max_pending),
            consumer_ttl_ms: on(own.consumer_ttl_ms, of_stream.consumer_ttl_ms),
            dead_letters: dead_letters.filter(|key| !key.is_empty()).map(|key| key.to_vec()),
        })
    }

    /// How long an entry waits after this delivery. The product adds up to a tenth to the documented time.
    fn wait_ms(&self, id: StreamId, count: u64) -> u64 {
        let Some(backoff) = self.backoff else { return 0 };
        let mut expected_ms = backoff.first_ms;
        for _ in 1..count.min(64) {
            expected_ms = expected_ms.saturating_mul(2).min(backoff.longest_ms);
        }
        let expected_ms = expected_ms.min(backoff.longest_ms);
        let wait_ms = backoff.wait_ms(id, count);
        assert!((expected_ms..=expected_ms + expected_ms / 10).contains(&wait_ms), "{wait_ms} {backoff:?}");
        wait_ms
    }

    pub(super) fn is_at_limit(&self, count: u64) -> bool {
        self.limit.is_some_and(|limit| count >= limit)
    }

    /// When the lease and the back-off of an owned row are over.
    pub(super) fn ready_at_ms(&self, id: StreamId, row: &NaiveRow) -> u64 {
        row.delivered_at_ms + self.lease_ms.max(self.wait_ms(id, row.count))
    }

    /// When nobody can keep a row any more that is at the limit, or whose entry is gone.
    pub(super) fn final_at_ms(&self, row: &NaiveRow) -> u64 {
        if row.owner.is_some() { row.delivered_at_ms + self.lease_ms } else { 0 }
    }
}

/// What the model remembers, but the product does not show. All notes are equal.
#[derive(Clone, Debug, Default)]
pub(super) struct Notes {
    /// The last request of each consumer.
    pub(super) seen: BTreeMap<Vec<u8>, u64>,
    /// The consumers whose last request the product may have forgotten, because such requests are not in the log.
    pub(super) forgotten: BTreeSet<Vec<u8>>,
    /// The consumers that have to leave, and since when.
    pub(super) leaving: BTreeMap<Vec<u8>, u64>,
    /// After a failed attempt, nothing is dead-lettered before this time.
    pub(super) retry_at_ms: u64,
    /// Rows that nobody can have, because their entry was removed, and since when.
    pub(super) gone: BTreeMap<StreamId, u64>,
    /// The first entry of the stream, and since when every group has acknowledged it and it is old enough.
    pub(super) done: Option<(StreamId, u64)>,
}

impl PartialEq for Notes {
    fn eq(&self, _: &Notes) -> bool {
        true
    }
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct NaiveGroup {
    pub(super) last_id: StreamId,
    pub(super) own: Policy,
    pub(super) rows: BTreeMap<StreamId, NaiveRow>,
    /// Released rows that can be had at once, in the order of their release.
    pub(super) queue: Vec<StreamId>,
    /// Released rows with due times.
    pub(super) waiting: BTreeSet<(u64, StreamId)>,
    pub(super) consumers: BTreeSet<Vec<u8>>,
    pub(super) missed: u64,
    pub(super) notes: Notes,
}

impl NaiveGroup {
    /// Notes a request of a consumer, which is created if it does not exist.
    fn see(&mut self, consumer: &[u8], now_ms: u64) {
        self.consumers.insert(consumer.to_vec());
        self.notes.seen.insert(consumer.to_vec(), now_ms);
        self.notes.forgotten.remove(consumer);
    }

    pub(super) fn remove(&mut self, id: StreamId) -> bool {
        self.queue.retain(|queued| *queued != id);
        self.waiting.retain(|(_, waiting)| *waiting != id);
        self.rows.remove(&id).is_some()
    }

    fn give(&mut self, id: StreamId, owner: &[u8], delivered_at_ms: u64, count: u64) {
        self.remove(id);
        self.rows.insert(id, NaiveRow { owner: Some(owner.to_vec()), delivered_at_ms, count });
    }

    fn release(&mut self, id: StreamId, count: u64, due_ms: u64) {
        self.remove(id);
        self.rows.insert(id, NaiveRow { owner: None, delivered_at_ms: 0, count });
        match due_ms {
            0 => self.queue.push(id),
            _ => _ = self.waiting.insert((due_ms, id)),
        }
    }

    pub(super) fn in_hand(&self) -> u64 {
        self.rows.values().filter(|row| row.owner.is_some()).count() as u64
    }

    /// When a released row can be had.
    fn due_ms(&self, id: StreamId) -> u64 {
        self.waiting.iter().find(|(_, waiting)| *waiting == id).map_or(0, |(due_ms, _)| *due_ms)
    }

    /// All rows in the order in which readers get them: released ones, then owned ones by their time.
    fn in_order(&self, now_ms: u64, time_ms: impl Fn(&StreamId, &NaiveRow) -> u64) -> Vec<StreamId> {
        let due = self.waiting.iter().filter(|(due_ms, _)| *due_ms <= now_ms).map(|(_, id)| *id);
        let mut order: Vec<StreamId> = self.queue.iter().copied().chain(due).collect();
        let owned = self.rows.iter().filter(|(_, row)| row.owner.is_some());
        let mut owned: Vec<(u64, StreamId)> = owned.map(|(id, row)| (time_ms(id, row), *id)).collect();
        owned.sort_unstable();
        order.extend(owned.into_iter().map(|(_, id)| id));
        order
    }

    fn owns(&self, consumer: &[u8], id: StreamId) -> bool {
        self.rows.get(&id).is_some_and(|row| row.owner.as_deref() == Some(consumer))
    }
}

/// What a read returns: ids, and the delivery count of each after it; `None` if the entry is gone.
pub(super) type Shown = Vec<(StreamId, Option<u64>)>;

/// How a consumer reads.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Reading {
    Plain,
    NoAck,
    Claim(u64),
    History(StreamId),
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct NaiveStream {
    pub(super) entries: BTreeMap<StreamId, Fields>,
    pub(super) last_id: StreamId,
    pub(super) added: u64,
    pub(super) policy: Policy,
    pub(super) groups: BTreeMap<Vec<u8>, NaiveGroup>,
    pub(super) delayed: BTreeMap<StreamId, Fields>,
    pub(super) tickets: u64,
    pub(super) notes: Notes,
}

impl NaiveStream {
    pub(super) fn of(stream: &Stream) -> NaiveStream {
        let fields_of = |entry: &EntryRef<'_>| -> Fields {
            entry.fields().flat_map(|(name, value)| [name.to_vec(), value.to_vec()]).collect()
        };
        let mut found = NaiveStream {
            last_id: stream.last_id(),
            added: stream.entries_added(),
            policy: stream.policy().cloned().unwrap_or_default(),
            tickets: stream.delayed().map_or(0, |delayed| delayed.last_number()),
            ..NaiveStream::default()
        };
        stream.visit_range(IdRange::ALL, None, &mut |entry: &EntryRef<'_>| {
            found.entries.insert(entry.id(), fields_of(entry));
            ControlFlow::Continue(())
        });
        if let Some(delayed) = stream.delayed() {
            delayed.visit_range(IdRange::ALL, None, &mut |entry: &EntryRef<'_>| {
                found.delayed.insert(entry.id(), fields_of(entry));
                ControlFlow::Continue(())
            });
        }
        for (name, group) in stream.groups() {
            let waiting: BTreeSet<(u64, StreamId)> = group.pending().waiting().collect();
            let released = group.pending().released().map(|row| row.id);
            let mut rows = BTreeMap::new();
            group.pending().walk(StreamId::MIN, Default::default(), |row| {
                let owner = row.consumer.map(|owner| group.owner_name(Some(owner)).to_vec());
                let (delivered_at_ms, count) = (row.delivered_at_ms, row.deliveries);
                rows.insert(row.id, NaiveRow { owner, delivered_at_ms, count });
                ControlFlow::Continue(())
            });
            let group = NaiveGroup {
                last_id: group.last_id(),
                own: group.own_policy().cloned().unwrap_or_default(),
                rows,
                queue: released.filter(|id| waiting.iter().all(|(_, waiting)| waiting != id)).collect(),
                waiting,
                consumers: group.consumers().map(|(name, ..)| name.to_vec()).collect(),
                missed: stream.missed(group).count,
                notes: Notes::default(),
            };
            found.groups.insert(name.to_vec(), group);
        }
        found
    }

    pub(super) fn rules(&self, group: &[u8]) -> Option<Rules> {
        Rules::new(&self.groups.get(group)?.own, &self.policy)
    }

    /// The id of the next entry with an automatic id.
    pub(super) fn next_id(&self, now_ms: u64) -> StreamId {
        match self.last_id.ms < now_ms {
            true => StreamId::new(now_ms, 0),
            false => self.last_id.next().expect("ids are left"),
        }
    }

    pub(super) fn add(&mut self, now_ms: u64, fields: Fields) -> StreamId {
        let id = self.next_id(now_ms);
        self.entries.insert(id, fields);
        (self.last_id, self.added) = (id, self.added + 1);
        id
    }

    pub(super) fn delay(&mut self, due_ms: u64, fields: Fields) -> StreamId {
        self.tickets += 1;
        let ticket = StreamId::new(due_ms, self.tickets);
        self.delayed.insert(ticket, fields);
        ticket
    }

    /// Removes an entry. Groups that have not read it miss it.
    pub(super) fn remove(&mut self, id: StreamId, with_rows: bool) -> bool {
        let exists = self.entries.remove(&id).is_some();
        for group in self.groups.values_mut() {
            group.missed += u64::from(exists && group.last_id < id);
            if with_rows {
                group.remove(id);
            }
        }
        exists
    }

    /// Returns what a plain read may claim, in order.
    fn ready(&self, group: &[u8], now_ms: u64) -> Vec<StreamId> {
        let (Some(rules), found) = (self.rules(group), &self.groups[group]) else { return Vec::new() };
        let is_ready = |id: &StreamId| {
            let row = &found.rows[id];
            let is_over = row.owner.is_none() || rules.ready_at_ms(*id, row) <= now_ms;
            is_over && !rules.is_at_limit(row.count) && self.entries.contains_key(id)
        };
        found.in_order(now_ms, |id, row| rules.ready_at_ms(*id, row)).into_iter().filter(is_ready).collect()
    }

    fn claimable(&self, group: &[u8], min_idle_ms: u64, now_ms: u64) -> Vec<StreamId> {
        let (rules, found) = (self.rules(group), &self.groups[group]);
        let is_idle = |id: &StreamId| {
            let row = &found.rows[id];
            let is_idle = row.owner.is_none() || row.delivered_at_ms + min_idle_ms <= now_ms;
            let is_final = rules.as_ref().is_some_and(|rules| rules.is_at_limit(row.count));
            is_idle && !is_final && self.entries.contains_key(id)
        };
        found.in_order(now_ms, |_, row| row.delivered_at_ms).into_iter().filter(is_idle).collect()
    }

    pub(super) fn read(
        &mut self,
        group: &[u8],
        consumer: &[u8],
        reading: Reading,
        count: u64,
        now_ms: u64,
    ) -> Shown {
        let rules = self.rules(group);
        self.groups.get_mut(group).expect("the group exists").see(consumer, now_ms);
        let claimed = match reading {
            Reading::History(after) => return self.history(group, consumer, after, count, now_ms),
            Reading::Plain => self.ready(group, now_ms),
            Reading::Claim(min_idle_ms) => self.claimable(group, min_idle_ms, now_ms),
            Reading::NoAck => Vec::new(),
        };
        let found = self.groups.get_mut(group).expect("the group exists");
        let mut shown = Shown::new();
        for id in claimed.into_iter().take(count as usize) {
            assert!(found.due_ms(id) <= now_ms, "handed out early");
            let count = (found.rows[&id].count + 1).min(DELIVERIES_MAX);
            found.give(id, consumer, now_ms, count);
            shown.push((id, Some(count)));
        }
        let mut left = count - shown.len() as u64;
        if let Some(most) = rules.as_ref().and_then(|rules| rules.max_pending) {
            // A read with NOACK takes no room, but waits for some too.
            let room = most.saturating_sub(found.in_hand());
            left = if reading == Reading::NoAck && room > 0 { left } else { left.min(room) };
        }
        let new = self.entries.keys().filter(|id| **id > found.last_id);
        for id in new.copied().take(left as usize).collect::<Vec<_>>() {
            found.last_id = id;
            if reading != Reading::NoAck {
                found.give(id, consumer, now_ms, 1);
            }
            shown.push((id, Some(1)));
        }
        shown
    }

    fn history(&mut self, group: &[u8], consumer: &[u8], after: StreamId, count: u64, now_ms: u64) -> Shown {
        let rules = self.rules(group);
        let found = self.groups.get_mut(group).expect("the group exists");
        let is_at_limit = |count| rules.as_ref().is_some_and(|rules| rules.is_at_limit(count));
        let own = found.rows.iter_mut().filter(|(id, row)| {
            **id > after && row.owner.as_deref() == Some(consumer) && !is_at_limit(row.count)
        });
        own.take(count as usize)
            .map(|(id, row)| {
                let exists = self.entries.contains_key(id);
                if exists {
                    (row.delivered_at_ms, row.count) = (now_ms, (row.count + 1).min(DELIVERIES_MAX));
                }
                (*id, exists.then_some(row.count))
            })
            .collect()
    }

    pub(super) fn nack(&mut self, group: &[u8], ids: &[StreamId], options: NackOptions, now_ms: u64) -> u64 {
        let rules = self.rules(group);
        let found = self.groups.get_mut(group).expect("the group exists");
        let has_limit = rules.as_ref().is_some_and(|rules| rules.limit.is_some());
        let mut released = 0;
        for &id in ids {
            let before = match found.rows.get(&id) {
                Some(row) => row.count,
                None if options.force && self.entries.contains_key(&id) => 0,
                None => continue,
            };
            let count = options.deliveries.unwrap_or(match options.mode {
                NackMode::Silent if has_limit && before >= REJECTED => before,
                NackMode::Silent => before.saturating_sub(1),
                NackMode::Fail => before,
                NackMode::Fatal if has_limit && before >= REJECTED => before,
                NackMode::Fatal if has_limit => REJECTED + before,
                NackMode::Fatal => DELIVERIES_MAX,
            });
            let wait_ms = match (options.delay_ms, &rules) {
                (Some(delay_ms), _) => delay_ms,
                (None, Some(rules)) if options.mode == NackMode::Fail && !rules.is_at_limit(count) => {
                    rules.wait_ms(id, count)
                }
                _ => 0,
            };
            found.release(id, count, if wait_ms == 0 { 0 } else { now_ms + wait_ms });
            released += 1;
        }
        released
    }

    /// Returns the claimed rows with their counts.
    pub(super) fn claim(
        &mut self,
        group: &[u8],
        consumer: &[u8],
        ids: &[StreamId],
        options: &ClaimOptions,
        now_ms: u64,
    ) -> Vec<(StreamId, u64)> {
        let rules = self.rules(group);
        let limit = rules.and_then(|rules| rules.limit);
        let found = self.groups.get_mut(group).expect("the group exists");
        found.see(consumer, now_ms);
        let time_ms = options.delivered_at_ms.unwrap_or(now_ms).min(now_ms);
        let mut claimed = Vec::new();
        for &id in ids {
            let before = found.rows.get(&id).cloned();
            if !self.entries.contains_key(&id) {
                if limit.is_none() {
                    found.remove(id);
                }
                continue;
            }
            let count = match &before {
                None if !options.force => continue,
                None => 1,
                Some(row) if row.owner.is_some() && row.delivered_at_ms + options.min_idle_ms > now_ms => {
                    continue;
                }
                Some(row) => row.count,
            };
            let is_delivery = options.deliveries.is_none() && !options.just_ids;
            if is_delivery && limit.is_some_and(|limit| count >= limit) {
                continue;
            }
            let once_more = if options.just_ids { count } else { (count + 1).min(DELIVERIES_MAX) };
            let count = options.deliveries.unwrap_or(once_more);
            found.give(id, consumer, time_ms, count);
            claimed.push((id, count));
        }
        claimed
    }

    pub(super) fn auto_claim(
        &mut self,
        group: &[u8],
        consumer: &[u8],
        (start, count): (StreamId, u64),
        min_idle_ms: u64,
        now_ms: u64,
    ) -> Vec<(StreamId, u64)> {
        let limit = self.rules(group).and_then(|rules| rules.limit);
        let found = self.groups.get_mut(group).expect("the group exists");
        found.see(consumer, now_ms);
        let (mut claimed, mut done) = (Vec::new(), 0);
        let all: Vec<StreamId> = found.rows.range(start..).map(|(id, _)| *id).collect();
        for id in all.into_iter().take(10 * count as usize) {
            if done == count {
                break;
            }
            let row = found.rows[&id].clone();
            if !self.entries.contains_key(&id) {
                if limit.is_none() {
                    found.remove(id);
                    done += 1;
                }
                continue;
            }
            let is_idle = match row.owner {
                Some(_) => row.delivered_at_ms + min_idle_ms <= now_ms,
                None => found.due_ms(id) <= now_ms,
            };
            if is_idle && limit.is_none_or(|limit| row.count < limit) {
                let count = (row.count + 1).min(DELIVERIES_MAX);
                found.give(id, consumer, now_ms, count);
                claimed.push((id, count));
                done += 1;
            }
        }
        claimed
    }

    pub(super) fn extend(
        &mut self,
        group: &[u8],
        consumer: &[u8],
        ids: &[StreamId],
        now_ms: u64,
    ) -> Vec<bool> {
        let found = self.groups.get_mut(group).expect("the group exists");
        if found.consumers.contains(consumer) {
            found.see(consumer, now_ms);
        }
        let mut extend = |id: &StreamId| {
            let owns = found.owns(consumer, *id);
            if owns {
                found.rows.get_mut(id).expect("it is owned").delivered_at_ms = now_ms;
            }
            owns
        };
        ids.iter().map(&mut extend).collect()
    }

    /// Returns the number of rows that the consumer had.
    pub(super) fn delete_consumer(&mut self, group: &[u8], consumer: &[u8]) -> u64 {
        let has_lease = self.rules(group).is_some();
        let found = self.groups.get_mut(group).expect("the group exists");
        let own: Vec<StreamId> = found.rows.keys().copied().filter(|id| found.owns(consumer, *id)).collect();
        for id in &own {
            match has_lease {
                true => found.release(*id, found.rows[id].count, 0),
                false => _ = found.remove(*id),
            }
        }
        found.consumers.remove(consumer);
        own.len() as u64
    }

    /// Returns whether every group has read and acknowledged an entry.
    pub(super) fn is_done(&self, id: StreamId) -> bool {
        let has_done = |group: &NaiveGroup| id <= group.last_id && !group.rows.contains_key(&id);
        !self.groups.is_empty() && self.groups.values().all(has_done)
    }

    pub(super) fn dead_letter(&self, key: &[u8], group: &[u8], id: StreamId, now_ms: u64) -> Fields {
        let row = &self.groups[group].rows[&id];
        let entry = self.entries.get(&id);
        let pairs = || entry.iter().flat_map(|fields| fields.chunks(2));
        let is_old = |pair: &&[Vec<u8>]| pair[0].starts_with(b"dlq.");
        let reason = match entry {
            None => "payload_gone",
            Some(_) if is_rejected(row.count) => "rejected",
            Some(_) => "max_deliveries",
        };
        let mut fields: Fields = pairs().filter(|pair| !is_old(pair)).flatten().cloned().collect();
        let mut put = |name: &str, value: &[u8]| fields.extend([name.into(), value.to_vec()]);
        put("dlq.stream", key);
        put("dlq.id", id.to_string().as_bytes());
        put("dlq.group", group);
        put("dlq.consumer", row.owner.as_deref().unwrap_or_default());
        put("dlq.deliveries", actual_deliveries(row.count).to_string().as_bytes());
        put("dlq.reason", reason.as_bytes());
        put("dlq.error", b"");
        put("dlq.error_type", b"");
        put("dlq.first_seen", id.ms.to_string().as_bytes());
        put("dlq.dead_at", now_ms.to_string().as_bytes());
        put("dlq.redrives", b"0");
        fields
    }
}
