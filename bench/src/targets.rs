//! Targets: how many times better than its peers Millstream must be, how much the log and TLS may cost, and how long an
//! attack may stall other clients.
//!
//! Most targets refer to redis-server 7.0.15 only. If a workload has several variants, each of them must meet the
//! target.

use crate::stats::significant;
use crate::table::{Row, Table};

/// The peers that a target refers to.
#[derive(Clone, Copy, PartialEq)]
enum Against {
    /// redis-server 7.0.15; for the cost of the log, Millstream without persistence; for that of TLS, Millstream without
    /// TLS.
    Baseline,
    /// Each peer by itself.
    EveryPeer,
}

/// The names of the baseline.
const BASELINE: [&str; 3] = ["redis", "millstream off", "millstream plain"];

/// A target for one figure of one row.
struct Target {
    /// The table's heading.
    table: &'static str,
    row: &'static str,
    /// The column's key.
    column: &'static str,
    goal: Goal,
    against: Against,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Goal {
    /// Minimum factor by which the figure is better than the peer's.
    Times(f64),
    /// Maximum extra cost over the peer, in percent.
    Percent(f64),
    /// Maximum of the figure: this many milliseconds or twice the peer's figure, whichever is more.
    Stall { at_least_ms: f64 },
}

const fn target(table: &'static str, row: &'static str, column: &'static str, goal: Goal) -> Target {
    Target { table, row, column, goal, against: Against::Baseline }
}

const fn cpu(row: &'static str, times: f64) -> Target {
    target("Speed", row, "cpu_us_per_op", Goal::Times(times))
}

const fn scan(row: &'static str, times: f64) -> Target {
    target("Scans of pending entries", row, "cpu_us_per_op", Goal::Times(times))
}

/// `part` is the maximum share of redis-server's bytes.
const fn bytes(row: &'static str, part: f64) -> Target {
    target("Memory", row, "bytes", Goal::Times(1.0 / part))
}

const fn log_cost(row: &'static str) -> Target {
    target("What the log costs", row, "cpu_us_per_op", Goal::Percent(15.0))
}

const fn tls(row: &'static str) -> Target {
    target("TLS", row, "ops_per_second", Goal::Times(0.85))
}

const fn always(row: &'static str, column: &'static str, times: f64) -> Target {
    target("Always", row, column, Goal::Times(times))
}

const fn wait(table: &'static str, row: &'static str, column: &'static str) -> Target {
    target(table, row, column, Goal::Times(5.0))
}

const fn delivery(row: &'static str, column: &'static str, times: f64) -> Target {
    let table = "Latency of a message, always";
    Target { table, row, column, goal: Goal::Times(times), against: Against::EveryPeer }
}

const fn stall(row: &'static str, column: &'static str) -> Target {
    target("Stalls under attack", row, column, Goal::Stall { at_least_ms: 10.0 })
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
    target("Recovery", "log", "seconds", Goal::Times(3.0)),
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
    delivery("always-1x1-100", "delivered_p50_us", 1.3),
    delivery("always-1x1-100", "delivered_p99_us", 1.3),
    delivery("always-1x1-100", "delivered_p999_us", 1.0),
    delivery("always-1x1-500", "delivered_p50_us", 1.3),
    delivery("always-1x1-500", "delivered_p99_us", 1.3),
    delivery("always-1x1-500", "delivered_p999_us", 1.0),
    delivery("always-1x1-2000", "delivered_p50_us", 1.3),
    delivery("always-1x1-2000", "delivered_p99_us", 1.3),
    delivery("always-1x1-2000", "delivered_p999_us", 1.0),
    delivery("always-1x1-10000", "delivered_p50_us", 1.3),
    delivery("always-1x1-10000", "delivered_p99_us", 1.3),
    delivery("always-1x1-10000", "delivered_p999_us", 1.0),
    delivery("always-1x1-max", "delivered_p50_us", 1.3),
    delivery("always-1x1-max", "delivered_p99_us", 1.3),
    delivery("always-1x1-max", "delivered_p999_us", 1.0),
    stall("none", "ping_worst_ms"),
    stall("none", "xadd_worst_ms"),
    stall("hash-flood", "ping_worst_ms"),
    stall("hash-flood", "xadd_worst_ms"),
    stall("mget", "ping_worst_ms"),
    stall("mget", "xadd_worst_ms"),
    stall("block-many", "ping_worst_ms"),
    stall("block-many", "xadd_worst_ms"),
    stall("flushall", "ping_worst_ms"),
    stall("flushall", "xadd_worst_ms"),
    stall("exec", "ping_worst_ms"),
    stall("exec", "xadd_worst_ms"),
    stall("watch", "ping_worst_ms"),
    stall("watch", "xadd_worst_ms"),
    stall("auth", "ping_worst_ms"),
    stall("auth", "xadd_worst_ms"),
    stall("garbage", "ping_worst_ms"),
    stall("garbage", "xadd_worst_ms"),
    stall("tls-hello", "ping_worst_ms"),
    stall("tls-hello", "xadd_worst_ms"),
    stall("stranger-ping", "ping_worst_ms"),
    stall("stranger-ping", "xadd_worst_ms"),
    stall("connects", "ping_worst_ms"),
    stall("connects", "xadd_worst_ms"),
    stall("keys-glob", "ping_worst_ms"),
    stall("keys-glob", "xadd_worst_ms"),
    stall("xrange-unread", "ping_worst_ms"),
    stall("xrange-unread", "xadd_worst_ms"),
    stall("pipelines", "ping_worst_ms"),
    stall("pipelines", "xadd_worst_ms"),
    stall("tls-half-open", "ping_worst_ms"),
    stall("tls-half-open", "xadd_worst_ms"),
    stall("memory-full", "ping_worst_ms"),
    tls("tls-ping-p16"),
    tls("tls-xadd-short-p16"),
];

/// A measured figure and its target.
#[derive(Debug, PartialEq)]
pub(crate) struct Judged {
    pub(crate) column: &'static str,
    /// The column's heading without its unit.
    quantity: &'static str,
    goal: Goal,
    /// The goal as a bare number.
    pub(crate) asked: f64,
    pub(crate) found: f64,
}

impl Judged {
    pub(crate) fn is_met(&self) -> bool {
        match self.goal {
            Goal::Times(_) => self.found >= self.asked,
            Goal::Percent(_) | Goal::Stall { .. } => self.found <= self.asked,
        }
    }

