//! What the timekeeper does: checks that it is what the policies say, and makes the model do the same.
//!
//! Promotions and dead letters have exact moments. Retention and the removal of consumers have an earliest and a latest
//! one: the timekeeper looks at them at intervals.

use std::collections::{BTreeMap, BTreeSet};

use millstream_engine::StreamId;

use super::naive::{Fields, NaiveStream, Place};
use super::{BLOCK_ENTRIES, History, NaiveKey, Waiter};
use crate::dead_letter;

/// Shortest interval between two looks at the age of entries.
const LOOK_MS: u64 = 1000;
/// How long a group waits after a failed attempt to dead-letter an entry.
const RETRY_MS: u64 = 1000;

type Real = BTreeMap<Place, NaiveKey>;

impl History {
    /// Lets the timekeeper do everything that is due.
    pub(super) fn tick(&mut self) {
        let now_ms = self.now_ms();
        self.store.expire_due(now_ms, usize::MAX);
        if self.before_duties() {
            while self.store.run_duties() {}
        }
        self.store.wake_due_readers();
        self.keys.retain(|_, key| key.expires_at_ms.is_none_or(|at_ms| at_ms > now_ms));
        let real = self.real();
        let mut appended = self.dead_letters(&real);
        for (place, key) in &mut self.keys {
            let later = key.stream.delayed.split_off(&StreamId::new(now_ms + 1, 0));
            let due = std::mem::replace(&mut key.stream.delayed, later);
            appended.entry(place.clone()).or_default().promoted.extend(due.into_values());
        }
        for (place, expected) in appended {
            self.append(&real, &place, expected);
        }
        self.remove_by_retention(&real, true);
        self.remove_consumers(&real);
        self.check_served();
        self.check_late();
    }

    /// After a command: entries beyond MAXLEN can be gone, and blocked readers can have something.
    pub(super) fn after_command(&mut self) {
        let real = self.real();
        self.remove_by_retention(&real, false);
        self.check_served();
    }

    /// Removes the rows that must be dead-lettered by now, and those of removed entries that the product has removed.
    /// Returns the dead letters.
    fn dead_letters(&mut self, real: &Real) -> BTreeMap<Place, Appended> {
        let now_ms = self.now_ms();
        let mut appended: BTreeMap<Place, Appended> = BTreeMap::new();
        for (place, key) in &mut self.keys {
            for name in key.stream.groups.keys().cloned().collect::<Vec<_>>() {
                let Some(rules) = key.stream.rules(&name) else { continue };
                let target =
                    rules.dead_letters.clone().unwrap_or_else(|| dead_letter::default_stream(&place.1));
                let target = (place.0, target);
                let is_open = target.1 != place.1 && !self.strings.contains(&target);
                let left = real.get(place).and_then(|key| key.stream.groups.get(&name));
                let group = &key.stream.groups[&name];
                let is_kept = |id: &StreamId| left.is_some_and(|group| group.rows.contains_key(id));
                // Retention can remove an entry and its row at the moment at which the row is final.
                let is_removed = |id: &StreamId| {
                    let letter = key.stream.dead_letter(&place.1, &name, *id, now_ms);
                    let exists = real.get(place).is_some_and(|key| key.stream.entries.contains_key(id));
                    let letters = real.get(&target).map(|key| &key.stream.entries);
                    let has_letter =
                        letters.is_some_and(|entries| entries.values().any(|entry| *entry == letter));
                    key.stream.entries.contains_key(id) && !exists && !has_letter
                };
                let (mut taken, mut gone) = (Vec::new(), BTreeMap::new());
                let (mut has_failed, mut may_have_failed) = (false, false);
                for (id, row) in group.rows.iter().filter(|(_, row)| rules.final_at_ms(row) <= now_ms) {
                    let is_gone = !key.stream.entries.contains_key(id);
                    let is_due = rules.is_at_limit(row.count) && group.notes.retry_at_ms <= now_ms;
                    let is_found = is_gone && !is_kept(id);
                    match is_due || is_found {
                        true if self.has_retention && is_removed(id) => {}
                        true if rules.limit.is_none() || is_open => taken.push(*id),
                        true => has_failed = true,
                        // The attempt to dead-letter a row whose entry was removed can have failed.
                        false if is_gone && !is_open => may_have_failed = rules.limit.is_some(),
                        // Rows whose entry was removed are found within a second or a lease.
                        false if is_gone => {
                            let since_ms = group.notes.gone.get(id).copied().unwrap_or(now_ms);
                            let latest_ms =
                                since_ms.max(group.notes.retry_at_ms) + LOOK_MS.max(rules.lease_ms);
                            assert!(
                                now_ms <= latest_ms,
                                "{}: the row of {id} should be gone",
                                super::show(place)
                            );
                            gone.insert(*id, since_ms);
                        }
                        false => {}
                    }
                }
                if rules.limit.is_some() && !taken.is_empty() {
                    let letters = taken.iter().map(|id| key.stream.dead_letter(&place.1, &name, *id, now_ms));
                    appended.entry(target).or_default().dead_letters.extend(letters);
                }
                let group = key.stream.groups.get_mut(&name).expect("the group exists");
                taken.iter().for_each(|id| _ = group.remove(*id));
                group.notes.gone = gone;
                if has_failed || may_have_failed {
                    group.notes.retry_at_ms = now_ms + RETRY_MS;
                }
            }
        }
        appended
    }

