//! Tests of the monitor on the embedded store, and of verdicts on constructed snapshots.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use millstream_engine::IdSpec;
use millstream_store::verbs::Add;

use super::*;
use crate::backend::{Admin, ConsumerInfo, Embedded, Read, ReadMessages, Start, StreamId};
use crate::heartbeat::{Heartbeat, WorkerInfo, WorkerState};
use crate::metrics::{MoreSeries, exporter_text};
use crate::names::dead_letters_of;
use crate::producer::Producer;

const MINUTE: Duration = Duration::from_secs(60);

async fn orders(count: usize) -> (Arc<dyn Admin>, Vec<StreamId>) {
    let backend: Arc<dyn Admin> = Arc::new(Embedded::in_memory());
    backend.create_group("orders", "billing", Start::Beginning).await.unwrap();
    let producer = Producer::new(backend.clone(), "orders");
    let ids = producer.send_all((0..count).map(|n| [("n", n.to_string())])).await.unwrap();
    (backend, ids)
}

async fn read(backend: &Arc<dyn Admin>, count: usize) {
    let read =
        Read { stream: "orders", group: "billing", consumer: "one", count, block: None, claim_idle: None };
    backend.read(&read).await.unwrap();
}

#[tokio::test]
async fn snapshot_shows_unread_and_pending_entries() {
    let (backend, ids) = orders(5).await;
    read(&backend, 3).await;
    Producer::new(backend.clone(), dead_letters_of("orders")).send([("x", "y")]).await.unwrap();
    let monitor = Monitor::new(Arc::clone(&backend));
    let stream = monitor.stream("orders").await.unwrap().unwrap();
    assert_eq!((stream.info.length, stream.dead_letters_length), (5, 1));
    let group = stream.group("billing").unwrap();
    assert_eq!((group.lag.count, group.lag.is_exact(), group.pending), (2, true, 3));
    assert_eq!(group.oldest_unread.unwrap().id, ids[3]);
    assert_eq!(group.oldest_pending.unwrap().id, ids[0]);
    assert_eq!((group.scan.scanned, group.scan.complete, group.scan.stuck), (3, true, 0));
    assert_eq!((group.consumers.len(), group.consumers[0].pending), (1, 3));
    let alone = monitor.group("orders", "billing").await.unwrap().unwrap();
    assert_eq!((alone.lag, alone.pending, alone.dead_letters_length), (group.lag, 3, 1));
    let (lag, oldest) = monitor.backlog("orders", "billing").await.unwrap().unwrap();
    assert_eq!((lag.count, oldest.unwrap().id), (2, ids[3]));
}

#[tokio::test]
async fn missing_streams_and_groups_are_none() {
    let (backend, _) = orders(0).await;
    let monitor = Monitor::new(backend);
    assert_eq!(monitor.stream("nowhere").await.unwrap(), None);
    assert_eq!(monitor.group("orders", "nobody").await.unwrap(), None);
    assert_eq!(monitor.backlog("nowhere", "billing").await.unwrap(), None);
    let names: Vec<String> =
        monitor.streams("ord*").await.unwrap().into_iter().map(|stream| stream.name).collect();
    assert_eq!(names, ["orders"]);
    let empty = monitor.group("orders", "billing").await.unwrap().unwrap();
    assert_eq!((empty.lag.count, empty.oldest_unread, empty.oldest_pending), (0, None, None));
    assert_eq!(empty.verdict(&Limits::default()).health, Health::Ok);
}

#[tokio::test]
async fn scan_finds_stuck_entries_up_to_its_limit() {
    let (backend, ids) = orders(30).await;
    read(&backend, 30).await;
    let all = Monitor::new(Arc::clone(&backend)).stuck(1, MINUTE);
    let scan = all.group("orders", "billing").await.unwrap().unwrap().scan;
    assert_eq!((scan.stuck, scan.complete, scan.most_deliveries), (30, true, 1));
    assert_eq!(scan.stuck_rows.first().unwrap().id, ids[0]);
    assert!(scan.stuck_rows.len() < 30, "the list of stuck entries is limited");
    let few = all.scan(4).group("orders", "billing").await.unwrap().unwrap().scan;
    assert_eq!((few.scanned, few.stuck, few.complete), (4, 4, false));
    let idle = Monitor::new(backend).stuck(u64::MAX, Duration::ZERO);
    assert_eq!(idle.group("orders", "billing").await.unwrap().unwrap().scan.stuck, 30);
}

