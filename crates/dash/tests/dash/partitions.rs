//! Streams with partitions: one row in the overview, and their partitions on the pages.

use std::time::Duration;

use millstream_dash::Options;
use millstream_worker::backend::{Claimant, Read, Start};
use millstream_worker::metrics::MoreSeries;
use millstream_worker::names::dead_letters_of;
use millstream_worker::partitions::Partitions;
use serde_json::{Value, json};

use crate::stores::{self, Store};
use crate::support::{eventually, over};

/// Makes `orders` with three partitions: `billing` has not read 2, 5 and 0 entries of them. One more of partition 1 is
/// pending for `worker-1`, which owns it, and partition 0 has a dead letter.
async fn fill(store: &Store) -> Partitions {
    let partitions = Partitions::plan("orders", 3, None).unwrap();
    partitions.create(&*store.admin).await.unwrap();
    for (name, unread) in partitions.names().into_iter().zip([2, 6, 0]) {
        store.admin.create_group(name, "billing", Start::Beginning).await.unwrap();
        for _ in 0..unread {
            store.add(name, &[(b"item", b"book")]).await;
        }
    }
    store.add(&dead_letters_of(partitions.names()[0]), &[(b"item", b"pen")]).await;
    let stream = partitions.names()[1];
    let read =
        Read { stream, group: "billing", consumer: "worker-1", count: 1, block: None, claim_idle: None };
    assert_eq!(store.admin.read(&read).await.unwrap().len(), 1);
    let claimant = Claimant { stream, group: "billing", instance: "worker-1" };
    store.admin.acquire(claimant, Duration::from_secs(600)).await.unwrap();
    partitions
}

#[tokio::test]
async fn a_logical_stream_is_one_row_and_its_pages_show_the_partitions() {
    for store in stores::all().await {
        let partitions = fill(&store).await;
        let mut options = Options::default();
        options.more_series = MoreSeries { partitions: true, ..MoreSeries::default() };
        let dash = over(store.admin.clone(), options).await;
        let row = dash.row("billing", 7).await;
        assert_eq!(
            (&row["stream"], &row["partition_count"], &row["length"]),
            (&json!("orders"), &json!(3), &json!(8))
        );
        assert_eq!(dash.api("overview").await["matched"], 1, "partitions and their dead letters are hidden");
        assert_eq!(dash.api("streams").await["rows"][0]["partition_count"], 3);

        let group = eventually("a look has the details of the group", async || {
            let group = dash.api("group?stream=orders&group=billing").await;
            (group["dead_letters"] == 1).then_some(group)
        })
        .await;
        assert_eq!(
            (&group["lag"], &group["pending"], &group["dead_letters"]),
            (&json!(7), &json!(1), &json!(1))
        );
        assert_eq!(group["consumers"][0]["consumer"], "worker-1");
        let parts = group["partitions"].as_array().unwrap();
        let of = |name: &str| parts.iter().map(|part| part[name].clone()).collect::<Vec<Value>>();
        assert_eq!(
            (of("partition"), of("lag")),
            (vec![json!(0), json!(1), json!(2)], vec![json!(2), json!(5), json!(0)])
        );
        assert_eq!(of("stream"), partitions.names());
        assert_eq!(of("owner"), [Value::Null, json!("worker-1"), Value::Null]);
        assert!(parts[1]["fence"].as_u64() > Some(0) && parts[0]["fence"].is_null());

        let stream = dash.api("stream?stream=orders").await;
        let lengths: Vec<_> =
            stream["partitions"].as_array().unwrap().iter().map(|part| &part["length"]).collect();
        assert_eq!((lengths, &stream["length"]), (vec![&json!(2), &json!(6), &json!(0)], &json!(8)));
        assert_eq!(stream["group_list"][0]["lag"], 7);
        let history = dash.api("history?stream=orders&group=billing").await;
        assert!(history["lag"].as_array().unwrap().contains(&json!(7)), "{history}");

        // A partition has ordinary pages, too.
        let name = partitions.names()[1].replace('{', "%7B").replace('}', "%7D");
        let part = dash.api(&format!("group?stream={name}&group=billing")).await;
        assert_eq!(
            (&part["lag"], &part["partition"], &part["partition_of"]),
            (&json!(5), &json!(1), &json!("orders"))
        );
        assert_eq!(part["partitions"], Value::Null);
        let part = dash.api(&format!("stream?stream={name}")).await;
        assert_eq!(
            (&part["length"], &part["partition_of"], &part["partitions"]),
            (&json!(6), &json!("orders"), &Value::Null)
        );

        let dead = dash.api("dlq?stream=orders").await;
        assert_eq!((dead.as_array().unwrap().len(), &dead[0]["length"]), (1, &json!(1)));
        assert_eq!(dead[0]["streams"], json!([partitions.names()[0]]));
        let metrics = dash.get("/metrics").await.text();
        for line in [
            "redis_stream_group_lag{db=\"db0\",stream=\"orders\",group=\"billing\"} 7",
            "redis_stream_group_lag{db=\"db0\",stream=\"orders\",group=\"billing\",partition=\"1\"} 5",
        ] {
            assert!(metrics.lines().any(|found| found == line), "{line} is missing from {metrics}");
        }
    }
}

#[tokio::test]
async fn actions_on_a_logical_stream_change_all_its_partitions() {
    for store in stores::all().await {
        let partitions = Partitions::plan("orders", 3, None).unwrap();
        partitions.create(&*store.admin).await.unwrap();
        // Creating a group creates this partition again.
        store.admin.delete_stream(partitions.names()[1]).await.unwrap();
        let dash = over(store.admin.clone(), Options::default()).await;
        let create = json!({"stream": "orders", "group": "audit", "start": "earliest"});
        assert_eq!(dash.post("/api/v1/groups", &create).await.status, 200);
        for name in partitions.names() {
            assert_eq!(store.admin.groups(name).await.unwrap().len(), 1, "{}: {name}", store.name);
        }
        let mut remove = json!({"stream": "orders", "group": "audit", "dry_run": true});
        let plan = dash.post("/api/v1/group/remove", &remove).await.json();
        remove["dry_run"] = json!(false);
        remove["preview"] = plan["preview"].clone();
        assert_eq!(dash.post("/api/v1/group/remove", &remove).await.json()["removed"], true, "{plan}");
        for name in partitions.names() {
            assert_eq!(store.admin.groups(name).await.unwrap().len(), 0, "{}: {name}", store.name);
        }
    }
}
