//! The list of all commands except `serve`, and how to run one.

use clap::{Args, Command, Subcommand};

use crate::check::Check;
use crate::dash::Dash;
use crate::demo::Demo;
use crate::ops::connection::CommonOptions;
use crate::ops::output::print_for_program;
use crate::ops::{
    Failure, add, completions, consumer, delayed, dlq, doctor, group, lag, metrics, partition, pending,
    stream, tail, until_ctrl_c,
};
use crate::top::Top;
use crate::work::Work;

const COMPAT_EXAMPLES: &str = "\
Examples:
  millstream compat > COMPAT.md";

/// Any command except `serve`, with its options.
#[derive(Debug, Subcommand)]
pub(crate) enum Tool {
    Check(Check),
    /// Print the supported Redis commands as Markdown
    #[command(after_help = COMPAT_EXAMPLES)]
    Compat,
    Add(add::Add),
    Tail(tail::Tail),
    /// List and describe streams
    #[command(after_help = stream::EXAMPLES)]
    Stream(WithActions<stream::StreamAction>),
    /// Create, list and remove the partitions of a stream
    #[command(after_help = partition::EXAMPLES)]
    Partition(WithActions<partition::PartitionAction>),
    /// List, create, describe, reset and remove consumer groups
    #[command(after_help = group::EXAMPLES)]
    Group(WithActions<group::GroupAction>),
    /// List and remove the consumers of a group
    #[command(after_help = consumer::EXAMPLES)]
    Consumer(WithActions<consumer::ConsumerAction>),
    /// List, claim, acknowledge, release and extend pending entries
    #[command(after_help = pending::EXAMPLES)]
    Pending(WithActions<pending::PendingAction>),
    /// List delayed messages, cancel them, or add them now
    #[command(after_help = delayed::EXAMPLES)]
    Delayed(WithActions<delayed::DelayedAction>),
    /// List, show, redrive and delete dead letters
    #[command(after_help = dlq::EXAMPLES)]
    Dlq(WithActions<dlq::DlqAction>),
    Lag(lag::LagCommand),
    Doctor(doctor::Doctor),
    Top(Top),
    Metrics(metrics::Metrics),
    Dash(Box<Dash>),
    Work(Box<Work>),
    Demo(Demo),
    Completions(completions::Completions),
}

/// A command with several actions, such as `stream ls` and `stream info`, and the options common to all of them.
#[derive(Args, Debug)]
pub(crate) struct WithActions<A: Subcommand> {
    #[command(subcommand)]
    action: A,
    #[command(flatten)]
    common: CommonOptions,
}

/// Runs a command. `command_line` is the definition of the whole command line, which `completions` prints.
pub(crate) fn run(tool: Tool, command_line: Command) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime =
        runtime.map_err(|error| Failure::Other(format!("cannot start the async runtime: {error}")))?;
    let result = runtime.block_on(async {
        match tool.handles_ctrl_c() {
            true => dispatch(tool, command_line).await,
            false => until_ctrl_c(dispatch(tool, command_line)).await,
        }
    });
    // A thread may still wait for an answer on standard input. An ordinary shutdown would wait for that thread.
    runtime.shutdown_background();
    result
}

impl Tool {
    /// Whether the command handles Ctrl-C itself.
    ///
    /// A worker drains. `add` and `dlq redrive` report their progress. `check` never yields to the runtime, so only the
    /// default action of the signal can stop it.
    fn handles_ctrl_c(&self) -> bool {
        match self {
            Tool::Work(_) | Tool::Add(_) | Tool::Check(_) => true,
            Tool::Dlq(dlq) => dlq.action.handles_ctrl_c(),
            _ => false,
        }
    }
}

async fn dispatch(tool: Tool, command_line: Command) -> Result<(), Failure> {
    match tool {
        Tool::Check(check) => check.run(),
        Tool::Compat => print_for_program(&millstream_server::compat_markdown()),
        Tool::Add(add) => add.run().await,
        Tool::Tail(tail) => tail.run().await,
        Tool::Stream(stream) => stream.action.run(&stream.common).await,
        Tool::Partition(partition) => partition.action.run(&partition.common).await,
        Tool::Group(group) => group.action.run(&group.common).await,
        Tool::Consumer(consumer) => consumer.action.run(&consumer.common).await,
        Tool::Pending(pending) => pending.action.run(&pending.common).await,
        Tool::Delayed(delayed) => delayed.action.run(&delayed.common).await,
        Tool::Dlq(dlq) => dlq.action.run(&dlq.common).await,
        Tool::Lag(lag) => lag.run().await,
        Tool::Doctor(doctor) => doctor.run().await,
        Tool::Top(top) => top.run().await,
        Tool::Metrics(metrics) => metrics.run().await,
        Tool::Dash(dash) => dash.run().await,
        Tool::Work(work) => work.run().await,
        Tool::Demo(demo) => demo.run().await,
        Tool::Completions(completions) => completions.run(command_line),
    }
}
