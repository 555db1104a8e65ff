//! Producers: send one entry, many entries, or entries of many tasks through a pipeline.
//!
//! If an add fails because of the connection, the store may have executed it. So a [`Producer`] retries by itself
//! only if it is [idempotent](Producer::idempotent) and the store supports idempotent adds. Otherwise the caller
//! gets the error, whose [`outcomes`](Error::outcomes) say for each entry whether the store added it, did not add it,
//! or may have added it.
//!
//! If the stream has [partitions](crate::partitions), the producer adds each message to the partition of its key. It
//! has at most one add on its way to a partition, so no message of a key overtakes an earlier one.
//!
//! ```
//! # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
//! use millstream_worker::backend::Trim;
//! use millstream_worker::producer::Producer;
//!
//! let backend = millstream_worker::connect("memory:").await?;
//! let orders = Producer::new(backend, "orders").trim(Trim::about(1_000_000).keep_unread());
//! orders.send([("id", "7"), ("amount", "12")]).await?;
//! orders.send_json(&serde_json::json!({"id": 8, "amount": 3})).await?;
//! # Ok::<(), millstream_worker::Error>(())
//! # }).unwrap();
//! ```

#[cfg(test)]
mod partition_tests;
mod pipeline;
mod route;
#[cfg(test)]
mod tests;

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use serde::Serialize;
use tokio::sync::Mutex;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

pub use pipeline::{EntryIdFuture, Pipeline, PipelineOptions};

use self::route::{Outgoing, PartitionQueue, Placed, StreamRoute};
use crate::backend::{
    AddOptions, AddOutcome, Backend, BackendFuture, Capability, Due, Error, ErrorKind, Fields, Idempotence,
    NewEntry, StreamId, Trim,
};
use crate::backoff::Backoff;
use crate::trace::TraceContext;

/// Minimum number of idempotence ids that a store remembers for a producer. An idempotent add never has more entries,
/// so that the store can recognize all of them if the add is repeated.
const REMEMBERED_IDS_MIN: usize = 100;

/// The field that contains a JSON document.
const DOCUMENT_FIELD: &str = "data";

/// Adds entries to a stream. Cheap to clone.
#[derive(Clone)]
pub struct Producer {
    backend: Arc<dyn Backend>,
    stream: Arc<str>,
    /// Where messages go. `None` until the first message is sent.
    route: Arc<Mutex<Option<Arc<StreamRoute>>>>,
    key: Option<Bytes>,
    trim: Option<Trim>,
    due: Option<Due>,
    identity: Option<Arc<ProducerIdentity>>,
    trace: Option<CurrentTrace>,
    retry_for: Duration,
}

/// Returns the trace to which the next entry belongs.
type CurrentTrace = Arc<dyn Fn() -> Option<TraceContext> + Send + Sync>;

/// The name of an idempotent producer, and the source of its idempotence ids.
struct ProducerIdentity {
    producer: String,
    session: String,
    next: AtomicU64,
}

impl Producer {
    /// Returns a producer for a stream, for all partitions of a logical stream, or for one partition, such as
    /// `orders/3`.
    ///
    /// The producer finds out which of these it is when it sends its first message.
    pub fn new(backend: Arc<dyn Backend>, stream: impl Into<Arc<str>>) -> Producer {
        let retry_for = Duration::from_secs(10);
        Producer {
            backend,
            stream: stream.into(),
            route: Arc::default(),
            key: None,
            trim: None,
            due: None,
            identity: None,
            trace: None,
            retry_for,
        }
    }

    /// Sets the key of all messages, which decides in which partition they are. Without it, the value of the field that
    /// the list of partitions names is the key.
    ///
    /// Has no effect on a stream without partitions. A producer is cheap to clone, so each message can have a key of
    /// its own: `producer.clone().key("ada").send_json(…)`.
    #[must_use]
    pub fn key(mut self, key: impl IntoBytes) -> Producer {
        self.key = Some(key.into_bytes());
        self
    }

