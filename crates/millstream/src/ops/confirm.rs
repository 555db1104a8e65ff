//! Asking before something is gone: a question on a terminal, `--yes` elsewhere.

use std::io::{self, BufRead, IsTerminal, Write};

use clap::Args;

use super::failure::Failure;

/// The option of commands that take something away.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct Confirm {
    /// Do it without asking
    #[arg(short, long)]
    yes: bool,
}

impl Confirm {
    /// Goes on if `--yes` was said or a person says so.
    pub(crate) async fn ask(self, what: &str) -> Result<(), Failure> {
        if self.yes {
            return Ok(());
        }
        if !io::stdin().is_terminal() {
            return Err(Failure::Usage(format!(
                "{what}: nobody can be asked here; say --yes if it is meant"
            )));
        }
        let question = format!("{what}. Go on? [y/N] ");
        // On a thread of its own, so that Ctrl-C is an answer too.
        let answer = tokio::task::spawn_blocking(move || answer_to(&question)).await;
        let answer = answer.map_err(|error| Failure::Other(format!("cannot ask: {error}")))??;
        if matches!(answer.trim(), "y" | "Y" | "yes") {
            return Ok(());
        }
        Err(Failure::Other("nothing was changed".to_owned()))
    }
}

fn answer_to(question: &str) -> io::Result<String> {
    let mut out = io::stderr().lock();
    out.write_all(question.as_bytes())?;
    out.flush()?;
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer)?;
    Ok(answer)
}
