//! A small HTTP responder for probes and metrics: `/livez`, `/readyz`, `/healthz` and `/metrics`.
//!
//! It answers GET and HEAD, one request for each connection, and is bounded in everything: connections, size of a
//! request, time. It does not know TLS, bodies or keep-alive; who needs those puts a proxy in front.
//!
//! | path | 200 if | otherwise |
//! |---|---|---|
//! | `/livez` | the process answers | nothing: start it anew |
//! | `/readyz`, `/healthz` | it does its work: the store is there, nothing is draining | 503 and why |
//! | `/metrics` | always | |

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, ToSocketAddrs};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::metrics::CONTENT_TYPE;

/// The longest head of a request.
const HEAD_BYTES_MAX: usize = 8 * 1024;
/// The most connections at a time; more wait to be taken.
const CONNECTIONS_MAX: usize = 64;
/// How long a client may take to ask, and to take the answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long to wait for the client to close after the answer.
const LINGER: Duration = Duration::from_secs(1);

/// What is asked about a process. An error is the reason, for people.
pub trait Probes: Send + Sync + 'static {
    /// Whether it does its work.
    fn ready(&self) -> Result<(), String>;

    /// Its metrics in the text format of Prometheus.
    fn metrics(&self) -> Pin<Box<dyn Future<Output = String> + Send + '_>>;
}

/// The responder, bound to its address.
#[derive(Debug)]
pub struct HealthServer {
    listener: TcpListener,
}

impl HealthServer {
    /// Takes an address, such as `127.0.0.1:9091`; port 0 takes a free one.
    pub async fn bind(address: impl ToSocketAddrs) -> io::Result<HealthServer> {
        Ok(HealthServer { listener: TcpListener::bind(address).await? })
    }

    /// The address it has.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Answers until stopped.
    pub async fn serve(self, probes: Arc<dyn Probes>, stopped: CancellationToken) {
        stopped.run_until_cancelled(self.accept(probes)).await;
    }

    async fn accept(self, probes: Arc<dyn Probes>) {
        // Dropped with this future, and all connections with it.
        let mut connections = JoinSet::new();
        loop {
            while connections.len() >= CONNECTIONS_MAX {
                connections.join_next().await;
            }
            while connections.try_join_next().is_some() {}
            match self.listener.accept().await {
                Ok((connection, _)) => {
                    connections.spawn(converse(connection, Arc::clone(&probes)));
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot take a connection for probes");
                    // Out of descriptors, most likely: trying at once would only burn time.
                    sleep(Duration::from_millis(100)).await;
                }
            }
        }
    }
}

/// One request and its answer. A client that goes away in between is no concern of ours.
async fn converse(mut connection: TcpStream, probes: Arc<dyn Probes>) {
    let answer = match timeout(PATIENCE, read_head(&mut connection)).await {
        Ok(Ok(Some(head))) => answer_to(&head, &*probes).await,
        Ok(Ok(None)) => Answer::plain("431 Request Header Fields Too Large", "the request is too long\n"),
        Ok(Err(_)) => return,
        Err(_) => Answer::plain("408 Request Timeout", "no request came in time\n"),
    };
    let sent = timeout(PATIENCE, async {
        connection.write_all(&answer.bytes()).await?;
        connection.shutdown().await
    });
    if let Ok(Ok(())) = sent.await {
        // Closing with something unread would throw the answer away before the client has it.
        let _ = timeout(LINGER, drain(&mut connection)).await;
    }
}

/// The head of a request, up to the empty line; `None` if it is too long.
async fn read_head(connection: &mut TcpStream) -> io::Result<Option<Vec<u8>>> {
    let mut head = Vec::new();
    loop {
        if connection.read_buf(&mut head).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if let Some(end) = head.windows(4).position(|window| window == b"\r\n\r\n") {
            head.truncate(end);
            return Ok((end <= HEAD_BYTES_MAX).then_some(head));
        }
        if head.len() > HEAD_BYTES_MAX {
            return Ok(None);
        }
    }
}

async fn drain(connection: &mut TcpStream) -> io::Result<()> {
    let mut unread = [0; 1024];
    while connection.read(&mut unread).await? > 0 {}
    Ok(())
}

async fn answer_to(head: &[u8], probes: &dyn Probes) -> Answer {
    let Some((method, path)) = request_line(head) else {
        return Answer::plain("400 Bad Request", "this is not a request of HTTP/1\n");
    };
    let answer = match path {
        "/livez" | "/readyz" | "/healthz" | "/metrics" if method != "GET" && method != "HEAD" => {
            Answer { allow: true, ..Answer::plain("405 Method Not Allowed", "use GET or HEAD\n") }
        }
        "/livez" => Answer::probe(Ok(())),
        "/readyz" | "/healthz" => Answer::probe(probes.ready()),
        "/metrics" => {
            Answer { content_type: CONTENT_TYPE, ..Answer::plain("200 OK", probes.metrics().await) }
        }
        _ => Answer::plain("404 Not Found", "there are /livez, /readyz, /healthz and /metrics\n"),
    };
    Answer { head_only: method == "HEAD", ..answer }
}

/// The method and the path of a request, without its query.
fn request_line(head: &[u8]) -> Option<(&str, &str)> {
    let line = head.split(|byte| *byte == b'\r').next()?;
    let mut words = std::str::from_utf8(line).ok()?.split(' ');
    let (method, target, version) = (words.next()?, words.next()?, words.next()?);
    let fine = words.next().is_none() && version.starts_with("HTTP/1.") && target.starts_with('/');
    let path = target.split('?').next().unwrap_or(target);
    fine.then_some((method, path))
}

struct Answer {
    status: &'static str,
    content_type: &'static str,
    allow: bool,
    head_only: bool,
    body: String,
}

