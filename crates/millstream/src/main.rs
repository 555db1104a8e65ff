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

use std::io::Write;
use std::process::ExitCode;

use millstream_server::{Server, Settings};

use crate::cli::Task;
use crate::config::ConfigError;

fn main() -> ExitCode {
    match cli::parse() {
        Task::Serve { config_path, flags } => match config::load(config_path, &flags) {
            Ok(settings) => serve(settings),
            Err(error) => fail(&error, exit_code_of(&error)),
        },
        Task::Compat => print_compat(),
        Task::Ops(ops) => commands::run(ops, cli::command()),
        Task::Check(task) => {
            check::run(&task).unwrap_or_else(|error| fail(&error, check::exit_code_of(&error)))
        }
    }
}

fn serve(settings: Settings) -> ExitCode {
    let running = match Server::start(settings) {
        Ok(running) => running,
        Err(error) => return fail(&error, ExitCode::FAILURE),
    };
    banner::print(&running);
    match running.run() {
        Ok(()) => {
            eprintln!("millstream: stopped");
            ExitCode::SUCCESS
        }
        Err(error) => fail(&error, ExitCode::FAILURE),
    }
}

fn print_compat() -> ExitCode {
    let text = millstream_server::compat_markdown();
    match std::io::stdout().write_all(text.as_bytes()) {
        Ok(()) => ExitCode::SUCCESS,
        // A reader that has seen enough, as `head` does, is no failure.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => fail(&error, ExitCode::FAILURE),
    }
}

fn exit_code_of(error: &ConfigError) -> ExitCode {
    if error.is_usage() { ExitCode::from(2) } else { ExitCode::FAILURE }
}

fn fail(error: &dyn std::error::Error, code: ExitCode) -> ExitCode {
    eprintln!("millstream: {error}");
    code
}
