//! Workers that share the partitions of a stream, and workers of which one owns a stream.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use millstream_worker::backend::{Admin, Claimant, NewEntry, StreamOwner};
use millstream_worker::handler::Data;
use millstream_worker::names::{control_stream, members_key, workers_key};
use millstream_worker::partitions::Partitions;
use millstream_worker::{Backoff, Message, WorkerBuilder};

use crate::support::*;

const PARTITIONS: usize = 6;

/// A stream with partitions, in a store of its own.
async fn partitioned(count: usize) -> (Arc<dyn Admin>, Partitions) {
    let backend = store().await;
    let partitions = Partitions::plan(STREAM, count, Some("customer")).unwrap();
    assert!(partitions.create(&*backend).await.unwrap());
    (backend, partitions)
}

/// Adds messages with these numbers to the partitions of their keys.
async fn add_to(backend: &Arc<dyn Admin>, partitions: &Partitions, numbers: std::ops::Range<u64>, keys: u64) {
    for n in numbers {
        let key = (n % keys).to_string();
        let fields = vec![("n".into(), n.to_string().into()), ("customer".into(), key.clone().into())];
        let name = partitions.name(partitions.of_key(key.as_bytes())).unwrap();
        backend.add(name, &[NewEntry { fields, idempotence: None }], None).await.unwrap();
    }
}

/// The longest time in which the tasks of a test did not run. If it is long, workers lose their leases, and others take
/// over.
#[derive(Clone, Default)]
struct Stall(Arc<AtomicU64>);

impl Stall {
    fn watch() -> Stall {
        let stall = Stall::default();
        let longest = Arc::downgrade(&stall.0);
        tokio::spawn(async move {
            while let Some(longest) = longest.upgrade() {
                let began = Instant::now();
                tokio::time::sleep(ms(10)).await;
                longest.fetch_max(began.elapsed().as_millis() as u64, Ordering::Relaxed);
            }
        });
        stall
    }

    /// Whether the machine was too slow to say which worker should own what. Heartbeats and renewals are 450 ms apart,
    /// and a worker without a heartbeat for a second seems to be dead.
    fn is_too_long(&self) -> bool {
        let longest = self.0.load(Ordering::Relaxed);
        if longest > 250 {
            println!("the machine was too slow for a part of this test: nothing ran for {longest} ms");
        }
        longest > 250
    }
}

/// Returns how often a worker gave up a partition, or lost one.
async fn releases(backend: &Arc<dyn Admin>) -> usize {
    let entries = backend.all_entries(&control_stream(STREAM, GROUP)).await.unwrap();
    entries.iter().filter(|entry| entry.fields.iter().any(|(_, value)| value == "released")).count()
}

/// What handlers saw: the number of each message, its key, and the worker that handled it.
#[derive(Clone, Default)]
struct Seen(Arc<Mutex<Vec<(u64, String, Message)>>>);

impl Seen {
    fn add(&self, message: Message) {
        let key = message.text("customer").unwrap_or_default().to_owned();
        self.0.lock().unwrap().push((number(&message), key, message));
    }

    fn len(&self) -> usize {
        self.0.lock().unwrap().len()
    }

    /// Returns the first handled number of each key that is smaller than one before.
    fn out_of_order(&self) -> Vec<(String, u64)> {
        let (mut last, mut wrong) = (BTreeMap::new(), Vec::new());
        for (n, key, _) in self.0.lock().unwrap().iter() {
            if last.insert(key.clone(), *n).is_some_and(|before| before > *n) {
                wrong.push((key.clone(), *n));
            }
        }
        wrong
    }
}

async fn see(message: Message, seen: Data<Seen>) {
    tokio::time::sleep(ms(1)).await;
    seen.add(message);
}

fn sharing(backend: &Arc<dyn Admin>, seen: &Seen) -> WorkerBuilder {
    worker(backend).handler(see).state(seen.clone())
}

/// Returns the owners of all partitions, if each has one now.
async fn owners(backend: &Arc<dyn Admin>, partitions: &Partitions) -> Option<Vec<StreamOwner>> {
    let mut owners = Vec::new();
    for name in partitions.names() {
        owners.push(backend.owner(name, GROUP).await.unwrap().filter(|owner| !owner.lease_left.is_zero())?);
    }
    Some(owners)
}

