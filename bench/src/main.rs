//! Millstream and other Redis-protocol servers under the same load, in the same run.
//!
//! Every server runs on loopback with persistence off and a fresh folder. A workload is prepared and
//! driven on one server after the other, the order turning round with each repetition, so that a
//! machine which warms up or slows down does so for all. What counts is the processor time of the
//! server process per operation: `redis-benchmark` often costs more than the server it loads, and then
//! throughput says more about the generator than about the server.
//!
//! `scripts/bench` builds the server and this program, and starts it.

mod load;
mod memory;
mod options;
mod report;
mod server;
mod wire;
mod workload;

use std::process::ExitCode;

use options::Options;
use report::{Measured, Report};
use server::Server;

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
    let mut report = Report::begin(options)?;
    run_workloads(options, &mut report)?;
    for measure in memory::MEASURES.iter().filter(|measure| options.wants(measure.name)) {
        let row = memory::measure(measure, options)?;
        report.add(row);
    }
    report.save(options)
}

fn run_workloads(options: &Options, report: &mut Report) -> Result<(), Failure> {
    let wanted: Vec<_> = workload::WORKLOADS.iter().filter(|w| options.wants(w.name)).collect();
    if wanted.is_empty() {
        return Ok(());
    }
    let servers = start_all(options)?;
    let stream_len = wanted.iter().map(|w| w.stream_len(options.quick)).max().unwrap_or(0);
    for server in &servers {
        workload::fill(server, stream_len)?;
    }
    for workload in wanted {
        let mut row = Measured::speed(workload.name, workload.title, servers.len());
        for repetition in 0..options.repetitions {
            for turn in 0..servers.len() {
                let at = (turn + repetition) % servers.len();
                let sample = workload
                    .run(&servers[at], options.quick)
                    .map_err(|e| format!("{} on {}: {e}", workload.name, servers[at].name))?;
                row.samples[at].push(sample);
            }
        }
        report.add(row);
    }
    Ok(())
}

/// The subject first, then its peers.
fn start_all(options: &Options) -> Result<Vec<Server>, Failure> {
    options.servers().iter().map(Server::start).collect()
}
