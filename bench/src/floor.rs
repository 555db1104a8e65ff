//! How far an operation is from what no server can go below: the system calls of its batch.
//!
//! PING does nothing but to be read, understood and answered, so what it costs at the same pipeline is taken as the floor. What an
//! operation costs beyond it is what its own work costs; and were that nothing, we would be as far ahead of the peer as anybody can be.

use crate::stats::{significant, thousands};
use crate::table::{Row, markdown};

/// A row of the speed table, PING at the same pipeline, and the operation whose instructions are counted.
const ROWS: &[(&str, &str, &str)] = &[
    ("xadd-short-p1", "ping-p1", "xadd-p1"),
    ("xadd-short-p16", "ping-p16", "xadd-p16"),
    ("xadd-short-p64", "ping-p64", ""),
    ("xreadgroup-1-p1", "ping-p1", "xreadgroup-1-p1"),
    ("xreadgroup-1-p16", "ping-p16", "xreadgroup-1-p16"),
    ("xreadgroup-10-p16", "ping-p16", "xreadgroup-10-p16"),
    ("xreadgroup-100-p1", "ping-p1", "xreadgroup-100-p1"),
    ("xack-order-p16", "ping-p16", "xack-order-p16"),
    ("xack-order-p64", "ping-p64", ""),
    ("xack-random-p16", "ping-p16", "xack-random-p16"),
    ("xack-random-p64", "ping-p64", ""),
    ("xrange-100", "ping-p1", "xrange-100-p1"),
];

/// `None`: no row was measured together with its PING.
pub(crate) fn table(rows: &[&Row], instructions: &[(String, f64)]) -> Option<String> {
    let lines: Vec<_> = ROWS.iter().filter_map(|names| line(rows, names, instructions)).collect();
    let peer = rows.first()?.servers.get(1)?;
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

fn line(
    rows: &[&Row],
    (name, ping, counted): &(&str, &str, &str),
    instructions: &[(String, f64)],
) -> Option<Vec<String>> {
    let find = |name: &str| rows.iter().find(|row| row.name == name);
    let (row, ping) = (find(name)?, find(ping)?);
    let count = |counted: &str| {
        let found = instructions.iter().find(|(name, _)| name == counted);
        found.map_or("–".into(), |(_, count)| thousands(*count))
    };
    let beyond = |server| Some((row.median(server, 0)? - ping.median(server, 0)?).max(0.0));
    Some(vec![
        row.title.clone(),
        significant(row.median(0, 0)?),
        significant(ping.median(0, 0)?),
        significant(beyond(0)?),
        significant(beyond(1)?),
        format!("{}×", significant(row.compared(1, 0)?.median)),
        format!("{}×", significant(row.median(1, 0)? / ping.median(0, 0)?)),
        count(counted),
        count(&ping.name),
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
        for (name, ping, _) in ROWS {
            assert!(known.iter().any(|row| row == name) && known.iter().any(|row| row == ping), "{name}");
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
