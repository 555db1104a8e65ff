//! The state of the view: the last snapshot, its rows, and the position of the user. Only snapshots and actions
//! change it.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use millstream_worker::monitor::StreamSnapshot;
use millstream_worker::observe::{Look, Row, RowKey, Sort, Totals, Tracker};

use super::history::History;
use super::keys::{Action, Mode};
use super::poller::{PollResult, PollSchedule, StoreSnapshot};
use super::sort;

/// Shortest interval: polling more often would burden the store.
pub(super) const INTERVAL_MIN: Duration = Duration::from_millis(100);
/// Longest interval: polling less often would not be live.
pub(super) const INTERVAL_MAX: Duration = Duration::from_secs(60);
/// The intervals that `+` and `-` select.
const INTERVALS_MS: [u64; 9] = [100, 250, 500, 1000, 2000, 5000, 10_000, 30_000, 60_000];
/// A missing reply is reported after the interval plus this time.
const REPLY_TIMEOUT: Duration = Duration::from_secs(5);

pub(super) struct State {
    /// The last snapshot. `None` before the first reply of the store.
    pub(super) snapshot: Option<StoreSnapshot>,
    tracker: Tracker,
    look: Arc<Look>,
    history: History,
    error: Option<String>,
    /// Time of the last successful poll. Before the first one, the time at which the command started.
    last_reply: Instant,
    selected: Option<RowKey>,
    /// Last known position of the selected row.
    position: usize,
    pub(super) view: View,
    /// Whether the partitions of logical streams have rows of their own.
    pub(super) partitions: bool,
    pub(super) help: bool,
    typing: bool,
    pub(super) filter: String,
    pub(super) sort: Sort,
    pub(super) reversed: bool,
    pub(super) schedule: PollSchedule,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum View {
    Overview,
    Group {
        /// Number of lines scrolled down.
        scroll: usize,
    },
}

impl State {
    pub(super) fn new(interval: Duration, now: Instant) -> State {
        State {
            snapshot: None,
            tracker: Tracker::default(),
            look: Arc::default(),
            history: History::default(),
            error: None,
            last_reply: now,
            selected: None,
            position: 0,
            view: View::Overview,
            partitions: false,
            help: false,
            typing: false,
            filter: String::new(),
            sort: Sort::Health,
            reversed: false,
            schedule: PollSchedule { interval, paused: false, requests: 0 },
        }
    }

    /// Stores the result of a poll. After an error, the last snapshot stays.
    pub(super) fn receive(&mut self, result: PollResult, now: Instant) {
        let snapshot = match result {
            Ok(snapshot) => snapshot,
            Err(error) => {
                self.error = Some(error);
                return;
            }
        };
        let at = snapshot.streams.first().map_or_else(SystemTime::now, |stream| stream.at);
        self.look = self.tracker.update(snapshot.streams.clone(), at, Duration::ZERO);
        let lag = |row: &Arc<Row>| Some((row.key.clone(), row.group.as_ref()?.snapshot.lag.count));
        let behind = self.look.rows.iter().flat_map(|row| self.look.rows_behind(&row.key));
        self.history.push(self.look.rows.iter().chain(behind).filter_map(lag));
        self.snapshot = Some(snapshot);
        self.error = None;
        self.last_reply = now;
        self.update_selection();
    }

    pub(super) fn act(&mut self, action: Action) {
        match action {
            // The event loop handles these.
            Action::Quit | Action::Interrupt | Action::Suspend => {}
            // While the help is shown, any action only closes it.
            _ if self.help => self.help = false,
            Action::Help => self.help = true,
            Action::Move(by) => self.move_by(by),
            Action::First => self.move_by(isize::MIN),
            Action::Last => self.move_by(isize::MAX),
            Action::Open => self.open(),
            Action::Back => self.back(),
            Action::Filter => (self.view, self.typing) = (View::Overview, true),
            Action::Type(c) => self.filter.push(c),
            Action::Erase => drop(self.filter.pop()),
            Action::EraseAll => self.filter.clear(),
            Action::KeepFilter => self.typing = false,
            Action::Sort => (self.sort, self.reversed) = (sort::next(self.sort), false),
            Action::Reverse => self.reversed = !self.reversed,
            Action::Pause => self.schedule.paused = !self.schedule.paused,
            Action::Slower => self.schedule.interval = slower(self.schedule.interval),
            Action::Faster => self.schedule.interval = faster(self.schedule.interval),
            Action::PollNow => self.schedule.requests += 1,
        }
        self.update_selection();
    }

