//! Entries and counters of the shared streams.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::fate::{Fate, Fates};
use super::{Evidence, Kind, Report};
use crate::entry::{Id, Mark, recognise};
use crate::ledger::{Act, Nanos, Op, Seen, WORK};
use crate::load::PRODUCERS;
use crate::state::Stream;

/// Checks one stream: nothing lost, nothing invented, nothing back, counters in range.
pub(super) fn check(evidence: &Evidence<'_>, key: &'static str, fates: &Fates, report: &mut Report) {
    let (base, found) = (&evidence.base.streams[key], &evidence.found.streams[key]);
    if found.length != found.entries.len() as u64 {
        let what = format!("{key} has {} entries and says {}", found.entries.len(), found.length);
        report.add(Kind::Invented, what, None);
    }
    check_found(evidence, key, fates, report);
    check_promised(evidence, key, fates, report);
    check_counters(evidence.ops, key, base, found, report);
}

/// Every entry that is there must be explained.
fn check_found(evidence: &Evidence<'_>, key: &'static str, fates: &Fates, report: &mut Report) {
    let (base, found) = (&evidence.base.streams[key], &evidence.found.streams[key]);
    let written = writes(evidence.ops, key);
    let mut marks = HashSet::new();
    for (&id, fields) in &found.entries {
        if fates.of_entry(id) == Fate::Gone {
            report.add(Kind::CameBack, format!("{key} {id} was removed"), removal(evidence.ops, key, id));
        }
        if let Some(before) = base.entries.get(&id) {
            if before != fields {
                report.add(Kind::Invented, format!("{key} {id} has other fields than before"), None);
            }
            continue;
        }
        let Some(mark) = recognise(fields) else {
            report.add(Kind::Invented, format!("{key} {id} has fields nobody wrote"), None);
            continue;
        };
        if !marks.insert(mark) {
            report.add(Kind::Invented, format!("{key} {id}: {mark} is there twice"), None);
        }
        if id <= base.last_id {
            report.add(Kind::WentBack, format!("{key} {id} is new and not above {}", base.last_id), None);
        }
        if let Some((kind, what)) = unexplained(evidence, mark, id, written.get(&mark).copied()) {
            report.add(kind, format!("{key} {id}: {mark} {what}"), None);
        }
    }
}

fn unexplained(evidence: &Evidence<'_>, mark: Mark, id: Id, op: Option<&Op>) -> Option<(Kind, String)> {
    let Some(op) = op else {
        return Some(if mark.number < evidence.first.next(mark.producer) {
            (Kind::CameBack, "was given up by an earlier recovery or removed".to_owned())
        } else {
            (Kind::Invented, "was never sent".to_owned())
        });
    };
    match &op.act {
        _ if op.refused => Some((Kind::Invented, "was refused".to_owned())),
        Act::Add { id: Some(told), .. } if *told != id => {
            Some((Kind::Invented, format!("was told to be {told}")))
        }
        _ => None,
    }
}

fn writes<'a>(ops: &'a [Op], key: &str) -> HashMap<Mark, &'a Op> {
    ops.iter()
        .filter_map(|op| match &op.act {
            Act::Add { key: of, mark, .. } if *of == key => Some((*mark, op)),
            _ => None,
        })
        .collect()
}

fn removal(ops: &[Op], key: &str, id: Id) -> Option<Nanos> {
    ops.iter()
        .filter(|op| op.is_acknowledged())
        .filter(|op| match &op.act {
            Act::Delete { key: of, ids, .. } => *of == key && ids.contains(&id),
            Act::Trim { key: of, below } => *of == key && id < *below,
            _ => false,
        })
        .filter_map(|op| op.replied)
        .min()
}

/// Every entry that was acknowledged or shown must be there, unless something removed it.
fn check_promised(evidence: &Evidence<'_>, key: &'static str, fates: &Fates, report: &mut Report) {
    let (base, found) = (&evidence.base.streams[key], &evidence.found.streams[key]);
    for (id, promise) in promised(evidence, key, report) {
        if fates.of_entry(id) == Fate::Present && !found.entries.contains_key(&id) {
            report.add(Kind::Lost, format!("{key} {id}, {}", promise.how), Some(promise.at));
        }
    }
    for id in base.entries.keys() {
        if fates.of_entry(*id) == Fate::Present && !found.entries.contains_key(id) {
            report.add(Kind::Lost, format!("{key} {id}, there before the round"), None);
        }
    }
}

