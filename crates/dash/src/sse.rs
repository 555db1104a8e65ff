//! Server-sent events: an answer whose events a task writes as fast as the client reads.
//!
//! There is no queue. The task waits until the client has read what was sent, and then computes what is new. So a slow
//! client gets the newest state. JSON has no line ends, so nothing in it can end an event or begin another one.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::Body;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_core::Stream;
use serde_json::Value;
use tokio::sync::mpsc;

/// The client has closed the connection, or may not receive more.
#[derive(Debug)]
pub(crate) struct Gone;

/// Whether the client may still receive events.
pub(crate) type MayReceive = Box<dyn Fn() -> bool + Send + Sync>;

/// Events that are sent until the client, the session or the dashboard ends.
pub(crate) struct EventStream(Response);

impl IntoResponse for EventStream {
    fn into_response(self) -> Response {
        self.0
    }
}

/// Where a task writes its events.
pub(crate) struct Events {
    sender: mpsc::Sender<Bytes>,
    may_receive: MayReceive,
}

impl Events {
    /// Waits until the client has read what was sent.
    pub(crate) async fn ready(&self) -> Result<(), Gone> {
        self.sender.reserve().await.map(drop).map_err(|_| Gone)
    }

    /// Sends an event, once the client has read the one before. `id` is the number of the look that it shows.
    pub(crate) async fn send(&self, name: &str, id: Option<u64>, data: &Value) -> Result<(), Gone> {
        let id = id.map_or_else(String::new, |id| format!("id: {id}\n"));
        self.write(format!("{id}event: {name}\ndata: {data}\n\n")).await
    }

    /// Sends a comment, so that proxies and browsers see that the connection is alive.
    pub(crate) async fn comment(&self) -> Result<(), Gone> {
        self.write(":\n\n".to_owned()).await
    }

    pub(crate) async fn closed(&self) {
        self.sender.closed().await;
    }

    async fn write(&self, text: String) -> Result<(), Gone> {
        if !(self.may_receive)() {
            return Err(Gone);
        }
        self.sender.send(Bytes::from(text)).await.map_err(|_| Gone)
    }
}

/// Returns an answer with the events that the task writes. It ends when the task does, or before the first event that
/// the client may no longer receive. `slot` is freed then.
pub(crate) fn answer<F>(
    slot: impl Send + 'static,
    may_receive: MayReceive,
    task: impl FnOnce(Events) -> F,
) -> EventStream
where
    F: Future<Output = Result<(), Gone>> + Send + 'static,
{
    let (sender, receiver) = mpsc::channel(1);
    let task = task(Events { sender, may_receive });
    tokio::spawn(async move {
        // The client is gone: nobody is left to tell.
        let _ = task.await;
        drop(slot);
    });
    let headers = [(header::CONTENT_TYPE, "text/event-stream"), (header::CACHE_CONTROL, "no-store")];
    // Proxies such as nginx would otherwise collect events before they pass them on.
    let unbuffered = [("x-accel-buffering", "no")];
    EventStream((headers, unbuffered, Body::from_stream(Received(receiver))).into_response())
}

struct Received(mpsc::Receiver<Bytes>);

impl Stream for Received {
    type Item = Result<Bytes, std::convert::Infallible>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_recv(cx).map(|bytes| bytes.map(Ok))
    }
}