#[tokio::test]
async fn rates_are_computed_from_two_snapshots() {
    let (backend, _) = orders(10).await;
    let monitor = Monitor::new(Arc::clone(&backend));
    let mut earlier = monitor.stream("orders").await.unwrap().unwrap();
    read(&backend, 6).await;
    Producer::new(backend.clone(), "orders").send([("n", "10")]).await.unwrap();
    let mut later = monitor.stream("orders").await.unwrap().unwrap();
    // Set the times by hand: exactly two seconds apart.
    let start = SystemTime::UNIX_EPOCH;
    (earlier.at, earlier.groups[0].at) = (start, start);
    (later.at, later.groups[0].at) = (start + 2 * (MINUTE / 60), start + 2 * (MINUTE / 60));
    let stream = StreamRates::between(&earlier, &later).unwrap();
    assert_eq!((stream.added, stream.dead), (Some(0.5), 0.0));
    let group = GroupRates::between(&earlier.groups[0], &later.groups[0]).unwrap();
    assert_eq!((group.read, group.pending, group.acknowledged), (Some(3.0), 3.0, Some(0.0)));
    assert_eq!((group.lag, group.caught_up_in), (Some(-2.5), Some(Duration::from_secs(2))));
    let back = GroupRates::between(&later.groups[0], &earlier.groups[0]);
    assert_eq!(back, None, "the later snapshot must come second");
    assert_eq!(StreamRates::between(&later, &later), None);
}

async fn healthy_group() -> GroupSnapshot {
    let (backend, _) = orders(0).await;
    let group = Monitor::new(backend).group("orders", "billing").await.unwrap().unwrap();
    assert_eq!(group.verdict(&Limits::default()), GroupVerdict { health: Health::Ok, findings: vec![] });
    group
}

fn consumer(idle: Duration, pending: u64) -> ConsumerInfo {
    ConsumerInfo { name: "one".to_owned(), pending, idle, inactive: None }
}

#[tokio::test]
async fn verdict_finds_each_problem_at_its_threshold() {
    type Change = fn(&mut GroupSnapshot);
    let cases: [(&str, Health, Change); 20] = [
        ("missed", Health::Critical, |group| (group.missed.count, group.missed.is_ahead) = (1, true)),
        // The group has read on: nothing can be done.
        ("missed", Health::Ok, |group| group.missed.count = 1),
        ("lag", Health::Degraded, |group| group.lag.count = 10_000),
        ("lag", Health::Critical, |group| group.lag.count = 100_000),
        ("unread_age", Health::Degraded, |group| group.oldest_unread = Some(old(MINUTE))),
        ("unread_age", Health::Critical, |group| group.oldest_unread = Some(old(10 * MINUTE))),
        ("pending", Health::Degraded, |group| group.pending = 10_000),
        ("pending_age", Health::Degraded, |group| group.oldest_pending = Some(old(60 * MINUTE))),
        ("lag_grows", Health::Degraded, |group| {
            (group.lag.count, group.growth) = (500, Some(growth(1.0, 0.0, 15)));
        }),
        ("lag_grows", Health::Degraded, |group| {
            (group.lag.count, group.growth) = (500, Some(growth(1.0, 0.0, 1)));
            group.oldest_unread = Some(old(MINUTE / 12));
        }),
        ("pending_grows", Health::Degraded, |group| {
            (group.pending, group.growth) = (545, Some(growth(0.0, 1.0, 15)));
        }),
        ("keys_blocked", Health::Degraded, |group| group.workers = vec![with_lanes(4, 5, 0)]),
        ("window_full", Health::Degraded, |group| group.workers = vec![with_lanes(4, 4, 1)]),
        ("pending_idle", Health::Degraded, |group| group.scan.longest_idle = Some(5 * MINUTE)),
        ("pending_idle", Health::Critical, |group| group.scan.longest_idle = Some(30 * MINUTE)),
        ("stuck", Health::Degraded, |group| group.scan.stuck = 1),
        ("dead_letters", Health::Degraded, |group| group.dead_letters_length = 1),
        ("consumer_idle", Health::Degraded, |group| group.consumers = vec![consumer(MINUTE, 1)]),
        ("no_reader", Health::Critical, |group| (group.lag.count, group.consumers) = (1, vec![])),
        ("no_reader", Health::Critical, |group| {
            (group.scan.released, group.scan.waiting, group.consumers) = (2, 1, vec![]);
        }),
    ];
    for (code, health, change) in cases {
        let mut group = healthy_group().await;
        (group.entries_read, group.consumers) = (Some(1), vec![consumer(Duration::ZERO, 0)]);
        change(&mut group);
        let verdict = group.verdict(&Limits::default());
        assert_eq!((verdict.health, verdict.findings.len()), (health, 1), "{code}: {verdict}");
        assert_eq!((verdict.findings[0].code, verdict.findings[0].health), (code, health), "{verdict}");
    }
}

