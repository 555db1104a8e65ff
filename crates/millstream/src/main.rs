//! The `millstream` binary: reads what it is asked to do, and does it.
//!
//! Exit codes: 0 done, 1 it could not be done, 2 it was asked for in the wrong way, 3 no connection, 4 what was named is
//! not there, 5 a check found problems, 130 interrupted.

mod banner;
mod check;
mod cli;
mod commands;
mod config;
mod demo;
mod ops;
mod top;
mod work;

use std::error::Error;
use std::process::ExitCode;

use millstream_server::{Server, Settings};

use crate::cli::Task;
use crate::ops::Failure;
use crate::ops::output::note;

fn main() -> ExitCode {
    let done = match cli::parse() {
        Task::Serve { config_path, flags } => config::load(config_path, &flags).and_then(serve),
        Task::Ops(ops) => commands::run(ops, cli::command()),
    };
    let Err(failure) = done else { return ExitCode::SUCCESS };
    if !failure.is_silent() {
        note(&format!("millstream: {failure}"));
    }
    failure.exit_code()
}

fn serve(settings: Settings) -> Result<(), Failure> {
    let failed = |error: &dyn Error| Failure::Other(error.to_string());
    let running = Server::start(settings).map_err(|error| failed(&error))?;
    banner::print(&running);
    running.run().map_err(|error| failed(&error))?;
    note("millstream: stopped");
    Ok(())
}
