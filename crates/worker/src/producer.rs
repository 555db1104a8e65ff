//! Sending: one entry, many at once, or a pipeline that gathers what many tasks send.
//!
//! An add that fails on the way may have happened. A [`Producer`] therefore tries again by itself only if it is
//! [idempotent](Producer::idempotent) and the store adds a named entry once; otherwise the error is the caller's.
//!
//! ```
//! # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
//! use millstream_worker::backend::Trim;
//! use millstream_worker::producer::Producer;
//!
//! let backend = millstream_worker::connect("memory:").await?;
//! let orders = Producer::new(backend, "orders").trim(Trim::About(1_000_000));
//! orders.send([("id", "7"), ("amount", "12")]).await?;
//! orders.send_json(&serde_json::json!({"id": 8, "amount": 3})).await?;
//! # Ok::<(), millstream_worker::Error>(())
//! # }).unwrap();
//! ```

mod pipeline;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use serde::Serialize;
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep};

pub use pipeline::{Pipeline, PipelineOptions, Ticket};

use crate::backend::{Backend, Error, ErrorKind, Fields, Idempotence, NewEntry, StreamId, Trim};
use crate::backoff::Backoff;

/// How many names of entries a store remembers for a producer at the least. More than these are never sent at once,
/// so that a repeated send finds its names.
const NAMES_REMEMBERED: usize = 100;

/// The field that a JSON document is sent in.
const DOCUMENT_FIELD: &str = "data";

/// Adds entries to a stream. Cheap to clone.
#[derive(Clone)]
pub struct Producer {
    backend: Arc<dyn Backend>,
    stream: Arc<str>,
    trim: Option<Trim>,
    identity: Option<Arc<Identity>>,
    patience: Duration,
}

/// Who sends, and what the next entry is called.
struct Identity {
    producer: String,
    session: String,
    next: AtomicU64,
    // One send at a time: the store remembers only the latest names, and a send that is being repeated
    // must not be overtaken by so many others that its names are forgotten.
    turn: Mutex<()>,
}

impl Producer {
    /// A producer of a stream.
    pub fn new(backend: Arc<dyn Backend>, stream: impl Into<Arc<str>>) -> Producer {
        let patience = Duration::from_secs(10);
        Producer { backend, stream: stream.into(), trim: None, identity: None, patience }
    }

    /// Lets old entries go when entries are added.
    #[must_use]
    pub fn trim(mut self, trim: Trim) -> Producer {
        self.trim = Some(trim);
        self
    }

    /// Adds each entry once, however often it has to be sent. The name of the producer must be its own: two that
    /// share one share what the store remembers of it. Where the store cannot
    /// ([`Capabilities::idempotent_adds`](crate::backend::Capabilities)), nothing is repeated.
    #[must_use]
    pub fn idempotent(mut self, producer: impl Into<String>) -> Producer {
        self.identity = Some(Arc::new(Identity {
            producer: producer.into(),
            session: format!("{:016x}", fastrand::u64(..)),
            next: AtomicU64::new(0),
            turn: Mutex::new(()),
        }));
        self
    }

    /// How long an idempotent send is tried again while the store cannot be reached; ten seconds if nothing is said.
    #[must_use]
    pub fn patience(mut self, patience: Duration) -> Producer {
        self.patience = patience;
        self
    }

    /// The stream.
    pub fn stream(&self) -> &str {
        &self.stream
    }

    /// Adds one entry.
    pub async fn send(&self, fields: impl IntoFields) -> Result<StreamId, Error> {
        self.add_one(self.entry(fields.into_fields())).await
    }

    /// Adds one entry with a value as JSON in its field `data`, where [`Json`](crate::handler::Json) finds it.
    pub async fn send_json<T: Serialize + ?Sized>(&self, value: &T) -> Result<StreamId, Error> {
        self.send(json_fields(value)?).await
    }