fn growth(lag: f64, pending: f64, seconds: u64) -> Growth {
    Growth { lag: Some(lag), pending, over: Duration::from_secs(seconds) }
}

fn with_lanes(failing_keys: u64, failed_attempts: u64, full_windows: u64) -> WorkerInfo {
    let mut worker = worker(WorkerState::Working, Duration::ZERO);
    let lanes = &mut worker.heartbeat.lanes;
    (lanes.failing_keys, lanes.failed_attempts, lanes.full_windows) =
        (failing_keys, failed_attempts, full_windows);
    worker
}

#[tokio::test]
async fn a_second_look_shows_that_a_group_falls_behind() {
    let store = Arc::new(Embedded::in_memory());
    let ten_seconds_ago = SystemTime::now() - MINUTE / 6;
    let ms = ten_seconds_ago.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_millis() as u64;
    let add = async |from: u64, count: u64| {
        for seq in from..from + count {
            let mut add = Add::new(b"orders".to_vec(), vec![b"n".to_vec(), b"1".to_vec()]);
            add.id = IdSpec::Explicit(StreamId::new(ms, seq));
            store.store().call(add).await.unwrap();
        }
    };
    add(0, 600).await;
    store.create_group("orders", "billing", Start::Beginning).await.unwrap();
    let backend: Arc<dyn Admin> = store.clone();
    read(&backend, 1).await;
    let monitor = Monitor::new(backend);
    let mut group = monitor.group("orders", "billing").await.unwrap().unwrap();
    let producer = async {
        tokio::time::sleep(MINUTE / 600).await;
        add(600, 100).await;
    };
    let (observed, ()) = tokio::join!(monitor.observe_growth([&mut group]), producer);
    observed.unwrap();
    let verdict = group.verdict(&Limits::default());
    assert_eq!((verdict.health, verdict.findings[0].code), (Health::Degraded, "lag_grows"), "{verdict}");
}

#[tokio::test]
async fn groups_that_hardly_grow_are_healthy() {
    let healthy: [fn(&mut GroupSnapshot); 5] = [
        |group| (group.lag.count, group.growth) = (499, Some(growth(9.0, 9.0, 15))),
        // It would double in more than ten minutes.
        |group| (group.lag.count, group.growth) = (6_001, Some(growth(10.0, 0.0, 15))),
        // A burst.
        |group| (group.lag.count, group.growth) = (5_000, Some(growth(5_000.0, 0.0, 14))),
        |group| (group.pending, group.growth) = (545, Some(growth(0.0, 100.0, 14))),
        |group| group.workers = vec![with_lanes(4, 4, 0)],
    ];
    for change in healthy {
        let mut group = healthy_group().await;
        (group.entries_read, group.consumers) = (Some(1), vec![consumer(Duration::ZERO, 0)]);
        change(&mut group);
        assert_eq!(group.verdict(&Limits::default()).to_string(), "ok");
    }
}

#[tokio::test]
async fn a_handler_that_runs_for_too_long_is_degraded() {
    let cases = [
        // Time that it runs, the worker's own limit, age of the heartbeat.
        (3_600_000, 0, 0, true),
        (3_599_999, 0, 0, false),
        (60_000, 60_000, 0, true),
        (7_200_000, 7_200_001, 0, false),
        // The worker has crashed: nothing runs.
        (7_200_000, 0, 60, false),
        (0, 0, 0, false),
    ];
    for (running_ms, slow_after_ms, age_s, is_found) in cases {
        let mut worker = worker(WorkerState::Working, Duration::from_secs(age_s));
        let heartbeat = &mut worker.heartbeat;
        heartbeat.beat_at_ms = 1_760_000_000_000;
        (heartbeat.running_id, heartbeat.slow_after_ms) = ("7-1".to_owned(), slow_after_ms);
        heartbeat.running_since_ms = if running_ms > 0 { heartbeat.beat_at_ms - running_ms } else { 0 };
        let mut group = healthy_group().await;
        (group.consumers, group.workers) = (vec![consumer(Duration::ZERO, 1)], vec![worker]);
        let verdict = group.verdict(&Limits::default());
        assert_eq!(verdict.findings.iter().any(|found| found.code == "running"), is_found, "{verdict}");
        assert_eq!(verdict.to_string().contains("has been handling message 7-1 for "), is_found, "{verdict}");
        assert_eq!(group.slow_workers(), usize::from(is_found));
    }
}

