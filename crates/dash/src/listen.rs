//! Runs the dashboard: on a listener of its own, with limits on connections, or mounted in another server.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderValue, Uri, header};
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use hyper::body::{Frame, SizeHint};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use millstream_worker::connections::{Activity, Connections};
use millstream_worker::observe::Sampler;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, Sleep, sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

use crate::access::{Access, LoginKind};
use crate::api;
use crate::app::App;
use crate::guard::{PeerAddress, guard};
use crate::options::{ANSWER_TIMEOUT, CONNECTIONS_MAX, HEAD_BYTES_MAX, Options, WRITE_TIMEOUT};

/// How long the dashboard waits for answers in progress when it stops.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(2);

/// Returns the dashboard as a router, to mount it in the server of another program. All its paths are relative, so it
/// can be nested below any path. The program is responsible for connections and their limits. Give it
/// [`into_make_service_with_connect_info`](Router::into_make_service_with_connect_info) with a `SocketAddr`, so that
/// wrong passwords are counted for each address. Events and jobs end when `stopped` is cancelled.
pub fn router(
    options: Options,
    access: Arc<dyn Access>,
    sampler: Sampler,
    stopped: CancellationToken,
) -> Router {
    let base = options.public_url.as_ref().map(|url| url.base.clone()).unwrap_or_default();
    let app = App::start(options, access, sampler, stopped);
    let routes = api::routes().layer(from_fn_with_state(Arc::clone(&app), guard)).with_state(app);
    if base.is_empty() {
        return routes;
    }
    // A proxy can pass the path of the public URL on, or remove it.
    Router::new().fallback(move |request: Request| {
        let routes = routes.clone();
        let request = without_base(request, &base);
        async move { routes.oneshot(request).await.into_response() }
    })
}

fn without_base(mut request: Request, base: &str) -> Request {
    let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
    let Some(rest) = path.strip_prefix(base) else { return request };
    let rest = match rest.as_bytes().first() {
        Some(b'/') => rest.to_owned(),
        Some(b'?') | None => format!("/{rest}"),
        Some(_) => return request,
    };
    if let Ok(uri) = rest.parse::<Uri>() {
        *request.uri_mut() = uri;
    }
    request
}

/// Serves the dashboard until `stopped` is cancelled.
///
/// Fails if visitors need no login and the listener is not on a loopback address.
pub async fn serve(
    listener: TcpListener,
    options: Options,
    access: Arc<dyn Access>,
    sampler: Sampler,
    stopped: CancellationToken,
) -> io::Result<()> {
    check_address(listener.local_addr()?, access.login_kind())?;
    let router = router(options, access, sampler, stopped.clone());
    let mut connections = Connections::new(CONNECTIONS_MAX);
    loop {
        let next = async {
            connections.make_room().await;
            listener.accept().await
        };
        let Some(accepted) = stopped.run_until_cancelled(next).await else { break };
        match accepted {
            Ok((socket, peer)) => {
                let (router, stopped) = (router.clone(), stopped.clone());
                connections.add(|activity| serve_connection(socket, peer, router, stopped, activity));
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection for the dashboard: retrying in 100 ms");
                sleep(Duration::from_millis(100)).await;
            }
        }
    }
    // Connections that are still open after this time are dropped with the set.
    let _ = timeout(DRAIN_TIMEOUT, connections.join_all()).await;
    Ok(())
}

/// Refuses to show a store to a whole network without a password.
pub fn check_address(address: SocketAddr, login: LoginKind) -> io::Result<()> {
    if address.ip().is_loopback() || login != LoginKind::None {
        return Ok(());
    }
    Err(io::Error::new(
        io::ErrorKind::PermissionDenied,
        format!(
            "without a password, the dashboard listens only on a loopback address such as 127.0.0.1, not on {address}"
        ),
    ))
}

