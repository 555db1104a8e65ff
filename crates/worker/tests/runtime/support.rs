//! An in-memory store with messages, and a worker that runs in the background of a test.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use millstream_worker::backend::{
    Admin, Consumer, IdOrder, NewEntry, PendingFilter, PendingRow, Range, Read, Start, StreamId,
};
use millstream_worker::dead_letter::DeadLetter;
use millstream_worker::redrive::count_redrives;
use millstream_worker::{Backoff, Error, Message, Report, Worker, WorkerBuilder, WorkerHandle, connect};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

pub(crate) const STREAM: &str = "orders";
pub(crate) const GROUP: &str = "billing";
pub(crate) const DEAD: &str = "{orders}:dlq";

/// Longer than any step takes, even on a slow machine.
const TIMEOUT: Duration = Duration::from_secs(60);

pub(crate) fn ms(time: u64) -> Duration {
    Duration::from_millis(time)
}

pub(crate) async fn store() -> Arc<dyn Admin> {
    connect("memory:").await.unwrap()
}

/// Adds one entry for each number of the range, in the field `n`.
pub(crate) async fn add(backend: &Arc<dyn Admin>, numbers: std::ops::Range<u64>) -> Vec<StreamId> {
    let entries: Vec<NewEntry> = numbers
        .map(|n| NewEntry { fields: vec![("n".into(), n.to_string().into())], idempotence: None })
        .collect();
    backend.add(STREAM, &entries, None).await.unwrap()
}

/// A worker with a short backoff.
pub(crate) fn worker(backend: &Arc<dyn Admin>) -> WorkerBuilder {
    Worker::builder(backend.clone())
        .stream(STREAM)
        .group(GROUP)
        .concurrency(4)
        .retry(Backoff::fixed(ms(20)))
        .drain(TIMEOUT)
}

/// A worker that runs in the background.
pub(crate) struct Running {
    pub(crate) handle: WorkerHandle,
    drain: oneshot::Sender<()>,
    task: JoinHandle<Result<Report, Error>>,
    /// Each task that can run a handler shares it.
    alive: Arc<Alive>,
}

struct Alive;

pub(crate) fn run(builder: WorkerBuilder) -> Running {
    let alive = Arc::new(Alive);
    let worker = builder.state(Arc::clone(&alive)).build().unwrap();
    let handle = worker.handle();
    let (drain, drained) = oneshot::channel::<()>();
    let task = tokio::spawn(worker.run_until(async {
        let _ = drained.await;
    }));
    Running { handle, drain, task, alive }
}

impl Running {
    /// Drains the worker and returns its report.
    pub(crate) async fn drain(self) -> Report {
        let _ = self.drain.send(());
        within(self.task).await.unwrap().unwrap()
    }

    /// Aborts the worker, as a crash would: it sends nothing more to the store, and no handler runs any more.
    pub(crate) async fn kill(self) {
        self.task.abort();
        assert!(self.task.await.unwrap_err().is_cancelled());
        // A handler that another thread polls at this moment runs until it has to wait.
        wait_until("all handlers are dropped", async || Arc::strong_count(&self.alive) == 1).await;
    }
}

async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(TIMEOUT, future).await.expect("the worker did not end in time")
}

/// Waits until a condition holds.
pub(crate) async fn wait_until(what: &str, mut is_true: impl AsyncFnMut() -> bool) {
    let waited = tokio::time::timeout(TIMEOUT, async {
        while !is_true().await {
            tokio::time::sleep(ms(5)).await;
        }
    });
    assert!(waited.await.is_ok(), "timed out waiting: {what}");
}

/// The numbers of handled messages, and how often each was handled.
#[derive(Clone, Default)]
pub(crate) struct Handled(Arc<Mutex<BTreeMap<u64, u64>>>);

impl Handled {
    /// Counts a number and returns its new count.
    pub(crate) fn count(&self, n: u64) -> u64 {
        let mut counts = self.0.lock().unwrap();
        let count = counts.entry(n).or_default();
        *count += 1;
        *count
    }

    pub(crate) fn times(&self, n: u64) -> u64 {
        self.0.lock().unwrap().get(&n).copied().unwrap_or_default()
    }

    pub(crate) fn numbers(&self) -> Vec<u64> {
        self.0.lock().unwrap().keys().copied().collect()
    }

    pub(crate) fn len(&self) -> usize {
        self.0.lock().unwrap().len()
    }

    pub(crate) fn all_handled_once(&self) -> bool {
        self.0.lock().unwrap().values().all(|count| *count == 1)
    }
}

/// Synchronizes handlers with a test.
#[derive(Default)]
pub(crate) struct Gate {
    pub(crate) started: AtomicUsize,
    pub(crate) cancelled: AtomicUsize,
    open: AtomicBool,
}

impl Gate {
    pub(crate) fn open(&self) {
        self.open.store(true, Ordering::SeqCst);
    }

    pub(crate) fn shut(&self) {
        self.open.store(false, Ordering::SeqCst);
    }

    pub(crate) fn is_open(&self) -> bool {
        self.open.load(Ordering::SeqCst)
    }

    pub(crate) fn started(&self) -> usize {
        self.started.load(Ordering::SeqCst)
    }

    /// Counts a started handler, and waits until the gate is open.
    pub(crate) async fn pass(&self) {
        self.started.fetch_add(1, Ordering::SeqCst);
        while !self.is_open() {
            tokio::time::sleep(ms(2)).await;
        }
    }
}

pub(crate) fn number(message: &Message) -> u64 {
    message.text("n").unwrap().parse().unwrap()
}

pub(crate) async fn pending(backend: &Arc<dyn Admin>) -> Vec<PendingRow> {
    let all = PendingFilter {
        first: StreamId::MIN,
        last: StreamId::MAX,
        count: 10_000,
        consumer: None,
        min_idle: None,
    };
    backend.pending(STREAM, GROUP, &all).await.unwrap()
}

/// Returns whether no message is pending or unread.
pub(crate) async fn all_done(backend: &Arc<dyn Admin>) -> bool {
    let groups = backend.groups(STREAM).await.unwrap();
    groups.first().is_some_and(|group| group.pending == 0 && group.lag == Some(0))
}

pub(crate) async fn dead_letters(backend: &Arc<dyn Admin>) -> Vec<DeadLetter> {
    let all = Range { first: StreamId::MIN, last: StreamId::MAX, order: IdOrder::Ascending, count: 10_000 };
    let entries = backend.range(DEAD, all).await.unwrap();
    let mut found: Vec<DeadLetter> = entries.iter().map(|entry| DeadLetter::read(entry).unwrap()).collect();
    count_redrives(&**backend, &mut found).await;
    found
}

/// Creates the group and reads as a consumer that then does nothing.
pub(crate) async fn read_and_die(backend: &Arc<dyn Admin>, consumer: &str, count: usize) -> Vec<StreamId> {
    backend.create_group(STREAM, GROUP, Start::Beginning).await.unwrap();
    let read = Read { stream: STREAM, group: GROUP, consumer, count, block: None, claim_idle: None };
    backend.read(&read).await.unwrap().into_iter().map(|delivery| delivery.id).collect()
}

/// Claims all pending messages for this consumer.
pub(crate) async fn claim_all(backend: &Arc<dyn Admin>, consumer: &str) -> usize {
    let consumer = Consumer::new(STREAM, GROUP, consumer);
    backend.autoclaim(consumer, Duration::ZERO, StreamId::MIN, 1000).await.unwrap().deliveries.len()
}
