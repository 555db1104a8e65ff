//! `millstream completions`: prints a script with which a shell completes our command line.

use clap::{Args, Command};
use clap_complete::Shell;

use super::failure::Failure;
use super::output::print_for_program;

const EXAMPLES: &str = "\
Examples:
  millstream completions bash > millstream.bash
  millstream completions zsh > _millstream
  millstream completions fish > millstream.fish";

/// Print shell completions
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Completions {
    /// Shell to print completions for
    #[arg(value_enum)]
    shell: Shell,
}

impl Completions {
    pub(crate) fn run(&self, mut command_line: Command) -> Result<(), Failure> {
        let mut text = Vec::new();
        clap_complete::generate(self.shell, &mut command_line, "millstream", &mut text);
        print_for_program(&String::from_utf8_lossy(&text))
    }
}
