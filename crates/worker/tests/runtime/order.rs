//! Messages ordered by key. A journal records when each handler begins and ends; its check is the guarantee: a message
//! begins only when every earlier one of its key has ended once, and no two messages of a key are at work at the same
//! time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use millstream_worker::backend::policy::Policy;
use millstream_worker::backend::{Admin, NewEntry, StreamId};
use millstream_worker::handler::Data;
use millstream_worker::outcome::HandlerError;
use millstream_worker::retry_record::RetryRecord;
use millstream_worker::{Backoff, BreakerPolicy, Dedupe, Message, OnFailure, Outcome, WorkerBuilder};

use crate::support::*;

/// Adds messages: each has a key, and its number among all messages.
async fn add_keyed(
    backend: &Arc<dyn Admin>,
    numbers: std::ops::Range<u64>,
    key: impl Fn(u64) -> Option<u64>,
) -> Vec<StreamId> {
    let entry = |n: u64| {
        let mut fields = vec![("n".into(), n.to_string().into())];
        fields.extend(key(n).map(|key| ("customer".into(), key.to_string().into())));
        NewEntry { fields, idempotence: None }
    };
    backend.add(STREAM, &numbers.map(entry).collect::<Vec<_>>(), None).await.unwrap()
}

fn ordered(backend: &Arc<dyn Admin>) -> WorkerBuilder {
    // A worker waits until the heartbeats of one that died have stopped. So the interval is short.
    worker(backend).order_by("customer").heartbeat(Some(ms(100))).breaker(None)
}

/// The key and the number of a message.
type Run = (String, u64);

/// What handlers have done, in order.
#[derive(Default)]
struct Journal(Mutex<Vec<(bool, Run, bool)>>);

impl Journal {
    fn run_of(message: &Message) -> Run {
        let key = message.key().map(|key| String::from_utf8_lossy(key).into_owned());
        (key.unwrap_or_else(|| "none".to_owned()), number(message))
    }

    fn begin(&self, message: &Message) {
        self.0.lock().unwrap().push((true, Journal::run_of(message), false));
    }

    /// Records the end of a handler, and whether the message is done or dead now.
    fn end(&self, message: &Message, is_over: bool) {
        self.0.lock().unwrap().push((false, Journal::run_of(message), is_over));
    }

    /// Forgets the handlers that run, because their worker was killed.
    fn kill(&self) {
        let mut journal = self.0.lock().unwrap();
        let mut running = BTreeSet::new();
        for (begins, run, _) in journal.iter() {
            if *begins {
                running.insert(run.clone())
            } else {
                running.remove(run)
            };
        }
        journal.extend(running.into_iter().map(|run| (false, run, false)));
    }

    /// Returns the violations of the order. `first` is the first number of each key.
    fn violations(&self) -> Vec<String> {
        let journal = self.0.lock().unwrap();
        let mut numbers: BTreeMap<&str, BTreeSet<u64>> = BTreeMap::new();
        for (_, (key, n), _) in journal.iter() {
            numbers.entry(key).or_default().insert(*n);
        }
        let (mut over, mut at_work) = (BTreeSet::new(), BTreeMap::new());
        let mut violations = Vec::new();
        for (begins, (key, n), is_over) in journal.iter() {
            if !begins {
                at_work.remove(&**key);
                if *is_over {
                    over.insert((&**key, *n));
                }
                continue;
            }
            if let Some(other) = at_work.insert(&**key, *n) {
                violations.push(format!("{key}: {n} begins while {other} is at work"));
            }
            let earlier = numbers[&**key].range(..n).find(|earlier| !over.contains(&(&**key, **earlier)));
            if let Some(earlier) = earlier {
                violations.push(format!("{key}: {n} begins before {earlier} has ended"));
            }
        }
        violations
    }

    fn len(&self) -> usize {
        self.0.lock().unwrap().len()
    }

    /// Returns the numbers in the order in which handlers began.
    fn begun(&self) -> Vec<u64> {
        self.0.lock().unwrap().iter().filter(|(begins, ..)| *begins).map(|(_, (_, n), _)| *n).collect()
    }
}

