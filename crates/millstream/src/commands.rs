//! The operator's commands: which there are, and how one is run.

use std::process::ExitCode;

use clap::{Command, Subcommand};

use crate::demo::Demo;
use crate::ops::{
    Failure, add, completions, consumer, dlq, doctor, group, lag, metrics, output, pending, stream, tail,
    until_ctrl_c,
};
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

/// Does what was asked for. `whole` is the whole command line, for shells to complete.
pub(crate) fn run(ops: Ops, whole: Command) -> ExitCode {
    let Err(failure) = in_runtime(ops, whole) else { return ExitCode::SUCCESS };
    if !failure.is_silent() {
        output::note(&format!("millstream: {failure}"));
    }
    failure.exit_code()
}

fn in_runtime(ops: Ops, whole: Command) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::Other(format!("cannot begin: {error}")))?;
    let ended = runtime.block_on(async {
        match ops.minds_ctrl_c() {
            true => dispatch(ops, whole).await,
            false => until_ctrl_c(dispatch(ops, whole)).await,
        }
    });
    // A question that nobody answers would hold us up for ever.
    runtime.shutdown_background();
    ended
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

async fn dispatch(ops: Ops, whole: Command) -> Result<(), Failure> {
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
        Ops::Completions(completions) => completions.run(whole),
    }
}
