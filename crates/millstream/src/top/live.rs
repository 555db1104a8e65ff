//! The loop: looks and keys come in, frames go out.

use std::io;
use std::time::{Duration, Instant};

use anstream::{AutoStream, ColorChoice};
use ratatui::crossterm::event::Event;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, watch};
use tokio::time::MissedTickBehavior;

use super::draw::{Palette, draw};
use super::keys::{self, Action};
use super::screen::{self, Screen};
use super::state::State;
use super::watcher::{Pace, Seen, Watcher};
use crate::ops::Failure;

/// How often a frame is drawn though nothing has happened: for how long the store has been silent must be seen.
const TICK: Duration = Duration::from_secs(1);

/// Shows what the watcher sees until somebody quits.
pub(super) async fn run(watcher: Watcher, interval: Duration) -> Result<(), Failure> {
    let state = State::new(interval, Instant::now());
    let (pace, pace_of_watcher) = watch::channel(state.pace);
    let (seen_by_watcher, seen) = mpsc::channel(1);
    tokio::select! {
        done = interact(state, &pace, seen) => done,
        Err(failure) = watcher.watch(pace_of_watcher, seen_by_watcher) => Err(failure),
    }
}

async fn interact(
    mut state: State,
    pace: &watch::Sender<Pace>,
    mut seen: mpsc::Receiver<Seen>,
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
            Some(seen) = seen.recv() => {
                state.receive(seen, Instant::now());
                continue;
            }
            Some(event) = events.recv() => event.map_err(no_terminal)?,
            _ = terminate.recv() => return Err(interrupted(SignalKind::terminate())),
            _ = hang_up.recv() => return Err(interrupted(SignalKind::hangup())),
            _ = ticks.tick() => continue,
        };
        // A change of size is seen when the next frame is drawn.
        let Event::Key(key) = event else { continue };
        let Some(action) = keys::action(key, state.mode()) else { continue };
        match action {
            Action::Quit => return Ok(()),
            Action::Interrupt => return Err(interrupted(SignalKind::interrupt())),
            Action::Suspend => screen.suspend().map_err(no_terminal)?,
            _ => {
                state.act(action);
                pace.send_if_modified(|pace| std::mem::replace(pace, state.pace) != state.pace);
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
        "cannot draw on this terminal: {error}\nfor plain text there is: millstream top --once"
    ))
}
