//! Heartbeats, and what depends on them: one live worker per consumer name, and consumers that are not removed.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use millstream_worker::backend::{Admin, ErrorKind};
use millstream_worker::handler::{Data, Raw};
use millstream_worker::heartbeat::{Heartbeat, KEPT_FOR, WorkerInfo, WorkerState, workers};
use millstream_worker::names::workers_key;
use millstream_worker::{BreakerPolicy, HandlerError, Message, WorkerBuilder};

use crate::support::*;

const INTERVAL: Duration = Duration::from_millis(100);
/// Longer than any test.
const LEASE: Duration = Duration::from_secs(3600);

async fn beats(backend: &Arc<dyn Admin>) -> Vec<WorkerInfo> {
    workers(&**backend, STREAM, GROUP).await.unwrap()
}

/// Publishes a heartbeat as another process would.
async fn publish(backend: &Arc<dyn Admin>, instance: &str, json: serde_json::Value) {
    let value = Bytes::from(json.to_string());
    backend.hash_set(&workers_key(STREAM, GROUP), &[(instance.to_owned(), value)]).await.unwrap();
}

/// A worker whose reads block only briefly, so that it drains quickly.
fn short(backend: &Arc<dyn Admin>) -> WorkerBuilder {
    worker(backend).drain(ms(400))
}

/// A worker with the consumer name `clerk`, a long lease and frequent heartbeats.
fn clerk(backend: &Arc<dyn Admin>) -> WorkerBuilder {
    short(backend).consumer_name("clerk").lease(LEASE).heartbeat(Some(INTERVAL)).consumer_wait(LEASE)
}