#[test]
fn the_journal_notices_messages_that_begin_too_early() {
    let run = |key: &str, n| (key.to_owned(), n);
    let journal = |lines: &[(bool, &str, u64, bool)]| {
        let lines = lines.iter().map(|(begins, key, n, over)| (*begins, run(key, *n), *over));
        Journal(Mutex::new(lines.collect()))
    };
    let (b, e) = (true, false);
    assert!(
        journal(&[(b, "a", 1, false), (b, "b", 2, false), (e, "a", 1, true), (b, "a", 3, false)])
            .violations()
            .is_empty()
    );
    assert_eq!(journal(&[(b, "a", 1, false), (b, "a", 3, false), (e, "a", 1, true)]).violations().len(), 2);
    assert_eq!(journal(&[(b, "a", 1, false), (e, "a", 1, false), (b, "a", 3, false)]).violations().len(), 1);
}

/// A handler of 0 to 3 ms. Some messages fail at first, some always, and some are rejected.
async fn flaky(
    message: Message,
    journal: Data<Arc<Journal>>,
    handled: Data<Handled>,
) -> Result<(), HandlerError> {
    let n = number(&message);
    journal.begin(&message);
    if !n.is_multiple_of(4) {
        tokio::time::sleep(ms(n % 4)).await;
    }
    let times = handled.count(n);
    let result = match n % 50 {
        7 if times < 3 => Err(HandlerError::retry("not yet")),
        21 => Err(HandlerError::retry("never")),
        33 => Err(HandlerError::reject("no")),
        _ => Ok(()),
    };
    let is_over = match n % 50 {
        7 => times >= 3,
        21 => times >= 4,
        _ => true,
    };
    journal.end(&message, is_over);
    result
}

