//! Measures Millstream and other Redis-protocol servers under the same load, in the same run.
//!
//! Every server runs on loopback in a fresh folder. Each workload runs on one server after the other. The order
//! rotates with each repetition, so a machine that warms up or slows down affects all servers alike.
//! The main figure is the CPU time of the server process per operation. Throughput is less telling:
//! `redis-benchmark` often needs more CPU time than the server, and then limits the rate.
//!
//! `topics` says what is measured: a table of cases per topic. `run` measures the selected ones.
//!
//! `scripts/bench` builds the server and this program, and runs this program. Exception: with `--instructions` this
//! program builds the server itself, after it has checked that instructions can be counted here.

mod data;
mod doc;
mod flow;
mod hostile;
mod instructions;
mod load;
mod nats;
mod options;
mod payload;
mod probe;
mod report;
mod run;
mod server;
mod stats;
mod streams;
mod table;
mod topics;
mod wire;

use std::process::ExitCode;

use options::Options;

/// Any error, as a message for the user.
type Failure = Box<dyn std::error::Error>;

fn main() -> ExitCode {
    let options = Options::from_args(std::env::args_os()).unwrap_or_else(|problem| problem.exit());
    if options.list || options.check {
        print!("{}", if options.list { options::list() } else { options.needs() });
        return ExitCode::SUCCESS;
    }
    let done = if options.instructions { instructions::run(&options) } else { run::run(&options) };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("bench: {problem}");
            ExitCode::FAILURE
        }
    }
}
