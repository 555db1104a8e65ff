//! Checks the consumer group of one shared stream: positions, deliveries, owners, delivery counts and
//! acknowledgements.

use std::collections::{BTreeMap, BTreeSet};

use super::fate::{Fate, Fates};
use super::{Evidence, Report, Violation};
use crate::entry::Id;
use crate::ledger::{Action, Nanos, Op};
use crate::state::{Group, Pending};

/// Tolerance for wall-clock times, which are whole milliseconds and may be rounded differently.
const ROUNDING_MS: u64 = 2;
/// How far the wall clock may be set back while a campaign runs. Redis follows it immediately.
const SET_BACK_MS: u64 = 1_000;

/// Checks the group of `key`.
pub(super) fn check(evidence: &Evidence<'_>, key: &'static str, fates: &Fates, report: &mut Report) {
    let Some(base) = &evidence.base.streams[key].group else { return };
    let Some(found) = &evidence.found.streams[key].group else {
        report.add(Violation::Lost, format!("the group of {key}"), None);
        return;
    };
    check_rows_agree(key, found, report);
    let history = History::of(evidence, key, base);
    check_positions(key, base, found, &history, report);
    check_delivered_once(key, base, &history, report);
    let mut ids: BTreeSet<Id> = history.by_id.keys().copied().collect();
    ids.extend(found.pending.keys());
    for id in ids {
        Row { evidence, key, id, base, found, fates, history: &history }.check(report);
    }
    check_no_entry_skipped(evidence, key, base, found, &history, report);
}

/// Checks that the group and its consumers report the same pending entries, each with exactly one owner.
fn check_rows_agree(key: &str, found: &Group, report: &mut Report) {
    let mut owners: BTreeMap<Id, usize> = BTreeMap::new();
    for (id, row) in &found.owned {
        *owners.entry(*id).or_default() += 1;
        if found.pending.get(id) != Some(row) {
            report.add(
                Violation::Owner,
                format!("{key} {id}: pending with {}, but the group's list differs", row.consumer),
                None,
            );
        }
    }
    for id in found.pending.keys() {
        let count = owners.get(id).copied().unwrap_or(0);
        if count != 1 {
            report.add(Violation::Owner, format!("{key} {id} is pending with {count} owners"), None);
        }
    }
}

/// Events of one entry in the group during the round.
#[derive(Default)]
struct Events {
    /// Times at which it was delivered as new.
    delivered: Vec<Nanos>,
    /// Deliveries and claims: consumer, time of the command, time of the reply.
    takings: Vec<(String, Nanos, Option<Nanos>)>,
    /// Number of acknowledged later deliveries that increment the delivery count.
    recounted: u64,
    /// Time at which the server acknowledged an XACK.
    acknowledged: Option<Nanos>,
    /// Whether an XACK was sent.
    acknowledgement_sent: bool,
    /// Whether a claim named it. Claims drop pending rows whose entries are deleted.
    claimed: bool,
}

/// Events in the group during the round.
#[derive(Default)]
struct History {
    by_id: BTreeMap<Id, Events>,
    /// Consumers with an XREADGROUP that got no reply.
    readers_without_reply: BTreeSet<String>,
    /// Claims that got no reply: consumer and time of the command.
    claims_without_reply: Vec<(String, Nanos)>,
    /// Number of commands without a reply that may have incremented the delivery count of any entry.
    counts_without_reply: u64,
    /// Whether a client sent a claim that names no ids.
    any_claim: bool,
}

impl History {
    fn of(evidence: &Evidence<'_>, key: &'static str, base: &Group) -> History {
        let mut history = History::default();
        for (id, row) in &base.pending {
            history.by_id.entry(*id).or_default().takings.push((row.consumer.clone(), 0, Some(0)));
        }
        for op in evidence.ops.iter().filter(|op| !op.refused) {
            history.note(key, op);
        }
        history
    }

