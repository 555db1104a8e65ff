//! Checks operations that happen completely or not at all: transactions over two streams, and XADD with its trim.

use std::collections::{BTreeMap, HashMap};

use super::{Evidence, Report, Violation};
use crate::entry::{Mark, recognise};
use crate::ledger::{Action, Op, PAIR, PAIR_LENGTH, RING, RING_LENGTH};
use crate::load::TRANSACTORS;
use crate::state::{State, Stream};

/// Checks that the ring contains the last entries of some prefix of its producer's writes, and that this prefix
/// includes the last acknowledged write.
pub(super) fn check_ring(evidence: &Evidence<'_>, report: &mut Report) {
    let Some(found) = marks(RING, &evidence.found.streams[RING], report) else { return };
    let Some(mut expected) = marks(RING, &evidence.base.streams[RING], report) else { return };
    let mut least = expected.len();
    for op in evidence.ops.iter().filter(|op| !op.refused) {
        if let Action::Add { key: RING, mark, .. } = &op.action {
            expected.push(*mark);
            if op.is_acknowledged() {
                least = expected.len();
            }
        }
    }
    let last_of = |count: usize| &expected[count.saturating_sub(RING_LENGTH)..count];
    if (least..=expected.len()).any(|count| last_of(count) == found) {
        return;
    }
    match (0..least).rev().find(|&count| last_of(count) == found) {
        Some(count) => {
            for mark in &expected[count..least] {
                let acknowledged = evidence.ops.iter().find(|op| writes(op, *mark)).and_then(|op| op.replied);
                report.add(Violation::Lost, format!("{RING}: {mark}"), acknowledged);
            }
        }
        None => report.add(Violation::Torn, format!("{RING} contains {}", numbers(&found)), None),
    }
}

fn writes(op: &Op, wanted: Mark) -> bool {
    matches!(&op.action, Action::Add { mark, .. } if *mark == wanted)
}

/// Checks that both streams of the pair contain the same transactions, are trimmed to the same length, and that each
/// producer's key has the number of its last transaction.
pub(super) fn check_pair(evidence: &Evidence<'_>, report: &mut Report) {
    let streams = PAIR.map(|key| marks(key, &evidence.found.streams[key], report));
    let [Some(left), Some(right)] = streams else { return };
    if left != right || left.len() > PAIR_LENGTH {
        let what =
            format!("transactions in {}: {}; in {}: {}", PAIR[0], numbers(&left), PAIR[1], numbers(&right));
        report.add(Violation::Torn, what, None);
    }
    let before = marks(PAIR[0], &evidence.base.streams[PAIR[0]], report).unwrap_or_default();
    let sent: HashMap<Mark, &Op> =
        evidence.ops.iter().filter_map(|op| Some((transaction(op)?, op))).collect();
    for mark in &left {
        match sent.get(mark) {
            Some(op) if op.refused => {
                report.add(Violation::Invented, format!("transaction {mark} was refused"), None)
            }
            Some(_) => {}
            None if before.contains(mark) => {}
            None if mark.number < evidence.first.next(mark.producer) => {
                report.add(Violation::CameBack, format!("transaction {mark}"), None);
            }
            None => report.add(Violation::Invented, format!("transaction {mark} was never sent"), None),
        }
    }
    check_acknowledged_transactions(evidence, &left, report);
    check_pair_numbers(evidence, &left, report);
}

/// Checks that each acknowledged transaction exists, or was trimmed because of newer ones.
fn check_acknowledged_transactions(evidence: &Evidence<'_>, present: &[Mark], report: &mut Report) {
    let oldest = evidence.found.streams[PAIR[0]].entries.keys().next().copied();
    for op in evidence.ops.iter().filter(|op| op.is_acknowledged()) {
        let Action::Transact { mark, id } = &op.action else { continue };
        let Some(id) = id else {
            report.add(
                Violation::Torn,
                format!("transaction {mark} was acknowledged without an id"),
                op.replied,
            );
            continue;
        };
        let trimmed = present.len() >= PAIR_LENGTH && oldest.is_some_and(|oldest| *id < oldest);
        if !present.contains(mark) && !trimmed {
            report.add(Violation::Lost, format!("transaction {mark}"), op.replied);
        }
    }
}

fn check_pair_numbers(evidence: &Evidence<'_>, present: &[Mark], report: &mut Report) {
    let acknowledged = last_acknowledged(evidence.base, evidence.ops);
    for producer in TRANSACTORS {
        let number = evidence.found.pair_numbers.get(&producer).copied();
        if number < acknowledged.get(&producer).copied() {
            report.add(Violation::WentBack, format!("the key of transactor {producer} has {number:?}"), None);
        }
        let newest = present.iter().filter(|mark| mark.producer == producer).map(|mark| mark.number).max();
        if newest.is_some() && newest != number {
            let what = format!("the key of transactor {producer} has {number:?}, its stream has {newest:?}");
            report.add(Violation::Torn, what, None);
        }
    }
}

fn last_acknowledged(base: &State, ops: &[Op]) -> BTreeMap<u32, u64> {
    let mut numbers = base.pair_numbers.clone();
    for mark in ops.iter().filter(|op| op.is_acknowledged()).filter_map(transaction) {
        let last = numbers.entry(mark.producer).or_default();
        *last = (*last).max(mark.number);
    }
    numbers
}

fn transaction(op: &Op) -> Option<Mark> {
    match &op.action {
        Action::Transact { mark, .. } => Some(*mark),
        _ => None,
    }
}

/// Returns the marks of a stream in the order of its ids. Adds a finding and returns `None` if an entry has no mark.
fn marks(key: &str, stream: &Stream, report: &mut Report) -> Option<Vec<Mark>> {
    let marks: Option<Vec<Mark>> = stream.entries.values().map(|fields| recognise(fields)).collect();
    if marks.is_none() {
        report.add(Violation::Invented, format!("{key} has an entry with fields that no client wrote"), None);
    }
    marks
}

fn numbers(marks: &[Mark]) -> String {
    let texts: Vec<String> = marks.iter().map(|mark| format!("{}:{}", mark.producer, mark.number)).collect();
    texts.join(" ")
}