    /// Trims the stream with each add. If it has partitions, the limit applies to each of them.
    #[must_use]
    pub fn trim(mut self, trim: Trim) -> Producer {
        self.trim = Some(trim);
        self
    }

    /// Delays each entry by this time. The id that a send returns is then the entry's ticket.
    ///
    /// If the store cannot delay entries ([`Capability::DelayedEntries`]), every send fails.
    #[must_use]
    pub fn delay(mut self, delay: Duration) -> Producer {
        self.due = Some(Due::In(u64::try_from(delay.as_millis()).unwrap_or(u64::MAX)));
        self
    }

    /// Delays each entry until this time (Unix milliseconds). See [`Producer::delay`].
    #[must_use]
    pub fn delay_until(mut self, due_ms: u64) -> Producer {
        self.due = Some(Due::At(due_ms));
        self
    }

    /// Makes the producer idempotent: the store adds each entry once, however often it is sent.
    ///
    /// `producer` is a name that no other producer of the stream may use, because the store remembers ids by this name.
    /// If the store does not support this ([`Capability::IdempotentAdds`]), the
    /// producer never retries.
    #[must_use]
    pub fn idempotent(mut self, producer: impl Into<String>) -> Producer {
        self.identity = Some(Arc::new(ProducerIdentity {
            producer: producer.into(),
            session: format!("{:016x}", fastrand::u64(..)),
            next: AtomicU64::new(0),
        }));
        self
    }

    /// Adds this trace to each entry, as the fields `traceparent` and `tracestate`. An entry that has a `traceparent`
    /// keeps it.
    ///
    /// A producer is cheap to clone, so a handler can continue the trace of its message:
    /// `producer.clone().trace(message.handler_trace()).send(…)`.
    #[must_use]
    pub fn trace(self, context: impl Into<Option<TraceContext>>) -> Producer {
        let context = context.into();
        self.trace_from(move || context.clone())
    }

    /// Adds the trace that `current` returns to each entry, like [`trace`](Producer::trace).
    ///
    /// The producer calls `current` in the task that sends the entry. So a program with OpenTelemetry can return the
    /// context of its current span: `|| inject_current_context().parse().ok()`.
    #[must_use]
    pub fn trace_from(
        mut self,
        current: impl Fn() -> Option<TraceContext> + Send + Sync + 'static,
    ) -> Producer {
        self.trace = Some(Arc::new(current));
        self
    }

    /// Sets how long an idempotent add is retried while the store is unreachable. Default: ten seconds.
    #[must_use]
    pub fn retry_for(mut self, retry_for: Duration) -> Producer {
        self.retry_for = retry_for;
        self
    }

    /// Adds one entry and returns its id.
    pub async fn send(&self, fields: impl IntoFields) -> Result<StreamId, Error> {
        self.add_one(self.outgoing(fields.into_fields(), None)).await
    }

    /// Adds one entry with a value as JSON in its field `data`. [`Json`](crate::handler::Json) reads it from there.
    pub async fn send_json<T: Serialize + ?Sized>(&self, value: &T) -> Result<StreamId, Error> {
        let json = serde_json::to_vec(value)
            .map_err(|error| refused("cannot serialize the value as JSON").with_source(error))?;
        self.send([(DOCUMENT_FIELD, json)]).await
    }

    /// Adds one entry with an idempotence id of your choice. Returns the id of the entry in the stream.
    ///
    /// The store does not add a second entry with the same idempotence id, even after a restart of the producer, as
    /// long as it remembers the first.
    pub async fn send_once(&self, name: &str, fields: impl IntoFields) -> Result<StreamId, Error> {
        let message = self.once(name, fields)?;
        if !self.is_repeatable(&self.route().await?.lane(&message).stream).await? {
            return Err(refused("the store does not support idempotent adds, which send_once needs"));
        }
        self.add_one(message).await
    }

