//! Starts dashboards and sends requests to them, byte by byte as written.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use millstream_dash::{Access, OneStore, Options};
use millstream_worker::Admin;
use millstream_worker::observe::{Sampler, SamplerOptions};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::{CancellationToken, DropGuard};

/// A running dashboard. It stops when this is dropped.
pub(crate) struct Dash {
    pub(crate) address: SocketAddr,
    _stopped: DropGuard,
}

/// An answer.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

/// Returns an empty store in memory.
pub(crate) async fn memory() -> Arc<dyn Admin> {
    millstream_worker::connect("memory:").await.unwrap()
}

/// Starts a dashboard for everybody.
pub(crate) async fn open(options: Options) -> Dash {
    over(memory().await, options).await
}

/// Starts a dashboard of a store for everybody.
pub(crate) async fn over(store: Arc<dyn Admin>, options: Options) -> Dash {
    start(options, Arc::new(OneStore::open(Arc::clone(&store))), store).await
}

/// Starts a dashboard.
pub(crate) async fn start(options: Options, access: Arc<dyn Access>, store: Arc<dyn Admin>) -> Dash {
    let sampling = SamplerOptions::default()
        .interval(Duration::from_millis(100))
        .idle_interval(Duration::from_millis(100));
    let sampler = Sampler::start(store, sampling);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, stopped) = (listener.local_addr().unwrap(), CancellationToken::new());
    tokio::spawn(millstream_dash::serve(listener, options, access, sampler, stopped.clone()));
    Dash { address, _stopped: stopped.drop_guard() }
}

/// Waits until `check` returns something.
pub(crate) async fn eventually<T>(what: &str, mut check: impl AsyncFnMut() -> Option<T>) -> T {
    for _ in 0..1200 {
        if let Some(found) = check().await {
            return found;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("not within a minute: {what}");
}

impl Dash {
    /// Returns the headers that the page of this dashboard sends with an action.
    pub(crate) fn action_headers(&self) -> String {
        format!(
            "Host: {0}\r\nOrigin: http://{0}\r\nSec-Fetch-Site: same-origin\r\nX-Millstream: 1\r\nContent-Type: application/json\r\n",
            self.address
        )
    }

    /// Sends a GET and returns the answer.
    pub(crate) async fn get(&self, path: &str) -> Reply {
        self.get_with(path, "").await
    }

    /// Sends a GET with more headers.
    pub(crate) async fn get_with(&self, path: &str, headers: &str) -> Reply {
        self.send("GET", path, &format!("Host: {}\r\n{headers}", self.address), "").await
    }

    /// Sends an action, as the page does.
    pub(crate) async fn post(&self, path: &str, body: &Value) -> Reply {
        self.send("POST", path, &self.action_headers(), &body.to_string()).await
    }

    /// Sends a request with exactly these headers, in addition to those that describe the body.
    pub(crate) async fn send(&self, method: &str, path: &str, headers: &str, body: &str) -> Reply {
        let length =
            if body.is_empty() { String::new() } else { format!("Content-Length: {}\r\n", body.len()) };
        let head = format!("{method} {path} HTTP/1.1\r\n{headers}Connection: close\r\n{length}\r\n");
        self.send_raw(&[head.as_bytes(), body.as_bytes()].concat()).await
    }

    /// Sends bytes and reads until the end of the connection.
    pub(crate) async fn send_raw(&self, bytes: &[u8]) -> Reply {
        let mut connection = TcpStream::connect(self.address).await.unwrap();
        // The dashboard may answer and close before it has read everything.
        let _ = connection.write_all(bytes).await;
        let mut answer = Vec::new();
        let _ = connection.read_to_end(&mut answer).await;
        Reply::parse(&answer)
    }
}

impl Reply {
    fn parse(answer: &[u8]) -> Reply {
        let end = answer.windows(4).position(|window| window == b"\r\n\r\n").expect("an answer with a head");
        let head = String::from_utf8(answer[..end + 2].to_vec()).unwrap();
        let status = head[9..12].parse().unwrap();
        let mut body = answer[end + 4..].to_vec();
        if head.to_ascii_lowercase().contains("\r\ntransfer-encoding: chunked\r\n") {
            body = without_chunks(&body);
        }
        Reply { status, head, body }
    }

    /// Returns the value of a header.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (found, value) = line.split_once(": ")?;
            found.eq_ignore_ascii_case(name).then_some(value)
        })
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.body.clone()).unwrap()
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.text()))
    }

    /// Returns the code of a problem.
    pub(crate) fn code(&self) -> String {
        assert_eq!(self.header("content-type"), Some("application/problem+json"), "{self:?}");
        self.json()["code"].as_str().unwrap().to_owned()
    }
}

fn without_chunks(mut body: &[u8]) -> Vec<u8> {
    let mut whole = Vec::new();
    while let Some(end) = body.windows(2).position(|window| window == b"\r\n") {
        let size = usize::from_str_radix(std::str::from_utf8(&body[..end]).unwrap(), 16).unwrap();
        if size == 0 {
            break;
        }
        whole.extend_from_slice(&body[end + 2..end + 2 + size]);
        body = &body[end + 4 + size..];
    }
    whole
}
