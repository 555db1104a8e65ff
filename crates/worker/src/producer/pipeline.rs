//! A pipeline: one task gathers what many send, and adds it at once.
//!
//! While one add is on its way the next one gathers, so that a busy pipeline sends few and large adds and an idle
//! one sends at once. Entries are added in the order in which they were taken.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use serde::Serialize;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, timeout_at};

use super::{IntoFields, Producer, json_fields};
use crate::backend::{Error, ErrorKind, NewEntry, StreamId};

/// How a pipeline gathers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PipelineOptions {
    /// The most entries of one add; at least 1.
    pub batch: usize,
    /// How long the first entry of an add waits for others.
    pub linger: Duration,
    /// How many entries may wait. Who sends more waits until there is room; at least 1.
    pub capacity: usize,
}

impl Default for PipelineOptions {
    fn default() -> PipelineOptions {
        PipelineOptions { batch: 500, linger: Duration::from_millis(1), capacity: 10_000 }
    }
}

/// Sends entries that a task in the background gathers. Cheap to clone.
///
/// When the last clone is dropped, the task adds what it has been given and ends. Call [`flush`](Pipeline::flush)
/// before the process ends.
#[derive(Clone)]
pub struct Pipeline {
    producer: Producer,
    orders: mpsc::Sender<Order>,
    failed: Arc<AtomicU64>,
}

enum Order {
    Add(NewEntry, oneshot::Sender<Result<StreamId, Error>>),
    Flush(oneshot::Sender<Result<(), Error>>),
}

/// The id of an entry that is on its way. Need not be waited for.
#[derive(Debug)]
pub struct Ticket(oneshot::Receiver<Result<StreamId, Error>>);

impl Future for Ticket {
    type Output = Result<StreamId, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(cx).map(|answer| answer.unwrap_or_else(|_| Err(ended())))
    }
}

impl Pipeline {
    pub(super) fn new(producer: Producer, options: PipelineOptions) -> Pipeline {
        let (orders, taken) = mpsc::channel(options.capacity.max(1));
        let failed = Arc::new(AtomicU64::new(0));
        let gatherer = Gatherer {
            producer: producer.clone(),
            orders: taken,
            batch: options.batch.max(1),
            linger: options.linger,
            failed: Arc::clone(&failed),
            first_failure: None,
        };
        tokio::spawn(gatherer.run());
        Pipeline { producer, orders, failed }
    }

    /// Hands an entry over, and waits only if too many are waiting already. The ticket gives its id.
    pub async fn enqueue(&self, fields: impl IntoFields) -> Result<Ticket, Error> {
        let (answer, ticket) = oneshot::channel();
        let entry = self.producer.entry(fields.into_fields());
        self.orders.send(Order::Add(entry, answer)).await.map_err(|_| ended())?;
        Ok(Ticket(ticket))
    }

    /// Hands over a value as JSON in the field `data`.
    pub async fn enqueue_json<T: Serialize + ?Sized>(&self, value: &T) -> Result<Ticket, Error> {
        self.enqueue(json_fields(value)?).await
    }

    /// Adds one entry and waits for its id.
    pub async fn send(&self, fields: impl IntoFields) -> Result<StreamId, Error> {
        self.enqueue(fields).await?.await
    }

    /// Waits until everything handed over before has been added, or has failed: then the first error since the last
    /// flush is given.
    pub async fn flush(&self) -> Result<(), Error> {
        let (answer, done) = oneshot::channel();
        self.orders.send(Order::Flush(answer)).await.map_err(|_| ended())?;
        done.await.unwrap_or_else(|_| Err(ended()))
    }

    /// How many entries could not be added so far.
    pub fn failed(&self) -> u64 {
        self.failed.load(Ordering::Relaxed)
    }
}

struct Gatherer {
    producer: Producer,
    orders: mpsc::Receiver<Order>,
    batch: usize,
    linger: Duration,
    failed: Arc<AtomicU64>,
    first_failure: Option<Error>,
}

impl Gatherer {
    async fn run(mut self) {
        let mut gathered = Vec::with_capacity(self.batch);
        while self.orders.recv_many(&mut gathered, self.batch).await > 0 {
            self.wait_for_more(&mut gathered).await;
            self.carry_out(gathered.drain(..)).await;
        }
    }

    /// Lets the batch fill up, unless someone waits for a flush.
    async fn wait_for_more(&mut self, gathered: &mut Vec<Order>) {
        let deadline = Instant::now() + self.linger;
        while gathered.len() < self.batch && !matches!(gathered.last(), Some(Order::Flush(_))) {
            let room = self.batch - gathered.len();
            match timeout_at(deadline, self.orders.recv_many(gathered, room)).await {
                Ok(0) | Err(_) => return,
                Ok(_) => {}
            }
        }
    }

    async fn carry_out(&mut self, orders: impl Iterator<Item = Order>) {
        let mut entries = Vec::new();
        let mut answers = Vec::new();
        for order in orders {
            match order {
                Order::Add(entry, answer) => {
                    entries.push(entry);
                    answers.push(answer);
                }
                Order::Flush(done) => {
                    self.add(std::mem::take(&mut entries), std::mem::take(&mut answers)).await;
                    // Who asked may have gone.
                    let _ = done.send(self.first_failure.take().map_or(Ok(()), Err));
                }
            }
        }
        self.add(entries, answers).await;
    }

    async fn add(&mut self, entries: Vec<NewEntry>, answers: Vec<oneshot::Sender<Result<StreamId, Error>>>) {
        match self.producer.add(&entries).await {
            // Nobody need wait for an id: who does not has dropped its ticket.
            Ok(ids) => ids.into_iter().zip(answers).for_each(|(id, answer)| drop(answer.send(Ok(id)))),
            Err(error) => {
                self.failed.fetch_add(answers.len() as u64, Ordering::Relaxed);
                for answer in answers {
                    let _ = answer.send(Err(Error::new(error.kind(), error.to_string())));
                }
                self.first_failure.get_or_insert(error);
            }
        }
    }
}

fn ended() -> Error {
    Error::new(ErrorKind::Closed, "the pipeline has ended")
}
