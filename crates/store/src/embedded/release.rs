//! Pending entries: given back, kept for longer, acknowledged and deleted at once.

use std::iter;

use millstream_engine::stream::{Deletion, NackOptions};
use millstream_engine::{NackMode, References, StreamId};

use super::groups::Member;
use super::{Call, Command, Error, Millstream, owned};
use crate::txn::Txn;

impl Millstream {
    /// Gives pending entries back: they belong to nobody, and are the first that a reader who claims is given. Counts as a failed
    /// delivery, unless told otherwise. Answers with how many were pending.
    pub fn nack(
        &self,
        key: impl AsRef<[u8]>,
        group: impl AsRef<[u8]>,
        ids: impl IntoIterator<Item = StreamId>,
    ) -> Call<Nack> {
        let options = NackOptions { mode: NackMode::Fail, deliveries: None, force: false };
        self.call(Nack { key: owned(key), group: owned(group), ids: ids.into_iter().collect(), options })
    }

    /// Keeps pending entries for longer: those that are still the consumer's are idle from now on anew. Answers of each whether it
    /// is: whoever gets a `false` must stop working on that entry, somebody else does.
    pub fn extend(
        &self,
        key: impl AsRef<[u8]>,
        group: impl AsRef<[u8]>,
        consumer: impl AsRef<[u8]>,
        ids: impl IntoIterator<Item = StreamId>,
    ) -> Call<Extend> {
        self.call(Extend { of: Member::new(key, group, consumer), ids: ids.into_iter().collect() })
    }

    /// Acknowledges entries and deletes them, in one step. Answers of each id what became of it.
    pub fn ack_delete(
        &self,
        key: impl AsRef<[u8]>,
        group: impl AsRef<[u8]>,
        ids: impl IntoIterator<Item = StreamId>,
    ) -> Call<AckDelete> {
        let ids = ids.into_iter().collect();
        self.call(AckDelete { key: owned(key), group: owned(group), ids, references: References::Keep })
    }
}

/// See [`Millstream::nack`].
#[derive(Clone, Debug)]
pub struct Nack {
    key: Vec<u8>,
    group: Vec<u8>,
    ids: Vec<StreamId>,
    options: NackOptions,
}

impl Call<Nack> {
    /// What is said of the entries.
    pub fn mode(mut self, mode: NackMode) -> Self {
        self.command.options.mode = mode;
        self
    }

    /// They count as delivered this often, whatever is said of them.
    pub fn deliveries(mut self, count: u64) -> Self {
        self.command.options.deliveries = Some(count);
        self
    }

    /// Also what is not pending, if the entry exists.
    pub fn force(mut self) -> Self {
        self.command.options.force = true;
        self
    }
}

impl Command for Nack {
    type Output = u64;
    const CHANGES: bool = true;

    fn keys(&self) -> impl Iterator<Item = &[u8]> {
        iter::once(&*self.key)
    }

    fn run(&mut self, txn: &mut Txn<'_>) -> Result<u64, Error> {
        txn.xnack(&self.key, &self.group, &self.ids, self.options).map_err(Error::refused(&self.key))
    }
}

/// See [`Millstream::extend`].
#[derive(Clone, Debug)]
pub struct Extend {
    of: Member,
    ids: Vec<StreamId>,
}

impl Command for Extend {
    type Output = Vec<bool>;
    const CHANGES: bool = true;

    fn keys(&self) -> impl Iterator<Item = &[u8]> {
        iter::once(&*self.of.key)
    }

    fn run(&mut self, txn: &mut Txn<'_>) -> Result<Vec<bool>, Error> {
        txn.xextend(self.of.reader(), &self.ids).map_err(Error::refused(&self.of.key))
    }
}

/// See [`Millstream::ack_delete`].
#[derive(Clone, Debug)]
pub struct AckDelete {
    key: Vec<u8>,
    group: Vec<u8>,
    ids: Vec<StreamId>,
    references: References,
}

impl Call<AckDelete> {
    /// What becomes of the entries in other groups: if nothing is said, what is pending there stays so.
    pub fn references(mut self, references: References) -> Self {
        self.command.references = references;
        self
    }
}

impl Command for AckDelete {
    type Output = Vec<Deletion>;
    const CHANGES: bool = true;

    fn keys(&self) -> impl Iterator<Item = &[u8]> {
        iter::once(&*self.key)
    }

    fn run(&mut self, txn: &mut Txn<'_>) -> Result<Vec<Deletion>, Error> {
        txn.xackdel(&self.key, &self.group, &self.ids, self.references).map_err(Error::refused(&self.key))
    }
}
