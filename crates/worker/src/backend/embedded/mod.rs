//! The store in this process as a backend: nothing in between, every verb one step under the lock of its keys.

mod folder;
mod read;
mod rows;
mod step;
mod values;

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use millstream_engine::stream::{EntryRef, IdRange, NackOptions};
use millstream_engine::{GroupStart, NackMode, StreamId};
use millstream_protocol::glob;
use millstream_store::embedded::{Command, Millstream, ReadFrom, Refusal};
use millstream_store::{Addition, Reader, SetExpiry, SetIf, Txn};

use super::{
    Acknowledgement, Admin, Answer, Backend, Capabilities, Claimed, Consumer, ConsumerInfo, DeadLetter,
    Delivery, Entry, Error, GroupInfo, NewEntry, Order, PendingFilter, PendingRow, PendingSummary, Range,
    Read, Release, Start, StreamInfo, Trim,
};
use folder::Contents;
use read::ReadGroup;
use step::Step;
use values::{error, fields_of, flat, millis, store_idempotence, store_trim, text};

/// The embedded store as a backend.
#[derive(Clone)]
pub struct Embedded {
    db: Millstream,
    place: String,
}

impl Embedded {
    /// A store in memory that is gone with its last handle.
    pub fn in_memory() -> Embedded {
        Embedded::over(Millstream::in_memory(), "memory")
    }

    /// The store in a folder, which is made if it is not there. A folder with anything else in it is refused.
    pub fn open(folder: impl AsRef<Path>) -> Result<Embedded, Error> {
        let folder = folder.as_ref();
        match Contents::of(folder)? {
            Contents::Store | Contents::Nothing => Embedded::open_any(folder),
            Contents::Foreign => Err(folder::foreign(folder)),
        }
    }

    /// The store in a folder, which must be there: nothing is made.
    pub fn open_existing(folder: impl AsRef<Path>) -> Result<Embedded, Error> {
        let folder = folder.as_ref();
        match Contents::of(folder)? {
            Contents::Store => Embedded::open_any(folder),
            Contents::Nothing | Contents::Foreign => Err(folder::no_store(folder)),
        }
    }

    fn open_any(folder: &Path) -> Result<Embedded, Error> {
        let db = Millstream::open(folder).map_err(error)?;
        Ok(Embedded::over(db, format!("embedded:{}", folder.display())))
    }

    /// A store that was opened elsewhere; `place` is its name for people.
    pub fn over(db: Millstream, place: impl Into<String>) -> Embedded {
        Embedded { db, place: place.into() }
    }

    /// The store itself.
    pub fn store(&self) -> &Millstream {
        &self.db
    }

