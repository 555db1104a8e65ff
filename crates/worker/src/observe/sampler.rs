//! The task that looks at a store at intervals, and what it shares with viewers.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use parking_lot::{Mutex, RwLock};
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

use super::collector::{Collected, Collector};
use super::history::{History, HistorySeries, POINTS_MAX};
use super::row::{Look, RowKey};
use super::tracker::{Tracker, millis};
use super::viewer::Viewers;
use crate::backend::{Admin, Error, ErrorKind};
use crate::monitor::Limits;

/// A look takes at most this part of the time: the interval is at least this number times the time of a look.
const LOOK_SHARE: u32 = 20;
/// Time between two attempts while the store does not answer.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// A store that has not answered a look for this long counts as not answering, although the look has not failed yet.
const LATE_AFTER_MIN: Duration = Duration::from_secs(2);
/// The same, as a multiple of the time that a look usually takes.
const LATE_AFTER_LOOKS: u32 = 4;

/// The settings of a [`Sampler`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SamplerOptions {
    /// Time between two looks while there are viewers, unless they ask for another interval.
    pub interval: Duration,
    /// Time between two looks while there are no viewers.
    pub idle_interval: Duration,
    /// Only streams whose names match this glob pattern.
    pub pattern: String,
    /// The limits by which groups are judged.
    pub limits: Limits,
    /// Maximum memory of the history, in bytes.
    pub history_memory: usize,
}

impl Default for SamplerOptions {
    fn default() -> SamplerOptions {
        SamplerOptions {
            interval: Duration::from_secs(2),
            idle_interval: Duration::from_secs(10),
            pattern: "*".to_owned(),
            limits: Limits::default(),
            history_memory: 64 * 1024 * 1024,
        }
    }
}

impl SamplerOptions {
    /// Sets the time between two looks while there are viewers.
    #[must_use]
    pub fn interval(mut self, interval: Duration) -> SamplerOptions {
        self.interval = interval;
        self
    }

    /// Sets the time between two looks while there are no viewers.
    #[must_use]
    pub fn idle_interval(mut self, interval: Duration) -> SamplerOptions {
        self.idle_interval = interval;
        self
    }

    /// Limits the sampler to streams whose names match a glob pattern.
    #[must_use]
    pub fn pattern(mut self, pattern: impl Into<String>) -> SamplerOptions {
        self.pattern = pattern.into();
        self
    }

    /// Sets the maximum memory of the history, in bytes.
    #[must_use]
    pub fn history_memory(mut self, bytes: usize) -> SamplerOptions {
        self.history_memory = bytes;
        self
    }

    /// Sets the limits by which groups are judged.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> SamplerOptions {
        self.limits = limits;
        self
    }
}

/// Looks at a store at intervals, once for all viewers. Clones are handles to the same sampler.
///
/// It keeps the last look while the store does not answer, and looks again as soon as the store does. It ends when its
/// last handle and its last [`Viewer`](super::Viewer) are dropped.
#[derive(Clone)]
pub struct Sampler {
    handle: Arc<Handle>,
}

/// Ends the task when the last handle is dropped.
struct Handle {
    shared: Arc<SamplerShare>,
    ended: CancellationToken,
}

struct SamplerShare {
    admin: Arc<dyn Admin>,
    options: SamplerOptions,
    look: RwLock<Arc<Look>>,
    state: watch::Sender<SamplerState>,
    viewers: Mutex<Viewers>,
    history: Mutex<History>,
    /// Wakes the task before the interval is over.
    wake: Notify,
}

/// Which look is the latest, and whether the store answers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SamplerState {
    /// The number of the latest look, counted from 1. 0 before the first one.
    pub number: u64,
    /// When it ended, in milliseconds since 1970.
    pub at_ms: u64,
    /// How long the store took to answer.
    pub took: Duration,
    /// How long the store usually takes to answer: the shorter time of the last two looks. One look may have waited for
    /// a store that was down.
    pub usual: Duration,
    /// Why there is no newer look. `None` if the store answers.
    pub trouble: Option<Trouble>,
}

/// The store does not answer, or refuses to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    /// When the store last answered, in milliseconds since 1970. If it never has: when the first look failed.
    pub since_ms: u64,
    /// Why the last one failed.
    pub error: String,
}

/// What a sampler does at the moment.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SamplerStatus {
    /// The latest look, and whether the store answers.
    pub state: SamplerState,
    /// Time between two looks now: the shortest interval that a viewer asks for, but at least 20 times as long as a
    /// look takes.
    pub interval: Duration,
    /// What the history covers.
    pub history: HistoryStatus,
}