async fn serve_connection(
    socket: TcpStream,
    peer: SocketAddr,
    router: Router,
    stopped: CancellationToken,
    activity: Arc<Activity>,
) {
    let of_requests = Arc::clone(&activity);
    let service = tower::service_fn(move |mut request: hyper::Request<hyper::body::Incoming>| {
        request.extensions_mut().insert(PeerAddress(peer));
        let (router, in_progress) = (router.clone(), InProgress::begin(&of_requests));
        async move {
            let mut answer: Response = router.oneshot(request.map(Body::new)).await?;
            if in_progress.0.must_end() {
                answer.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
            }
            Ok::<_, Infallible>(answer.map(|body| AnswerBody { body, _in_progress: in_progress }))
        }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(ANSWER_TIMEOUT)
        .max_buf_size(HEAD_BYTES_MAX)
        .serve_connection(
            TokioIo::new(WriteTimeout::new(socket, activity)),
            TowerToHyperService::new(service),
        );
    tokio::pin!(connection);
    tokio::select! {
        // An error only means that the client has disconnected or does not speak HTTP.
        _ = connection.as_mut() => return,
        () = stopped.cancelled() => connection.as_mut().graceful_shutdown(),
    }
    let _ = connection.await;
}

/// A request that is handled, or whose answer is not complete yet.
struct InProgress(Arc<Activity>);

impl InProgress {
    fn begin(activity: &Arc<Activity>) -> InProgress {
        activity.begin_request();
        InProgress(Arc::clone(activity))
    }
}

impl Drop for InProgress {
    fn drop(&mut self) {
        self.0.end_request();
    }
}

/// The body of an answer. The request is in progress until the body is dropped.
struct AnswerBody {
    body: Body,
    _in_progress: InProgress,
}

impl hyper::body::Body for AnswerBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A socket that fails if the client reads nothing for [`WRITE_TIMEOUT`].
struct WriteTimeout {
    socket: TcpStream,
    activity: Arc<Activity>,
    /// When the write in progress fails. `None` if there is none.
    deadline: Option<Pin<Box<Sleep>>>,
}

impl WriteTimeout {
    fn new(socket: TcpStream, activity: Arc<Activity>) -> WriteTimeout {
        WriteTimeout { socket, activity, deadline: None }
    }

    fn limit<T>(&mut self, cx: &mut Context<'_>, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            if self.deadline.take().is_some() {
                self.activity.end_stall();
            }
            return written;
        }
        let deadline = self.deadline.get_or_insert_with(|| {
            self.activity.begin_stall();
            Box::pin(sleep_until(Instant::now() + WRITE_TIMEOUT))
        });
        ready!(deadline.as_mut().poll(cx));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl AsyncRead for WriteTimeout {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_read(cx, buffer)
    }
}

impl AsyncWrite for WriteTimeout {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.socket).poll_write(cx, bytes);
        self.limit(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.socket).poll_write_vectored(cx, parts);
        self.limit(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.socket).poll_flush(cx);
        self.limit(cx, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use axum::routing::get;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::sync::Notify;

    use super::*;

    #[tokio::test]
    async fn while_others_wait_each_answer_ends_its_connection() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (socket, peer) = listener.accept().await.unwrap();
        let (asked, release) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let of_handler = (Arc::clone(&asked), Arc::clone(&release));
        let router = Router::new().route(
            "/",
            get(move || async move {
                of_handler.0.notify_one();
                of_handler.1.notified().await;
                "ok"
            }),
        );
        let mut connections = Connections::new(1);
        connections
            .add(|activity| serve_connection(socket, peer, router, CancellationToken::new(), activity));

        let request = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n";
        client.write_all(request).await.unwrap();
        asked.notified().await;
        release.notify_one();
        let mut answer = vec![0; 1024];
        let length = client.read(&mut answer).await.unwrap();
        let kept = String::from_utf8_lossy(&answer[..length]).into_owned();
        assert!(kept.ends_with("ok") && !kept.contains("connection: close"), "{kept}");

        client.write_all(request).await.unwrap();
        asked.notified().await;
        let mut last = String::new();
        let ((), read) = tokio::join!(connections.make_room(), async {
            release.notify_one();
            client.read_to_string(&mut last).await
        });
        read.unwrap();
        assert!(last.ends_with("ok") && last.contains("connection: close"), "{last}");
    }
}
