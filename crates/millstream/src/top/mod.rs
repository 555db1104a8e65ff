//! `millstream top`: streams, groups, lag, rates and stuck messages, live in a terminal. It changes nothing.
//!
//! ```text
//! watcher ──a look at the store──▶ State ◀──an action── keys ◀──a key── screen
//!                                    └───────▶ draw ──a frame──────────▶ screen
//! ```
//!
//! `State` and `draw` know neither the store nor the terminal: what they get is data, and so is what they give.

mod draw;
mod history;
mod keys;
mod live;
mod once;
mod row;
#[cfg(test)]
mod sample;
mod screen;
mod state;
mod watcher;

use std::io::{self, IsTerminal};
use std::time::Duration;

use clap::Args;

use self::state::{INTERVAL_MAX, INTERVAL_MIN};
use self::watcher::{EVERYTHING, Watcher};
use crate::ops::Failure;
use crate::ops::connection::Common;
use crate::ops::time::parse_duration;
use crate::ops::value::age;

const EXAMPLES: &str = "\
Examples:
  millstream top
  millstream top 'orders*' --interval 500ms
  millstream top --once --interval 1s

Keys: j/k or arrows move, Enter opens a group, Esc goes back, / filters, s sorts, p pauses, + and - change the interval,
? tells all of them, q quits. It only looks: nothing here changes a stream or a group.
--once looks twice, an interval apart, to know the rates. For programs there is: millstream lag --json";

/// Watch streams and groups live: lag, rates, stuck messages
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Top {
    /// Only streams that match this glob pattern
    #[arg(default_value = EVERYTHING)]
    pattern: String,
    /// The time from one look to the next
    #[arg(short, long, value_name = "DURATION", default_value = "2s", value_parser = parse_interval)]
    interval: Duration,
    /// Print one frame as plain text and end
    #[arg(long)]
    once: bool,
    #[command(flatten)]
    common: Common,
}

impl Top {
    pub(crate) async fn run(&self) -> Result<(), Failure> {
        if self.common.json {
            return Err(Failure::Usage(
                "top is for people; for programs there is: millstream lag --json".to_owned(),
            ));
        }
        let watcher = Watcher::new(self.common.clone(), self.pattern.clone());
        if self.once {
            return once::run(watcher, self.interval).await;
        }
        let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        if dumb || !io::stdout().is_terminal() {
            return Err(Failure::Usage(
                "top needs a terminal that can be drawn on; for plain text there is: millstream top --once"
                    .to_owned(),
            ));
        }
        live::run(watcher, self.interval).await
    }
}

fn parse_interval(text: &str) -> Result<Duration, String> {
    let interval = parse_duration(text)?;
    if (INTERVAL_MIN..=INTERVAL_MAX).contains(&interval) {
        return Ok(interval);
    }
    Err(format!("an interval is between {} and {}", age(INTERVAL_MIN), age(INTERVAL_MAX)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_is_neither_a_storm_nor_for_ever() {
        assert_eq!(parse_interval("500ms"), Ok(Duration::from_millis(500)));
        for wrong in ["10ms", "2h", "x"] {
            assert!(parse_interval(wrong).is_err(), "{wrong}");
        }
    }
}