/// What the history of a sampler covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HistoryStatus {
    /// The time of the first point, in milliseconds since 1970. `None` if there is none yet.
    pub since_ms: Option<u64>,
    /// Least time between two points, in milliseconds.
    pub step_ms: u64,
    /// Maximum number of points of a group.
    pub points_max: u64,
    /// Memory that it takes, in bytes.
    pub bytes: usize,
}

impl fmt::Debug for Sampler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sampler").field("status", &self.status()).finish_non_exhaustive()
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.ended.cancel();
    }
}

impl Sampler {
    /// Starts a task that looks at the store. Must be called in a tokio runtime.
    pub fn start(admin: Arc<dyn Admin>, options: SamplerOptions) -> Sampler {
        let history = Mutex::new(History::new(options.history_memory));
        let shared = Arc::new(SamplerShare {
            history,
            admin,
            options,
            look: RwLock::default(),
            state: watch::Sender::default(),
            viewers: Mutex::default(),
            wake: Notify::new(),
        });
        let ended = CancellationToken::new();
        let task = Arc::clone(&shared).run();
        let until = ended.clone();
        tokio::spawn(async move { until.run_until_cancelled_owned(task).await });
        Sampler { handle: Arc::new(Handle { shared, ended }) }
    }

    /// Returns the latest look. Its number is 0 before the first one.
    pub fn look(&self) -> Arc<Look> {
        Arc::clone(&self.handle.shared.look.read())
    }

    /// Returns the number of the latest look, and whether the store answers.
    pub fn state(&self) -> SamplerState {
        self.handle.shared.state.borrow().clone()
    }

    /// Returns what the sampler does at the moment.
    pub fn status(&self) -> SamplerStatus {
        let state = self.state();
        SamplerStatus {
            interval: self.handle.shared.interval(state.usual),
            state,
            history: self.history_status(),
        }
    }

    /// Returns the history of a group between two times in milliseconds since 1970, in at most `points` steps. It is
    /// [empty](HistorySeries::is_empty) if the group is new or unknown.
    ///
    /// Without the name of a group, returns the history of the first group of the stream: all have the same entries
    /// added.
    pub fn history(&self, row: &RowKey, from_ms: u64, to_ms: u64, points: usize) -> HistorySeries {
        self.handle.shared.history.lock().series(row, from_ms, to_ms, points)
    }

    fn history_status(&self) -> HistoryStatus {
        let history = self.handle.shared.history.lock();
        HistoryStatus {
            since_ms: history.since_ms(),
            step_ms: 2_000,
            points_max: POINTS_MAX,
            bytes: history.bytes(),
        }
    }

    /// Returns the store.
    pub fn admin(&self) -> &Arc<dyn Admin> {
        &self.handle.shared.admin
    }

    /// Looks now, for example because somebody has just changed something.
    pub fn wake(&self) {
        self.handle.shared.wake.notify_one();
    }

    /// Returns the rows that viewers show now, each once.
    pub fn in_view(&self) -> Vec<RowKey> {
        self.viewers().lock().rows()
    }

    pub(super) fn viewers(&self) -> &Mutex<Viewers> {
        &self.handle.shared.viewers
    }

    /// Returns a receiver of states that has seen none yet.
    pub(super) fn states(&self) -> watch::Receiver<SamplerState> {
        let mut states = self.handle.shared.state.subscribe();
        if states.borrow().number > 0 {
            states.mark_changed();
        }
        states
    }
}

impl SamplerShare {
    async fn run(self: Arc<Self>) {
        let mut tracker = Tracker::new(self.options.limits.clone());
        let mut collector = Collector::new(Arc::clone(&self.admin), self.options.pattern.clone());
        loop {
            let began = Instant::now();
            let in_view = self.viewers.lock().rows();
            let (look, trouble) = match self.unless_late(collector.collect(&in_view)).await {
                Ok(Collected { streams, trouble }) => {
                    (Some(tracker.update(streams, SystemTime::now(), began.elapsed())), trouble)
                }
                Err(error) => (None, Some(error)),
            };
            self.publish(look, trouble.as_ref());
            self.pause(began).await;
        }
    }

    /// Waits for the store. If its answer is late, publishes that, unless the store has never answered.
    async fn unless_late<T>(&self, answer: impl Future<Output = T>) -> T {
        let mut answer = std::pin::pin!(answer);
        let (is_first, usual) = {
            let state = self.state.borrow();
            (state.number == 0, state.usual)
        };
        let late_after = LATE_AFTER_MIN.max(usual.saturating_mul(LATE_AFTER_LOOKS));
        if let Ok(answer) = tokio::time::timeout(late_after, &mut answer).await {
            return answer;
        }
        if !is_first {
            let text = format!("the store has not answered for {} s", late_after.as_secs());
            self.publish(None, Some(&Error::new(ErrorKind::Unreachable, text)));
        }
        answer.await
    }