impl Answer {
    fn plain(status: &'static str, body: impl Into<String>) -> Answer {
        let content_type = "text/plain; charset=utf-8";
        Answer { status, content_type, allow: false, head_only: false, body: body.into() }
    }

    fn probe(result: Result<(), String>) -> Answer {
        match result {
            Ok(()) => Answer::plain("200 OK", "ok\n"),
            Err(reason) => Answer::plain("503 Service Unavailable", format!("{reason}\n")),
        }
    }

    fn bytes(&self) -> Vec<u8> {
        let Answer { status, content_type, body, .. } = self;
        let allow = if self.allow { "Allow: GET, HEAD\r\n" } else { "" };
        let body_sent = if self.head_only { "" } else { body };
        format!(
            "HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {}\r\n{allow}\
             Cache-Control: no-store\r\nConnection: close\r\n\r\n{body_sent}",
            body.len()
        )
        .into_bytes()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[derive(Default)]
    struct Fake {
        draining: AtomicBool,
    }

    impl Probes for Fake {
        fn ready(&self) -> Result<(), String> {
            if self.draining.load(Ordering::Relaxed) { Err("draining".to_owned()) } else { Ok(()) }
        }

        fn metrics(&self) -> Pin<Box<dyn Future<Output = String> + Send + '_>> {
            Box::pin(async { "up 1\n".to_owned() })
        }
    }

    async fn start() -> (SocketAddr, Arc<Fake>, CancellationToken) {
        let server = HealthServer::bind("127.0.0.1:0").await.unwrap();
        let (address, probes, stopped) =
            (server.local_addr().unwrap(), Arc::new(Fake::default()), CancellationToken::new());
        tokio::spawn(server.serve(Arc::clone(&probes) as Arc<dyn Probes>, stopped.clone()));
        (address, probes, stopped)
    }

    async fn ask(address: SocketAddr, request: &[u8]) -> String {
        let mut connection = TcpStream::connect(address).await.unwrap();
        connection.write_all(request).await.unwrap();
        let mut answer = String::new();
        connection.read_to_string(&mut answer).await.unwrap();
        answer
    }

    async fn get(address: SocketAddr, path: &str) -> String {
        ask(address, format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes()).await
    }

    fn body(answer: &str) -> &str {
        answer.split_once("\r\n\r\n").unwrap().1
    }

    #[tokio::test]
    async fn probes_say_what_is_and_why() {
        let (address, probes, _) = start().await;
        for path in ["/livez", "/readyz", "/healthz", "/readyz?verbose"] {
            let answer = get(address, path).await;
            assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{path}: {answer}");
            assert_eq!(body(&answer), "ok\n");
        }
        probes.draining.store(true, Ordering::Relaxed);
        assert!(get(address, "/livez").await.starts_with("HTTP/1.1 200 "));
        for path in ["/readyz", "/healthz"] {
            let answer = get(address, path).await;
            assert!(answer.starts_with("HTTP/1.1 503 "), "{path}: {answer}");
            assert_eq!(body(&answer), "draining\n");
        }
    }

    #[tokio::test]
    async fn metrics_have_their_type_and_length() {
        let (address, ..) = start().await;
        let answer = get(address, "/metrics").await;
        assert!(
            answer.contains(&format!("Content-Type: {CONTENT_TYPE}\r\nContent-Length: 5\r\n")),
            "{answer}"
        );
        assert_eq!(body(&answer), "up 1\n");
        let head = ask(address, b"HEAD /metrics HTTP/1.0\r\n\r\n").await;
        assert!(head.contains("Content-Length: 5\r\n"), "{head}");
        assert_eq!(body(&head), "");
    }

    #[tokio::test]
    async fn what_it_does_not_know_it_refuses() {
        let (address, ..) = start().await;
        assert!(get(address, "/").await.starts_with("HTTP/1.1 404 "));
        let post = ask(address, b"POST /metrics HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc").await;
        assert!(post.starts_with("HTTP/1.1 405 ") && post.contains("Allow: GET, HEAD\r\n"), "{post}");
        for request in [
            &b"hello\r\n\r\n"[..],
            b"GET /livez HTTP/2\r\n\r\n",
            b"GET  /livez HTTP/1.1\r\n\r\n",
            b"\xff\r\n\r\n",
        ] {
            let answer = ask(address, request).await;
            assert!(answer.starts_with("HTTP/1.1 400 "), "{request:?}: {answer}");
        }
    }

    #[tokio::test]
    async fn a_request_without_end_is_cut_off() {
        let (address, ..) = start().await;
        let mut request = b"GET /livez HTTP/1.1\r\nX: ".to_vec();
        request.resize(HEAD_BYTES_MAX + 100, b'x');
        assert!(ask(address, &request).await.starts_with("HTTP/1.1 431 "));
    }

    #[tokio::test]
    async fn a_silent_client_is_told_so() {
        let (address, ..) = start().await;
        assert!(ask(address, b"GET /livez").await.starts_with("HTTP/1.1 408 "));
    }

    #[tokio::test]
    async fn more_clients_than_connections_are_all_answered() {
        let (address, ..) = start().await;
        let mut clients = JoinSet::new();
        for _ in 0..CONNECTIONS_MAX * 2 {
            clients.spawn(get(address, "/livez"));
        }
        let answers = clients.join_all().await;
        assert!(answers.iter().all(|answer| answer.starts_with("HTTP/1.1 200 ")));
    }

    #[tokio::test]
    async fn it_ends_when_stopped() {
        let server = HealthServer::bind("127.0.0.1:0").await.unwrap();
        let stopped = CancellationToken::new();
        let running = tokio::spawn(server.serve(Arc::new(Fake::default()), stopped.clone()));
        stopped.cancel();
        running.await.unwrap();
    }
}
