//! One frame as plain text, for scripts and for reports.

use std::time::{Duration, Instant};

use super::draw;
use super::state::State;
use super::watcher::Watcher;
use crate::ops::Failure;
use crate::ops::output::print_raw;

/// Looks twice, an interval apart, and prints what there is to see.
pub(super) async fn run(mut watcher: Watcher, interval: Duration) -> Result<(), Failure> {
    let mut state = State::new(interval, Instant::now());
    state.receive(Ok(watcher.look().await?), Instant::now());
    tokio::time::sleep(interval).await;
    state.receive(Ok(watcher.look().await?), Instant::now());
    let lines = draw::plain(&state);
    print_raw(&lines.iter().map(|line| format!("{}\n", line.trim_end())).collect::<String>())
}