    /// Formats goal and verdict: `≥ 2.50×: met`.
    fn text(&self) -> String {
        let goal = match self.goal {
            Goal::Times(times) => format!("≥ {}×", significant(times)),
            Goal::Percent(percent) => format!("≤ {percent:.0} %"),
            Goal::Stall { .. } => format!("≤ {} ms", significant(self.asked)),
        };
        format!("{goal}: {}", if self.is_met() { "met" } else { "missed" })
    }
}

/// Whether any row of the table has a target, so that the table has a target column.
pub(crate) fn has_any(table: &Table) -> bool {
    TARGETS.iter().any(|target| target.table == table.heading)
}

/// Returns the row's figures that have a target against this peer and were measured.
pub(crate) fn judge(row: &Row, peer: usize) -> Vec<Judged> {
    let is_baseline = row.servers.get(peer).is_some_and(|name| BASELINE.contains(&name.as_str()));
    let of_row = |target: &&Target| {
        target.table == row.table.heading
            && target.row == row.name
            && (is_baseline || target.against == Against::EveryPeer)
    };
    let judged = |target: &Target| {
        let at = row.table.columns.iter().position(|column| column.key == target.column)?;
        let compared = row.compared(peer, at)?.median;
        let (asked, found) = match target.goal {
            Goal::Times(figure) | Goal::Percent(figure) => (figure, compared),
            Goal::Stall { at_least_ms } => (at_least_ms.max(2.0 * row.median(peer, at)?), row.median(0, at)?),
        };
        let quantity = row.table.columns[at].quantity();
        Some(Judged { column: target.column, quantity, goal: target.goal, asked, found })
    };
    TARGETS.iter().filter(of_row).filter_map(judged).collect()
}

/// Formats the target cell: `≥ 2.50×: met`, or `p99 ≥ 5.00×: met` for each of several figures.
pub(crate) fn text(judged: &[Judged]) -> String {
    match judged {
        [] => "–".into(),
        [single] => single.text(),
        several => {
            let texts: Vec<_> =
                several.iter().map(|judged| format!("{} {}", judged.quantity, judged.text())).collect();
            texts.join(", ")
        }
    }
}

/// Summarizes how many targets these rows meet; `None` if they have no targets.
pub(crate) fn summary(rows: &[Row]) -> Option<String> {
    let judged: Vec<_> =
        rows.iter().flat_map(|row| (1..row.servers.len()).flat_map(move |peer| judge(row, peer))).collect();
    let met = judged.iter().filter(|judged| judged.is_met()).count();
    (!judged.is_empty()).then(|| format!("{met} of {} targets met", judged.len()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topics::{TOPICS, attacks, durability, latency, messages, speed};

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
    fn every_target_names_a_compared_column() {
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
    fn most_targets_apply_only_to_redis() {
        assert_eq!(judge(&row("xadd-short-p16", 2.5), 1)[0].found, 4.0);
        assert_eq!(judgement(&row("xadd-short-p16", 2.5), 1), "≥ 2.50×: met");
        assert_eq!(judgement(&row("xadd-short-p16", 2.5), 2), "–");
        assert_eq!(judgement(&row("xadd-json-p16", 2.5), 1), "–");
        assert_eq!(judgement(&row("xadd-short-p16", 5.0), 1), "≥ 2.50×: missed");
    }

    #[test]
    fn a_row_can_have_several_targets() {
        let mut row = Row::new(&latency::TABLE, "trim-ping", "", vec!["ours".into(), "redis".into()]);
        let sample = |p99, worst| vec![vec![Some(1.0), Some(p99), Some(worst)]];
        row.samples = vec![sample(1.0, 1.0), sample(6.0, 4.0)];
        assert_eq!(judgement(&row, 1), "p99 ≥ 5.00×: met, worst stall ≥ 5.00×: missed");
    }

    #[test]
    fn delivery_has_targets_against_every_peer() {
        let servers = ["ours", "redis", "valkey-9.1"].map(str::to_owned).to_vec();
        let mut row = Row::new(&messages::ALWAYS, "always-1x1-max", "", servers);
        let sample = |us| vec![vec![Some(us); messages::ALWAYS.columns.len()]];
        row.samples = vec![sample(100.0), sample(140.0), sample(120.0)];
        let met = "delivered p50 ≥ 1.30×: met, delivered p99 ≥ 1.30×: met, delivered p99.9 ≥ 1.00×: met";
        assert_eq!(judgement(&row, 1), met);
        assert_eq!(
            judgement(&row, 2),
            "delivered p50 ≥ 1.30×: missed, delivered p99 ≥ 1.30×: missed, delivered p99.9 ≥ 1.00×: met"
        );
        assert_eq!(summary(&[row]).unwrap(), "4 of 6 targets met");
    }

    #[test]
    fn a_stall_is_compared_with_ten_milliseconds_and_with_the_peer() {
        let mut row = Row::new(&attacks::TABLE, "mget", "", vec!["ours".into(), "redis".into()]);
        let sample = |ping, add| vec![vec![None, None, Some(ping), None, Some(add)]];
        row.samples = vec![sample(9.0, 31.0), sample(1.0, 15.0)];
        assert_eq!(judgement(&row, 1), "PING worst ≤ 10.0 ms: met, XADD worst ≤ 30.0 ms: missed");
    }

    #[test]
    fn extra_cost_of_the_log_is_bounded() {
        let servers = vec!["millstream everysec".into(), "millstream off".into()];
        let mut row = Row::new(&durability::COST, "cost-xadd-short-p16", "", servers);
        let sample = |cost| vec![vec![Some(cost), None, None, None]];
        row.samples = vec![sample(1.1), sample(1.0)];
        assert_eq!(judgement(&row, 1), "≤ 15 %: met");
        row.samples[0] = sample(1.2);
        assert_eq!(judgement(&row, 1), "≤ 15 %: missed");
    }

    #[test]
    fn summary_counts_targets_that_were_met() {
        let rows = [row("xadd-short-p16", 2.5), row("cycle", 9.0), row("xadd-json-p1", 1.0)];
        assert_eq!(summary(&rows).unwrap(), "1 of 2 targets met");
        assert_eq!(summary(&rows[2..]), None);
    }
}
