//! Calls that change a stream's entries, or the stream as a whole.

use std::iter;

use millstream_engine::{IdSpec, Refusal, StreamId, Trim};
use smallvec::SmallVec;

use super::{Call, Command, Error, Millstream, owned};
use crate::streams::StreamCounters;
use crate::txn::Txn;

impl Millstream {
    /// Adds an entry, to a new stream if there is none, and answers with its id.
    pub fn add<N: AsRef<[u8]>, V: AsRef<[u8]>>(
        &self,
        key: impl AsRef<[u8]>,
        fields: impl IntoIterator<Item = (N, V)>,
    ) -> Call<Add> {
        let fields = fields.into_iter().flat_map(|(name, value)| [owned(name), owned(value)]).collect();
        self.call(Add { key: owned(key), fields, id: IdSpec::Auto, make_stream: true, trim: None })
    }

    /// Shortens a stream from its old end and answers with how many entries went.
    pub fn trim(&self, key: impl AsRef<[u8]>, trim: Trim) -> Call<TrimStream> {
        self.call(TrimStream { key: owned(key), trim })
    }

    /// Deletes entries and answers with how many were there.
    pub fn delete(&self, key: impl AsRef<[u8]>, ids: impl IntoIterator<Item = StreamId>) -> Call<Delete> {
        self.call(Delete { key: owned(key), ids: ids.into_iter().collect() })
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
}

impl Command for Add {
    type Output = StreamId;
    const CHANGES: bool = true;

    fn keys(&self) -> impl Iterator<Item = &[u8]> {
        iter::once(&*self.key)
    }

    fn run(&mut self, txn: &mut Txn<'_>) -> Result<StreamId, Error> {
        if self.fields.is_empty() {
            return Err(Error::NoFields);
        }
        let fields: SmallVec<[&[u8]; 16]> = self.fields.iter().map(|text| &**text).collect();
        let added = txn.xadd(&self.key, self.make_stream, self.id, &fields, self.trim.as_ref());
        added.and_then(|id| id.ok_or(Refusal::NoSuchKey)).map_err(Error::refused(&self.key))
    }
}

/// See [`Millstream::trim`].
#[derive(Clone, Debug)]
pub struct TrimStream {
    key: Vec<u8>,
    trim: Trim,
}

impl Command for TrimStream {
    type Output = u64;
    const CHANGES: bool = true;

    fn keys(&self) -> impl Iterator<Item = &[u8]> {
        iter::once(&*self.key)
    }

    fn run(&mut self, txn: &mut Txn<'_>) -> Result<u64, Error> {
        txn.xtrim(&self.key, &self.trim).map_err(Error::refused(&self.key))
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
