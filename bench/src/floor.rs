//! How far an operation is from what no server can go below: the system calls of its batch.
//!
//! PING does nothing but to be read, understood and answered, so what it costs at the same pipeline is taken as the floor. What an
//! operation costs beyond it is what its own work costs; and were that nothing, we would be as far ahead of the peer as anybody can be.

use crate::stats::{significant, thousands};
use crate::table::{Row, markdown};

/// A row of the speed table, and what its floor is.
struct Floor {
    row: &'static str,
    /// PING in the same batches, from the same generator.
    ping: &'static str,
    /// The operations of both whose instructions are counted, if they are.
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

/// `None`: no row was measured together with its PING.
pub(crate) fn table(rows: &[&Row], instructions: &[(String, f64)]) -> Option<String> {
    let lines: Vec<_> = ROWS.iter().filter_map(|floor| line(rows, floor, instructions)).collect();
    let peer = match rows.first()?.servers.as_slice() {
        [_, peer] => peer,
        _ => "the best peer",
    };
    let heading = [
        "workload".to_owned(),
        "CPU, µs/op".to_owned(),
        "PING's, µs".to_owned(),
        "beyond it, µs".to_owned(),
        format!("{peer} beyond its PING, µs"),
        "times less".to_owned(),
        "were it free".to_owned(),
        "instructions, without the kernel's".to_owned(),
        "PING's instructions".to_owned(),
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
    let beyond = |server| Some((row.median(server, 0)? - ping.median(server, 0)?).max(0.0));
    Some(vec![
        row.title.clone(),
        significant(row.median(0, 0)?),
        significant(ping.median(0, 0)?),
        significant(beyond(0)?),
        significant(beyond(peer)?),
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
    fn every_row_is_one_of_the_speed_table() {
        let known: Vec<_> = speed::rows().into_iter().map(|(name, _)| name).collect();
        for name in ROWS.iter().flat_map(|floor| [floor.row, floor.ping]) {
            assert!(known.iter().any(|row| row == name), "{name}");
        }
    }

    #[test]
    fn what_ping_costs_is_taken_off() {
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
