//! `millstream check`: looks at a data folder that no server needs to have open, and saves what can be saved of a damaged one.
//!
//! Exit codes: 0 sound (or nothing lost), 5 damaged (or something lost), 4 there is no store, 1 it could not be done.

mod json;
mod text;

use std::path::PathBuf;

use clap::Args;
use millstream_store::check::{CheckError, check_folder, salvage};

use crate::ops::Failure;
use crate::ops::output::print_raw;

const EXIT_CODES: &str = "\
Exit codes: 0 sound, or nothing lost; 5 damaged, or something lost; 4 there is no store; 1 it could not be done.
A torn tail is sound: it is what a crash leaves of records nobody was told about.";

/// Verify a data folder without changing it, or save what can be saved of a damaged one
#[derive(Args, Debug)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct Check {
    /// The data folder
    dir: PathBuf,
    /// Write what can be saved to this new folder
    #[arg(long, value_name = "OUT")]
    salvage: Option<PathBuf>,
    /// Tell it as JSON
    #[arg(long)]
    json: bool,
}

impl Check {
    /// Prints what was found; a failure if something is damaged or lost.
    pub(crate) fn run(&self) -> Result<(), Failure> {
        let (report, is_well) = match &self.salvage {
            None => {
                let found = check_folder(&self.dir).map_err(failed)?;
                let report = if self.json { line(json::of_report(&found)) } else { text::of_report(&found) };
                (report, found.is_sound())
            }
            Some(out) => {
                let saved = salvage(&self.dir, out).map_err(failed)?;
                let report =
                    if self.json { line(json::of_salvage(&saved)) } else { text::of_salvage(&saved) };
                (report, saved.lost_nothing())
            }
        };
        match print_raw(&report) {
            Err(failure) if !failure.is_silent() => Err(failure),
            // The exit code tells the verdict also where nobody has read the report to its end.
            _ if is_well => Ok(()),
            _ => Err(Failure::Check),
        }
    }
}

fn line(value: serde_json::Value) -> String {
    format!("{value}\n")
}

fn failed(error: CheckError) -> Failure {
    match error {
        CheckError::NoStore { .. } => Failure::NotFound(error.to_string()),
        _ => Failure::Other(error.to_string()),
    }
}
