//! The commands but `serve`: which there are, and how one is run.

use clap::{Args, Command, Subcommand};

use crate::check::Check;
use crate::demo::Demo;
use crate::ops::connection::Common;
use crate::ops::output::print_raw;
use crate::ops::{
    Failure, add, completions, consumer, dlq, doctor, group, lag, metrics, pending, stream, tail,
    until_ctrl_c,
};
use crate::top::Top;
use crate::work::Work;

/// What an operator asks for.
#[derive(Debug, Subcommand)]
pub(crate) enum Ops {
    Check(Check),
    /// Print which Redis commands are supported, as Markdown
    Compat,
    Add(add::Add),
    Tail(tail::Tail),
    /// Look at streams
    #[command(after_help = stream::EXAMPLES)]
    Stream(WithActions<stream::StreamAction>),
    /// Look at consumer groups, make, move and remove them
    #[command(after_help = group::EXAMPLES)]
    Group(WithActions<group::GroupAction>),
    /// Look at the consumers of a group, and remove one
    #[command(after_help = consumer::EXAMPLES)]
    Consumer(WithActions<consumer::ConsumerAction>),
    /// Look at pending entries; claim, acknowledge, give back or extend them
    #[command(after_help = pending::EXAMPLES)]
    Pending(WithActions<pending::PendingAction>),
    /// Look at dead letters, give them another chance, or delete them
    #[command(after_help = dlq::EXAMPLES)]
    Dlq(WithActions<dlq::DlqAction>),
    Lag(lag::LagCommand),
    Doctor(doctor::Doctor),
    Top(Top),
    Metrics(metrics::Metrics),
    Work(Box<Work>),
    Demo(Demo),
    Completions(completions::Completions),
}

/// A command of several actions, as `stream ls` and `stream info` are, and the options that all of them have.
#[derive(Args, Debug)]
pub(crate) struct WithActions<A: Subcommand> {
    #[command(subcommand)]
    action: A,
    #[command(flatten)]
    common: Common,
}

/// Does what was asked for. `whole` is the whole command line, for shells to complete.
pub(crate) fn run(ops: Ops, whole: Command) -> Result<(), Failure> {
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
    /// Whether it deals with Ctrl-C itself: a worker drains, others tell how far they came, and a check waits for
    /// nothing, so that nobody but the system could stop it.
    fn minds_ctrl_c(&self) -> bool {
        match self {
            Ops::Work(_) | Ops::Add(_) | Ops::Check(_) => true,
            Ops::Dlq(dlq) => dlq.action.minds_ctrl_c(),
            _ => false,
        }
    }
}

async fn dispatch(ops: Ops, whole: Command) -> Result<(), Failure> {
    match ops {
        Ops::Check(check) => check.run(),
        Ops::Compat => print_raw(&millstream_server::compat_markdown()),
        Ops::Add(add) => add.run().await,
        Ops::Tail(tail) => tail.run().await,
        Ops::Stream(stream) => stream.action.run(&stream.common).await,
        Ops::Group(group) => group.action.run(&group.common).await,
        Ops::Consumer(consumer) => consumer.action.run(&consumer.common).await,
        Ops::Pending(pending) => pending.action.run(&pending.common).await,
        Ops::Dlq(dlq) => dlq.action.run(&dlq.common).await,
        Ops::Lag(lag) => lag.run().await,
        Ops::Doctor(doctor) => doctor.run().await,
        Ops::Top(top) => top.run().await,
        Ops::Metrics(metrics) => metrics.run().await,
        Ops::Work(work) => work.run().await,
        Ops::Demo(demo) => demo.run().await,
        Ops::Completions(completions) => completions.run(whole),
    }
}
