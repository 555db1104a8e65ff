//! The log of a running worker, on standard error.

use std::io::{IsTerminal, stderr};

use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use super::console::Console;
use crate::ops::Failure;

/// Starts logging with the filter of `--log`, or else of `RUST_LOG`, or else the default.
pub(super) fn start(console: &Console, option: Option<&str>, default: &str) -> Result<(), Failure> {
    let environment = std::env::var("RUST_LOG").ok().filter(|filter| !filter.is_empty());
    let filter = option.map(str::to_owned).or(environment).unwrap_or_else(|| default.to_owned());
    let targets = parse(&filter).map_err(|error| {
        Failure::Usage(format!(
            "invalid log filter {filter:?}: {error}\npass a level such as info, or a filter such as debug,hyper_util=warn"
        ))
    })?;
    let colours = stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let lines = tracing_subscriber::fmt::layer()
        .compact()
        .with_target(false)
        .with_ansi(colours)
        .with_writer(console.clone());
    tracing_subscriber::registry()
        .with(lines)
        .with(targets)
        .try_init()
        .map_err(|error| Failure::Other(format!("cannot start logging: {error}")))
}

/// Parses a log filter. A single word must be a level.
///
/// `tracing_subscriber` would take a misspelt level as the name of a module and silence everything else.
fn parse(filter: &str) -> Result<Targets, String> {
    for part in filter.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        let level = part.rsplit_once('=').map_or(part, |(_, level)| level);
        if level.is_empty() || level.parse::<LevelFilter>().is_err() {
            return Err(format!("unknown level {level:?}; expected off, error, warn, info, debug or trace"));
        }
    }
    filter.parse().map_err(|error| format!("{error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_levels_are_refused() {
        for valid in ["info", "WARN", "off", "debug,hyper_util=warn", "millstream_worker=trace, info", ""] {
            assert!(parse(valid).is_ok(), "{valid}");
        }
        for invalid in ["shout", "wran", "bogus=", "=", "info,x=", "x=loud", "loud=very=much"] {
            assert!(parse(invalid).is_err(), "{invalid}");
        }
    }
}
