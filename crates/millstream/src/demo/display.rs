//! The output of the running demo: numbered steps with details, and progress bars below them on a terminal.

use std::time::{Duration, Instant};

use indicatif::{MultiProgress, ProgressBar};

use crate::ops::output::{DIM, GOOD, bar_style, note_styled, progress_is_visible};
use crate::ops::value::count;

/// Interval of progress lines where there are no progress bars.
const LINE_INTERVAL: Duration = Duration::from_secs(5);

/// Prints the steps and the progress of the demo to standard error.
pub(super) struct DemoDisplay {
    /// `None` if standard error is not a terminal.
    bars: Option<Bars>,
    began: Instant,
    /// Number of steps printed so far.
    steps: u32,
    /// Time of the last progress line.
    last_line_at: Instant,
}

struct Bars {
    all: MultiProgress,
    produced: ProgressBar,
    finished: ProgressBar,
    pool: ProgressBar,
}

/// The numbers that the progress bars show.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Figures {
    pub(super) produced: u64,
    pub(super) finished: u64,
    pub(super) slots: usize,
    pub(super) busy: usize,
    pub(super) lag: u64,
    pub(super) pending: u64,
    pub(super) dead: u64,
}

impl DemoDisplay {
    /// Creates a display for a demo with this number of messages.
    pub(super) fn new(messages: u64) -> DemoDisplay {
        let now = Instant::now();
        let bars = progress_is_visible().then(|| Bars::new(messages));
        DemoDisplay { bars, began: now, steps: 0, last_line_at: now }
    }

    /// Returns the time since the start of the demo.
    pub(super) fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    /// Prints the title of the next step.
    pub(super) fn step(&mut self, text: &str) {
        self.steps += 1;
        let text = format!("{GOOD}{}{GOOD:#}  {text}", self.steps);
        self.line(&text);
    }

    /// Prints a detail of the current step.
    pub(super) fn detail(&self, text: &str) {
        self.line(&format!("   {DIM}{text}{DIM:#}"));
    }

    /// Updates the progress bars, or prints a progress line from time to time.
    pub(super) fn show(&mut self, figures: &Figures) {
        let Figures { produced, finished, slots, busy, lag, pending, dead } = *figures;
        let pool = format!("{busy} of {slots} slots busy, lag {lag}, {pending} pending, {dead} dead");
        match &self.bars {
            Some(bars) => {
                bars.produced.set_position(produced);
                bars.finished.set_position(finished);
                bars.pool.set_message(pool);
            }
            None if self.last_line_at.elapsed() >= LINE_INTERVAL => {
                self.last_line_at = Instant::now();
                self.detail(&format!("{} in, {} done, {pool}", count(produced), count(finished)));
            }
            None => {}
        }
    }

    /// Removes the progress bars.
    pub(super) fn clear(&self) {
        if let Some(bars) = &self.bars {
            for bar in [&bars.produced, &bars.finished, &bars.pool] {
                bar.finish_and_clear();
            }
        }
    }

    fn line(&self, text: &str) {
        match &self.bars {
            Some(bars) => bars.all.suspend(|| note_styled(text)),
            None => note_styled(text),
        }
    }
}

impl Bars {
    fn new(messages: u64) -> Bars {
        let all = MultiProgress::new();
        let bar = |name: &'static str| {
            let bar = all.add(ProgressBar::new(messages));
            bar.set_style(bar_style("   {prefix:5} {bar:40} {human_pos}/{human_len}"));
            bar.set_prefix(name);
            bar
        };
        let (produced, finished) = (bar("in"), bar("done"));
        let pool = all.add(ProgressBar::new_spinner());
        pool.set_style(bar_style("   {prefix:5} {wide_msg}"));
        pool.set_prefix("pool");
        Bars { all, produced, finished, pool }
    }
}
