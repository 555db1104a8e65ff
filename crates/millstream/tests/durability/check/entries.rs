//! Checks the entries and counters of the shared streams.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::fate::{Fate, Fates};
use super::{Evidence, Report, Violation};
use crate::entry::{Id, Mark, recognise};
use crate::ledger::{Action, Nanos, Op, Seen, WORK};
use crate::load::PRODUCERS;
use crate::state::Stream;

/// Checks one stream: no entry is lost, is invented or reappears, and the counters are in range.
pub(super) fn check(evidence: &Evidence<'_>, key: &'static str, fates: &Fates, report: &mut Report) {
    let (base, found) = (&evidence.base.streams[key], &evidence.found.streams[key]);
    if found.length != found.entries.len() as u64 {
        let what =
            format!("{key} has {} entries and reports a length of {}", found.entries.len(), found.length);
        report.add(Violation::Invented, what, None);
    }
    check_found(evidence, key, fates, report);
    check_acknowledged(evidence, key, fates, report);
    check_counters(evidence.ops, key, base, found, report);
}

/// Checks that every entry in the stream is explained by the ledger.
fn check_found(evidence: &Evidence<'_>, key: &'static str, fates: &Fates, report: &mut Report) {
    let (base, found) = (&evidence.base.streams[key], &evidence.found.streams[key]);
    let written = writes(evidence.ops, key);
    let mut marks = HashSet::new();
    for (&id, fields) in &found.entries {
        if fates.of_entry(id) == Fate::Gone {
            report.add(
                Violation::CameBack,
                format!("{key} {id} was removed"),
                removal(evidence.ops, key, id),
            );
        }
        if let Some(before) = base.entries.get(&id) {
            if before != fields {
                report.add(Violation::Invented, format!("{key} {id} has different fields than before"), None);
            }
            continue;
        }
        let Some(mark) = recognise(fields) else {
            report.add(Violation::Invented, format!("{key} {id} has fields that no client wrote"), None);
            continue;
        };
        if !marks.insert(mark) {
            report.add(Violation::Invented, format!("{key} {id}: {mark} exists twice"), None);
        }
        if id <= base.last_id {
            report.add(
                Violation::WentBack,
                format!("{key} {id} is new and not greater than {}", base.last_id),
                None,
            );
        }
        if let Some((kind, what)) = unexplained(evidence, mark, id, written.get(&mark).copied()) {
            report.add(kind, format!("{key} {id}: {mark} {what}"), None);
        }
    }
}

fn unexplained(evidence: &Evidence<'_>, mark: Mark, id: Id, op: Option<&Op>) -> Option<(Violation, String)> {
    let Some(op) = op else {
        return Some(if mark.number < evidence.first.next(mark.producer) {
            (Violation::CameBack, "was dropped by an earlier recovery or removed".to_owned())
        } else {
            (Violation::Invented, "was never sent".to_owned())
        });
    };
    match &op.action {
        _ if op.refused => Some((Violation::Invented, "was refused".to_owned())),
        Action::Add { id: Some(acknowledged), .. } if *acknowledged != id => {
            Some((Violation::Invented, format!("was acknowledged with the id {acknowledged}")))
        }
        _ => None,
    }
}

fn writes<'a>(ops: &'a [Op], key: &str) -> HashMap<Mark, &'a Op> {
    ops.iter()
        .filter_map(|op| match &op.action {
            Action::Add { key: of, mark, .. } if *of == key => Some((*mark, op)),
            _ => None,
        })
        .collect()
}

fn removal(ops: &[Op], key: &str, id: Id) -> Option<Nanos> {
    ops.iter()
        .filter(|op| op.is_acknowledged())
        .filter(|op| match &op.action {
            Action::Delete { key: of, ids, .. } => *of == key && ids.contains(&id),
            Action::Trim { key: of, below } => *of == key && id < *below,
            _ => false,
        })
        .filter_map(|op| op.replied)
        .min()
}

/// Checks that every entry that was acknowledged or read still exists, unless a client removed it.
fn check_acknowledged(evidence: &Evidence<'_>, key: &'static str, fates: &Fates, report: &mut Report) {
    let (base, found) = (&evidence.base.streams[key], &evidence.found.streams[key]);
    for (id, first) in first_seen(evidence, key, report) {
        if fates.of_entry(id) == Fate::Present && !found.entries.contains_key(&id) {
            report.add(Violation::Lost, format!("{key} {id}, {}", first.how), Some(first.at));
        }
    }
    for id in base.entries.keys() {
        if fates.of_entry(*id) == Fate::Present && !found.entries.contains_key(id) {
            report.add(Violation::Lost, format!("{key} {id}, which existed before the round"), None);
        }
    }
}

