//! A viewer: it receives each new look, and tells the sampler how often it needs one and which rows it shows.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::watch;

use super::row::RowKey;
use super::sampler::{Sampler, SamplerState};

/// Time for which a call counts as a viewer.
const CALLER_STAYS: Duration = Duration::from_secs(15);

/// Somebody who looks at a store through a [`Sampler`]. Until it is dropped, the sampler looks at the interval that
/// viewers want, and reads the details of the rows that they show with every look.
#[derive(Debug)]
pub struct Viewer {
    sampler: Sampler,
    id: u64,
    state: watch::Receiver<SamplerState>,
}

impl Viewer {
    pub(super) fn new(sampler: Sampler, id: u64, state: watch::Receiver<SamplerState>) -> Viewer {
        Viewer { sampler, id, state }
    }

    /// Waits until there is a new look or the trouble with the store has changed, and returns the state.
    ///
    /// Cancel safe. If several looks were taken since the last call, only the latest is reported.
    pub async fn changed(&mut self) -> SamplerState {
        if self.state.changed().await.is_err() {
            // The viewer keeps the sampler alive, so its task has panicked. No look will follow.
            std::future::pending::<()>().await;
        }
        self.state.borrow_and_update().clone()
    }

    /// Returns the state now.
    pub fn state(&self) -> SamplerState {
        self.state.borrow().clone()
    }

    /// Tells the sampler which rows the viewer shows. Replaces the rows of the last call.
    pub fn show(&self, rows: impl IntoIterator<Item = RowKey>) {
        let mut viewers = self.sampler.viewers().lock();
        if let Some(wishes) = viewers.by_id.get_mut(&self.id) {
            wishes.rows = rows.into_iter().collect();
        }
    }

    /// Tells the sampler how often the viewer wants a look. The sampler looks as often as the most demanding viewer
    /// wants, as far as the store is fast enough.
    pub fn ask_interval(&self, interval: Duration) {
        if let Some(wishes) = self.sampler.viewers().lock().by_id.get_mut(&self.id) {
            wishes.interval = Some(interval);
        }
        self.sampler.wake();
    }
}

impl Drop for Viewer {
    fn drop(&mut self) {
        self.sampler.viewers().lock().by_id.remove(&self.id);
    }
}

/// What the viewers of a sampler want.
#[derive(Debug, Default)]
pub(super) struct Viewers {
    next: u64,
    by_id: HashMap<u64, Wishes>,
    /// When a caller that is not a viewer last asked for a look.
    called: Option<Instant>,
}

#[derive(Debug, Default)]
struct Wishes {
    interval: Option<Duration>,
    rows: Vec<RowKey>,
}

impl Viewers {
    pub(super) fn add(viewers: &Mutex<Viewers>) -> u64 {
        let mut viewers = viewers.lock();
        viewers.next += 1;
        let id = viewers.next;
        viewers.by_id.insert(id, Wishes::default());
        id
    }

    /// Notes a call. Returns whether there was no viewer before.
    pub(super) fn call(&mut self, now: Instant) -> bool {
        let was_idle = self.interval(Duration::ZERO, now).is_none();
        self.called = Some(now);
        was_idle
    }

    /// Returns the shortest interval that a viewer wants; `default` is that of viewers that ask for none. `None` if
    /// there are no viewers.
    pub(super) fn interval(&self, default: Duration, now: Instant) -> Option<Duration> {
        let called = self.called.filter(|at| now.saturating_duration_since(*at) < CALLER_STAYS);
        let wanted = self.by_id.values().map(|wishes| wishes.interval.unwrap_or(default));
        wanted.chain(called.map(|_| default)).min()
    }

    /// Returns the rows that viewers show, each once.
    pub(super) fn rows(&self) -> Vec<RowKey> {
        let mut seen = HashSet::new();
        let rows = self.by_id.values().flat_map(|wishes| &wishes.rows);
        rows.filter(|row| seen.insert(*row)).cloned().collect()
    }
}

impl Sampler {
    /// Adds a viewer.
    pub fn subscribe(&self) -> Viewer {
        let state = self.states();
        let viewer = Viewer::new(self.clone(), Viewers::add(self.viewers()), state);
        self.wake();
        viewer
    }

    /// Notes that somebody asked for the latest look without being a viewer, for example a script. For 15 seconds, the
    /// sampler looks as often as for a viewer.
    pub fn touch(&self) {
        if self.viewers().lock().call(Instant::now()) {
            self.wake();
        }
    }
}