    fn call<C: Command>(&self, command: C) -> Answer<'_, C::Output> {
        let call = self.db.call(command);
        Box::pin(async move { call.await.map_err(error) })
    }

    /// A step that only looks.
    fn look<T, F>(&self, key: &str, run: F) -> Answer<'_, T>
    where
        T: Send + 'static,
        F: FnMut(&mut Txn<'_>, &[u8]) -> Result<T, Refusal> + Clone + Send + 'static,
    {
        self.call(Step::<false, F>::on(key, run))
    }

    /// A step that may change something.
    fn change<T, F>(&self, key: &str, run: F) -> Answer<'_, T>
    where
        T: Send + 'static,
        F: FnMut(&mut Txn<'_>, &[u8]) -> Result<T, Refusal> + Clone + Send + 'static,
    {
        self.call(Step::<true, F>::on(key, run))
    }
}

impl Backend for Embedded {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            read_claims: true,
            releases: true,
            extends: true,
            idempotent_adds: true,
            exact_lag: true,
            certain: true,
        }
    }

    fn place(&self) -> String {
        self.place.clone()
    }

    fn admin(self: Arc<Self>) -> Option<Arc<dyn Admin>> {
        Some(self)
    }

    fn add<'a>(
        &'a self,
        stream: &'a str,
        entries: &'a [NewEntry],
        trim: Option<Trim>,
    ) -> Answer<'a, Vec<StreamId>> {
        if let Err(refused) = super::check_entries(entries) {
            return Box::pin(async { Err(refused) });
        }
        let (entries, trim) = (entries.to_vec(), trim.map(store_trim));
        self.change(stream, move |txn, key| {
            let last = entries.len().saturating_sub(1);
            let mut ids = Vec::with_capacity(entries.len());
            for (at, entry) in entries.iter().enumerate() {
                let fields = flat(&entry.fields);
                let idempotence = entry.idempotence.as_ref().map(store_idempotence);
                let trim = trim.filter(|_| at == last);
                let id = txn.xadd(key, &Addition { trim, idempotence, ..Addition::new(&fields) })?;
                ids.push(id.ok_or(Refusal::NoSuchKey)?);
            }
            Ok(ids)
        })
    }

    fn create_group<'a>(&'a self, stream: &'a str, group: &'a str, start: Start) -> Answer<'a, bool> {
        let group = group.to_owned();
        self.change(stream, move |txn, key| {
            match txn.xgroup_create(key, group.as_bytes(), group_start(start), true, None) {
                Ok(()) => Ok(true),
                Err(Refusal::GroupExists) => Ok(false),
                Err(refusal) => Err(refusal),
            }
        })
    }

    fn stream<'a>(&'a self, stream: &'a str) -> Answer<'a, Option<StreamInfo>> {
        self.look(stream, |txn, key| {
            let Some(stream) = txn.stream(key)? else { return Ok(None) };
            Ok(Some(StreamInfo {
                length: stream.len(),
                groups: stream.groups().count() as u64,
                entries_added: Some(stream.entries_added()),
                last_id: stream.last_id(),
                max_deleted_id: Some(stream.max_deleted_id()),
                first_entry: stream.first_entry().map(|entry| entry.id()),
                last_entry: stream.last_entry().map(|entry| entry.id()),
            }))
        })
    }

    fn read<'a>(&'a self, read: &'a Read<'a>) -> Answer<'a, Vec<Delivery>> {
        if read.count == 0 {
            return Box::pin(async { Ok(Vec::new()) });
        }
        self.call(ReadGroup::new(read))
    }

    fn own_pending<'a>(
        &'a self,
        consumer: Consumer<'a>,
        after: StreamId,
        count: usize,
    ) -> Answer<'a, Vec<Delivery>> {
        let Consumer { stream, group, name } = consumer;
        let (group, consumer) = (group.to_owned(), name.to_owned());
        self.look(stream, move |txn, key| {
            let stream = txn.stream(key)?.ok_or(Refusal::NoGroup)?;
            let group = stream.group(group.as_bytes()).ok_or(Refusal::NoGroup)?;
            let Some(consumer) = group.consumer(consumer.as_bytes()) else { return Ok(Vec::new()) };
            let ids = stream.query_history(group, consumer, after, Some(count as u64));
            let mut deliveries = Vec::with_capacity(ids.len());
            stream.visit_ids(&ids, |id, entry| {
                let counted = group.pending().get(id).map_or(0, |row| row.deliveries);
                deliveries.push(Delivery { id, fields: entry.map(fields_of), deliveries: counted });
            });
            Ok(deliveries)
        })
    }

    fn autoclaim<'a>(
        &'a self,
        read: &'a Read<'a>,
        min_idle: Duration,
        from: StreamId,
    ) -> Answer<'a, Claimed> {
        let (group, consumer, count) = (read.group.to_owned(), read.consumer.to_owned(), read.count);
        self.change(read.stream, move |txn, key| {
            let who = (key, group.as_bytes(), consumer.as_bytes());
            rows::claim_idle(txn, who, (millis(min_idle), from, count))
        })
    }

    fn acknowledge<'a>(
        &'a self,
        stream: &'a str,
        group: &'a str,
        done: &'a Acknowledgement,
    ) -> Answer<'a, u64> {
        let (group, settled) = (group.to_owned(), done.clone());
        let step = Step::<true, _>::on(stream, move |txn: &mut Txn<'_>, key: &[u8]| {
            for (seen, lifetime) in &settled.remember {
                let until = SetExpiry::At(txn.now_ms().saturating_add(millis(*lifetime)));
                txn.set(seen.as_bytes(), b"1", SetIf::Always, until);
            }
            match settled.ids.is_empty() {
                true => Ok(0),
                false => txn.xack(key, group.as_bytes(), &settled.ids),
            }
        });
        self.call(step.and(done.remember.iter().map(|(key, _)| &**key)))
    }

    fn seen<'a>(&'a self, keys: &'a [String]) -> Answer<'a, Vec<bool>> {
        let asked = keys.to_vec();
        let step = Step::<false, _>::on("", move |txn: &mut Txn<'_>, _: &[u8]| {
            Ok(asked.iter().map(|key| txn.exists(key.as_bytes())).collect())
        });
        self.call(step.and(keys.iter().map(|key| &**key)))
    }

    fn extend<'a>(&'a self, consumer: Consumer<'a>, ids: &'a [StreamId]) -> Answer<'a, Vec<StreamId>> {
        let Consumer { stream, group, name } = consumer;
        let (group, consumer, ids) = (group.to_owned(), name.to_owned(), ids.to_vec());
        self.change(stream, move |txn, key| {
            let reader = Reader { key, group: group.as_bytes(), consumer: consumer.as_bytes() };
            let ours = txn.xextend(reader, &ids)?;
            Ok(ids.iter().zip(ours).filter(|(_, is_ours)| *is_ours).map(|(id, _)| *id).collect())
        })
    }

    fn release<'a>(&'a self, consumer: Consumer<'a>, released: &'a [Release]) -> Answer<'a, u64> {
        let Consumer { stream, group, name } = consumer;
        let (group, consumer, released) = (group.to_owned(), name.to_owned(), released.to_vec());
        self.change(stream, move |txn, key| {
            rows::release(txn, (key, group.as_bytes(), consumer.as_bytes()), &released)
        })
    }

    fn dead_letter<'a>(
        &'a self,
        consumer: Consumer<'a>,
        letters: &'a [DeadLetter],
    ) -> Answer<'a, Vec<StreamId>> {
        let Consumer { stream, group, name } = consumer;
        if let Err(refused) = super::check_letters(letters) {
            return Box::pin(async { Err(refused) });
        }
        let (group, consumer, buried) = (group.to_owned(), name.to_owned(), letters.to_vec());
        let step = Step::<true, _>::on(stream, move |txn: &mut Txn<'_>, key: &[u8]| {
            let (group, consumer) = (group.as_bytes(), consumer.as_bytes());
            let mut moved = Vec::with_capacity(buried.len());
            for letter in &buried {
                if rows::may_bury(txn, (key, group, consumer), letter.origin)? {
                    txn.xadd(letter.to.as_bytes(), &Addition::new(&flat(&letter.fields)))?;
                    txn.xack(key, group, &[letter.origin])?;
                    moved.push(letter.origin);
                }
            }
            Ok(moved)
        });
        self.call(step.and(letters.iter().map(|letter| &*letter.to)))
    }
}

