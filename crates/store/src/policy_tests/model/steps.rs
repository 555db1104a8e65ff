//! The commands of a history. Each runs on the product and on the model, and their replies must be equal.

use std::time::Duration;

use millstream_engine::policy::{Backoff, Policy, PolicyField, PolicyValue};
use millstream_engine::stream::{ClaimOptions, NackOptions};
use millstream_engine::{
    Addition, Due, Exactness, GroupStart, IdSpec, NackMode, References, StreamId, Trim, TrimBy, TrimLimit,
};

use super::naive::{Fields, NaiveGroup, NaiveStream, Place, Reading, Shown};
use super::{CONSUMERS, DATABASES, GROUPS, History, KEYS, LATE, Waiter};
use crate::keys::ExpireIf;
use crate::queues::ServeResult;
use crate::strings::{SetExpiry, SetIf};
use crate::txn::Txn;
use crate::verbs::{
    Acknowledge, AutoClaim, BlockUntil, CancelDelayed, Claim, ConsumerDelete, ConsumerPath, Delete,
    EntryVerb, Extend, GroupCreate, GroupDestroy, GroupSetId, Nack, PromoteDelayed, ReadGroup, ResetPolicy,
    ResultSink, ReturnedEntry, SetPolicy, TrimStream, Verb, add,
};

/// Collects what a read returns.
#[derive(Default)]
struct ShownRows(Shown);

