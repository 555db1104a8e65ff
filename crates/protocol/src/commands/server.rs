//! The arguments of server commands: `SLOWLOG GET [count]`, `DEBUG SLEEP seconds|RELOAD [NOSAVE]|LOADAOF`,
//! `SHUTDOWN [NOSAVE|SAVE] [NOW] [FORCE] [ABORT]`, `BGSAVE [SCHEDULE]`, `WAIT replicas ms`,
//! `WAITAOF local replicas ms`, `REPLICAOF|SLAVEOF host port`

use std::time::Duration;

use super::ArgList;
use super::float::parse_float;
use super::timeout::parse_timeout_ms;
use crate::args::{Args, subcommand};
use crate::errors::{self, CommandError};
use crate::number;

/// Number of entries that SLOWLOG GET returns without a count.
const SLOWLOG_DEFAULT: u64 = 10;

/// Maximum time of DEBUG SLEEP in seconds.
const DEBUG_SLEEP_SECONDS_MAX: f64 = 3600.0;

/// The supported subcommands of DEBUG: those for testing clients and the disk. The others inspect Redis' internals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DebugCommand {
    /// DEBUG SLEEP
    Sleep(Duration),
    /// DEBUG RELOAD and DEBUG LOADAOF
    Reload {
        /// Whether to take a snapshot before the data is loaded again.
        save: bool,
    },
}

/// The arguments of SHUTDOWN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShutdownCommand {
    /// Stop the server.
    Stop(Shutdown),
    /// SHUTDOWN ABORT
    Abort,
}

/// How to stop the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shutdown {
    /// SAVE or NOSAVE: whether to take a snapshot first; `None` if neither was given.
    pub save: Option<bool>,
    /// Whether to stop even if the snapshot fails.
    pub force: bool,
}

/// The arguments of WAITAOF, which waits until writes are durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitAof {
    /// Whether to wait for this server's own disk.
    pub local: bool,
    /// How long to wait, in milliseconds; 0 means no limit.
    pub timeout_ms: u64,
}

impl DebugCommand {
    pub fn parse(argv: ArgList<'_>) -> Result<DebugCommand, CommandError> {
        let mut args = Args::of_command(argv);
        let command = if args.keyword_before("SLEEP", 1) {
            DebugCommand::Sleep(sleep_time(args.next()?)?)
        } else if args.keyword("RELOAD") {
            DebugCommand::Reload { save: !args.keyword("NOSAVE") }
        } else if args.keyword("LOADAOF") {
            DebugCommand::Reload { save: false }
        } else {
            return Err(errors::subcommand_syntax(subcommand(argv), "DEBUG"));
        };
        if args.is_empty() { Ok(command) } else { Err(errors::subcommand_syntax(subcommand(argv), "DEBUG")) }
    }
}

impl ShutdownCommand {
    pub fn parse(argv: ArgList<'_>) -> Result<ShutdownCommand, CommandError> {
        let mut args = Args::of_command(argv);
        if args.len() == 1 && args.keyword("ABORT") {
            return Ok(ShutdownCommand::Abort);
        }
        let mut shutdown = Shutdown { save: None, force: false };
        loop {
            if shutdown.save != Some(true) && args.keyword("NOSAVE") {
                shutdown.save = Some(false);
            } else if shutdown.save != Some(false) && args.keyword("SAVE") {
                shutdown.save = Some(true);
            } else if args.keyword("FORCE") {
                shutdown.force = true;
            } else if !args.keyword("NOW") {
                // NOW has no effect: it skips waiting for replicas, and there are none.
                args.finish()?;
                return Ok(ShutdownCommand::Stop(shutdown));
            }
        }
    }
}

