//! Retries that survive restarts and crashes: attempts, due times and the two limits.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use millstream_worker::backend::Admin;
use millstream_worker::handler::{Data, Raw};
use millstream_worker::names::retry_key;
use millstream_worker::outcome::{HandlerError, Outcome, Reason};
use millstream_worker::redrive::{Redrive, redrive};
use millstream_worker::retry_record::RetryRecord;
use millstream_worker::{Backoff, Message, WorkerBuilder};

use crate::support::*;

const HOUR: Duration = Duration::from_secs(3600);

async fn records(backend: &Arc<dyn Admin>) -> Vec<RetryRecord> {
    let all = backend.hash_get_all(&retry_key(STREAM, GROUP)).await.unwrap();
    all.iter().map(|(_, json)| RetryRecord::parse(json)).collect()
}

/// A worker whose handler fails with `the bank is closed` and counts its runs.
fn failing(backend: &Arc<dyn Admin>, handled: &Handled) -> WorkerBuilder {
    worker(backend).state(handled.clone()).handler(async |message: Message, handled: Data<Handled>| {
        handled.count(number(&message));
        Err::<(), _>(HandlerError::retry("the bank is closed"))
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_time_of_the_next_attempt_survives_drains_and_crashes() {
    let (backend, handled) = (store().await, Handled::default());
    add(&backend, 0..3).await;
    for round in 0..4 {
        let running = run(failing(&backend, &handled).lease(ms(100)).retry(Backoff::fixed(HOUR)));
        wait_until("all wait", async || records(&backend).await.len() == 3).await;
        // Longer than a lease.
        tokio::time::sleep(ms(150)).await;
        match round % 2 {
            0 => running.kill().await,
            _ => assert_eq!(running.drain().await.released, 0),
        }
    }
    assert!(handled.len() == 3 && handled.all_handled_once(), "an attempt ran before its time");
    assert!(dead_letters(&backend).await.is_empty());
    let now_ms = backend.now_ms(STREAM).await.unwrap();
    for record in records(&backend).await {
        assert_eq!((record.attempts, &*record.error, &*record.reason), (1, "the bank is closed", "failed"));
        let half_an_hour_ms = 1_800_000;
        assert!(record.due_at_ms > now_ms + half_an_hour_ms - 60_000, "{record:?} {now_ms}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_last_attempt_that_fails_is_dead_lettered_even_if_each_ran_in_another_worker() {
    let (backend, handled) = (store().await, Handled::default());
    add(&backend, 0..1).await;
    for attempt in 1..=4 {
        let running = run(failing(&backend, &handled).max_attempts(4).max_deliveries(1));
        wait_until("failed", async || handled.times(0) >= attempt).await;
        running.drain().await;
    }
    let running = run(failing(&backend, &handled).max_attempts(4).max_deliveries(1));
    wait_until("dead", async || all_done(&backend).await).await;
    running.drain().await;
    let dead_letter = dead_letters(&backend).await.remove(0);
    assert_eq!((dead_letter.reason, dead_letter.deliveries), (Some(Reason::MaxAttempts), 4));
    assert_eq!((dead_letter.error.as_str(), handled.times(0)), ("the bank is closed", 4));
    assert_eq!(records(&backend).await, [], "the record stayed");
}

/// Answered failures and deliveries without an answer have separate limits, and the attempt counts both.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failures_and_crashes_are_counted_separately() {
    let (backend, handled) = (store().await, Handled::default());
    let ids = add(&backend, 0..1).await;
    read_and_die(&backend, "first", 1).await;
    assert_eq!(claim_all(&backend, "second").await, 1);
    let handler = async |message: Message, handled: Data<Handled>| {
        assert_eq!(message.attempt, handled.count(number(&message)) + 2);
        if message.attempt < 6 { Outcome::retry() } else { Outcome::Ack }
    };
    let builder = worker(&backend).handler(handler).state(handled.clone());
    let running = run(builder.lease(ms(100)).max_deliveries(3).max_attempts(9));
    wait_until("done", async || all_done(&backend).await).await;
    let report = running.drain().await;
    assert_eq!((report.retried, report.acknowledged, report.panics, ids.len()), (3, 1, 0, 1));
    assert_eq!(records(&backend).await, [], "the record stayed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drain_that_overruns_costs_neither_a_delivery_nor_an_attempt() {
    let (backend, gate) = (store().await, Arc::new(Gate::default()));
    add(&backend, 0..1).await;
    let handler = async |message: Message, gate: Data<Arc<Gate>>| {
        assert_eq!(message.attempt, 1);
        gate.pass().await;
    };
    for started in 1..=7 {
        let running = run(worker(&backend).drain(ms(1)).state(gate.clone()).handler(handler));
        wait_until("started", async || gate.started() == started).await;
        assert_eq!(running.drain().await.released, 1);
    }
    gate.open();
    let running = run(worker(&backend).state(gate.clone()).handler(handler));
    wait_until("done", async || all_done(&backend).await).await;
    assert_eq!(running.drain().await.acknowledged, 1);
}

/// The handler asks for a delay of its own, for example from `Retry-After`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_delay_that_the_handler_asked_for_survives_a_crash() {
    let (backend, handled) = (store().await, Handled::default());
    add(&backend, 0..1).await;
    let build = || {
        worker(&backend).state(handled.clone()).handler(async |message: Message, handled: Data<Handled>| {
            match handled.count(number(&message)) {
                1 => Outcome::retry_after(ms(1_500)),
                _ => Outcome::Ack,
            }
        })
    };
    let first = run(build());
    wait_until("waits", async || first.handle.stats().retried == 1).await;
    let failed_at_ms = records(&backend).await[0].failed_at_ms;
    first.kill().await;
    let second = run(build());
    wait_until("done", async || all_done(&backend).await).await;
    assert!(backend.now_ms(STREAM).await.unwrap() >= failed_at_ms + 1_500, "the attempt ran before its time");
    second.drain().await;
    assert_eq!((handled.times(0), records(&backend).await.len()), (2, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redriven_message_starts_again_with_its_first_attempt() {
    let (backend, handled) = (store().await, Handled::default());
    let ids = add(&backend, 0..1).await;
    let running = run(failing(&backend, &handled).max_attempts(1));
    wait_until("dead", async || all_done(&backend).await).await;
    running.drain().await;
    // A record that stayed by mistake.
    let stale = RetryRecord { attempts: 20, ..RetryRecord::default() };
    let pair = (ids[0].to_string(), Bytes::from(stale.to_json()));
    backend.hash_set(&retry_key(STREAM, GROUP), &[pair]).await.unwrap();
    assert_eq!(redrive(&*backend, DEAD, &Redrive::default(), |_| {}).await.unwrap().redriven, 1);
    let running = run(worker(&backend).handler(async |message: Message| assert_eq!(message.attempt, 1)));
    wait_until("done", async || all_done(&backend).await).await;
    assert_eq!(running.drain().await.acknowledged, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_that_waits_when_its_group_is_deleted_is_delivered_again() {
    let (backend, handled) = (store().await, Handled::default());
    add(&backend, 0..20).await;
    let handler = async |message: Message, handled: Data<Handled>| {
        let is_first = handled.count(number(&message)) == 1;
        if is_first && number(&message) == 3 { Outcome::retry_after(HOUR) } else { Outcome::Ack }
    };
    let running = run(worker(&backend).lease(ms(600)).state(handled.clone()).handler(handler));
    wait_until("waits", async || handled.len() == 20 && pending(&backend).await.len() == 1).await;
    assert!(backend.delete_group(STREAM, GROUP).await.unwrap());
    wait_until("done", async || {
        handled.times(3) == 2 && !backend.groups(STREAM).await.unwrap().is_empty() && all_done(&backend).await
    })
    .await;
    running.drain().await;
    assert!((0..20).filter(|n| *n != 3).all(|n| handled.times(n) == 1), "another message was handled again");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_group_does_not_inherit_records_of_an_earlier_one() {
    let (backend, handled) = (store().await, Handled::default());
    let ids = add(&backend, 0..1).await;
    let due_at_ms = backend.now_ms(STREAM).await.unwrap() + 3_600_000;
    let stale = Bytes::from(RetryRecord { attempts: 20, due_at_ms, ..RetryRecord::default() }.to_json());
    let pairs = [(ids[0].to_string(), stale.clone()), ("1-1".to_owned(), stale)];
    backend.hash_set(&retry_key(STREAM, GROUP), &pairs).await.unwrap();
    let running = run(failing(&backend, &handled).max_attempts(1));
    wait_until("dead", async || handled.times(0) == 1 && all_done(&backend).await).await;
    running.drain().await;
    assert_eq!(records(&backend).await, [], "the records of the earlier group are gone");
}

/// A worker must not begin to handle messages if it could not remember their failures.
#[tokio::test]
async fn a_retry_key_of_another_type_fails_the_start() {
    let backend = store().await;
    backend.add(&retry_key(STREAM, GROUP), &[entry()], None).await.unwrap();
    let worker = worker(&backend).handler(async |_: Raw| {}).build().unwrap();
    let error = worker.run().await.unwrap_err();
    let expected =
        format!("{}: the key exists and is not a hash; delete or rename it", retry_key(STREAM, GROUP));
    assert!(error.to_string().contains(&expected), "{error}");
}

fn entry() -> millstream_worker::backend::NewEntry {
    millstream_worker::backend::NewEntry { fields: vec![("n".into(), "1".into())], idempotence: None }
}
