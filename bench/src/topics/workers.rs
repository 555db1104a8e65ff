//! Latency of a message through the worker runtime: from its add to the start of its handler.
//!
//! The load generator is an example program of the worker crate, which prints the percentiles.

use std::process::Command;

use crate::Failure;
use crate::options::Options;
use crate::server::{Persistence, Server};
use crate::stats::thousands;
use crate::table::{Column, Compare, Layout, Sample, Table, column};
use crate::topics::{Case, Group, Repetitions, start_all};

const COLUMNS: &[Column] = &[
    column("p50_us", "p50, µs", Compare::Less),
    column("p99_us", "p99, µs", Compare::Less),
    column("p999_us", "p99.9, µs", Compare::Less),
];

pub(crate) static TABLE: Table = Table {
    topic: "latency",
    heading: "Latency through a worker",
    intro: "A producer and a worker of the worker runtime, in one process with a connection each. The time is \
            from before the add until the worker's handler begins. Messages are added when they are due, \
            whether or not earlier ones were handled.",
    layout: Layout::ByPeer,
    columns: COLUMNS,
};

const PERSISTENCE: [(&str, Persistence); 3] =
    [("always", Persistence::Always), ("everysec", Persistence::EverySec), ("off", Persistence::Off)];
/// Messages per second.
const RATES: [u64; 3] = [100, 500, 2_000];

/// `--quick` leaves these rows out, because their program takes long to build.
pub(crate) fn groups() -> Vec<Group> {
    let group = |(policy, persistence): (&str, Persistence)| {
        let case = |rate| {
            let (name, title) = (
                format!("worker-{policy}-{rate}"),
                format!("a worker, {policy}, {}/s", thousands(rate as f64)),
            );
            let measured =
                Case::new(&TABLE, name, title, move |server, options| measure(server, rate, options));
            Case { in_quick: false, ..measured.repeated(Repetitions::Few) }
        };
        let start = move |options: &Options| {
            if !options.worker().is_file() {
                println!(
                    "({}: skipped, because {} does not exist)",
                    TABLE.heading,
                    options.worker().display()
                );
                return Ok(Vec::new());
            }
            start_all(&options.startable(), persistence, options)
        };
        Group { needs: Some("worker"), ..Group::kept(start, RATES.map(case).into()) }
    };
    PERSISTENCE.map(group).into()
}

fn measure(server: &Server, rate: u64, options: &Options) -> Result<Sample, Failure> {
    let seconds = if rate == 100 { "10" } else { "3" };
    let worker = options.worker();
    let output = Command::new(&worker)
        .args([&format!("redis://{}", server.address), &rate.to_string(), seconds])
        .output()
        .map_err(|e| format!("cannot run {}: {e}", worker.display()))?;
    let text = String::from_utf8_lossy(&output.stdout);
    parse(&text).filter(|_| output.status.success()).ok_or_else(|| {
        let errors = String::from_utf8_lossy(&output.stderr);
        format!("{} failed: {}{}", worker.display(), text.trim(), errors.trim()).into()
    })
}

/// Parses the last line: `p50_us=210.5 p99_us=300.0 p999_us=400.0`.
fn parse(text: &str) -> Option<Sample> {
    let figures = text.lines().last()?;
    let figure = |key: &str| {
        let found = figures.split(' ').find_map(|figure| figure.strip_prefix(key)?.strip_prefix('='));
        found?.parse::<f64>().ok()
    };
    COLUMNS.iter().map(|column| figure(column.key).map(Some)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_in_the_last_line() {
        let text = "500 messages\np50_us=210.5 p99_us=300.0 p999_us=4000.0\n";
        assert_eq!(parse(text), Some(vec![Some(210.5), Some(300.0), Some(4000.0)]));
        assert_eq!(parse("p50_us=210.5 p99_us=300.0\n"), None);
        assert_eq!(parse(""), None);
    }
}