    /// Adds one entry under a name of your own: a second one of the same name is not added, also after a restart,
    /// as long as the store remembers it. Gives the id of the entry that is there.
    pub async fn send_once(&self, name: &str, fields: impl IntoFields) -> Result<StreamId, Error> {
        let Some(identity) = &self.identity else {
            return Err(refused(
                "the producer has no name: make it with Producer::idempotent to send an entry once",
            ));
        };
        if !self.backend.capabilities().idempotent_adds {
            return Err(refused(
                "the store cannot add a named entry once, so that sending it once cannot be promised",
            ));
        }
        let idempotence = Idempotence { producer: identity.producer.clone(), iid: name.to_owned() };
        self.add_one(NewEntry { fields: fields.into_fields(), idempotence: Some(idempotence) }).await
    }

    /// Adds entries, in one round trip unless there are very many. Gives their ids in the same order.
    pub async fn send_all<F: IntoFields>(
        &self,
        entries: impl IntoIterator<Item = F>,
    ) -> Result<Vec<StreamId>, Error> {
        let entries: Vec<NewEntry> =
            entries.into_iter().map(|fields| self.entry(fields.into_fields())).collect();
        self.add(&entries).await
    }

    /// A pipeline: what many tasks send within a moment goes as one add.
    pub fn pipelined(self, options: PipelineOptions) -> Pipeline {
        Pipeline::new(self, options)
    }

    fn entry(&self, fields: Fields) -> NewEntry {
        let idempotence = self.identity.as_ref().map(|identity| Idempotence {
            producer: identity.producer.clone(),
            iid: format!("{}-{}", identity.session, identity.next.fetch_add(1, Ordering::Relaxed)),
        });
        NewEntry { fields, idempotence }
    }

    async fn add_one(&self, entry: NewEntry) -> Result<StreamId, Error> {
        let ids = self.add(&[entry]).await?;
        ids.first().copied().ok_or_else(|| refused("the store gave no id for the entry"))
    }

    async fn add(&self, entries: &[NewEntry]) -> Result<Vec<StreamId>, Error> {
        let repeatable = self.identity.as_ref().filter(|_| self.backend.capabilities().idempotent_adds);
        match repeatable {
            None if entries.is_empty() => Ok(Vec::new()),
            None => self.backend.add(&self.stream, entries, self.trim).await,
            Some(identity) => self.add_patiently(identity, entries).await,
        }
    }

    async fn add_patiently(&self, identity: &Identity, entries: &[NewEntry]) -> Result<Vec<StreamId>, Error> {
        let _turn = identity.turn.lock().await;
        let mut ids = Vec::with_capacity(entries.len());
        for chunk in entries.chunks(NAMES_REMEMBERED) {
            ids.extend(self.repeat_add(chunk).await?);
        }
        Ok(ids)
    }

    async fn repeat_add(&self, entries: &[NewEntry]) -> Result<Vec<StreamId>, Error> {
        let backoff = Backoff::exponential(Duration::from_millis(20)..Duration::from_secs(1));
        let deadline = Instant::now() + self.patience;
        let mut tries = 0;
        loop {
            tries += 1;
            match self.backend.add(&self.stream, entries, self.trim).await {
                Err(error) if error.is_passing() && Instant::now() < deadline => {
                    tracing::debug!(stream = %self.stream, %error, tries, "adding again");
                    sleep(backoff.delay(tries)).await;
                }
                settled => return settled,
            }
        }
    }
}

/// What can be sent as the fields of an entry: pairs of names and values.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not the fields of an entry",
    note = "send pairs of names and values, such as `[(\"id\", \"7\")]` or a `Vec` or map of them; for a struct use `send_json`"
)]
pub trait IntoFields {
    /// The fields.
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

/// A name or a value of a field.
pub trait IntoBytes {
    /// Its bytes.
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

fn json_fields<T: Serialize + ?Sized>(value: &T) -> Result<Fields, Error> {
    let json = serde_json::to_vec(value)
        .map_err(|error| refused("the value cannot be written as JSON").with_source(error))?;
    Ok(vec![(Bytes::from_static(DOCUMENT_FIELD.as_bytes()), json.into())])
}

fn refused(message: &str) -> Error {
    Error::new(ErrorKind::Refused, message)
}
