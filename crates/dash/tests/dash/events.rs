//! Live events and searches.

use std::time::Duration;

use millstream_dash::Options;
use millstream_dash::options::{EVENT_STREAMS_MAX, SEARCHES_MAX};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::stores;
use crate::support::{Dash, over};

/// An open connection that receives events.
struct EventSource(BufReader<TcpStream>);

/// An event.
#[derive(Debug)]
struct Event {
    name: String,
    id: Option<u64>,
    data: Value,
}

impl EventSource {
    /// Opens a connection. Returns it and the status of the answer.
    async fn open(dash: &Dash, path: &str) -> (EventSource, u16) {
        let mut connection = TcpStream::connect(dash.address).await.unwrap();
        let head = format!("GET /api/v1/{path} HTTP/1.1\r\nHost: {}\r\n\r\n", dash.address);
        connection.write_all(head.as_bytes()).await.unwrap();
        let mut source = EventSource(BufReader::new(connection));
        let status = source.line().await[9..12].parse().unwrap();
        while !source.line().await.is_empty() {}
        (source, status)
    }

    async fn line(&mut self) -> String {
        let mut line = String::new();
        let read = timeout(Duration::from_secs(20), self.0.read_line(&mut line)).await;
        read.expect("a line within 20 s").unwrap();
        line.trim_end_matches(['\r', '\n']).to_owned()
    }

    /// Returns the next event.
    async fn next(&mut self) -> Event {
        let (mut name, mut id) = (String::new(), None);
        loop {
            let line = self.line().await;
            if let Some(text) = line.strip_prefix("event: ") {
                name = text.to_owned();
            } else if let Some(text) = line.strip_prefix("id: ") {
                id = text.parse().ok();
            } else if let Some(text) = line.strip_prefix("data: ") {
                return Event { name, id, data: serde_json::from_str(text).unwrap() };
            }
        }
    }

    /// Returns the next event with this name.
    async fn named(&mut self, name: &str) -> Event {
        loop {
            let event = self.next().await;
            if event.name == name {
                return event;
            }
        }
    }
}