/// The numbers of `flaky` messages that become dead letters.
fn is_dead(n: u64) -> bool {
    matches!(n % 50, 21 | 33)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_of_a_key_run_in_order_although_some_fail() {
    let (backend, journal, handled) = (store().await, Arc::new(Journal::default()), Handled::default());
    add_keyed(&backend, 0..1000, |n| (n % 11 != 0).then_some(n * 7 % 40)).await;
    let builder = ordered(&backend).retry(Backoff::fixed(ms(5))).max_attempts(4).handler(flaky);
    let running = run(builder.state(Arc::clone(&journal)).state(handled.clone()));
    add_keyed(&backend, 1000..2000, |n| (n % 11 != 0).then_some(n * 7 % 40)).await;
    wait_until("all done", async || all_done(&backend).await).await;
    let report = running.drain().await;
    assert_eq!(journal.violations(), Vec::<String>::new());
    assert_eq!((handled.len(), report.acknowledged, report.dead), (2000, 1920, 80), "{report}");
    assert_eq!(report.retried, 40 * 2 + 40 * 3);
    assert_eq!(backend.hash_len("{orders}:retry:billing").await.unwrap(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn different_keys_run_in_parallel() {
    let (backend, gate) = (store().await, Arc::new(Gate::default()));
    add_keyed(&backend, 0..20, |n| Some(n % 5)).await;
    let handler = async |_: Message, gate: Data<Arc<Gate>>| gate.pass().await;
    let running = run(ordered(&backend).concurrency(20).handler(handler).state(Arc::clone(&gate)));
    wait_until("one of each key runs", async || gate.started() == 5).await;
    tokio::time::sleep(ms(50)).await;
    assert_eq!((gate.started(), running.handle.busy()), (5, 5));
    gate.open();
    wait_until("all done", async || all_done(&backend).await).await;
    assert_eq!(running.drain().await.acknowledged, 20);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failing_message_blocks_only_its_key() {
    let (backend, journal) = (store().await, Arc::new(Journal::default()));
    let ids = add_keyed(&backend, 0..30, |n| Some(n % 3)).await;
    let handler = async |message: Message, journal: Data<Arc<Journal>>| {
        journal.begin(&message);
        let fails = number(&message) == 3;
        journal.end(&message, !fails);
        if fails { Err(std::io::Error::other("down")) } else { Ok(()) }
    };
    let builder = ordered(&backend).retry(Backoff::fixed(ms(100_000))).handler(handler);
    let running = run(builder.state(Arc::clone(&journal)));
    // 0, and all of the other keys.
    wait_until("the other keys are done", async || {
        let stats = running.handle.stats();
        stats.received >= 30 && stats.acknowledged == 21 && stats.retried == 1
    })
    .await;
    let mut begun = journal.begun();
    begun.sort_unstable();
    assert_eq!(begun.len(), 1 + 1 + 20, "{begun:?}");
    // The attempt is in the store, with the time at which the next one is due.
    let record = backend.hash_get("{orders}:retry:billing", &[ids[3].to_string()]).await.unwrap().remove(0);
    let record = RetryRecord::parse(&record.unwrap());
    assert_eq!((record.attempts, &*record.error), (1, "down"));
    let left = record.due_at_ms - backend.now_ms(STREAM).await.unwrap();
    assert!((40_000..=100_000).contains(&left), "{left}");
    // A drain releases all of them; the one that failed waits in the store.
    let report = running.drain().await;
    // A read that ends meanwhile may claim some of them again.
    assert!(report.released >= 9 && report.unsettled == 0, "{report}");
    assert_eq!(report.retried, 1);
    let rows = pending(&backend).await;
    assert!(rows.iter().all(|row| row.consumer.is_none() && row.deliveries == 0), "{rows:?}");
    assert_eq!(claim_all(&backend, "other").await, 8);
    assert_eq!(journal.violations(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_skip_the_key_goes_on_at_once_and_the_message_is_retried() {
    let (backend, journal, handled) = (store().await, Arc::new(Journal::default()), Handled::default());
    add_keyed(&backend, 0..10, |_| Some(1)).await;
    let handler = async |message: Message, journal: Data<Arc<Journal>>, handled: Data<Handled>| {
        journal.begin(&message);
        tokio::task::yield_now().await;
        let fails = number(&message) == 3 && handled.count(3) < 3;
        journal.end(&message, true);
        if fails { Err(std::io::Error::other("down")) } else { Ok(()) }
    };
    let builder = ordered(&backend).on_failure(OnFailure::Skip).retry(Backoff::fixed(ms(100)));
    let running = run(builder.handler(handler).state(Arc::clone(&journal)).state(handled.clone()));
    wait_until("all done", async || all_done(&backend).await).await;
    let report = running.drain().await;
    assert_eq!((report.acknowledged, report.retried), (10, 2), "{report}");
    assert_eq!(journal.begun(), [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 3, 3]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_order_holds_when_the_worker_is_killed_and_started_again() {
    let (backend, journal, handled) = (store().await, Arc::new(Journal::default()), Handled::default());
    add_keyed(&backend, 0..2000, |n| Some(n * 7 % 40)).await;
    let build = || {
        let builder = ordered(&backend).retry(Backoff::fixed(ms(5))).max_attempts(4).handler(flaky);
        builder.state(Arc::clone(&journal)).state(handled.clone())
    };
    // After a third crash, messages that ran each time would have to run alone in this process, which other tests
    // share.
    for _ in 0..2 {
        let before = journal.len();
        let running = run(build());
        wait_until("some handlers have run", async || journal.len() > before + 800).await;
        running.kill().await;
        journal.kill();
    }
    let running = run(build());
    wait_until("all done", async || all_done(&backend).await).await;
    running.drain().await;
    assert_eq!(journal.violations(), Vec::<String>::new());
    assert_eq!(handled.len(), 2000);
    // A message that fails in every run can die of its attempts earlier or later, but no other one dies.
    let dead = dead_letters(&backend).await;
    let dead: BTreeSet<u64> = dead
        .iter()
        .map(|dead| {
            let (_, value) = dead.fields.iter().find(|(name, _)| *name == "n").unwrap();
            std::str::from_utf8(value).unwrap().parse().unwrap()
        })
        .collect();
    assert_eq!(dead, (0..2000).filter(|n| is_dead(*n)).collect());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_next_worker_takes_over_in_order_before_it_reads_and_waits_for_retries() {
    let (backend, journal, handled) = (store().await, Arc::new(Journal::default()), Handled::default());
    add_keyed(&backend, 0..100, |n| Some(n % 5)).await;
    let handler = async |message: Message, journal: Data<Arc<Journal>>, handled: Data<Handled>| {
        journal.begin(&message);
        let fails = number(&message) < 5 && handled.count(number(&message)) == 1;
        journal.end(&message, !fails);
        if fails { Err(std::io::Error::other("down")) } else { Ok(()) }
    };
    let build = |worker: WorkerBuilder| {
        let worker = worker.retry(Backoff::fixed(ms(600))).handler(handler);
        worker.state(Arc::clone(&journal)).state(handled.clone())
    };
    let running = run(build(ordered(&backend)));
    wait_until("the first of each key has failed", async || running.handle.stats().retried == 5).await;
    // Two by a drain, one by a crash: each time, the first of each key still waits.
    running.drain().await;
    let running = run(build(ordered(&backend)));
    wait_until("taken over", async || running.handle.stats().received == 100).await;
    assert_eq!(journal.begun().len(), 5, "too early");
    running.kill().await;
    add_keyed(&backend, 100..200, |n| Some(n % 5)).await;
    let running = run(build(ordered(&backend)));
    wait_until("all done", async || all_done(&backend).await).await;
    let report = running.drain().await;
    assert_eq!((report.acknowledged, report.retried), (200, 0), "{report}");
    assert_eq!(journal.violations(), Vec::<String>::new());
    assert_eq!(journal.begun().len(), 205);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_worker_stands_by_until_the_first_ends() {
    let (backend, handled) = (store().await, Handled::default());
    add_keyed(&backend, 0..10, |_| Some(1)).await;
    let handler = async |message: Message, handled: Data<Handled>| {
        handled.count(number(&message));
    };
    let first = run(ordered(&backend).handler(handler).state(handled.clone()));
    wait_until("the first is at work", async || handled.len() == 10).await;
    let second = run(ordered(&backend).handler(handler).state(handled.clone()));
    tokio::time::sleep(ms(300)).await;
    add_keyed(&backend, 10..20, |_| Some(1)).await;
    wait_until("done", async || handled.len() == 20).await;
    assert_eq!(second.handle.stats().received, 0);
    first.drain().await;
    add_keyed(&backend, 20..30, |_| Some(1)).await;
    wait_until("the second is at work", async || second.handle.stats().acknowledged == 10).await;
    second.drain().await;
    assert!(handled.all_handled_once());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_holds_runs_of_keys_and_no_key_is_in_two_batches() {
    let (backend, journal) = (store().await, Arc::new(Journal::default()));
    add_keyed(&backend, 0..400, |n| Some(n % 4)).await;
    let handler = async |messages: Vec<Message>, journal: Data<Arc<Journal>>| {
        let keys: BTreeSet<_> = messages.iter().map(|message| message.key().cloned()).collect();
        // The whole batch begins at the same time: it may begin only when the messages before its first ones have
        // ended.
        for key in &keys {
            let first = messages.iter().find(|message| message.key() == key.as_ref()).unwrap();
            journal.begin(first);
        }
        tokio::time::sleep(ms(1)).await;
        let mut failed = BTreeSet::new();
        let mut outcomes = Vec::new();
        for message in &messages {
            let key = message.key().cloned();
            let fails = number(message) % 30 == 13 && message.attempt == 1;
            // The handler goes on after a failure, although it should stop.
            if fails {
                failed.insert(key.clone());
            }
            let is_done = !failed.contains(&key);
            journal.end(message, is_done);
            outcomes.push(if fails { Outcome::retry() } else { Outcome::Ack });
        }
        outcomes
    };
    let builder = ordered(&backend).batch_handler(handler, 20, ms(5)).retry(Backoff::fixed(ms(5)));
    let running = run(builder.state(Arc::clone(&journal)));
    wait_until("all done", async || all_done(&backend).await).await;
    let report = running.drain().await;
    assert_eq!(journal.violations(), Vec::<String>::new());
    assert_eq!((report.acknowledged, report.retried), (400, 13), "{report}");
    // Four keys fill batches of more than four messages.
    assert!(journal.begun().len() < 200, "{}", journal.begun().len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pause_keeps_the_order() {
    let (backend, journal, handled) = (store().await, Arc::new(Journal::default()), Handled::default());
    add_keyed(&backend, 0..1000, |n| Some(n * 7 % 20)).await;
    let builder = ordered(&backend).retry(Backoff::fixed(ms(5))).max_attempts(4).handler(flaky);
    let running = run(builder.state(Arc::clone(&journal)).state(handled.clone()));
    for part in 1..10 {
        wait_until("some are handled", async || handled.len() > 80 * part).await;
        running.handle.pause();
        tokio::time::sleep(ms(5)).await;
        running.handle.resume();
    }
    wait_until("all done", async || all_done(&backend).await).await;
    assert_eq!(running.drain().await.released, 0);
    assert_eq!(journal.violations(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_open_breaker_keeps_the_order() {
    let (backend, journal, gate) = (store().await, Arc::new(Journal::default()), Arc::new(Gate::default()));
    add_keyed(&backend, 0..500, |n| Some(n * 7 % 50)).await;
    let handler = async |message: Message, journal: Data<Arc<Journal>>, gate: Data<Arc<Gate>>| {
        journal.begin(&message);
        tokio::task::yield_now().await;
        journal.end(&message, gate.is_open());
        if gate.is_open() { Ok(()) } else { Err(std::io::Error::other("down")) }
    };
    let breaker = BreakerPolicy::default().probe(ms(1)..ms(10));
    for on_failure in [OnFailure::Block, OnFailure::Skip] {
        gate.shut();
        let builder = ordered(&backend).breaker(breaker.clone()).retry(Backoff::fixed(ms(5))).max_attempts(3);
        let builder = builder.on_failure(on_failure).handler(handler).state(Arc::clone(&gate));
        let running = run(builder.state(Arc::clone(&journal)));
        wait_until("several probes fail", async || {
            running.handle.open_breaker().is_some_and(|open| open.failed_probes > 20)
        })
        .await;
        gate.open();
        wait_until("all done", async || all_done(&backend).await).await;
        assert_eq!(running.handle.open_breaker(), None);
        let report = running.drain().await;
        assert_eq!((report.acknowledged, report.dead), (500, 0), "{report}");
        if on_failure == OnFailure::Block {
            assert_eq!(journal.violations(), Vec::<String>::new());
            add_keyed(&backend, 500..1000, |n| Some(n * 7 % 50)).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn duplicates_keep_their_places() {
    let (backend, journal) = (store().await, Arc::new(Journal::default()));
    // Each pair of numbers is the same order, in the same lane or in another one.
    let entry = |n: u64| {
        let fields = vec![
            ("n".into(), n.to_string().into()),
            ("customer".into(), (n * 7 % 10).to_string().into()),
            ("order".into(), (n / 2).to_string().into()),
        ];
        NewEntry { fields, idempotence: None }
    };
    backend.add(STREAM, &(0..600).map(entry).collect::<Vec<_>>(), None).await.unwrap();
    let handler = async |message: Message, journal: Data<Arc<Journal>>| {
        journal.begin(&message);
        tokio::task::yield_now().await;
        journal.end(&message, true);
    };
    let dedupe = Dedupe::within(Duration::from_secs(600)).by_field("order");
    let running = run(ordered(&backend).dedupe(dedupe).handler(handler).state(Arc::clone(&journal)));
    wait_until("all done", async || all_done(&backend).await).await;
    let report = running.drain().await;
    assert_eq!((report.acknowledged, report.deduplicated), (300, 300), "{report}");
    assert_eq!(journal.violations(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_window_bounds_the_messages_in_hand() {
    let (backend, gate) = (store().await, Arc::new(Gate::default()));
    add_keyed(&backend, 0..1000, |_| Some(1)).await;
    let handler = async |_: Message, gate: Data<Arc<Gate>>| gate.pass().await;
    let running = run(ordered(&backend).window(64).handler(handler).state(Arc::clone(&gate)));
    // The worker stops reading when less than an eighth of the window is free.
    wait_until("the window is full", async || running.handle.stats().received > 56).await;
    tokio::time::sleep(ms(50)).await;
    assert!(running.handle.stats().received <= 64);
    assert_eq!(running.handle.busy(), 1);
    gate.open();
    wait_until("all done", async || all_done(&backend).await).await;
    assert_eq!(running.drain().await.acknowledged, 1000);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_group_that_redelivers_on_its_own_is_refused() {
    let backend = store().await;
    backend.create_group(STREAM, GROUP, millstream_worker::backend::Start::Beginning).await.unwrap();
    let lease = Policy { lease_ms: Some(30_000), ..Policy::default() };
    backend.set_policy(STREAM, Some(GROUP), &lease, &[]).await.unwrap();
    let refused = ordered(&backend).handler(|| async {}).build().unwrap().run().await.unwrap_err();
    assert!(refused.to_string().contains("policy LEASE"), "{refused}");
}
