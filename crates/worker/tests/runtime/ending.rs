//! Pausing, draining, and recovery after a group or a stream was deleted.

use std::sync::Arc;
use std::time::Duration;

use millstream_worker::handler::{Data, Raw};
use millstream_worker::{Message, Outcome, WorkerName};

use crate::support::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn drain_finishes_running_messages_and_releases_prefetched_ones_immediately() {
    let backend = store().await;
    add(&backend, 0..20).await;
    let gate = Arc::new(Gate::default());
    let handler = async |_: Raw, gate: Data<Arc<Gate>>| gate.pass().await;
    let running = run(worker(&backend).concurrency(3).handler(handler).state(gate.clone()));
    wait_until("prefetched", async || gate.started() == 3 && pending(&backend).await.len() > 3).await;
    running.handle.drain();
    // Prefetched messages are released while the others still run, as if they were never delivered.
    wait_until("released", async || {
        let rows = pending(&backend).await;
        let (released, running): (Vec<_>, Vec<_>) = rows.iter().partition(|row| row.consumer.is_none());
        running.len() == 3 && !released.is_empty() && released.iter().all(|row| row.deliveries == 0)
    })
    .await;
    let released = pending(&backend).await.len() as u64 - 3;
    gate.open();
    let report = running.drain().await;
    assert_eq!((report.acknowledged, report.released, gate.started()), (3, released, 3));
    assert_eq!(report.received, 3 + released);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_drain_deadline_cancels_and_releases_running_messages() {
    let backend = store().await;
    add(&backend, 0..2).await;
    let handler = async |message: Message| {
        if message.text("n") == Some("0") {
            // This handler reacts to the cancellation and succeeds.
            message.cancelled.cancelled().await;
        } else {
            std::future::pending::<()>().await;
        }
    };
    let running = run(worker(&backend).drain(ms(100)).handler(handler));
    wait_until("started", async || running.handle.busy() == 2).await;
    let report = running.drain().await;
    assert_eq!((report.acknowledged, report.released, report.lost_leases), (1, 1, 0));
    let rows = pending(&backend).await;
    // The worker ended before the handler could answer, so the delivery does not count.
    assert_eq!((rows.len(), rows[0].consumer.as_deref(), rows[0].deliveries), (1, None, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn released_messages_are_delivered_without_waiting_for_the_lease() {
    let (backend, handled) = (store().await, Handled::default());
    add(&backend, 0..10).await;
    let gate = Arc::new(Gate::default());
    let handler = async |_: Raw, gate: Data<Arc<Gate>>| gate.pass().await;
    let first = run(worker(&backend).concurrency(10).drain(ms(20)).handler(handler).state(gate.clone()));
    wait_until("all running", async || gate.started() == 10).await;
    assert_eq!(first.drain().await.released, 10);
    let second = run(worker(&backend).lease(Duration::from_secs(3600)).state(handled.clone()).handler(
        async |message: Message, handled: Data<Handled>| {
            assert_eq!(message.attempt, 1);
            handled.count(number(&message));
        },
    ));
    wait_until("all done", async || all_done(&backend).await).await;
    second.drain().await;
    assert_eq!(handled.len(), 10);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drained_worker_removes_its_consumer_unless_its_name_is_fixed() {
    let backend = store().await;
    for (name, left) in [(WorkerName::unique(), 0), (WorkerName::given("clerk"), 1)] {
        add(&backend, 0..3).await;
        let running = run(worker(&backend).consumer_name(name).handler(async |_: Raw| {}));
        wait_until("all done", async || running.handle.stats().acknowledged == 3).await;
        running.drain().await;
        assert_eq!(backend.consumers(STREAM, GROUP).await.unwrap().len(), left);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_paused_worker_reads_nothing_and_releases_prefetched_messages() {
    let (backend, handled) = (store().await, Handled::default());
    let running = run(worker(&backend).state(handled.clone()).handler(
        async |message: Message, handled: Data<Handled>| {
            handled.count(number(&message));
        },
    ));
    add(&backend, 0..5).await;
    wait_until("the first", async || all_done(&backend).await).await;
    running.handle.pause();
    add(&backend, 5..10).await;
    // A read may have been in progress. Its messages are released.
    tokio::time::sleep(ms(100)).await;
    assert_eq!(handled.len(), 5);
    assert!(pending(&backend).await.iter().all(|row| row.consumer.is_none()));
    running.handle.resume();
    wait_until("all done", async || handled.len() == 10 && all_done(&backend).await).await;
    running.drain().await;
    assert!(handled.all_handled_once());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deleted_group_is_recreated_at_its_last_position() {
    let (backend, handled) = (store().await, Handled::default());
    let running = run(worker(&backend).lease(ms(600)).state(handled.clone()).handler(
        async |message: Message, handled: Data<Handled>| {
            handled.count(number(&message));
        },
    ));
    add(&backend, 0..50).await;
    wait_until("the first", async || handled.len() == 50 && all_done(&backend).await).await;
    assert!(backend.delete_group(STREAM, GROUP).await.unwrap());
    add(&backend, 50..100).await;
    wait_until("all done", async || handled.len() == 100 && all_done(&backend).await).await;
    running.drain().await;
    assert!(handled.all_handled_once(), "a message was handled again");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_released_after_its_group_was_deleted_is_delivered_again() {
    let (backend, handled, gate) = (store().await, Handled::default(), Arc::new(Gate::default()));
    add(&backend, 0..2).await;
    let handler = async |message: Message, handled: Data<Handled>, gate: Data<Arc<Gate>>| {
        let is_first = handled.count(number(&message)) == 1;
        if is_first && number(&message) == 0 {
            gate.pass().await;
            return Outcome::retry();
        }
        Outcome::Ack
    };
    let builder = worker(&backend).lease(Duration::from_secs(3600)).state(handled.clone());
    let running = run(builder.state(gate.clone()).handler(handler));
    wait_until("one is running", async || handled.len() == 2 && pending(&backend).await.len() == 1).await;
    // The worker does not read, so the release of the message detects that the group is gone.
    running.handle.pause();
    tokio::time::sleep(ms(1_500)).await;
    assert!(backend.delete_group(STREAM, GROUP).await.unwrap());
    gate.open();
    wait_until("recreated", async || !backend.groups(STREAM).await.unwrap().is_empty()).await;
    running.handle.resume();
    wait_until("all done", async || handled.times(0) == 2 && all_done(&backend).await).await;
    running.drain().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_recreated_stream_is_read_from_its_beginning() {
    let (backend, handled) = (store().await, Handled::default());
    let running = run(worker(&backend).lease(ms(600)).state(handled.clone()).handler(
        async |message: Message, handled: Data<Handled>| {
            handled.count(number(&message));
        },
    ));
    add(&backend, 0..10).await;
    wait_until("the first", async || handled.len() == 10 && all_done(&backend).await).await;
    assert!(backend.delete_stream(STREAM).await.unwrap());
    add(&backend, 10..20).await;
    wait_until("all done", async || handled.len() == 20 && all_done(&backend).await).await;
    running.drain().await;
    assert!(handled.all_handled_once());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idle_worker_drains_immediately() {
    let backend = store().await;
    let running = run(worker(&backend).handler(async |_: Raw| {}));
    let report = running.drain().await;
    assert_eq!(report.received, 0);
    assert_eq!(report.to_string(), "0 received, 0 acknowledged");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_invalid_listen_address_fails_the_start() {
    let backend = store().await;
    let worker = worker(&backend).handler(async |_: Raw| {}).listen("256.0.0.1:1").build().unwrap();
    let error = worker.run().await.unwrap_err();
    assert!(error.to_string().contains("256.0.0.1:1"), "{error}");
}
