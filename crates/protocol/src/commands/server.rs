//! Commands about the server.
//!
//! `INFO [section ...]`, `TIME`, `ROLE`, `MODULE LIST`, `SLOWLOG GET [count]`, `SLOWLOG LEN|RESET`,
//! `LATENCY LATEST|DOCTOR`, `LATENCY HISTORY event`, `LATENCY RESET [event ...]`,
//! `LATENCY HISTOGRAM [command ...]`, `DEBUG SLEEP seconds|RELOAD [NOSAVE]|LOADAOF`,
//! `SAVE`, `BGSAVE [SCHEDULE]`, `LASTSAVE`, `BGREWRITEAOF`,
//! `SHUTDOWN [NOSAVE|SAVE] [NOW] [FORCE] [ABORT]`, `WAIT replicas ms`, `WAITAOF local replicas ms`,
//! `REPLICAOF|SLAVEOF host port`, `CLUSTER …`

use std::time::Duration;

use super::float::parse_float;
use super::timeout::parse_timeout_ms;
use super::{Arg, ArgList, Command};
use crate::args::{Args, subcommand};
use crate::errors::{self, CommandError};
use crate::number;

/// How many entries SLOWLOG GET shows if the request does not say.
const SLOWLOG_DEFAULT: u64 = 10;

