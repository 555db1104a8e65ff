//! Millstream and other Redis-protocol servers under the same load, in the same run.
//!
//! Every server runs on loopback in a fresh folder. A workload is prepared and driven on one server after the
//! other, the order turning round with each repetition, so that a machine which warms up or slows down
//! does so for all. What counts is the processor time of the server process per operation:
//! `redis-benchmark` often costs more than the server it loads, and then throughput says more about the
//! generator than about the server.
//!
//! `scripts/bench` builds the server and this program, and starts it. Only the server whose instructions are counted is built by
//! this program, which first sees whether they can be.

mod data;
mod doc;
mod floor;
mod instructions;
mod load;
mod options;
mod payload;
mod plot;
mod probe;
mod report;
mod server;
mod stats;
mod table;
mod targets;
mod topics;
mod wire;

use std::process::ExitCode;
use std::time::Instant;

use options::{Options, Task};
use report::Report;

/// Whatever went wrong, as a sentence for a person.
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
        // What the others measured is worth keeping.
        if let Err(problem) = measured {
            eprintln!("bench: {}: {problem}", topic.name);
            failed.push(topic.name);
        }
        if options.wants_any_of(topic) {
            report.note(&format!("{}: {} s", topic.name, begun.elapsed().as_secs()));
        }
    }
    if report.row_count() == 0 && failed.is_empty() {
        return Err("nothing was measured: --quick leaves the largest sizes out".into());
    }
    report.save(options)?;
    match failed.is_empty() {
        true => Ok(()),
        false => Err(format!("not measured to the end: {}", failed.join(", ")).into()),
    }
}
