//! What was asked of this server: how many times less than redis-server 7.0.15 it is to need.
//!
//! Of the first column of a table: processor time per operation with persistence off, or bytes. Against other peers
//! nothing was asked.
//!
//! Where a load can be driven in several ways, the target stands at the row in which the server works and does not wait: XACK
//! "pipelined" at 64, the cycle at 60, readers served by fifty producers. The other ways are rows without one.

use crate::stats::significant;
use crate::table::Row;

/// The peer that targets are set against.
const PEER: &str = "redis";

/// Topic, row, and how many times less.
const TARGETS: &[(&str, &str, f64)] = &[
    ("speed", "xadd-short-p1", 1.15),
    ("speed", "xadd-short-p16", 2.5),
    ("speed", "xadd-short-p64", 3.5),
    ("speed", "xreadgroup-1-p1", 2.0),
    ("speed", "xreadgroup-1-p16", 8.0),
    ("speed", "xreadgroup-10-p16", 8.0),
    ("speed", "xreadgroup-100-p1", 8.0),
    ("speed", "xack-order-p64", 4.0),
    ("speed", "xack-random-p64", 4.0),
    ("speed", "xrange-100", 3.5),
    ("speed", "cycle", 5.0),
    ("speed", "xadd-blocked-1000", 6.0),
    ("speed", "xadd-blocked-5000", 25.0),
    ("scans", "xpending-idle", 60.0),
    ("scans", "xautoclaim", 5.0),
    ("memory", "entry-short", 1.0 / 0.7),
    ("memory", "entry-json", 1.0 / 0.95),
    ("memory", "pending-fresh", 1.0 / 0.14),
    ("memory", "pending-acked", 1.0 / 0.25),
    ("memory", "pending-claimed", 1.0 / 0.25),
];

/// A row held against what was asked of it.
#[derive(Debug, PartialEq)]
pub(crate) struct Judged {
    pub(crate) asked: f64,
    pub(crate) found: f64,
}

impl Judged {
    pub(crate) fn is_met(&self) -> bool {
        self.found >= self.asked
    }

    /// `≥ 2.50×: met`.
    pub(crate) fn text(&self) -> String {
        format!("≥ {}×: {}", significant(self.asked), if self.is_met() { "met" } else { "missed" })
    }
}

/// Whether anything was asked of a table of this topic, so that it has a column for it.
pub(crate) fn has_any(topic: &str) -> bool {
    TARGETS.iter().any(|(of, _, _)| *of == topic)
}

/// `None`: nothing was asked of this row against this peer, or nothing was found.
pub(crate) fn judge(row: &Row, peer: usize) -> Option<Judged> {
    if row.servers.get(peer)? != PEER {
        return None;
    }
    let (_, _, asked) =
        TARGETS.iter().find(|(topic, name, _)| *topic == row.table.topic && *name == row.name)?;
    Some(Judged { asked: *asked, found: row.compared(peer, 0)?.median })
}

/// How many targets these rows meet, for the end of a run; `None` where they were asked nothing.
pub(crate) fn summary(rows: &[Row]) -> Option<String> {
    let judged: Vec<_> =
        rows.iter().flat_map(|row| (1..row.servers.len()).filter_map(move |peer| judge(row, peer))).collect();
    let met = judged.iter().filter(|one| one.is_met()).count();
    (!judged.is_empty()).then(|| format!("{met} of {} targets met", judged.len()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topics::TOPICS;
    use crate::topics::speed;

    fn row(name: &str, ours: f64) -> Row {
        let mut row = Row::new(&speed::TABLE, name, "", vec!["ours".into(), "redis".into(), "valkey".into()]);
        let sample = |cost| vec![vec![Some(cost), None, None, None]];
        row.samples = vec![sample(ours), sample(10.0), sample(10.0)];
        row
    }

    #[test]
    fn every_target_names_a_row() {
        for (topic, name, _) in TARGETS {
            let topic = TOPICS.iter().find(|one| one.name == *topic).unwrap();
            assert!((topic.rows)().iter().any(|(row, _)| row == name), "{name}");
        }
    }

    #[test]
    fn only_redis_is_what_targets_are_set_against() {
        let judged = judge(&row("xadd-short-p16", 2.5), 1).unwrap();
        assert_eq!(judged, Judged { asked: 2.5, found: 4.0 });
        assert_eq!(judged.text(), "≥ 2.50×: met");
        assert_eq!(judge(&row("xadd-short-p16", 2.5), 2), None);
        assert_eq!(judge(&row("xadd-json-p16", 2.5), 1), None);
        assert_eq!(judge(&row("xadd-short-p16", 5.0), 1).unwrap().text(), "≥ 2.50×: missed");
    }

    #[test]
    fn a_run_ends_with_how_many_were_met() {
        let rows = [row("xadd-short-p16", 2.5), row("cycle", 9.0), row("xadd-json-p1", 1.0)];
        assert_eq!(summary(&rows).unwrap(), "1 of 2 targets met");
        assert_eq!(summary(&rows[2..]), None);
    }
}
