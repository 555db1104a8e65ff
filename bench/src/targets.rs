//! What was asked of this server: how many times better than redis-server 7.0.15 it is to be, and what the log may cost.
//!
//! Against other peers nothing was asked. Where a load can be driven in several ways and none was named, each of them is held
//! against the target.

use crate::stats::significant;
use crate::table::{Row, Table};

/// The peers that targets are set against; the second is this server without a log.
const PEERS: [&str; 2] = ["redis", "millstream off"];

/// One figure of one row.
struct Target {
    /// The table's heading.
    table: &'static str,
    row: &'static str,
    /// The column's key.
    column: &'static str,
    asked: Asked,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Asked {
    /// At least so many times less or more, whichever is better.
    Times(f64),
    /// At most so much more, in parts of a hundred.
    Percent(f64),
}

const fn cpu(row: &'static str, times: f64) -> Target {
    Target { table: "Speed", row, column: "cpu_us_per_op", asked: Asked::Times(times) }
}

const fn scan(row: &'static str, times: f64) -> Target {
    Target { table: "Scans of pending entries", row, column: "cpu_us_per_op", asked: Asked::Times(times) }
}

/// Bytes were asked for as a part of redis-server's.
const fn bytes(row: &'static str, part: f64) -> Target {
    Target { table: "Memory", row, column: "bytes", asked: Asked::Times(1.0 / part) }
}

const fn log_cost(row: &'static str) -> Target {
    Target { table: "What the log costs", row, column: "cpu_us_per_op", asked: Asked::Percent(15.0) }
}

const fn always(row: &'static str, column: &'static str, times: f64) -> Target {
    Target { table: "Always", row, column, asked: Asked::Times(times) }
}

const fn wait(table: &'static str, row: &'static str, column: &'static str) -> Target {
    Target { table, row, column, asked: Asked::Times(5.0) }
}

const SNAPSHOT: &str = "A snapshot under way";
const MIXED: &str = "Latency under mixed load";

const TARGETS: &[Target] = &[
    cpu("xadd-short-p1", 1.15),
    cpu("xadd-short-p16", 2.5),
    cpu("xadd-short-p64", 3.5),
    cpu("xreadgroup-1-p1", 2.0),
    cpu("xreadgroup-1-p16", 8.0),
    cpu("xreadgroup-10-p16", 8.0),
    cpu("xreadgroup-100-p1", 8.0),
    cpu("xack-order-p16", 4.0),
    cpu("xack-order-p64", 4.0),
    cpu("xack-random-p16", 4.0),
    cpu("xack-random-p64", 4.0),
    cpu("xrange-100", 3.5),
    cpu("cycle", 5.0),
    cpu("cycle-one", 5.0),
    cpu("cycle-steps", 5.0),
    cpu("xadd-blocked-1000", 6.0),
    cpu("xadd-blocked-5000", 25.0),
    scan("xpending-idle", 60.0),
    scan("xautoclaim", 5.0),
    bytes("entry-short", 0.7),
    bytes("entry-json", 0.95),
    bytes("pending-fresh", 0.14),
    bytes("pending-acked", 0.25),
    bytes("pending-claimed", 0.25),
    log_cost("cost-xadd-short-p16"),
    log_cost("cost-xadd-short-p64"),
    log_cost("cost-xreadgroup-1-p16"),
    log_cost("cost-xreadgroup-10-p16"),
    always("always-xadd-alone", "ops_per_second", 1.2),
    always("always-xadd", "ops_per_second", 1.2),
    always("always-xadd", "ping_p99_us", 10.0),
    always("always-xadd-slowly", "ops_per_second", 1.2),
    always("always-xadd-slowly", "ping_p99_us", 10.0),
    Target { table: "Recovery", row: "log", column: "seconds", asked: Asked::Times(3.0) },
    wait(SNAPSHOT, "snapshot-running-ping", "p99_us"),
    wait(SNAPSHOT, "snapshot-running-ping", "worst_ms"),
    wait(SNAPSHOT, "snapshot-running-xadd", "p99_us"),
    wait(SNAPSHOT, "snapshot-running-xadd", "worst_ms"),
    wait(MIXED, "read-ping", "p99_us"),
    wait(MIXED, "read-ping", "worst_ms"),
    wait(MIXED, "read-xadd", "p99_us"),
    wait(MIXED, "read-xadd", "worst_ms"),
    wait(MIXED, "trim-ping", "p99_us"),
    wait(MIXED, "trim-ping", "worst_ms"),
    wait(MIXED, "trim-xadd", "p99_us"),
    wait(MIXED, "trim-xadd", "worst_ms"),
    wait(MIXED, "delete-ping", "p99_us"),
    wait(MIXED, "delete-ping", "worst_ms"),
    wait(MIXED, "delete-xadd", "p99_us"),
    wait(MIXED, "delete-xadd", "worst_ms"),
];

/// A figure held against what was asked of it.
#[derive(Debug, PartialEq)]
pub(crate) struct Judged {
    pub(crate) column: &'static str,
    /// What the column is about, without its unit.
    quantity: &'static str,
    asked: Asked,
    pub(crate) found: f64,
}

impl Judged {
    pub(crate) fn is_met(&self) -> bool {
        match self.asked {
            Asked::Times(times) => self.found >= times,
            Asked::Percent(percent) => self.found <= percent,
        }
    }

