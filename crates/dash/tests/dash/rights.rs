//! What visitors with few rights see and do, and when what they receive ends.

use std::net::IpAddr;
use std::sync::Arc;

use millstream_dash::access::LoginFuture;
use millstream_dash::{Access, LoginKind, Options, Visitor};
use millstream_worker::Admin;
use millstream_worker::backend::{NewEntry, Start};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

use crate::support::{Dash, eventually, memory, start};

/// Users whose names are their passwords. `root` is an operator and sees all streams. Others see those that begin with
/// their name.
struct Users(Arc<dyn Admin>);

impl Access for Users {
    fn login_kind(&self) -> LoginKind {
        LoginKind::User
    }

    fn login<'a>(&'a self, user: Option<&'a str>, password: &'a str, _from: IpAddr) -> LoginFuture<'a> {
        let name = user.unwrap_or_default().to_owned();
        let (of_streams, of_others) = (name.clone(), name.clone());
        let visitor = Visitor {
            backend: Arc::clone(&self.0),
            may_see: Arc::new(move |stream| of_streams == "root" || stream.starts_with(&of_streams)),
            may_run: Arc::new(|_| true),
            is_valid: Arc::new(|| true),
            is_operator: Arc::new(move || of_others == "root"),
            figures: Arc::new(String::new),
            name,
        };
        let is_right = visitor.name == password;
        Box::pin(
            async move { if is_right { Ok(visitor) } else { Err(millstream_dash::LoginError::Refused) } },
        )
    }

    fn anonymous(&self) -> Option<Visitor> {
        None
    }
}

async fn with_users() -> (Arc<dyn Admin>, Dash) {
    let store = memory().await;
    for stream in ["alice:orders", "bob:mails"] {
        let fields = vec![("item".into(), "book".into())];
        store.add(stream, &[NewEntry { fields, idempotence: None }], None).await.unwrap();
        store.create_group(stream, "billing", Start::Beginning).await.unwrap();
    }
    let dash = start(Options::default(), Arc::new(Users(Arc::clone(&store))), Arc::clone(&store)).await;
    (store, dash)
}

impl Dash {
    /// Logs in, and returns the header with the cookie.
    async fn log_in(&self, user: &str) -> String {
        let reply = self.post("/api/v1/session", &json!({"user": user, "password": user})).await;
        let cookie = reply.header("set-cookie").unwrap().split(';').next().unwrap().to_owned();
        format!("Cookie: {cookie}\r\n")
    }

    async fn read(&self, path: &str, cookie: &str) -> Value {
        self.get_with(&format!("/api/v1/{path}"), cookie).await.json()
    }
}

#[tokio::test]
async fn figures_of_a_look_need_the_right_to_see_them() {
    let (_store, dash) = with_users().await;
    let (root, alice) = (dash.log_in("root").await, dash.log_in("alice").await);
    let groups = async |stream: &str, cookie: &str| {
        let stream = dash.read(&format!("stream?stream={stream}"), cookie).await;
        stream["group_list"].as_array().unwrap().len()
    };
    eventually("the dashboard has looked", async || (groups("bob:mails", &root).await == 1).then_some(()))
        .await;
    assert_eq!((groups("alice:orders", &alice).await, groups("bob:mails", &alice).await), (1, 0));
    let look = async |cookie: &str| dash.read("status", cookie).await["look"]["streams"].clone();
    assert_eq!((look(&root).await, look(&alice).await), (json!(2), json!(1)));
}

#[tokio::test]
async fn failed_logins_are_recorded_without_what_was_typed() {
    let (_store, dash) = with_users().await;
    let (root, alice) = (dash.log_in("root").await, dash.log_in("alice").await);
    let typed = json!({"user": "a-mistyped-password", "password": "x"});
    assert_eq!(dash.post("/api/v1/session", &typed).await.status, 401);
    let records = dash.read("audit", &root).await;
    assert_eq!(records[0]["action"], "login_failed");
    assert!(!records.to_string().contains("mistyped"), "{records}");
    let own = dash.read("audit", &alice).await;
    assert!(own.as_array().unwrap().iter().all(|record| record["user"] == "alice"), "{own}");
}

#[tokio::test]
async fn values_of_settings_that_are_not_changed_here_are_not_recorded() {
    let (_store, dash) = with_users().await;
    let root = dash.log_in("root").await;
    let body = json!({"name": "requirepass", "value": "hunter2", "dry_run": true}).to_string();
    let headers = dash.action_headers() + &root;
    assert_eq!(dash.send("POST", "/api/v1/server/config", &headers, &body).await.code(), "refused");
    let records = dash.read("audit", &root).await;
    assert_eq!(records[0]["name"], "requirepass");
    assert!(!records.to_string().contains("hunter2"), "{records}");
}

#[tokio::test]
async fn events_end_with_the_session() {
    let (store, dash) = with_users().await;
    let alice = dash.log_in("alice").await;
    let mut connection = TcpStream::connect(dash.address).await.unwrap();
    let watch = "tail%3Fstream%3Dalice%3Aorders";
    let head = format!("GET /api/v1/events?watch={watch} HTTP/1.1\r\nHost: {}\r\n{alice}\r\n", dash.address);
    connection.write_all(head.as_bytes()).await.unwrap();
    let mut lines = BufReader::new(connection).lines();
    while lines.next_line().await.unwrap().unwrap() != "event: hello" {}
    let headers = dash.action_headers() + &alice;
    assert_eq!(dash.send("DELETE", "/api/v1/session", &headers, "").await.status, 204);
    // The tail may not have begun yet: entries come until the connection ends.
    let ended = async {
        let mut rest = String::new();
        while let Some(line) = lines.next_line().await.unwrap() {
            rest += &line;
        }
        rest
    };
    let adding = async {
        for _ in 0..400 {
            let fields = vec![("item".into(), "pen-after-logout".into())];
            store.add("alice:orders", &[NewEntry { fields, idempotence: None }], None).await.unwrap();
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    };
    let rest: String =
        tokio::select! { rest = ended => rest, () = adding => panic!("the events do not end") };
    assert!(!rest.contains("pen-after-logout"), "{rest}");
}
