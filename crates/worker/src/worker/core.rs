//! The state that all tasks of a running worker share.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use millstream_protocol::ids::parse_id;
use parking_lot::Mutex;
use tokio::sync::{Semaphore, SemaphorePermit, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use super::breaker::{BreakerPolicy, SharedBreaker};
use super::failure_log::FailureLog;
use super::in_flight::Releasing;
use super::job::{FinishedJob, Job};
use super::order_policy::OnFailure;
use super::outage::{Operation, StoreBackoff};
use super::owned_stream::OwnedStream;
use super::pattern::Pattern;
use super::queue::Queue;
use super::report::Counters;
use super::running::Running;
use super::settlement::JobResult;
use super::span::SpanHook;
use super::subscription::{Subscription, Trouble};
use super::subscriptions::Subscriptions;
use super::suspects::Suspects;
use crate::autoscale::{Autoscale, Decision};
use crate::backend::{Admin, Backend, BackendFuture, Error, ErrorKind, Start, StreamId};
use crate::backoff::Backoff;
use crate::dedupe::{Dedupe, KeysInFlight};
use crate::heartbeat;
use crate::metrics::WorkerMetrics;
use crate::names::WorkerName;

/// What a worker does at intervals for each stream, it does at most once in this time: 50 times per second.
const INTERVAL_PER_STREAM: Duration = Duration::from_millis(20);
/// Minimum time between two searches of a stream for messages that are due, and for each stream of the worker.
const SEARCH_INTERVAL_MIN: Duration = Duration::from_millis(250);
const SEARCH_INTERVAL_PER_STREAM: Duration = Duration::from_millis(1);
/// Maximum number of streams of a pattern that are searched for idle messages at the same time.
const SWEEPS_MAX: usize = 16;
/// Maximum number of autoscaler decisions that are kept.
const DECISIONS_MAX: usize = 256;

/// Default number of messages of a stream in hand, if the worker orders messages.
pub(crate) const WINDOW: usize = 4096;

/// Settings of a worker, from its builder.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) group: Arc<str>,
    /// The worker's name in its group.
    pub(crate) consumer: Arc<str>,
    /// Where a new group starts.
    pub(crate) start: Start,
    /// Whether the next process has the same consumer name.
    pub(crate) survives_restart: bool,
    pub(crate) backoff: Backoff,
    /// Maximum number of attempts that the handler answers.
    pub(crate) max_attempts: u64,
    /// Maximum number of deliveries that end without an answer.
    pub(crate) max_deliveries: u64,
    pub(crate) lease: Duration,
    pub(crate) dedupe: Option<Dedupe>,
    pub(crate) autoscale: Option<Autoscale>,
    /// The dead-letter stream that the builder sets.
    pub(crate) dead_letters: Option<Arc<str>>,
    /// How long running handlers can take to finish when the worker drains.
    pub(crate) drain: Duration,
    /// How long a consumer must be idle before it is removed.
    pub(crate) reap_after: Option<Duration>,
    /// Time between two heartbeats. `None` sends none.
    pub(crate) heartbeat: Option<Duration>,
    /// How long a handler call can run before tools report it. `None`: as long as the worker's other calls suggest.
    pub(crate) slow_after: Option<Duration>,
    /// How long to wait for another live worker with the same consumer name.
    pub(crate) consumer_wait: Duration,
    /// The name of the handler in metrics and heartbeats.
    pub(crate) handler_name: String,
    /// Whether the worker deletes messages that every group has acknowledged.
    pub(crate) delete_done: bool,
    /// Whether one worker owns each stream at a time, also if the streams have no partitions.
    pub(crate) is_exclusive: bool,
    /// What a message that fails does to its key, if the worker orders messages.
    pub(crate) on_failure: OnFailure,
    /// Maximum number of messages of each stream in hand, if the worker orders messages.
    pub(crate) window: usize,
    /// When the circuit breaker opens. `None` turns it off.
    pub(crate) breaker: Option<BreakerPolicy>,
    /// Connects the spans of handler calls with the traces of their messages.
    pub(crate) span_hook: Option<SpanHook>,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            group: "".into(),
            consumer: "".into(),
            start: Start::Beginning,
            survives_restart: false,
            backoff: Backoff::default(),
            max_attempts: 25,
            max_deliveries: 5,
            lease: Duration::from_secs(30),
            dedupe: None,
            autoscale: None,
            dead_letters: None,
            drain: Duration::from_secs(25),
            reap_after: Some(Duration::from_secs(60 * 60)),
            heartbeat: Some(heartbeat::INTERVAL),
            slow_after: None,
            consumer_wait: Duration::from_secs(60),
            handler_name: String::new(),
            delete_done: false,
            is_exclusive: false,
            on_failure: OnFailure::default(),
            window: WINDOW,
            breaker: Some(BreakerPolicy::default()),
            span_hook: None,
        }
    }
}

