//! Workers and producers on a server whose memory is full. Nothing is lost, and nothing is acknowledged without its
//! dead letter.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use millstream_worker::backend::{ErrorKind, Start};
use millstream_worker::names::{dead_letters_of, retry_key};
use millstream_worker::producer::Producer;
use millstream_worker::{Admin, Backoff, Dedupe, HandlerError, Message, Worker, WorkerHandle, connect};

use super::cases;
use super::peers::PEERS;
use super::servers::{Program, Server};

const STREAM: &str = "full";
const GROUP: &str = "g";
/// The message that the handler rejects.
const POISON: &str = "7";
const MESSAGES: u64 = 20;

/// Starts a worker with a handler that counts its calls. The worker drains when the returned sender is dropped.
fn start(
    backend: &Arc<dyn Admin>,
    dedupe: Option<Dedupe>,
) -> (WorkerHandle, Arc<AtomicU64>, tokio::sync::oneshot::Sender<()>, tokio::task::JoinHandle<()>) {
    let handled = Arc::new(AtomicU64::new(0));
    let counter = Arc::clone(&handled);
    let handler = move |message: Message| {
        counter.fetch_add(1, Ordering::SeqCst);
        let is_poison = message.text("n") == Some(POISON);
        async move { if is_poison { Err(HandlerError::reject("poison")) } else { Ok(()) } }
    };
    let mut worker = Worker::builder(backend.clone())
        .stream(STREAM)
        .group(GROUP)
        .handler(handler)
        .lease(Duration::from_secs(5))
        .retry(Backoff::fixed(Duration::from_millis(10)));
    if let Some(dedupe) = dedupe {
        worker = worker.dedupe(dedupe);
    }
    let worker = worker.build().unwrap();
    let handle = worker.handle();
    let (drain, drained) = tokio::sync::oneshot::channel::<()>();
    let task = tokio::spawn(async move {
        let ended = worker.run_until(async { drop(drained.await) }).await;
        ended.expect("the worker failed");
    });
    (handle, handled, drain, task)
}

async fn fill(backend: &dyn Admin) {
    backend.create_group(STREAM, GROUP, Start::Beginning).await.unwrap();
    let entries: Vec<_> = (0..MESSAGES).map(|n| cases::entry("n", &n.to_string())).collect();
    backend.add(STREAM, &entries, None).await.unwrap();
}

async fn dead_letters(backend: &dyn Admin) -> u64 {
    backend.stream(&dead_letters_of(STREAM)).await.unwrap().map_or(0, |info| info.length)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_drains_a_full_redis_and_keeps_what_it_cannot_dead_letter() {
    let Some(server) = Server::redis(&["--maxmemory-policy", "noeviction"]) else { return };
    let backend = connect(&server.url()).await.unwrap();
    fill(&*backend).await;
    server.configure("maxmemory", "1");
    let (handle, handled, drain, task) = start(&backend, None);
    cases::wait_until(|| async { handle.stats().acknowledged == MESSAGES - 1 }).await;
    // Long enough for a second attempt to write the dead letter.
    tokio::time::sleep(Duration::from_millis(1200)).await;
    assert_eq!(cases::pending(&*backend, STREAM).await.len(), 1, "acknowledged without a dead letter");
    assert_eq!((dead_letters(&*backend).await, handle.stats().dead), (0, 0));
    server.configure("maxmemory", "0");
    cases::wait_until(|| async { handle.stats().dead == 1 }).await;
    drop(drain);
    task.await.unwrap();
    assert_eq!(cases::pending(&*backend, STREAM).await, []);
    assert_eq!((dead_letters(&*backend).await, handled.load(Ordering::SeqCst)), (1, MESSAGES));
}

/// The worker stops before there is space for the dead letter. The next worker writes it.
#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_cannot_be_dead_lettered_survives_its_worker() {
    let Some(server) = Server::redis(&["--maxmemory-policy", "noeviction"]) else { return };
    let backend = connect(&server.url()).await.unwrap();
    fill(&*backend).await;
    server.configure("maxmemory", "1");
    let (handle, _, drain, task) = start(&backend, None);
    cases::wait_until(|| async { handle.stats().acknowledged == MESSAGES - 1 }).await;
    drop(drain);
    task.await.unwrap();
    assert_eq!(cases::pending(&*backend, STREAM).await.len(), 1);
    server.configure("maxmemory", "0");
    let (handle, _, drain, task) = start(&backend, None);
    cases::wait_until(|| async { handle.stats().dead == 1 }).await;
    drop(drain);
    task.await.unwrap();
    assert_eq!((cases::pending(&*backend, STREAM).await, dead_letters(&*backend).await), (vec![], 1));
}