    fn publish(&self, look: Option<Arc<Look>>, trouble: Option<&Error>) {
        if let Some(look) = &look {
            let usual = usual_time(&self.state.borrow(), look.took);
            self.history.lock().add(look, self.interval(usual));
            *self.look.write() = Arc::clone(look);
        }
        self.state.send_modify(|state| {
            let last_answer = Some(state.at_ms).filter(|at_ms| *at_ms > 0);
            if let Some(look) = look {
                state.usual = usual_time(state, look.took);
                (state.number, state.at_ms, state.took) = (look.number, look.at_ms, look.took);
            }
            let since_ms = state.trouble.as_ref().map(|known| known.since_ms);
            let since_ms = since_ms.or(last_answer).unwrap_or_else(|| millis(SystemTime::now()));
            state.trouble = trouble.map(|error| Trouble { since_ms, error: error.to_string() });
        });
    }

    /// Waits until the next look is due, or until somebody wants one.
    async fn pause(&self, began: Instant) {
        let (failed, usual) = {
            let state = self.state.borrow();
            (state.trouble.is_some(), state.usual)
        };
        let (took, interval) =
            if failed { (began.elapsed(), RETRY_INTERVAL) } else { (usual, self.interval(usual)) };
        let left = interval.saturating_sub(began.elapsed());
        tokio::select! {
            () = tokio::time::sleep(left) => {}
            // Even then, looks take only their share of the time.
            () = self.wake.notified() => {
                let least = took.saturating_mul(LOOK_SHARE).saturating_sub(began.elapsed());
                tokio::time::sleep(least.min(left)).await;
            }
        }
    }

    fn interval(&self, took: Duration) -> Duration {
        let wanted = self.viewers.lock().interval(self.options.interval, Instant::now());
        wanted.unwrap_or(self.options.idle_interval).max(took.saturating_mul(LOOK_SHARE))
    }
}

