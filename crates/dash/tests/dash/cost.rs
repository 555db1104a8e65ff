//! What the dashboard costs the store, and that looking changes nothing in it.

use std::sync::Arc;
use std::time::Duration;

use millstream_dash::Options;
use millstream_worker::Admin;
use millstream_worker::backend::{ReadMessages, Redis, ServerOptions, Start};
use serde_json::Value;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use crate::stores::{self, Store};
use crate::support::{Dash, eventually, over};

const STREAMS: usize = 300;
/// Maximum number of round trips of one look at these streams.
const ROUND_TRIPS_MAX: u64 = 20;
/// Number of looks to count.
const LOOKS: u64 = 10;

impl Dash {
    async fn look(&self) -> u64 {
        self.api("status").await["look"]["number"].as_u64().unwrap()
    }

    /// Opens a connection that receives the events of an overview, and leaves it open.
    async fn watch(&self, watch: &str) -> TcpStream {
        let mut connection = TcpStream::connect(self.address).await.unwrap();
        let head = format!("GET /api/v1/events?watch={watch} HTTP/1.1\r\nHost: {}\r\n\r\n", self.address);
        connection.write_all(head.as_bytes()).await.unwrap();
        connection
    }

    /// Returns the number of round trips in some looks.
    async fn round_trips(&self, redis: &Redis) -> u64 {
        let first = self.look().await;
        let before = redis.round_trips();
        let last = eventually("there are more looks", async || {
            Some(self.look().await).filter(|look| *look >= first + LOOKS)
        })
        .await;
        (redis.round_trips() - before) / (last - first)
    }
}

/// A look takes few round trips, however many streams there are and however many viewers watch.
#[tokio::test]
async fn ten_viewers_cost_what_one_does_and_a_look_few_round_trips() {
    let Some(store) = stores::redis().await else { return };
    let redis = Arc::new(Redis::connect(&store.admin.location(), ServerOptions::default()).await.unwrap());
    for n in 0..STREAMS {
        redis.create_group(&format!("s{n}"), "g", Start::Beginning).await.unwrap();
    }
    let admin: Arc<dyn Admin> = redis.clone();
    let dash = over(admin, Options::default()).await;
    eventually("all streams are known", async || {
        (dash.api("overview").await["totals"]["streams"] == STREAMS).then_some(())
    })
    .await;
    let one = dash.round_trips(&redis).await;
    let mut viewers = Vec::new();
    for _ in 0..10 {
        viewers.push(dash.watch("overview%3Fcount%3D100").await);
    }
    let before = redis.round_trips();
    for path in ["overview", "streams", "workers", "dlq", "history?stream=s1", "status", "jobs", "audit"] {
        for _ in 0..20 {
            dash.api(path).await;
        }
    }
    let asked = redis.round_trips() - before;
    let ten = dash.round_trips(&redis).await;
    assert!(one <= ROUND_TRIPS_MAX && ten <= ROUND_TRIPS_MAX, "{one} round trips, {ten} with ten viewers");
    // Meanwhile there were looks, but 160 requests did not ask the store.
    assert!(asked < 160, "{asked}");
}

/// Returns all that the store says about its groups and consumers.
async fn state(store: &Store) -> String {
    let mut groups = store.admin.groups("orders").await.unwrap();
    groups.sort_by(|a, b| a.name.cmp(&b.name));
    let mut consumers = store.admin.consumers("orders", "billing").await.unwrap();
    consumers.iter_mut().for_each(|consumer| (consumer.idle, consumer.inactive) = (Duration::ZERO, None));
    let pending = store.admin.pending_summary("orders", "billing").await.unwrap();
    let streams = store.admin.streams("*").await.unwrap();
    format!("{groups:?} {consumers:?} {pending:?} {streams:?}")
}

#[tokio::test]
async fn looking_joins_no_group_and_creates_nothing() {
    for store in stores::all().await {
        store.fill().await;
        let before = state(&store).await;
        let dash = over(store.admin.clone(), Options::default()).await;
        dash.row("billing", 1).await;
        let first = store.admin.stream("orders").await.unwrap().unwrap().first_entry.unwrap();
        let mut watches = Vec::new();
        for watch in [
            "overview",
            "stream%3Fstream%3Dorders",
            "group%3Fstream%3Dorders%26group%3Dbilling",
            "tail%3Fstream%3Dorders",
            "tail%3Fstream%3Dorders%26group%3Dbilling",
            "tail%3Fstream%3Dnone",
        ] {
            watches.push(dash.watch(watch).await);
        }
        let description = dash.api("openapi.json").await;
        for (path, methods) in description["paths"].as_object().unwrap() {
            if path != "/events" && methods["get"] != Value::Null {
                let query = format!("stream=orders&group=billing&id={first}&field=item&contains=book");
                assert!(dash.get(&format!("/api/v1{path}?{query}")).await.status < 500, "{path}");
            }
        }
        let seen = dash.look().await;
        eventually("the viewers have seen looks", async || (dash.look().await > seen + 3).then_some(()))
            .await;
        assert_eq!(state(&store).await, before, "{}", store.name);
    }
}
