//! `millstream top`: shows streams, groups, lag, rates and stuck messages live in a terminal. It is read-only.
//!
//! ```text
//! poller ──snapshot of the store──▶ State ◀──action── keys ◀──key── screen
//!                                     └──────▶ draw ──frame───────▶ screen
//! ```
//!
//! `State` and `draw` know neither the store nor the terminal: their input and output are plain data.

mod draw;
mod history;
mod keys;
mod live;
mod once;
mod poller;
#[cfg(test)]
mod sample;
mod screen;
mod sort;
mod state;

use std::io::{self, IsTerminal};
use std::time::Duration;

use clap::Args;

use self::poller::{ALL_STREAMS, Poller};
use self::state::{INTERVAL_MAX, INTERVAL_MIN};
use crate::ops::Failure;
use crate::ops::connection::CommonOptions;
use crate::ops::partitions_args::PartitionsArgs;
use crate::ops::time::parse_duration;
use crate::ops::value::age;

const EXAMPLES: &str = "\
Examples:
  millstream top
  millstream top 'orders*' --interval 500ms
  millstream top --once --interval 1s

Keys: j/k or arrows move, Enter opens a group, Esc goes back, / filters, s sorts, p pauses, + and - change the interval, \
? lists all keys, q quits. The view is read-only: no key modifies data.
--once reads the store twice, one interval apart, to compute rates. For JSON, run: millstream lag --json";

/// Watch streams and groups live: lag, rates, stuck messages
#[derive(Args, Debug)]
// The hidden --json gets an error message of its own.
#[command(after_help = EXAMPLES, mut_arg("json", |json| json.hide(true)))]
pub(crate) struct Top {
    /// Only streams whose names match this glob pattern
    #[arg(default_value = ALL_STREAMS)]
    pattern: String,
    /// Time between updates, from 100ms to 1m
    #[arg(short, long, value_name = "DURATION", default_value = "2s", value_parser = parse_interval)]
    interval: Duration,
    /// Print one frame as plain text and exit
    #[arg(long)]
    once: bool,
    #[command(flatten)]
    partitions: PartitionsArgs,
    #[command(flatten)]
    common: CommonOptions,
}

impl Top {
    pub(crate) async fn run(&self) -> Result<(), Failure> {
        if self.common.json {
            return Err(Failure::Usage("top has no JSON output; use: millstream lag --json".to_owned()));
        }
        let poller = Poller::new(self.common.clone(), self.pattern.clone());
        if self.once {
            return once::run(poller, self.interval, self.partitions).await;
        }
        let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        if dumb || !io::stdout().is_terminal() {
            return Err(Failure::Usage(
                "top needs an interactive terminal; for plain text, run: millstream top --once".to_owned(),
            ));
        }
        live::run(poller, self.interval, self.partitions).await
    }
}

fn parse_interval(text: &str) -> Result<Duration, String> {
    let interval = parse_duration(text)?;
    if (INTERVAL_MIN..=INTERVAL_MAX).contains(&interval) {
        return Ok(interval);
    }
    Err(format!("expected a duration between {} and {}", age(INTERVAL_MIN), age(INTERVAL_MAX)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_is_limited() {
        assert_eq!(parse_interval("500ms"), Ok(Duration::from_millis(500)));
        for invalid in ["10ms", "2h", "x"] {
            assert!(parse_interval(invalid).is_err(), "{invalid}");
        }
    }
}