    /// The bare figure that was asked for.
    pub(crate) fn asked(&self) -> f64 {
        match self.asked {
            Asked::Times(figure) | Asked::Percent(figure) => figure,
        }
    }

    /// `≥ 2.50×: met`.
    fn text(&self) -> String {
        let asked = match self.asked {
            Asked::Times(times) => format!("≥ {}×", significant(times)),
            Asked::Percent(percent) => format!("≤ {percent:.0} %"),
        };
        format!("{asked}: {}", if self.is_met() { "met" } else { "missed" })
    }
}

/// Whether anything was asked of a table, so that it has a column for it.
pub(crate) fn has_any(table: &Table) -> bool {
    TARGETS.iter().any(|target| target.table == table.heading)
}

/// Nothing where nothing was asked of this row against this peer, or nothing was found.
pub(crate) fn judge(row: &Row, peer: usize) -> Vec<Judged> {
    if row.servers.get(peer).is_none_or(|name| !PEERS.contains(&name.as_str())) {
        return Vec::new();
    }
    let of_row = |target: &&Target| target.table == row.table.heading && target.row == row.name;
    let judged = |target: &Target| {
        let at = row.table.columns.iter().position(|column| column.key == target.column)?;
        let found = row.compared(peer, at)?.median;
        let quantity = row.table.columns[at].quantity();
        Some(Judged { column: target.column, quantity, asked: target.asked, found })
    };
    TARGETS.iter().filter(of_row).filter_map(judged).collect()
}

/// A cell: `≥ 2.50×: met`, or for each of several figures `p99 ≥ 5.00×: met`.
pub(crate) fn text(judged: &[Judged]) -> String {
    match judged {
        [] => "–".into(),
        [one] => one.text(),
        several => {
            let texts: Vec<_> =
                several.iter().map(|one| format!("{} {}", one.quantity, one.text())).collect();
            texts.join(", ")
        }
    }
}

/// How many targets these rows meet, for the end of a run; `None` where they were asked nothing.
pub(crate) fn summary(rows: &[Row]) -> Option<String> {
    let judged: Vec<_> =
        rows.iter().flat_map(|row| (1..row.servers.len()).flat_map(move |peer| judge(row, peer))).collect();
    let met = judged.iter().filter(|one| one.is_met()).count();
    (!judged.is_empty()).then(|| format!("{met} of {} targets met", judged.len()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topics::{TOPICS, durability, latency, speed};

    fn row(name: &str, ours: f64) -> Row {
        let mut row = Row::new(&speed::TABLE, name, "", vec!["ours".into(), "redis".into(), "valkey".into()]);
        let sample = |cost| vec![vec![Some(cost), None, None, None]];
        row.samples = vec![sample(ours), sample(10.0), sample(10.0)];
        row
    }

    fn judgement(row: &Row, peer: usize) -> String {
        text(&judge(row, peer))
    }

    #[test]
    fn every_target_names_a_figure_that_is_compared() {
        for target in TARGETS {
            let (topic, table) = TOPICS
                .iter()
                .find_map(|topic| {
                    let tables = topic.parts.iter().map(|part| part.table);
                    Some((topic, tables.into_iter().find(|table| table.heading == target.table)?))
                })
                .unwrap();
            assert!(topic.rows().iter().any(|(row, _)| row == target.row), "{}", target.row);
            let column = table.columns.iter().find(|column| column.key == target.column).unwrap();
            assert!(column.compare != crate::table::Compare::No, "{}", target.column);
        }
    }

    #[test]
    fn only_redis_is_what_targets_are_set_against() {
        assert_eq!(judge(&row("xadd-short-p16", 2.5), 1)[0].found, 4.0);
        assert_eq!(judgement(&row("xadd-short-p16", 2.5), 1), "≥ 2.50×: met");
        assert_eq!(judgement(&row("xadd-short-p16", 2.5), 2), "–");
        assert_eq!(judgement(&row("xadd-json-p16", 2.5), 1), "–");
        assert_eq!(judgement(&row("xadd-short-p16", 5.0), 1), "≥ 2.50×: missed");
    }

    #[test]
    fn a_row_may_be_asked_for_more_than_one_figure() {
        let mut row = Row::new(&latency::TABLE, "trim-ping", "", vec!["ours".into(), "redis".into()]);
        let sample = |p99, worst| vec![vec![Some(1.0), Some(p99), Some(worst)]];
        row.samples = vec![sample(1.0, 1.0), sample(6.0, 4.0)];
        assert_eq!(judgement(&row, 1), "p99 ≥ 5.00×: met, worst stall ≥ 5.00×: missed");
    }

    #[test]
    fn a_log_may_cost_so_much() {
        let servers = vec!["millstream everysec".into(), "millstream off".into()];
        let mut row = Row::new(&durability::COST, "cost-xadd-short-p16", "", servers);
        let sample = |cost| vec![vec![Some(cost), None, None, None]];
        row.samples = vec![sample(1.1), sample(1.0)];
        assert_eq!(judgement(&row, 1), "≤ 15 %: met");
        row.samples[0] = sample(1.2);
        assert_eq!(judgement(&row, 1), "≤ 15 %: missed");
    }

    #[test]
    fn a_run_ends_with_how_many_were_met() {
        let rows = [row("xadd-short-p16", 2.5), row("cycle", 9.0), row("xadd-json-p1", 1.0)];
        assert_eq!(summary(&rows).unwrap(), "1 of 2 targets met");
        assert_eq!(summary(&rows[2..]), None);
    }
}
