//! The circuit breaker: while an endpoint is down, no message is dead-lettered.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use millstream_worker::handler::Data;
use millstream_worker::outcome::HandlerError;
use millstream_worker::{Backoff, BreakerPolicy, Message, WorkerBuilder};
use tokio::net::{TcpListener, TcpStream};

use crate::support::*;

/// An address at which a server can start and stop.
async fn free_address() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    listener.local_addr().unwrap().to_string()
}

/// A handler that connects to an endpoint: it fails while the endpoint is down.
async fn call(message: Message, address: Data<String>, handled: Data<Handled>) -> Result<(), HandlerError> {
    TcpStream::connect(address.as_str()).await.map_err(HandlerError::retry)?;
    handled.count(number(&message));
    Ok(())
}

/// A three-thousandth of the default times: an hour becomes 1.2 seconds.
fn scaled(worker: WorkerBuilder) -> WorkerBuilder {
    worker
        .retry(Backoff::exponential(ms(1)..ms(3_600)))
        .breaker(BreakerPolicy::default().probe(ms(1)..ms(10)))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_message_is_dead_lettered_while_an_endpoint_is_down_for_an_hour() {
    let (backend, handled, address) = (store().await, Handled::default(), free_address().await);
    add(&backend, 0..200).await;
    let worker = scaled(worker(&backend)).handler(call).state(address.clone()).state(handled.clone());
    let running = run(worker);
    wait_until("the breaker is open", async || running.handle.open_breaker().is_some()).await;
    tokio::time::sleep(ms(400)).await;
    add(&backend, 200..300).await;
    tokio::time::sleep(ms(800)).await;
    let open = running.handle.open_breaker().expect("the breaker stays open");
    assert!(open.failed_probes > 20 && open.error.contains("refused"), "{open:?}");
    assert!(open.open_for() >= ms(1_200));
    assert_eq!(handled.len(), 0);

    let endpoint = TcpListener::bind(&address).await.unwrap();
    tokio::spawn(async move { while endpoint.accept().await.is_ok() {} });
    wait_until("all done", async || all_done(&backend).await && handled.len() == 300).await;
    assert_eq!(running.handle.open_breaker(), None);
    let report = running.drain().await;
    assert_eq!((report.acknowledged, report.dead, report.breaker_openings), (300, 0, 1), "{report}");
    assert!(handled.all_handled_once() && dead_letters(&backend).await.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_open_breaker_runs_one_message_at_a_time_each_time_another_one() {
    #[derive(Default)]
    struct Probes {
        running: usize,
        most: usize,
        ids: Vec<String>,
    }
    let (backend, probes) = (store().await, Arc::new(Mutex::new(Probes::default())));
    add(&backend, 0..500).await;
    let handler = async |message: Message, probes: Data<Arc<Mutex<Probes>>>| {
        {
            let mut probes = probes.lock().unwrap();
            probes.running += 1;
            probes.most = probes.most.max(probes.running);
            probes.ids.push(message.id.to_string());
        }
        tokio::time::sleep(ms(1)).await;
        probes.lock().unwrap().running -= 1;
        Err::<(), _>(HandlerError::retry("down"))
    };
    let policy = BreakerPolicy::after(6).probe(ms(2)..ms(5));
    let worker = worker(&backend).retry(Backoff::fixed(Duration::from_secs(60))).breaker(policy);
    let running = run(worker.handler(handler).state(probes.clone()));
    wait_until("the breaker is open", async || running.handle.open_breaker().is_some()).await;
    wait_until("the first handlers ended", async || probes.lock().unwrap().running == 0).await;
    let before = {
        let mut probes = probes.lock().unwrap();
        probes.most = 0;
        probes.ids.len()
    };
    let failed = || running.handle.open_breaker().unwrap().failed_probes;
    // The slots that were busy when the breaker opened ran once more at most. The first probes may have run too, and
    // the last of them may not be counted yet.
    let probed = failed() as usize + 1;
    assert!(before <= 6 + 4 + probed, "{before}, {probed}");
    wait_until("ten probes", async || failed() >= 10).await;
    let report = running.drain().await;
    assert_eq!((report.dead, report.acknowledged), (0, 0));
    // What was prefetched is released, and no delivery counts.
    let rows = pending(&backend).await;
    assert!(rows.iter().all(|row| row.deliveries <= 1), "{rows:?}");
    let probes = probes.lock().unwrap();
    let different: BTreeSet<&String> = probes.ids.iter().collect();
    assert_eq!((probes.most, different.len()), (1, probes.ids.len()), "{:?}", probes.ids);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bad_messages_among_good_ones_do_not_open_the_breaker() {
    let (backend, handled) = (store().await, Handled::default());
    add(&backend, 0..300).await;
    let handler = async |message: Message, handled: Data<Handled>| {
        handled.count(number(&message));
        if number(&message).is_multiple_of(3) { Err(HandlerError::retry("bad message")) } else { Ok(()) }
    };
    let running = run(worker(&backend).concurrency(1).max_deliveries(2).handler(handler).state(handled));
    // When the good messages are done, all handler calls are retries and fail.
    wait_until("all done", async || all_done(&backend).await).await;
    let report = running.drain().await;
    assert_eq!((report.acknowledged, report.dead, report.breaker_openings), (200, 100, 0), "{report}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn few_bad_messages_in_a_quiet_stream_are_dead_lettered() {
    let backend = store().await;
    add(&backend, 0..4).await;
    let handler = async |_: Message| Err::<(), _>(HandlerError::retry("bad message"));
    let running = run(worker(&backend).retry(Backoff::fixed(ms(1))).max_deliveries(20).handler(handler));
    wait_until("all dead", async || dead_letters(&backend).await.len() == 4).await;
    assert_eq!(running.drain().await.breaker_openings, 0);
}

/// A batch handler that records the size of each batch and fails.
async fn fail_all(messages: Vec<Message>, sizes: Data<Arc<Mutex<Vec<usize>>>>) -> Result<(), HandlerError> {
    sizes.lock().unwrap().push(messages.len());
    Err(HandlerError::retry("one of them is bad"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_batch_is_one_failure_and_a_probe_a_batch_of_one() {
    let (backend, sizes) = (store().await, Arc::new(Mutex::new(Vec::<usize>::new())));
    add(&backend, 0..150).await;
    let worker = worker(&backend).concurrency(1).breaker(BreakerPolicy::after(3).probe(ms(1)..ms(2)));
    let worker = worker.batch_handler(fail_all, 40, Duration::from_secs(1)).state(sizes.clone());
    let running = run(worker.retry(Backoff::fixed(Duration::from_secs(3600))));
    wait_until("five probes", async || sizes.lock().unwrap().len() >= 8).await;
    assert_eq!(running.drain().await.breaker_openings, 1);
    let sizes = sizes.lock().unwrap();
    assert_eq!(sizes[..8], [40, 40, 40, 1, 1, 1, 1, 1]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_paused_worker_does_not_probe() {
    let (backend, handled) = (store().await, Handled::default());
    add(&backend, 0..50).await;
    let handler = async |message: Message, handled: Data<Handled>| {
        handled.count(number(&message));
        Err::<(), _>(HandlerError::retry("down"))
    };
    let policy = BreakerPolicy::after(5).probe(ms(2)..ms(5));
    let running = run(worker(&backend).breaker(policy).handler(handler).state(handled.clone()));
    wait_until("a failed probe", async || {
        running.handle.open_breaker().is_some_and(|open| open.failed_probes > 0)
    })
    .await;
    running.handle.pause();
    wait_until("no handler", async || running.handle.busy() == 0).await;
    let count = || handled.numbers().into_iter().map(|n| handled.times(n)).sum::<u64>();
    let before = count();
    tokio::time::sleep(ms(50)).await;
    assert_eq!(count(), before);
    running.handle.resume();
    wait_until("probes again", async || count() > before).await;
    assert!(running.handle.open_breaker().is_some());
    running.drain().await;
}
