//! Whose a message is: leases that are kept, leases that are lost, and what dead workers leave behind.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use millstream_worker::backend::{Consumer, Release};
use millstream_worker::handler::{Data, Raw};
use millstream_worker::outcome::Outcome;
use millstream_worker::{Message, WorkerName};

use crate::support::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_handler_keeps_its_message_from_others() {
    let (backend, handled) = (store().await, Handled::default());
    // More than can run at once: those that wait in the queue must be kept too.
    add(&backend, 0..6).await;
    let gate = Arc::new(Gate::default());
    let handler = async |message: Message, handled: Data<Handled>, gate: Data<Arc<Gate>>| {
        handled.count(number(&message));
        gate.pass().await;
    };
    // Long enough that no hiccup of a busy machine loses it.
    let lease = Duration::from_secs(3);
    let slow = worker(&backend).concurrency(3).lease(lease).state(handled.clone()).state(gate.clone());
    let slow = run(slow.handler(handler));
    until("prefetched", async || gate.begun() == 3 && pending(&backend).await.len() > 3).await;
    // Nothing more is read while all slots are taken and some wait.
    let held = pending(&backend).await.len() as u64;
    let thief = run(worker(&backend).lease(lease).handler(async |_: Raw| {}));
    tokio::time::sleep(lease * 2).await;
    let stolen = thief.end().await;
    assert_eq!((stolen.received, stolen.redelivered, handled.len()), (6 - held, 0, 3));
    gate.open();
    until("all done", async || all_done(&backend).await).await;
    let report = slow.end().await;
    assert_eq!((report.acknowledged, report.lost_leases, report.redelivered), (held, 0, 0));
    assert!(handled.each_once());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_lease_cancels_the_handler_and_its_outcome_does_not_count() {
    let backend = store().await;
    add(&backend, 0..2).await;
    let gate = Arc::new(Gate::default());
    let handler = async |message: Message, gate: Data<Arc<Gate>>| {
        gate.begun.fetch_add(1, Ordering::SeqCst);
        message.cancelled.cancelled().await;
        gate.cancelled.fetch_add(1, Ordering::SeqCst);
        Outcome::Ack
    };
    let running = run(worker(&backend).lease(Duration::from_secs(2)).handler(handler).state(gate.clone()));
    until("begun", async || gate.begun() == 2).await;
    assert_eq!(steal(&backend, "thief").await, 2);
    until("cancelled", async || gate.cancelled.load(Ordering::SeqCst) == 2).await;
    let report = running.end().await;
    assert_eq!((report.lost_leases, report.acknowledged, report.released), (2, 0, 0));
    // Nothing was taken back, and nothing acknowledged.
    let rows = pending(&backend).await;
    assert_eq!(rows.len(), 2);
    assert!(rows.iter().all(|row| row.consumer.as_deref() == Some("thief")), "{rows:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_that_does_not_listen_is_dropped() {
    let backend = store().await;
    add(&backend, 0..1).await;
    let gate = Arc::new(Gate::default());
    let handler = async |_: Raw, gate: Data<Arc<Gate>>| gate.pass().await;
    // The lease of the thief is renewed by nobody: it must outlast the test.
    let builder = worker(&backend).lease(Duration::from_secs(3)).concurrency(1).state(gate.clone());
    let running = run(builder.handler(handler));
    until("begun", async || gate.begun() == 1).await;
    assert_eq!(steal(&backend, "thief").await, 1);
    until("lost", async || running.handle.stats().lost_leases == 1).await;
    until("slot free", async || running.handle.busy() == 0).await;
    let report = running.end().await;
    assert_eq!(report.acknowledged, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_dead_worker_left_is_taken_over() {
    let (backend, handled) = (store().await, Handled::default());
    add(&backend, 0..1500).await;
    // More than one page of them.
    assert_eq!(read_and_die(&backend, "dead", 1400).await.len(), 1400);
    let running = run(worker(&backend).lease(ms(200)).state(handled.clone()).handler(
        async |message: Message, handled: Data<Handled>| {
            handled.count(number(&message));
        },
    ));
    until("all done", async || all_done(&backend).await).await;
    let text = running.handle.metrics_text().await;
    let report = running.end().await;
    assert_eq!((report.acknowledged, report.redelivered, handled.len()), (1500, 1400, 1500));
    assert!(handled.each_once());
    assert!(
        text.contains("millstream_reclaimed_total{stream=\"orders\",group=\"billing\"} 1400\n"),
        "{text}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_lost_while_it_waited_is_not_begun() {
    let backend = store().await;
    add(&backend, 0..2).await;
    let gate = Arc::new(Gate::default());
    let handler = async |_: Raw, gate: Data<Arc<Gate>>| gate.pass().await;
    let lease = Duration::from_secs(6);
    let running = run(worker(&backend).concurrency(1).lease(lease).handler(handler).state(gate.clone()));
    until("one begun, the other waits", async || gate.begun() == 1 && pending(&backend).await.len() == 2)
        .await;
    assert_eq!(steal(&backend, "thief").await, 2);
    // The lease is looked after every third of it; then the handler that runs has half a second.
    tokio::time::sleep(lease / 3 + ms(1_000)).await;
    assert_eq!(gate.begun(), 1);
    let report = running.end().await;
    assert_eq!((report.lost_leases, report.released), (2, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_worker_loses_nothing() {
    let (backend, handled) = (store().await, Handled::default());
    add(&backend, 0..300).await;
    let builder = || {
        let builder = worker(&backend).lease(ms(300)).state(handled.clone());
        builder.handler(async |message: Message, handled: Data<Handled>| {
            tokio::time::sleep(ms(2)).await;
            handled.count(number(&message));
        })
    };
    for _ in 0..3 {
        let doomed = run(builder());
        let before = handled.len();
        until("something done", async || handled.len() > before).await;
        doomed.kill().await;
    }
    let running = run(builder());
    until("all done", async || all_done(&backend).await).await;
    running.end().await;
    assert_eq!(handled.numbers(), (0..300).collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stable_name_begins_with_what_it_left() {
    let (backend, handled) = (store().await, Handled::default());
    add(&backend, 0..5).await;
    read_and_die(&backend, WorkerName::stable(1).as_str(), 5).await;
    // The lease is long: nobody could take it over, only who comes back under the name.
    let running = run(worker(&backend)
        .lease(Duration::from_secs(3600))
        .consumer_name(WorkerName::stable(1))
        .state(handled.clone())
        .handler(async |message: Message, handled: Data<Handled>| {
            assert_eq!(message.attempt, 2, "a restart counts as a delivery");
            handled.count(number(&message));
        }));
    until("all done", async || all_done(&backend).await).await;
    running.end().await;
    assert_eq!(handled.len(), 5);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_stable_name_claims_at_its_start_is_not_taken_for_what_it_left() {
    let (backend, gate) = (store().await, Arc::new(Gate::default()));
    add(&backend, 0..1100).await;
    // Enough to be looked through in several calls, and behind it what is claimed as soon as somebody looks.
    read_and_die(&backend, "name", 1000).await;
    let taken = read_and_die(&backend, "other", 100).await;
    let free: Vec<Release> = taken.into_iter().map(|id| Release::counted(id, 1)).collect();
    assert_eq!(backend.release(Consumer::new(STREAM, GROUP, "other"), &free).await.unwrap(), 100);
    let running = run(worker(&backend)
        .lease(Duration::from_secs(3600))
        .concurrency(1100)
        .consumer_name("name")
        .state(gate.clone())
        .handler(async |_: Raw, gate: Data<Arc<Gate>>| gate.pass().await));
    until("all begun", async || gate.begun() == 1100).await;
    let rows = pending(&backend).await;
    gate.open();
    running.end().await;
    assert_eq!(rows.len(), 1100);
    assert!(rows.iter().all(|row| row.deliveries == 2), "one delivery before the start and one after it");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn consumers_that_are_gone_are_removed_and_what_they_left_is_done() {
    let (backend, handled) = (store().await, Handled::default());
    add(&backend, 0..3).await;
    read_and_die(&backend, "gone", 3).await;
    let running = run(worker(&backend)
        .lease(ms(100))
        .reap(Some(ms(400)))
        .consumer_name("here")
        .state(handled.clone())
        .handler(async |message: Message, handled: Data<Handled>| {
            handled.count(number(&message));
        }));
    until("removed and done", async || {
        let consumers = backend.consumers(STREAM, GROUP).await.unwrap();
        all_done(&backend).await && consumers.iter().all(|consumer| consumer.name == "here")
    })
    .await;
    running.end().await;
    assert_eq!(handled.len(), 3);
}
