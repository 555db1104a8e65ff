//! A small HTTP server for health checks and metrics: `/livez`, `/readyz`, `/healthz` and `/metrics`.
//!
//! It answers GET and HEAD, one request per connection. It limits the number of connections, the size of a request
//! and the time a client can take. It does not support TLS, request bodies or keep-alive: put a proxy in front if
//! you need them. It compresses metrics with gzip if the client accepts that.
//!
//! | path | 200 if | otherwise |
//! |---|---|---|
//! | `/livez` | the process answers | no answer: restart the process |
//! | `/readyz`, `/healthz` | the process is ready, as its [`Probes`] report | 503 and the reason |
//! | `/metrics` | always | |

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, ToSocketAddrs};
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::connections::{Activity, Connections};
use crate::metrics::{CONTENT_TYPE, accepts_gzip, gzip};

/// Maximum size of a request line with its headers.
const HEAD_BYTES_MAX: usize = 8 * 1024;
/// Maximum number of open connections.
const CONNECTIONS_MAX: usize = 64;
/// Maximum number of requests for metrics that are handled at a time: collecting can take long, and must not keep out
/// probes.
const METRICS_MAX: usize = 16;
/// How long a client can take to send its request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(1);
/// How long a client can take to receive the response.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(5);
/// How long the server waits for the client to close the connection after the response.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// The state of a process that the server reports.
pub trait Probes: Send + Sync + 'static {
    /// Returns `Ok` if the process is ready, otherwise the reason as a text for people.
    fn ready(&self) -> Result<(), String>;

    /// Returns the metrics in the text format of Prometheus.
    fn metrics(&self) -> Pin<Box<dyn Future<Output = String> + Send + '_>>;
}

/// The HTTP server, bound to an address.
#[derive(Debug)]
pub struct HealthServer {
    listener: TcpListener,
}

impl HealthServer {
    /// Binds to an address, such as `127.0.0.1:9091`. Port 0 selects a free port.
    pub async fn bind(address: impl ToSocketAddrs) -> io::Result<HealthServer> {
        Ok(HealthServer { listener: TcpListener::bind(address).await? })
    }

    /// Returns the address to which the server is bound.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves requests until `stopped` is cancelled.
    pub async fn serve(self, probes: Arc<dyn Probes>, stopped: CancellationToken) {
        stopped.run_until_cancelled(self.accept(probes)).await;
    }

    async fn accept(self, probes: Arc<dyn Probes>) {
        // When this future is dropped, all connections are dropped with it.
        let mut connections = Connections::new(CONNECTIONS_MAX);
        let probes = Arc::new(LimitedProbes { probes, metrics_slots: Semaphore::new(METRICS_MAX) });
        loop {
            connections.make_room().await;
            match self.listener.accept().await {
                Ok((connection, _)) => {
                    let probes = Arc::clone(&probes);
                    connections.add(|activity| handle_connection(connection, probes, activity));
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection for health checks: retrying in 100 ms");
                    // Probably the process has no free file descriptors. Retrying without a delay would only use
                    // CPU time.
                    sleep(Duration::from_millis(100)).await;
                }
            }
        }
    }
}

/// Probes, and how many requests for metrics can still be handled.
struct LimitedProbes {
    probes: Arc<dyn Probes>,
    metrics_slots: Semaphore,
}

/// Handles the one request of a connection. Errors are ignored: they only mean that the client has disconnected.
async fn handle_connection(mut connection: TcpStream, probes: Arc<LimitedProbes>, activity: Arc<Activity>) {
    let head = timeout(REQUEST_TIMEOUT, read_head(&mut connection)).await;
    activity.begin_request();
    let response = match head {
        Ok(Ok(Some(head))) => respond_to(&head, &probes).await,
        Ok(Ok(None)) => {
            HttpResponse::plain("431 Request Header Fields Too Large", "the request exceeds 8 KiB\n")
        }
        Ok(Err(_)) => return,
        Err(_) => HttpResponse::plain("408 Request Timeout", "no complete request within a second\n"),
    };
    // Until the client reads, another one can take its place. Most responses fit into the socket.
    activity.begin_stall();
    let sent = timeout(RESPONSE_TIMEOUT, async {
        connection.write_all(&response.bytes()).await?;
        connection.shutdown().await
    });
    let sent = sent.await;
    activity.end_stall();
    activity.end_request();
    if let Ok(Ok(())) = sent {
        // If the server closed the connection with unread bytes, the client could lose the response.
        let _ = timeout(CLOSE_TIMEOUT, drain(&mut connection)).await;
    }
}

/// Reads a request up to the empty line. Returns `None` if it is too long.
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

