//! Watching logical streams: their partitions are one row with sums, on every kind of store.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use millstream_worker::backend::{
    Admin, Claimant, Fields, NewEntry, Read, ReadMessages, Redis, ServerOptions, Start, StreamId,
};
use millstream_worker::connect;
use millstream_worker::monitor::{GroupSnapshot, Health, Limits, Monitor, StreamSnapshot};
use millstream_worker::names::{dead_letters_of, workers_key};
use millstream_worker::observe::{Eta, Query, RowKey, Sampler, SamplerOptions, Sort};
use millstream_worker::operate::doctor::diagnose;
use millstream_worker::partitions::{Partitions, partitions_key};

use super::cases::entry;
use super::peers::{REDIS_7_0, VALKEY_9_1};
use super::servers::{Cluster, Program, Server};

#[tokio::test(flavor = "multi_thread")]
async fn in_memory() {
    let backend = connect("memory:").await.unwrap();
    one_row(Arc::clone(&backend)).await;
    without_a_list(&backend).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn on_millstream() {
    let server = Server::start(Program::Millstream, &[]);
    one_row(connect(&server.url()).await.unwrap()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn on_redis() {
    let Some(server) = Server::peer(&REDIS_7_0, &[]) else { return };
    one_row(connect(&server.url()).await.unwrap()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn on_a_cluster() {
    let Some(cluster) = Cluster::start(&VALKEY_9_1) else { return };
    let backend = connect(&cluster.url()).await.unwrap();
    one_row(Arc::clone(&backend)).await;
    let partitions = Partitions::plan("spread", 6, None).unwrap();
    partitions.create(&*backend).await.unwrap();
    let per_node =
        || backend.keys_per_node(&partitions.names()).iter().map(|(_, keys)| *keys).collect::<Vec<_>>();
    assert_eq!(per_node(), [2, 2, 2]);
    let is_uneven = || async {
        let streams = Monitor::new(Arc::clone(&backend)).streams("spread").await.unwrap();
        let diagnosis = diagnose(&*backend, &streams).await.unwrap();
        diagnosis.findings.into_iter().find(|finding| finding.code == "partitions_uneven")
    };
    assert_eq!(is_uneven().await, None);
    cluster.reshard(partitions.name(0).unwrap(), Duration::ZERO);
    cluster.reshard(partitions.name(1).unwrap(), Duration::ZERO);
    let finding = is_uneven().await.expect("one node has four of six partitions");
    assert!(finding.text.contains("has 4 of 6"), "{finding:?}");
}

/// Makes four partitions. The group `billing` has not read 3, 9, 0 and 1 entries of them; two more of partition 1 are
/// pending for `worker-1`, which owns it; there is a dead letter of partition 2.
async fn orders(backend: &dyn Admin) -> Partitions {
    let partitions = Partitions::plan("orders", 4, Some("customer")).unwrap();
    assert!(partitions.create(backend).await.unwrap());
    for (name, unread) in partitions.names().into_iter().zip([3, 9, 0, 1]) {
        backend.create_group(name, "billing", Start::Beginning).await.unwrap();
        add(backend, name, unread).await;
    }
    let hot = partitions.name(1).unwrap();
    add(backend, hot, 2).await;
    read(backend, hot, 2).await;
    backend.add(&dead_letters_of(partitions.name(2).unwrap()), &[entry("n", "1")], None).await.unwrap();
    let claimant = Claimant { stream: hot, group: "billing", instance: "host-1-abc" };
    let owner = backend.acquire(claimant, Duration::from_secs(600)).await.unwrap();
    assert_eq!(owner.instance, "host-1-abc");
    let now_ms = backend.now_ms("orders").await.unwrap();
    for (instance, consumer) in [("host-1-abc", "worker-1"), ("host-2-abc", "worker-2")] {
        let heartbeat = format!(
            r#"{{"consumer":"{consumer}","host":"host","pid":1,"state":"working","beat_at_ms":{now_ms},"interval_ms":300000}}"#
        );
        let field = (instance.to_owned(), Bytes::from(heartbeat));
        backend.hash_set(&workers_key("orders", "billing"), &[field]).await.unwrap();
    }
    // It only looks like a partition.
    add(backend, "ghost:{ae}.1", 1).await;
    add(backend, "plain", 1).await;
    partitions
}

async fn add(backend: &dyn Admin, stream: &str, count: usize) {
    let fields: Fields = vec![("customer".into(), "ada".into())];
    let entries = vec![NewEntry { fields, idempotence: None }; count];
    if count > 0 {
        backend.add(stream, &entries, None).await.unwrap();
    }
}

async fn read(backend: &dyn Admin, stream: &str, count: usize) {
    let read = Read { stream, group: "billing", consumer: "worker-1", count, block: None, claim_idle: None };
    assert_eq!(backend.read(&read).await.unwrap().len(), count);
}

async fn one_row(backend: Arc<dyn Admin>) {
    let partitions = orders(&*backend).await;
    let monitor = Monitor::new(Arc::clone(&backend));
    let streams = monitor.streams("*").await.unwrap();
    let names: Vec<&str> = streams.iter().map(|stream| &*stream.name).collect();
    assert_eq!(names, ["ghost:{ae}.1", "orders", "plain"]);
    has_sums(&streams[1]);
    has_sums(&monitor.stream("orders").await.unwrap().unwrap());
    has_group_sums(&monitor.group("orders", "billing").await.unwrap().unwrap());
    assert!(monitor.group("orders", "none").await.unwrap().is_none());
    // A pattern matches the logical name or a partition.
    for pattern in ["orders", "ord*s", "*{ae}*"] {
        let found = monitor.streams(pattern).await.unwrap();
        has_sums(found.iter().find(|stream| stream.name == "orders").unwrap_or_else(|| panic!("{pattern}")));
    }
    let listed = monitor.list("orders*").await.unwrap();
    assert_eq!((listed.len(), listed[0].info.length, listed[0].parts().len()), (1, 15, 4));
    is_a_partition(&monitor, &partitions).await;
    let group = monitor.group("orders", "billing").await.unwrap().unwrap();
    let owners = monitor.owners(&group).await.unwrap();
    let owners: Vec<_> =
        owners.iter().map(|(number, owner)| (*number, group.name_of(owner), owner.fence > 0)).collect();
    assert_eq!(owners, [(1, "worker-1", true)]);
    live(&backend, &partitions).await;
    missing(&backend, &partitions).await;
    never_read(&backend).await;
}

fn has_sums(stream: &StreamSnapshot) {
    let partitioned = stream.partitioned.as_ref().expect("a logical stream");
    assert_eq!((partitioned.list.len(), partitioned.parts.len(), partitioned.missing()), (4, 4, vec![]));
    assert_eq!((stream.info.length, stream.info.groups, stream.dead_letters_length), (15, 1, 1));
    assert_eq!(stream.dead_letters, "orders:{6b}.1:dlq");
    let [group] = &stream.groups[..] else { panic!("{:?}", stream.groups) };
    has_group_sums(group);
}

fn has_group_sums(group: &GroupSnapshot) {
    assert_eq!(
        (&*group.stream, &*group.name, group.partitions, group.parts.len()),
        ("orders", "billing", 4, 4)
    );
    assert_eq!(
        (group.lag.count, group.lag.is_exact(), group.pending, group.dead_letters_length),
        (13, true, 2, 1)
    );
    assert!(group.unread_age() >= group.parts.iter().filter_map(|part| part.unread_age()).max());
    assert!(group.pending_age().is_some() && group.scan.complete && group.scan.scanned == 2);
    let consumers: Vec<_> = group.consumers.iter().map(|found| (&*found.name, found.pending)).collect();
    assert_eq!(consumers, [("worker-1", 2)]);
    let workers: Vec<_> = group.workers.iter().map(|worker| &*worker.heartbeat.consumer).collect();
    assert_eq!(workers, ["worker-1", "worker-2"]);
    // The dead letter makes partition 2 degraded.
    assert_eq!(group.worst_part(&Limits::default()).and_then(GroupSnapshot::number), Some(2));
    let verdict = group.verdict(&Limits::default());
    assert_eq!(verdict.to_string(), "degraded: partition 2: 1 dead letter waits for a decision");
    let mut limits = Limits::default();
    (limits.lag.critical, limits.dead_letters.degraded) = (Some(9), None);
    let verdict = group.verdict(&limits);
    assert_eq!(
        (verdict.health, group.worst_part(&limits).and_then(GroupSnapshot::number)),
        (Health::Critical, Some(1))
    );
    assert_eq!(verdict.to_string(), "critical: partition 1: 9 entries are unread");
}

/// A partition is an ordinary stream, too.
async fn is_a_partition(monitor: &Monitor, partitions: &Partitions) {
    let name = partitions.name(1).unwrap();
    let part = monitor.stream(name).await.unwrap().unwrap();
    assert_eq!((&*part.name, part.number(), part.info.length), (&**name, Some(1), 11));
    let group = monitor.group(name, "billing").await.unwrap().unwrap();
    assert_eq!((group.part_of.as_ref().unwrap().to_string(), group.lag.count), ("orders/1".to_owned(), 9));
    // The other worker does not read this partition.
    let workers: Vec<_> = group.workers.iter().map(|worker| &*worker.heartbeat.consumer).collect();
    assert_eq!(workers, ["worker-1"]);
}

/// The sampler shows the same, and has a history and rates of the sum.
async fn live(backend: &Arc<dyn Admin>, partitions: &Partitions) {
    let sampler =
        Sampler::start(Arc::clone(backend), SamplerOptions::default().interval(Duration::from_millis(50)));
    let mut viewer = sampler.subscribe();
    let key = RowKey::group("orders", "billing");
    viewer.show([key.clone()]);
    let is_known = || {
        let look = sampler.look();
        let row = look.row(&key)?;
        row.group.as_ref()?.snapshot.detail_at?;
        row.rates.acknowledged.map(|_| look)
    };
    let waiting = async {
        loop {
            match is_known() {
                Some(look) => return look,
                None => drop(viewer.changed().await),
            }
        }
    };
    let look = tokio::time::timeout(super::TIMEOUT, waiting).await.expect("details in time");
    has_sums(look.stream("orders").unwrap());
    let row = look.row(&key).unwrap();
    assert_eq!((row.partitions, row.info.length), (4, 15));
    assert_eq!(row.group.as_ref().unwrap().worst_partition, Some(2));
    assert_ne!(row.group.as_ref().unwrap().eta, Eta::CaughtUp);
    let page = look.page(&Query { sort: Sort::Name, ..Query::default() }, |_| true);
    let shown: Vec<_> = page.rows.iter().map(|row| &*row.key.stream).collect();
    assert_eq!(shown, ["ghost:{ae}.1", "orders", "plain"]);
    assert_eq!(
        (look.totals.streams, look.totals.groups, look.totals.lag, look.totals.workers),
        (3, 1, 13, 2)
    );
    // Who may not see a partition does not see the sums.
    let hidden = |name: &str| name != &**partitions.name(3).unwrap();
    assert_eq!((look.page(&Query::default(), hidden).matched, look.totals_of(hidden).lag), (2, 0));
    let behind: Vec<_> =
        look.rows_behind(&key).iter().map(|row| row.part_of.as_ref().unwrap().number).collect();
    assert_eq!(behind, [0, 1, 2, 3]);
    let part = RowKey::group(&**partitions.name(1).unwrap(), "billing");
    assert_eq!(look.row(&part).unwrap().shown_key().stream, "orders/1");
    for key in [key, part] {
        let history = sampler.history(&key, 0, u64::MAX, 1);
        let expected = if key.stream == "orders" { 13 } else { 9 };
        assert_eq!(history.lag.iter().flatten().max(), Some(&expected));
    }
}

/// The list is gone: the streams are ordinary ones again, soon.
async fn without_a_list(backend: &Arc<dyn Admin>) {
    let options = SamplerOptions::default().interval(Duration::from_millis(50));
    let sampler = Sampler::start(Arc::clone(backend), options);
    let mut viewer = sampler.subscribe();
    while sampler.look().stream("orders").is_none_or(|stream| stream.partitioned.is_none()) {
        viewer.changed().await;
    }
    let fields = ["generation", "1", "hash", "key"].map(str::to_owned);
    backend.hash_delete(&partitions_key("orders"), &fields).await.unwrap();
    let ordinary = async {
        while sampler.look().stream("orders").is_some_and(|stream| stream.partitioned.is_some()) {
            viewer.changed().await;
        }
    };
    tokio::time::timeout(super::TIMEOUT, ordinary).await.expect("ordinary streams in time");
    assert!(sampler.look().rows.iter().any(|row| row.key.stream.starts_with("orders:{")));
}

/// A group that nobody has read yet is no worse than those of its partitions.
async fn never_read(backend: &Arc<dyn Admin>) {
    let partitions = Partitions::plan("visits", 2, None).unwrap();
    partitions.create(&**backend).await.unwrap();
    for name in partitions.names() {
        add(&**backend, name, 1).await;
        backend.create_group(name, "count", Start::End).await.unwrap();
        add(&**backend, name, 1).await;
    }
    let monitor = Monitor::new(Arc::clone(backend));
    let group = monitor.group("visits", "count").await.unwrap().unwrap();
    let verdict = group.verdict(&Limits::default());
    assert_eq!((group.lag.count, verdict.health), (2, Health::Degraded), "{verdict}");
    assert_eq!(group.parts[0].verdict(&Limits::default()).health, Health::Degraded);
}

/// A partition is gone, and somebody adds to the logical name.
async fn missing(backend: &Arc<dyn Admin>, partitions: &Partitions) {
    backend.delete_stream(partitions.name(3).unwrap()).await.unwrap();
    add(&**backend, "orders", 1).await;
    let monitor = Monitor::new(Arc::clone(backend));
    let streams = monitor.streams("*").await.unwrap();
    let found = streams.iter().find(|stream| stream.name == "orders").unwrap();
    assert_eq!((found.info.length, found.groups[0].lag.count), (14, 12));
    assert_eq!(found.partitioned.as_ref().unwrap().missing(), [3]);
    let diagnosis = diagnose(&**backend, &streams).await.unwrap();
    let codes: Vec<_> = diagnosis.findings.iter().map(|finding| finding.code).collect();
    assert!(codes.contains(&"partition_missing") && codes.contains(&"unpartitioned_entries"), "{codes:?}");
}

/// Number of partitions of the stream with which looks are counted.
const MANY: usize = 100;

#[tokio::test(flavor = "multi_thread")]
async fn a_look_at_partitions_takes_few_round_trips() {
    let server = Server::start(Program::Millstream, &[]);
    let redis = Arc::new(Redis::connect(&server.url(), ServerOptions::default()).await.unwrap());
    let partitions = Partitions::plan("orders", MANY, None).unwrap();
    partitions.create(&*redis).await.unwrap();
    for name in partitions.names() {
        redis.create_group(name, "billing", Start::Beginning).await.unwrap();
    }
    let admin: Arc<dyn Admin> = Arc::clone(&redis) as Arc<dyn Admin>;
    let sampler = Sampler::start(admin, SamplerOptions::default().interval(Duration::from_millis(1)));
    let mut viewer = sampler.subscribe();
    viewer.show([RowKey::group("orders", "billing")]);
    while sampler.look().streams.len() != 1 || sampler.look().rows[0].partitions != MANY {
        viewer.changed().await;
    }
    let (first, before) = (viewer.state().number, redis.round_trips());
    while viewer.state().number < first + 2 {
        viewer.changed().await;
    }
    let looks = viewer.state().number - first + 1;
    let round_trips = (redis.round_trips() - before) / looks;
    assert!(round_trips < 12, "a look at {MANY} partitions takes {round_trips} round trips");
    assert_eq!(sampler.look().stream("orders").unwrap().groups[0].last_delivered, StreamId::MIN);
}
