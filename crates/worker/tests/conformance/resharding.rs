//! A cluster whose slots move and whose nodes fail while producers and workers use it: every add and acknowledgement
//! happens exactly once, or the error says which ones may have happened.
//!
//! `MILLSTREAM_RESHARDINGS` sets how often the slot moves in a long run, which also includes Valkey.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use millstream_worker::backend::{Acknowledgement, AddOutcome, Claimant, ErrorKind, NewEntry, Read, Start};
use millstream_worker::{Admin, connect};

use super::cases::{self, consumer, dead_letter, entry, reader};
use super::peers::{REDIS_7_0, VALKEY_9_1};
use super::servers::Cluster;

const STREAM: &str = "resharded";
const DEAD_LETTERS: &str = "{resharded}:dlq";
const PRODUCERS: usize = 3;
/// How long each step of every second resharding takes. Meanwhile the slot is half moved.
const PAUSE: Duration = Duration::from_millis(60);

/// How often the slot moves in a long run.
fn long_run() -> Option<u32> {
    std::env::var("MILLSTREAM_RESHARDINGS").ok().map(|moves| moves.parse().expect("a number"))
}

#[tokio::test(flavor = "multi_thread")]
async fn resharding_redis_neither_loses_nor_duplicates() {
    let Some(cluster) = Cluster::start(&REDIS_7_0) else { return };
    let cluster = reshard(cluster, long_run().unwrap_or(6)).await;
    deny_asking(cluster).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn resharding_valkey_neither_loses_nor_duplicates() {
    let Some(moves) = long_run() else { return };
    let Some(cluster) = Cluster::start(&VALKEY_9_1) else { return };
    reshard(cluster, moves).await;
}

async fn reshard(cluster: Cluster, moves: u32) -> Cluster {
    let backend = connect(&cluster.url()).await.unwrap();
    backend.create_group(STREAM, "g", Start::Beginning).await.unwrap();
    let end = Arc::new(AtomicBool::new(false));
    let producers: Vec<_> = (0..PRODUCERS)
        .map(|producer| tokio::spawn(produce(Arc::clone(&backend), producer, Arc::clone(&end))))
        .collect();
    let added = Arc::new(AtomicU64::new(u64::MAX));
    let worker = tokio::spawn(work(Arc::clone(&backend), Arc::clone(&added)));
    let resharding = tokio::task::spawn_blocking(move || {
        for number in 0..moves {
            cluster.reshard(STREAM, if number % 2 == 0 { PAUSE } else { Duration::ZERO });
        }
        cluster
    });
    let cluster = resharding.await.unwrap();
    end.store(true, Ordering::Relaxed);
    let mut sent = 0;
    for producer in producers {
        sent += producer.await.unwrap();
    }
    added.store(sent, Ordering::Relaxed);
    let (acknowledged, dead) = worker.await.unwrap();

    let stored = backend.all_entries(STREAM).await.unwrap();
    let mut next: HashMap<&[u8], u64> = HashMap::new();
    for entry in &stored {
        let (producer, number) = (&entry.fields[0].0, std::str::from_utf8(&entry.fields[0].1).unwrap());
        let expected = next.entry(&producer[..]).or_default();
        assert_eq!(number.parse(), Ok(*expected), "lost, duplicated or out of order: {entry:?}");
        *expected += 1;
    }
    assert_eq!(stored.len() as u64, sent);
    assert_eq!(acknowledged + dead, sent, "an acknowledgement was counted twice or not at all");
    let dead_letters = backend.stream(DEAD_LETTERS).await.unwrap().map_or(0, |info| info.length);
    assert_eq!(dead_letters, dead);
    assert_eq!(backend.pending_summary(STREAM, "g").await.unwrap().total, 0);
    println!("{moves} moves, {sent} added, {acknowledged} acknowledged, {dead} dead-lettered");
    cluster
}

/// A user who may not send ASKING learns which permission is missing.
async fn deny_asking(cluster: Cluster) {
    let user = ["ACL", "SETUSER", "limited", "on", ">secret", "~*", "+ping", "+cluster|slots", "+xadd"];
    cluster.cli_all(&user);
    let backend = connect(&cluster.url().replace("//", "//limited:secret@")).await.unwrap();
    backend.add(STREAM, &[entry("n", "1")], None).await.unwrap();
    let resharding = tokio::task::spawn_blocking(move || cluster.reshard(STREAM, 4 * PAUSE));
    let error = loop {
        if let Err(error) = backend.add(STREAM, &[entry("n", "1")], None).await {
            break error;
        }
        assert!(!resharding.is_finished(), "nothing was denied");
    };
    assert_eq!((error.kind(), error.outcomes()), (ErrorKind::Denied, &[AddOutcome::NotAdded][..]), "{error}");
    assert!(error.to_string().ends_with("ACL SETUSER limited +asking"), "{error}");
    resharding.await.unwrap();
}

/// A master is killed while producers add entries, and its replica takes over.
#[tokio::test(flavor = "multi_thread")]
async fn a_failover_repeats_no_add_that_may_have_happened() {
    let Some(mut cluster) = Cluster::start(&VALKEY_9_1) else { return };
    cluster.add_replica();
    let backend = connect(&cluster.url()).await.unwrap();
    let streams: Vec<String> = (0..9).map(|n| format!("failover:{n}")).collect();
    for stream in &streams {
        cases::reading::make_stream(&*backend, stream, 1).await;
        cases::blocking::read_one(&*backend, stream).await;
    }
    cluster.wait_for_replica();
    let end = Arc::new(AtomicBool::new(false));
    let producers: Vec<_> = streams
        .iter()
        .map(|stream| tokio::spawn(add_pairs(Arc::clone(&backend), stream.clone(), Arc::clone(&end))))
        .collect();
    tokio::time::sleep(Duration::from_millis(200)).await;
    cluster.kill_first();
    for stream in &streams {
        cases::wait_until(|| async { backend.add(stream, &[entry("last", "1")], None).await.is_ok() }).await;
        cases::blocking::read_one(&*backend, stream).await;
    }
    end.store(true, Ordering::Relaxed);
    let mut unknown = 0;
    for (producer, stream) in producers.into_iter().zip(&streams) {
        let outcomes = producer.await.unwrap();
        unknown += outcomes.iter().filter(|outcome| matches!(outcome, AddOutcome::Unknown)).count();
        let mut stored = vec![0; outcomes.len()];
        for entry in backend.all_entries(stream).await.unwrap() {
            if &entry.fields[0].0[..] == b"number" {
                let number: usize = std::str::from_utf8(&entry.fields[0].1).unwrap().parse().unwrap();
                stored[number] += 1;
            }
        }
        for (number, (outcome, times)) in outcomes.iter().zip(stored).enumerate() {
            // The replica may not have had an entry that the master had added. That is a property of the server.
            let most = usize::from(*outcome != AddOutcome::NotAdded);
            assert!(times <= most, "{stream}: entry {number} is stored {times} times, but was {outcome:?}");
        }
    }
    assert!(unknown > 0, "the master was killed between two adds of each producer");
    println!("failover: {unknown} entries reported as unknown");
}

/// A replica does not learn how many entries a group has read. When it has become a primary, the owner tells it.
#[tokio::test(flavor = "multi_thread")]
async fn an_owner_repairs_the_lag_that_a_failover_lost() {
    let Some(mut cluster) = Cluster::start(&REDIS_7_0) else { return };
    let backend = connect(&cluster.url()).await.unwrap();
    let streams: Vec<String> = (0..9).map(|n| format!("lag:{n}")).collect();
    for stream in &streams {
        cases::reading::make_stream(&*backend, stream, 6).await;
        // The replica gets a copy of this number of reads, and learns nothing of later ones.
        cases::blocking::read_one(&*backend, stream).await;
    }
    cluster.add_replica();
    cluster.wait_for_replica();
    for stream in &streams {
        cases::blocking::read_one(&*backend, stream).await;
    }
    cluster.wait_for_replica();
    cluster.kill_first();
    let mut wrong = 0;
    for stream in &streams {
        cases::wait_until(|| async { backend.add(stream, &[entry("last", "1")], None).await.is_ok() }).await;
        let claimant = Claimant { stream, group: "g", instance: "owner" };
        let owner = backend.acquire(claimant, Duration::from_secs(600)).await.unwrap();
        let read = reader(stream, "owner", 100);
        let rest = backend.read_owned(&read, claimant, owner.fence).await.unwrap().unwrap();
        assert!(rest.len() >= 4, "{stream}: {rest:?}");
        let lag = async || backend.groups(stream).await.unwrap()[0].lag;
        wrong += usize::from(lag().await != Some(0));
        backend.repair_lag(claimant, owner.fence).await.unwrap();
        assert_eq!(lag().await, Some(0), "{stream}");
    }
    println!("failover: {wrong} groups whose lag was wrong or not known");
    assert!(wrong > 0, "the replica knew every lag");
}

/// Adds numbered entries in batches of two until the end. Returns the outcome of each.
async fn add_pairs(backend: Arc<dyn Admin>, stream: String, end: Arc<AtomicBool>) -> Vec<AddOutcome> {
    let mut outcomes = Vec::new();
    while !end.load(Ordering::Relaxed) {
        let numbers = outcomes.len()..outcomes.len() + 2;
        let batch: Vec<NewEntry> = numbers.map(|n| entry("number", &n.to_string())).collect();
        match backend.add(&stream, &batch, None).await {
            Ok(ids) => outcomes.extend(ids.into_iter().map(AddOutcome::Added)),
            Err(error) => {
                assert!(error.is_transient(), "{error}");
                outcomes.extend(error.outcomes());
            }
        }
    }
    outcomes
}

/// Adds batches of numbered entries until the end. Returns how many.
async fn produce(backend: Arc<dyn Admin>, producer: usize, end: Arc<AtomicBool>) -> u64 {
    let (name, mut sent) = (format!("producer-{producer}"), 0);
    while !end.load(Ordering::Relaxed) {
        let batch: Vec<NewEntry> =
            (sent..sent + 1 + sent % 60).map(|n| entry(&name, &n.to_string())).collect();
        let ids = backend.add(STREAM, &batch, None).await.unwrap_or_else(|error| panic!("add: {error}"));
        assert!(ids.is_sorted_by(|a, b| a < b));
        sent += ids.len() as u64;
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    sent
}

/// Acknowledges every entry, some together with a deduplication key, some by dead-lettering them. Returns the numbers
/// of acknowledged and of dead-lettered entries.
async fn work(backend: Arc<dyn Admin>, added: Arc<AtomicU64>) -> (u64, u64) {
    let (mut acknowledged, mut dead) = (0, 0);
    while acknowledged + dead < added.load(Ordering::Relaxed) {
        let read = Read { block: Some(Duration::from_millis(200)), ..reader(STREAM, "a", 50) };
        let read = backend.read(&read).await.unwrap_or_else(|error| panic!("read: {error}"));
        let Some((first, rest)) = read.split_first() else { continue };
        let seen = format!("{{{STREAM}}}:seen:{}", read.len() % 4);
        let mut done = Acknowledgement { ids: rest.iter().map(|delivery| delivery.id).collect(), ..done() };
        if read.len() % 2 == 0 {
            done.remember.push((seen, Duration::from_secs(60)));
        }
        let count = backend.acknowledge(STREAM, "g", &done).await;
        acknowledged += count.unwrap_or_else(|error| panic!("acknowledge: {error}"));
        let moved = backend.dead_letter(consumer(STREAM, "a"), &[dead_letter(first.id, DEAD_LETTERS)]).await;
        dead += moved.unwrap_or_else(|error| panic!("dead-letter: {error}")).len() as u64;
    }
    (acknowledged, dead)
}

fn done() -> Acknowledgement {
    cases::done(&[])
}
