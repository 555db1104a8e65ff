//! `millstream completions`: what a shell needs to complete our command line.

use clap::{Args, Command};
use clap_complete::Shell;

use super::failure::Failure;
use super::output::print_raw;

const EXAMPLES: &str = "\
Examples:
  millstream completions bash > millstream.bash
  millstream completions zsh > _millstream
  millstream completions fish > millstream.fish";

/// Print completions for a shell
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Completions {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

impl Completions {
    /// Prints completions of the whole command line.
    pub(crate) fn run(&self, mut whole: Command) -> Result<(), Failure> {
        let mut text = Vec::new();
        clap_complete::generate(self.shell, &mut whole, "millstream", &mut text);
        print_raw(&String::from_utf8_lossy(&text))
    }
}
