//! The event loop of the live view: receives snapshots and keys, and draws frames.

use std::io;
use std::time::{Duration, Instant};

use anstream::{AutoStream, ColorChoice};
use ratatui::crossterm::event::Event;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, watch};
use tokio::time::MissedTickBehavior;

use super::draw::{Palette, draw};
use super::keys::{self, Action};
use super::poller::{PollResult, PollSchedule, Poller};
use super::screen::{self, Screen};
use super::state::State;
use crate::ops::Failure;
use crate::ops::partitions_args::PartitionsArgs;

/// Interval at which a frame is drawn without events, to update how long the store has not replied.
const TICK: Duration = Duration::from_secs(1);

pub(super) async fn run(
    poller: Poller,
    interval: Duration,
    partitions: PartitionsArgs,
) -> Result<(), Failure> {
    let mut state = State::new(interval, Instant::now());
    state.partitions = partitions.partitions;
    let (schedule, poller_schedule) = watch::channel(state.schedule);
    let (poller_results, results) = mpsc::channel(1);
    tokio::select! {
        done = interact(state, &schedule, results) => done,
        Err(failure) = poller.run(poller_schedule, poller_results) => Err(failure),
    }
}

async fn interact(
    mut state: State,
    schedule: &watch::Sender<PollSchedule>,
    mut results: mpsc::Receiver<PollResult>,
) -> Result<(), Failure> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut hang_up = signal(SignalKind::hangup())?;
    let mut ticks = tokio::time::interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let palette = palette();
    let mut screen = Screen::open().map_err(no_terminal)?;
    let mut events = screen::events();
    loop {
        screen.draw(|frame| draw(&mut state, &palette, Instant::now(), frame)).map_err(no_terminal)?;
        let event = tokio::select! {
            Some(result) = results.recv() => {
                state.receive(result, Instant::now());
                continue;
            }
            Some(event) = events.recv() => event.map_err(no_terminal)?,
            _ = terminate.recv() => return Err(interrupted(SignalKind::terminate())),
            _ = hang_up.recv() => return Err(interrupted(SignalKind::hangup())),
            _ = ticks.tick() => continue,
        };
        // The next frame adapts to a changed size by itself.
        let Event::Key(key) = event else { continue };
        let Some(action) = keys::action(key, state.mode()) else { continue };
        match action {
            Action::Quit => return Ok(()),
            Action::Interrupt => return Err(interrupted(SignalKind::interrupt())),
            Action::Suspend => screen.suspend().map_err(no_terminal)?,
            _ => {
                state.act(action);
                schedule.send_if_modified(|schedule| {
                    std::mem::replace(schedule, state.schedule) != state.schedule
                });
            }
        }
    }
}

fn palette() -> Palette {
    match AutoStream::choice(&io::stdout()) {
        ColorChoice::Never => Palette::plain(),
        _ => Palette::coloured(),
    }
}

fn interrupted(signal: SignalKind) -> Failure {
    Failure::Interrupted(signal.as_raw_value())
}

fn no_terminal(error: io::Error) -> Failure {
    Failure::Other(format!(
        "cannot draw on this terminal: {error}\nfor plain text, run: millstream top --once"
    ))
}