impl WaitAof {
    pub fn parse(argv: ArgList<'_>) -> Result<WaitAof, CommandError> {
        let mut args = Args::of_command(argv);
        let local = match args.next_i64()? {
            0 => false,
            1 => true,
            _ => return Err(errors::NOT_ZERO_OR_ONE),
        };
        // The number of replicas has no other effect: there are none to wait for.
        if args.next_i64()? < 0 {
            return Err(errors::NOT_POSITIVE);
        }
        let timeout_ms = parse_timeout_ms(args.next()?)?;
        args.finish()?;
        Ok(WaitAof { local, timeout_ms })
    }
}

/// Parses the arguments of SLOWLOG GET. Returns the maximum number of entries; `None` is all.
pub fn parse_slowlog_get(argv: ArgList<'_>) -> Result<Option<u64>, CommandError> {
    match *Args::of_subcommand(argv).rest() {
        [] => Ok(Some(SLOWLOG_DEFAULT)),
        [count] => slowlog_count(count),
        _ => Err(errors::subcommand_syntax(subcommand(argv), "SLOWLOG")),
    }
}

/// Parses the arguments of BGSAVE. Returns whether SCHEDULE was given.
///
/// If another snapshot is being taken, BGSAVE SCHEDULE takes its snapshot after that one, and BGSAVE fails.
pub fn parse_bgsave(argv: ArgList<'_>) -> Result<bool, CommandError> {
    let mut args = Args::of_command(argv);
    let schedule = args.keyword("SCHEDULE");
    args.finish()?;
    Ok(schedule)
}

/// Checks the arguments of WAIT. Their values do not matter, because there are no replicas to wait for.
pub fn check_wait(argv: ArgList<'_>) -> Result<(), CommandError> {
    let mut args = Args::of_command(argv);
    args.next_i64()?;
    parse_timeout_ms(args.next()?)?;
    args.finish()
}

/// Checks the arguments of REPLICAOF or SLAVEOF. Replication is not supported, so only NO ONE is accepted.
pub fn check_replicaof(argv: ArgList<'_>) -> Result<(), CommandError> {
    let mut args = Args::of_command(argv);
    if !(args.keyword("NO") && args.keyword("ONE")) {
        return Err(errors::NO_REPLICATION);
    }
    args.finish()
}

/// Parses the count of SLOWLOG GET. Returns `None` for -1, which means all.
fn slowlog_count(text: &[u8]) -> Result<Option<u64>, CommandError> {
    match number::parse_i64(text) {
        Some(-1) => Ok(None),
        count => count.and_then(|count| u64::try_from(count).ok()).map(Some).ok_or(errors::SLOWLOG_COUNT),
    }
}

