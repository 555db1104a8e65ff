//! Calls that change a stream's entries, or the stream as a whole.

use std::iter;

use millstream_engine::stream::Deletion;
use millstream_engine::{IdSpec, Idempotence, References, Refusal, StreamId, Trim};
use smallvec::SmallVec;

use super::{Call, Command, Error, Millstream, owned};
use crate::streams::{Addition, StreamCounters};
use crate::txn::Txn;

impl Millstream {
    /// Adds an entry, to a new stream if there is none, and answers with its id.
    pub fn add<N: AsRef<[u8]>, V: AsRef<[u8]>>(
        &self,
        key: impl AsRef<[u8]>,
        fields: impl IntoIterator<Item = (N, V)>,
    ) -> Call<Add> {
        let fields = fields.into_iter().flat_map(|(name, value)| [owned(name), owned(value)]).collect();
        self.call(Add {
            key: owned(key),
            fields,
            id: IdSpec::Auto,
            make_stream: true,
            trim: None,
            references: References::Keep,
            sender: None,
        })
    }

    /// Shortens a stream from its old end and answers with how many entries went.
    pub fn trim(&self, key: impl AsRef<[u8]>, trim: Trim) -> Call<TrimStream> {
        self.call(TrimStream { key: owned(key), trim, references: References::Keep })
    }

    /// Deletes entries and answers with how many were there.
    pub fn delete(&self, key: impl AsRef<[u8]>, ids: impl IntoIterator<Item = StreamId>) -> Call<Delete> {
        self.call(Delete { key: owned(key), ids: ids.into_iter().collect() })
    }

    /// Deletes entries and answers of each id what became of it.
    pub fn delete_ex(
        &self,
        key: impl AsRef<[u8]>,
        ids: impl IntoIterator<Item = StreamId>,
    ) -> Call<DeleteEx> {
        let (key, ids) = (owned(key), ids.into_iter().collect());
        self.call(DeleteEx { key, ids, references: References::Keep })
    }

    /// How many entries a stream has: none, if there is no stream.
    pub fn len(&self, key: impl AsRef<[u8]>) -> Call<Length> {
        self.call(Length { key: owned(key) })
    }

    /// Sets a stream's counters by hand.
    pub fn set_counters(&self, key: impl AsRef<[u8]>, counters: StreamCounters) -> Call<SetCounters> {
        self.call(SetCounters { key: owned(key), counters })
    }

    /// Removes a key with everything under it: entries, groups, pending entries. False if there was none.
    pub fn remove(&self, key: impl AsRef<[u8]>) -> Call<Remove> {
        self.call(Remove { key: owned(key) })
    }
}

/// See [`Millstream::add`].
#[derive(Clone, Debug)]
pub struct Add {
    key: Vec<u8>,
    /// Name, value, name, value…
    fields: Vec<Vec<u8>>,
    id: IdSpec,
    make_stream: bool,
    trim: Option<Trim>,
    references: References,
    sender: Option<Sender>,
}

/// Who sends an entry that may have been sent before.
#[derive(Clone, Debug)]
struct Sender {
    producer: Vec<u8>,
    /// `None`: the entry is known by its content.
    iid: Option<Vec<u8>>,
}

impl Sender {
    fn idempotence(&self) -> Idempotence<'_> {
        let producer = &*self.producer;
        match &self.iid {
            Some(iid) => Idempotence::Given { producer, iid },
            None => Idempotence::Auto { producer },
        }
    }
}

impl Call<Add> {
    /// With this id instead of one from the clock.
    pub fn id(mut self, id: IdSpec) -> Self {
        self.command.id = id;
        self
    }

    /// Only to a stream that exists: otherwise the call is refused with [`Refusal::NoSuchKey`].
    pub fn only_existing(mut self) -> Self {
        self.command.make_stream = false;
        self
    }

    /// And then shortens the stream, in the same step.
    pub fn trim(mut self, trim: Trim) -> Self {
        self.command.trim = Some(trim);
        self
    }

    /// What becomes of what is pending of the entries that shortening removes: if nothing is said, it stays.
    pub fn references(mut self, references: References) -> Self {
        self.command.references = references;
        self
    }

    /// The producer may have sent the entry before under this name: then it is not added again, and the answer is the id it got
    /// then. Only with an id from the clock.
    pub fn idempotent(mut self, producer: impl AsRef<[u8]>, iid: impl AsRef<[u8]>) -> Self {
        self.command.sender = Some(Sender { producer: owned(producer), iid: Some(owned(iid)) });
        self
    }

    /// The same, where an entry of this producer with the same fields is the same entry.
    pub fn idempotent_by_content(mut self, producer: impl AsRef<[u8]>) -> Self {
        self.command.sender = Some(Sender { producer: owned(producer), iid: None });
        self
    }
}

