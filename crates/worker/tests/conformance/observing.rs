//! The sampler on real servers: what a look costs, names that are no text, and a server that goes away.

use std::sync::Arc;
use std::time::Duration;

use millstream_worker::backend::{InspectStore, ReadMessages, Redis, ServerOptions, SettleMessages, Start};
use millstream_worker::observe::{Query, RowKey, Sampler, SamplerOptions, Viewer};
use tokio::task::JoinSet;

use super::cases::entry;
use super::peers::{REDIS_7_0, VALKEY_9_1};
use super::servers::{Cluster, Program, Server};

const STREAMS: usize = 1_000;
const GROUPS: usize = 10;
/// Maximum number of round trips of a look at all of them.
const ROUND_TRIPS_MAX: u64 = 20;

#[tokio::test(flavor = "multi_thread")]
async fn a_look_at_ten_thousand_groups_takes_few_round_trips() {
    let millstream = Server::start(Program::Millstream, &[]);
    let ours = Redis::connect(&millstream.url(), ServerOptions::default()).await.unwrap();
    // At the same time, because the sampler pauses for longer than a look takes.
    let on_redis = async {
        let Some(redis) = Server::peer(&REDIS_7_0, &[]) else { return };
        few_round_trips(Redis::connect(&redis.url(), ServerOptions::default()).await.unwrap(), 1).await;
    };
    tokio::join!(few_round_trips(ours, 1), on_redis);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_look_at_a_cluster_takes_few_round_trips_to_each_node() {
    let Some(cluster) = Cluster::start(&VALKEY_9_1) else { return };
    let url = cluster.url();
    let nodes = url.trim_start_matches("redis+cluster://").split(',');
    let urls: Vec<String> = nodes.map(|node| format!("redis://{node}")).collect();
    few_round_trips(Redis::connect_cluster(&urls, ServerOptions::default()).await.unwrap(), 3).await;
}

async fn few_round_trips(redis: Redis, nodes: u64) {
    let redis = Arc::new(redis);
    let mut creating = JoinSet::new();
    for part in 0..20 {
        let redis = redis.clone();
        creating.spawn(async move {
            for stream in (part..STREAMS).step_by(20).map(|n| format!("s{n:04}")) {
                for group in 0..GROUPS {
                    redis.create_group(&stream, &format!("g{group}"), Start::Beginning).await.unwrap();
                }
                redis.add(&stream, &[entry("n", "1")], None).await.unwrap();
            }
        });
    }
    creating.join_all().await;
    let options = SamplerOptions::default().interval(Duration::from_millis(1));
    let sampler = Sampler::start(redis.clone(), options);
    let mut viewer = sampler.subscribe();
    while sampler.look().totals.groups < STREAMS * GROUPS {
        viewer.changed().await;
    }
    let page = sampler.look().page(&Query::default(), |_| true);
    assert_eq!((page.rows.len(), page.matched), (100, STREAMS * GROUPS));
    viewer.show(page.rows.iter().map(|row| row.key.clone()));
    let (first, before) = (viewer.state().number, redis.round_trips());
    while viewer.state().number < first + 2 {
        viewer.changed().await;
    }
    // One more: the next look may have begun.
    let looks = viewer.state().number - first + 1;
    let round_trips = (redis.round_trips() - before) / looks;
    assert!(round_trips < ROUND_TRIPS_MAX * nodes, "a look takes {round_trips} round trips");
    let look = sampler.look();
    let groups = look.rows.iter().filter_map(|row| row.group.as_ref());
    let detailed = groups.filter(|group| group.snapshot.detail_at.is_some()).count();
    assert!(detailed >= 200, "others have had their turn too");
    assert!(redis.consumers("s0000", "g0").await.unwrap().is_empty(), "a look has created a consumer");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_whose_name_is_not_text_is_listed() {
    let Some(server) = Server::redis(&[]) else { return };
    server.cli(&["EVAL", r"return redis.call('XADD', '\255\254', '*', 'n', '1')", "0"]);
    let backend = millstream_worker::connect(&server.url()).await.unwrap();
    backend.create_group("plain", "g", Start::Beginning).await.unwrap();
    let sampler = Sampler::start(backend, SamplerOptions::default());
    sampler.subscribe().changed().await;
    let look = sampler.look();
    let rows: Vec<_> = look.rows.iter().map(|row| (&*row.key.stream, row.openable)).collect();
    assert_eq!(rows, [(r"\xff\xfe", false), ("plain", true)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sampler_is_live_again_after_its_server_was_killed() {
    let mut server = Server::start(Program::Millstream, &["--appendonly", "yes", "--appendfsync", "always"]);
    let backend = millstream_worker::connect(&server.url()).await.unwrap();
    backend.create_group("orders", "billing", Start::Beginning).await.unwrap();
    let options = SamplerOptions::default().interval(Duration::from_millis(50));
    let sampler = Sampler::start(backend.clone(), options);
    let mut viewer = sampler.subscribe();
    wait_until(&mut viewer, |viewer| viewer.state().number > 0).await;
    server.kill();
    wait_until(&mut viewer, |viewer| viewer.state().trouble.is_some()).await;
    let (number, key) = (sampler.state().number, RowKey::group("orders", "billing"));
    assert!(sampler.look().row(&key).is_some(), "the last picture is gone");
    server.restart();
    wait_until(&mut viewer, |viewer| viewer.state().trouble.is_none()).await;
    assert!(sampler.state().number > number);
    backend.add("orders", &[entry("n", "1")], None).await.unwrap();
    let lag = |look: &millstream_worker::observe::Look| {
        look.row(&key).and_then(|row| row.group.as_ref().map(|group| group.snapshot.lag.count))
    };
    wait_until(&mut viewer, |_| lag(&sampler.look()) == Some(1)).await;
    assert!(!sampler.history(&key, 0, u64::MAX, 10).is_empty());
}

async fn wait_until(viewer: &mut Viewer, condition: impl Fn(&Viewer) -> bool) {
    let waiting = async {
        while !condition(viewer) {
            viewer.changed().await;
        }
    };
    tokio::time::timeout(super::TIMEOUT, waiting).await.expect("the condition holds in time");
}
