//! What is shown: the last look, what was made of it, and where the person is. Changed by looks and by actions alone.

use std::time::{Duration, Instant};

use millstream_worker::monitor::{Health, StreamSnapshot};

use super::history::History;
use super::keys::{Action, Mode};
use super::row::{Key, Row, Sort, rows};
use super::watcher::{Look, Pace, Seen};

/// Looking more often than this would be a load.
pub(super) const INTERVAL_MIN: Duration = Duration::from_millis(100);
/// Looking less often than this is not live.
pub(super) const INTERVAL_MAX: Duration = Duration::from_secs(60);
/// Where `+` and `-` stop between the two.
const INTERVALS_MS: [u64; 9] = [100, 250, 500, 1000, 2000, 5000, 10_000, 30_000, 60_000];
/// A store that has not answered for this much longer than the interval is told to be silent.
const PATIENCE: Duration = Duration::from_secs(5);

/// What is shown.
pub(super) struct State {
    pub(super) look: Option<Look>,
    rows: Vec<Row>,
    history: History,
    trouble: Option<String>,
    /// When the store last answered; before it ever has, when we began to ask.
    heard: Instant,
    selected: Option<Key>,
    /// Where the selected row was last seen.
    position: usize,
    pub(super) view: View,
    pub(super) help: bool,
    typing: bool,
    pub(super) filter: String,
    pub(super) sort: Sort,
    pub(super) reversed: bool,
    pub(super) pace: Pace,
}

/// Where the person is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum View {
    /// All rows.
    Overview,
    /// The selected row, so many lines down.
    Group {
        /// The lines above the first one shown.
        scroll: usize,
    },
}

/// What all streams and groups come to.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Totals {
    /// Streams.
    pub(super) streams: usize,
    /// Groups.
    pub(super) groups: usize,
    /// Entries of all streams.
    pub(super) entries: u64,
    /// Entries that groups have yet to read.
    pub(super) lag: u64,
    /// Whether that is the number, and not only a lower bound.
    pub(super) lag_is_exact: bool,
    /// Entries pending.
    pub(super) pending: u64,
    /// Those of them that look stuck.
    pub(super) stuck: u64,
    /// Dead letters.
    pub(super) dead: u64,
    /// Entries added per second.
    pub(super) added: f64,
    /// Entries acknowledged per second.
    pub(super) acknowledged: f64,
    /// Groups that are degraded.
    pub(super) degraded: usize,
    /// Groups that are critical.
    pub(super) critical: usize,
}

impl State {
    /// Nothing has been seen yet.
    pub(super) fn new(interval: Duration, now: Instant) -> State {
        State {
            look: None,
            rows: Vec::new(),
            history: History::default(),
            trouble: None,
            heard: now,
            selected: None,
            position: 0,
            view: View::Overview,
            help: false,
            typing: false,
            filter: String::new(),
            sort: Sort::Name,
            reversed: false,
            pace: Pace { interval, paused: false, asked: 0 },
        }
    }

    /// Takes in a look, or why there was none: then the last one stays.
    pub(super) fn receive(&mut self, seen: Seen, now: Instant) {
        let look = match seen {
            Ok(look) => look,
            Err(trouble) => {
                self.trouble = Some(trouble);
                return;
            }
        };
        self.rows = rows(&look, self.look.as_ref());
        let lag = |row: &Row| Some((row.key.clone(), row.group.as_ref()?.snapshot.lag.count));
        self.history.push(self.rows.iter().filter_map(lag));
        self.look = Some(look);
        self.trouble = None;
        self.heard = now;
        self.settle();
    }

    /// Does what is asked for.
    pub(super) fn act(&mut self, action: Action) {
        match action {
            // These end or stop the loop, which does so itself.
            Action::Quit | Action::Interrupt | Action::Suspend => {}
            // Help is in the way of everything else: what is asked for closes it.
            _ if self.help => self.help = false,
            Action::Help => self.help = true,
            Action::Move(by) => self.go(by),
            Action::First => self.go(isize::MIN),
            Action::Last => self.go(isize::MAX),
            Action::Open => self.open(),
            Action::Back => self.back(),
            Action::Filter => (self.view, self.typing) = (View::Overview, true),
            Action::Type(c) => self.filter.push(c),
            Action::Erase => drop(self.filter.pop()),
            Action::EraseAll => self.filter.clear(),
            Action::Keep => self.typing = false,
            Action::Sort => (self.sort, self.reversed) = (self.sort.next(), false),
            Action::Reverse => self.reversed = !self.reversed,
            Action::Pause => self.pace.paused = !self.pace.paused,
            Action::Slower => self.pace.interval = slower(self.pace.interval),
            Action::Faster => self.pace.interval = faster(self.pace.interval),
            Action::LookNow => self.pace.asked += 1,
        }
        self.settle();
    }

