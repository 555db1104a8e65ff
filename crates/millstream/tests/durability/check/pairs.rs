//! What happens as a whole or not at all: transactions over two streams, and XADD with its trimming.

use std::collections::{BTreeMap, HashMap};

use super::{Evidence, Kind, Report};
use crate::entry::{Mark, recognise};
use crate::ledger::{Act, Op, PAIR, PAIR_LENGTH, RING, RING_LENGTH};
use crate::load::TRANSACTORS;
use crate::state::{State, Stream};

/// The ring holds the last entries of some prefix of what its producer wrote, at or beyond the last acknowledged.
pub(super) fn check_ring(evidence: &Evidence<'_>, report: &mut Report) {
    let Some(found) = marks(RING, &evidence.found.streams[RING], report) else { return };
    let Some(mut expected) = marks(RING, &evidence.base.streams[RING], report) else { return };
    let mut least = expected.len();
    for op in evidence.ops.iter().filter(|op| !op.refused) {
        if let Act::Add { key: RING, mark, .. } = &op.act {
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
                let told = evidence.ops.iter().find(|op| writes(op, *mark)).and_then(|op| op.replied);
                report.add(Kind::Lost, format!("{RING}: {mark}"), told);
            }
        }
        None => report.add(Kind::Torn, format!("{RING} holds {}", numbers(&found)), None),
    }
}

fn writes(op: &Op, wanted: Mark) -> bool {
    matches!(&op.act, Act::Add { mark, .. } if *mark == wanted)
}

/// Both streams of the pair hold the same transactions, cut to the same length, and the keys tell the last ones.
pub(super) fn check_pair(evidence: &Evidence<'_>, report: &mut Report) {
    let streams = PAIR.map(|key| marks(key, &evidence.found.streams[key], report));
    let [Some(left), Some(right)] = streams else { return };
    if left != right || left.len() > PAIR_LENGTH {
        let what =
            format!("transactions in {}: {}; in {}: {}", PAIR[0], numbers(&left), PAIR[1], numbers(&right));
        report.add(Kind::Torn, what, None);
    }
    let before = marks(PAIR[0], &evidence.base.streams[PAIR[0]], report).unwrap_or_default();
    let sent: HashMap<Mark, &Op> =
        evidence.ops.iter().filter_map(|op| Some((transaction(op)?, op))).collect();
    for mark in &left {
        match sent.get(mark) {
            Some(op) if op.refused => {
                report.add(Kind::Invented, format!("transaction {mark} was refused"), None)
            }
            Some(_) => {}
            None if before.contains(mark) => {}
            None if mark.number < evidence.first.next(mark.producer) => {
                report.add(Kind::CameBack, format!("transaction {mark}"), None);
            }
            None => report.add(Kind::Invented, format!("transaction {mark} was never sent"), None),
        }
    }
    check_acknowledged_transactions(evidence, &left, report);
    check_pair_numbers(evidence, &left, report);
}

/// Each is there, or so many newer ones that it was trimmed.
fn check_acknowledged_transactions(evidence: &Evidence<'_>, present: &[Mark], report: &mut Report) {
    let oldest = evidence.found.streams[PAIR[0]].entries.keys().next().copied();
    for op in evidence.ops.iter().filter(|op| op.is_acknowledged()) {
        let Act::Transact { mark, id } = &op.act else { continue };
        let Some(id) = id else {
            report.add(Kind::Torn, format!("transaction {mark} was told to be half done"), op.replied);
            continue;
        };
        let trimmed = present.len() >= PAIR_LENGTH && oldest.is_some_and(|oldest| *id < oldest);
        if !present.contains(mark) && !trimmed {
            report.add(Kind::Lost, format!("transaction {mark}"), op.replied);
        }
    }
}

fn check_pair_numbers(evidence: &Evidence<'_>, present: &[Mark], report: &mut Report) {
    let told = last_told(evidence.base, evidence.ops);
    for producer in TRANSACTORS {
        let number = evidence.found.pair_numbers.get(&producer).copied();
        if number < told.get(&producer).copied() {
            report.add(Kind::WentBack, format!("the key of transactor {producer} holds {number:?}"), None);
        }
        let newest = present.iter().filter(|mark| mark.producer == producer).map(|mark| mark.number).max();
        if newest.is_some() && newest != number {
            let what = format!("the key of transactor {producer} holds {number:?}, its stream {newest:?}");
            report.add(Kind::Torn, what, None);
        }
    }
}

fn last_told(base: &State, ops: &[Op]) -> BTreeMap<u32, u64> {
    let mut told = base.pair_numbers.clone();
    for mark in ops.iter().filter(|op| op.is_acknowledged()).filter_map(transaction) {
        let last = told.entry(mark.producer).or_default();
        *last = (*last).max(mark.number);
    }
    told
}

fn transaction(op: &Op) -> Option<Mark> {
    match &op.act {
        Act::Transact { mark, .. } => Some(*mark),
        _ => None,
    }
}

/// The marks of a stream in order of its ids; a finding and `None` when an entry has none.
fn marks(key: &str, stream: &Stream, report: &mut Report) -> Option<Vec<Mark>> {
    let marks: Option<Vec<Mark>> = stream.entries.values().map(|fields| recognise(fields)).collect();
    if marks.is_none() {
        report.add(Kind::Invented, format!("{key} has an entry with fields nobody wrote"), None);
    }
    marks
}

fn numbers(marks: &[Mark]) -> String {
    let texts: Vec<String> = marks.iter().map(|mark| format!("{}:{}", mark.producer, mark.number)).collect();
    texts.join(" ")
}
