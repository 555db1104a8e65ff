//! The commands for operators: they look at streams and groups on any store, and mend what is wrong there.
//!
//! Data goes to the standard output, as tables for people or with `--json` for programs; everything else goes to
//! the standard error. Exit codes: 0 done, 1 it failed, 2 asked for in the wrong way, 3 no connection, 4 not found,
//! 5 a check found problems, 130 interrupted.

mod add;
pub(crate) mod address;
mod completions;
mod confirm;
pub(crate) mod connection;
mod consumer;
mod dlq;
mod doctor;
mod failure;
pub(crate) mod group;
pub(crate) mod known;
mod lag;
mod metrics;
mod named;
pub(crate) mod output;
mod pending;
pub(crate) mod shape;
mod stream;
mod table;
mod tail;
pub(crate) mod time;
pub(crate) mod value;

use std::process::ExitCode;

use clap::Subcommand;
use tokio::signal::unix::SignalKind;

pub(crate) use failure::Failure;

use crate::demo::Demo;
use crate::top::Top;
use crate::work::Work;

/// What an operator asks for.
#[derive(Debug, Subcommand)]
pub(crate) enum Ops {
    Add(add::Add),
    Tail(tail::Tail),
    Stream(stream::Stream),
    Group(group::Group),
    Consumer(consumer::Consumer),
    Pending(pending::Pending),
    Dlq(dlq::Dlq),
    Lag(lag::LagCommand),
    Doctor(doctor::Doctor),
    Top(Top),
    Metrics(metrics::Metrics),
    Work(Box<Work>),
    Demo(Demo),
    Completions(completions::Completions),
}

/// Does what was asked for.
pub(crate) fn run(ops: Ops) -> ExitCode {
    let Err(failure) = in_runtime(ops) else { return ExitCode::SUCCESS };
    if !failure.is_silent() {
        output::note(&format!("millstream: {failure}"));
    }
    failure.exit_code()
}

fn in_runtime(ops: Ops) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::Other(format!("cannot begin: {error}")))?;
    let ended = runtime.block_on(async {
        match ops.minds_ctrl_c() {
            true => dispatch(ops).await,
            false => until_ctrl_c(dispatch(ops)).await,
        }
    });
    // A question that nobody answers would hold us up for ever.
    runtime.shutdown_background();
    ended
}

/// Does it, unless Ctrl-C comes before it is done.
async fn until_ctrl_c<T>(doing: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    tokio::select! {
        done = doing => done,
        Ok(()) = tokio::signal::ctrl_c() => {
            Err(Failure::Interrupted(SignalKind::interrupt().as_raw_value()))
        }
    }
}

impl Ops {
    /// Whether it deals with Ctrl-C itself: a worker drains, others tell how far they came.
    fn minds_ctrl_c(&self) -> bool {
        match self {
            Ops::Work(_) | Ops::Add(_) => true,
            Ops::Dlq(dlq) => dlq.minds_ctrl_c(),
            _ => false,
        }
    }
}

async fn dispatch(ops: Ops) -> Result<(), Failure> {
    match ops {
        Ops::Add(add) => add.run().await,
        Ops::Tail(tail) => tail.run().await,
        Ops::Stream(stream) => stream.run().await,
        Ops::Group(group) => group.run().await,
        Ops::Consumer(consumer) => consumer.run().await,
        Ops::Pending(pending) => pending.run().await,
        Ops::Dlq(dlq) => dlq.run().await,
        Ops::Lag(lag) => lag.run().await,
        Ops::Doctor(doctor) => doctor.run().await,
        Ops::Top(top) => top.run().await,
        Ops::Metrics(metrics) => metrics.run().await,
        Ops::Work(work) => work.run().await,
        Ops::Demo(demo) => demo.run().await,
        Ops::Completions(completions) => completions.run(),
    }
}
