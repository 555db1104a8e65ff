//! A pipeline: a task collects the entries of many senders and adds them in one call.
//!
//! While one call is running, the task collects entries for the next. So a busy pipeline makes few calls with many
//! entries. On an idle pipeline, an entry waits for others for at most [`PipelineOptions::linger`]. Entries are added
//! in the order in which they were enqueued.

use std::future::Future;
use std::iter;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, timeout_at};

use super::{IntoBytes, IntoFields, Outgoing, Producer};
use crate::backend::{AddOutcome, Error, ErrorKind, StreamId};

/// Limits of a pipeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PipelineOptions {
    /// Maximum number of entries in one call, at least 1.
    pub batch: usize,
    /// How long the first entry of a call waits for others.
    pub linger: Duration,
    /// Maximum number of enqueued entries, at least 1. At this limit, senders wait.
    pub capacity: usize,
}

impl Default for PipelineOptions {
    fn default() -> PipelineOptions {
        PipelineOptions { batch: 500, linger: Duration::from_millis(1), capacity: 10_000 }
    }
}

/// Sends entries through a task in the background. Cheap to clone.
///
/// When the last clone is dropped, the task adds the entries that are enqueued, and ends. Call
/// [`flush`](Pipeline::flush) before the process ends.
#[derive(Clone)]
pub struct Pipeline {
    producer: Producer,
    requests: mpsc::Sender<PipelineRequest>,
    failed: Arc<AtomicU64>,
}

enum PipelineRequest {
    Add(Outgoing, oneshot::Sender<Result<StreamId, Error>>),
    Flush(oneshot::Sender<Result<(), Error>>),
}

/// A future that returns the id of an enqueued entry when the entry has been added. The entry is added even if this
/// future is dropped.
#[derive(Debug)]
pub struct EntryIdFuture(oneshot::Receiver<Result<StreamId, Error>>);

impl Future for EntryIdFuture {
    type Output = Result<StreamId, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(cx).map(|reply| reply.unwrap_or_else(|_| Err(closed())))
    }
}

impl Pipeline {
    pub(super) fn new(producer: Producer, options: PipelineOptions) -> Pipeline {
        let (requests, taken) = mpsc::channel(options.capacity.max(1));
        let failed = Arc::new(AtomicU64::new(0));
        let task = PipelineTask {
            producer: producer.clone(),
            requests: taken,
            batch: options.batch.max(1),
            linger: options.linger,
            failed: Arc::clone(&failed),
            first_failure: None,
        };
        tokio::spawn(task.run());
        Pipeline { producer, requests, failed }
    }

    /// Enqueues an entry. Waits only if too many entries are enqueued. The returned future has the id of the entry.
    pub async fn enqueue(&self, fields: impl IntoFields) -> Result<EntryIdFuture, Error> {
        self.enqueue_message(self.producer.outgoing(fields.into_fields(), None)).await
    }

    /// Enqueues an entry with a key, which decides in which partition it is. See [`Producer::key`].
    pub async fn enqueue_keyed(
        &self,
        key: impl IntoBytes,
        fields: impl IntoFields,
    ) -> Result<EntryIdFuture, Error> {
        self.enqueue_message(self.producer.outgoing(fields.into_fields(), Some(key.into_bytes()))).await
    }

    async fn enqueue_message(&self, message: Outgoing) -> Result<EntryIdFuture, Error> {
        let (reply, id) = oneshot::channel();
        self.requests.send(PipelineRequest::Add(message, reply)).await.map_err(|_| closed())?;
        Ok(EntryIdFuture(id))
    }

    /// Adds one entry and waits for its id.
    pub async fn send(&self, fields: impl IntoFields) -> Result<StreamId, Error> {
        self.enqueue(fields).await?.await
    }

    /// Waits until all enqueued entries have been added or have failed. Returns the first error since the last flush.
    pub async fn flush(&self) -> Result<(), Error> {
        let (reply, done) = oneshot::channel();
        self.requests.send(PipelineRequest::Flush(reply)).await.map_err(|_| closed())?;
        done.await.unwrap_or_else(|_| Err(closed()))
    }

    /// Returns how many entries were not added so far, or may not have been added.
    pub fn failed(&self) -> u64 {
        self.failed.load(Ordering::Relaxed)
    }
}

struct PipelineTask {
    producer: Producer,
    requests: mpsc::Receiver<PipelineRequest>,
    batch: usize,
    linger: Duration,
    failed: Arc<AtomicU64>,
    first_failure: Option<Error>,
}

impl PipelineTask {
    async fn run(mut self) {
        let mut received = Vec::with_capacity(self.batch);
        while self.requests.recv_many(&mut received, self.batch).await > 0 {
            self.wait_for_more(&mut received).await;
            self.run_requests(received.drain(..)).await;
        }
    }

    /// Waits for more entries, up to `linger`, unless a sender waits for a flush.
    async fn wait_for_more(&mut self, received: &mut Vec<PipelineRequest>) {
        let deadline = Instant::now() + self.linger;
        while received.len() < self.batch && !matches!(received.last(), Some(PipelineRequest::Flush(_))) {
            let room = self.batch - received.len();
            match timeout_at(deadline, self.requests.recv_many(received, room)).await {
                Ok(0) | Err(_) => return,
                Ok(_) => {}
            }
        }
    }

    async fn run_requests(&mut self, requests: impl Iterator<Item = PipelineRequest>) {
        let mut messages = Vec::new();
        let mut replies = Vec::new();
        for request in requests {
            match request {
                PipelineRequest::Add(message, reply) => {
                    messages.push(message);
                    replies.push(reply);
                }
                PipelineRequest::Flush(done) => {
                    self.add(std::mem::take(&mut messages), std::mem::take(&mut replies)).await;
                    // The caller of `flush` may no longer wait.
                    let _ = done.send(self.first_failure.take().map_or(Ok(()), Err));
                }
            }
        }
        self.add(messages, replies).await;
    }

    async fn add(&mut self, messages: Vec<Outgoing>, replies: Vec<oneshot::Sender<Result<StreamId, Error>>>) {
        match self.producer.add(messages).await {
            // A sender that dropped its future does not need the id.
            Ok(ids) => ids.into_iter().zip(replies).for_each(|(id, reply)| drop(reply.send(Ok(id)))),
            Err(mut error) => {
                let outcomes = error.take_outcomes();
                let outcomes = outcomes.into_iter().chain(iter::repeat(AddOutcome::NotAdded));
                for (reply, outcome) in replies.into_iter().zip(outcomes) {
                    let result = match outcome {
                        AddOutcome::Added(id) => Ok(id),
                        AddOutcome::NotAdded => Err(Error::new(error.kind(), error.to_string())),
                        AddOutcome::Unknown => {
                            Err(Error::new(error.kind(), error.to_string()).with_outcomes(vec![outcome]))
                        }
                    };
                    self.failed.fetch_add(u64::from(result.is_err()), Ordering::Relaxed);
                    let _ = reply.send(result);
                }
                self.first_failure.get_or_insert(error);
            }
        }
    }
}

fn closed() -> Error {
    Error::new(ErrorKind::Closed, "the pipeline is closed: its background task has ended")
}