struct Promise {
    at: Nanos,
    how: &'static str,
}

/// When each entry of this round was first promised to anybody.
fn promised(evidence: &Evidence<'_>, key: &'static str, report: &mut Report) -> BTreeMap<Id, Promise> {
    let mut all: BTreeMap<Id, Promise> = BTreeMap::new();
    let mut promise = |id: Id, at: Nanos, how: &'static str| {
        let known = all.entry(id).or_insert(Promise { at, how });
        if at < known.at {
            *known = Promise { at, how };
        }
    };
    let base = &evidence.base.streams[key];
    for op in evidence.ops.iter().filter(|op| op.is_acknowledged()) {
        let at = op.replied.unwrap_or_default();
        match &op.act {
            Act::Add { key: of, id, .. } if *of == key => promise(id.unwrap_or_default(), at, "acknowledged"),
            Act::Observe { got, .. } | Act::Deliver { got, .. } => {
                for seen in got.iter().filter(|seen| seen.key == key && !base.entries.contains_key(&seen.id))
                {
                    promise(seen.id, at, "shown to a reader");
                    note_garbage(seen, report);
                }
            }
            _ => {}
        }
    }
    all
}

fn note_garbage(seen: &Seen, report: &mut Report) {
    if seen.mark.is_none() {
        report.add(
            Kind::Invented,
            format!("{} {} was shown with fields nobody wrote", seen.key, seen.id),
            None,
        );
    }
}

fn check_counters(ops: &[Op], key: &str, base: &Stream, found: &Stream, report: &mut Report) {
    let mut last_id = base.last_id;
    let mut deleted_id_max = base.deleted_id_max;
    let (mut added, mut maybe_added) = (base.added, 0);
    let mut added_shown = 0;
    for op in ops.iter().filter(|op| !op.refused) {
        match &op.act {
            Act::Add { key: of, id, .. } if *of == key => match id.filter(|_| op.is_acknowledged()) {
                Some(id) => {
                    last_id = last_id.max(id);
                    added += 1;
                }
                None => maybe_added += 1,
            },
            Act::Delete { key: of, ids, deleted }
                if *of == key && op.is_acknowledged() && *deleted == ids.len() =>
            {
                deleted_id_max = ids.iter().copied().fold(deleted_id_max, Id::max);
            }
            Act::Observe { got, key: of, last_id: shown, added } if op.is_acknowledged() => {
                last_id =
                    got.iter().filter(|seen| seen.key == key).map(|seen| seen.id).fold(last_id, Id::max);
                if *of == key {
                    last_id = last_id.max(*shown);
                    added_shown = added_shown.max(*added);
                }
            }
            _ => {}
        }
    }
    if found.last_id < last_id {
        report.add(Kind::WentBack, format!("{key} last id is {}, was {last_id}", found.last_id), None);
    }
    if found.deleted_id_max < deleted_id_max {
        let what = format!("{key} greatest deleted id is {}, was {deleted_id_max}", found.deleted_id_max);
        report.add(Kind::WentBack, what, None);
    }
    let least = added.max(added_shown);
    if found.added < least {
        report.add(Kind::WentBack, format!("{key} counts {} added, not {least}", found.added), None);
    }
    if found.added > added + maybe_added {
        let what = format!("{key} counts {} added, at most {} were sent", found.added, added + maybe_added);
        report.add(Kind::Invented, what, None);
    }
}

/// What a client wrote in sequence is there up to some point, whichever stream it went to.
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
            let Act::Add { key, mark, id } = &op.act else { continue };
            if mark.producer != producer
                || mark.number >= last
                || present.contains(mark)
                || !WORK.contains(key)
            {
                continue;
            }
            let excused = match id {
                Some(id) => fates[key].of_entry(*id) != Fate::Present,
                None => fates[key].trims_unseen(),
            };
            if !excused {
                report.add(
                    Kind::Hole,
                    format!("{key}: {mark} is missing, write {last} is there"),
                    op.replied,
                );
            }
        }
    }
}