fn with_gate(builder: WorkerBuilder, gate: &Arc<Gate>, handled: &Handled) -> WorkerBuilder {
    let handler = async |message: Message, gate: Data<Arc<Gate>>, handled: Data<Handled>| {
        handled.count(number(&message));
        gate.pass().await;
    };
    builder.state(gate.clone()).state(handled.clone()).handler(handler)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_publishes_heartbeats_until_it_has_drained() {
    let (backend, gate, handled) = (store().await, Arc::new(Gate::default()), Handled::default());
    add(&backend, 0..2).await;
    let builder = short(&backend).drain(LEASE).heartbeat(Some(INTERVAL)).listen("127.0.0.1:0");
    let running = run(with_gate(builder, &gate, &handled).handler_name("charge"));
    wait_until("two busy slots", async || {
        beats(&backend).await.iter().any(|w| (w.heartbeat.busy, w.heartbeat.received) == (2, 2))
    })
    .await;
    let first = beats(&backend).await.remove(0);
    let Heartbeat { pid, slots, slots_max, received, ref handler, .. } = first.heartbeat;
    assert_eq!((pid, slots, slots_max, received, &**handler), (std::process::id(), 4, 4, 2, "charge"));
    assert_eq!((first.heartbeat.state, first.is_alive()), (WorkerState::Working, true));
    assert!(first.heartbeat.listen.as_ref().unwrap().starts_with("127.0.0.1:"), "{first:?}");
    assert!(first.heartbeat.started_at_ms <= first.heartbeat.beat_at_ms, "{first:?}");
    wait_until("the next heartbeat", async || {
        let next = beats(&backend).await.remove(0).heartbeat;
        next.beat_at_ms > first.heartbeat.beat_at_ms && next.instance == first.heartbeat.instance
    })
    .await;
    running.handle.pause();
    let state = async || beats(&backend).await.first().map(|worker| worker.heartbeat.state);
    wait_until("paused", async || state().await == Some(WorkerState::Paused)).await;
    running.handle.drain();
    wait_until("draining", async || state().await == Some(WorkerState::Draining)).await;
    gate.open();
    running.drain().await;
    assert_eq!(beats(&backend).await, []);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_heartbeat_shows_an_open_circuit_breaker() {
    let backend = store().await;
    add(&backend, 0..2).await;
    let builder = short(&backend).heartbeat(Some(INTERVAL)).breaker(BreakerPolicy::after(1));
    let running = run(builder.handler(async |_: Raw| Err::<(), _>(HandlerError::retry("closed"))));
    wait_until("open", async || {
        beats(&backend).await.iter().any(|worker| worker.heartbeat.state == WorkerState::CircuitOpen)
    })
    .await;
    running.drain().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_without_heartbeats_publishes_none() {
    let backend = store().await;
    add(&backend, 0..1).await;
    let running = run(short(&backend).heartbeat(None).handler(async |_: Raw| {}));
    wait_until("done", async || running.handle.stats().acknowledged == 1).await;
    assert_eq!(beats(&backend).await, []);
    running.drain().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_live_worker_with_the_name_is_refused_and_gets_no_messages() {
    let (backend, gate, handled) = (store().await, Arc::new(Gate::default()), Handled::default());
    add(&backend, 0..4).await;
    let first = run(with_gate(clerk(&backend), &gate, &handled));
    wait_until("started", async || gate.started() == 4).await;
    let before = pending(&backend).await;
    let second = clerk(&backend).consumer_wait(ms(700)).handler(async |_: Raw| {}).build().unwrap();
    let error = second.run().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NameInUse, "{error}");
    let expected = "the consumer name clerk in group billing of stream orders: host ";
    assert!(error.to_string().contains(expected), "{error}");
    assert!(error.to_string().contains(&format!("pid {}", std::process::id())), "{error}");
    let owners: HashSet<_> = pending(&backend).await.into_iter().map(|row| (row.id, row.consumer)).collect();
    assert_eq!(owners, before.into_iter().map(|row| (row.id, row.consumer)).collect());
    assert_eq!(beats(&backend).await.len(), 1, "the refused worker leaves no heartbeat");
    gate.open();
    wait_until("done", async || all_done(&backend).await).await;
    let report = first.drain().await;
    assert_eq!((report.acknowledged, report.lost_leases, handled.all_handled_once()), (4, 0, true));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_waits_while_the_other_one_with_its_name_drains() {
    let (backend, gate, handled) = (store().await, Arc::new(Gate::default()), Handled::default());
    add(&backend, 0..6).await;
    let first = run(with_gate(clerk(&backend).drain(LEASE), &gate, &handled));
    wait_until("started", async || gate.started() == 4).await;
    first.handle.drain();
    let states = async || beats(&backend).await.into_iter().map(|worker| worker.heartbeat.state);
    wait_until("draining", async || states().await.any(|state| state == WorkerState::Draining)).await;
    // It does not wait for a worker that works, but for one that drains.
    let second = run(with_gate(clerk(&backend).consumer_wait(Duration::ZERO), &gate, &handled));
    wait_until("the second waits", async || states().await.any(|state| state == WorkerState::Waiting)).await;
    assert_eq!(second.handle.stats().received, 0);
    gate.open();
    let report = first.drain().await;
    assert_eq!((report.acknowledged, report.lost_leases), (4, 0));
    wait_until("done", async || all_done(&backend).await).await;
    assert_eq!(second.drain().await.acknowledged, 2);
    assert!(handled.all_handled_once());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_messages_of_a_crashed_worker_are_recovered_when_its_heartbeat_stays_the_same() {
    let (backend, gate, handled) = (store().await, Arc::new(Gate::default()), Handled::default());
    add(&backend, 0..4).await;
    let first = run(with_gate(clerk(&backend), &gate, &handled));
    wait_until("started", async || gate.started() == 4).await;
    // The process still runs, so only the heartbeat shows the crash.
    first.kill().await;
    gate.open();
    let second = run(with_gate(clerk(&backend), &gate, &handled));
    wait_until("done", async || all_done(&backend).await).await;
    assert_eq!(second.drain().await.redelivered, 4);
    assert_eq!(beats(&backend).await, [], "the heartbeat of the crashed worker is removed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_does_not_wait_for_a_process_that_has_ended() {
    let backend = store().await;
    add(&backend, 0..1).await;
    let running = run(clerk(&backend).handler(async |_: Raw| {}));
    wait_until("a heartbeat", async || !beats(&backend).await.is_empty()).await;
    let process = beats(&backend).await.remove(0).heartbeat.process;
    running.drain().await;
    // No process has this id. The heartbeat is fresh, and its worker is silent only after two hours.
    let now = backend.now_ms(STREAM).await.unwrap();
    let other = serde_json::json!({"consumer": "clerk", "state": "working", "pid": 1 << 22, "process": process,
        "beat_at_ms": now, "interval_ms": 3_600_000});
    publish(&backend, "gone", other).await;
    add(&backend, 0..1).await;
    let running = run(clerk(&backend).consumer_wait(Duration::ZERO).handler(async |_: Raw| {}));
    wait_until("done", async || running.handle.stats().acknowledged == 1).await;
    running.drain().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_heartbeat_does_not_block_its_name() {
    let backend = store().await;
    let now = backend.now_ms(STREAM).await.unwrap();
    let kept = u64::try_from(KEPT_FOR.as_millis()).unwrap();
    for (instance, beat_at_ms) in [("past", now - kept), ("future", now + 2 * kept), ("end", u64::MAX)] {
        let beat = serde_json::json!({"consumer": "clerk", "state": "working", "beat_at_ms": beat_at_ms,
            "interval_ms": u64::MAX});
        publish(&backend, instance, beat).await;
    }
    add(&backend, 0..1).await;
    let running = run(clerk(&backend).consumer_wait(Duration::ZERO).handler(async |_: Raw| {}));
    wait_until("done", async || running.handle.stats().acknowledged == 1).await;
    running.drain().await;
    assert_eq!(beats(&backend).await, [], "the damaged heartbeats are removed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_workers_that_start_together_only_one_gets_the_name() {
    let backend = store().await;
    let (running, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let start = || {
        let (running, most) = (running.clone(), most.clone());
        run(clerk(&backend).concurrency(1).handler(move |_: Raw| {
            let (running, most) = (running.clone(), most.clone());
            async move {
                most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                tokio::time::sleep(ms(5)).await;
                running.fetch_sub(1, Ordering::SeqCst);
            }
        }))
    };
    let mut all: Vec<Running> = (0..3).map(|_| start()).collect();
    while !all.is_empty() {
        add(&backend, 0..10).await;
        wait_until("done", async || all_done(&backend).await).await;
        // The worker that has the name drains, and one of the others takes its place.
        let at = all.iter().position(|worker| worker.handle.stats().received > 0).unwrap();
        all.swap_remove(at).drain().await;
    }
    assert_eq!(most.load(Ordering::SeqCst), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_whose_name_was_taken_over_ends_without_its_messages() {
    let (backend, gate, handled) = (store().await, Arc::new(Gate::default()), Handled::default());
    add(&backend, 0..4).await;
    let worker = with_gate(clerk(&backend), &gate, &handled).build().unwrap();
    let handle = worker.handle();
    let running = tokio::spawn(worker.run());
    wait_until("started", async || gate.started() == 4).await;
    // As if this worker had been frozen: another one removes its heartbeat and takes over.
    let now = backend.now_ms(STREAM).await.unwrap();
    let other = serde_json::json!({"consumer": "clerk", "host": "web-3", "pid": 412, "state": "working",
        "beat_at_ms": now, "interval_ms": 3_600_000});
    publish(&backend, "other", other).await;
    let own = beats(&backend).await.into_iter().find(|worker| worker.heartbeat.instance != "other").unwrap();
    let instance = [own.heartbeat.instance];
    wait_until("the worker ends", async || {
        // A heartbeat that the worker was just sending brings it back.
        backend.hash_delete(&workers_key(STREAM, GROUP), &instance).await.unwrap();
        running.is_finished()
    })
    .await;
    let error = running.await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NameInUse, "{error}");
    assert!(error.to_string().contains("host web-3, pid 412"), "{error}");
    assert_eq!((handle.stats().lost_leases, handle.stats().released), (4, 0));
    let rows = pending(&backend).await;
    assert!(rows.len() == 4 && rows.iter().all(|row| row.consumer.as_deref() == Some("clerk")), "{rows:?}");
    assert_eq!(beats(&backend).await.len(), 1, "only the heartbeat of the other worker is left");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deleted_heartbeat_comes_back() {
    let backend = store().await;
    let running = run(clerk(&backend).handler(async |_: Raw| {}));
    wait_until("a heartbeat", async || !beats(&backend).await.is_empty()).await;
    let instance = beats(&backend).await.remove(0).heartbeat.instance;
    backend.hash_delete(&workers_key(STREAM, GROUP), &[instance]).await.unwrap();
    wait_until("the next heartbeat", async || !beats(&backend).await.is_empty()).await;
    running.drain().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn heartbeats_of_crashed_workers_are_removed_after_an_hour() {
    let backend = store().await;
    let now = backend.now_ms(STREAM).await.unwrap();
    let kept = u64::try_from(KEPT_FOR.as_millis()).unwrap();
    for (instance, age_ms) in [("old", kept), ("recent", kept - 60_000)] {
        let beat = serde_json::json!({"consumer": instance, "beat_at_ms": now - age_ms, "interval_ms": 5000});
        publish(&backend, instance, beat).await;
    }
    let running = run(short(&backend).handler(async |_: Raw| {}));
    let consumers = async || beats(&backend).await.into_iter().map(|worker| worker.heartbeat.consumer);
    wait_until("removed", async || !consumers().await.any(|consumer| consumer == "old")).await;
    assert!(consumers().await.any(|consumer| consumer == "recent"));
    running.drain().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_of_another_type_does_not_disturb_the_worker() {
    let backend = store().await;
    add(&backend, 0..3).await;
    let fields = vec![("f".into(), "v".into())];
    let entry = millstream_worker::backend::NewEntry { fields, idempotence: None };
    backend.add(&workers_key(STREAM, GROUP), &[entry], None).await.unwrap();
    let running = run(clerk(&backend).handler(async |_: Raw| {}));
    wait_until("done", async || running.handle.stats().acknowledged == 3).await;
    running.drain().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_consumer_with_heartbeats_is_not_removed() {
    let backend = store().await;
    let paused = |name: &str, heartbeat| {
        let running =
            run(short(&backend).consumer_name(name).heartbeat(heartbeat).handler(async |_: Raw| {}));
        running.handle.pause();
        running
    };
    add(&backend, 0..1).await;
    for name in ["alive", "silent"] {
        // A paused worker does not read, so the consumers have to be created.
        read_and_die(&backend, name, 1).await;
    }
    let workers = [paused("alive", Some(INTERVAL)), paused("silent", None)];
    let reaper = run(short(&backend).lease(ms(100)).reap(Some(ms(300))).handler(async |_: Raw| {}));
    let names =
        async || backend.consumers(STREAM, GROUP).await.unwrap().into_iter().map(|consumer| consumer.name);
    wait_until("the other consumer to be removed", async || !names().await.any(|name| name == "silent"))
        .await;
    assert!(names().await.any(|name| name == "alive"));
    reaper.drain().await;
    for worker in workers {
        worker.drain().await;
    }
}
