//! The worker: reads a group's messages, runs a handler for each, and settles them in the store.

mod builder;
mod core;
mod lifecycle;
mod message;
mod own;
mod queue;
mod read;
mod run;
mod settle;
mod stream;
mod watch;

use std::fmt;
use std::future::Future;
use std::sync::Arc;

pub use self::builder::{BuildError, WorkerBuilder};
pub use self::core::{OnFailure, Report};
pub use self::queue::Process;
pub use self::queue::breaker::{BreakerPolicy, OpenBreaker};
pub use self::stream::Refusal;

use self::core::Core;
use self::stream::Outage;
use self::watch::{heartbeat, status};
use crate::autoscale::Decision;
use crate::backend::{Backend, Error};
use crate::handler::HandlerService;
use crate::metrics::Registry;

/// Reads the messages of a consumer group and runs handlers for them.
///
/// ## Guarantees
///
/// * **At least once.** The worker acknowledges a message only after its handler has finished, and only while the
///   message still belongs to this worker. A message can be delivered again after a crash, a lost lease, a retry, a
///   drain or an outage. The [`Report`] and the metrics count each of these.
/// * **No message blocks the others**, unless they are ordered. A message that backs off waits in the store, not in a
///   worker. Its attempts and the time of its next attempt survive restarts and crashes. A message that crashes its
///   worker again and again runs alone at last, and is then dead-lettered. The messages around it are not.
/// * **No order, or order by key.** Handlers start as slots become free, and retries run later than other messages.
///   With [`order_by`](WorkerBuilder::order_by), a message begins only when every earlier one of its key has ended.
/// * **It recovers by itself.** After a lost connection or during a failover the worker retries until the store is
///   reachable, and it recreates a deleted group. It logs one warning when an outage begins and one line when it ends.
/// * **An outage of a service that handlers need dead-letters no message.** If every handler call fails, the circuit
///   breaker opens: the worker stops reading, and probes with one message at a time until a handler succeeds.
///
/// ## How to use it
///
/// 1. Build it with [`Worker::builder`].
/// 2. Take a [`handle`](Worker::handle) if you want to control it while it runs.
/// 3. Call [`run_until`](Worker::run_until) with a future that completes when the worker should stop.
///
/// If a program runs several workers, give all of them the same [`Process`] ([`WorkerBuilder::process`]). Otherwise a
/// message that crashes the process can take the messages of the other workers with it to the dead letters.
///
/// Always stop a worker with that future or with [`WorkerHandle::drain`]. If a worker is dropped instead, other
/// workers get its messages only after their leases expire.
pub struct Worker {
    core: Arc<Core>,
    handler: HandlerService,
    listen: Option<String>,
}

impl Worker {
    /// Returns a builder for a worker that uses this store.
    pub fn builder(backend: Arc<dyn Backend>) -> WorkerBuilder {
        WorkerBuilder::new(backend)
    }

    /// Returns a handle that controls the worker.
    pub fn handle(&self) -> WorkerHandle {
        WorkerHandle { core: Arc::clone(&self.core) }
    }

    /// Returns the registry that contains the worker's metrics.
    pub fn metrics(&self) -> &Registry {
        self.core.metrics[0].registry()
    }

    /// Returns the worker's consumer name.
    pub fn consumer(&self) -> &str {
        &self.core.settings.consumer
    }

    /// Runs until [`WorkerHandle::drain`] is called.
    pub async fn run(self) -> Result<Report, Error> {
        self.run_until(std::future::pending()).await
    }

    /// Runs until the future completes, then drains and returns a report.
    ///
    /// Returns an error at the start if the worker cannot listen on its address or the store refuses to create the
    /// group. Later it returns an error only if this process closed the store or a task of the worker panicked.
    pub async fn run_until(self, shutdown: impl Future<Output = ()>) -> Result<Report, Error> {
        lifecycle::run(self.core, self.handler, self.listen.as_deref(), shutdown).await
    }
}

impl fmt::Debug for Worker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Worker").field("subscriptions", &self.core.subscriptions).finish_non_exhaustive()
    }
}

/// Controls a [`Worker`], before and while it runs. Cheap to clone.
#[derive(Clone)]
pub struct WorkerHandle {
    core: Arc<Core>,
}

impl WorkerHandle {
    /// Sets the number of slots, at least one. Each slot runs one handler call at a time.
    ///
    /// Surplus slots finish their current message and then end.
    pub fn scale(&self, slots: usize) {
        let slots = slots.max(1);
        let before = self.core.slots.send_replace(slots);
        if before != slots {
            self.core.metrics.iter().for_each(|metrics| metrics.record_scaling(before, slots, "manual"));
        }
    }

    /// Returns the target number of slots: how many handler calls can run at the same time.
    pub fn slots(&self) -> usize {
        *self.core.slots.borrow()
    }

    /// Returns how many slots are running a handler.
    pub fn busy(&self) -> usize {
        self.core.busy_slots()
    }

    /// Stops reading and starting handlers. Running handlers continue; prefetched messages are released.
    pub fn pause(&self) {
        let prefetched = self.core.queue.pause();
        self.core.release_unstarted(prefetched);
    }

    /// Resumes a paused worker.
    pub fn resume(&self) {
        self.core.queue.resume();
    }

    /// Stops the worker, as the future of [`Worker::run_until`] does. Running handlers can finish within the drain
    /// deadline.
    pub fn drain(&self) {
        self.core.release_unstarted(self.core.queue.close());
        self.core.draining.cancel();
    }

    /// Returns the circuit breaker if it is open: all handler calls fail, and the worker reads only to probe.
    pub fn open_breaker(&self) -> Option<OpenBreaker> {
        self.core.breaker.open()
    }

    /// Returns the oldest refusal: the store answers, and refuses calls that the worker needs, for example because it
    /// is full. The worker repeats these calls until they succeed.
    pub fn refusal(&self) -> Option<Refusal> {
        let subscriptions = self.core.subscriptions.all();
        let outages = subscriptions.iter().flat_map(|each| [&each.outage, &each.dead_letter_outage]);
        let outages = outages.chain(self.core.pattern.iter().map(|pattern| &pattern.outage));
        outages.filter_map(Outage::refusal).max_by_key(Refusal::lasts_for)
    }

    /// Removes the worker's [heartbeats](crate::heartbeat) from the store. For a program that ends without draining:
    /// the next worker with this consumer name then starts without waiting.
    pub async fn remove_heartbeats(&self) {
        heartbeat::remove(&self.core).await;
    }

    /// Returns the names of the streams that the worker reads now. With a pattern, they change while the worker runs.
    pub fn streams(&self) -> Vec<String> {
        self.core.announced().iter().map(|subscription| subscription.stream.to_string()).collect()
    }

    /// Returns what the worker has done so far.
    pub fn stats(&self) -> Report {
        self.core.counters.report()
    }

    /// Updates the metrics that come from the store, and returns all metrics in the Prometheus text format.
    pub async fn metrics_text(&self) -> String {
        status::metrics_text(&self.core).await
    }

    /// Returns the most recent decisions of the autoscaler, oldest first.
    pub fn decisions(&self) -> Vec<Decision> {
        self.core.decisions()
    }
}

impl fmt::Debug for WorkerHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkerHandle").field("slots", &self.slots()).field("stats", &self.stats()).finish()
    }
}
