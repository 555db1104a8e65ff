//! Messages that crash workers: only they are dead-lettered, the others are handled, and the worker returns to full
//! concurrency.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use millstream_worker::dead_letter::DeadLetter;
use millstream_worker::handler::{Data, Raw};
use millstream_worker::retry_record::RetryRecord;
use millstream_worker::{Message, Process, Reason, WorkerBuilder};
use tokio::sync::Notify;

use crate::support::*;

/// What handlers have done.
#[derive(Default)]
struct Journal {
    runs: Mutex<Runs>,
    /// Notified when a message crashes its worker.
    crashed: Notify,
}

#[derive(Default)]
struct Runs {
    running: usize,
    /// Most handlers that ran at the same time, in the current worker.
    most: usize,
    /// For each message, how often it ran.
    times: BTreeMap<u64, u64>,
    /// For each delivery of the culprit, how many other handlers ran when it began.
    company: Vec<usize>,
    /// Number of handlers that ran when each worker crashed, the culprit included.
    in_hand: Vec<usize>,
}

/// A handler of 20 ms. The message 500 crashes its worker. Those from 1,000 on end when 1,000 handlers have run at the
/// same time.
async fn handle(message: Message, journal: Data<Arc<Journal>>) {
    {
        let mut runs = journal.runs.lock().unwrap();
        *runs.times.entry(number(&message)).or_default() += 1;
        runs.running += 1;
        runs.most = runs.most.max(runs.running);
        if number(&message) == 500 {
            let company = runs.running - 1;
            runs.company.push(company);
        }
    }
    let running = Running(&journal);
    tokio::time::sleep(ms(20)).await;
    while number(&message) >= 1000 && journal.runs.lock().unwrap().most < 1000 {
        tokio::time::sleep(ms(20)).await;
    }
    if number(&message) == 500 {
        {
            let mut runs = journal.runs.lock().unwrap();
            let in_hand = runs.running;
            runs.in_hand.push(in_hand);
        }
        journal.crashed.notify_one();
        std::future::pending::<()>().await;
    }
    drop(running);

    struct Running<'a>(&'a Journal);
    impl Drop for Running<'_> {
        fn drop(&mut self) {
            self.0.runs.lock().unwrap().running -= 1;
        }
    }
}

fn dead_number(dead: &DeadLetter) -> u64 {
    let (_, value) = dead.fields.iter().find(|(name, _)| *name == "n").unwrap();
    std::str::from_utf8(value).unwrap().parse().unwrap()
}

