//! A message on its way through the worker: in flight, finished, or on its way to the dead letters.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::in_flight::{DeliveryTag, InFlightRef};
use super::settlement::{Attempt, JobResult};
use crate::backend::{Fields, StreamId};
use crate::message::Message;
use crate::outcome::Failure;
use crate::retry_record::RetryRecord;
use crate::trace::{SpanId, TraceContext};

/// Where a message comes from.
#[derive(Debug)]
pub(crate) struct Origin {
    /// Identifies the subscription. A worker that leaves a stream and joins it again has another one.
    pub(crate) subscription: SubscriptionId,
    pub(crate) stream: Arc<str>,
    pub(crate) group: Arc<str>,
    pub(crate) consumer: Arc<str>,
}

/// Identifies a subscription in this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct SubscriptionId(u64);

impl SubscriptionId {
    /// Returns an id that no other subscription has.
    pub(crate) fn new() -> SubscriptionId {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        SubscriptionId(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// A message in flight, with what the runtime needs to handle and settle it.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) origin: Arc<Origin>,
    pub(crate) tag: DeliveryTag,
    pub(crate) id: StreamId,
    /// The delivery count in the store, including this delivery.
    pub(crate) delivery: u64,
    /// What the group remembers about the message. `None` if it never failed.
    pub(crate) record: Option<Box<RetryRecord>>,
    pub(crate) fields: Arc<Fields>,
    pub(crate) cancelled: CancellationToken,
    /// Deduplication key under which the store remembers the message.
    pub(crate) key: Option<Arc<str>>,
    /// Whether it runs although the circuit breaker is open.
    pub(crate) is_probe: bool,
    /// Its level as a suspect (see `suspects.rs`). `None` if it is not suspected to crash workers.
    pub(crate) suspect_level: Option<u64>,
}

impl Job {
    /// Returns the message as handlers receive it.
    pub(crate) fn message(&self) -> Message {
        Message {
            stream: Arc::clone(&self.origin.stream),
            group: Arc::clone(&self.origin.group),
            consumer: Arc::clone(&self.origin.consumer),
            id: self.id,
            fields: Arc::clone(&self.fields),
            attempt: self.attempt().number(),
            span_id: TraceContext::of(&self.fields).map(|_| SpanId::random()),
            cancelled: self.cancelled.clone(),
        }
    }

    pub(crate) fn id_and_tag(&self) -> (StreamId, DeliveryTag) {
        (self.id, self.tag)
    }

    /// Returns what is known about this delivery.
    pub(crate) fn attempt(&self) -> Attempt<'_> {
        Attempt { delivery: self.delivery, record: self.record.as_deref() }
    }

    /// Returns the argument for a call that extends leases.
    pub(crate) fn in_flight_ref(&self) -> InFlightRef {
        InFlightRef { id: self.id, tag: self.tag, delivery: self.delivery }
    }
}

/// A job with its result, to be settled.
#[derive(Debug)]
pub(crate) struct FinishedJob {
    pub(crate) job: Job,
    pub(crate) result: JobResult,
    /// How long its handler ran.
    pub(crate) run_time: Duration,
}

impl FinishedJob {
    /// Returns the result of a job for which no handler ran.
    pub(crate) fn without_handler(job: Job, result: JobResult) -> FinishedJob {
        FinishedJob { job, result, run_time: Duration::ZERO }
    }
}

/// A message that is to be moved to the dead letters.
#[derive(Debug)]
pub(crate) struct DeadLettering {
    pub(crate) job: Job,
    pub(crate) failure: Failure,
    /// How many deliveries may have reached a handler.
    pub(crate) deliveries: u64,
}