impl Command for Add {
    type Output = StreamId;
    const CHANGES: bool = true;

    fn keys(&self) -> impl Iterator<Item = &[u8]> {
        iter::once(&*self.key)
    }

    fn bytes(&self) -> u64 {
        self.fields.iter().map(|text| text.len() as u64).sum()
    }

    fn run(&mut self, txn: &mut Txn<'_>) -> Result<StreamId, Error> {
        if self.fields.is_empty() {
            return Err(Error::NoFields);
        }
        let fields: SmallVec<[&[u8]; 16]> = self.fields.iter().map(|text| &**text).collect();
        let entry = Addition {
            id: self.id,
            fields: &fields,
            make_stream: self.make_stream,
            trim: self.trim,
            references: self.references,
            idempotence: self.sender.as_ref().map(Sender::idempotence),
        };
        let added = txn.xadd(&self.key, &entry);
        added.and_then(|id| id.ok_or(Refusal::NoSuchKey)).map_err(Error::refused(&self.key))
    }
}

/// See [`Millstream::trim`].
#[derive(Clone, Debug)]
pub struct TrimStream {
    key: Vec<u8>,
    trim: Trim,
    references: References,
}

impl Call<TrimStream> {
    /// What becomes of what is pending of the entries that go: if nothing is said, it stays.
    pub fn references(mut self, references: References) -> Self {
        self.command.references = references;
        self
    }
}

impl Command for TrimStream {
    type Output = u64;
    const CHANGES: bool = true;

    fn keys(&self) -> impl Iterator<Item = &[u8]> {
        iter::once(&*self.key)
    }

    fn run(&mut self, txn: &mut Txn<'_>) -> Result<u64, Error> {
        txn.xtrim(&self.key, &self.trim, self.references).map_err(Error::refused(&self.key))
    }
}

/// See [`Millstream::delete`].
#[derive(Clone, Debug)]
pub struct Delete {
    key: Vec<u8>,
    ids: Vec<StreamId>,
}

impl Command for Delete {
    type Output = u64;
    const CHANGES: bool = true;

    fn keys(&self) -> impl Iterator<Item = &[u8]> {
        iter::once(&*self.key)
    }

    fn run(&mut self, txn: &mut Txn<'_>) -> Result<u64, Error> {
        txn.xdel(&self.key, &self.ids).map_err(Error::refused(&self.key))
    }
}

/// See [`Millstream::delete_ex`].
#[derive(Clone, Debug)]
pub struct DeleteEx {
    key: Vec<u8>,
    ids: Vec<StreamId>,
    references: References,
}

impl Call<DeleteEx> {
    /// What becomes of what is pending of them: if nothing is said, it stays.
    pub fn references(mut self, references: References) -> Self {
        self.command.references = references;
        self
    }
}

impl Command for DeleteEx {
    type Output = Vec<Deletion>;
    const CHANGES: bool = true;

    fn keys(&self) -> impl Iterator<Item = &[u8]> {
        iter::once(&*self.key)
    }

    fn run(&mut self, txn: &mut Txn<'_>) -> Result<Vec<Deletion>, Error> {
        txn.xdelex(&self.key, &self.ids, self.references).map_err(Error::refused(&self.key))
    }
}

/// See [`Millstream::len`].
#[derive(Clone, Debug)]
pub struct Length {
    key: Vec<u8>,
}

impl Command for Length {
    type Output = u64;
    const CHANGES: bool = false;

    fn keys(&self) -> impl Iterator<Item = &[u8]> {
        iter::once(&*self.key)
    }

    fn run(&mut self, txn: &mut Txn<'_>) -> Result<u64, Error> {
        let stream = txn.stream(&self.key).map_err(Error::refused(&self.key))?;
        Ok(stream.map_or(0, |stream| stream.len()))
    }
}

/// See [`Millstream::set_counters`].
#[derive(Clone, Debug)]
pub struct SetCounters {
    key: Vec<u8>,
    counters: StreamCounters,
}

impl Command for SetCounters {
    type Output = ();
    const CHANGES: bool = true;

    fn keys(&self) -> impl Iterator<Item = &[u8]> {
        iter::once(&*self.key)
    }

    fn run(&mut self, txn: &mut Txn<'_>) -> Result<(), Error> {
        txn.xsetid(&self.key, self.counters).map_err(Error::refused(&self.key))
    }
}

/// See [`Millstream::remove`].
#[derive(Clone, Debug)]
pub struct Remove {
    key: Vec<u8>,
}

impl Command for Remove {
    type Output = bool;
    const CHANGES: bool = true;

    fn keys(&self) -> impl Iterator<Item = &[u8]> {
        iter::once(&*self.key)
    }

    fn run(&mut self, txn: &mut Txn<'_>) -> Result<bool, Error> {
        Ok(txn.delete(&self.key))
    }
}
