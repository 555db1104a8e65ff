//! The worker: reads a group's messages, runs a handler for each, and tells the store what became of them.

mod admission;
mod autoscaler;
mod builder;
mod core;
mod fetcher;
mod held;
mod job;
mod lane;
mod lease;
mod outbox;
mod pool;
mod queue;
mod recovery;
mod report;
mod retry;
mod run;
mod settler;
mod status;
mod trouble;
mod verdict;
mod waiting;

use std::fmt;
use std::future::Future;
use std::sync::Arc;

pub use builder::{BuildError, WorkerBuilder};
pub use report::Report;

use self::core::Core;
use crate::autoscale::Decision;
use crate::backend::{Backend, Error};
use crate::handler::Work;
use crate::metrics::Registry;

/// A pool of handlers for the messages of a group.
///
/// ## What it promises
///
/// * **At least once.** A message is acknowledged only after its handler has finished, and only while it is this worker's.
///   It may be delivered again after a crash, a lost lease, a retry, a drain or an outage; the
///   [`Report`] and the metrics count each of these.
/// * **No message blocks the others.** One that waits to be tried again is put aside; one that kills workers is counted before
///   a handler sees it and ends in the dead letters.
/// * **No order.** Messages are handled as slots are free, and retried ones later than others.
/// * **It comes back.** A lost connection, a failover, a flushed server or a deleted group are waited out or mended, with
///   one warning when it begins and one line when it is over.
///
/// ## How to drive it
///
/// Build it, take a [`handle`](Worker::handle) if you want to steer it, and give [`run_until`](Worker::run_until) a future that says when
/// to end. To end it always use that future or [`WorkerHandle::drain`]: a worker that is dropped leaves its messages to the
/// others only when their leases have run out.
pub struct Worker {
    core: Arc<Core>,
    work: Work,
    listen: Option<String>,
}

impl Worker {
    /// Begins to put a worker together.
    pub fn builder(backend: Arc<dyn Backend>) -> WorkerBuilder {
        WorkerBuilder::new(backend)
    }

    /// To steer the worker from elsewhere.
    pub fn handle(&self) -> WorkerHandle {
        WorkerHandle { core: Arc::clone(&self.core) }
    }

    /// Where it counts.
    pub fn metrics(&self) -> &Registry {
        self.core.lanes[0].metrics.registry()
    }

    /// The name of the worker in its group.
    pub fn consumer(&self) -> &str {
        &self.core.lanes[0].consumer
    }

    /// Works until a handle drains it.
    pub async fn run(self) -> Result<Report, Error> {
        self.run_until(std::future::pending()).await
    }

    /// Works until the future is ready; then drains, and reports.
    ///
    /// Fails at the start if the store refuses the group, and later only if the store was closed by this process.
    pub async fn run_until(self, shutdown: impl Future<Output = ()>) -> Result<Report, Error> {
        run::run(self.core, self.work, self.listen.as_deref(), shutdown).await
    }
}

impl fmt::Debug for Worker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Worker").field("lanes", &self.core.lanes).finish_non_exhaustive()
    }
}

/// Steers a [`Worker`], before and while it runs. Cheap to clone.
#[derive(Clone)]
pub struct WorkerHandle {
    core: Arc<Core>,
}

impl WorkerHandle {
    /// Changes how many messages are handled at the same time; at least one. Slots that are too many finish what they run.
    pub fn scale(&self, slots: usize) {
        let slots = slots.max(1);
        let before = self.core.slots.send_replace(slots);
        if before != slots {
            self.core.lanes.iter().for_each(|lane| lane.metrics.scaled(before, slots, "manual"));
        }
    }

    /// How many messages are handled at the same time.
    pub fn slots(&self) -> usize {
        *self.core.slots.borrow()
    }

    /// How many handlers run now.
    pub fn busy(&self) -> usize {
        self.core.busy_slots()
    }

    /// Begins nothing new. What runs goes on; what was read and not begun is released for others.
    pub fn pause(&self) {
        let waiting = self.core.queue.pause();
        self.core.hand_in_unstarted(waiting);
    }

    /// Goes on after a pause.
    pub fn resume(&self) {
        self.core.queue.resume();
    }

    /// Whether the worker takes messages: it is neither paused nor draining.
    pub fn is_taking(&self) -> bool {
        self.core.queue.is_open() && !self.core.draining.is_cancelled()
    }

    /// Ends the worker as the future of [`Worker::run_until`] does.
    pub fn drain(&self) {
        self.core.hand_in_unstarted(self.core.queue.shut());
        self.core.draining.cancel();
    }

    /// What the worker has done so far.
    pub fn stats(&self) -> Report {
        self.core.tally.report()
    }

    /// What is counted, in the text format of Prometheus, with what a look at the store tells.
    pub async fn metrics_text(&self) -> String {
        status::metrics_text(&self.core).await
    }

    /// The last steps of the autoscaler, the oldest first.
    pub fn decisions(&self) -> Vec<Decision> {
        self.core.decisions()
    }
}

impl fmt::Debug for WorkerHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkerHandle").field("slots", &self.slots()).field("stats", &self.stats()).finish()
    }
}