async fn respond_to(head: &[u8], limited: &LimitedProbes) -> HttpResponse {
    let probes = &limited.probes;
    let Some((method, path)) = request_line(head) else {
        return HttpResponse::plain("400 Bad Request", "this is not an HTTP/1 request\n");
    };
    let response = match path {
        "/livez" | "/readyz" | "/healthz" | "/metrics" if method != "GET" && method != "HEAD" => {
            HttpResponse { allow: true, ..HttpResponse::plain("405 Method Not Allowed", "use GET or HEAD\n") }
        }
        "/livez" => HttpResponse::probe(Ok(())),
        "/readyz" | "/healthz" => HttpResponse::probe(probes.ready()),
        "/metrics" => match limited.metrics_slots.try_acquire() {
            Ok(_slot) => HttpResponse::metrics(&probes.metrics().await, header(head, "accept-encoding")),
            Err(_) => HttpResponse::probe(Err(format!("{METRICS_MAX} requests for metrics are in progress"))),
        },
        _ => {
            HttpResponse::plain("404 Not Found", "unknown path: use /livez, /readyz, /healthz or /metrics\n")
        }
    };
    HttpResponse { head_only: method == "HEAD", ..response }
}

/// Returns the method and the path of a request, without its query.
fn request_line(head: &[u8]) -> Option<(&str, &str)> {
    let line = head.split(|byte| *byte == b'\r').next()?;
    let mut words = std::str::from_utf8(line).ok()?.split(' ');
    let (method, target, version) = (words.next()?, words.next()?, words.next()?);
    let is_valid = words.next().is_none() && version.starts_with("HTTP/1.") && target.starts_with('/');
    let path = target.split('?').next().unwrap_or(target);
    is_valid.then_some((method, path))
}

fn header<'a>(head: &'a [u8], name: &str) -> Option<&'a str> {
    let lines = std::str::from_utf8(head).ok()?.lines().skip(1);
    let mut headers = lines.filter_map(|line| line.split_once(':'));
    headers.find(|(found, _)| found.trim().eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
}

struct HttpResponse {
    status: &'static str,
    content_type: &'static str,
    allow: bool,
    is_gzip: bool,
    head_only: bool,
    body: Vec<u8>,
}

impl HttpResponse {
    fn plain(status: &'static str, body: impl Into<Vec<u8>>) -> HttpResponse {
        let content_type = "text/plain; charset=utf-8";
        HttpResponse {
            status,
            content_type,
            allow: false,
            is_gzip: false,
            head_only: false,
            body: body.into(),
        }
    }

    fn metrics(text: &str, accepted: Option<&str>) -> HttpResponse {
        let is_gzip = accepted.is_some_and(accepts_gzip);
        let body = if is_gzip { gzip(text.as_bytes()) } else { text.as_bytes().to_vec() };
        HttpResponse { content_type: CONTENT_TYPE, is_gzip, ..HttpResponse::plain("200 OK", body) }
    }

    fn probe(result: Result<(), String>) -> HttpResponse {
        match result {
            Ok(()) => HttpResponse::plain("200 OK", "ok\n"),
            Err(reason) => HttpResponse::plain("503 Service Unavailable", format!("{reason}\n")),
        }
    }

    fn bytes(&self) -> Vec<u8> {
        let HttpResponse { status, content_type, body, .. } = self;
        let allow = if self.allow { "Allow: GET, HEAD\r\n" } else { "" };
        let encoding = if self.is_gzip { "Content-Encoding: gzip\r\n" } else { "" };
        let head = format!(
            "HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {}\r\n{allow}{encoding}\
             Cache-Control: no-store\r\nConnection: close\r\n\r\n",
            body.len()
        );
        let mut bytes = head.into_bytes();
        bytes.extend(if self.head_only { &[][..] } else { body });
        bytes
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use tokio::task::JoinSet;
    use tokio::time::Instant;

    use super::*;

    #[derive(Default)]
    struct FakeProbes {
        draining: AtomicBool,
    }

    impl Probes for FakeProbes {
        fn ready(&self) -> Result<(), String> {
            if self.draining.load(Ordering::Relaxed) { Err("draining".to_owned()) } else { Ok(()) }
        }

        fn metrics(&self) -> Pin<Box<dyn Future<Output = String> + Send + '_>> {
            Box::pin(async { "up 1\n".to_owned() })
        }
    }

    async fn start() -> (SocketAddr, Arc<FakeProbes>, CancellationToken) {
        let server = HealthServer::bind("127.0.0.1:0").await.unwrap();
        let (address, probes, stopped) =
            (server.local_addr().unwrap(), Arc::new(FakeProbes::default()), CancellationToken::new());
        tokio::spawn(server.serve(Arc::clone(&probes) as Arc<dyn Probes>, stopped.clone()));
        (address, probes, stopped)
    }

    async fn send_request(address: SocketAddr, request: &[u8]) -> String {
        let mut connection = TcpStream::connect(address).await.unwrap();
        connection.write_all(request).await.unwrap();
        let mut response = String::new();
        connection.read_to_string(&mut response).await.unwrap();
        response
    }

    async fn get(address: SocketAddr, path: &str) -> String {
        send_request(address, format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes()).await
    }

    fn body(response: &str) -> &str {
        response.split_once("\r\n\r\n").unwrap().1
    }