impl ResultSink for ShownRows {
    fn receive(&mut self, returned: &ReturnedEntry<'_, '_>) {
        self.0.push((returned.id, returned.entry.map(|_| returned.deliveries)));
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl History {
    pub(super) fn command(&mut self) {
        let place = self.place();
        let group = self.pick(&GROUPS);
        let has_stream = self.keys.contains_key(&place);
        let has_group = self.stream(&place).is_some_and(|stream| stream.groups.contains_key(group));
        match self.random.below(100) {
            0..10 => self.add(&place),
            10..16 => self.delay(&place),
            16..18 => self.promote_or_cancel(&place),
            18..20 => self.create_group(&place, group),
            20.. if !has_group && self.one_in(3) => self.create_group(&place, group),
            26..28 if has_stream => self.delete_entries(&place),
            28..29 if has_stream => self.trim(&place),
            29..31 => self.rearrange(&place),
            31..33 => self.toggle_string(),
            33..39 if has_stream => self.set_policy(&place, group),
            39..40 if has_stream => self.reset_policy(&place, group),
            40..57 if has_group => self.read(&place, group, Reading::Plain),
            57..59 if has_group => self.read(&place, group, Reading::NoAck),
            59..63 if has_group => {
                let min_idle_ms = self.random.below(2) * self.random.below(400);
                self.read(&place, group, Reading::Claim(min_idle_ms));
            }
            63..67 if has_group => {
                let after = self.id(&place, group);
                self.read(&place, group, Reading::History(after));
            }
            67..72 if has_group => self.acknowledge(&place, group),
            72..81 if has_group => self.nack(&place, group),
            81..86 if has_group => self.claim(&place, group),
            86..89 if has_group => self.auto_claim(&place, group),
            89..91 if has_group => self.extend(&place, group),
            91..92 if has_group => self.delete_consumer(&place, group),
            92..93 if has_group => self.move_group(&place, group),
            93..94 if has_group => self.destroy_group(&place, group),
            _ if has_group && !self.has_retention => self.block(&place, group),
            _ => self.add(&place),
        }
    }

    fn place(&mut self) -> Place {
        let db = u32::from(self.one_in(10));
        let [a, b, c] = KEYS;
        (db, self.pick(&[a, a, a, b, b, c]).to_vec())
    }

    fn stream(&self, place: &Place) -> Option<&NaiveStream> {
        self.keys.get(place).map(|key| &key.stream)
    }

    fn model(&mut self, place: &Place) -> &mut NaiveStream {
        &mut self.keys.entry(place.clone()).or_default().stream
    }

    fn fields(&mut self) -> Fields {
        self.payload += 1;
        vec![b"n".to_vec(), self.payload.to_string().into_bytes()]
    }

    /// Returns mostly the id of a pending entry or of an entry.
    fn id(&mut self, place: &Place, group: &[u8]) -> StreamId {
        let Some(stream) = self.stream(place) else { return StreamId::new(1, 1) };
        let rows = stream.groups.get(group).into_iter().flat_map(|group| group.rows.keys().copied());
        let rows: Vec<StreamId> = rows.collect();
        let mut known: Vec<StreamId> = stream.entries.keys().copied().collect();
        known.extend([StreamId::MIN, stream.last_id]);
        if !rows.is_empty() && !self.one_in(4) { self.pick(&rows) } else { self.pick(&known) }
    }

    fn ids(&mut self, place: &Place, group: &[u8]) -> Vec<StreamId> {
        (0..=self.random.below(3)).map(|_| self.id(place, group)).collect()
    }

    fn add(&mut self, place: &Place) {
        let (fields, now_ms) = (self.fields(), self.now_ms());
        let texts: Vec<&[u8]> = fields.iter().map(Vec::as_slice).collect();
        let added = add(&mut self.txn(place), &place.1, &Addition::new(&texts)).unwrap();
        let expected = self.model(place).add(now_ms, fields.clone());
        self.note(format!("{} add {expected}", super::show(place)));
        assert_eq!(added, Some(expected));
    }

    fn delay(&mut self, place: &Place) {
        let (fields, now_ms) = (self.fields(), self.now_ms());
        let wait_ms = self.random.below(4) * self.random.below(300);
        let due = if self.one_in(2) { Due::In(wait_ms) } else { Due::At(now_ms + wait_ms) };
        let texts: Vec<&[u8]> = fields.iter().map(Vec::as_slice).collect();
        let entry = Addition { id: IdSpec::Delayed(due), ..Addition::new(&texts) };
        let scheduled_ms = self.scheduled_ms(place);
        let ticket = add(&mut self.txn(place), &place.1, &entry).unwrap();
        self.after_delay(place, scheduled_ms);
        let expected = match wait_ms {
            0 => self.model(place).add(now_ms, fields.clone()),
            _ => self.model(place).delay(now_ms + wait_ms, fields.clone()),
        };
        self.note(format!("{} delay {wait_ms}: {expected}", super::show(place)));
        assert_eq!(ticket, Some(expected));
    }

    fn promote_or_cancel(&mut self, place: &Place) {
        let Some(stream) = self.stream(place) else { return };
        let mut tickets: Vec<StreamId> = stream.delayed.keys().copied().collect();
        tickets.truncate(1 + self.random.below(3) as usize);
        tickets.extend([StreamId::new(1, 1)]);
        let (now_ms, count, key) = (self.now_ms(), tickets.len() as u64 - 1, &place.1[..]);
        let promotes = self.one_in(2);
        self.note(format!("{} promote {promotes} {tickets:?}", super::show(place)));
        let mut txn = self.txn(place);
        let done = match promotes {
            true => PromoteDelayed { key, tickets: &tickets }.run(&mut txn),
            false => CancelDelayed { key, tickets: &tickets }.run(&mut txn),
        };
        drop(txn);
        assert_eq!(done, Ok(count));
        for ticket in tickets {
            let stream = self.model(place);
            if let (Some(fields), true) = (stream.delayed.remove(&ticket), promotes) {
                stream.add(now_ms, fields);
            }
        }
    }

    fn create_group(&mut self, place: &Place, group: &'static [u8]) {
        let start = if self.one_in(2) { GroupStart::Last } else { GroupStart::After(StreamId::MIN) };
        let mut create =
            GroupCreate { key: &place.1[..], group, start, make_stream: true, entries_read: None };
        let created = create.run(&mut self.txn(place));
        self.note(format!("{} create group {group:?} {start:?}", super::show(place)));
        let stream = self.model(place);
        assert_eq!(created.is_ok(), !stream.groups.contains_key(group));
        let last_id = if start == GroupStart::Last { stream.last_id } else { StreamId::MIN };
        let new = NaiveGroup { last_id, ..NaiveGroup::default() };
        stream.groups.entry(group.to_vec()).or_insert(new);
    }

    fn move_group(&mut self, place: &Place, group: &'static [u8]) {
        // A group that is moved back has new entries, but nobody tells its blocked readers.
        if self.waiters.iter().any(|waiter| waiter.place == *place) {
            return;
        }
        let to = self.id(place, group);
        let start = GroupStart::After(to);
        self.note(format!("{} move group {group:?} {to}", super::show(place)));
        GroupSetId { key: &place.1[..], group, start, entries_read: None }.run(&mut self.txn(place)).unwrap();
        let found = self.model(place).groups.get_mut(group).unwrap();
        (found.last_id, found.missed) = (to, 0);
    }

    fn destroy_group(&mut self, place: &Place, group: &'static [u8]) {
        self.note(format!("{} destroy group {group:?}", super::show(place)));
        let destroyed = GroupDestroy { key: &place.1[..], group }.run(&mut self.txn(place));
        assert_eq!(destroyed, Ok(true));
        self.model(place).groups.remove(group);
    }

    fn delete_entries(&mut self, place: &Place) {
        let ids = self.ids(place, GROUPS[0]);
        self.note(format!("{} delete {ids:?}", super::show(place)));
        let deleted = Delete { key: &place.1[..], ids: &ids }.run(&mut self.txn(place)).unwrap();
        let stream = self.model(place);
        assert_eq!(deleted, ids.iter().filter(|id| stream.remove(**id, false)).count() as u64);
    }

    fn trim(&mut self, place: &Place) {
        let (key, keep) = (&place.1[..], self.random.below(6));
        let references = self.pick(&[References::Keep, References::Delete]);
        let trim = Trim { by: TrimBy::MaxLen(keep), exactness: Exactness::Exact, limit: TrimLimit::Default };
        self.note(format!("{} trim to {keep} {references:?}", super::show(place)));
        let trimmed = TrimStream { key, trim, references }.run(&mut self.txn(place)).unwrap();
        let stream = self.model(place);
        let old: Vec<StreamId> = stream.entries.keys().rev().skip(keep as usize).copied().collect();
        old.iter().for_each(|id| _ = stream.remove(*id, references == References::Delete));
        assert_eq!(trimmed, old.len() as u64);
    }

    fn rearrange(&mut self, place: &Place) {
        let (db, key) = (place.0, &place.1[..]);
        let to = (self.random.below(u64::from(DATABASES)) as u32, self.pick(&KEYS).to_vec());
        let now_ms = self.now_ms();
        let expires_at_ms = now_ms + 1 + self.random.below(600);
        let choice = self.random.below(6);
        self.note(format!("{} rearrange {choice} {}", super::show(place), super::show(&to)));
        let store = std::sync::Arc::clone(&self.store);
        let mut txn = store.lock_all(db, now_ms);
        let mut moved = Vec::new();
        match choice {
            0 => {
                assert_eq!(txn.delete(key), self.keys.remove(place).is_some());
            }
            1 => {
                let is_set = txn.expire_at(key, expires_at_ms as i64, ExpireIf::Always);
                assert_eq!(is_set, self.keys.contains_key(place));
                if let Some(key) = self.keys.get_mut(place) {
                    key.expires_at_ms = Some(expires_at_ms);
                }
            }
            2 | 3 => {
                let to = (db, to.1);
                let renamed = txn.rename(key, &to.1, false);
                assert_eq!(renamed.is_ok(), self.keys.contains_key(place));
                if let Some(key) = self.keys.remove(place) {
                    self.keys.insert(to.clone(), key);
                    moved.push(to);
                }
            }
            4 => {
                let copied = txn.copy(key, &to.1, to.0, true);
                if let Some(copy) = self.keys.get(place).filter(|_| *place != to).cloned() {
                    assert_eq!(copied, Ok(true));
                    self.keys.insert(to.clone(), copy);
                    moved.push(to);
                }
            }
            _ => {
                txn.swap_databases(0, 1).unwrap();
                let swapped = |(db, key): Place| (1 - db, key);
                let keys = std::mem::take(&mut self.keys);
                self.keys = keys.into_iter().map(|(place, key)| (swapped(place), key)).collect();
                self.strings = std::mem::take(&mut self.strings).into_iter().map(swapped).collect();
                moved.extend(self.keys.keys().cloned());
            }
        }
        drop(txn);
        self.after_rearrangement(&moved);
    }

    /// Puts a string where dead letters could go, or removes it.
    fn toggle_string(&mut self) {
        let place = (0, LATE.to_vec());
        self.note("toggle the string".into());
        let mut txn = self.store.lock(0, [LATE], self.now_ms());
        let exists = txn.exists(LATE);
        match exists {
            true => _ = txn.delete(LATE),
            false => _ = txn.set(LATE, b"text", SetIf::Always, SetExpiry::Never),
        }
        drop(txn);
        self.keys.remove(&place);
        match exists {
            true => _ = self.strings.remove(&place),
            false => _ = self.strings.insert(place),
        }
    }

    fn random_policy(&mut self, of_group: bool) -> Policy {
        let mut policy = Policy::default();
        for field in PolicyField::ALL {
            let is_of_this =
                if of_group { !field.is_of_stream() } else { self.has_retention || !field.is_of_stream() };
            let lease_first = field == PolicyField::Lease && !self.one_in(3);
            if !is_of_this || !(lease_first || self.one_in(4)) {
                continue;
            }
            let off = self.one_in(6);
            let mut number = |from: u64, below: u64| if off { 0 } else { from + self.random.below(below) };
            let value = match field {
                PolicyField::Lease => PolicyValue::Number(number(100, 300)),
                PolicyField::MaxDeliver => PolicyValue::Number(number(1, 4)),
                PolicyField::DeadLetters if self.has_retention => PolicyValue::Key(self.pick(&[b"", LATE])),
                PolicyField::DeadLetters => PolicyValue::Key(self.pick(&[b"", LATE, b"a", b"b"])),
                PolicyField::Backoff => {
                    let first_ms = number(1, 300);
                    PolicyValue::Backoff(Backoff { first_ms, longest_ms: first_ms * 3 })
                }
                PolicyField::MaxPending => PolicyValue::Number(number(1, 3)),
                PolicyField::ConsumerTtl => PolicyValue::Number(number(100, 1500)),
                PolicyField::MaxAge => PolicyValue::Number(number(1, 4000)),
                PolicyField::MaxLength => PolicyValue::Number(number(1, 9)),
                PolicyField::MaxBytes => continue,
                PolicyField::AckedAge => PolicyValue::Number(number(0, 1500)),
            };
            policy.set(field, value);
        }
        policy
    }

    /// Sets a policy. The model accepts it if every group that has a field that needs a lease has one.
    fn set_policy(&mut self, place: &Place, group: &'static [u8]) {
        let group = if self.one_in(2) { None } else { Some(group) };
        let change = self.random_policy(group.is_some());
        self.note(format!("{} policy {group:?} {change:?}", super::show(place)));
        let dead_letters = change.dead_letters.clone().unwrap_or_default().to_vec();
        let mut keys: Vec<&[u8]> = vec![&place.1];
        keys.extend((!dead_letters.is_empty()).then_some(&dead_letters[..]));
        let mut txn = self.store.lock(place.0, keys, self.now_ms());
        let set = SetPolicy::new(&place.1[..], group, change.clone()).run(&mut txn);
        drop(txn);
        let mut changed = self.model(place).clone();
        let refused = dead_letters == place.1 || self.strings.contains(&(place.0, dead_letters));
        let target = match group {
            Some(name) => changed.groups.get_mut(name).map(|group| &mut group.own),
            None => Some(&mut changed.policy),
        };
        let Some(target) = target else { return assert!(set.is_err()) };
        for (field, value) in change.fields() {
            match group.is_none() && field != PolicyField::AckedAge && value.is_off() {
                true => target.unset(field),
                false => target.set(field, value),
            }
        }
        self.accept_policy(place, group, changed, refused, set.is_ok());
    }

    fn reset_policy(&mut self, place: &Place, group: &'static [u8]) {
        let group = if self.one_in(2) { None } else { Some(group) };
        self.note(format!("{} reset policy {group:?}", super::show(place)));
        let reset = ResetPolicy { key: &place.1[..], group }.run(&mut self.txn(place));
        let mut changed = self.model(place).clone();
        let had = match group {
            Some(name) => match changed.groups.get_mut(name) {
                Some(group) => std::mem::take(&mut group.own),
                None => return assert!(reset.is_err()),
            },
            None => std::mem::take(&mut changed.policy),
        };
        if had.is_empty() {
            return assert!(reset.is_ok());
        }
        self.accept_policy(place, group, changed, false, reset.is_ok());
    }

    /// Checks whether the product should have accepted a changed policy, and changes the model.
    fn accept_policy(
        &mut self,
        place: &Place,
        group: Option<&[u8]>,
        mut changed: NaiveStream,
        refused: bool,
        accepted: bool,
    ) {
        let leans_on = |lease: Option<u64>, default: Option<u64>| lease.or(default).unwrap_or(0) > 0;
        let needs = |policy: &Policy| policy.needs_lease().is_some();
        let of_stream = !needs(&changed.policy) || leans_on(changed.policy.lease_ms, None);
        let mut groups = changed.groups.iter().filter(|(name, _)| group.is_none_or(|group| group == *name));
        let of_groups = groups
            .all(|(_, group)| !needs(&group.own) || leans_on(group.own.lease_ms, changed.policy.lease_ms));
        let expected = (group.is_some() || of_stream) && of_groups && !refused;
        assert_eq!(accepted, expected, "the policy needs a lease, or names a wrong stream");
        if expected {
            let touched =
                changed.groups.iter_mut().filter(|(name, _)| group.is_none_or(|group| group == *name));
            for (_, group) in touched {
                group.notes.retry_at_ms = 0;
                group.notes.leaving.clear();
            }
            *self.model(place) = changed;
        }
    }

    fn read(&mut self, place: &Place, group: &'static [u8], reading: Reading) {
        let (consumer, count, now_ms) = (self.pick(&CONSUMERS), 1 + self.random.below(4), self.now_ms());
        self.note(format!("{} read {group:?} {consumer:?} {count} {reading:?}", super::show(place)));
        let mut rows = ShownRows::default();
        let mut read = reader(place, group, consumer, count, reading);
        read.run_into(&mut self.txn(place), &mut rows).unwrap();
        let mut expected = self.model(place).read(group, consumer, reading, count, now_ms);
        if let Reading::History(_) = reading {
            // Such a read does not tell the delivery counts.
            expected.iter_mut().for_each(|(_, count)| *count = count.map(|_| 0));
        }
        assert_eq!(rows.0, expected);
    }

    /// Reads one entry, and blocks if there is none.
    fn block(&mut self, place: &Place, group: &'static [u8]) {
        let (consumer, now_ms) = (self.pick(&CONSUMERS), self.now_ms());
        self.note(format!("{} block {group:?} {consumer:?}", super::show(place)));
        let mut rows = ShownRows::default();
        let mut read = reader(place, group, consumer, 1, Reading::Plain);
        let mut txn = self.txn(place);
        read.run_into(&mut txn, &mut rows).unwrap();
        let number = self.waiter_number;
        let is_blocked = rows.is_empty();
        if is_blocked {
            let BlockUntil { interests, .. } = read.block_until().unwrap();
            let served = std::sync::Arc::clone(&self.served);
            let mut steps_back = self.readers_step_back();
            txn.block(&interests, move |txn: &mut Txn<'_>| {
                if std::mem::take(&mut steps_back) {
                    return ServeResult::StillBlocked;
                }
                let mut rows = ShownRows::default();
                let result = read.run_into(txn, &mut rows);
                if result.is_ok() && rows.is_empty() {
                    return ServeResult::StillBlocked;
                }
                served.lock().push((number, result.map(|()| rows.0)));
                ServeResult::Served
            });
        }
        drop(txn);
        let expected = self.model(place).read(group, consumer, Reading::Plain, 1, now_ms);
        assert_eq!(rows.0, expected);
        if is_blocked {
            self.waiter_number += 1;
            self.waiters.push(Waiter { number, place: place.clone(), group, consumer });
        }
    }

    fn acknowledge(&mut self, place: &Place, group: &'static [u8]) {
        let mut ids = self.ids(place, group);
        ids.sort_unstable();
        ids.dedup();
        self.note(format!("{} ack {group:?} {ids:?}", super::show(place)));
        let acknowledged = Acknowledge { key: &place.1[..], group, ids: &ids }.run(&mut self.txn(place));
        let found = self.model(place).groups.get_mut(group).unwrap();
        assert_eq!(acknowledged, Ok(ids.iter().filter(|id| found.remove(**id)).count() as u64));
    }

    fn nack(&mut self, place: &Place, group: &'static [u8]) {
        let (ids, now_ms) = (self.ids(place, group), self.now_ms());
        let options = NackOptions {
            mode: self.pick(&[NackMode::Silent, NackMode::Fail, NackMode::Fail, NackMode::Fatal]),
            deliveries: self.one_in(5).then(|| self.random.below(5)),
            force: self.one_in(5),
            delay_ms: self.one_in(3).then(|| self.random.below(2) * self.random.below(400)),
        };
        self.note(format!("{} nack {group:?} {ids:?} {options:?}", super::show(place)));
        let released = Nack { key: &place.1[..], group, ids: &ids, options }.run(&mut self.txn(place));
        assert_eq!(released, Ok(self.model(place).nack(group, &ids, options, now_ms)));
    }

    fn claim(&mut self, place: &Place, group: &'static [u8]) {
        let (consumer, ids, now_ms) = (self.pick(&CONSUMERS), self.ids(place, group), self.now_ms());
        let options = ClaimOptions {
            min_idle_ms: self.random.below(2) * self.random.below(300),
            delivered_at_ms: self.one_in(4).then(|| now_ms - self.random.below(500)),
            deliveries: self.one_in(6).then(|| self.random.below(5)),
            force: self.one_in(4),
            just_ids: self.one_in(4),
        };
        self.note(format!("{} claim {group:?} {consumer:?} {ids:?} {options:?}", super::show(place)));
        let claim = Claim {
            consumer: path(place, group, consumer),
            ids: &ids,
            options,
            idle_ms: None,
            last_id: None,
        };
        let claimed = claim.claim(&mut self.txn(place)).unwrap();
        let claimed: Vec<_> = claimed.rows.iter().map(|row| (row.id, row.deliveries)).collect();
        assert_eq!(claimed, self.model(place).claim(group, consumer, &ids, &options, now_ms));
    }

    fn auto_claim(&mut self, place: &Place, group: &'static [u8]) {
        let (consumer, now_ms) = (self.pick(&CONSUMERS), self.now_ms());
        let min_idle_ms = self.random.below(2) * self.random.below(300);
        let options = ClaimOptions { min_idle_ms, ..NO_OPTIONS };
        let (start, count) = (StreamId::MIN, 1 + self.random.below(4));
        self.note(format!("{} autoclaim {group:?} {consumer:?} {min_idle_ms} {count}", super::show(place)));
        let claim = AutoClaim { consumer: path(place, group, consumer), start, count, options };
        let claimed = claim.claim(&mut self.txn(place)).unwrap().claimed;
        let claimed: Vec<_> = claimed.rows.iter().map(|row| (row.id, row.deliveries)).collect();
        let expected = self.model(place).auto_claim(group, consumer, (start, count), min_idle_ms, now_ms);
        assert_eq!(claimed, expected);
    }

    fn extend(&mut self, place: &Place, group: &'static [u8]) {
        let (consumer, ids, now_ms) = (self.pick(&CONSUMERS), self.ids(place, group), self.now_ms());
        self.note(format!("{} extend {group:?} {consumer:?} {ids:?}", super::show(place)));
        let extended = Extend { consumer: path(place, group, consumer), ids: &ids }.run(&mut self.txn(place));
        assert_eq!(extended, Ok(self.model(place).extend(group, consumer, &ids, now_ms)));
    }

    fn delete_consumer(&mut self, place: &Place, group: &'static [u8]) {
        let consumer = self.pick(&CONSUMERS);
        self.note(format!("{} delete consumer {group:?} {consumer:?}", super::show(place)));
        let deleted = ConsumerDelete(path(place, group, consumer)).run(&mut self.txn(place));
        assert_eq!(deleted, Ok(self.model(place).delete_consumer(group, consumer)));
    }
}

const NO_OPTIONS: ClaimOptions =
    ClaimOptions { min_idle_ms: 0, delivered_at_ms: None, deliveries: None, force: false, just_ids: false };

fn path<'a>(place: &'a Place, group: &'a [u8], consumer: &'a [u8]) -> ConsumerPath<&'a [u8]> {
    ConsumerPath { key: &place.1, group, consumer }
}

fn reader(place: &Place, group: &[u8], consumer: &[u8], count: u64, reading: Reading) -> ReadGroup {
    let path = ConsumerPath { key: place.1.clone(), group: group.to_vec(), consumer: consumer.to_vec() };
    let mut read = ReadGroup { count: Some(count), block: Some(Duration::ZERO), ..ReadGroup::new(path) };
    match reading {
        Reading::Plain => {}
        Reading::NoAck => read.becomes_pending = false,
        Reading::Claim(min_idle_ms) => read.claim_idle_ms_min = Some(min_idle_ms),
        Reading::History(after) => read.history_after = Some(after),
    }
    read
}
