//! The commands for operators: they show streams and groups of any store, and change them.
//!
//! Data goes to standard output: tables for people, or JSON for programs with `--json`. Everything else goes to
//! standard error. Exit codes: 0 success, 1 failure, 2 wrong usage, 3 no connection, 4 not found, 5 a check found
//! problems, 128 plus the number of the signal that ended the command (130 for Ctrl-C).

pub(crate) mod add;
pub(crate) mod address;
mod apply;
pub(crate) mod completions;
mod confirm;
pub(crate) mod connection;
pub(crate) mod consumer;
pub(crate) mod delayed;
pub(crate) mod dlq;
pub(crate) mod doctor;
mod failure;
pub(crate) mod group;
mod group_args;
pub(crate) mod lag;
pub(crate) mod log;
pub(crate) mod lookup;
pub(crate) mod metrics;
pub(crate) mod output;
pub(crate) mod partition;
pub(crate) mod partitions_args;
pub(crate) mod pending;
pub(crate) mod policy;
pub(crate) mod safe_text;
pub(crate) mod shell;
pub(crate) mod stream;
mod table;
pub(crate) mod tail;
mod target;
pub(crate) mod time;
pub(crate) mod trace;
pub(crate) mod value;
pub(crate) mod workers;

pub(crate) use failure::Failure;

use tokio::signal::unix::SignalKind;

/// Runs a future until it completes. If Ctrl-C arrives first, drops it and returns [`Failure::Interrupted`].
pub(crate) async fn until_ctrl_c<T>(future: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    tokio::select! {
        result = future => result,
        Ok(()) = tokio::signal::ctrl_c() => {
            Err(Failure::Interrupted(SignalKind::interrupt().as_raw_value()))
        }
    }
}