    fn note(&mut self, key: &'static str, op: &Op) {
        match &op.action {
            Action::Deliver { consumer, got } => {
                if op.is_indeterminate() {
                    self.readers_without_reply.insert((*consumer).to_owned());
                }
                for seen in got.iter().filter(|seen| seen.key == key && op.is_acknowledged()) {
                    let events = self.by_id.entry(seen.id).or_default();
                    events.delivered.extend(op.replied);
                    events.takings.push(((*consumer).to_owned(), op.invoked, op.replied));
                }
            }
            Action::History { key: of, got, .. } if *of == key => {
                self.counts_without_reply += u64::from(op.is_indeterminate());
                // A deleted entry is returned without fields, and its delivery is not counted.
                for seen in got.iter().filter(|seen| seen.mark.is_some() && op.is_acknowledged()) {
                    self.by_id.entry(seen.id).or_default().recounted += 1;
                }
            }
            Action::Ack { key: of, ids } if *of == key => {
                for id in ids {
                    let events = self.by_id.entry(*id).or_default();
                    events.acknowledgement_sent = true;
                    events.acknowledged = events.acknowledged.or(op.replied);
                }
            }
            Action::Claim { key: of, consumer, requested, counts, got } if *of == key => {
                self.note_claim(op, consumer, requested.as_deref(), *counts, got);
            }
            _ => {}
        }
    }

    fn note_claim(&mut self, op: &Op, consumer: &str, requested: Option<&[Id]>, counts: bool, got: &[Id]) {
        self.any_claim |= requested.is_none();
        for id in requested.unwrap_or_default() {
            self.by_id.entry(*id).or_default().claimed = true;
        }
        if op.is_indeterminate() {
            self.counts_without_reply += u64::from(counts);
            self.claims_without_reply.push((consumer.to_owned(), op.invoked));
        }
        for id in got.iter().filter(|_| op.is_acknowledged()) {
            let events = self.by_id.entry(*id).or_default();
            events.recounted += u64::from(counts);
            events.takings.push((consumer.to_owned(), op.invoked, op.replied));
        }
    }
}

fn check_positions(key: &str, base: &Group, found: &Group, history: &History, report: &mut Report) {
    let delivered = history.by_id.iter().filter(|(_, events)| !events.delivered.is_empty());
    let last = delivered.map(|(&id, _)| id).fold(base.last_delivered, Id::max);
    if found.last_delivered < last {
        report.add(
            Violation::WentBack,
            format!("{key} last delivered is {}, was {last}", found.last_delivered),
            None,
        );
    }
    if let (Some(before), Some(now)) = (base.entries_read, found.entries_read)
        && now < before
    {
        report.add(Violation::WentBack, format!("{key} entries read is {now}, was {before}"), None);
    }
}

fn check_delivered_once(key: &str, base: &Group, history: &History, report: &mut Report) {
    for (&id, events) in &history.by_id {
        let before = usize::from(id <= base.last_delivered);
        if events.delivered.len() + before > 1 {
            report.add(Violation::Owner, format!("{key} {id} was delivered twice as a new entry"), None);
        }
    }
}

/// One entry in the group, and everything known about it.
struct Row<'a> {
    evidence: &'a Evidence<'a>,
    key: &'static str,
    id: Id,
    base: &'a Group,
    found: &'a Group,
    fates: &'a Fates,
    history: &'a History,
}