    #[tokio::test]
    async fn probes_report_readiness_and_the_reason() {
        let (address, probes, _) = start().await;
        for path in ["/livez", "/readyz", "/healthz", "/readyz?verbose"] {
            let response = get(address, path).await;
            assert!(response.starts_with("HTTP/1.1 200 OK\r\n"), "{path}: {response}");
            assert_eq!(body(&response), "ok\n");
        }
        probes.draining.store(true, Ordering::Relaxed);
        assert!(get(address, "/livez").await.starts_with("HTTP/1.1 200 "));
        for path in ["/readyz", "/healthz"] {
            let response = get(address, path).await;
            assert!(response.starts_with("HTTP/1.1 503 "), "{path}: {response}");
            assert_eq!(body(&response), "draining\n");
        }
    }

    #[tokio::test]
    async fn metrics_have_content_type_and_length() {
        let (address, ..) = start().await;
        let response = get(address, "/metrics").await;
        assert!(
            response.contains(&format!("Content-Type: {CONTENT_TYPE}\r\nContent-Length: 5\r\n")),
            "{response}"
        );
        assert_eq!(body(&response), "up 1\n");
        let request = b"GET /metrics HTTP/1.1\r\nHost: x\r\naccept-encoding: br, gzip\r\n\r\n";
        let mut connection = TcpStream::connect(address).await.unwrap();
        connection.write_all(request).await.unwrap();
        let mut response = Vec::new();
        connection.read_to_end(&mut response).await.unwrap();
        let end = response.windows(4).position(|window| window == b"\r\n\r\n").unwrap() + 4;
        let mut text = String::new();
        io::Read::read_to_string(&mut flate2::read::GzDecoder::new(&response[end..]), &mut text).unwrap();
        assert_eq!(text, "up 1\n");
        assert!(String::from_utf8_lossy(&response[..end]).contains("Content-Encoding: gzip\r\n"));
        let head = send_request(address, b"HEAD /metrics HTTP/1.0\r\n\r\n").await;
        assert!(head.contains("Content-Length: 5\r\n"), "{head}");
        assert_eq!(body(&head), "");
    }

    #[tokio::test]
    async fn unknown_paths_methods_and_protocols_are_refused() {
        let (address, ..) = start().await;
        assert!(get(address, "/").await.starts_with("HTTP/1.1 404 "));
        let post = send_request(address, b"POST /metrics HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc").await;
        assert!(post.starts_with("HTTP/1.1 405 ") && post.contains("Allow: GET, HEAD\r\n"), "{post}");
        for request in [
            &b"hello\r\n\r\n"[..],
            b"GET /livez HTTP/2\r\n\r\n",
            b"GET  /livez HTTP/1.1\r\n\r\n",
            b"\xff\r\n\r\n",
        ] {
            let response = send_request(address, request).await;
            assert!(response.starts_with("HTTP/1.1 400 "), "{request:?}: {response}");
        }
    }

    #[tokio::test]
    async fn an_endless_request_is_refused() {
        let (address, ..) = start().await;
        let mut request = b"GET /livez HTTP/1.1\r\nX: ".to_vec();
        request.resize(HEAD_BYTES_MAX + 100, b'x');
        assert!(send_request(address, &request).await.starts_with("HTTP/1.1 431 "));
    }

    #[tokio::test]
    async fn an_incomplete_request_times_out() {
        let (address, ..) = start().await;
        assert!(send_request(address, b"GET /livez").await.starts_with("HTTP/1.1 408 "));
    }

    #[tokio::test]
    async fn more_clients_than_connections_are_all_answered() {
        let (address, ..) = start().await;
        let mut clients = JoinSet::new();
        for _ in 0..CONNECTIONS_MAX * 2 {
            clients.spawn(get(address, "/livez"));
        }
        let responses = clients.join_all().await;
        assert!(responses.iter().all(|response| response.starts_with("HTTP/1.1 200 ")));
    }

    #[tokio::test]
    async fn clients_that_send_no_request_do_not_keep_probes_out() {
        let (address, ..) = start().await;
        let mut silent = Vec::new();
        for n in 0..CONNECTIONS_MAX * 3 {
            let mut connection = TcpStream::connect(address).await.unwrap();
            if n % 2 == 0 {
                connection.write_all(b"GET /liv").await.unwrap();
            }
            silent.push(connection);
        }
        let began = Instant::now();
        assert!(get(address, "/livez").await.starts_with("HTTP/1.1 200 "));
        assert!(began.elapsed() < REQUEST_TIMEOUT, "{:?}", began.elapsed());
        // The oldest connection was closed without a response.
        let mut response = Vec::new();
        let read = silent[0].read_to_end(&mut response).await;
        assert!(read.is_err() || response.is_empty(), "{response:?}");
    }

    #[tokio::test]
    async fn the_server_ends_when_stopped() {
        let server = HealthServer::bind("127.0.0.1:0").await.unwrap();
        let stopped = CancellationToken::new();
        let running = tokio::spawn(server.serve(Arc::new(FakeProbes::default()), stopped.clone()));
        stopped.cancel();
        running.await.unwrap();
    }
}