impl Settings {
    /// How long a read blocks in the store. Short, because a read is never cancelled and draining waits for it.
    pub(crate) fn block_time(&self) -> Duration {
        let max = Duration::from_secs(1).min(self.lease / 3).min(self.drain / 4);
        max.max(Duration::from_millis(20))
    }
}

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
    pub(crate) suspects: Suspects,
    pub(crate) counters: Counters,
    pub(crate) failure_log: FailureLog,
    pub(crate) keys_in_flight: KeysInFlight,
    /// Target number of slots.
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
    /// The error that ends the worker.
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

    /// Returns how long a delivered message belongs to its worker: the lease of the group's policy, or else the worker's.
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

    /// Returns the subscriptions for which the worker sends heartbeats: one for each stream that it was told to read, or that it
    /// has found.
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
            suspects: Suspects::new(settings.max_deliveries),
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

    /// Releases messages that were removed from `in_flight`. Returns how many, or `None` if the call did not succeed
    /// (see [`call_until_ok`](Core::call_until_ok)).
    pub(crate) async fn release(&self, subscription: &Subscription, releasing: Releasing<'_>) -> Option<u64> {
        let call = || {
            let rows = releasing.not_redelivered();
            Box::pin(async move { self.backend.release(subscription.as_consumer(), &rows).await })
                as BackendFuture<'_, u64>
        };
        self.call_until_ok(subscription, Operation::Settling, call).await
    }

    /// Calls the store until the call succeeds. Returns `None` if repeating the call is no use: the group was
    /// deleted (and is created again), the store is closed, or the worker gives up.
    pub(crate) async fn call_until_ok<'a, T>(
        &self,
        subscription: &Subscription,
        operation: Operation,
        call: impl Fn() -> BackendFuture<'a, T>,
    ) -> Option<T> {
        self.call_until_ok_or_final(subscription, operation, |_| false, call).await?.ok()
    }

    /// Like [`call_until_ok`](Core::call_until_ok), but returns an error for which `is_final` is true.
    pub(crate) async fn call_until_ok_or_final<'a, T>(
        &self,
        subscription: &Subscription,
        operation: Operation,
        is_final: impl Fn(&Error) -> bool,
        call: impl Fn() -> BackendFuture<'a, T>,
    ) -> Option<Result<T, Error>> {
        let mut backoff = StoreBackoff::new();
        loop {
            match call().await {
                Ok(answer) => {
                    self.record_success(subscription, operation);
                    return Some(Ok(answer));
                }
                Err(error) if is_final(&error) => return Some(Err(error)),
                Err(error) => self.handle_error(subscription, operation, &error, &mut backoff).await?,
            }
        }
    }

    /// Handles a failed call. Waits and returns `Some` if the caller should call again, otherwise `None`.
    pub(crate) async fn handle_error(
        &self,
        subscription: &Subscription,
        operation: Operation,
        error: &Error,
        backoff: &mut StoreBackoff,
    ) -> Option<()> {
        if operation == Operation::Settling {
            subscription.metrics.ack_errors.increment();
        }
        match error.kind() {
            ErrorKind::NoGroup => {
                match self.pattern.as_ref().filter(|_| subscription.is_discovered) {
                    Some(pattern) => pattern.report(subscription, Trouble::NoGroup),
                    None => self.recreate_group(subscription, operation, backoff).await,
                }
                None
            }
            ErrorKind::Closed => {
                self.fail(Error::new(ErrorKind::Closed, error.to_string()));
                None
            }
            _ => {
                if subscription.outage.record_failure(
                    &self.backend.location(),
                    &subscription.stream,
                    operation,
                    error,
                ) {
                    subscription.metrics.backend_up.set(0.0);
                }
                self.sleep_unless_giving_up(backoff.next_delay()).await
            }
        }
    }

    /// Records a successful call, which can end an outage.
    pub(crate) fn record_success(&self, subscription: &Subscription, operation: Operation) {
        if subscription.outage.record_success(&self.backend.location(), &subscription.stream, operation) {
            subscription.metrics.backend_up.set(1.0);
            subscription.metrics.backend_reconnects.increment();
        }
    }

    /// Sleeps. Returns `None` early if the worker gives up.
    async fn sleep_unless_giving_up(&self, time: Duration) -> Option<()> {
        tokio::select! {
            () = tokio::time::sleep(time) => Some(()),
            () = self.giving_up.cancelled() => None,
        }
    }

    /// Creates a deleted group again.
    async fn recreate_group(
        &self,
        subscription: &Subscription,
        operation: Operation,
        backoff: &mut StoreBackoff,
    ) {
        let _one_at_a_time = subscription.group_recreation.lock().await;
        // If this fails, or another task has created the group, the caller's next call will show it.
        let created = async {
            let start = self.start_of_recreated_group(subscription).await?;
            let is_new = self.backend.create_group(&subscription.stream, &subscription.group, start).await?;
            Ok(is_new.then_some(start))
        };
        let created = created.await;
        // Only reads are sure to be repeated, and so to end the outage.
        if let (Err(error), Operation::Reading) = (&created, operation) {
            let location = self.backend.location();
            subscription.outage.record_failure(&location, &subscription.stream, operation, error);
        }
        if let Ok(Some(start)) = created {
            self.counters.group_recreated();
            let (stream, group, position) = (&*subscription.stream, &*subscription.group, start);
            let start = match start {
                Start::Beginning => "the beginning".to_owned(),
                Start::End => "the end".to_owned(),
                Start::After(id) => format!("after {id}"),
            };
            warn!(stream, group, start, "the consumer group did not exist: created it again");
            // If this fails, a message that waited is not delivered again, as one that was in flight in another worker.
            let _ = self.restore_waiting(subscription, position).await;
        }
        // If another client deletes the group again and again, this delay prevents a busy loop.
        self.sleep_unless_giving_up(backoff.next_delay()).await;
    }

    /// Makes the messages that waited for their next attempt pending again, unless a group that starts here reads them.
    async fn restore_waiting(&self, subscription: &Subscription, start: Start) -> Result<(), Error> {
        let (Some(admin), false) = (&self.admin, start == Start::Beginning) else { return Ok(()) };
        for field in admin.hash_fields(&subscription.retry_key).await? {
            let Ok(id) = parse_id(field.as_bytes()) else { continue };
            if !matches!(start, Start::After(last) if id > last) {
                admin.restore(&subscription.stream, &subscription.group, id).await?;
            }
        }
        Ok(())
    }

    /// Returns where a recreated group starts to read.
    ///
    /// * If this worker has read nothing yet: at the configured start.
    /// * If the stream was deleted or replaced: at the beginning of the stream.
    /// * Otherwise: before the first message in flight, so that the group delivers all messages in flight again. If
    ///   none is in flight: after the last message that was read.
    pub(crate) async fn start_of_recreated_group(&self, subscription: &Subscription) -> Result<Start, Error> {
        let last = subscription.last_read();
        if last == StreamId::MIN {
            return Ok(self.settings.start);
        }
        match self.backend.stream(&subscription.stream).await {
            Ok(Some(info)) if info.last_id >= last => {
                let first = subscription.in_flight.smallest_id().and_then(StreamId::prev);
                Ok(Start::After(first.map_or(last, |first| first.min(last))))
            }
            Err(error) if error.is_transient() => Err(error),
            _ => Ok(Start::Beginning),
        }
    }

    /// Ends the worker with an error.
    pub(crate) fn fail(&self, error: Error) {
        self.failure.lock().get_or_insert(error);
        self.draining.cancel();
        self.giving_up.cancel();
    }

    /// Records a decision of the autoscaler.
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

/// Guard that counts a slot as busy.
pub(crate) struct BusySlot<'a>(&'a AtomicUsize);

impl Drop for BusySlot<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
