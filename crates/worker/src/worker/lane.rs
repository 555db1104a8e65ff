//! One stream that a worker reads, with everything that is in its hands of it.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::held::Held;
use super::job::Job;
use super::outbox::Outbox;
use super::trouble::Trouble;
use super::waiting::{Waiter, Waiting};
use crate::backend::{Consumer, Read, StreamId};
use crate::message::Message;
use crate::metrics::WorkerMetrics;

/// One stream that a worker reads.
#[derive(Debug)]
pub(crate) struct Lane {
    pub(crate) index: usize,
    pub(crate) stream: Arc<str>,
    pub(crate) group: Arc<str>,
    pub(crate) consumer: Arc<str>,
    pub(crate) dead_letters: String,
    /// Everything in hand.
    pub(crate) held: Held,
    /// What is decided and not yet told to the store.
    pub(crate) outbox: Outbox,
    pub(crate) trouble: Trouble,
    /// Dead letters that the store refuses, while all else may work.
    pub(crate) dead_lettering: Trouble,
    pub(crate) metrics: WorkerMetrics,
    /// One task at a time makes a lost group again.
    pub(crate) healing: tokio::sync::Mutex<()>,
    pub(crate) waiting: Mutex<Waiting<Waiter>>,
    /// Something waits that was not there before.
    pub(crate) more_waiting: Notify,
    /// Something was released that could be claimed.
    pub(crate) claimable: Notify,
    /// The last process of this name has left something, which comes before anything new.
    pub(crate) has_history: AtomicBool,
    last_read: Mutex<StreamId>,
}

impl Lane {
    pub(crate) fn new(
        index: usize,
        stream: &str,
        group: &Arc<str>,
        consumer: &Arc<str>,
        dead_letters: String,
        metrics: WorkerMetrics,
    ) -> Lane {
        Lane {
            index,
            stream: stream.into(),
            group: Arc::clone(group),
            consumer: Arc::clone(consumer),
            dead_letters,
            held: Held::default(),
            outbox: Outbox::default(),
            trouble: Trouble::default(),
            dead_lettering: Trouble::default(),
            metrics,
            healing: tokio::sync::Mutex::new(()),
            waiting: Mutex::default(),
            more_waiting: Notify::new(),
            claimable: Notify::new(),
            has_history: AtomicBool::new(false),
            last_read: Mutex::new(StreamId::MIN),
        }
    }

    /// The worker as a consumer of this stream.
    pub(crate) fn as_consumer(&self) -> Consumer<'_> {
        Consumer { stream: &self.stream, group: &self.group, name: &self.consumer }
    }

    /// A read of so many, to be completed by the caller.
    pub(crate) fn read(&self, count: usize) -> Read<'_> {
        Read {
            stream: &self.stream,
            group: &self.group,
            consumer: &self.consumer,
            count,
            block: None,
            claim_idle: None,
        }
    }

    /// The message of a job, for a handler.
    pub(crate) fn message(&self, job: &Job) -> Message {
        Message {
            stream: Arc::clone(&self.stream),
            group: Arc::clone(&self.group),
            consumer: Arc::clone(&self.consumer),
            id: job.id,
            fields: Arc::clone(&job.fields),
            attempt: job.attempt,
            cancelled: job.cancelled.clone(),
        }
    }

    /// Those of the jobs that are still in hand.
    pub(crate) fn still_held(&self, mut jobs: Vec<Job>) -> Vec<Job> {
        let mut held = self.held.are_held(jobs.iter().map(Job::name)).into_iter();
        jobs.retain(|_| held.next() == Some(true));
        jobs
    }

    /// Lets a message wait until it is due.
    pub(crate) fn wait(&self, due: Instant, waiter: Waiter) {
        self.waiting.lock().push(due, waiter);
        self.more_waiting.notify_one();
    }

    /// The greatest id that was read.
    pub(crate) fn last_read(&self) -> StreamId {
        *self.last_read.lock()
    }

    pub(crate) fn has_read(&self, id: StreamId) {
        let mut last = self.last_read.lock();
        *last = id.max(*last);
    }
}