#[tokio::test]
async fn a_verdict_names_some_of_very_many_consumers() {
    let mut group = healthy_group().await;
    group.consumers = (0..1_000)
        .map(|n| ConsumerInfo { name: format!("c{n:03}"), ..consumer(2 * MINUTE, n % 2) })
        .collect();
    let verdict = group.verdict(&Limits::default());
    let findings: Vec<_> =
        verdict.findings.iter().map(|found| (found.health, found.consumer.as_deref())).collect();
    assert_eq!(findings.len(), 12);
    assert_eq!(findings[..2], [(Health::Degraded, Some("c001")), (Health::Degraded, Some("c003"))]);
    assert_eq!(
        (findings[5], &*verdict.findings[5].text),
        ((Health::Degraded, None), "495 more consumers are idle")
    );
    assert_eq!(findings[11], (Health::Ok, None));
}

fn worker(state: WorkerState, age: Duration) -> WorkerInfo {
    let json = br#"{"consumer":"one","host":"web-3","pid":412,"interval_ms":5000}"#;
    let mut heartbeat = Heartbeat::parse("i", json).unwrap();
    heartbeat.state = state;
    WorkerInfo { heartbeat, age }
}

#[tokio::test]
async fn verdict_judges_workers_by_their_heartbeats() {
    use WorkerState::{CircuitOpen, Draining, Waiting, Working};
    let (fresh, old) = (Duration::ZERO, MINUTE);
    let cases = [
        (vec![worker(Working, fresh)], 1, None),
        (vec![worker(CircuitOpen, fresh)], 0, Some(("circuit_open", Health::Degraded))),
        (vec![worker(Working, fresh), worker(Waiting, fresh)], 1, Some(("name_in_use", Health::Degraded))),
        (vec![worker(Draining, fresh), worker(Waiting, fresh)], 1, None),
        (vec![worker(Working, old)], 1, Some(("worker_dead", Health::Degraded))),
        (vec![worker(Working, old)], 0, Some(("worker_dead", Health::Ok))),
        (vec![worker(Working, old), worker(Working, fresh)], 1, None),
    ];
    for (workers, pending, found) in cases {
        let mut group = healthy_group().await;
        // A worker whose handlers run for long does not read, so its consumer is idle.
        (group.entries_read, group.consumers) = (Some(1), vec![consumer(10 * MINUTE, pending)]);
        group.workers = workers;
        let verdict = group.verdict(&Limits::default());
        let findings: Vec<_> =
            verdict.findings.iter().map(|finding| (finding.code, finding.health)).collect();
        assert_eq!(findings, found.into_iter().collect::<Vec<_>>(), "{verdict}");
        group.lag.count = 1;
        let no_reader =
            group.verdict(&Limits::default()).findings.iter().any(|found| found.code == "no_reader");
        let works = group.workers.iter().any(|worker| worker.is_alive() && worker.heartbeat.state == Working);
        assert_eq!(no_reader, !works, "{:?}", group.workers);
    }
}

#[tokio::test]
async fn a_group_never_read_from_is_at_most_degraded() {
    let strict = Limits { worst_if_never_read: Health::Critical, ..Limits::default() };
    let mut group = healthy_group().await;
    (group.lag.count, group.oldest_unread, group.consumers) = (100_000, Some(old(10 * MINUTE)), vec![]);
    group.entries_read = Some(0);
    assert_eq!(group.verdict(&strict).health, Health::Critical);
    let verdict = group.verdict(&Limits::default());
    assert_eq!((verdict.health, verdict.findings.len()), (Health::Degraded, 3), "{verdict}");
    group.entries_read = Some(1);
    assert_eq!(
        group.verdict(&Limits::default()).health,
        Health::Critical,
        "the group was read before and has no consumers"
    );
}

