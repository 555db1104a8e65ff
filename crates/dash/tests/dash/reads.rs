//! What the API answers to GET, on each kind of store.

use millstream_dash::Options;
use millstream_worker::backend::Start;
use millstream_worker::redaction::Redaction;
use serde_json::{Value, json};

use crate::stores;
use crate::support::{Dash, eventually, over};

impl Dash {
    /// Reads a resource of the API, which must exist.
    pub(crate) async fn api(&self, path: &str) -> Value {
        let reply = self.get(&format!("/api/v1/{path}")).await;
        assert_eq!(reply.status, 200, "{path}: {}", reply.text());
        reply.json()
    }

    /// Waits until the overview has a row of this group with this number of unread entries.
    pub(crate) async fn row(&self, group: &str, lag: u64) -> Value {
        eventually("the row is in the overview", async || {
            let rows = self.api("overview").await["rows"].as_array().unwrap().clone();
            rows.into_iter().find(|row| row["group"] == group && row["lag"] == lag)
        })
        .await
    }
}

#[tokio::test]
async fn the_overview_shows_groups_and_totals() {
    for store in stores::all().await {
        store.fill().await;
        store.add("events", &[(b"a", b"b")]).await;
        let dash = over(store.admin.clone(), Options::default()).await;
        let row = dash.row("billing", 1).await;
        assert_eq!((&row["stream"], &row["key"]), (&json!("orders"), &json!(r#"["orders","billing"]"#)));
        assert_eq!((&row["pending"], &row["length"]), (&json!(2), &json!(3)), "{}", store.name);
        let overview = dash.api("overview?sort=name&q=event").await;
        assert_eq!((&overview["matched"], &overview["rows"][0]["group"]), (&json!(1), &Value::Null));
        assert_eq!(overview["totals"]["groups"], 1);
        assert_eq!(dash.api("streams").await["matched"], 2);
        assert_eq!(dash.get("/api/v1/overview?sort=none").await.code(), "bad_request");
        assert_eq!(dash.get("/api/v1/overview?count=0").await.code(), "bad_request");
    }
}

#[tokio::test]
async fn streams_groups_and_entries_are_described() {
    for store in stores::all().await {
        store.fill().await;
        let dash = over(store.admin.clone(), Options::default()).await;
        dash.row("billing", 1).await;
        let stream = dash.api("stream?stream=orders").await;
        assert_eq!((&stream["length"], &stream["group_list"][0]["group"]), (&json!(3), &json!("billing")));
        let group = dash.api("group?stream=orders&group=billing").await;
        assert_eq!((&group["consumers"][0]["consumer"], &group["pending"]), (&json!("worker-1"), &json!(2)));
        let page = dash.api("entries?stream=orders&count=2").await;
        let items = page["items"].as_array().unwrap();
        assert_eq!((items.len(), &items[0]["fields"][0]), (2, &json!(["item", {"text": "book"}])));
        let next = page["next"].as_str().unwrap();
        let rest = dash.api(&format!("entries?stream=orders&from={next}")).await;
        assert_eq!((&rest["items"][0]["fields"][0][1]["text"], &rest["next"]), (&json!("ink"), &Value::Null));
        let newest = dash.api("entries?stream=orders&order=desc&count=1&to=%2B").await;
        assert_eq!(newest["items"][0]["id"], rest["items"][0]["id"]);
        let id = items[1]["id"].as_str().unwrap();
        let entry = dash.api(&format!("entry?stream=orders&id={id}")).await;
        assert_eq!((&entry["previous"], &entry["next"]), (&items[0]["id"], &rest["items"][0]["id"]));
        let raw = dash.get(&format!("/api/v1/entry/raw?stream=orders&id={id}&field=item")).await;
        assert_eq!((raw.status, &*raw.body), (200, &b"pen"[..]));
        assert!(raw.header("content-disposition").unwrap().starts_with("attachment; "));
        assert!(raw.header("content-security-policy").unwrap().contains("sandbox"));
        let consumer = eventually("a look has the details of the group", async || {
            let consumers = dash.api("consumers").await;
            consumers.as_array().unwrap().iter().find(|each| each["consumer"] == "worker-1").cloned()
        })
        .await;
        assert_eq!((&consumer["stream"], &consumer["group"]), (&json!("orders"), &json!("billing")));
        assert_eq!((&consumer["pending"], &consumer["workers"]), (&json!(2), &json!([])), "{}", store.name);
        for missing in [
            "stream?stream=none",
            "group?stream=orders&group=none",
            "entry?stream=orders&id=1-1",
            "entries?stream=none",
        ] {
            let reply = dash.get(&format!("/api/v1/{missing}")).await;
            assert_eq!(reply.status, 404, "{} {missing}: {}", store.name, reply.text());
        }
    }
}

#[tokio::test]
async fn a_new_group_has_an_empty_history_and_an_unknown_one_has_none() {
    for store in stores::all().await {
        store.fill().await;
        let dash = over(store.admin.clone(), Options::default()).await;
        dash.row("billing", 1).await;
        // Points are two seconds apart, so none has this group yet.
        store.admin.create_group("orders", "new", Start::Beginning).await.unwrap();
        store.add("lonely", &[(b"a", b"b")]).await;
        for new in ["stream=orders&group=new", "stream=lonely"] {
            let history = dash.api(&format!("history?{new}&points=3")).await;
            assert_eq!(history["lag"], json!([null, null, null]), "{} {new}: {history}", store.name);
        }
        for missing in ["stream=none", "stream=none&group=new", "stream=orders&group=none"] {
            let reply = dash.get(&format!("/api/v1/history?{missing}")).await;
            assert_eq!(reply.status, 404, "{} {missing}: {}", store.name, reply.text());
        }
    }
}

#[tokio::test]
async fn the_server_answers_or_the_panel_says_that_there_is_none() {
    for store in stores::all().await {
        let dash = over(store.admin.clone(), Options::default()).await;
        let server = dash.api("server").await;
        let slow = dash.get("/api/v1/slowlog").await;
        match store.name {
            "embedded" => {
                assert!(server["facts"].is_null());
                assert_eq!(slow.code(), "unsupported");
            }
            _ => {
                assert!(server["summary"]["memory_bytes"].as_u64().unwrap() > 0);
                let commands = server["commands"].as_array().unwrap();
                assert!(commands.iter().any(|each| each["name"] == "info"), "{}: {server}", store.name);
                assert_eq!(slow.status, 200);
                assert!(dash.api("clients").await.as_array().is_some_and(|clients| !clients.is_empty()));
            }
        }
        assert!(dash.api("doctor").await["findings"].is_array());
    }
}

#[tokio::test]
async fn hidden_values_are_nowhere() {
    let store = stores::all().await.remove(0);
    let json = br#"{"user":{"email":"a@b.c","id":1234567890123456789},"token":"hunter22"}"#;
    let id = store.add("orders", &[(b"item", b"book"), (b"card_no", b"hunter22"), (b"data", json)]).await;
    let mut options = Options::default();
    options.redaction = Redaction::new(["*token*", "card*", "data.user.email"]).unwrap();
    let dash = over(store.admin.clone(), options).await;
    for path in [format!("entry?stream=orders&id={id}"), "entries?stream=orders".to_owned()] {
        let text = dash.api(&path).await.to_string();
        assert!(text.contains("1234567890123456789") && text.contains("book"), "{text}");
        assert!(!text.contains("hunter22") && !text.contains("a@b.c"), "{text}");
    }
    let raw = |field: &str| format!("/api/v1/entry/raw?stream=orders&id={id}&field={field}");
    assert_eq!(dash.get(&raw("card_no")).await.code(), "hidden");
    assert!(!dash.get(&raw("data")).await.text().contains("a@b.c"));
    for contains in ["hunter22", "a@b.c", "hunter", "book"] {
        let found = dash.get(&format!("/api/v1/search?stream=orders&contains={contains}")).await.text();
        assert_eq!(found.contains("event: found\n"), contains == "book", "{contains}: {found}");
    }
    let mut options = Options::default();
    options.payloads = false;
    let dash = over(store.admin.clone(), options).await;
    let text = dash.api("entries?stream=orders").await.to_string();
    assert!(text.contains("card_no") && !text.contains("book"), "{text}");
    assert_eq!(dash.get(&raw("item")).await.code(), "hidden");
}

#[tokio::test]
async fn probes_and_metrics_come_from_the_last_look() {
    let store = stores::all().await.remove(0);
    store.fill().await;
    let dash = over(store.admin.clone(), Options::default()).await;
    dash.row("billing", 1).await;
    assert_eq!(dash.get("/livez").await.text(), "ok\n");
    assert_eq!(dash.get("/readyz").await.text(), "ok\n");
    let metrics = dash.get("/metrics").await.text();
    assert!(metrics.contains("redis_stream_length{db=\"db0\",stream=\"orders\"} 3"), "{metrics}");
    for name in ["millstream_backend_up 1", "millstream_store_streams ", "millstream_look_age_seconds "] {
        assert!(metrics.contains(&format!("\n{name}")), "{name} is missing from {metrics}");
    }
    let zipped = dash.get_with("/metrics", "Accept-Encoding: gzip\r\n").await;
    assert_eq!(zipped.header("content-encoding"), Some("gzip"));
    assert!(zipped.body.starts_with(&[0x1f, 0x8b]));
}