struct FirstSeen {
    at: Nanos,
    how: &'static str,
}

/// When each entry of this round was first acknowledged to its writer or returned to a reader.
fn first_seen(evidence: &Evidence<'_>, key: &'static str, report: &mut Report) -> BTreeMap<Id, FirstSeen> {
    let mut all: BTreeMap<Id, FirstSeen> = BTreeMap::new();
    let mut note = |id: Id, at: Nanos, how: &'static str| {
        let known = all.entry(id).or_insert(FirstSeen { at, how });
        if at < known.at {
            *known = FirstSeen { at, how };
        }
    };
    let base = &evidence.base.streams[key];
    for op in evidence.ops.iter().filter(|op| op.is_acknowledged()) {
        let at = op.replied.unwrap_or_default();
        match &op.action {
            Action::Add { key: of, id, .. } if *of == key => note(id.unwrap_or_default(), at, "acknowledged"),
            Action::Observe { got, .. } | Action::Deliver { got, .. } => {
                for seen in got.iter().filter(|seen| seen.key == key && !base.entries.contains_key(&seen.id))
                {
                    note(seen.id, at, "returned to a reader");
                    check_fields(seen, report);
                }
            }
            _ => {}
        }
    }
    all
}

fn check_fields(seen: &Seen, report: &mut Report) {
    if seen.mark.is_none() {
        report.add(
            Violation::Invented,
            format!("{} {} was returned with fields that no client wrote", seen.key, seen.id),
            None,
        );
    }
}

fn check_counters(ops: &[Op], key: &str, base: &Stream, found: &Stream, report: &mut Report) {
    let mut last_id = base.last_id;
    let mut deleted_id_max = base.deleted_id_max;
    let (mut added, mut maybe_added) = (base.added, 0);
    let mut added_read = 0;
    for op in ops.iter().filter(|op| !op.refused) {
        match &op.action {
            Action::Add { key: of, id, .. } if *of == key => match id.filter(|_| op.is_acknowledged()) {
                Some(id) => {
                    last_id = last_id.max(id);
                    added += 1;
                }
                None => maybe_added += 1,
            },
            Action::Delete { key: of, ids, deleted }
                if *of == key && op.is_acknowledged() && *deleted == ids.len() =>
            {
                deleted_id_max = ids.iter().copied().fold(deleted_id_max, Id::max);
            }
            Action::Observe { got, key: of, last_id: read, added } if op.is_acknowledged() => {
                last_id =
                    got.iter().filter(|seen| seen.key == key).map(|seen| seen.id).fold(last_id, Id::max);
                if *of == key {
                    last_id = last_id.max(*read);
                    added_read = added_read.max(*added);
                }
            }
            _ => {}
        }
    }
    if found.last_id < last_id {
        report.add(Violation::WentBack, format!("{key} last id is {}, was {last_id}", found.last_id), None);
    }
    if found.deleted_id_max < deleted_id_max {
        let what = format!("{key} greatest deleted id is {}, was {deleted_id_max}", found.deleted_id_max);
        report.add(Violation::WentBack, what, None);
    }
    let least = added.max(added_read);
    if found.added < least {
        report.add(Violation::WentBack, format!("{key} counts {} added, not {least}", found.added), None);
    }
    if found.added > added + maybe_added {
        let what = format!("{key} counts {} added, at most {} were sent", found.added, added + maybe_added);
        report.add(Violation::Invented, what, None);
    }
}

/// Checks that the writes of each producer exist up to some point, without gaps, across both streams.
pub(super) fn check_order(evidence: &Evidence<'_>, report: &mut Report) {
    let fates: BTreeMap<&str, Fates> = WORK.iter().map(|&key| (key, Fates::of(key, evidence.ops))).collect();
    let present: HashSet<Mark> = WORK
        .iter()
        .flat_map(|key| evidence.found.streams[key].entries.values())
        .filter_map(|fields| recognise(fields))
        .collect();
    for producer in PRODUCERS {
        let Some(last) =
            present.iter().filter(|mark| mark.producer == producer).map(|mark| mark.number).max()
        else {
            continue;
        };
        for op in evidence.ops.iter().filter(|op| !op.refused) {
            let Action::Add { key, mark, id } = &op.action else { continue };
            if mark.producer != producer
                || mark.number >= last
                || present.contains(mark)
                || !WORK.contains(key)
            {
                continue;
            }
            let excused = match id {
                Some(id) => fates[key].of_entry(*id) != Fate::Present,
                None => fates[key].may_trim_unknown_ids(),
            };
            if !excused {
                report.add(
                    Violation::Hole,
                    format!("{key}: {mark} is missing, although the later write {last} exists"),
                    op.replied,
                );
            }
        }
    }
}
