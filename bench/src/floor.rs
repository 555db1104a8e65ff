//! Compares operations with the floor: the cost that no server can avoid, mostly the system calls per batch.
//!
//! The cost of PING at the same pipeline depth serves as the floor, because PING is only read, parsed and answered. The
//! cost above the floor is the operation's own work. If that work were free, an operation would cost as much as PING;
//! this gives an upper bound for the ratio to a peer.

use crate::stats::{significant, thousands};
use crate::table::{Row, markdown};

/// A row of the speed table and its floor.
struct Floor {
    row: &'static str,
    /// The row of PING with the same batches and the same load generator.
    ping: &'static str,
    /// Names in bench/instructions.txt of the operation and of PING; empty if their instructions are not counted.
    counted: [&'static str; 2],
}

const fn floor(row: &'static str, ping: &'static str) -> Floor {
    counted(row, ping, ["", ""])
}

const fn counted(row: &'static str, ping: &'static str, counted: [&'static str; 2]) -> Floor {
    Floor { row, ping, counted }
}

const ROWS: &[Floor] = &[
    counted("xadd-short-p1", "ping-p1", ["xadd-p1", "ping-p1"]),
    counted("xadd-short-p16", "ping-p16", ["xadd-p16", "ping-p16"]),
    floor("xadd-short-p64", "ping-p64"),
    counted("xreadgroup-1-p1", "ping-p1", ["xreadgroup-1-p1", "ping-p1"]),
    counted("xreadgroup-1-p16", "ping-p16", ["xreadgroup-1-p16", "ping-p16"]),
    counted("xreadgroup-10-p16", "ping-p16", ["xreadgroup-10-p16", "ping-p16"]),
    counted("xreadgroup-100-p1", "ping-p1", ["xreadgroup-100-p1", "ping-p1"]),
    counted("xack-order-p16", "ping-order-p16", ["xack-order-p16", "ping-p16"]),
    floor("xack-order-p64", "ping-order-p64"),
    counted("xack-random-p16", "ping-p16", ["xack-random-p16", "ping-p16"]),
    floor("xack-random-p64", "ping-p64"),
    counted("xrange-100", "ping-p1", ["xrange-100-p1", "ping-p1"]),
    floor("cycle", "ping-cycle"),
    floor("cycle-one", "ping-cycle-one"),
    floor("cycle-steps", "ping-cycle-steps"),
];

/// Returns the table, or `None` if no row was measured together with its PING.
pub(crate) fn table(rows: &[&Row], instructions: &[(String, f64)]) -> Option<String> {
    let lines: Vec<_> = ROWS.iter().filter_map(|floor| line(rows, floor, instructions)).collect();
    let peer = match rows.first()?.servers.as_slice() {
        [_, peer] => peer,
        _ => "the best peer",
    };
    let heading = [
        "workload".to_owned(),
        "CPU, µs/op".to_owned(),
        "PING, µs/op".to_owned(),
        "above PING, µs".to_owned(),
        format!("{peer} above its PING, µs"),
        "ratio".to_owned(),
        "upper bound".to_owned(),
        "instructions".to_owned(),
        "PING instructions".to_owned(),
    ];
    (!lines.is_empty()).then(|| markdown(&heading, &lines))
}

fn line(rows: &[&Row], floor: &Floor, instructions: &[(String, f64)]) -> Option<Vec<String>> {
    let find = |name: &str| rows.iter().find(|row| row.name == name);
    let (row, ping) = (find(floor.row)?, find(floor.ping)?);
    let [of_row, of_ping] = floor.counted.map(|counted| {
        let found = instructions.iter().find(|(name, _)| name == counted);
        found.map_or("–".into(), |(_, count)| thousands(*count))
    });
    let peer = row.best_peer(0)?;
    let above_ping = |server| Some((row.median(server, 0)? - ping.median(server, 0)?).max(0.0));
    Some(vec![
        row.title.clone(),
        significant(row.median(0, 0)?),
        significant(ping.median(0, 0)?),
        significant(above_ping(0)?),
        significant(above_ping(peer)?),
        format!("{}×", significant(row.compared(peer, 0)?.median)),
        format!("{}×", significant(row.median(peer, 0)? / ping.median(0, 0)?)),
        of_row,
        of_ping,
    ])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topics::speed;

    fn row(name: &str, ours: f64, theirs: f64) -> Row {
        let mut row = Row::new(&speed::TABLE, name, name, vec!["ours".into(), "redis".into()]);
        let sample = |cost| vec![vec![Some(cost), None, None, None]];
        row.samples = vec![sample(ours), sample(theirs)];
        row
    }

    #[test]
    fn every_row_is_in_the_speed_table() {
        let known: Vec<_> = speed::rows().into_iter().map(|(name, _)| name).collect();
        for name in ROWS.iter().flat_map(|floor| [floor.row, floor.ping]) {
            assert!(known.iter().any(|row| row == name), "{name}");
        }
    }

    #[test]
    fn cost_of_ping_is_subtracted() {
        let (ping, add) = (row("ping-p16", 0.5, 0.75), row("xadd-short-p16", 1.5, 3.0));
        let counts = [("xadd-p16".to_owned(), 3683.0), ("ping-p16".to_owned(), 900.0)];
        let text = table(&[&ping, &add], &counts).unwrap();
        assert!(
            text.ends_with("| xadd-short-p16 | 1.50 | 0.50 | 1.00 | 2.25 | 2.00× | 6.00× | 3,683 | 900 |\n"),
            "{text}"
        );
        assert_eq!(table(&[&add], &counts), None);
    }
}
