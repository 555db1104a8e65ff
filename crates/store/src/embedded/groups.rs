//! Groups and their consumers: made, moved, ended.

use std::iter;

use millstream_engine::GroupStart;

use super::{Call, Command, Error, Millstream, owned};
use crate::streams::Reader;
use crate::txn::Txn;

impl Millstream {
    /// Begins a group that reads from `start` on.
    pub fn group_create(
        &self,
        key: impl AsRef<[u8]>,
        group: impl AsRef<[u8]>,
        start: GroupStart,
    ) -> Call<GroupCreate> {
        let (key, group) = (owned(key), owned(group));
        self.call(GroupCreate { key, group, start, make_stream: false, entries_read: None })
    }

    /// Moves a group: it reads on from `start`.
    pub fn group_set_id(
        &self,
        key: impl AsRef<[u8]>,
        group: impl AsRef<[u8]>,
        start: GroupStart,
    ) -> Call<GroupSetId> {
        self.call(GroupSetId { key: owned(key), group: owned(group), start, entries_read: None })
    }

    /// Ends a group and what it has pending. False if there was none.
    pub fn group_destroy(&self, key: impl AsRef<[u8]>, group: impl AsRef<[u8]>) -> Call<GroupDestroy> {
        self.call(GroupDestroy { key: owned(key), group: owned(group) })
    }

    /// Makes a consumer, which reading does too. False if it was there already.
    pub fn consumer_create(
        &self,
        key: impl AsRef<[u8]>,
        group: impl AsRef<[u8]>,
        consumer: impl AsRef<[u8]>,
    ) -> Call<ConsumerCreate> {
        self.call(ConsumerCreate(Member::new(key, group, consumer)))
    }

    /// Removes a consumer and answers with how many pending entries went with it: those are delivered to nobody again.
    pub fn consumer_delete(
        &self,
        key: impl AsRef<[u8]>,
        group: impl AsRef<[u8]>,
        consumer: impl AsRef<[u8]>,
    ) -> Call<ConsumerDelete> {
        self.call(ConsumerDelete(Member::new(key, group, consumer)))
    }

    /// Takes everything pending with one consumer over to another, which joins if it is new; the first one is gone. Answers with how
    /// many entries that were.
    pub fn adopt(
        &self,
        key: impl AsRef<[u8]>,
        group: impl AsRef<[u8]>,
        from: impl AsRef<[u8]>,
        to: impl AsRef<[u8]>,
    ) -> Call<Adopt> {
        self.call(Adopt { from: Member::new(key, group, from), to: owned(to) })
    }
}

/// A consumer of a group of a stream, by names of its own.
#[derive(Clone, Debug)]
pub(super) struct Member {
    pub(super) key: Vec<u8>,
    group: Vec<u8>,
    consumer: Vec<u8>,
}

impl Member {
    pub(super) fn new(key: impl AsRef<[u8]>, group: impl AsRef<[u8]>, consumer: impl AsRef<[u8]>) -> Member {
        Member { key: owned(key), group: owned(group), consumer: owned(consumer) }
    }

    pub(super) fn reader(&self) -> Reader<'_> {
        Reader { key: &self.key, group: &self.group, consumer: &self.consumer }
    }
}

/// See [`Millstream::group_create`].
#[derive(Clone, Debug)]
pub struct GroupCreate {
    key: Vec<u8>,
    group: Vec<u8>,
    start: GroupStart,
    make_stream: bool,
    entries_read: Option<u64>,
}

impl Call<GroupCreate> {
    /// Makes the stream too, if there is none.
    pub fn make_stream(mut self) -> Self {
        self.command.make_stream = true;
        self
    }

    /// Counts as having read so many entries.
    pub fn entries_read(mut self, count: u64) -> Self {
        self.command.entries_read = Some(count);
        self
    }
}

impl Command for GroupCreate {
    type Output = ();
    const CHANGES: bool = true;

    fn keys(&self) -> impl Iterator<Item = &[u8]> {
        iter::once(&*self.key)
    }

    fn run(&mut self, txn: &mut Txn<'_>) -> Result<(), Error> {
        txn.xgroup_create(&self.key, &self.group, self.start, self.make_stream, self.entries_read)
            .map_err(Error::refused(&self.key))
    }
}

/// See [`Millstream::group_set_id`].
#[derive(Clone, Debug)]
pub struct GroupSetId {
    key: Vec<u8>,
    group: Vec<u8>,
    start: GroupStart,
    entries_read: Option<u64>,
}

impl Call<GroupSetId> {
    /// Counts as having read so many entries.
    pub fn entries_read(mut self, count: u64) -> Self {
        self.command.entries_read = Some(count);
        self
    }
}

impl Command for GroupSetId {
    type Output = ();
    const CHANGES: bool = true;

    fn keys(&self) -> impl Iterator<Item = &[u8]> {
        iter::once(&*self.key)
    }

    fn run(&mut self, txn: &mut Txn<'_>) -> Result<(), Error> {
        txn.xgroup_set_id(&self.key, &self.group, self.start, self.entries_read)
            .map_err(Error::refused(&self.key))
    }
}

/// See [`Millstream::group_destroy`].
#[derive(Clone, Debug)]
pub struct GroupDestroy {
    key: Vec<u8>,
    group: Vec<u8>,
}

impl Command for GroupDestroy {
    type Output = bool;
    const CHANGES: bool = true;

    fn keys(&self) -> impl Iterator<Item = &[u8]> {
        iter::once(&*self.key)
    }

    fn run(&mut self, txn: &mut Txn<'_>) -> Result<bool, Error> {
        txn.xgroup_destroy(&self.key, &self.group).map_err(Error::refused(&self.key))
    }
}

/// See [`Millstream::consumer_create`].
#[derive(Clone, Debug)]
pub struct ConsumerCreate(Member);

impl Command for ConsumerCreate {
    type Output = bool;
    const CHANGES: bool = true;

    fn keys(&self) -> impl Iterator<Item = &[u8]> {
        iter::once(&*self.0.key)
    }

    fn run(&mut self, txn: &mut Txn<'_>) -> Result<bool, Error> {
        txn.xgroup_create_consumer(self.0.reader()).map_err(Error::refused(&self.0.key))
    }
}

/// See [`Millstream::consumer_delete`].
#[derive(Clone, Debug)]
pub struct ConsumerDelete(Member);

impl Command for ConsumerDelete {
    type Output = u64;
    const CHANGES: bool = true;

    fn keys(&self) -> impl Iterator<Item = &[u8]> {
        iter::once(&*self.0.key)
    }

    fn run(&mut self, txn: &mut Txn<'_>) -> Result<u64, Error> {
        txn.xgroup_delete_consumer(self.0.reader()).map_err(Error::refused(&self.0.key))
    }
}

/// See [`Millstream::adopt`].
#[derive(Clone, Debug)]
pub struct Adopt {
    from: Member,
    to: Vec<u8>,
}

impl Command for Adopt {
    type Output = u64;
    const CHANGES: bool = true;

    fn keys(&self) -> impl Iterator<Item = &[u8]> {
        iter::once(&*self.from.key)
    }

    fn run(&mut self, txn: &mut Txn<'_>) -> Result<u64, Error> {
        txn.xadopt(self.from.reader(), &self.to).map_err(Error::refused(&self.from.key))
    }
}
