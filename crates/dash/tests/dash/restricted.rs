//! A visitor who may not see all streams: no answer that comes from a look tells anything about the others.
//!
//! The backend of this visitor refuses nothing, so what these tests hide, the dashboard hides. Answers that ask the
//! store with the rights of the visitor are tested with the server.

use std::net::IpAddr;
use std::sync::Arc;

use millstream_dash::access::LoginFuture;
use millstream_dash::{Access, LoginError, LoginKind, Options, Visitor};
use millstream_worker::Admin;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Duration, timeout};

use crate::stores;
use crate::support::{Dash, eventually, start};

/// Everybody is a visitor who may not see streams with `hidden` in their names. With a login, somebody sees everything.
struct Restricted(Arc<dyn Admin>);

impl Restricted {
    fn visitor(&self, name: &str, sees_all: bool) -> Visitor {
        Visitor {
            name: name.to_owned(),
            backend: Arc::clone(&self.0),
            may_see: Arc::new(move |stream| sees_all || !stream.contains("hidden")),
            may_run: Arc::new(move |command| sees_all || command != ["XTRIM"]),
            is_valid: Arc::new(|| true),
            is_operator: Arc::new(move || sees_all),
            figures: Arc::new(String::new),
        }
    }
}

impl Access for Restricted {
    fn login_kind(&self) -> LoginKind {
        LoginKind::Password
    }

    fn login<'a>(&'a self, _: Option<&'a str>, password: &'a str, _: IpAddr) -> LoginFuture<'a> {
        let result =
            if password == "all" { Ok(self.visitor("root", true)) } else { Err(LoginError::Refused) };
        Box::pin(async move { result })
    }

    fn anonymous(&self) -> Option<Visitor> {
        Some(self.visitor("guest", false))
    }
}

const ALL: &str = "Authorization: Bearer all\r\n";

impl Dash {
    async fn as_root(&self, path: &str) -> Value {
        self.get_with(&format!("/api/v1/{path}"), ALL).await.json()
    }

    /// Returns the first events of a connection, up to the first comment or a pause.
    async fn first_events(&self, watch: &str) -> String {
        let mut connection = TcpStream::connect(self.address).await.unwrap();
        let head = format!("GET /api/v1/events?watch={watch} HTTP/1.1\r\nHost: {}\r\n\r\n", self.address);
        connection.write_all(head.as_bytes()).await.unwrap();
        let mut read = Vec::new();
        while timeout(Duration::from_secs(1), connection.read_buf(&mut read))
            .await
            .is_ok_and(|read| read.unwrap() > 0)
        {
            // The overview changes with each look: some are enough.
            if read.len() > 100_000 || read.windows(7).filter(|bytes| bytes == b"event: ").count() > 5 {
                break;
            }
        }
        String::from_utf8(read).unwrap()
    }
}

#[tokio::test]
async fn answers_from_a_look_have_only_streams_that_the_visitor_may_see() {
    for store in stores::all().await {
        store.fill().await;
        store.add("hidden", &[(b"item", b"hidden")]).await;
        store
            .add(
                "{hidden}:dlq",
                &[(b"dlq.id", b"1-1"), (b"dlq.stream", b"hidden"), (b"dlq.reason", b"timeout")],
            )
            .await;
        store
            .admin
            .create_group("hidden", "hidden-group", millstream_worker::backend::Start::Beginning)
            .await
            .unwrap();
        let access = Arc::new(Restricted(store.admin.clone()));
        let dash = start(Options::default(), access, store.admin.clone()).await;
        eventually("everything is known", async || {
            let known = dash.as_root("overview").await;
            (known["totals"]["streams"] == 3 && known["totals"]["groups"] == 2).then_some(())
        })
        .await;
        assert_eq!(dash.api("status").await["refused"], json!(["/stream/trim"]));
        assert_eq!(dash.as_root("status").await["refused"], json!([]));
        // Something to hide in the record of actions, and a job.
        let action = json!({"stream": "hidden", "fields": [["a", "b"]]});
        assert_eq!(dash.post("/api/v1/entries", &action).await.status, 200);
        let purge = json!({"stream": "hidden", "dry_run": true});
        let plan = dash.post("/api/v1/dlq/purge", &purge).await.json();
        let purge = json!({"stream": "hidden", "preview": plan["preview"]});
        assert_eq!(dash.post("/api/v1/dlq/purge", &purge).await.status, 202);
        let paths = [
            "overview",
            "overview?q=hidden",
            "streams",
            "streams?q=hidden",
            "workers",
            "consumers",
            "dlq",
            "dlq?stream=hidden",
            "doctor",
            "jobs",
            "job?id=1",
            "audit",
            "history?stream=hidd",
            "stream?stream=hidd",
            "stream?stream=orders",
            "status",
        ];
        for path in paths {
            let text = dash.get(&format!("/api/v1/{path}")).await.text();
            assert!(
                !text.contains("\"hidden") && !text.contains("{hidden}"),
                "{} {path}: {text}",
                store.name
            );
        }
        let overview = dash.get("/api/v1/overview").await.json();
        assert_eq!(
            (&overview["totals"]["streams"], &overview["totals"]["dead_letters"]),
            (&json!(1), &json!(0))
        );
        for path in ["history?stream=hidden", "history?stream=hidden&group=hidden-group", "job?id=1"] {
            assert_eq!(dash.get(&format!("/api/v1/{path}")).await.status, 404, "{path}");
        }
        // The backend of this visitor tells about the stream itself, but the look does not.
        let stream = dash.get("/api/v1/stream?stream=hidden").await.json();
        assert_eq!((&stream["group_list"], &stream["dead_letters"]), (&json!([]), &json!(null)), "{stream}");
        let metrics = dash.get("/metrics").await.text();
        assert!(metrics.contains("orders") && !metrics.contains("hidden"), "{metrics}");
        for watch in ["overview", "overview%3Fq%3Dhidden", "jobs", "stream%3Fstream%3Dorders"] {
            let events = dash.first_events(watch).await;
            assert!(
                events.contains("event: hello") && !events.contains("hidden"),
                "{} {watch}: {events}",
                store.name
            );
        }
        // All of it is there for somebody who may see it.
        for path in ["overview", "streams", "jobs", "audit", "history?stream=hidden&group=hidden-group"] {
            let answer = dash.get_with(&format!("/api/v1/{path}"), ALL).await;
            assert!(answer.status == 200, "{path}");
            assert!(path.starts_with("history") || answer.text().contains("\"hidden\""), "{path}");
        }
    }
}