/// Returns how long the store usually takes to answer after a look that took this long.
fn usual_time(before: &SamplerState, took: Duration) -> Duration {
    if before.number == 0 { took } else { took.min(before.took) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::{Embedded, ReadMessages, Start};
    use crate::observe::{Eta, Query, Sort};
    use crate::producer::Producer;

    async fn store() -> Arc<dyn Admin> {
        let backend: Arc<dyn Admin> = Arc::new(Embedded::in_memory());
        backend.create_group("orders", "billing", Start::Beginning).await.unwrap();
        backend.create_group("orders", "audit", Start::Beginning).await.unwrap();
        Producer::new(backend.clone(), "orders")
            .send_all((0..5).map(|n| [("n", n.to_string())]))
            .await
            .unwrap();
        Producer::new(backend.clone(), "events").send([("n", "1")]).await.unwrap();
        backend
    }

    fn fast() -> SamplerOptions {
        SamplerOptions::default().interval(Duration::from_millis(10))
    }

    #[tokio::test]
    async fn viewers_see_the_latest_look_and_the_next_ones() {
        let backend = store().await;
        let sampler = Sampler::start(backend.clone(), fast());
        let (mut viewer, mut second) = (sampler.subscribe(), sampler.subscribe());
        let first = viewer.changed().await.number;
        assert!(first >= 1 && second.changed().await.number >= 1);
        let look = sampler.look();
        assert_eq!((look.totals.streams, look.totals.groups, look.totals.lag), (2, 2, 10));
        let keys: Vec<_> = look.rows.iter().map(|row| (&*row.key.stream, row.key.group.as_deref())).collect();
        assert_eq!(keys, [("events", None), ("orders", Some("audit")), ("orders", Some("billing"))]);
        assert_eq!((look.rows_of("orders").len(), look.rows_of("nothing").len()), (2, 0));
        Producer::new(backend, "orders").send([("n", "6")]).await.unwrap();
        let key = RowKey::group("orders", "billing");
        let lag = |look: &Look| look.row(&key).unwrap().group.as_ref().unwrap().snapshot.lag.count;
        while lag(&sampler.look()) != 6 {
            viewer.changed().await;
        }
        let page = sampler.look().page(&Query { sort: Sort::Lag, count: 1, ..Query::default() }, |_| true);
        assert_eq!((page.matched, page.rows.len()), (3, 1));
        let hidden = sampler.look().page(&Query::default(), |stream| stream != "orders");
        assert_eq!((hidden.matched, sampler.look().totals_of(|stream| stream != "orders").lag), (1, 0));
        while sampler.look().row(&key).unwrap().group.as_ref().unwrap().eta == Eta::Unknown {
            viewer.changed().await;
        }
    }

    #[tokio::test]
    async fn the_rows_in_view_are_those_of_all_viewers() {
        let sampler = Sampler::start(store().await, fast());
        let (one, two) = (sampler.subscribe(), sampler.subscribe());
        let key = RowKey::group("orders", "billing");
        one.show([key.clone()]);
        two.show([key.clone(), RowKey::group("orders", "audit")]);
        assert_eq!(sampler.in_view().len(), 2);
        drop(two);
        assert_eq!(sampler.in_view(), [key]);
        one.show([]);
        assert_eq!(sampler.in_view(), []);
    }

    #[tokio::test]
    async fn the_interval_is_that_of_the_most_demanding_viewer() {
        let sampler = Sampler::start(store().await, SamplerOptions::default());
        let interval = || sampler.handle.shared.interval(Duration::ZERO);
        assert_eq!(interval(), Duration::from_secs(10));
        let (one, two) = (sampler.subscribe(), sampler.subscribe());
        assert_eq!(interval(), Duration::from_secs(2));
        one.ask_interval(Duration::from_millis(100));
        two.ask_interval(Duration::from_secs(60));
        assert_eq!(interval(), Duration::from_millis(100));
        drop(one);
        assert_eq!(interval(), Duration::from_secs(60));
        drop(two);
        assert_eq!(interval(), Duration::from_secs(10));
        sampler.touch();
        assert_eq!(interval(), Duration::from_secs(2));
        let slow = sampler.handle.shared.interval(Duration::from_secs(1));
        assert_eq!(slow, Duration::from_secs(20), "looks take a twentieth of the time at most");
    }

    #[tokio::test]
    async fn one_slow_look_does_not_delay_the_next_ones() {
        let sampler = Sampler::start(store().await, SamplerOptions::default());
        while sampler.state().number == 0 {
            sampler.subscribe().changed().await;
        }
        let shared = &sampler.handle.shared;
        let publish = |took| {
            let mut look = (*sampler.look()).clone();
            (look.number, look.took) = (look.number + 1, took);
            shared.publish(Some(Arc::new(look)), None);
            sampler.status().interval
        };
        let (fast, slow) = (Duration::from_millis(1), Duration::from_secs(4));
        assert_eq!(publish(fast), Duration::from_secs(10));
        assert_eq!(publish(slow), Duration::from_secs(10), "it waited for a store that was down");
        assert_eq!(publish(slow), Duration::from_secs(80), "the store is slow");
        assert_eq!(publish(fast), Duration::from_secs(10));
    }

    #[tokio::test(start_paused = true)]
    async fn a_store_that_does_not_answer_in_time_is_in_trouble_before_the_look_fails() {
        let sampler = Sampler::start(store().await, SamplerOptions::default());
        let mut viewer = sampler.subscribe();
        while viewer.changed().await.number == 0 {}
        let shared = Arc::clone(&sampler.handle.shared);
        // On a busy machine, the first look takes long.
        shared.state.send_modify(|state| state.usual = Duration::ZERO);
        let mut late = std::pin::pin!(shared.unless_late(tokio::time::sleep(Duration::from_secs(10))));
        let is_over = tokio::time::timeout(LATE_AFTER_MIN - Duration::from_millis(1), &mut late).await;
        assert!(is_over.is_err() && sampler.state().trouble.is_none());
        assert!(tokio::time::timeout(Duration::from_millis(2), &mut late).await.is_err());
        let state = sampler.state();
        assert_eq!(state.trouble.unwrap().since_ms, state.at_ms);
        late.await;
    }

    #[tokio::test]
    async fn the_last_look_stays_while_the_store_does_not_answer() {
        let embedded = Embedded::in_memory();
        embedded.create_group("orders", "billing", Start::Beginning).await.unwrap();
        let store = embedded.store().clone();
        let sampler = Sampler::start(Arc::new(embedded), fast());
        let mut viewer = sampler.subscribe();
        while viewer.changed().await.number == 0 {}
        store.close().unwrap();
        let trouble = loop {
            if let Some(trouble) = viewer.changed().await.trouble {
                break trouble;
            }
        };
        assert!(!trouble.error.is_empty(), "{trouble:?}");
        assert!(
            (1..=sampler.state().at_ms).contains(&trouble.since_ms),
            "it counts from an answer: {trouble:?}"
        );
        assert_eq!(sampler.look().totals.groups, 1);
        assert_eq!(viewer.changed().await.trouble.map(|trouble| trouble.since_ms), Some(trouble.since_ms));
    }
}
