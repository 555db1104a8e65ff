//! Adding entries (XADD).

use std::iter;

use millstream_engine::stream::fingerprint;
use millstream_engine::{
    Addition, Due, IdSpec, Idempotence, References, Refusal, Stream, StreamEffect, StreamId, Trim,
};
use smallvec::SmallVec;

use super::Verb;
use super::delay::delay;
use super::idempotence::record_entry;
use super::retention::keep_size;
use crate::txn::Txn;

/// Adds an entry to a stream and then trims the stream. Returns the id of the entry, or its ticket if it is delayed.
#[derive(Clone, Debug)]
pub struct Add<B = Vec<u8>> {
    pub key: B,
    /// The fields: name, value, name, value…
    pub fields: Vec<B>,
    /// The entry's id.
    pub id: IdSpec,
    /// Whether to create a stream that does not exist. If false, the verb is refused with [`Refusal::NoSuchKey`].
    pub make_stream: bool,
    /// How to trim the stream afterwards.
    pub trim: Option<Trim>,
    /// What happens to pending entries that the trim removes from the stream.
    pub references: References,
    /// Identifies the entry in the producer history; `None` adds it in any case.
    pub idempotency_key: Option<IdempotencyKey<B>>,
}

/// Identifies an entry in the producer history, so that it is added only once even if the producer sends it again.
#[derive(Clone, Debug)]
pub struct IdempotencyKey<B = Vec<u8>> {
    /// The name of the producer.
    pub producer: B,
    /// The producer's id for the entry; `None` uses a fingerprint of the fields.
    pub iid: Option<B>,
}

impl<B> Add<B> {
    /// Creates a verb that adds an entry with an id from the clock, and creates the stream if it does not exist.
    pub fn new(key: B, fields: Vec<B>) -> Add<B> {
        let (id, references) = (IdSpec::Auto, References::Keep);
        Add { key, fields, id, make_stream: true, trim: None, references, idempotency_key: None }
    }
}

impl<B: AsRef<[u8]>> Verb for Add<B> {
    type Output = StreamId;

    fn keys(&self) -> impl Iterator<Item = &[u8]> {
        iter::once(self.key.as_ref())
    }

    fn bytes(&self) -> u64 {
        self.fields.iter().map(|text| text.as_ref().len() as u64).sum()
    }

    fn run(&mut self, txn: &mut Txn<'_>) -> Result<StreamId, Refusal> {
        if self.fields.is_empty() {
            return Err(Refusal::NoFields);
        }
        let fields: SmallVec<[&[u8]; 16]> = self.fields.iter().map(AsRef::as_ref).collect();
        let idempotence = self.idempotency_key.as_ref().map(|idempotency_key| match &idempotency_key.iid {
            Some(iid) => {
                Idempotence::Given { producer: idempotency_key.producer.as_ref(), iid: iid.as_ref() }
            }
            None => Idempotence::Auto { producer: idempotency_key.producer.as_ref() },
        });
        let entry = Addition {
            id: self.id,
            fields: &fields,
            make_stream: self.make_stream,
            trim: self.trim,
            references: self.references,
            idempotence,
        };
        add(txn, self.key.as_ref(), &entry)?.ok_or(Refusal::NoSuchKey)
    }
}

/// Adds an entry, trims the stream and returns the id, or the ticket if the entry is delayed. Returns `None` if the
/// stream does not exist and must not be created.
///
/// If the producer history contains the entry, nothing is added or trimmed, and the id of the earlier entry is
/// returned.
pub fn add(txn: &mut Txn<'_>, key: &[u8], entry: &Addition<'_>) -> Result<Option<StreamId>, Refusal> {
    if let IdSpec::Delayed(due) = entry.id {
        return add_delayed(txn, key, entry, due);
    }
    let (now_ms, fields) = (txn.now_ms(), entry.fields);
    let found = txn.stream_with_slot(key)?;
    let (at, stream) = found.unzip();
    if stream.is_none() && !entry.make_stream {
        return Ok(None);
    }
    let mut content = None;
    let sent = identity(entry, &mut content);
    if let (Some(stream), Some((producer, iid))) = (stream, sent)
        && let Some(id) = stream.query_remembered(producer, iid, now_ms)
    {
        txn.apply_stream(key, StreamEffect::Repeat);
        return Ok(Some(id));
    }
    let has_policy = stream.is_some_and(|stream| stream.policy().is_some());
    let id = decide_add(stream, entry.id, fields, now_ms)?;
    match at {
        Some(at) => txn.append_at(key, at, id, fields),
        None => txn.apply_stream(key, StreamEffect::Append { id, fields }),
    }
    if let Some((producer, iid)) = sent {
        record_entry(txn, key, producer, iid, id)?;
    }
    if let Some(trim) = entry.trim {
        super::TrimStream { key, trim, references: entry.references }.run(txn)?;
    }
    if has_policy {
        keep_size(txn, key);
    }
    Ok(Some(id))
}

#[inline(always)]
fn decide_add(
    stream: Option<&Stream>,
    spec: IdSpec,
    fields: &[&[u8]],
    now_ms: u64,
) -> Result<StreamId, Refusal> {
    let empty;
    let stream = match stream {
        Some(stream) => stream,
        None => {
            empty = Stream::new();
            &empty
        }
    };
    stream.decide_add(spec, fields, now_ms)
}

/// Like [`add`], for an entry with a delay. If its time has come already, adds it at once.
#[inline(never)]
fn add_delayed(
    txn: &mut Txn<'_>,
    key: &[u8],
    entry: &Addition<'_>,
    due: Due,
) -> Result<Option<StreamId>, Refusal> {
    let stream = txn.stream(key)?;
    if stream.is_none() && !entry.make_stream {
        return Ok(None);
    }
    let mut content = None;
    let sent = identity(entry, &mut content);
    if let (Some(stream), Some((producer, iid))) = (stream, sent)
        && let Some(ticket) = stream.query_remembered(producer, iid, txn.now_ms())
    {
        txn.apply_stream(key, StreamEffect::Repeat);
        return Ok(Some(ticket));
    }
    let Some(due_ms) = due.due_ms(txn.now_ms())? else {
        return add(txn, key, &Addition { id: IdSpec::Auto, ..*entry });
    };
    let ticket = delay(txn, key, due_ms, entry.fields)?;
    if let Some((producer, iid)) = sent {
        record_entry(txn, key, producer, iid, ticket)?;
    }
    if let Some(trim) = entry.trim {
        super::TrimStream { key, trim, references: entry.references }.run(txn)?;
    }
    Ok(Some(ticket))
}

/// Returns the producer of an idempotent entry and the id by which the producer history knows the entry. `content`
/// keeps a fingerprint of the fields.
#[inline(always)]
fn identity<'a>(entry: &Addition<'a>, content: &'a mut Option<[u8; 16]>) -> Option<(&'a [u8], &'a [u8])> {
    match entry.idempotence? {
        Idempotence::Given { producer, iid } => Some((producer, iid)),
        Idempotence::Auto { producer } => Some((producer, content.insert(fingerprint(entry.fields)))),
    }
}
