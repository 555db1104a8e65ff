//! `millstream check`: verifies a data folder, and salvages the intact records of a damaged one. It needs no server.
//!
//! The exit codes are listed in the help. With `--salvage`, they depend on whether data was lost.

mod json;
mod text;

use std::path::PathBuf;

use clap::Args;
use millstream_store::check::{CheckError, Verdict, check_folder, salvage};

use crate::ops::Failure;
use crate::ops::output::{print_json_line, print_plain};

const EXAMPLES: &str = "\
Examples:
  millstream check millstream-data
  millstream check millstream-data --json
  millstream check millstream-data --salvage salvaged-data

Exit codes:
  0  the folder is sound; with --salvage, the copy has everything up to the position that it prints
  1  the check or the salvage failed
  4  the folder contains no store
  5  the folder is damaged; with --salvage, data was lost or may be

A folder with a torn tail is sound: a torn tail is an unfinished write at the end of the log. With 'appendfsync \
always', the server never acknowledged it. A damaged last record looks the same.";

/// Verify a data folder, or salvage the intact records of a damaged one
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Check {
    /// Data folder; it is never modified
    dir: PathBuf,
    /// Copy the intact records to this new folder
    #[arg(long, value_name = "OUT")]
    salvage: Option<PathBuf>,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
}

impl Check {
    /// Prints the report. Returns [`Failure::Check`] if the folder is damaged, or data was lost or may be.
    pub(crate) fn run(&self) -> Result<(), Failure> {
        let (printed, is_sound) = match &self.salvage {
            None => {
                let found = check_folder(&self.dir).map_err(failure)?;
                let printed = match self.json {
                    true => print_json_line(&json::of_report(&found)),
                    false => print_plain(&text::of_report(&found)),
                };
                (printed, found.is_sound())
            }
            Some(out) => {
                let saved = salvage(&self.dir, out).map_err(failure)?;
                let printed = match self.json {
                    true => print_json_line(&json::of_salvage(&saved)),
                    false => print_plain(&text::of_salvage(&saved)),
                };
                (printed, matches!(saved.verdict, Verdict::Complete | Verdict::CompleteSoFar))
            }
        };
        match printed {
            Err(failure) if !failure.is_silent() => Err(failure),
            // The exit code is right even if the reader of the report closed the pipe early.
            _ if is_sound => Ok(()),
            _ => Err(Failure::Check),
        }
    }
}

fn failure(error: CheckError) -> Failure {
    match error {
        CheckError::NoStore { .. } => Failure::NotFound(error.to_string()),
        _ => Failure::Other(error.to_string()),
    }
}