#[tokio::test]
async fn a_page_gets_its_rows_and_then_what_changes() {
    for store in stores::all().await {
        store.fill().await;
        let dash = over(store.admin.clone(), Options::default()).await;
        dash.row("billing", 1).await;
        let (mut events, _) = EventSource::open(&dash, "events?watch=overview%3Fq%3Dorders").await;
        assert_eq!(events.next().await.name, "hello");
        let first = events.named("rows").await;
        let key = r#"["orders","billing"]"#;
        assert_eq!((&first.data["order"][0], &first.data["set"][key]["lag"]), (&key.into(), &1.into()));
        assert_eq!(first.id, first.data["look"].as_u64());
        store.add("orders", &[(b"item", b"nib")]).await;
        store.add("orders:2", &[(b"item", b"nib")]).await;
        let (mut lag, mut order) = (Value::Null, 0);
        while lag != 2 || order != 2 {
            let change = events.named("rows").await.data;
            lag = change["set"][key].get("lag").cloned().unwrap_or(lag);
            order = change["order"].as_array().unwrap().len();
        }
        store.admin.delete_stream("orders:2").await.unwrap();
        while events.named("rows").await.data["gone"] != serde_json::json!([r#"["orders:2",null]"#]) {}
        let (mut group, _) =
            EventSource::open(&dash, "events?watch=group%3Fstream%3Dorders%26group%3Dbilling&since=99999999")
                .await;
        assert_eq!(group.next().await.name, "hello");
        assert_eq!(group.next().await.name, "resync");
        assert_eq!(group.named("group").await.data["group"], "billing");
        store.admin.delete_group("orders", "billing").await.unwrap();
        assert_eq!(group.named("problem").await.data["code"], "not_found", "{}", store.name);
    }
}

#[tokio::test]
async fn a_tail_shows_few_entries_and_counts_the_others() {
    for store in stores::all().await {
        store.add("orders", &[(b"item", b"old")]).await;
        let dash = over(store.admin.clone(), Options::default()).await;
        let (mut tail, _) = EventSource::open(&dash, "events?watch=tail%3Fstream%3Dorders").await;
        tail.next().await;
        // The tail begins at the end of the stream at some time after the first event.
        tokio::time::sleep(Duration::from_millis(300)).await;
        for number in 0..50 {
            store.add("orders", &[(b"item", format!("book {number}").as_bytes())]).await;
        }
        let (mut shown, mut skipped) = (0, 0);
        while shown + skipped < 50 {
            let event = tail.named("entries").await.data;
            shown += event["items"].as_array().unwrap().len();
            skipped += event["skipped"].as_u64().unwrap() as usize;
            assert!(!event.to_string().contains("old"));
        }
        assert!(shown >= 20 && shown + skipped == 50, "{}: {shown} {skipped}", store.name);
    }
}

#[tokio::test]
async fn a_search_is_bounded_and_says_where_it_ended() {
    for store in stores::all().await {
        for number in 0..1200 {
            store.add("orders", &[(b"n", number.to_string().as_bytes()), (b"item", b"pen")]).await;
        }
        let dash = over(store.admin.clone(), Options::default()).await;
        let search = async |query: &str| {
            let (mut events, status) =
                EventSource::open(&dash, &format!("search?stream=orders&{query}")).await;
            assert_eq!(status, 200);
            let mut found = Vec::new();
            loop {
                let event = events.next().await;
                match &*event.name {
                    "found" => found.push(event.data["entry"]["fields"][0][1]["text"].clone()),
                    "end" => return (found, event.data),
                    _ => {}
                }
            }
        };
        let (found, end) = search("field=n&contains=1199").await;
        assert_eq!((found, &end["why"], &end["next"]), (vec!["1199".into()], &"done".into(), &Value::Null));
        let (found, end) = search("contains=1199&scan=1000").await;
        assert_eq!((found.len(), &end["why"], &end["scanned"]), (0, &"scan".into(), &1000.into()));
        let next = end["next"].as_str().unwrap();
        let (found, _) = search(&format!("contains=1199&from={next}")).await;
        assert_eq!(found.len(), 1);
        let (found, end) = search("contains=pen").await;
        assert_eq!((found.len(), &end["why"]), (200, &"found".into()), "{}", store.name);
        let (found, _) = search("contains=pen&order=desc&scan=1").await;
        assert_eq!(found, ["1199"]);
        assert_eq!(
            dash.get("/api/v1/search?stream=orders&contains=x&scan=100001").await.code(),
            "bad_request"
        );
        assert_eq!(dash.get("/api/v1/search?stream=orders").await.code(), "bad_request");
    }
}

#[tokio::test]
async fn the_number_of_event_streams_and_searches_is_limited() {
    let store = stores::all().await.remove(0);
    let dash = over(store.admin.clone(), Options::default()).await;
    let mut open = Vec::new();
    for _ in 0..EVENT_STREAMS_MAX {
        let (events, status) = EventSource::open(&dash, "events?watch=overview").await;
        assert_eq!(status, 200);
        open.push(events);
    }
    assert_eq!(dash.get("/api/v1/events?watch=overview").await.code(), "too_many_events");
    // Other requests still get connections.
    assert_eq!(dash.get("/livez").await.status, 200);
    open.pop();
    crate::support::eventually("a closed connection frees its place", async || {
        let (events, status) = EventSource::open(&dash, "events?watch=overview").await;
        drop(events);
        (status == 200).then_some(())
    })
    .await;
    const { assert!(SEARCHES_MAX < EVENT_STREAMS_MAX) };
}

#[tokio::test]
async fn a_reader_that_stops_gets_the_newest_state_when_it_goes_on() {
    let store = stores::all().await.remove(0);
    // Rows that together are far larger than the buffers of a connection. The age of an unread entry changes with each
    // look.
    let long = "x".repeat(40_000);
    for number in 0..20 {
        let stream = format!("{number}{long}");
        store.add(&stream, &[(b"a", b"b")]).await;
        store.admin.create_group(&stream, "g", millstream_worker::backend::Start::Beginning).await.unwrap();
    }
    let dash = over(store.admin.clone(), Options::default()).await;
    let (mut events, _) = EventSource::open(&dash, "events?watch=overview").await;
    let number = async || dash.api("status").await["look"]["number"].as_u64().unwrap();
    let target = number().await + 8;
    crate::support::eventually("8 looks", async || (number().await >= target).then_some(())).await;
    let (mut looks, mut last) = (0, 0);
    while last < target {
        last = events.named("rows").await.id.unwrap();
        looks += 1;
    }
    assert!(looks < 8, "{looks} looks were queued");
}

#[tokio::test]
async fn hostile_names_and_payloads_stay_data() {
    let hostile: [&[u8]; 20] = [
        b"<script>window.pwned=1</script>",
        b"\"><img src=x onerror=window.pwned=1>",
        b"</title><svg onload=window.pwned=1>",
        b"javascript:window.pwned=1",
        b"${window.pwned=1}",
        b"__proto__",
        b"constructor",
        b"..",
        b"%2e%2e",
        b"a/b?c#d&e=f",
        b"\r\nSet-Cookie: x=1",
        b"\n\nevent: job\ndata: {}",
        b"=HYPERLINK(\"http://x\")",
        "\u{202e}\u{2028}\u{200b}".as_bytes(),
        b"\x1b[2J",
        b"nul\0byte",
        b"\xff\xfe",
        b"",
        b"1e999",
        b"9007199254740993",
    ];
    let store = stores::all().await.remove(0);
    let deep = "[".repeat(10_000);
    for bytes in hostile {
        let name = String::from_utf8_lossy(bytes);
        let name = if name.is_empty() { "empty".into() } else { name };
        store.add(&name, &[(bytes, bytes), (b"deep", deep.as_bytes()), (b"note", b"x")]).await;
        let created =
            store.admin.create_group(&name, &name, millstream_worker::backend::Start::Beginning).await;
        assert!(created.unwrap());
    }
    let dash = over(store.admin.clone(), Options::default()).await;
    crate::support::eventually("all streams are seen", async || {
        (dash.api("streams").await["matched"] == hostile.len()).then_some(())
    })
    .await;
    for bytes in hostile {
        let name = String::from_utf8_lossy(bytes);
        let name = if name.is_empty() { "empty".into() } else { name };
        let encoded: String = name.bytes().map(|byte| format!("%{byte:02X}")).collect();
        let page = dash.api(&format!("entries?stream={encoded}")).await;
        let shown = &page["items"][0]["fields"][0][1];
        match std::str::from_utf8(bytes) {
            Ok(text) => assert_eq!(shown["text"], text),
            Err(_) => assert_eq!(shown["hex"], "fffe"),
        }
        assert_eq!(dash.api(&format!("group?stream={encoded}&group={encoded}")).await["stream"], *name);
        let found = dash.get(&format!("/api/v1/search?stream={encoded}&field=note&contains=x")).await;
        let events = found.text().lines().filter(|line| line.starts_with("event: ")).count();
        assert_eq!((events, found.header("set-cookie")), (2, None), "{}", found.text().len());
        let reply = dash.get(&format!("/api/v1/stream?stream=none{encoded}")).await;
        assert_eq!((reply.status, reply.header("set-cookie")), (404, None));
    }
}