/// Starts workers and aborts each one that the culprit crashes, until everything is done. Returns the number of
/// crashes.
async fn survive(
    journal: &Arc<Journal>,
    build: impl Fn() -> WorkerBuilder,
    is_done: impl AsyncFn() -> bool,
) -> usize {
    for crashes in 0..20 {
        // The handlers of an aborted worker end soon after it.
        wait_until("no handler runs", async || journal.runs.lock().unwrap().running == 0).await;
        journal.runs.lock().unwrap().most = 0;
        let running = run(build());
        tokio::select! {
            () = journal.crashed.notified() => running.kill().await,
            () = wait_until("everything is done", async || is_done().await) => {
                running.drain().await;
                return crashes;
            }
        }
    }
    panic!("the workers do not come to an end");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_messages_in_hand_are_handled_and_full_concurrency_comes_back() {
    let (backend, journal) = (store().await, Arc::new(Journal::default()));
    add(&backend, 0..1000).await;
    let build =
        || worker(&backend).concurrency(1000).lease(ms(500)).handler(handle).state(Arc::clone(&journal));
    let crashes = survive(&journal, build, async || all_done(&backend).await).await;
    assert_eq!(crashes, 5, "the default limit is five deliveries");
    let dead: Vec<u64> = dead_letters(&backend).await.iter().map(dead_number).collect();
    assert_eq!(dead, [500]);
    {
        let runs = journal.runs.lock().unwrap();
        assert_eq!(runs.times.len(), 1000);
        assert_eq!(runs.times[&500], 5);
        // It ran in ever smaller company, and at last alone.
        assert_eq!(runs.company.last(), Some(&0), "{:?}", runs.company);
        for (in_hand, limit) in runs.in_hand.iter().zip([1000, 100, 10, 1, 1]) {
            assert!(*in_hand <= limit, "{:?}", runs.in_hand);
        }
    }
    // New messages run in all slots again.
    add(&backend, 1000..3000).await;
    let running = run(build());
    wait_until("full concurrency", async || journal.runs.lock().unwrap().most == 1000).await;
    wait_until("everything is done", async || all_done(&backend).await).await;
    running.drain().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_that_were_only_read_ahead_never_die() {
    let backend = store().await;
    add(&backend, 0..50).await;
    // Many workers die with all messages in hand, but no handler begins.
    read_and_die(&backend, "ghost", 50).await;
    for _ in 0..20 {
        assert_eq!(claim_all(&backend, "ghost").await, 50);
    }
    let handled = Handled::default();
    let handler = async |message: Message, handled: Data<Handled>| {
        handled.count(number(&message));
    };
    let running = run(worker(&backend).lease(ms(100)).handler(handler).state(handled.clone()));
    wait_until("all done", async || all_done(&backend).await).await;
    assert_eq!((running.drain().await.dead, handled.len()), (0, 50));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_suspect_that_is_cancelled_by_a_drain_does_not_die() {
    let backend = store().await;
    add(&backend, 0..1).await;
    read_and_die(&backend, "ghost", 1).await;
    // With this limit, it runs alone, and another crash would be its last.
    let build = || worker(&backend).lease(ms(100)).max_deliveries(1);
    for _ in 0..3 {
        let gate = Arc::new(Gate::default());
        let handler = async |_: Message, gate: Data<Arc<Gate>>| gate.pass().await;
        let running = run(build().drain(Duration::ZERO).handler(handler).state(Arc::clone(&gate)));
        wait_until("it runs", async || gate.started() == 1).await;
        running.drain().await;
    }
    let running = run(build().handler(async |_: Message| {}));
    wait_until("all done", async || all_done(&backend).await).await;
    assert_eq!(running.drain().await.dead, 0);
    assert!(dead_letters(&backend).await.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_clears_a_suspect() {
    let backend = store().await;
    add(&backend, 0..1).await;
    read_and_die(&backend, "ghost", 1).await;
    let journal = Arc::new(Mutex::new(Vec::<u64>::new()));
    let handler = async |message: Message, journal: Data<Arc<Mutex<Vec<u64>>>>| {
        let mut journal = journal.lock().unwrap();
        journal.push(message.attempt);
        if journal.len() < 10 { Err(std::io::Error::other("not yet")) } else { Ok(()) }
    };
    let builder =
        worker(&backend).lease(ms(100)).max_deliveries(2).retry(millstream_worker::Backoff::fixed(ms(1)));
    let running = run(builder.handler(handler).state(Arc::clone(&journal)));
    wait_until("all done", async || all_done(&backend).await).await;
    assert_eq!(running.drain().await.dead, 0);
    assert_eq!(*journal.lock().unwrap(), (2..=11).collect::<Vec<u64>>());
}

#[tokio::test(start_paused = true)]
async fn a_suspect_that_cannot_run_alone_waits_for_another_worker() {
    let (backend, gate) = (store().await, Arc::new(Gate::default()));
    add(&backend, 0..2).await;
    let suspect = read_and_die(&backend, "ghost", 1).await[0];
    let handler = async |_: Message, gate: Data<Arc<Gate>>| gate.pass().await;
    let running =
        run(worker(&backend).lease(ms(1_000)).max_deliveries(1).handler(handler).state(Arc::clone(&gate)));
    // The suspect must run alone, but the handler of the other message does not end.
    wait_until("a handler runs", async || gate.started() == 1).await;
    let waits = async || {
        let rows = pending(&backend).await;
        rows.iter().any(|row| row.id == suspect && row.consumer.is_none() && row.deliveries == 1)
    };
    // The clock of the runtime is paused and advances when nothing else happens. That of the store is not.
    while !waits().await {
        tokio::time::sleep(ms(500)).await;
    }
    let record = backend.hash_get("{orders}:retry:billing", &[suspect.to_string()]).await.unwrap().remove(0);
    let record = RetryRecord::parse(&record.unwrap());
    let due_in = record.due_at_ms.saturating_sub(backend.now_ms(STREAM).await.unwrap());
    assert!((200_000..=300_000).contains(&due_in), "{record:?}");
    assert_eq!((record.begun, gate.started()), (0, 1));
    // The worker goes on.
    add(&backend, 2..3).await;
    wait_until("the next message runs", async || gate.started() == 2).await;
    tokio::time::resume();
    gate.open();
    running.drain().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_that_kills_its_worker_is_dead_after_five_deliveries() {
    let (backend, gate) = (store().await, Arc::new(Gate::default()));
    add(&backend, 0..1).await;
    let handler = async |_: Raw, gate: Data<Arc<Gate>>| gate.pass().await;
    // A worker waits until the heartbeats of the one that died with its name have stopped. So the interval is short.
    let build = || {
        let worker = worker(&backend).consumer_name("clerk").heartbeat(Some(ms(100)));
        worker.state(gate.clone()).handler(handler)
    };
    for started in 1..=5 {
        let running = run(build());
        wait_until("started", async || gate.started() == started).await;
        running.kill().await;
    }
    let running = run(build());
    wait_until("dead", async || all_done(&backend).await).await;
    running.drain().await;
    let dead_letter = dead_letters(&backend).await.remove(0);
    assert_eq!((dead_letter.reason, dead_letter.deliveries), (Some(Reason::MaxDeliveries), 5));
    assert_eq!(gate.started(), 5);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_that_kills_workers_is_dead_lettered_without_running_the_handler() {
    let (backend, gate) = (store().await, Arc::new(Gate::default()));
    add(&backend, 0..1).await;
    // Two workers receive the message and die: two deliveries.
    read_and_die(&backend, "first", 1).await;
    let handler = async |_: Raw, gate: Data<Arc<Gate>>| gate.pass().await;
    let build = || worker(&backend).handler(handler).state(gate.clone()).max_deliveries(2).lease(ms(100));
    let running = run(build());
    wait_until("started", async || gate.started() == 1).await;
    running.kill().await;
    let running = run(build());
    wait_until("dead", async || all_done(&backend).await).await;
    running.drain().await;
    let dead_letter = dead_letters(&backend).await.remove(0);
    assert_eq!((dead_letter.reason, dead_letter.deliveries), (Some(Reason::MaxDeliveries), 2));
    assert!(dead_letter.error.contains("2 times"), "{}", dead_letter.error);
    assert_eq!(gate.started(), 1);
}

/// Handlers of two workers, and how many run.
#[derive(Default)]
struct Company {
    running: AtomicUsize,
    /// For each suspect, how many other handlers ran when it began or ended.
    of_suspects: Mutex<Vec<usize>>,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_handler_of_another_worker_runs_while_a_suspect_runs_alone() {
    let (backend, company) = (store().await, Arc::new(Company::default()));
    add(&backend, 0..10).await;
    read_and_die(&backend, "ghost", 10).await;
    add(&backend, 10..300).await;
    let handler = async |message: Message, company: Data<Arc<Company>>| {
        let record = |others| {
            if number(&message) < 10 {
                company.of_suspects.lock().unwrap().push(others);
            }
        };
        record(company.running.fetch_add(1, Ordering::SeqCst));
        tokio::time::sleep(ms(10)).await;
        record(company.running.fetch_sub(1, Ordering::SeqCst) - 1);
    };
    let process = Process::default();
    let build = || worker(&backend).lease(ms(100)).max_deliveries(1).process(&process).handler(handler);
    let workers = [(); 2].map(|()| run(build().state(Arc::clone(&company))));
    wait_until("all done", async || all_done(&backend).await).await;
    for running in workers {
        assert!(running.drain().await.acknowledged > 0);
    }
    assert_eq!(*company.of_suspects.lock().unwrap(), [0; 20]);
}