impl Admin for Embedded {
    fn ping(&self) -> Answer<'_, ()> {
        self.look("", |_, _| Ok(()))
    }

    fn streams<'a>(&'a self, pattern: &'a str) -> Answer<'a, Vec<String>> {
        let listed = self.db.streams();
        Box::pin(async move {
            let names = listed.await.map_err(error)?;
            Ok(names
                .iter()
                .filter(|name| glob::matches(pattern.as_bytes(), name))
                .map(|name| text(name))
                .collect())
        })
    }

    fn range<'a>(&'a self, stream: &'a str, range: Range) -> Answer<'a, Vec<Entry>> {
        self.look(stream, move |txn, key| {
            let mut entries = Vec::new();
            let Some(stream) = txn.stream(key)? else { return Ok(entries) };
            let ids = IdRange { first: range.first, last: range.last };
            let mut take = |entry: &EntryRef<'_>| {
                entries.push(Entry { id: entry.id(), fields: fields_of(entry) });
                ControlFlow::Continue(())
            };
            match range.order {
                Order::Rising => stream.visit_range(ids, Some(range.count as u64), &mut take),
                Order::Falling => stream.visit_range_back(ids, Some(range.count as u64), &mut take),
            };
            Ok(entries)
        })
    }

    fn follow<'a>(
        &'a self,
        stream: &'a str,
        after: StreamId,
        count: usize,
        block: Duration,
    ) -> Answer<'a, Vec<Entry>> {
        let read = self.db.read(stream, ReadFrom::After(after)).count(count as u64).block(block);
        Box::pin(async move {
            let batch = read.await.map_err(error)?;
            let entries = batch.streams.into_iter().flat_map(|stream| stream.entries);
            Ok(entries.map(|entry| Entry { id: entry.id, fields: owned_fields(entry.fields) }).collect())
        })
    }

    fn delete_entries<'a>(&'a self, stream: &'a str, ids: &'a [StreamId]) -> Answer<'a, u64> {
        let ids = ids.to_vec();
        self.change(stream, move |txn, key| txn.xdel(key, &ids))
    }

    fn delete_stream<'a>(&'a self, stream: &'a str) -> Answer<'a, bool> {
        self.change(stream, |txn, key| {
            let there = txn.stream(key)?.is_some();
            Ok(there && txn.delete(key))
        })
    }

    fn groups<'a>(&'a self, stream: &'a str) -> Answer<'a, Vec<GroupInfo>> {
        self.look(stream, |txn, key| {
            let Some(stream) = txn.stream(key)? else { return Ok(Vec::new()) };
            let describe = |(name, group): (&[u8], &millstream_engine::stream::Group)| GroupInfo {
                name: text(name),
                consumers: group.consumers().len() as u64,
                pending: group.pending().len(),
                last_delivered: group.last_id(),
                entries_read: group.entries_read(),
                lag: Some(stream.query_lag_exact(group)),
            };
            Ok(stream.groups().map(describe).collect())
        })
    }

    fn move_group<'a>(&'a self, stream: &'a str, group: &'a str, start: Start) -> Answer<'a, ()> {
        let group = group.to_owned();
        self.change(stream, move |txn, key| {
            txn.xgroup_set_id(key, group.as_bytes(), group_start(start), None)
        })
    }

    fn delete_group<'a>(&'a self, stream: &'a str, group: &'a str) -> Answer<'a, bool> {
        let group = group.to_owned();
        self.change(stream, move |txn, key| match txn.xgroup_destroy(key, group.as_bytes()) {
            Err(Refusal::GroupNeedsKey) => Ok(false),
            destroyed => destroyed,
        })
    }

    fn pending_summary<'a>(&'a self, stream: &'a str, group: &'a str) -> Answer<'a, PendingSummary> {
        let group = group.to_owned();
        self.look(stream, move |txn, key| {
            let group = rows::group(txn, key, group.as_bytes())?;
            let pending = group.pending();
            let owners = group.consumers().filter(|(_, _, consumer)| consumer.pending > 0);
            Ok(PendingSummary {
                total: pending.len(),
                ids: pending.first().zip(pending.last()).map(|(first, last)| (first.id, last.id)),
                consumers: owners.map(|(name, _, consumer)| (text(name), consumer.pending)).collect(),
            })
        })
    }

    fn pending<'a>(
        &'a self,
        stream: &'a str,
        group: &'a str,
        filter: &'a PendingFilter,
    ) -> Answer<'a, Vec<PendingRow>> {
        let (group, filter) = (group.to_owned(), filter.clone());
        self.look(stream, move |txn, key| {
            rows::list(rows::group(txn, key, group.as_bytes())?, &filter, txn.now_ms())
        })
    }

    fn restore<'a>(&'a self, stream: &'a str, group: &'a str, id: StreamId) -> Answer<'a, bool> {
        let group = group.to_owned();
        self.change(stream, move |txn, key| {
            let stream = txn.stream(key)?.ok_or(Refusal::NoGroup)?;
            let found = stream.group(group.as_bytes()).ok_or(Refusal::NoGroup)?;
            if !stream.contains(id) {
                return Ok(false);
            }
            if found.pending().get(id).is_none() {
                let options = NackOptions { mode: NackMode::Silent, deliveries: Some(0), force: true };
                txn.xnack(key, group.as_bytes(), &[id], options)?;
            }
            Ok(true)
        })
    }

    fn consumers<'a>(&'a self, stream: &'a str, group: &'a str) -> Answer<'a, Vec<ConsumerInfo>> {
        let group = group.to_owned();
        self.look(stream, move |txn, key| {
            let now_ms = txn.now_ms();
            let since = |at_ms: u64| Duration::from_millis(now_ms.saturating_sub(at_ms));
            let group = rows::group(txn, key, group.as_bytes())?;
            let describe = group.consumers().map(|(name, _, consumer)| ConsumerInfo {
                name: text(name),
                pending: consumer.pending,
                idle: since(consumer.seen_at_ms),
                inactive: consumer.active_at_ms.map(since),
            });
            Ok(describe.collect())
        })
    }

    fn remove_consumer<'a>(&'a self, consumer: Consumer<'a>, heir: &'a str) -> Answer<'a, u64> {
        let Consumer { stream, group, name } = consumer;
        if let Err(refused) = super::check_heir(name, heir) {
            return Box::pin(async { Err(refused) });
        }
        let (group, consumer, heir) = (group.to_owned(), name.to_owned(), heir.to_owned());
        self.change(stream, move |txn, key| {
            let from = Reader { key, group: group.as_bytes(), consumer: consumer.as_bytes() };
            txn.xadopt(from, heir.as_bytes())
        })
    }

    fn remove_empty_consumer<'a>(&'a self, consumer: Consumer<'a>) -> Answer<'a, bool> {
        let Consumer { stream, group, name } = consumer;
        let (group, consumer) = (group.to_owned(), name.to_owned());
        self.change(stream, move |txn, key| rows::dismiss(txn, (key, group.as_bytes(), consumer.as_bytes())))
    }
}

fn group_start(start: Start) -> GroupStart {
    match start {
        Start::Beginning => GroupStart::After(StreamId::MIN),
        Start::End => GroupStart::Last,
        Start::After(id) => GroupStart::After(id),
    }
}

fn owned_fields(fields: Vec<(Vec<u8>, Vec<u8>)>) -> super::Fields {
    fields.into_iter().map(|(name, value)| (name.into(), value.into())).collect()
}