    fn move_by(&mut self, by: isize) {
        match &mut self.view {
            View::Overview => {
                let last = self.shown().len().saturating_sub(1);
                self.select(self.position().unwrap_or_default().saturating_add_signed(by).min(last));
            }
            View::Group { scroll } => *scroll = scroll.saturating_add_signed(by),
        }
    }

    fn open(&mut self) {
        if self.view == View::Overview && !self.shown().is_empty() {
            self.view = View::Group { scroll: 0 };
        }
    }

    fn back(&mut self) {
        if self.view == View::Overview {
            self.typing = false;
            self.filter.clear();
        }
        self.view = View::Overview;
    }

    /// Finds the selected row again after the rows or their order have changed.
    ///
    /// If the row is gone, selects the row at its position.
    fn update_selection(&mut self) {
        // The page of an open group stays, even if the group is gone.
        if self.view == View::Overview
            && let Some(position) = self.position()
        {
            self.select(position);
        }
    }

    fn select(&mut self, position: usize) {
        self.selected = self.shown().get(position).map(|row| row.key.clone());
        self.position = position;
    }

    /// Limits the number of lines scrolled down.
    pub(super) fn limit_scroll(&mut self, limit: usize) {
        if let View::Group { scroll } = &mut self.view {
            *scroll = (*scroll).min(limit);
        }
    }

    /// Returns the rows that match the filter, sorted.
    pub(super) fn shown(&self) -> Vec<&Row> {
        let behind = |row: &Arc<Row>| match self.partitions {
            true => self.parts(&row.key),
            false => Vec::new(),
        };
        let rows = self.look.rows.iter().flat_map(|row| std::iter::once(&**row).chain(behind(row)));
        let mut shown: Vec<&Row> = rows.filter(|row| row.matches(&self.filter)).collect();
        // The rows are sorted by name, and the sort is stable.
        shown.sort_by(|a, b| self.sort.compare(a, b));
        if self.reversed {
            shown.reverse();
        }
        shown
    }

    /// Returns the index of the selected row among the shown rows. If the row is gone, returns the index of the row
    /// that took its place. `None` if no row is shown.
    pub(super) fn position(&self) -> Option<usize> {
        let shown = self.shown();
        let found = shown.iter().position(|row| Some(&row.key) == self.selected.as_ref());
        found.or_else(|| Some(self.position.min(shown.len().checked_sub(1)?)))
    }

    /// Returns the key of the selected or open row.
    pub(super) fn selected(&self) -> Option<&RowKey> {
        match self.view {
            View::Group { .. } => self.selected.as_ref(),
            View::Overview => self.shown().get(self.position()?).map(|row| &row.key),
        }
    }

    pub(super) fn row(&self, key: &RowKey) -> Option<&Row> {
        self.look.row(key).map(|row| &**row)
    }

    /// Returns the rows of the partitions of a row, in the order of their numbers.
    pub(super) fn parts(&self, key: &RowKey) -> Vec<&Row> {
        self.look.rows_behind(key).into_iter().map(|row| &**row).collect()
    }

    pub(super) fn stream(&self, name: &str) -> Option<&StreamSnapshot> {
        self.look.stream(name).map(|stream| &**stream)
    }

    /// Returns the last `count` lags of a group, oldest first.
    pub(super) fn lags(&self, key: &RowKey, count: usize) -> Vec<u64> {
        self.history.last(key, count)
    }

    /// Returns a message if the store does not reply or the last poll failed.
    pub(super) fn store_problem(&self, now: Instant) -> Option<String> {
        let silence = now.saturating_duration_since(self.last_reply);
        let seconds = silence.as_secs();
        match &self.error {
            Some(error) => {
                let reason = error.lines().next().unwrap_or_default();
                Some(format!("no reply for {seconds}s, retrying: {reason}"))
            }
            None if !self.schedule.paused && silence > self.schedule.interval + REPLY_TIMEOUT => {
                Some(format!("no reply for {seconds}s, still waiting"))
            }
            None => None,
        }
    }

    pub(super) fn totals(&self) -> Totals {
        self.look.totals
    }

    /// Returns how keys are interpreted now.
    pub(super) fn mode(&self) -> Mode {
        if self.typing { Mode::Typing } else { Mode::Browse }
    }
}

fn slower(interval: Duration) -> Duration {
    let steps = INTERVALS_MS.into_iter().map(Duration::from_millis);
    steps.into_iter().find(|step| *step > interval).unwrap_or(INTERVAL_MAX)
}

fn faster(interval: Duration) -> Duration {
    let steps = INTERVALS_MS.into_iter().rev().map(Duration::from_millis);
    steps.into_iter().find(|step| *step < interval).unwrap_or(INTERVAL_MIN)
}

#[cfg(test)]
mod tests;