impl Row<'_> {
    fn check(&self, report: &mut Report) {
        let none = Events::default();
        let events = self.history.by_id.get(&self.id).unwrap_or(&none);
        match self.found.pending.get(&self.id) {
            Some(row) => self.check_pending(row, events, report),
            None => self.check_not_pending(events, report),
        }
    }

    fn check_pending(&self, row: &Pending, events: &Events, report: &mut Report) {
        let (key, id) = (self.key, self.id);
        if events.acknowledged.is_some() {
            report.add(
                Violation::CameBack,
                format!("{key} {id} was acknowledged and is pending"),
                events.acknowledged,
            );
            return;
        }
        let before = self.base.pending.get(&id);
        if before.is_none() && id <= self.base.last_delivered {
            report.add(
                Violation::CameBack,
                format!("{key} {id} was acknowledged before the round and is pending"),
                None,
            );
            return;
        }
        let owners = self.owners(events);
        if !owners.contains(&row.consumer) {
            let what = format!("{key} {id} is pending with {}, could be with {owners:?}", row.consumer);
            report.add(if owners.is_empty() { Violation::Invented } else { Violation::Owner }, what, None);
        }
        let least = before.map_or(1, |before| before.count) + events.recounted;
        let most = least + self.history.counts_without_reply;
        if !(least..=most).contains(&row.count) {
            let what = format!("{key} {id} was delivered {} times, expected {least} to {most}", row.count);
            report.add(Violation::Count, what, None);
        }
        self.check_time(row, before, report);
    }

    /// Returns the consumers that may own the entry: every consumer that took it and did not lose it again.
    ///
    /// A consumer has lost the entry if another command took it, and that command was sent after the reply to the
    /// consumer. Claims without a reply may also have succeeded.
    fn owners(&self, events: &Events) -> BTreeSet<String> {
        let mut owners: BTreeSet<String> = events
            .takings
            .iter()
            .filter(|(_, _, replied)| {
                let superseded = |at: Nanos| events.takings.iter().any(|(_, invoked, _)| *invoked > at);
                !replied.is_some_and(superseded)
            })
            .map(|(consumer, ..)| consumer.clone())
            .collect();
        if events.takings.is_empty() {
            owners.extend(self.history.readers_without_reply.iter().cloned());
        }
        if !owners.is_empty() {
            owners.extend(self.history.claims_without_reply.iter().map(|(consumer, _)| consumer.clone()));
        }
        owners
    }

    fn check_time(&self, row: &Pending, before: Option<&Pending>, report: &mut Report) {
        let latest = self.evidence.fault.dead_ms + ROUNDING_MS;
        let earliest = before.map_or(self.id.ms, |before| before.delivered_ms).saturating_sub(SET_BACK_MS);
        if !(earliest..=latest).contains(&row.delivered_ms) {
            let what = format!(
                "{} {} was delivered at {}, expected {earliest} to {latest}",
                self.key, self.id, row.delivered_ms
            );
            report.add(Violation::Count, what, None);
        }
    }

    fn check_not_pending(&self, events: &Events, report: &mut Report) {
        let taken = events.takings.iter().filter_map(|(_, _, replied)| *replied).min();
        let dropped_by_claim =
            self.fates.of_entry(self.id) != Fate::Present && (events.claimed || self.history.any_claim);
        if taken.is_some() && !events.acknowledgement_sent && !dropped_by_claim && !self.was_deleted_before()
        {
            let what = format!("{} {} was delivered and is not pending", self.key, self.id);
            report.add(Violation::Lost, what, taken);
        }
    }

    /// Whether its entry was deleted before the round while it was pending. Any claim drops such a row.
    fn was_deleted_before(&self) -> bool {
        let claimed = self.history.any_claim || self.history.by_id[&self.id].claimed;
        let stream = &self.evidence.base.streams[self.key];
        claimed && self.base.pending.contains_key(&self.id) && !stream.entries.contains_key(&self.id)
    }
}

/// Checks that every entry before the group's position is pending or was delivered.
fn check_no_entry_skipped(
    evidence: &Evidence<'_>,
    key: &'static str,
    base: &Group,
    found: &Group,
    history: &History,
    report: &mut Report,
) {
    for &id in evidence.found.streams[key].entries.keys() {
        if id <= base.last_delivered || id > found.last_delivered || found.pending.contains_key(&id) {
            continue;
        }
        let known = history.by_id.get(&id);
        if known.is_none_or(|events| events.takings.is_empty() && !events.acknowledgement_sent) {
            report.add(
                Violation::Lost,
                format!("{key} {id}: the group's position is past this entry, but no consumer got it"),
                None,
            );
        }
    }
}
