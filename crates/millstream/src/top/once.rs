//! `top --once`: one frame as plain text, for scripts and reports.

use std::time::{Duration, Instant};

use super::draw;
use super::poller::Poller;
use super::state::State;
use crate::ops::Failure;
use crate::ops::output::print_plain;
use crate::ops::partitions_args::PartitionsArgs;

/// Polls the store twice, one interval apart, and prints a frame.
pub(super) async fn run(
    mut poller: Poller,
    interval: Duration,
    partitions: PartitionsArgs,
) -> Result<(), Failure> {
    let mut state = State::new(interval, Instant::now());
    state.partitions = partitions.partitions;
    state.receive(Ok(poller.poll().await?), Instant::now());
    tokio::time::sleep(interval).await;
    state.receive(Ok(poller.poll().await?), Instant::now());
    let lines = draw::plain(&state);
    print_plain(&lines.iter().map(|line| format!("{}\n", line.trim_end())).collect::<String>())
}
