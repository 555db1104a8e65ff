//! The pattern of the streams that a worker reads, and what its streams have in common.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::{Operation, Outage, StreamTrouble, Subscription};
use crate::backend::Error;
use crate::metrics::WorkerMetrics;

/// The pattern of a worker's streams, and the state of its streams together.
#[derive(Debug)]
pub(crate) struct Pattern {
    pub(crate) glob: String,
    /// The dead-letter stream of all streams, if they share one.
    pub(crate) dead_letters: Option<String>,
    pub(crate) metrics: Arc<WorkerMetrics>,
    /// Whether reading or listing the streams currently fails.
    pub(crate) outage: Outage,
    /// When the backlog of all streams was last measured.
    measured_at: Mutex<Option<Instant>>,
    /// Counts changes of the streams to read.
    version: AtomicU64,
    changed: Notify,
    /// Notified when a stream needs the attention of the task that finds streams.
    attention: Notify,
}

impl Pattern {
    pub(crate) fn new(glob: String, dead_letters: Option<String>, metrics: Arc<WorkerMetrics>) -> Pattern {
        Pattern {
            glob,
            dead_letters,
            metrics,
            outage: Outage::default(),
            measured_at: Mutex::default(),
            version: AtomicU64::new(0),
            changed: Notify::new(),
            attention: Notify::new(),
        }
    }

    /// Returns a number that changes when the streams to read have changed.
    pub(crate) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// Waits until the streams to read have changed.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Waits until a stream needs attention.
    pub(crate) async fn attention(&self) {
        self.attention.notified().await;
    }

    /// Tells the reader that the streams to read have changed.
    pub(crate) fn change(&self) {
        self.version.fetch_add(1, Ordering::AcqRel);
        self.changed.notify_one();
    }

    /// Stops reading a stream until the task that finds streams has dealt with the trouble.
    pub(crate) fn report(&self, subscription: &Subscription, trouble: StreamTrouble) {
        if subscription.set_trouble(trouble) {
            self.change();
            self.attention.notify_one();
        }
    }

    /// Returns false if a measurement of the backlog began less than `interval` ago.
    pub(crate) fn begin_measurement(&self, interval: Duration) -> bool {
        let mut measured_at = self.measured_at.lock();
        let is_due = measured_at.is_none_or(|at| at.elapsed() >= interval);
        if is_due {
            *measured_at = Some(Instant::now());
        }
        is_due
    }

    /// Records a failed call that concerns all streams.
    pub(crate) fn record_failure(&self, store: &str, operation: Operation, error: &Error) {
        if self.outage.record_failure(store, &self.glob, operation, error) {
            self.metrics.backend_up.set(0.0);
        }
    }

    /// Records a successful call that concerns all streams.
    pub(crate) fn record_success(&self, store: &str, operation: Operation) {
        if self.outage.record_success(store, &self.glob, operation) {
            self.metrics.backend_up.set(1.0);
            self.metrics.backend_reconnects.increment();
        }
    }
}
