//! `millstream check`: looks at a data folder that no server needs to have open, and saves what can be saved of a damaged one.
//!
//! Exit codes: 0 sound (or nothing lost), 5 damaged (or something lost), 4 there is no store, 1 it could not be done.

mod json;
mod text;

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use millstream_store::check::{CheckError, check_folder, salvage};

/// Something is damaged or lost.
const DAMAGED: u8 = 5;
/// There is no store in the folder.
const NOT_THERE: u8 = 4;

/// What is to be looked at, and how to tell.
pub(crate) struct CheckTask {
    /// The folder.
    pub(crate) dir: PathBuf,
    /// Where to write what can be saved.
    pub(crate) salvage: Option<PathBuf>,
    /// For programs, not for people.
    pub(crate) json: bool,
}

/// Does it and prints what was found. `Err` when it could not be done.
pub(crate) fn run(task: &CheckTask) -> Result<ExitCode, CheckError> {
    let (told, is_well) = match &task.salvage {
        None => {
            let report = check_folder(&task.dir)?;
            let told = if task.json { line(json::of_report(&report)) } else { text::of_report(&report) };
            (told, report.is_sound())
        }
        Some(out) => {
            let report = salvage(&task.dir, out)?;
            let told = if task.json { line(json::of_salvage(&report)) } else { text::of_salvage(&report) };
            (told, report.lost_nothing())
        }
    };
    match io::stdout().write_all(told.as_bytes()) {
        // A reader that has seen enough, as `head` does, is no failure.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            eprintln!("millstream: cannot print: {error}")
        }
        _ => {}
    }
    Ok(if is_well { ExitCode::SUCCESS } else { ExitCode::from(DAMAGED) })
}

fn line(value: serde_json::Value) -> String {
    format!("{value}\n")
}

/// How the program ends when it could not be done.
pub(crate) fn exit_code_of(error: &CheckError) -> ExitCode {
    match error {
        CheckError::NoStore { .. } => ExitCode::from(NOT_THERE),
        _ => ExitCode::FAILURE,
    }
}
