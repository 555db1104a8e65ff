//! Latency of a message through the worker runtime: from its add to the start of its handler.
//!
//! The load generator is an example program of the worker crate, which prints the percentiles.

use std::process::Command;

use crate::Failure;
use crate::options::Options;
use crate::report::Report;
use crate::server::{Persistence, Server};
use crate::stats::thousands;
use crate::table::{Column, Compare, Layout, Row, Sample, Table};
use crate::topics::{alternate, names_of, start_all};

const COLUMNS: &[Column] = &[
    Column { key: "p50_us", heading: "p50, µs", compare: Compare::Less },
    Column { key: "p99_us", heading: "p99, µs", compare: Compare::Less },
    Column { key: "p999_us", heading: "p99.9, µs", compare: Compare::Less },
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

pub(crate) fn rows() -> Vec<(String, String)> {
    let all = PERSISTENCE.iter().flat_map(|(name, _)| RATES.map(|rate| (name, rate)));
    all.map(|(name, rate)| (row_name(name, rate), row_title(name, rate))).collect()
}

fn row_name(persistence: &str, rate: u64) -> String {
    format!("worker-{persistence}-{rate}")
}

fn row_title(persistence: &str, rate: u64) -> String {
    format!("a worker, {persistence}, {}/s", thousands(rate as f64))
}

/// Whether this run measures any of these rows. `--quick` leaves them out, because their program takes long to build.
pub(crate) fn are_wanted(options: &Options) -> bool {
    !options.quick && rows().iter().any(|(name, _)| options.wants(TABLE.topic, name))
}

pub(crate) fn run(options: &Options, report: &mut Report) -> Result<(), Failure> {
    if !are_wanted(options) {
        return Ok(());
    }
    if !options.worker.is_file() {
        let missing = options.worker.display();
        report.note(&format!("{}: skipped, because {missing} does not exist", TABLE.heading));
        return Ok(());
    }
    for (name, persistence) in PERSISTENCE {
        let wanted = RATES.into_iter().filter(|rate| options.wants(TABLE.topic, &row_name(name, *rate)));
        let wanted: Vec<_> = wanted.collect();
        if wanted.is_empty() {
            continue;
        }
        let servers = start_all(&options.startable(), persistence, options)?;
        for rate in wanted {
            let mut row = Row::new(&TABLE, row_name(name, rate), row_title(name, rate), names_of(&servers));
            alternate(&mut row, &servers, options.heavy_repetitions(), |server| {
                measure(server, rate, options)
            })?;
            report.add(row);
        }
    }
    Ok(())
}

fn measure(server: &Server, rate: u64, options: &Options) -> Result<Sample, Failure> {
    let seconds = if rate == 100 { "10" } else { "3" };
    let output = Command::new(&options.worker)
        .args([&format!("redis://{}", server.address), &rate.to_string(), seconds])
        .output()
        .map_err(|e| format!("cannot run {}: {e}", options.worker.display()))?;
    let text = String::from_utf8_lossy(&output.stdout);
    parse(&text).filter(|_| output.status.success()).ok_or_else(|| {
        let errors = String::from_utf8_lossy(&output.stderr);
        format!("{} failed: {}{}", options.worker.display(), text.trim(), errors.trim()).into()
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