    /// Returns the stream to which [`send_once`](Producer::send_once) adds this entry: one of the partitions, if there
    /// are any.
    pub async fn stream_once(&self, name: &str, fields: impl IntoFields) -> Result<Arc<str>, Error> {
        let message = self.once(name, fields)?;
        Ok(Arc::clone(&self.route().await?.lane(&message).stream))
    }

    /// Adds entries in one call to the store. Returns their ids in the same order.
    ///
    /// An idempotent producer needs one call for every 100 entries. If the stream has partitions, there is one call for
    /// each partition, all at the same time; the ids of different partitions are in no order.
    pub async fn send_all<F: IntoFields>(
        &self,
        entries: impl IntoIterator<Item = F>,
    ) -> Result<Vec<StreamId>, Error> {
        self.add(entries.into_iter().map(|fields| self.outgoing(fields.into_fields(), None)).collect()).await
    }

    /// Turns the producer into a pipeline, which adds entries of many tasks in one call.
    pub fn pipelined(self, options: PipelineOptions) -> Pipeline {
        Pipeline::new(self, options)
    }

    fn outgoing(&self, fields: Fields, key: Option<Bytes>) -> Outgoing {
        let idempotence = self.identity.as_ref().map(|identity| Idempotence {
            producer: identity.producer.clone(),
            iid: format!("{}-{}", identity.session, identity.next.fetch_add(1, Ordering::Relaxed)),
        });
        let entry = NewEntry { fields: self.traced(fields), idempotence };
        Outgoing { entry, key: key.or_else(|| self.key.clone()), is_named: false }
    }

    /// Returns a message with an idempotence id of the caller's choice.
    fn once(&self, name: &str, fields: impl IntoFields) -> Result<Outgoing, Error> {
        let Some(identity) = &self.identity else {
            return Err(refused(
                "send_once needs an idempotent producer: create it with Producer::idempotent",
            ));
        };
        let idempotence = Some(Idempotence { producer: identity.producer.clone(), iid: name.to_owned() });
        let entry = NewEntry { fields: self.traced(fields.into_fields()), idempotence };
        Ok(Outgoing { entry, key: self.key.clone(), is_named: true })
    }

    /// Returns the fields with the current trace, if there is one. An entry without fields stays as it is: the store
    /// refuses it.
    fn traced(&self, mut fields: Fields) -> Fields {
        if let Some(current) = &self.trace
            && !fields.is_empty()
            && let Some(context) = current()
        {
            context.add_to(&mut fields);
        }
        fields
    }

    async fn add_one(&self, message: Outgoing) -> Result<StreamId, Error> {
        let ids = self.add(vec![message]).await?;
        ids.first().copied().ok_or_else(|| refused("the store returned no id for the new entry"))
    }

    async fn add(&self, messages: Vec<Outgoing>) -> Result<Vec<StreamId>, Error> {
        if messages.is_empty() {
            return Ok(Vec::new());
        }
        let route = self.route().await?;
        if route.has_partitions() {
            return self.add_to_partitions(route, messages).await;
        }
        let entries: Vec<NewEntry> = messages.into_iter().map(|message| message.entry).collect();
        self.add_to(&route.lanes[0], &entries, false).await
    }

