//! A store with messages in it, and a worker that runs beside the test.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use millstream_worker::backend::{
    Admin, Consumer, NewEntry, Order, PendingFilter, PendingRow, Range, Read, Start, StreamId,
};
use millstream_worker::dead_letter::Letter;
use millstream_worker::{Backoff, Error, Message, Report, Worker, WorkerBuilder, WorkerHandle, connect};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

pub(crate) const STREAM: &str = "orders";
pub(crate) const GROUP: &str = "billing";
pub(crate) const DEAD: &str = "{orders}:dlq";

/// Nothing here takes so long; a slow machine may.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) fn ms(time: u64) -> Duration {
    Duration::from_millis(time)
}

pub(crate) async fn store() -> Arc<dyn Admin> {
    connect("memory:").await.unwrap()
}

/// Adds entries `n = from..to`.
pub(crate) async fn add(backend: &Arc<dyn Admin>, numbers: std::ops::Range<u64>) -> Vec<StreamId> {
    let entries: Vec<NewEntry> = numbers
        .map(|n| NewEntry { fields: vec![("n".into(), n.to_string().into())], idempotence: None })
        .collect();
    backend.add(STREAM, &entries, None).await.unwrap()
}

/// A worker whose retries come quickly.
pub(crate) fn worker(backend: &Arc<dyn Admin>) -> WorkerBuilder {
    Worker::builder(backend.clone())
        .stream(STREAM)
        .group(GROUP)
        .concurrency(4)
        .retry(Backoff::fixed(ms(20)))
        .drain(PATIENCE)
}

/// A worker that runs beside the test.
pub(crate) struct Running {
    pub(crate) handle: WorkerHandle,
    end: oneshot::Sender<()>,
    task: JoinHandle<Result<Report, Error>>,
}

pub(crate) fn run(builder: WorkerBuilder) -> Running {
    let worker = builder.build().unwrap();
    let handle = worker.handle();
    let (end, ended) = oneshot::channel::<()>();
    let task = tokio::spawn(worker.run_until(async {
        let _ = ended.await;
    }));
    Running { handle, end, task }
}

impl Running {
    /// Lets it drain.
    pub(crate) async fn end(self) -> Report {
        let _ = self.end.send(());
        within(self.task).await.unwrap().unwrap()
    }

    /// Ends it as a crash would: nothing is told to anyone.
    pub(crate) async fn kill(self) {
        self.task.abort();
        assert!(self.task.await.unwrap_err().is_cancelled());
    }
}

async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.expect("it takes too long")
}

/// Waits until something is so.
pub(crate) async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let waited = tokio::time::timeout(PATIENCE, async {
        while !is_so().await {
            tokio::time::sleep(ms(5)).await;
        }
    });
    assert!(waited.await.is_ok(), "in vain: {what}");
}

/// The numbers that were handled, and how often each.
#[derive(Clone, Default)]
pub(crate) struct Handled(Arc<Mutex<BTreeMap<u64, u64>>>);

impl Handled {
    /// Counts a number and gives how often that makes.
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

    pub(crate) fn each_once(&self) -> bool {
        self.0.lock().unwrap().values().all(|count| *count == 1)
    }
}

/// What a handler and a test tell each other.
#[derive(Default)]
pub(crate) struct Gate {
    pub(crate) begun: AtomicUsize,
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

    pub(crate) fn begun(&self) -> usize {
        self.begun.load(Ordering::SeqCst)
    }

    /// Begins, and waits until the gate is open.
    pub(crate) async fn pass(&self) {
        self.begun.fetch_add(1, Ordering::SeqCst);
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

/// Nothing is pending and nothing unread.
pub(crate) async fn all_done(backend: &Arc<dyn Admin>) -> bool {
    let groups = backend.groups(STREAM).await.unwrap();
    groups.first().is_some_and(|group| group.pending == 0 && group.lag == Some(0))
}

pub(crate) async fn letters(backend: &Arc<dyn Admin>) -> Vec<Letter> {
    let all = Range { first: StreamId::MIN, last: StreamId::MAX, order: Order::Rising, count: 10_000 };
    let entries = backend.range(DEAD, all).await.unwrap();
    entries.iter().map(|entry| Letter::read(entry).unwrap()).collect()
}

/// Makes the group and reads for a consumer of this name that then does nothing.
pub(crate) async fn read_and_die(backend: &Arc<dyn Admin>, consumer: &str, count: usize) -> Vec<StreamId> {
    backend.create_group(STREAM, GROUP, Start::Beginning).await.unwrap();
    let read = Read { stream: STREAM, group: GROUP, consumer, count, block: None, claim_idle: None };
    backend.read(&read).await.unwrap().into_iter().map(|delivery| delivery.id).collect()
}

/// Takes everything pending for a consumer of this name, whoever has it.
pub(crate) async fn steal(backend: &Arc<dyn Admin>, consumer: &str) -> usize {
    let thief = Consumer::new(STREAM, GROUP, consumer);
    backend.autoclaim(thief, Duration::ZERO, StreamId::MIN, 1000).await.unwrap().deliveries.len()
}