/// With deduplication, Redis cannot store the keys. The messages stay pending, and are acknowledged later without
/// running the handler again.
#[tokio::test(flavor = "multi_thread")]
async fn deduplicated_messages_stay_pending_on_a_full_redis() {
    let Some(server) = Server::redis(&["--maxmemory-policy", "noeviction"]) else { return };
    let backend = connect(&server.url()).await.unwrap();
    fill(&*backend).await;
    server.configure("maxmemory", "1");
    let (handle, handled, drain, task) = start(&backend, Some(Dedupe::within(Duration::from_secs(60))));
    cases::wait_until(|| async { handled.load(Ordering::SeqCst) == MESSAGES }).await;
    assert_eq!(cases::pending(&*backend, STREAM).await.len() as u64, MESSAGES);
    server.configure("maxmemory", "0");
    cases::wait_until(|| async { handle.stats().acknowledged + handle.stats().dead == MESSAGES }).await;
    drop(drain);
    task.await.unwrap();
    assert_eq!((cases::pending(&*backend, STREAM).await, dead_letters(&*backend).await), (vec![], 1));
    assert_eq!(handled.load(Ordering::SeqCst), MESSAGES, "a handler ran twice");
}

/// Millstream dead-letters above its limit, and stores deduplication keys with acknowledgements.
#[tokio::test(flavor = "multi_thread")]
async fn a_worker_drains_a_full_millstream_completely() {
    let server = Server::start(Program::Millstream, &[]);
    let backend = connect(&server.url()).await.unwrap();
    fill(&*backend).await;
    server.configure("maxmemory", "1");
    let (handle, handled, drain, task) = start(&backend, Some(Dedupe::within(Duration::from_secs(60))));
    cases::wait_until(|| async { handle.stats().acknowledged + handle.stats().dead == MESSAGES }).await;
    drop(drain);
    task.await.unwrap();
    assert_eq!((cases::pending(&*backend, STREAM).await, dead_letters(&*backend).await), (vec![], 1));
    assert_eq!(handled.load(Ordering::SeqCst), MESSAGES);
}

/// Messages that fail wait in the store, with their records, although memory is full.
#[tokio::test(flavor = "multi_thread")]
async fn a_worker_retries_on_a_full_server() {
    let mut servers = vec![Server::start(Program::Millstream, &[])];
    servers.extend(PEERS.iter().filter_map(|peer| Server::peer(peer, &["--maxmemory-policy", "noeviction"])));
    for server in servers {
        let backend = connect(&server.url()).await.unwrap();
        fill(&*backend).await;
        server.configure("maxmemory", "1");
        let handler = async |message: Message| match message.attempt {
            1 => Err(HandlerError::retry("not yet")),
            _ => Ok(()),
        };
        let worker = Worker::builder(backend.clone()).stream(STREAM).group(GROUP).handler(handler);
        let worker = worker.retry(Backoff::fixed(Duration::from_millis(10))).build().unwrap();
        let handle = worker.handle();
        let done =
            async move { cases::wait_until(|| async { handle.stats().acknowledged == MESSAGES }).await };
        let report = worker.run_until(done).await.unwrap();
        assert_eq!((report.retried, report.unsettled), (MESSAGES, 0), "{report}");
        assert_eq!(cases::pending(&*backend, STREAM).await, []);
        assert_eq!(backend.hash_len(&retry_key(STREAM, GROUP)).await.unwrap(), 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_producer_learns_that_the_store_is_full_and_can_retry() {
    let millstream = Some(Server::start(Program::Millstream, &[]));
    for server in [millstream, Server::redis(&["--maxmemory-policy", "noeviction"])].into_iter().flatten() {
        let backend = connect(&server.url()).await.unwrap();
        server.configure("maxmemory", "1");
        let producer = Producer::new(backend.clone(), STREAM);
        let error = producer.send([("n", "1")]).await.unwrap_err();
        assert_eq!((error.kind(), error.is_transient()), (ErrorKind::NotWritable, true), "{error}");
        for part in ["OOM", "the store is full", "nothing was added"] {
            assert!(error.to_string().contains(part), "{error}");
        }
        // An idempotent producer tries again by itself.
        let retrying = Producer::new(backend.clone(), STREAM).idempotent("shop");
        let sent = tokio::spawn(async move { retrying.send([("n", "2")]).await });
        tokio::time::sleep(Duration::from_millis(100)).await;
        server.configure("maxmemory", "0");
        sent.await.unwrap().unwrap();
        assert_eq!(backend.stream(STREAM).await.unwrap().unwrap().length, 1);
    }
}
