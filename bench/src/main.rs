//! Measures Millstream and other Redis-protocol servers under the same load, in the same run.
//!
//! Every server runs on loopback in a fresh folder. Each workload runs on one server after the other. The order
//! rotates with each repetition, so a machine that warms up or slows down affects all servers alike.
//! The main figure is the CPU time of the server process per operation. Throughput is less telling:
//! `redis-benchmark` often needs more CPU time than the server, and then limits the rate.
//!
//! `scripts/bench` builds the server and this program, and runs this program. Exception: with `--instructions` this
//! program builds the server itself, after it has checked that instructions can be counted here.

mod data;
mod disk;
mod doc;
mod floor;
mod flow;
mod hostile;
mod instructions;
mod load;
mod nats;
mod options;
mod payload;
mod plot;
mod probe;
mod readme;
mod report;
mod server;
mod stats;
mod streams;
mod table;
mod targets;
mod topics;
mod wire;

use std::process::ExitCode;
use std::time::Instant;

use options::{Options, Task};
use report::Report;

/// Any error, as a message for the user.
type Failure = Box<dyn std::error::Error>;

fn main() -> ExitCode {
    let options = match Options::from_args(std::env::args().skip(1)) {
        Ok(Some(options)) => options,
        Ok(None) => return ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("bench: {problem}");
            return ExitCode::from(2);
        }
    };
    match run(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("bench: {problem}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> Result<(), Failure> {
    if let Task::CountInstructions { bless, build } = options.task {
        return instructions::run(options, bless, build);
    }
    let mut report = Report::begin(options)?;
    let mut failed = Vec::new();
    for topic in topics::TOPICS {
        let (begun, rows) = (Instant::now(), report.row_count());
        let measured = (topic.run)(options, &mut report).and_then(|()| {
            let is_empty = options.wants_all() && report.row_count() == rows;
            if is_empty { Err("nothing was measured".into()) } else { Ok(()) }
        });
        // The figures of the other topics are still saved.
        if let Err(problem) = measured {
            eprintln!("bench: {}: {problem}", topic.name);
            failed.push(topic.name);
        }
        if options.wants_any_of(topic) {
            report.note(&format!("{}: {} s", topic.name, begun.elapsed().as_secs()));
        }
    }
    if report.row_count() == 0 && failed.is_empty() {
        return Err("nothing was measured: --only selects only sizes that --quick leaves out".into());
    }
    report.save(options)?;
    match failed.is_empty() {
        true => Ok(()),
        false => Err(format!("these topics failed: {}", failed.join(", ")).into()),
    }
}