    /// Appends what the product has appended, and checks that it is what is expected.
    fn append(&mut self, real: &Real, place: &Place, expected: Appended) {
        let Appended { dead_letters, promoted } = expected;
        if dead_letters.is_empty() && promoted.is_empty() {
            return;
        }
        let now_ms = self.now_ms();
        let stream = &mut self.keys.entry(place.clone()).or_default().stream;
        let Some(NaiveKey { stream: found, .. }) = real.get(place) else {
            panic!("no {}", super::show(place))
        };
        self.counts.dead_lettered += dead_letters.len();
        self.counts.promoted += promoted.len();
        let count = (dead_letters.len() + promoted.len()) as u64;
        assert_eq!(
            found.added - stream.added,
            count,
            "{}: {dead_letters:?} {promoted:?}",
            super::show(place)
        );
        // Retention can have removed the first ones already.
        let new: Vec<Fields> = found
            .entries
            .range(StreamId::next(stream.last_id).unwrap()..)
            .map(|(_, fields)| fields.clone())
            .collect();
        let (new_letters, new_promoted): (Vec<Fields>, Vec<Fields>) =
            new.iter().cloned().partition(|fields| fields.iter().any(|name| name == b"dlq.dead_at"));
        let promoted_before = promoted.len() - new_promoted.len().min(promoted.len());
        assert_eq!(new_promoted, promoted[promoted_before..], "promoted in the order of their tickets");
        let sorted = |letters: &[Fields]| letters.iter().cloned().collect::<BTreeSet<Fields>>();
        assert_eq!(sorted(&new_letters), sorted(&dead_letters), "dead letters of {}", super::show(place));
        let hidden = promoted[..promoted_before].iter().cloned();
        for fields in hidden.chain(new) {
            stream.add(now_ms, fields);
        }
    }

    /// Removes the entries that the product has removed, and checks that the policy removes them.
    fn remove_by_retention(&mut self, real: &Real, by_age: bool) {
        let now_ms = self.now_ms();
        for (place, NaiveKey { stream, .. }) in &mut self.keys {
            let Some(NaiveKey { stream: left, .. }) = real.get(place) else { continue };
            let gone: Vec<StreamId> =
                stream.entries.keys().filter(|id| !left.entries.contains_key(id)).copied().collect();
            let policy = stream.policy.clone();
            if let Some(last) = gone.last().copied() {
                assert_eq!(gone.len(), stream.entries.range(..=last).count(), "retention removes a prefix");
                let is_too_much = policy.max_length.is_some_and(|limit| left.entries.len() as u64 >= limit);
                let age_ms = |id: &StreamId| now_ms.saturating_sub(id.ms);
                let is_too_old = |id: &StreamId| policy.max_age_ms.is_some_and(|limit| age_ms(id) > limit);
                let is_done = |id: &StreamId| {
                    policy.acked_age_ms.is_some_and(|limit| age_ms(id) >= limit) && stream.is_done(*id)
                };
                let may_go = |id: &StreamId| by_age && (is_too_old(id) || is_done(id));
                assert!(is_too_much || gone.iter().all(may_go), "{}: {gone:?} must stay", super::show(place));
                gone.iter().for_each(|id| _ = stream.remove(*id, true));
                self.counts.trimmed += gone.len();
            }
            // Recovery makes blocks of the default length.
            let has_short_blocks = self.opened_at_ms == super::START_MS;
            let max_length = policy.max_length.map_or(u64::MAX, |limit| limit + BLOCK_ENTRIES);
            let is_short = (stream.entries.len() as u64) < max_length;
            assert!(!by_age || !has_short_blocks || is_short, "{} is too long", super::show(place));
        }
    }

