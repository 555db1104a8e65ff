//! Confirmation before a command deletes something: a question on a terminal, `--yes` elsewhere.

use std::io::{self, BufRead, IsTerminal, Write};

use clap::Args;

use super::failure::Failure;
use super::safe_text::printable;

/// The `--yes` option of commands that delete something.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct Confirm {
    /// Do not ask for confirmation
    #[arg(short, long)]
    yes: bool,
}

impl Confirm {
    /// Returns `Ok` if `--yes` was given or the user confirms.
    ///
    /// `action` completes the sentence "About to …", for example "remove group billing".
    pub(crate) async fn ask(self, action: &str) -> Result<(), Failure> {
        if self.yes {
            return Ok(());
        }
        if !io::stdin().is_terminal() {
            return Err(Failure::Usage(format!(
                "confirmation required to {action}\nstandard input is not a terminal: pass --yes to confirm"
            )));
        }
        let question = printable(format!("About to {action}. Continue? [y/N] "));
        // The prompt blocks a separate thread, so that Ctrl-C works during the wait.
        let answer = tokio::task::spawn_blocking(move || prompt(&question)).await;
        let answer =
            answer.map_err(|error| Failure::Other(format!("cannot ask for confirmation: {error}")))??;
        if matches!(answer.trim(), "y" | "Y" | "yes") {
            return Ok(());
        }
        Err(Failure::Other("cancelled: nothing was changed".to_owned()))
    }
}

fn prompt(question: &str) -> io::Result<String> {
    let mut out = io::stderr().lock();
    out.write_all(question.as_bytes())?;
    out.flush()?;
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer)?;
    Ok(answer)
}
