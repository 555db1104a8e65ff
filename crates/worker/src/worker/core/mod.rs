//! The state that all rooms of a running worker share: settings, streams, the queue, counters, and how to call the
//! store.
//!
//! It knows no task. Rooms get `&Core`; what only one room needs stays in that room.

mod counters;
mod failure_log;
mod lanes;
mod running;
mod settings;
mod store_calls;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Semaphore, SemaphorePermit, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

pub(crate) use self::counters::Counters;
pub use self::counters::Report;
pub(crate) use self::failure_log::FailureLog;
pub(crate) use self::running::Running;
pub use self::settings::OnFailure;
pub(crate) use self::settings::{PAGE_ROWS, Settings, SpanHook, WINDOW};
use crate::autoscale::Decision;
use crate::backend::{Admin, Backend, Error};
use crate::dedupe::KeysInFlight;
use crate::metrics::WorkerMetrics;
use crate::names::WorkerName;
use crate::worker::message::{FinishedJob, Job, JobResult};
use crate::worker::queue::Queue;
use crate::worker::queue::breaker::SharedBreaker;
use crate::worker::queue::suspects::SuspectRules;
use crate::worker::stream::{OwnedStream, Pattern, Subscription, Subscriptions};

/// What a worker does at intervals for each stream, it does at most once in this time: 50 times per second.
const INTERVAL_PER_STREAM: Duration = Duration::from_millis(20);
/// Minimum time between two searches of a stream for messages that are due, and for each stream of the worker.
const SEARCH_INTERVAL_MIN: Duration = Duration::from_millis(250);
const SEARCH_INTERVAL_PER_STREAM: Duration = Duration::from_millis(1);
/// Maximum number of streams of a pattern that are searched for idle messages at the same time.
const SWEEPS_MAX: usize = 16;
/// Maximum number of autoscaler decisions that are kept.
const DECISIONS_MAX: usize = 256;

/// The state that all tasks of a running worker share.
pub(crate) struct Core {
    pub(crate) backend: Arc<dyn Backend>,
    /// The same store for inspection and administration, if it supports them.
    pub(crate) admin: Option<Arc<dyn Admin>>,
    pub(crate) settings: Settings,
    /// An id that no other worker has or will have.
    pub(crate) instance: String,
    pub(crate) created_at: Instant,
    /// The address of health checks and metrics, once the worker listens there.
    pub(crate) listen: OnceLock<String>,
    /// The metrics of each stream or pattern of streams.
    pub(crate) metrics: Vec<Arc<WorkerMetrics>>,
    /// The pattern of streams to read, in addition to named ones.
    pub(crate) pattern: Option<Pattern>,
    pub(crate) subscriptions: Subscriptions,
    /// The streams whose messages the worker orders. Not set if it orders none.
    owned: OnceLock<Vec<Arc<OwnedStream>>>,
    pub(crate) queue: Arc<Queue>,
    pub(crate) breaker: SharedBreaker,
    pub(crate) suspects: SuspectRules,
    pub(crate) counters: Counters,
    pub(crate) failure_log: FailureLog,
    pub(crate) keys_in_flight: KeysInFlight,
    pub(crate) slots: watch::Sender<usize>,
    /// Cancelled when the worker drains: it reads no messages and starts no handlers.
    pub(crate) draining: CancellationToken,
    /// Cancelled when the worker stops waiting for the store: calls that fail are not repeated.
    pub(crate) giving_up: CancellationToken,
    /// Limits how many streams of a pattern are searched for idle messages at the same time.
    sweeps: Semaphore,
    /// Whether reads also claim idle messages. Set before the first read.
    pub(crate) read_claims: AtomicBool,
    /// Number of slots that run a handler.
    busy: AtomicUsize,
    /// The handler calls that run.
    pub(crate) running: Running,
    decisions: Mutex<VecDeque<Decision>>,
    pub(crate) failure: Mutex<Option<Error>>,
}

impl Core {
    /// How often the worker searches for idle messages. If reads claim idle messages, the search is needed only for
    /// entries whose payload is gone, because no read returns these.
    pub(crate) fn claim_interval(&self) -> Duration {
        let lease = self.settings.lease;
        if self.read_claims() && !self.is_ordered() {
            return self.stretched(lease);
        }
        self.stretched((lease / 4).clamp(Duration::from_millis(50), Duration::from_secs(5)))
    }

    /// Returns how long a delivered message belongs to its worker: the lease of the group's policy, or else the
    /// worker's.
    pub(crate) fn lease_of(&self, subscription: &Subscription) -> Duration {
        subscription.policy.lease().unwrap_or(self.settings.lease)
    }

    /// Minimum time between two searches of a stream for messages that are due.
    pub(crate) fn search_interval_min(&self) -> Duration {
        let streams = u32::try_from(self.subscriptions.len()).unwrap_or(u32::MAX);
        SEARCH_INTERVAL_MIN.max(SEARCH_INTERVAL_PER_STREAM.saturating_mul(streams))
    }

    /// Returns how often to repeat something for each stream that should happen at this interval. A worker with many
    /// streams does it less often, so that all of them together cost the store little.
    pub(crate) fn stretched(&self, interval: Duration) -> Duration {
        let streams = u32::try_from(self.subscriptions.len()).unwrap_or(u32::MAX);
        interval.max(INTERVAL_PER_STREAM.saturating_mul(streams))
    }

    /// Whether the worker orders messages: it works only on streams that it owns.
    pub(crate) fn is_ordered(&self) -> bool {
        self.settings.is_exclusive || self.owned.get().is_some()
    }

    /// Returns the streams whose messages the worker orders.
    pub(crate) fn owned_streams(&self) -> &[Arc<OwnedStream>] {
        self.owned.get().map_or(&[], Vec::as_slice)
    }