/// A command about the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerCommand<'a> {
    /// INFO; no sections are the usual ones.
    Info(ArgList<'a>),
    /// TIME
    Time,
    /// ROLE
    Role,
    /// MODULE LIST
    ModuleList,
    /// SLOWLOG GET: the most entries; `None` is all.
    SlowlogGet(Option<u64>),
    /// SLOWLOG LEN
    SlowlogLen,
    /// SLOWLOG RESET
    SlowlogReset,
    /// LATENCY LATEST
    LatencyLatest,
    /// LATENCY HISTORY
    LatencyHistory(Arg<'a>),
    /// LATENCY RESET; no events are all of them.
    LatencyReset(ArgList<'a>),
    /// LATENCY DOCTOR
    LatencyDoctor,
    /// LATENCY HISTOGRAM; no commands are all of them.
    LatencyHistogram(ArgList<'a>),
    /// DEBUG SLEEP
    DebugSleep(Duration),
    /// DEBUG RELOAD and DEBUG LOADAOF
    DebugReload {
        /// Whether a snapshot is taken first, to be read back.
        save: bool,
    },
    /// SAVE
    Save,
    /// BGSAVE
    BgSave {
        /// Whether to wait for what runs in the background, instead of refusing.
        schedule: bool,
    },
    /// LASTSAVE
    LastSave,
    /// BGREWRITEAOF
    BgRewriteAof,
    /// SHUTDOWN
    Shutdown(Shutdown),
    /// SHUTDOWN ABORT
    ShutdownAbort,
    /// WAIT
    Wait {
        /// How many replicas must have acknowledged.
        replicas: i64,
        /// How long to wait for them, in milliseconds; 0 is forever.
        timeout_ms: u64,
    },
    /// WAITAOF
    WaitAof {
        /// Whether this server's own disk must have everything.
        local: bool,
        /// How many replicas must have it on theirs.
        replicas: u64,
        /// How long to wait for that, in milliseconds; 0 is forever.
        timeout_ms: u64,
    },
    /// REPLICAOF NO ONE; anything else is refused.
    ReplicaOfNoOne,
}

/// How to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shutdown {
    /// Whether to write the data out: as configured, or as said.
    pub save: Option<bool>,
    /// Whether not to wait for replicas.
    pub now: bool,
    /// Whether to stop even if something fails on the way.
    pub force: bool,
}

pub(crate) fn parse_info<'a>(argv: &'a [&'a [u8]]) -> Result<Command<'a>, CommandError> {
    Ok(Command::Server(ServerCommand::Info(Args::of_command(argv).rest())))
}

pub(crate) fn parse_time<'a>(argv: &'a [&'a [u8]]) -> Result<Command<'a>, CommandError> {
    Args::of_command(argv).finish()?;
    Ok(Command::Server(ServerCommand::Time))
}

pub(crate) fn parse_role<'a>(argv: &'a [&'a [u8]]) -> Result<Command<'a>, CommandError> {
    Args::of_command(argv).finish()?;
    Ok(Command::Server(ServerCommand::Role))
}

pub(crate) fn parse_module_list<'a>(argv: &'a [&'a [u8]]) -> Result<Command<'a>, CommandError> {
    subcommand_alone(argv, ServerCommand::ModuleList)
}

pub(crate) fn parse_slowlog_get<'a>(argv: &'a [&'a [u8]]) -> Result<Command<'a>, CommandError> {
    let count = match *Args::of_subcommand(argv).rest() {
        [] => Some(SLOWLOG_DEFAULT),
        [count] => slowlog_count(count)?,
        _ => return Err(errors::subcommand_syntax(subcommand(argv), "SLOWLOG")),
    };
    Ok(Command::Server(ServerCommand::SlowlogGet(count)))
}

pub(crate) fn parse_slowlog_len<'a>(argv: &'a [&'a [u8]]) -> Result<Command<'a>, CommandError> {
    subcommand_alone(argv, ServerCommand::SlowlogLen)
}

pub(crate) fn parse_slowlog_reset<'a>(argv: &'a [&'a [u8]]) -> Result<Command<'a>, CommandError> {
    subcommand_alone(argv, ServerCommand::SlowlogReset)
}

pub(crate) fn parse_latency_latest<'a>(argv: &'a [&'a [u8]]) -> Result<Command<'a>, CommandError> {
    subcommand_alone(argv, ServerCommand::LatencyLatest)
}

pub(crate) fn parse_latency_history<'a>(argv: &'a [&'a [u8]]) -> Result<Command<'a>, CommandError> {
    let [event] = Args::of_subcommand(argv).exactly()?;
    Ok(Command::Server(ServerCommand::LatencyHistory(event)))
}

pub(crate) fn parse_latency_reset<'a>(argv: &'a [&'a [u8]]) -> Result<Command<'a>, CommandError> {
    Ok(Command::Server(ServerCommand::LatencyReset(Args::of_subcommand(argv).rest())))
}

pub(crate) fn parse_latency_doctor<'a>(argv: &'a [&'a [u8]]) -> Result<Command<'a>, CommandError> {
    subcommand_alone(argv, ServerCommand::LatencyDoctor)
}

pub(crate) fn parse_latency_histogram<'a>(argv: &'a [&'a [u8]]) -> Result<Command<'a>, CommandError> {
    Ok(Command::Server(ServerCommand::LatencyHistogram(Args::of_subcommand(argv).rest())))
}

/// Of DEBUG what tries clients and the disk out: the rest looks into a process that is not this one.
pub(crate) fn parse_debug<'a>(argv: &'a [&'a [u8]]) -> Result<Command<'a>, CommandError> {
    let mut args = Args::of_command(argv);
    let command = if args.keyword_before("SLEEP", 1) {
        ServerCommand::DebugSleep(sleep_time(args.next()?))
    } else if args.keyword("RELOAD") {
        ServerCommand::DebugReload { save: !args.keyword("NOSAVE") }
    } else if args.keyword("LOADAOF") {
        ServerCommand::DebugReload { save: false }
    } else {
        return Err(errors::subcommand_syntax(subcommand(argv), "DEBUG"));
    };
    match args.is_empty() {
        true => Ok(Command::Server(command)),
        false => Err(errors::subcommand_syntax(subcommand(argv), "DEBUG")),
    }
}

pub(crate) fn parse_save<'a>(argv: &'a [&'a [u8]]) -> Result<Command<'a>, CommandError> {
    Args::of_command(argv).finish()?;
    Ok(Command::Server(ServerCommand::Save))
}

pub(crate) fn parse_bgsave<'a>(argv: &'a [&'a [u8]]) -> Result<Command<'a>, CommandError> {
    let mut args = Args::of_command(argv);
    let schedule = args.keyword("SCHEDULE");
    args.finish()?;
    Ok(Command::Server(ServerCommand::BgSave { schedule }))
}

pub(crate) fn parse_lastsave<'a>(argv: &'a [&'a [u8]]) -> Result<Command<'a>, CommandError> {
    Args::of_command(argv).finish()?;
    Ok(Command::Server(ServerCommand::LastSave))
}

pub(crate) fn parse_bgrewriteaof<'a>(argv: &'a [&'a [u8]]) -> Result<Command<'a>, CommandError> {
    Args::of_command(argv).finish()?;
    Ok(Command::Server(ServerCommand::BgRewriteAof))
}

pub(crate) fn parse_shutdown<'a>(argv: &'a [&'a [u8]]) -> Result<Command<'a>, CommandError> {
    let mut args = Args::of_command(argv);
    if args.len() == 1 && args.keyword("ABORT") {
        return Ok(Command::Server(ServerCommand::ShutdownAbort));
    }
    let mut shutdown = Shutdown { save: None, now: false, force: false };
    loop {
        if shutdown.save != Some(true) && args.keyword("NOSAVE") {
            shutdown.save = Some(false);
        } else if shutdown.save != Some(false) && args.keyword("SAVE") {
            shutdown.save = Some(true);
        } else if args.keyword("NOW") {
            shutdown.now = true;
        } else if args.keyword("FORCE") {
            shutdown.force = true;
        } else {
            args.finish()?;
            return Ok(Command::Server(ServerCommand::Shutdown(shutdown)));
        }
    }
}

pub(crate) fn parse_wait<'a>(argv: &'a [&'a [u8]]) -> Result<Command<'a>, CommandError> {
    let mut args = Args::of_command(argv);
    let replicas = args.next_i64()?;
    let timeout_ms = parse_timeout_ms(args.next()?)?;
    args.finish()?;
    Ok(Command::Server(ServerCommand::Wait { replicas, timeout_ms }))
}

pub(crate) fn parse_waitaof<'a>(argv: &'a [&'a [u8]]) -> Result<Command<'a>, CommandError> {
    let mut args = Args::of_command(argv);
    let local = match args.next_i64()? {
        0 => false,
        1 => true,
        _ => return Err(errors::NOT_ZERO_OR_ONE),
    };
    let replicas = u64::try_from(args.next_i64()?).map_err(|_| errors::NOT_POSITIVE)?;
    let timeout_ms = parse_timeout_ms(args.next()?)?;
    args.finish()?;
    Ok(Command::Server(ServerCommand::WaitAof { local, replicas, timeout_ms }))
}

/// REPLICAOF and SLAVEOF: only to have no master, which is so already.
pub(crate) fn parse_replicaof<'a>(argv: &'a [&'a [u8]]) -> Result<Command<'a>, CommandError> {
    let mut args = Args::of_command(argv);
    if !(args.keyword("NO") && args.keyword("ONE")) {
        return Err(errors::NO_REPLICATION);
    }
    args.finish()?;
    Ok(Command::Server(ServerCommand::ReplicaOfNoOne))
}

/// Every subcommand of CLUSTER.
pub(crate) fn parse_cluster<'a>(_argv: &'a [&'a [u8]]) -> Result<Command<'a>, CommandError> {
    Err(errors::NO_CLUSTER)
}

fn subcommand_alone<'a>(
    argv: &'a [&'a [u8]],
    command: ServerCommand<'a>,
) -> Result<Command<'a>, CommandError> {
    Args::of_subcommand(argv).finish()?;
    Ok(Command::Server(command))
}

/// A count, or -1 for all.
fn slowlog_count(text: &[u8]) -> Result<Option<u64>, CommandError> {
    match number::parse_i64(text) {
        Some(-1) => Ok(None),
        count => count.and_then(|count| u64::try_from(count).ok()).map(Some).ok_or(errors::SLOWLOG_COUNT),
    }
}

/// Seconds and parts of them; what is no time is none.
fn sleep_time(text: &[u8]) -> Duration {
    parse_float(text).and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::testing::{error_of, with_args};

    #[test]
    fn shutdown_options_exclude_each_other_as_in_redis() {
        with_args("SHUTDOWN nosave NOW force", |argv| {
            let expected = Shutdown { save: Some(false), now: true, force: true };
            assert_eq!(parse_shutdown(argv), Ok(Command::Server(ServerCommand::Shutdown(expected))));
        });
        with_args("SHUTDOWN abort", |argv| {
            assert_eq!(parse_shutdown(argv), Ok(Command::Server(ServerCommand::ShutdownAbort)));
        });
        for line in ["SHUTDOWN FOO", "SHUTDOWN SAVE NOSAVE", "SHUTDOWN ABORT NOW", "SHUTDOWN NOW ABORT"] {
            assert_eq!(error_of(parse_shutdown, line), errors::SYNTAX, "{line}");
        }
    }

    #[test]
    fn the_slow_log_shows_ten_a_number_or_all() {
        let count_of = |line: &str| {
            with_args(line, |argv| match parse_slowlog_get(argv) {
                Ok(Command::Server(ServerCommand::SlowlogGet(count))) => count,
                other => panic!("{other:?}"),
            })
        };
        assert_eq!(count_of("SLOWLOG GET"), Some(10));
        assert_eq!(count_of("SLOWLOG GET 3"), Some(3));
        assert_eq!(count_of("SLOWLOG GET -1"), None);
        assert_eq!(error_of(parse_slowlog_get, "SLOWLOG GET -2"), errors::SLOWLOG_COUNT);
        assert_eq!(error_of(parse_slowlog_get, "SLOWLOG GET x"), errors::SLOWLOG_COUNT);
        let syntax = errors::subcommand_syntax(b"get", "SLOWLOG");
        assert_eq!(error_of(parse_slowlog_get, "SLOWLOG get 1 2"), syntax);
    }

    #[test]
    fn of_debug_there_is_sleep_and_reading_back() {
        let parsed = |line: &str| {
            with_args(line, |argv| match parse_debug(argv) {
                Ok(Command::Server(command)) => format!("{command:?}"),
                other => panic!("{other:?}"),
            })
        };
        assert_eq!(parsed("DEBUG sleep 0.25"), "DebugSleep(250ms)");
        assert_eq!(parsed("DEBUG reload"), "DebugReload { save: true }");
        assert_eq!(parsed("DEBUG RELOAD nosave"), "DebugReload { save: false }");
        assert_eq!(parsed("DEBUG LOADAOF"), "DebugReload { save: false }");
        assert_eq!(sleep_time(b"x"), Duration::ZERO);
        assert_eq!(sleep_time(b"-1"), Duration::ZERO);
        for line in [
            "DEBUG JMAP",
            "DEBUG OBJECT k",
            "DEBUG SLEEP",
            "DEBUG SLEEP 1 2",
            "DEBUG RELOAD NOFLUSH",
            "DEBUG LOADAOF x",
        ] {
            assert_eq!(
                error_of(parse_debug, line),
                errors::subcommand_syntax(line.split(' ').nth(1).unwrap().as_bytes(), "DEBUG"),
                "{line}"
            );
        }
    }

    #[test]
    fn saving_in_the_background_may_be_put_off() {
        for (line, schedule) in [("BGSAVE", false), ("BGSAVE schedule", true)] {
            with_args(line, |argv| {
                assert_eq!(parse_bgsave(argv), Ok(Command::Server(ServerCommand::BgSave { schedule })));
            });
        }
        assert_eq!(error_of(parse_bgsave, "BGSAVE now"), errors::SYNTAX);
        assert_eq!(error_of(parse_bgsave, "BGSAVE SCHEDULE now"), errors::SYNTAX);
    }

    #[test]
    fn waiting_for_the_disk_names_one_disk_or_none_here() {
        with_args("WAITAOF 1 0 50", |argv| {
            let expected = ServerCommand::WaitAof { local: true, replicas: 0, timeout_ms: 50 };
            assert_eq!(parse_waitaof(argv), Ok(Command::Server(expected)));
        });
        assert_eq!(error_of(parse_waitaof, "WAITAOF 2 0 0"), errors::NOT_ZERO_OR_ONE);
        assert_eq!(error_of(parse_waitaof, "WAITAOF 0 -1 0"), errors::NOT_POSITIVE);
        assert_eq!(error_of(parse_waitaof, "WAITAOF x 0 0"), errors::NOT_AN_INTEGER);
        assert_eq!(error_of(parse_waitaof, "WAITAOF 1 0 -1"), errors::TIMEOUT_NEGATIVE);
    }

    #[test]
    fn there_is_neither_master_nor_cluster() {
        with_args("REPLICAOF no one", |argv| {
            assert_eq!(parse_replicaof(argv), Ok(Command::Server(ServerCommand::ReplicaOfNoOne)));
        });
        assert_eq!(error_of(parse_replicaof, "REPLICAOF host 6379"), errors::NO_REPLICATION);
        assert_eq!(error_of(parse_wait, "WAIT x y"), errors::NOT_AN_INTEGER);
        assert_eq!(error_of(parse_wait, "WAIT 0 -1"), errors::TIMEOUT_NEGATIVE);
    }
}