    /// Adds each message to its partition. Returns the ids in the order of the messages.
    ///
    /// If a partition is gone, its messages were not added: reads the list again, and adds them as it says.
    async fn add_to_partitions(
        &self,
        mut route: Arc<StreamRoute>,
        messages: Vec<Outgoing>,
    ) -> Result<Vec<StreamId>, Error> {
        let mut outcomes = vec![AddOutcome::NotAdded; messages.len()];
        let mut failure = None;
        let mut left: Vec<Placed> = messages.into_iter().enumerate().collect();
        for is_first in [true, false] {
            let adds = route.by_lane(std::mem::take(&mut left)).into_iter();
            let mut adding = Vec::with_capacity(adds.len());
            for (lane, messages) in adds {
                adding.push(self.add_in_turn(lane, messages, is_first).await);
            }
            for add in adding {
                let Ok((messages, result)) = add.await else {
                    let unclear = outcomes.into_iter().map(|known| match known {
                        AddOutcome::NotAdded => AddOutcome::Unknown,
                        known => known,
                    });
                    return Err(interrupted().with_outcomes(unclear.collect()));
                };
                match result {
                    Ok(ids) => {
                        for ((at, _), id) in messages.iter().zip(ids) {
                            outcomes[*at] = AddOutcome::Added(id);
                        }
                    }
                    Err(error) if is_first && is_gone(&error) => left.extend(messages),
                    Err(mut error) => {
                        for ((at, _), outcome) in messages.iter().zip(error.take_outcomes()) {
                            outcomes[*at] = outcome;
                        }
                        failure.get_or_insert(error);
                    }
                }
            }
            if left.is_empty() {
                break;
            }
            left.sort_unstable_by_key(|(at, _)| *at);
            match self.new_route(&route).await {
                Ok(found) => route = found,
                Err(error) => {
                    failure.get_or_insert(error);
                    break;
                }
            }
        }
        match failure {
            Some(error) => Err(error.with_outcomes(outcomes)),
            None => Ok(outcomes.into_iter().filter_map(AddOutcome::id).collect()),
        }
    }

    /// Adds messages to a partition in a task, after the adds that were begun before. Returns as soon as its place
    /// among these is certain.
    ///
    /// The task runs to its end even if the caller stops waiting. Otherwise a later add could overtake this one.
    async fn add_in_turn(
        &self,
        lane: Arc<PartitionQueue>,
        messages: Vec<Placed>,
        only_existing: bool,
    ) -> Adding {
        let mut turn = Box::pin(Arc::clone(&lane.turn).lock_owned());
        // The first poll takes a place in the queue of the lock.
        let now = poll_fn(|cx| Poll::Ready(turn.as_mut().poll(cx))).await;
        let producer = self.clone();
        tokio::spawn(async move {
            let _turn = match now {
                Poll::Ready(turn) => turn,
                Poll::Pending => turn.await,
            };
            let entries: Vec<NewEntry> = messages.iter().map(|(_, message)| message.entry.clone()).collect();
            let result = producer.add_to(&lane, &entries, only_existing).await;
            (messages, result)
        })
    }

    async fn add_to(
        &self,
        lane: &PartitionQueue,
        entries: &[NewEntry],
        only_existing: bool,
    ) -> Result<Vec<StreamId>, Error> {
        match &self.identity {
            Some(_) if self.is_repeatable(&lane.stream).await? => {
                let _turn = if lane.is_partition { None } else { Some(lane.turn.lock().await) };
                self.add_idempotent(lane, entries, only_existing).await
            }
            _ => self.call(lane, entries, only_existing).await,
        }
    }

