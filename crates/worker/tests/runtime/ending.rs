//! Pausing, draining, and coming back after something was deleted underneath.

use std::sync::Arc;
use std::time::Duration;

use millstream_worker::handler::{Data, Raw};
use millstream_worker::{Message, Outcome, WorkerName};

use crate::support::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drain_finishes_what_runs_and_gives_back_the_rest_at_once() {
    let backend = store().await;
    add(&backend, 0..20).await;
    let gate = Arc::new(Gate::default());
    let handler = async |_: Raw, gate: Data<Arc<Gate>>| gate.pass().await;
    let running = run(worker(&backend).concurrency(3).handler(handler).state(gate.clone()));
    until("prefetched", async || gate.begun() == 3 && pending(&backend).await.len() > 3).await;
    running.handle.drain();
    // Given back while the others still run, and as if never delivered.
    until("released", async || {
        let rows = pending(&backend).await;
        let (released, running): (Vec<_>, Vec<_>) = rows.iter().partition(|row| row.consumer.is_none());
        running.len() == 3 && !released.is_empty() && released.iter().all(|row| row.deliveries == 0)
    })
    .await;
    let released = pending(&backend).await.len() as u64 - 3;
    gate.open();
    let report = running.end().await;
    assert_eq!((report.acknowledged, report.released, gate.begun()), (3, released, 3));
    assert_eq!(report.received, 3 + released);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn at_the_deadline_what_still_runs_is_cancelled_and_given_back() {
    let backend = store().await;
    add(&backend, 0..2).await;
    let handler = async |message: Message| {
        if message.text("n") == Some("0") {
            // This one listens, and ends well.
            message.cancelled.cancelled().await;
        } else {
            std::future::pending::<()>().await;
        }
    };
    let running = run(worker(&backend).drain(ms(100)).handler(handler));
    until("begun", async || running.handle.busy() == 2).await;
    let report = running.end().await;
    assert_eq!((report.acknowledged, report.released, report.lost_leases), (1, 1, 0));
    let rows = pending(&backend).await;
    // It was tried, and that counts.
    assert_eq!((rows.len(), rows[0].consumer.as_deref(), rows[0].deliveries), (1, None, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_given_back_is_done_by_others_without_waiting_for_a_lease() {
    let (backend, handled) = (store().await, Handled::default());
    add(&backend, 0..10).await;
    let first = run(worker(&backend).handler(async |_: Raw| Outcome::retry_after(Duration::from_secs(3600))));
    until("all waiting", async || first.handle.stats().retried == 10).await;
    first.end().await;
    let second = run(worker(&backend).lease(Duration::from_secs(3600)).state(handled.clone()).handler(
        async |message: Message, handled: Data<Handled>| {
            assert_eq!(message.attempt, 2);
            handled.count(number(&message));
        },
    ));
    until("all done", async || all_done(&backend).await).await;
    second.end().await;
    assert_eq!(handled.len(), 10);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drained_worker_leaves_its_group_unless_its_name_comes_back() {
    let backend = store().await;
    for (name, left) in [(WorkerName::unique(), 0), (WorkerName::given("clerk"), 1)] {
        add(&backend, 0..3).await;
        let running = run(worker(&backend).consumer_name(name).handler(async |_: Raw| {}));
        until("all done", async || running.handle.stats().acknowledged == 3).await;
        running.end().await;
        assert_eq!(backend.consumers(STREAM, GROUP).await.unwrap().len(), left);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_paused_worker_takes_nothing_and_keeps_nothing() {
    let (backend, handled) = (store().await, Handled::default());
    let running = run(worker(&backend).state(handled.clone()).handler(
        async |message: Message, handled: Data<Handled>| {
            handled.count(number(&message));
        },
    ));
    add(&backend, 0..5).await;
    until("the first", async || all_done(&backend).await).await;
    running.handle.pause();
    assert!(!running.handle.is_taking());
    add(&backend, 5..10).await;
    // One read may still have been under way: what it brought is given back.
    tokio::time::sleep(ms(100)).await;
    assert_eq!(handled.len(), 5);
    assert!(pending(&backend).await.iter().all(|row| row.consumer.is_none()));
    running.handle.resume();
    until("all done", async || handled.len() == 10 && all_done(&backend).await).await;
    running.end().await;
    assert!(handled.each_once());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deleted_group_is_made_again_where_it_was() {
    let (backend, handled) = (store().await, Handled::default());
    let running = run(worker(&backend).lease(ms(600)).state(handled.clone()).handler(
        async |message: Message, handled: Data<Handled>| {
            handled.count(number(&message));
        },
    ));
    add(&backend, 0..50).await;
    until("the first", async || handled.len() == 50 && all_done(&backend).await).await;
    assert!(backend.delete_group(STREAM, GROUP).await.unwrap());
    add(&backend, 50..100).await;
    until("all done", async || handled.len() == 100 && all_done(&backend).await).await;
    running.end().await;
    assert!(handled.each_once(), "what was done before is not done again");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_given_back_to_a_deleted_group_comes_again() {
    let (backend, handled) = (store().await, Handled::default());
    add(&backend, 0..2).await;
    let handler = async |message: Message, handled: Data<Handled>| {
        let is_first = handled.count(number(&message)) == 1;
        if is_first && number(&message) == 0 { Outcome::retry_after(ms(3_000)) } else { Outcome::Ack }
    };
    let running =
        run(worker(&backend).lease(Duration::from_secs(3600)).state(handled.clone()).handler(handler));
    until("one waits", async || handled.len() == 2 && pending(&backend).await.len() == 1).await;
    // Nobody reads: that it is gone is found by the one who gives the message back.
    running.handle.pause();
    tokio::time::sleep(ms(1_500)).await;
    assert!(backend.delete_group(STREAM, GROUP).await.unwrap());
    until("made again", async || !backend.groups(STREAM).await.unwrap().is_empty()).await;
    running.handle.resume();
    until("all done", async || handled.times(0) == 2 && all_done(&backend).await).await;
    running.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deleted_stream_is_read_from_its_new_beginning() {
    let (backend, handled) = (store().await, Handled::default());
    let running = run(worker(&backend).lease(ms(600)).state(handled.clone()).handler(
        async |message: Message, handled: Data<Handled>| {
            handled.count(number(&message));
        },
    ));
    add(&backend, 0..10).await;
    until("the first", async || handled.len() == 10 && all_done(&backend).await).await;
    assert!(backend.delete_stream(STREAM).await.unwrap());
    add(&backend, 10..20).await;
    until("all done", async || handled.len() == 20 && all_done(&backend).await).await;
    running.end().await;
    assert!(handled.each_once());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_never_had_anything_to_do_ends_at_once() {
    let backend = store().await;
    let running = run(worker(&backend).handler(async |_: Raw| {}));
    let report = running.end().await;
    assert_eq!(report.received, 0);
    assert_eq!(report.to_string(), "0 received, 0 acknowledged");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_key_is_told_at_the_start() {
    let backend = store().await;
    let worker = worker(&backend).handler(async |_: Raw| {}).listen("256.0.0.1:1").build().unwrap();
    let error = worker.run().await.unwrap_err();
    assert!(error.to_string().contains("256.0.0.1:1"), "{error}");
}
