//! The log of a running worker, on standard error.

use std::io::{IsTerminal, stderr};

use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use super::console::Console;
use crate::ops::Failure;

/// Begins the log with what was asked for: by flag, by `RUST_LOG`, or else the fallback.
pub(super) fn begin(console: &Console, asked: Option<&str>, fallback: &str) -> Result<(), Failure> {
    let environment = std::env::var("RUST_LOG").ok().filter(|filter| !filter.is_empty());
    let filter = asked.map(str::to_owned).or(environment).unwrap_or_else(|| fallback.to_owned());
    let targets = parse(&filter).map_err(|error| {
        Failure::Usage(format!(
            "cannot log {filter:?}: {error}\nsay a level as info, or debug,hyper_util=warn"
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
        .map_err(|error| Failure::Other(format!("cannot begin the log: {error}")))
}

/// What to log. A lone word has to be a level: as the name of a module it would silence everything else, and a
/// mistyped level is one.
fn parse(filter: &str) -> Result<Targets, String> {
    for part in filter.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        let level = part.rsplit_once('=').map_or(part, |(_, level)| level);
        if level.is_empty() || level.parse::<LevelFilter>().is_err() {
            return Err(format!("{level:?} is no level; there are: off, error, warn, info, debug, trace"));
        }
    }
    filter.parse().map_err(|error| format!("{error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_that_is_none_is_refused() {
        for right in ["info", "WARN", "off", "debug,hyper_util=warn", "millstream_worker=trace, info", ""] {
            assert!(parse(right).is_ok(), "{right}");
        }
        for wrong in ["shout", "wran", "bogus=", "=", "info,x=", "x=loud", "loud=very=much"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