/// Returns how many partitions each worker owns, if all are owned.
async fn shares(backend: &Arc<dyn Admin>, partitions: &Partitions) -> Option<Vec<usize>> {
    let mut counts = BTreeMap::<String, usize>::new();
    for owner in owners(backend, partitions).await? {
        *counts.entry(owner.instance).or_default() += 1;
    }
    Some(counts.into_values().collect())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn workers_share_partitions_evenly_and_keep_the_order() {
    let ((backend, partitions), seen) = (partitioned(PARTITIONS).await, Seen::default());
    let stall = Stall::watch();
    let first = run(sharing(&backend, &seen));
    wait_until("the first owns all", async || shares(&backend, &partitions).await == Some(vec![6])).await;
    let fences = owners(&backend, &partitions).await.unwrap();
    add_to(&backend, &partitions, 0..300, 30).await;
    let second = run(sharing(&backend, &seen));
    wait_until("two share", async || shares(&backend, &partitions).await == Some(vec![3, 3])).await;
    add_to(&backend, &partitions, 300..600, 30).await;
    let third = run(sharing(&backend, &seen));
    wait_until("three share", async || shares(&backend, &partitions).await == Some(vec![2, 2, 2])).await;
    add_to(&backend, &partitions, 600..900, 30).await;
    wait_until("all handled", async || seen.len() >= 900).await;
    // Each worker has done a part, and none has stopped in between.
    for running in [&first, &second, &third] {
        assert!(running.handle.stats().acknowledged > 0, "{}", running.handle.stats());
    }
    // As few as possible moved: three to the second worker, then one of the first and one of the second to the third.
    // The fence of a partition that moved is greater; the others kept theirs.
    let now = owners(&backend, &partitions).await.unwrap();
    let grown = fences.iter().zip(&now).filter(|(before, after)| after.fence > before.fence).count();
    let released = releases(&backend).await;
    if !stall.is_too_long() {
        assert_eq!((released, grown), (3 + 1 + 1, 4));
        assert_eq!(seen.out_of_order(), []);
        assert_eq!(seen.len(), 900, "a message ran twice although no worker died");
    }
    for (_, key, message) in seen.0.lock().unwrap().iter() {
        let number = partitions.of_key(key.as_bytes());
        assert_eq!(
            (&*message.stream, message.partition),
            (&**partitions.name(number).unwrap(), Some(number))
        );
        assert_eq!(
            (&*message.logical_stream, message.key().map(|key| &key[..])),
            (STREAM, Some(key.as_bytes()))
        );
        assert!(message.fence.is_some());
    }
    first.drain().await;
    wait_until("two share again", async || shares(&backend, &partitions).await == Some(vec![3, 3])).await;
    second.drain().await;
    let report = third.drain().await;
    assert_eq!(report.unsettled, 0, "{report}");
    // Nothing is left of the workers but the fences.
    assert_eq!(backend.hash_len(&members_key(STREAM, GROUP)).await.unwrap(), 0);
    assert_eq!(backend.hash_len(&workers_key(STREAM, GROUP)).await.unwrap(), 0);
    for name in partitions.names() {
        assert!(backend.owner(name, GROUP).await.unwrap().unwrap().lease_left.is_zero());
        assert_eq!(backend.pending_summary(name, GROUP).await.unwrap().total, 0);
        assert_eq!(backend.consumers(name, GROUP).await.unwrap(), []);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_partition_moves_although_a_message_of_it_backs_off() {
    let ((backend, partitions), seen) = (partitioned(2).await, Seen::default());
    let handler = async |message: Message, seen: Data<Seen>| {
        seen.add(message);
        Err::<(), _>(std::io::Error::other("down"))
    };
    let start = || {
        let worker = worker(&backend).retry(Backoff::fixed(Duration::from_secs(600))).breaker(None);
        run(worker.handler(handler).state(seen.clone()))
    };
    let first = start();
    add_to(&backend, &partitions, 0..20, 20).await;
    wait_until("all back off", async || first.handle.stats().retried == 20).await;
    let second = start();
    wait_until("both share", async || shares(&backend, &partitions).await == Some(vec![1, 1])).await;
    // The next owner knows when their next attempts are due.
    let moved = second.handle.clone();
    wait_until("taken over", async || moved.stats().received > 0).await;
    assert_eq!(second.drain().await.retried, 0);
    first.drain().await;
    assert_eq!(seen.len(), 20);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn others_take_over_the_partitions_of_a_dead_worker() {
    let ((backend, partitions), seen) = (partitioned(4).await, Seen::default());
    let first = run(sharing(&backend, &seen));
    let second = run(sharing(&backend, &seen));
    wait_until("both share", async || shares(&backend, &partitions).await == Some(vec![2, 2])).await;
    add_to(&backend, &partitions, 0..200, 20).await;
    first.kill().await;
    add_to(&backend, &partitions, 200..400, 20).await;
    let handled =
        |seen: &Seen| -> BTreeSet<u64> { seen.0.lock().unwrap().iter().map(|(n, ..)| *n).collect() };
    wait_until("all handled", async || handled(&seen).len() == 400).await;
    wait_until("one owns all", async || shares(&backend, &partitions).await == Some(vec![4])).await;
    // A message may run twice, and then those after it: so only the first time of each counts.
    let mut first_runs = BTreeMap::<String, Vec<u64>>::new();
    for (n, key, _) in seen.0.lock().unwrap().iter() {
        let runs = first_runs.entry(key.clone()).or_default();
        if !runs.contains(n) {
            runs.push(*n);
        }
    }
    assert!(first_runs.values().all(|runs| runs.is_sorted()), "{first_runs:?}");
    second.drain().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_loses_its_stream_stops_its_handlers_and_begins_none() {
    let (backend, gate) = (store().await, Arc::new(Gate::default()));
    add(&backend, 0..20).await;
    let handler = async |_: Message, gate: Data<Arc<Gate>>| gate.pass().await;
    let running = run(worker(&backend).exclusive().handler(handler).state(Arc::clone(&gate)));
    wait_until("one runs", async || gate.started() == 1).await;
    let owner = backend.owner(STREAM, GROUP).await.unwrap().unwrap();
    // Without a key, messages run one after the other.
    tokio::time::sleep(ms(50)).await;
    assert_eq!(gate.started(), 1);
    // As if the worker had been frozen: its lease expires, and another one acquires the stream.
    let claimant = Claimant { stream: STREAM, group: GROUP, instance: &owner.instance };
    assert!(backend.give_up(claimant, owner.fence).await.unwrap());
    let thief = Claimant { instance: "thief", ..claimant };
    let stolen = backend.acquire(thief, Duration::from_millis(1500)).await.unwrap();
    assert!(stolen.instance == "thief" && stolen.fence > owner.fence);
    wait_until("the handler is cancelled", async || running.handle.busy() == 0).await;
    assert_eq!(running.handle.stats().acknowledged, 0);
    gate.open();
    // When the thief's lease has expired, the worker acquires the stream again, with a greater fence.
    wait_until("all done", async || all_done(&backend).await).await;
    let again = backend.owner(STREAM, GROUP).await.unwrap().unwrap();
    assert!(again.instance == owner.instance && again.fence > stolen.fence, "{again:?} {stolen:?}");
    let report = running.drain().await;
    assert_eq!(report.acknowledged, 20, "{report}");
    assert!(report.lost_leases > 0, "{report}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_standby_takes_over_soon_after_a_drain_and_after_a_crash() {
    let (backend, seen, stall) = (store().await, Seen::default(), Stall::watch());
    let start = || run(sharing(&backend, &seen).exclusive());
    let first = start();
    wait_until("the first owns the stream", async || backend.owner(STREAM, GROUP).await.unwrap().is_some())
        .await;
    let second = start();
    tokio::time::sleep(ms(600)).await;
    add(&backend, 0..10).await;
    wait_until("handled", async || seen.len() == 10).await;
    if stall.is_too_long() {
        // The first may have lost the stream.
        return;
    }
    assert_eq!(second.handle.stats().received, 0);
    first.drain().await;
    let drained_at = Instant::now();
    add(&backend, 10..20).await;
    wait_until("the second handles", async || second.handle.stats().acknowledged == 10).await;
    println!("taken over {:?} after a drain", drained_at.elapsed());
    let third = start();
    tokio::time::sleep(ms(600)).await;
    second.kill().await;
    let killed_at = Instant::now();
    add(&backend, 20..30).await;
    wait_until("the third handles", async || third.handle.stats().acknowledged == 10).await;
    println!("taken over {:?} after a crash", killed_at.elapsed());
    third.drain().await;
    assert_eq!(seen.out_of_order(), []);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_partition_without_a_key_is_one_lane() {
    let backend = store().await;
    let partitions = Partitions::plan(STREAM, 2, None).unwrap();
    partitions.create(&*backend).await.unwrap();
    let gate = Arc::new(Gate::default());
    let handler = async |_: Message, gate: Data<Arc<Gate>>| gate.pass().await;
    add_to(&backend, &partitions, 0..40, 40).await;
    let running = run(worker(&backend).concurrency(8).handler(handler).state(Arc::clone(&gate)));
    wait_until("one of each partition runs", async || gate.started() == 2).await;
    tokio::time::sleep(ms(50)).await;
    assert_eq!(gate.started(), 2);
    gate.open();
    wait_until("all done", async || running.handle.stats().acknowledged == 40).await;
    running.drain().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drain_returns_what_no_handler_began_with() {
    let ((backend, partitions), gate) = (partitioned(3).await, Arc::new(Gate::default()));
    let handler = async |_: Message, gate: Data<Arc<Gate>>| gate.pass().await;
    add_to(&backend, &partitions, 0..60, 6).await;
    let running = run(worker(&backend).handler(handler).state(Arc::clone(&gate)));
    wait_until("four run", async || gate.started() == 4).await;
    wait_until("all are read", async || running.handle.stats().received == 60).await;
    gate.open();
    let report = running.drain().await;
    assert_eq!((report.acknowledged + report.released, report.unsettled), (60, 0), "{report}");
    for name in partitions.names() {
        let rows = backend.all_pending(name, GROUP).await.unwrap();
        assert!(rows.iter().all(|row| row.consumer.is_none() && row.deliveries == 0), "{rows:?}");
        assert!(backend.owner(name, GROUP).await.unwrap().unwrap().lease_left.is_zero());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_partitioned_and_a_plain_stream_need_workers_of_their_own() {
    let (backend, _) = partitioned(2).await;
    let worker = worker(&backend).stream("plain").handler(|| async {}).build().unwrap();
    let refused = worker.run().await.unwrap_err().to_string();
    assert!(refused.contains("stream plain has no partitions"), "{refused}");
}
