//! Entries come.

use std::iter;

use millstream_engine::stream::fingerprint;
use millstream_engine::{
    Addition, IdSpec, Idempotence, References, Refusal, Stream, StreamEffect, StreamId, Trim,
};
use smallvec::SmallVec;

use super::Verb;
use super::idempotence::remember;
use crate::txn::Txn;

/// Adds an entry to a stream, which is made if need be, and then shortens the stream. Answers with the id.
#[derive(Clone, Debug)]
pub struct Add<B = Vec<u8>> {
    /// The stream.
    pub key: B,
    /// Name, value, name, value…
    pub fields: Vec<B>,
    /// The entry's id.
    pub id: IdSpec,
    /// Whether to make the stream. If not and there is none, it is refused with [`Refusal::NoSuchKey`].
    pub make_stream: bool,
    /// How to shorten the stream afterwards.
    pub trim: Option<Trim>,
    /// What becomes of what is pending of the entries that go.
    pub references: References,
    /// Who sends an entry that may have been sent before.
    pub sender: Option<Sender<B>>,
}

/// Who sends an entry that may have been sent before.
#[derive(Clone, Debug)]
pub struct Sender<B = Vec<u8>> {
    /// The producer.
    pub producer: B,
    /// The producer's name for the entry; `None`: the entry is known by its content.
    pub iid: Option<B>,
}

impl<B> Add<B> {
    /// An entry with an id from the clock, and nothing else.
    pub fn new(key: B, fields: Vec<B>) -> Add<B> {
        let (id, references) = (IdSpec::Auto, References::Keep);
        Add { key, fields, id, make_stream: true, trim: None, references, sender: None }
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
        let idempotence = self.sender.as_ref().map(|sender| match &sender.iid {
            Some(iid) => Idempotence::Given { producer: sender.producer.as_ref(), iid: iid.as_ref() },
            None => Idempotence::Auto { producer: sender.producer.as_ref() },
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

/// Adds an entry and then trims. `None`: there is no stream and none was to be made. What was sent before is not
/// added again, nothing is trimmed, and the id is the one it got then.
pub fn add(txn: &mut Txn<'_>, key: &[u8], entry: &Addition<'_>) -> Result<Option<StreamId>, Refusal> {
    let (now_ms, fields) = (txn.now_ms(), entry.fields);
    let found = txn.stream_with_place(key)?;
    let (at, stream) = found.unzip();
    if stream.is_none() && !entry.make_stream {
        return Ok(None);
    }
    let content;
    let sent: Option<(&[u8], &[u8])> = match entry.idempotence {
        None => None,
        Some(Idempotence::Given { producer, iid }) => Some((producer, iid)),
        Some(Idempotence::Auto { producer }) => {
            content = fingerprint(fields);
            Some((producer, &content))
        }
    };
    if let (Some(stream), Some((producer, iid))) = (stream, sent)
        && let Some(id) = stream.query_remembered(producer, iid, now_ms)
    {
        txn.apply_stream(key, StreamEffect::Repeat);
        return Ok(Some(id));
    }
    let id = match stream {
        None => Stream::new().decide_add(entry.id, fields, now_ms)?,
        Some(stream) => stream.decide_add(entry.id, fields, now_ms)?,
    };
    match at {
        Some(at) => txn.append_at(key, at, id, fields),
        None => txn.apply_stream(key, StreamEffect::Append { id, fields }),
    }
    if let Some((producer, iid)) = sent {
        remember(txn, key, producer, iid, id)?;
    }
    if let Some(trim) = entry.trim {
        super::TrimStream { key, trim, references: entry.references }.run(txn)?;
    }
    Ok(Some(id))
}
