//! A message on its way through the worker: in flight, finished, or on its way to the dead letters.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{DeliveryHistory, DeliveryTag, InFlightRef, JobResult, LaneId, Ownership, SubscriptionId};
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
    /// The stream that the worker was told to read: the same, or the one of which this stream is a partition.
    pub(crate) logical: Arc<str>,
    pub(crate) group: Arc<str>,
    pub(crate) consumer: Arc<str>,
    /// The field that orders messages. `None`: none does, or all messages of the stream are one lane.
    pub(crate) key_field: Option<Arc<str>>,
    /// The ownership in which the worker owns the stream. `None`: nobody owns it.
    pub(crate) ownership: Option<Ownership>,
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
    pub(crate) place: Place,
    /// What happens with it when it comes out of its lane.
    pub(crate) at_head: AtHead,
    /// Whether it runs although the circuit breaker is open.
    pub(crate) is_probe: bool,
    /// Its level as a suspect (see `suspects.rs`). `None` if it is not suspected to crash workers.
    pub(crate) suspect_level: Option<u64>,
}

/// The place of a message in the lane of its key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Place {
    /// It is in no lane: the worker has none, or the message has ended.
    #[default]
    Free,
    /// It is new, or waits until earlier messages of the lane have ended.
    Behind(LaneId),
    /// It is out of the lane, which goes on when the message has ended.
    Out(LaneId),
}

/// What happens with a message when it comes out of its lane.
#[derive(Clone, Debug, Default)]
pub(crate) enum AtHead {
    #[default]
    Run,
    /// It backs off until this moment: its last attempt failed in another process.
    WaitUntil(Instant),
    /// It is checked again for duplicates: a message with the same deduplication key was in flight.
    CheckDuplicate,
    /// It is settled without a handler.
    Settle(JobResult),
}

impl Job {
    /// Takes the message out of its lane, because it has ended. Returns the lane that goes on.
    pub(crate) fn leave_lane(&mut self) -> Option<LaneId> {
        match std::mem::take(&mut self.place) {
            Place::Out(lane) => Some(lane),
            Place::Free | Place::Behind(_) => None,
        }
    }

    /// Returns the message as handlers receive it.
    pub(crate) fn message(&self) -> Message {
        Message {
            stream: Arc::clone(&self.origin.stream),
            logical_stream: Arc::clone(&self.origin.logical),
            group: Arc::clone(&self.origin.group),
            consumer: Arc::clone(&self.origin.consumer),
            id: self.id,
            fields: Arc::clone(&self.fields),
            attempt: self.attempt().number(),
            span_id: TraceContext::of(&self.fields).map(|_| SpanId::random()),
            key_field: self.origin.key_field.clone(),
            partition: self.origin.ownership.as_ref().and_then(|ownership| ownership.partition),
            fence: self.origin.ownership.as_ref().map(|ownership| ownership.fence),
            cancelled: self.cancelled.clone(),
        }
    }

    /// Whether a handler may begin: the message belongs to the worker for certain.
    pub(crate) fn may_begin(&self) -> bool {
        let is_owned = self.origin.ownership.as_ref().is_none_or(Ownership::may_begin);
        is_owned && !self.cancelled.is_cancelled()
    }

    pub(crate) fn backs_off(&self) -> bool {
        matches!(self.at_head, AtHead::WaitUntil(_))
    }

    pub(crate) fn id_and_tag(&self) -> (StreamId, DeliveryTag) {
        (self.id, self.tag)
    }

    /// Returns what is known about this delivery.
    pub(crate) fn attempt(&self) -> DeliveryHistory<'_> {
        DeliveryHistory { delivery: self.delivery, record: self.record.as_deref() }
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

    /// Returns the result of a message that was claimed too early, or that the worker no longer waits for: it backs off
    /// in the store.
    pub(crate) fn return_to_store(job: Job) -> FinishedJob {
        let left = match job.at_head {
            AtHead::WaitUntil(due) => due.saturating_duration_since(Instant::now()),
            _ => Duration::ZERO,
        };
        // A message that is out of its lane leaves it when it is released.
        let place = if let Place::Out(_) = job.place { job.place } else { Place::Free };
        FinishedJob::without_handler(Job { place, ..job }, JobResult::BackingOff(left))
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
