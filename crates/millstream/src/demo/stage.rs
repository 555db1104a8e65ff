//! What the audience sees: scenes told one after the other, and bars below them on a terminal.

use std::time::{Duration, Instant};

use indicatif::{MultiProgress, ProgressBar};

use crate::ops::output::{DIM, GOOD, bar_style, note, progress_is_seen};
use crate::ops::value::count;

/// Where nobody sees bars, figures are told in lines so often.
const LINE_EVERY: Duration = Duration::from_secs(5);

/// The stage.
pub(super) struct Stage {
    bars: Option<Bars>,
    began: Instant,
    scenes: u32,
    told_at: Instant,
}

struct Bars {
    all: MultiProgress,
    produced: ProgressBar,
    finished: ProgressBar,
    pool: ProgressBar,
}

/// What the bars show.
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

impl Stage {
    /// A stage for so many messages.
    pub(super) fn new(messages: u64) -> Stage {
        let now = Instant::now();
        let bars = progress_is_seen().then(|| Bars::new(messages));
        Stage { bars, began: now, scenes: 0, told_at: now }
    }

    /// How long it has been going on.
    pub(super) fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    /// Begins a scene.
    pub(super) fn scene(&mut self, text: &str) {
        self.scenes += 1;
        let text = format!("{GOOD}{}{GOOD:#}  {text}", self.scenes);
        self.line(&text);
    }

    /// Tells a detail of the scene.
    pub(super) fn detail(&self, text: &str) {
        self.line(&format!("   {DIM}{text}{DIM:#}"));
    }

    /// Shows figures.
    pub(super) fn show(&mut self, figures: &Figures) {
        let Figures { produced, finished, slots, busy, lag, pending, dead } = *figures;
        let pool = format!("{busy} of {slots} slots busy, lag {lag}, {pending} pending, {dead} dead");
        match &self.bars {
            Some(bars) => {
                bars.produced.set_position(produced);
                bars.finished.set_position(finished);
                bars.pool.set_message(pool);
            }
            None if self.told_at.elapsed() >= LINE_EVERY => {
                self.told_at = Instant::now();
                self.detail(&format!("{} in, {} done, {pool}", count(produced), count(finished)));
            }
            None => {}
        }
    }

    /// Takes the bars away.
    pub(super) fn clear(&self) {
        if let Some(bars) = &self.bars {
            for bar in [&bars.produced, &bars.finished, &bars.pool] {
                bar.finish_and_clear();
            }
        }
    }

    fn line(&self, text: &str) {
        match &self.bars {
            Some(bars) => bars.all.suspend(|| note(text)),
            None => note(text),
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