    fn call<'a>(
        &'a self,
        lane: &'a PartitionQueue,
        entries: &'a [NewEntry],
        only_existing: bool,
    ) -> BackendFuture<'a, Vec<StreamId>> {
        let options = AddOptions { due: self.due, trim: self.trim, only_existing };
        self.backend.add_with(&lane.stream, entries, options)
    }

    /// Returns whether the store adds an entry only once.
    async fn is_repeatable(&self, stream: &str) -> Result<bool, Error> {
        self.retried(|| self.backend.supports(Capability::IdempotentAdds, stream)).await
    }

    /// Adds entries, and repeats adds that failed. The caller holds the turn of the lane.
    async fn add_idempotent(
        &self,
        lane: &PartitionQueue,
        entries: &[NewEntry],
        only_existing: bool,
    ) -> Result<Vec<StreamId>, Error> {
        let mut ids = Vec::with_capacity(entries.len());
        for chunk in entries.chunks(REMEMBERED_IDS_MIN) {
            let mut known = vec![AddOutcome::NotAdded; chunk.len()];
            let add = || self.call(lane, chunk, only_existing);
            match self.retried_noting(add, |error| note_outcomes(&mut known, error.outcomes())).await {
                Ok(added) => ids.extend(added),
                Err(error) => {
                    let mut outcomes: Vec<AddOutcome> = ids.into_iter().map(AddOutcome::Added).collect();
                    outcomes.extend(known);
                    outcomes.resize(entries.len(), AddOutcome::NotAdded);
                    return Err(error.with_outcomes(outcomes));
                }
            }
        }
        Ok(ids)
    }

    /// Repeats a call while the store cannot serve it, for at most `retry_for`.
    async fn retried<'a, T>(&self, call: impl Fn() -> BackendFuture<'a, T>) -> Result<T, Error> {
        self.retried_noting(call, |_| {}).await
    }

    /// Repeats a call like [`retried`](Producer::retried), and passes every error to `note`.
    async fn retried_noting<'a, T>(
        &self,
        call: impl Fn() -> BackendFuture<'a, T>,
        mut note: impl FnMut(&Error),
    ) -> Result<T, Error> {
        let backoff = Backoff::exponential(Duration::from_millis(20)..Duration::from_secs(1));
        let deadline = Instant::now() + self.retry_for;
        let mut attempts = 0;
        loop {
            attempts += 1;
            match call().await.inspect_err(&mut note) {
                Err(error) if error.is_transient() && Instant::now() < deadline => {
                    tracing::debug!(stream = %self.stream, %error, attempts, "cannot add entries: retrying");
                    sleep(backoff.delay(attempts)).await;
                }
                result => return result,
            }
        }
    }
}

/// An add to a partition that runs in a task. It returns its messages, with their places in the call.
type Adding = JoinHandle<(Vec<Placed>, Result<Vec<StreamId>, Error>)>;

/// Whether an add failed because the stream is gone, and added nothing.
fn is_gone(error: &Error) -> bool {
    error.kind() == ErrorKind::NoGroup
        && error.outcomes().iter().all(|outcome| *outcome == AddOutcome::NotAdded)
}

/// Adds the outcomes of another attempt to what is known of the entries. If an earlier attempt may have added an entry,
/// a later one that did not does not change that.
fn note_outcomes(known: &mut [AddOutcome], outcomes: &[AddOutcome]) {
    for (known, outcome) in known.iter_mut().zip(outcomes) {
        if *known == AddOutcome::NotAdded || matches!(outcome, AddOutcome::Added(_)) {
            *known = *outcome;
        }
    }
}

/// A value that can be sent as the fields of an entry: pairs of names and values.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be sent as the fields of an entry",
    note = "send pairs of names and values, such as `[(\"id\", \"7\")]` or a `Vec` or map of them; \
            for a struct use `send_json`"
)]
pub trait IntoFields {
    /// Returns the fields.
    fn into_fields(self) -> Fields;
}

impl<I, N, V> IntoFields for I
where
    I: IntoIterator<Item = (N, V)>,
    N: IntoBytes,
    V: IntoBytes,
{
    fn into_fields(self) -> Fields {
        self.into_iter().map(|(name, value)| (name.into_bytes(), value.into_bytes())).collect()
    }
}

/// The name or the value of a field.
pub trait IntoBytes {
    /// Returns the bytes.
    fn into_bytes(self) -> Bytes;
}

impl IntoBytes for Bytes {
    fn into_bytes(self) -> Bytes {
        self
    }
}

impl IntoBytes for String {
    fn into_bytes(self) -> Bytes {
        self.into()
    }
}

impl IntoBytes for Vec<u8> {
    fn into_bytes(self) -> Bytes {
        self.into()
    }
}

impl IntoBytes for &str {
    fn into_bytes(self) -> Bytes {
        Bytes::copy_from_slice(self.as_bytes())
    }
}

impl IntoBytes for &[u8] {
    fn into_bytes(self) -> Bytes {
        Bytes::copy_from_slice(self)
    }
}

/// Returns the error of an add whose task did not end: the runtime shuts down.
fn interrupted() -> Error {
    Error::new(ErrorKind::Closed, "the runtime was shut down while entries were being added")
}

fn refused(message: &str) -> Error {
    Error::new(ErrorKind::Refused, message)
}
