//! One stream that a worker reads, with the state of its messages.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::{GroupPolicy, NextDue, Outage};
use crate::backend::{Consumer, Read, StreamId};
use crate::metrics::WorkerMetrics;
use crate::names::{dead_letters_of, retry_key, workers_key};
use crate::worker::message::{Delayed, DelayedJob, InFlight, Job, Origin, Outbox, Ownership, SubscriptionId};

/// One stream that a worker reads, and its messages that are in flight.
#[derive(Debug)]
pub(crate) struct Subscription {
    pub(crate) origin: Arc<Origin>,
    pub(crate) stream: Arc<str>,
    /// The stream that the worker was told to read: the same, or the one of which this stream is a partition.
    pub(crate) logical: Arc<str>,
    pub(crate) group: Arc<str>,
    pub(crate) consumer: Arc<str>,
    /// The dead-letter stream that the builder sets; `None`: that of the group's policy, or else the default.
    dead_letters: Option<Arc<str>>,
    default_dead_letters: Arc<str>,
    pub(crate) policy: GroupPolicy,
    /// The hash with the heartbeats of the group's workers.
    pub(crate) workers_key: String,
    pub(crate) retry_key: String,
    /// Messages that have been read and not settled yet.
    pub(crate) in_flight: InFlight,
    /// Finished jobs that wait for the settler.
    pub(crate) outbox: Outbox,
    /// Whether calls to the store currently fail.
    pub(crate) outage: Outage,
    /// Whether the store currently refuses dead letters. Other calls may still succeed.
    pub(crate) dead_letter_outage: Outage,
    pub(crate) metrics: Arc<WorkerMetrics>,
    /// Locked by the task that recreates a deleted group.
    pub(crate) group_recreation: tokio::sync::Mutex<()>,
    /// Messages in flight that the worker handles again later.
    pub(crate) delayed: Mutex<Delayed<DelayedJob>>,
    /// Notified when a job is added to `delayed`.
    pub(crate) delayed_added: Notify,
    /// When the next message that waits in the store can be claimed, as far as this worker knows.
    pub(crate) next_due: NextDue,
    /// Whether the previous process with this consumer name left pending entries. The worker claims them before it
    /// reads new entries.
    pub(crate) has_history: AtomicBool,
    /// Cancelled when the worker has taken over what was pending in the group when it started. Only a worker that
    /// orders messages does this.
    pub(crate) taken_over: CancellationToken,
    /// Whether the worker has acknowledged or dead-lettered messages since it last deleted messages that every group
    /// has acknowledged.
    pub(crate) has_done: AtomicBool,
    /// Whether reading has stopped for long, because messages that wait for others of their keys fill the window.
    pub(crate) is_window_full: AtomicBool,
    last_read: Mutex<StreamId>,
    /// Whether the worker has found the stream by its pattern.
    pub(crate) is_discovered: bool,
    /// Why the stream is not read at the moment.
    trouble: Mutex<Option<StreamTrouble>>,
    /// Cancelled when the worker stops reading the stream, before it leaves it. Only owned streams are stopped.
    pub(crate) stopping: CancellationToken,
    /// Cancelled when the worker leaves the stream.
    pub(crate) left: CancellationToken,
    /// The tasks of the stream. They end when the worker leaves it.
    pub(crate) tasks: TaskTracker,
}

/// Why a stream that a pattern has found is not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StreamTrouble {
    /// The group does not exist. The stream may have been deleted.
    NoGroup,
    /// The store refuses to read the stream.
    Refused,
}

impl Subscription {
    pub(crate) fn new(
        stream: &str,
        group: &Arc<str>,
        consumer: &Arc<str>,
        dead_letters: Option<&str>,
        metrics: &Arc<WorkerMetrics>,
        key_field: Option<&Arc<str>>,
    ) -> Subscription {
        let origin = Origin {
            subscription: SubscriptionId::new(),
            stream: stream.into(),
            logical: stream.into(),
            group: Arc::clone(group),
            consumer: Arc::clone(consumer),
            key_field: key_field.cloned(),
            ownership: None,
        };
        Subscription::with_origin(origin, dead_letters, metrics)
    }

