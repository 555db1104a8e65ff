//! A message on its way through the worker: in hand, at its end, or bound for the dead letters.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::held::{Kept, Ticket};
use super::verdict::End;
use crate::backend::{Fields, StreamId};
use crate::outcome::Failure;

/// A message in hand.
#[derive(Debug)]
pub(crate) struct Job {
    /// Which of the worker's streams it is from.
    pub(crate) lane: usize,
    pub(crate) ticket: Ticket,
    pub(crate) id: StreamId,
    pub(crate) attempt: u64,
    pub(crate) fields: Arc<Fields>,
    pub(crate) cancelled: CancellationToken,
    /// The name under which it will be remembered as processed.
    pub(crate) key: Option<Arc<str>>,
}

impl Job {
    pub(crate) fn name(&self) -> (StreamId, Ticket) {
        (self.id, self.ticket)
    }

    /// The job as leases know it.
    pub(crate) fn kept(&self) -> Kept {
        Kept { id: self.id, ticket: self.ticket, attempt: self.attempt }
    }
}

/// A message that came to its end in this worker's hands.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) job: Job,
    pub(crate) end: End,
    /// How long its handler ran.
    pub(crate) took: Duration,
}

impl Ended {
    /// No handler ran.
    pub(crate) fn at_once(job: Job, end: End) -> Ended {
        Ended { job, end, took: Duration::ZERO }
    }
}

/// A message on its way to the dead letters.
#[derive(Debug)]
pub(crate) struct DeadLettering {
    pub(crate) job: Job,
    pub(crate) failure: Failure,
    /// How often handlers may have seen it.
    pub(crate) deliveries: u64,
}