/// Parses the time of DEBUG SLEEP in seconds, which can have decimals.
fn sleep_time(text: &[u8]) -> Result<Duration, CommandError> {
    parse_float(text)
        .filter(|seconds| *seconds <= DEBUG_SLEEP_SECONDS_MAX)
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
        .ok_or(errors::DEBUG_SLEEP_TIME)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::testing::{error_of, with_args};

    #[test]
    fn shutdown_rejects_incompatible_options() {
        with_args("SHUTDOWN nosave NOW force", |argv| {
            let expected = Shutdown { save: Some(false), force: true };
            assert_eq!(ShutdownCommand::parse(argv), Ok(ShutdownCommand::Stop(expected)));
        });
        with_args("SHUTDOWN abort", |argv| {
            assert_eq!(ShutdownCommand::parse(argv), Ok(ShutdownCommand::Abort));
        });
        for line in ["SHUTDOWN FOO", "SHUTDOWN SAVE NOSAVE", "SHUTDOWN ABORT NOW", "SHUTDOWN NOW ABORT"] {
            assert_eq!(error_of(ShutdownCommand::parse, line), errors::SYNTAX, "{line}");
        }
    }

    #[test]
    fn slowlog_get_returns_ten_entries_a_given_number_or_all() {
        let count_of = |line: &str| with_args(line, |argv| parse_slowlog_get(argv).unwrap());
        assert_eq!(count_of("SLOWLOG GET"), Some(10));
        assert_eq!(count_of("SLOWLOG GET 3"), Some(3));
        assert_eq!(count_of("SLOWLOG GET -1"), None);
        assert_eq!(error_of(parse_slowlog_get, "SLOWLOG GET -2"), errors::SLOWLOG_COUNT);
        assert_eq!(error_of(parse_slowlog_get, "SLOWLOG GET x"), errors::SLOWLOG_COUNT);
        let syntax = errors::subcommand_syntax(b"get", "SLOWLOG");
        assert_eq!(error_of(parse_slowlog_get, "SLOWLOG get 1 2"), syntax);
    }

    #[test]
    fn debug_supports_sleep_reload_and_loadaof() {
        let parsed = |line: &str| with_args(line, |argv| format!("{:?}", DebugCommand::parse(argv).unwrap()));
        assert_eq!(parsed("DEBUG sleep 0.25"), "Sleep(250ms)");
        assert_eq!(parsed("DEBUG reload"), "Reload { save: true }");
        assert_eq!(parsed("DEBUG RELOAD nosave"), "Reload { save: false }");
        assert_eq!(parsed("DEBUG LOADAOF"), "Reload { save: false }");
        assert_eq!(parsed("DEBUG SLEEP 3600"), "Sleep(3600s)");
        for time in ["3600.001", "1e19", "inf", "nan", "-1", "x"] {
            let line = format!("DEBUG SLEEP {time}");
            assert_eq!(error_of(DebugCommand::parse, &line), errors::DEBUG_SLEEP_TIME, "{line}");
        }
        for line in [
            "DEBUG JMAP",
            "DEBUG OBJECT k",
            "DEBUG SLEEP",
            "DEBUG SLEEP 1 2",
            "DEBUG RELOAD NOFLUSH",
            "DEBUG LOADAOF x",
        ] {
            assert_eq!(
                error_of(DebugCommand::parse, line),
                errors::subcommand_syntax(line.split(' ').nth(1).unwrap().as_bytes(), "DEBUG"),
                "{line}"
            );
        }
    }

    #[test]
    fn bgsave_can_be_scheduled() {
        for (line, schedule) in [("BGSAVE", false), ("BGSAVE schedule", true)] {
            with_args(line, |argv| {
                assert_eq!(parse_bgsave(argv), Ok(schedule));
            });
        }
        assert_eq!(error_of(parse_bgsave, "BGSAVE now"), errors::SYNTAX);
        assert_eq!(error_of(parse_bgsave, "BGSAVE SCHEDULE now"), errors::SYNTAX);
    }

    #[test]
    fn waitaof_accepts_zero_or_one_local_disk() {
        with_args("WAITAOF 1 0 50", |argv| {
            let expected = WaitAof { local: true, timeout_ms: 50 };
            assert_eq!(WaitAof::parse(argv), Ok(expected));
        });
        assert_eq!(error_of(WaitAof::parse, "WAITAOF 2 0 0"), errors::NOT_ZERO_OR_ONE);
        assert_eq!(error_of(WaitAof::parse, "WAITAOF 0 -1 0"), errors::NOT_POSITIVE);
        assert_eq!(error_of(WaitAof::parse, "WAITAOF x 0 0"), errors::NOT_AN_INTEGER);
        assert_eq!(error_of(WaitAof::parse, "WAITAOF 1 0 -1"), errors::TIMEOUT_NEGATIVE);
    }

    #[test]
    fn replicaof_accepts_only_no_one() {
        with_args("REPLICAOF no one", |argv| {
            assert_eq!(check_replicaof(argv), Ok(()));
        });
        assert_eq!(error_of(check_replicaof, "REPLICAOF host 6379"), errors::NO_REPLICATION);
        assert_eq!(error_of(check_wait, "WAIT x y"), errors::NOT_AN_INTEGER);
        assert_eq!(error_of(check_wait, "WAIT 0 -1"), errors::TIMEOUT_NEGATIVE);
    }
}