    /// Returns the subscription of an ownership: `stream` is that of the root, or a partition of it.
    pub(crate) fn owned(
        root: &Subscription,
        stream: &Arc<str>,
        dead_letters: Option<&str>,
        ownership: Ownership,
    ) -> Subscription {
        let origin = Origin {
            subscription: SubscriptionId::new(),
            stream: Arc::clone(stream),
            logical: Arc::clone(&root.stream),
            group: Arc::clone(&root.group),
            consumer: Arc::clone(&root.consumer),
            key_field: root.origin.key_field.clone(),
            ownership: Some(ownership),
        };
        let owned = Subscription::with_origin(origin, dead_letters, &root.metrics);
        Subscription { workers_key: root.workers_key.clone(), ..owned }
    }

    /// Returns this subscription as the root of an owned stream, which reads nothing itself. `key_field` holds the key
    /// unless the worker was told another field.
    pub(crate) fn as_root(&self, key_field: Option<&str>) -> Subscription {
        let key_field = self.origin.key_field.clone().or_else(|| key_field.map(Arc::from));
        let dead_letters = self.dead_letters.as_deref();
        Subscription::new(
            &self.stream,
            &self.group,
            &self.consumer,
            dead_letters,
            &self.metrics,
            key_field.as_ref(),
        )
    }

    fn with_origin(origin: Origin, dead_letters: Option<&str>, metrics: &Arc<WorkerMetrics>) -> Subscription {
        let (stream, group) = (Arc::clone(&origin.stream), Arc::clone(&origin.group));
        Subscription {
            dead_letters: dead_letters.map(Arc::from),
            default_dead_letters: dead_letters_of(&stream).into(),
            policy: GroupPolicy::default(),
            workers_key: workers_key(&stream, &group),
            retry_key: retry_key(&stream, &group),
            logical: Arc::clone(&origin.logical),
            stream,
            group,
            consumer: Arc::clone(&origin.consumer),
            origin: Arc::new(origin),
            in_flight: InFlight::default(),
            outbox: Outbox::default(),
            outage: Outage::default(),
            dead_letter_outage: Outage::default(),
            metrics: Arc::clone(metrics),
            group_recreation: tokio::sync::Mutex::new(()),
            delayed: Mutex::default(),
            delayed_added: Notify::new(),
            next_due: NextDue::default(),
            has_history: AtomicBool::new(false),
            taken_over: CancellationToken::new(),
            has_done: AtomicBool::new(false),
            is_window_full: AtomicBool::new(false),
            last_read: Mutex::new(StreamId::MIN),
            is_discovered: false,
            trouble: Mutex::default(),
            stopping: CancellationToken::new(),
            left: CancellationToken::new(),
            tasks: TaskTracker::new(),
        }
    }

    pub(crate) fn dead_letters(&self) -> Arc<str> {
        let named = self.dead_letters.clone().or_else(|| self.policy.dead_letters());
        named.unwrap_or_else(|| Arc::clone(&self.default_dead_letters))
    }

    /// Marks the stream as found by a pattern. Its outages are not logged one by one.
    pub(crate) fn discovered(mut self) -> Subscription {
        self.is_discovered = true;
        self.outage = Outage::unlogged();
        self
    }

    /// Returns why the stream is not read at the moment.
    pub(crate) fn trouble(&self) -> Option<StreamTrouble> {
        *self.trouble.lock()
    }

    /// Returns false if the stream has trouble already.
    pub(crate) fn set_trouble(&self, trouble: StreamTrouble) -> bool {
        let mut current = self.trouble.lock();
        let is_new = current.is_none();
        current.get_or_insert(trouble);
        is_new
    }

    pub(crate) fn clear_trouble(&self) {
        *self.trouble.lock() = None;
    }

    pub(crate) fn as_consumer(&self) -> Consumer<'_> {
        Consumer { stream: &self.stream, group: &self.group, name: &self.consumer }
    }

    /// Returns a request that reads up to `count` messages, and neither blocks nor claims.
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

    /// Returns the jobs that are still in flight, and those that are not.
    pub(crate) fn split_by_in_flight(&self, jobs: Vec<Job>) -> (Vec<Job>, Vec<Job>) {
        let mut in_flight = self.in_flight.contains_each(jobs.iter().map(Job::id_and_tag)).into_iter();
        jobs.into_iter().partition(|_| in_flight.next() == Some(true))
    }

    pub(crate) fn delay(&self, due: Instant, delayed: DelayedJob) {
        self.delayed.lock().push(due, delayed);
        self.delayed_added.notify_one();
    }

    /// Returns the greatest id read so far.
    pub(crate) fn last_read(&self) -> StreamId {
        *self.last_read.lock()
    }

    /// Records that an entry was read.
    pub(crate) fn record_read(&self, id: StreamId) {
        let mut last = self.last_read.lock();
        *last = id.max(*last);
    }
}
