//! Outcomes of handlers, and their effects.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use millstream_worker::backend::{NewEntry, Start};
use millstream_worker::handler::{Attempt, Data, Raw};
use millstream_worker::outcome::{Failure, HandlerError, Outcome, Reason};
use millstream_worker::{Dedupe, Message, Worker};

use crate::support::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_message_is_handled_once_and_acknowledged() {
    let (backend, handled) = (store().await, Handled::default());
    add(&backend, 0..500).await;
    let running = run(worker(&backend).state(handled.clone()).handler(
        async |message: Message, handled: Data<Handled>| {
            handled.count(number(&message));
        },
    ));
    add(&backend, 500..1000).await;
    wait_until("all done", async || all_done(&backend).await && handled.len() == 1000).await;
    let report = running.drain().await;
    assert!(handled.all_handled_once());
    assert_eq!((report.received, report.acknowledged), (1000, 1000));
    assert_eq!((report.redelivered, report.released, report.dead), (0, 0, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn handlers_run_concurrently() {
    #[derive(Default)]
    struct Slots {
        now: AtomicUsize,
        most: AtomicUsize,
    }
    let (backend, slots) = (store().await, Arc::new(Slots::default()));
    add(&backend, 0..40).await;
    let handler = async |_: Raw, slots: Data<Arc<Slots>>| {
        slots.most.fetch_max(slots.now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        tokio::time::sleep(ms(10)).await;
        slots.now.fetch_sub(1, Ordering::SeqCst);
    };
    let running = run(worker(&backend).concurrency(4).handler(handler).state(slots.clone()));
    wait_until("all done", async || all_done(&backend).await).await;
    running.drain().await;
    assert_eq!(slots.most.load(Ordering::SeqCst), 4);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_message_is_retried_with_an_increasing_attempt() {
    let (backend, handled) = (store().await, Handled::default());
    add(&backend, 0..20).await;
    let handler = async |message: Message, Attempt(attempt): Attempt, handled: Data<Handled>| {
        let times = handled.count(number(&message));
        assert_eq!(times, attempt, "the attempt differs from the number of runs");
        if number(&message) != 7 {
            return Ok(());
        }
        if attempt < 3 { Err(HandlerError::retry("not yet")) } else { Ok(()) }
    };
    let running = run(worker(&backend).handler(handler).state(handled.clone()));
    wait_until("all done", async || all_done(&backend).await && handled.len() == 20).await;
    let report = running.drain().await;
    assert_eq!((handled.times(7), report.panics), (3, 0));
    assert_eq!((report.acknowledged, report.retried, report.dead), (20, 2, 0));
    assert!(dead_letters(&backend).await.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_delayed_retry_does_not_block_other_messages() {
    let (backend, handled) = (store().await, Handled::default());
    add(&backend, 0..100).await;
    let handler = async |message: Message, handled: Data<Handled>| {
        handled.count(number(&message));
        if number(&message).is_multiple_of(2) {
            Outcome::retry_after(Duration::from_secs(3600))
        } else {
            Outcome::Ack
        }
    };
    let running = run(worker(&backend).concurrency(1).handler(handler).state(handled.clone()));
    wait_until("the rest done", async || handled.len() == 100 && pending(&backend).await.len() == 50).await;
    wait_until("all wait", async || running.handle.stats().retried == 50).await;
    // The delayed messages wait in the store. Their deliveries do not count, because the handler answered.
    let rows = pending(&backend).await;
    assert!(rows.iter().all(|row| row.consumer.is_none() && row.deliveries == 0), "{rows:?}");
    let report = running.drain().await;
    assert_eq!((report.acknowledged, report.retried, report.released), (50, 50, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn panics_and_timeouts_are_retried_and_dead_lettered() {
    let backend = store().await;
    add(&backend, 0..3).await;
    let handler = async |message: Message| match number(&message) {
        0 => panic!("the handler is broken"),
        1 => std::future::pending().await,
        _ => {}
    };
    let running = run(worker(&backend).handler(handler).timeout(ms(100)).max_attempts(2));
    wait_until("all done", async || all_done(&backend).await).await;
    let report = running.drain().await;
    assert_eq!((report.acknowledged, report.dead, report.panics, report.timeouts), (1, 2, 2, 2));
    let mut reasons: Vec<Reason> =
        dead_letters(&backend).await.iter().filter_map(|dead_letter| dead_letter.reason).collect();
    reasons.sort();
    assert_eq!(reasons, [Reason::Panic, Reason::Timeout]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_that_cannot_start_leaves_no_dead_letter() {
    let (backend, handled) = (store().await, Handled::default());
    add(&backend, 0..1).await;
    let handler = async |message: Message, handled: Data<Handled>| match handled.count(number(&message)) {
        1..=5 => {
            assert_eq!(message.attempt, 1);
            let (error, error_type) = ("no such program".to_owned(), "start".to_owned());
            Outcome::NotStarted(Failure { error, error_type, reason: Reason::Failed })
        }
        _ => Outcome::Ack,
    };
    let running =
        run(worker(&backend).handler(handler).state(handled.clone()).max_attempts(2).max_deliveries(2));
    wait_until("all done", async || all_done(&backend).await).await;
    let report = running.drain().await;
    assert_eq!((report.acknowledged, report.dead, report.retried, report.panics), (1, 0, 5, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn skipped_messages_are_acknowledged_and_counted_separately() {
    let backend = store().await;
    add(&backend, 0..4).await;
    let running = run(worker(&backend)
        .handler(async |message: Message| if number(&message) == 0 { Outcome::Ack } else { Outcome::Skip }));
    wait_until("all done", async || all_done(&backend).await).await;
    let report = running.drain().await;
    assert_eq!((report.acknowledged, report.skipped), (1, 3));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_handler_returns_an_outcome_for_each_message() {
    let (backend, handled) = (store().await, Handled::default());
    add(&backend, 0..25).await;
    let sizes = Arc::new(std::sync::Mutex::new(Vec::new()));
    let handler =
        async |messages: Vec<Message>, sizes: Data<Sizes>, handled: Data<Handled>| -> Vec<Outcome> {
            sizes.0.0.lock().unwrap().push(messages.len());
            messages
                .iter()
                .map(|message| match (number(message), handled.count(number(message))) {
                    (3, 1) => Outcome::retry(),
                    (4, _) => Outcome::reject("no fours"),
                    (5, _) => Outcome::Skip,
                    _ => Outcome::Ack,
                })
                .collect()
        };
    struct Sizes(Arc<std::sync::Mutex<Vec<usize>>>);
    let running = run(worker(&backend)
        .concurrency(1)
        .batch_handler(handler, 10, ms(50))
        .state(Sizes(sizes.clone()))
        .state(handled.clone()));
    wait_until("all done", async || all_done(&backend).await).await;
    let report = running.drain().await;
    assert_eq!((report.acknowledged, report.skipped, report.dead, report.retried), (23, 1, 1, 1));
    assert_eq!((handled.times(3), handled.times(4), handled.len()), (2, 1, 25));
    assert_eq!(sizes.lock().unwrap().iter().max(), Some(&10));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dedupe_handles_each_key_once_within_its_window() {
    let (backend, handled) = (store().await, Handled::default());
    // Add each key twice in a row, so that both copies are in flight together, and once more later.
    for n in 0..10 {
        add(&backend, n..n + 1).await;
        add(&backend, n..n + 1).await;
    }
    let running = run(worker(&backend)
        .dedupe(Dedupe::within(Duration::from_secs(600)).by_field("n"))
        .state(handled.clone())
        .handler(async |message: Message, handled: Data<Handled>| {
            handled.count(number(&message));
            tokio::time::sleep(ms(5)).await;
        }));
    wait_until("the first ones", async || all_done(&backend).await).await;
    add(&backend, 0..11).await;
    wait_until("all done", async || handled.len() == 11 && all_done(&backend).await).await;
    let report = running.drain().await;
    assert!(handled.all_handled_once());
    assert_eq!((report.acknowledged, report.deduplicated), (11, 20));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dedupe_does_not_skip_retries_of_a_failed_message() {
    let (backend, handled) = (store().await, Handled::default());
    add(&backend, 0..1).await;
    let running = run(worker(&backend).state(handled.clone()).dedupe(Duration::from_secs(600)).handler(
        async |message: Message, handled: Data<Handled>| {
            if handled.count(number(&message)) < 3 { Outcome::retry() } else { Outcome::Ack }
        },
    ));
    wait_until("all done", async || all_done(&backend).await).await;
    let report = running.drain().await;
    assert_eq!((report.acknowledged, report.deduplicated, handled.times(0)), (1, 0, 3));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_streams_share_the_slots_of_a_worker() {
    let (backend, handled) = (store().await, Handled::default());
    add(&backend, 0..50).await;
    let fields = vec![("n".into(), "1000".into())];
    backend.add("returns", &[NewEntry { fields, idempotence: None }], None).await.unwrap();
    let running = run(worker(&backend).stream("returns").concurrency(2).state(handled.clone()).handler(
        async |message: Message, handled: Data<Handled>| {
            assert_eq!(&*message.stream == "returns", number(&message) == 1000);
            handled.count(number(&message));
        },
    ));
    wait_until("all done", async || handled.len() == 51 && all_done(&backend).await).await;
    let report = running.drain().await;
    assert_eq!(report.acknowledged, 51);
    assert_eq!(backend.groups("returns").await.unwrap()[0].pending, 0);
}

#[tokio::test]
async fn a_group_that_starts_at_the_end_skips_existing_messages() {
    let (backend, handled) = (store().await, Handled::default());
    add(&backend, 0..10).await;
    let running = run(worker(&backend).start(Start::End).state(handled.clone()).handler(
        async |message: Message, handled: Data<Handled>| {
            handled.count(number(&message));
        },
    ));
    wait_until("the group", async || !backend.groups(STREAM).await.unwrap().is_empty()).await;
    add(&backend, 10..20).await;
    wait_until("all done", async || all_done(&backend).await).await;
    running.drain().await;
    assert_eq!(handled.numbers(), (10..20).collect::<Vec<_>>());
}

#[tokio::test]
async fn build_rejects_invalid_combinations() {
    let backend = store().await;
    let error_of = |builder: millstream_worker::WorkerBuilder| builder.build().unwrap_err().to_string();
    let handler = async |_: Raw| {};
    let bare = || Worker::builder(backend.clone());
    assert!(error_of(bare()).contains("no stream"));
    assert!(error_of(bare().stream("a")).contains("no group"));
    assert!(error_of(bare().stream("a").group("g")).contains("a handler"));
    assert!(error_of(worker(&backend).handler(handler).concurrency(0)).contains("concurrency"));
    assert!(error_of(worker(&backend).handler(handler).max_deliveries(0)).contains("deliveries"));
    assert!(error_of(worker(&backend).handler(handler).max_attempts(0)).contains("attempts"));
    assert!(error_of(worker(&backend).handler(handler).lease(ms(1))).contains("at least 50 ms"));
    assert!(error_of(worker(&backend).handler(handler).stream(STREAM)).contains("twice"));
    assert!(error_of(worker(&backend).handler(handler).dead_letter(STREAM)).contains(STREAM));
    assert!(error_of(worker(&backend).handler(async |_: Data<u8>| {})).contains(".state("));
}