    /// Removes the consumers that the product has removed, and checks that it should.
    fn remove_consumers(&mut self, real: &Real) {
        let now_ms = self.now_ms();
        for (place, NaiveKey { stream, .. }) in &mut self.keys {
            for name in stream.groups.keys().cloned().collect::<Vec<_>>() {
                let ttl_ms = stream.rules(&name).and_then(|rules| rules.consumer_ttl_ms);
                let left = real.get(place).and_then(|key| key.stream.groups.get(&name));
                let (Some(ttl_ms), Some(left)) = (ttl_ms, left) else { continue };
                let group = stream.groups.get_mut(&name).expect("the group exists");
                let mut leaving = BTreeMap::new();
                for consumer in group.consumers.clone() {
                    let seen_ms = group.notes.seen.get(&consumer).copied().unwrap_or(0);
                    let known_ms = if group.notes.forgotten.contains(&consumer) { 0 } else { seen_ms };
                    let holds = group.rows.values().any(|row| row.owner.as_ref() == Some(&consumer));
                    let is_same = |waiter: &Waiter| waiter.place == *place && waiter.group == name;
                    let waits =
                        self.waiters.iter().any(|waiter| is_same(waiter) && waiter.consumer == consumer);
                    let leaves =
                        |seen_ms: u64| seen_ms.max(self.opened_at_ms) + ttl_ms <= now_ms && !holds && !waits;
                    if !left.consumers.contains(&consumer) {
                        assert!(leaves(known_ms), "{}: consumer {consumer:?} must stay", super::show(place));
                        group.consumers.remove(&consumer);
                        self.counts.consumers_removed += 1;
                    } else if leaves(seen_ms) {
                        let since_ms = group.notes.leaving.get(&consumer).copied().unwrap_or(now_ms);
                        let interval_ms = (ttl_ms / 10).max(100);
                        let is_late = now_ms >= since_ms + interval_ms;
                        assert!(!is_late, "{}: consumer {consumer:?} must leave", super::show(place));
                        leaving.insert(consumer, since_ms);
                    }
                }
                group.notes.leaving = leaving;
            }
        }
    }

    /// Checks that nothing is left that a look should have removed.
    fn check_late(&mut self) {
        let now_ms = self.now_ms();
        for (place, NaiveKey { stream, .. }) in &mut self.keys {
            let first = stream.entries.keys().next().copied();
            if let (Some(limit), Some(first)) = (stream.policy.max_age_ms, first) {
                let latest_ms = first.ms + limit + LOOK_MS.max(limit / 100);
                assert!(now_ms <= latest_ms, "{}: {first} is too old", super::show(place));
            }
            let age_ms = stream.policy.acked_age_ms;
            let done = first
                .filter(|id| age_ms.is_some_and(|age_ms| id.ms + age_ms <= now_ms) && stream.is_done(*id));
            stream.notes.done = match (done, stream.notes.done) {
                (Some(id), Some((before, since_ms))) if id == before => {
                    assert!(now_ms <= since_ms + LOOK_MS, "{}: {id} should be gone", super::show(place));
                    Some((before, since_ms))
                }
                (done, _) => done.map(|id| (id, now_ms)),
            };
        }
    }

    /// Checks that the schedule has every stream no later than its next duty.
    pub(super) fn check_schedule(&self) {
        for (place, NaiveKey { stream, .. }) in &self.keys {
            let Some(duty_ms) = next_duty_ms(stream) else { continue };
            let planned_ms = self.scheduled_ms(place);
            let latest_ms = duty_ms.max(self.now_ms());
            assert!(
                planned_ms.is_some_and(|at_ms| at_ms <= latest_ms),
                "{} has a duty at {duty_ms}, but is scheduled at {planned_ms:?}",
                super::show(place)
            );
        }
    }

    /// Returns the moments at which something happens.
    pub(super) fn moments(&self) -> Vec<u64> {
        let mut moments = Vec::new();
        for key in self.keys.values() {
            moments.extend(key.expires_at_ms);
            moments.extend(key.stream.delayed.keys().map(|ticket| ticket.ms));
            for (name, group) in &key.stream.groups {
                moments.extend(group.waiting.iter().map(|(due_ms, _)| *due_ms));
                let Some(rules) = key.stream.rules(name) else { continue };
                for (id, row) in group.rows.iter().filter(|(_, row)| row.owner.is_some()) {
                    moments.extend([rules.ready_at_ms(*id, row), rules.final_at_ms(row)]);
                }
            }
        }
        moments.retain(|at_ms| *at_ms >= self.now_ms());
        moments
    }
}

/// Entries that the timekeeper adds to a stream.
#[derive(Default)]
struct Appended {
    dead_letters: Vec<Fields>,
    /// In the order of their tickets.
    promoted: Vec<Fields>,
}

/// Returns the earliest moment at which the timekeeper has to do something exact.
fn next_duty_ms(stream: &NaiveStream) -> Option<u64> {
    let promotion = stream.delayed.keys().next().map(|ticket| ticket.ms);
    let finals = stream.groups.iter().filter_map(|(name, group)| {
        let rules = stream.rules(name)?;
        let at_limit = group.rows.values().filter(|row| rules.is_at_limit(row.count));
        Some(at_limit.map(|row| rules.final_at_ms(row)).min()?.max(group.notes.retry_at_ms))
    });
    finals.chain(promotion).min()
}
