//! The `millstream` binary: parses the command line and runs the command.
//!
//! Exit codes: 0 success, 1 failure, 2 wrong usage, 3 no connection, 4 the named store, stream, group, consumer,
//! pending entry or dead letter does not exist, 5 a check found problems, 6 `work --until-empty` dead-lettered
//! messages, 7 the command of a worker cannot run, 8 `work --until-empty` gave up because every handler call fails, 9
//! another live worker has the consumer name. If a signal ends a command, the exit code is 128 plus the number of the
//! signal, such as 130 for Ctrl-C.

mod banner;
mod check;
mod cli;
mod commands;
mod config;
mod dash;
mod demo;
mod ops;
mod serve_http;
mod top;
mod work;

use std::error::Error;
use std::process::ExitCode;

use millstream_server::memory::CountingAllocator;
use millstream_server::{Server, Settings};

use crate::cli::Invocation;
use crate::ops::Failure;
use crate::ops::output::note;

/// Counts the memory in use, for `maxmemory` and INFO.
#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

fn main() -> ExitCode {
    let result = match cli::parse() {
        Invocation::Serve { config_path, flags } => {
            serve(move || config::load(config_path.as_deref(), &flags))
        }
        Invocation::Tool(tool) => commands::run(*tool, cli::command()),
    };
    let Err(failure) = result else { return ExitCode::SUCCESS };
    if !failure.is_silent() {
        note(&format!("millstream: {failure}"));
    }
    failure.exit_code()
}

/// Runs the server. `load` reads the settings, at start and at SIGHUP.
fn serve(load: impl Fn() -> Result<Settings, Failure> + Send + Sync + 'static) -> Result<(), Failure> {
    let failure = |error: &dyn Error| Failure::Other(error.to_string());
    let settings = load()?;
    let options = serve_http::options(&settings)?;
    let mut running = Server::start(settings).map_err(|error| failure(&error))?;
    let dashboard = running.http_address();
    serve_http::start(&mut running, options)?;
    banner::print(&running, dashboard);
    let running = running.reload_with(move || load().map_err(|failure| failure.to_string()));
    running.run().map_err(|error| failure(&error))
}