    /// Makes these the streams whose messages the worker orders. Only before it begins to work.
    pub(crate) fn become_ordered(&self, owned: Vec<Arc<OwnedStream>>) {
        self.queue.order(self.settings.window);
        // A worker prepares again if the store did not answer: the streams are the same then.
        let _ = self.owned.set(owned);
    }

    /// Returns the subscriptions for which the worker sends heartbeats: one for each stream that it was told to read,
    /// or that it has found.
    pub(crate) fn announced(&self) -> Arc<[Arc<Subscription>]> {
        match self.owned.get() {
            Some(owned) => owned.iter().map(|stream| Arc::clone(&stream.root)).collect(),
            None => self.subscriptions.all(),
        }
    }

    /// How often the worker sends a heartbeat for each stream. `None` for never.
    pub(crate) fn heartbeat_interval(&self) -> Option<Duration> {
        self.settings.heartbeat.map(|interval| self.stretched(interval))
    }

    /// Waits until few enough other streams are searched for idle messages. Streams with a name are searched at once.
    pub(crate) async fn sweep_turn(&self, subscription: &Subscription) -> Option<SemaphorePermit<'_>> {
        if !subscription.is_discovered {
            return None;
        }
        self.sweeps.acquire().await.ok()
    }

    /// Whether reads also claim idle messages.
    pub(crate) fn read_claims(&self) -> bool {
        self.read_claims.load(Ordering::Relaxed)
    }

    pub(crate) fn new(
        backend: Arc<dyn Backend>,
        settings: Settings,
        metrics: Vec<Arc<WorkerMetrics>>,
        pattern: Option<Pattern>,
        subscriptions: Subscriptions,
        queue: Arc<Queue>,
        slots: usize,
    ) -> Core {
        Core {
            admin: Arc::clone(&backend).admin(),
            backend,
            breaker: SharedBreaker::new(settings.breaker.clone()),
            suspects: SuspectRules::new(settings.max_deliveries),
            settings,
            instance: WorkerName::unique().to_string(),
            created_at: Instant::now(),
            listen: OnceLock::new(),
            metrics,
            pattern,
            subscriptions,
            owned: OnceLock::new(),
            queue,
            counters: Counters::default(),
            failure_log: FailureLog::default(),
            keys_in_flight: KeysInFlight::default(),
            slots: watch::Sender::new(slots),
            draining: CancellationToken::new(),
            giving_up: CancellationToken::new(),
            sweeps: Semaphore::new(SWEEPS_MAX),
            read_claims: AtomicBool::new(false),
            busy: AtomicUsize::new(0),
            running: Running::default(),
            decisions: Mutex::default(),
            failure: Mutex::default(),
        }
    }

    /// Counts a slot as busy until the returned guard is dropped.
    pub(crate) fn occupy_slot(&self) -> BusySlot<'_> {
        self.busy.fetch_add(1, Ordering::Relaxed);
        BusySlot(&self.busy)
    }

    pub(crate) fn busy_slots(&self) -> usize {
        self.busy.load(Ordering::Relaxed)
    }

    /// Sends finished jobs to the settlers of their streams.
    pub(crate) fn send_to_settlers(&self, finished: &mut Vec<FinishedJob>) {
        while let Some(first) = finished.first() {
            let id = first.job.origin.subscription;
            let is_same = |finished: &FinishedJob| finished.job.origin.subscription == id;
            let Some(subscription) = self.subscriptions.find(id) else {
                // The worker has left the stream, because it was deleted.
                let left: Vec<FinishedJob> = finished.extract_if(.., |finished| is_same(finished)).collect();
                self.keys_in_flight.remove(left.iter().filter_map(|finished| finished.job.key.as_ref()));
                self.counters.left_unsettled(left.len() as u64);
                continue;
            };
            if finished.iter().all(is_same) {
                subscription.outbox.put(finished.drain(..));
                return;
            }
            subscription.outbox.put(finished.extract_if(.., |finished| is_same(finished)));
        }
    }

    /// Sends messages that no handler has started to the settlers, which release them.
    pub(crate) fn release_unstarted(&self, jobs: impl IntoIterator<Item = Job>) {
        let mut finished =
            jobs.into_iter().map(|job| FinishedJob::without_handler(job, JobResult::NotStarted)).collect();
        self.send_to_settlers(&mut finished);
    }

    /// Sends all delayed jobs to the settler, which releases them.
    pub(crate) fn release_delayed(&self, subscription: &Subscription) {
        let delayed_jobs = subscription.delayed.lock().take_all();
        let mut finished = delayed_jobs
            .into_iter()
            .map(|delayed| match delayed.job() {
                job if job.backs_off() => FinishedJob::return_to_store(job),
                job => FinishedJob::without_handler(job, JobResult::NotStarted),
            })
            .collect();
        self.send_to_settlers(&mut finished);
    }

    pub(crate) fn fail(&self, error: Error) {
        self.failure.lock().get_or_insert(error);
        // Slots that put a message back would take it again and again.
        self.release_unstarted(self.queue.close());
        self.draining.cancel();
        self.giving_up.cancel();
    }

    pub(crate) fn record_decision(&self, decision: Decision) {
        let mut decisions = self.decisions.lock();
        if decisions.len() == DECISIONS_MAX {
            decisions.pop_front();
        }
        decisions.push_back(decision);
    }

    pub(crate) fn decisions(&self) -> Vec<Decision> {
        self.decisions.lock().iter().cloned().collect()
    }
}

pub(crate) struct BusySlot<'a>(&'a AtomicUsize);

impl Drop for BusySlot<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