    fn go(&mut self, by: isize) {
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

    /// The rows or their order may have changed: the selected row is found again, or the one that came to its place.
    fn settle(&mut self) {
        // An open group stays open, even when it is gone.
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

    /// The lines above the first one shown are no more than this: called with the height of the page.
    pub(super) fn limit_scroll(&mut self, most: usize) {
        if let View::Group { scroll } = &mut self.view {
            *scroll = (*scroll).min(most);
        }
    }

    /// The rows that match the filter, in order.
    pub(super) fn shown(&self) -> Vec<&Row> {
        let mut shown: Vec<&Row> = self.rows.iter().filter(|row| row.matches(&self.filter)).collect();
        // Rows come by name; what is equal stays so.
        shown.sort_by(|a, b| self.sort.compare(a, b));
        if self.reversed {
            shown.reverse();
        }
        shown
    }

    /// Where among the shown rows the selected one is. If it has gone, the one that came to its place is it.
    pub(super) fn position(&self) -> Option<usize> {
        let shown = self.shown();
        let found = shown.iter().position(|row| Some(&row.key) == self.selected.as_ref());
        found.or_else(|| Some(self.position.min(shown.len().checked_sub(1)?)))
    }

    /// What is selected, or open.
    pub(super) fn selected(&self) -> Option<&Key> {
        match self.view {
            View::Group { .. } => self.selected.as_ref(),
            View::Overview => self.shown().get(self.position()?).map(|row| &row.key),
        }
    }

    /// The row about this.
    pub(super) fn row(&self, key: &Key) -> Option<&Row> {
        self.rows.iter().find(|row| row.key == *key)
    }

    /// The stream as last seen.
    pub(super) fn stream(&self, name: &str) -> Option<&StreamSnapshot> {
        self.look.as_ref()?.streams.iter().find(|stream| stream.name == name)
    }

    /// The last lags of a group, at most so many, the oldest first.
    pub(super) fn lags(&self, key: &Key, count: usize) -> Vec<u64> {
        self.history.last(key, count)
    }

    /// What is wrong with the store, if something is.
    pub(super) fn trouble(&self, now: Instant) -> Option<String> {
        let silence = now.saturating_duration_since(self.heard);
        let seconds = silence.as_secs();
        match &self.trouble {
            Some(trouble) => {
                let reason = trouble.lines().next().unwrap_or_default();
                Some(format!("no answer for {seconds}s, trying again: {reason}"))
            }
            None if !self.pace.paused && silence > self.pace.interval + PATIENCE => {
                Some(format!("no answer for {seconds}s, still waiting"))
            }
            None => None,
        }
    }

    /// What everything comes to.
    pub(super) fn totals(&self) -> Totals {
        let mut totals = Totals { lag_is_exact: true, ..Totals::default() };
        for stream in self.look.iter().flat_map(|look| &look.streams) {
            totals.streams += 1;
            totals.groups += stream.groups.len();
            totals.entries += stream.info.length;
            totals.dead += stream.dead_letters_length;
            let row = self.rows.iter().find(|row| row.key.stream == stream.name);
            totals.added += row.and_then(|row| row.added).unwrap_or_default();
        }
        for group in self.rows.iter().filter_map(|row| row.group.as_ref()) {
            let snapshot = &group.snapshot;
            totals.lag += snapshot.lag.count;
            totals.lag_is_exact &= snapshot.lag.is_exact();
            totals.pending += snapshot.pending;
            totals.stuck += snapshot.scan.stuck;
            totals.acknowledged += group.rates.and_then(|rates| rates.acknowledged).unwrap_or_default();
            totals.degraded += usize::from(group.verdict.health == Health::Degraded);
            totals.critical += usize::from(group.verdict.health == Health::Critical);
        }
        totals
    }

    /// What keys mean now.
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
