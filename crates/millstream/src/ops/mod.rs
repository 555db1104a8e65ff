//! The commands for operators: they look at streams and groups on any store, and mend what is wrong there.
//!
//! Data goes to the standard output, as tables for people or with `--json` for programs; everything else goes to
//! the standard error. Exit codes: 0 done, 1 it failed, 2 asked for in the wrong way, 3 no connection, 4 not found,
//! 5 a check found problems, 130 interrupted.

pub(crate) mod add;
pub(crate) mod address;
pub(crate) mod completions;
mod confirm;
pub(crate) mod connection;
pub(crate) mod consumer;
pub(crate) mod dlq;
pub(crate) mod doctor;
mod failure;
pub(crate) mod group;
pub(crate) mod known;
pub(crate) mod lag;
pub(crate) mod metrics;
mod named;
pub(crate) mod output;
pub(crate) mod pending;
pub(crate) mod shape;
pub(crate) mod stream;
mod table;
pub(crate) mod tail;
pub(crate) mod time;
pub(crate) mod value;

pub(crate) use failure::Failure;

use tokio::signal::unix::SignalKind;

/// Does it, unless Ctrl-C comes before it is done.
pub(crate) async fn until_ctrl_c<T>(doing: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    tokio::select! {
        done = doing => done,
        Ok(()) = tokio::signal::ctrl_c() => {
            Err(Failure::Interrupted(SignalKind::interrupt().as_raw_value()))
        }
    }
}