#[tokio::test]
async fn an_id_without_a_valid_time_has_no_age() {
    let store = Embedded::in_memory();
    let mut add = Add::new(b"orders".to_vec(), vec![b"n".to_vec(), b"1".to_vec()]);
    add.id = IdSpec::Explicit(StreamId::new(1, 1));
    store.store().call(add).await.unwrap();
    store.create_group("orders", "billing", Start::Beginning).await.unwrap();
    let group = Monitor::new(Arc::new(store)).group("orders", "billing").await.unwrap().unwrap();
    assert_eq!(group.oldest_unread, Some(OldestEntry { id: StreamId::new(1, 1), age: None }));
    let verdict = group.verdict(&Limits::default());
    let found = |code| verdict.findings.iter().any(|finding| finding.code == code);
    assert!(!found("unread_age") && found("no_reader"), "{verdict}");
}

fn old(age: Duration) -> OldestEntry {
    OldestEntry { id: StreamId::new(1, 1), age: Some(age) }
}

#[tokio::test]
async fn an_idle_consumer_without_pending_entries_is_a_remark() {
    let mut group = healthy_group().await;
    group.consumers = vec![consumer(2 * MINUTE, 0)];
    let verdict = group.verdict(&Limits::default());
    assert_eq!((verdict.health, verdict.findings.len()), (Health::Ok, 1));
    assert_eq!(verdict.to_string(), "ok");
    group.lag.count = 1;
    let verdict = group.verdict(&Limits::default());
    assert_eq!(verdict.to_string(), "critical: entries are unread and no consumer reads them");
}

#[tokio::test]
async fn exporter_text_has_the_names_of_redis_exporter() {
    let (backend, ids) = orders(5).await;
    read(&backend, 3).await;
    let streams = Monitor::new(backend).streams("*").await.unwrap();
    let text =
        exporter_text(&streams, &Limits::default(), MoreSeries { consumers: true, ..MoreSeries::default() });
    let last = ids[4].ms;
    let delivered = ids[2].ms;
    for line in [
        "redis_stream_length{db=\"db0\",stream=\"orders\"} 5".to_owned(),
        "redis_stream_groups{db=\"db0\",stream=\"orders\"} 1".to_owned(),
        "redis_stream_entries_added_total{db=\"db0\",stream=\"orders\"} 5".to_owned(),
        format!("redis_stream_last_generated_id{{db=\"db0\",stream=\"orders\"}} {last}"),
        format!("redis_stream_last_entry_id{{db=\"db0\",stream=\"orders\"}} {last}"),
        "redis_stream_group_consumers{db=\"db0\",stream=\"orders\",group=\"billing\"} 1".to_owned(),
        "redis_stream_group_messages_pending{db=\"db0\",stream=\"orders\",group=\"billing\"} 3".to_owned(),
        format!("redis_stream_group_last_delivered_id{{db=\"db0\",stream=\"orders\",group=\"billing\"}} {delivered}"),
        "redis_stream_group_lag{db=\"db0\",stream=\"orders\",group=\"billing\"} 2".to_owned(),
        "redis_stream_group_consumer_messages_pending{db=\"db0\",stream=\"orders\",group=\"billing\",consumer=\"one\"} 3"
            .to_owned(),
        "millstream_group_lag_exact{stream=\"orders\",group=\"billing\"} 1".to_owned(),
        "millstream_group_stuck_messages{stream=\"orders\",group=\"billing\"} 0".to_owned(),
        "millstream_group_health{stream=\"orders\",group=\"billing\"} 0".to_owned(),
        "millstream_dlq_length{stream=\"orders\"} 0".to_owned(),
        "millstream_store_streams 1".to_owned(),
        "millstream_store_groups{health=\"ok\"} 1".to_owned(),
        "millstream_store_unread_entries 2".to_owned(),
        "millstream_store_pending_entries 3".to_owned(),
        "millstream_metrics_left_out 0".to_owned(),
    ] {
        assert!(text.lines().any(|found| found == line), "{line} is missing from\n{text}");
    }
    assert!(text.contains("\nredis_stream_group_consumer_idle_seconds{"), "{text}");
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let (name, _) = line.split_once(['{', ' ']).unwrap();
        assert!(text.contains(&format!("# TYPE {name} ")), "{line} has no type");
    }
    assert!(!text.contains("millstream_group_lag{"), "the lag has two names");
    let without = exporter_text(&streams, &Limits::default(), MoreSeries::default());
    assert!(!without.contains("group_consumer_"), "consumers still have their own series");
}
