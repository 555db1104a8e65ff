//! Ownership of messages: leases that are extended, leases that are lost, and messages of dead workers.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use millstream_worker::backend::{Consumer, Release};
use millstream_worker::handler::{Data, Raw};
use millstream_worker::outcome::Outcome;
use millstream_worker::{Message, WorkerName};

use crate::support::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leases_of_running_and_prefetched_messages_are_extended() {
    let (backend, handled) = (store().await, Handled::default());
    // More messages than slots: the leases of prefetched messages must be extended too.
    add(&backend, 0..6).await;
    let gate = Arc::new(Gate::default());
    let handler = async |message: Message, handled: Data<Handled>, gate: Data<Arc<Gate>>| {
        handled.count(number(&message));
        gate.pass().await;
    };
    // Long enough that the worker keeps its lease on a busy machine.
    let lease = Duration::from_secs(3);
    let slow = worker(&backend).concurrency(3).lease(lease).state(handled.clone()).state(gate.clone());
    let slow = run(slow.handler(handler));
    wait_until("prefetched", async || gate.started() == 3 && pending(&backend).await.len() > 3).await;
    // The worker reads no more while all slots are busy and messages are prefetched.
    let owned = pending(&backend).await.len() as u64;
    let other = run(worker(&backend).lease(lease).handler(async |_: Raw| {}));
    tokio::time::sleep(lease * 2).await;
    let report_of_other = other.drain().await;
    assert_eq!((report_of_other.received, report_of_other.redelivered, handled.len()), (6 - owned, 0, 3));
    gate.open();
    wait_until("all done", async || all_done(&backend).await).await;
    let report = slow.drain().await;
    assert_eq!((report.acknowledged, report.lost_leases, report.redelivered), (owned, 0, 0));
    assert!(handled.all_handled_once());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_lease_cancels_the_handler_and_discards_its_outcome() {
    let backend = store().await;
    add(&backend, 0..2).await;
    let gate = Arc::new(Gate::default());
    let handler = async |message: Message, gate: Data<Arc<Gate>>| {
        gate.started.fetch_add(1, Ordering::SeqCst);
        message.cancelled.cancelled().await;
        gate.cancelled.fetch_add(1, Ordering::SeqCst);
        Outcome::Ack
    };
    let running = run(worker(&backend).lease(Duration::from_secs(2)).handler(handler).state(gate.clone()));
    wait_until("started", async || gate.started() == 2).await;
    assert_eq!(claim_all(&backend, "other").await, 2);
    wait_until("cancelled", async || gate.cancelled.load(Ordering::SeqCst) == 2).await;
    let report = running.drain().await;
    assert_eq!((report.lost_leases, report.acknowledged, report.released), (2, 0, 0));
    // The worker neither claimed the messages back nor acknowledged them.
    let rows = pending(&backend).await;
    assert_eq!(rows.len(), 2);
    assert!(rows.iter().all(|row| row.consumer.as_deref() == Some("other")), "{rows:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_that_ignores_cancellation_is_dropped() {
    let backend = store().await;
    add(&backend, 0..1).await;
    let gate = Arc::new(Gate::default());
    let handler = async |_: Raw, gate: Data<Arc<Gate>>| gate.pass().await;
    // The other consumer does not extend its lease, so the lease must outlast the test.
    let builder = worker(&backend).lease(Duration::from_secs(3)).concurrency(1).state(gate.clone());
    let running = run(builder.handler(handler));
    wait_until("started", async || gate.started() == 1).await;
    assert_eq!(claim_all(&backend, "other").await, 1);
    wait_until("lost", async || running.handle.stats().lost_leases == 1).await;
    wait_until("slot free", async || running.handle.busy() == 0).await;
    let report = running.drain().await;
    assert_eq!(report.acknowledged, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_of_a_dead_worker_are_claimed() {
    let (backend, handled) = (store().await, Handled::default());
    add(&backend, 0..1500).await;
    // More than one page of pending messages.
    assert_eq!(read_and_die(&backend, "dead", 1400).await.len(), 1400);
    let running = run(worker(&backend).lease(ms(200)).state(handled.clone()).handler(
        async |message: Message, handled: Data<Handled>| {
            handled.count(number(&message));
        },
    ));
    wait_until("all done", async || all_done(&backend).await).await;
    let text = running.handle.metrics_text().await;
    let report = running.drain().await;
    assert_eq!((report.acknowledged, report.redelivered, handled.len()), (1500, 1400, 1500));
    assert!(handled.all_handled_once());
    assert!(
        text.contains("millstream_reclaimed_total{stream=\"orders\",group=\"billing\"} 1400\n"),
        "{text}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_prefetched_message_whose_lease_is_lost_is_not_started() {
    let backend = store().await;
    add(&backend, 0..2).await;
    let gate = Arc::new(Gate::default());
    let handler = async |_: Raw, gate: Data<Arc<Gate>>| gate.pass().await;
    let lease = Duration::from_secs(6);
    let running = run(worker(&backend).concurrency(1).lease(lease).handler(handler).state(gate.clone()));
    wait_until("one started, the other prefetched", async || {
        gate.started() == 1 && pending(&backend).await.len() == 2
    })
    .await;
    assert_eq!(claim_all(&backend, "other").await, 2);
    // The worker checks leases after each third of a lease. Then the running handler has half a second to stop.
    tokio::time::sleep(lease / 3 + ms(1_000)).await;
    assert_eq!(gate.started(), 1);
    let report = running.drain().await;
    assert_eq!((report.lost_leases, report.released), (2, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_worker_loses_no_message() {
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
        let victim = run(builder());
        let before = handled.len();
        wait_until("something done", async || handled.len() > before).await;
        victim.kill().await;
    }
    let running = run(builder());
    wait_until("all done", async || all_done(&backend).await).await;
    running.drain().await;
    assert_eq!(handled.numbers(), (0..300).collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_with_a_stable_name_resumes_its_pending_messages() {
    let (backend, handled) = (store().await, Handled::default());
    add(&backend, 0..5).await;
    read_and_die(&backend, WorkerName::stable(1).as_str(), 5).await;
    // The lease is long, so only a worker with the same name can get the messages.
    let running = run(worker(&backend)
        .lease(Duration::from_secs(3600))
        .consumer_name(WorkerName::stable(1))
        .state(handled.clone())
        .handler(async |message: Message, handled: Data<Handled>| {
            assert_eq!(message.attempt, 2, "a restart counts as a delivery");
            handled.count(number(&message));
        }));
    wait_until("all done", async || all_done(&backend).await).await;
    running.drain().await;
    assert_eq!(handled.len(), 5);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_claimed_at_the_start_are_not_resumed_as_own_messages() {
    let (backend, handled) = (store().await, Handled::default());
    add(&backend, 0..1100).await;
    // The worker's own pending messages take several calls. After them come released messages, which it claims at its
    // start.
    read_and_die(&backend, "name", 1000).await;
    let taken = read_and_die(&backend, "other", 100).await;
    let released: Vec<Release> = taken.into_iter().map(|id| Release::counted(id, 1)).collect();
    assert_eq!(backend.release(Consumer::new(STREAM, GROUP, "other"), &released).await.unwrap(), 100);
    let running = run(worker(&backend)
        .lease(Duration::from_secs(3600))
        .concurrency(1100)
        .consumer_name("name")
        .state(handled.clone())
        .handler(async |message: Message, handled: Data<Handled>| {
            if message.attempt == 2 {
                handled.count(number(&message));
            }
        }));
    wait_until("all done", async || all_done(&backend).await).await;
    let report = running.drain().await;
    assert_eq!((report.received, report.acknowledged, handled.len()), (1100, 1100, 1100), "{report}");
    assert!(handled.all_handled_once(), "a message was delivered more than once after the start");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dead_consumers_are_removed_and_their_messages_handled() {
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
    wait_until("removed and done", async || {
        let consumers = backend.consumers(STREAM, GROUP).await.unwrap();
        all_done(&backend).await && consumers.iter().all(|consumer| consumer.name == "here")
    })
    .await;
    running.drain().await;
    assert_eq!(handled.len(), 3);
}
