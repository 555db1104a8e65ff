//! The backend for the embedded store. It calls the store's verbs directly; each verb is atomic.

mod admin;
mod folder;
mod look;
mod values;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use millstream_engine::stream::ClaimOptions;
use millstream_engine::{IdSpec, StreamId};
use millstream_store::embedded::{Callable, Millstream, References, Refusal};
use millstream_store::verbs::{
    self, Acknowledge, Acquire, Add, Claim, Collect, ConsumerPath, DeadLettersRecorded, DescribePolicy,
    DescribeStream, Extend, Fenced, FindOwner, GiveUp, GroupCreate, OnKey, OwnPending, Ping, ReadBatch,
    ReadGroup, ReleaseRecorded, Renew, StreamBatch, WalkIdle,
};
use millstream_store::{FolderContents, SetExpiry, SetIf};

use super::{
    Acknowledgement, AddOptions, Admin, Backend, BackendFuture, Capability, Claimant, Claimed, Consumer,
    Delivery, Entry, Error, ErrorKind, InspectStore, NewDeadLetter, NewEntry, OwnStreams, PendingFilter,
    PendingRow, PolicyInfo, Range, Read, ReadMany, ReadMessages, Release, SettleMessages, Start, StreamInfo,
    StreamOwner, StreamRead, Trim,
};
use crate::names::{fence_key, lease_key, retry_key};
use values::{
    all_claimed, error, group_start, millis, new_dead_letter, new_entry, own_release, owner_mark,
    policy_info, stream_info, stream_owner, text,
};

/// The embedded store as a backend.
#[derive(Clone)]
pub struct Embedded {
    db: Millstream,
    location: String,
}

impl Embedded {
    /// Creates a store in memory. Its data is lost when its last handle is dropped.
    pub fn in_memory() -> Embedded {
        Embedded::over(Millstream::in_memory(), "memory")
    }

    /// Opens the store in a folder, or creates it if the folder is empty or does not exist.
    ///
    /// Fails if the folder contains other files and no store.
    pub fn open(folder: impl AsRef<Path>) -> Result<Embedded, Error> {
        let folder = folder.as_ref();
        match folder::contents(folder)? {
            FolderContents::Store | FolderContents::Empty => Embedded::open_any(folder),
            FolderContents::Foreign(_) => Err(folder::foreign(folder)),
        }
    }

    /// Opens the store in a folder. Fails, without creating anything, if there is no store.
    pub fn open_existing(folder: impl AsRef<Path>) -> Result<Embedded, Error> {
        let folder = folder.as_ref();
        match folder::contents(folder)? {
            FolderContents::Store => Embedded::open_any(folder),
            FolderContents::Empty | FolderContents::Foreign(_) => Err(folder::no_store(folder)),
        }
    }

    fn open_any(folder: &Path) -> Result<Embedded, Error> {
        let db = Millstream::open(folder).map_err(error)?;
        Ok(Embedded::over(db, format!("embedded:{}", folder.display())))
    }

    /// Wraps a store that is already open. [`ReadMessages::location`] returns `location`.
    pub fn over(db: Millstream, location: impl Into<String>) -> Embedded {
        Embedded { db, location: location.into() }
    }

    /// Returns the store.
    pub fn store(&self) -> &Millstream {
        &self.db
    }

    /// Calls a verb and converts its result.
    fn call_then<V: Callable, T: Send + 'static>(
        &self,
        verb: V,
        then: impl FnOnce(V::Output) -> T + Send + 'static,
    ) -> BackendFuture<'_, T> {
        let call = self.db.call(verb);
        Box::pin(async move { call.await.map(then).map_err(error) })
    }

    fn call<V: Callable>(&self, verb: V) -> BackendFuture<'_, V::Output> {
        self.call_then(verb, |result| result)
    }

    /// Calls a verb and converts its result. Passes `None` to `then` if the verb fails with `refusal`.
    fn call_unless<V: Callable, T: Send + 'static>(
        &self,
        refusal: Refusal,
        verb: V,
        then: impl FnOnce(Option<V::Output>) -> T + Send + 'static,
    ) -> BackendFuture<'_, T> {
        let call = self.db.call(verb);
        Box::pin(async move {
            match call.await {
                Ok(result) => Ok(then(Some(result))),
                Err(refused) if refused.refusal() == Some(refusal) => Ok(then(None)),
                Err(failed) => Err(error(failed)),
            }
        })
    }
}

fn consumer_path<B: From<String>>(consumer: Consumer<'_>) -> ConsumerPath<B> {
    let Consumer { stream, group, name } = consumer;
    ConsumerPath {
        key: stream.to_owned().into(),
        group: group.to_owned().into(),
        consumer: name.to_owned().into(),
    }
}

impl ReadMessages for Embedded {
    fn supports<'a>(&'a self, capability: Capability, _stream: &'a str) -> BackendFuture<'a, bool> {
        let has = match capability {
            Capability::ExactLag => self.db.store().settings().exact_lag.load(Ordering::Relaxed),
            _ => true,
        };
        Box::pin(async move { Ok(has) })
    }

    fn policy<'a>(
        &'a self,
        stream: &'a str,
        group: Option<&'a str>,
    ) -> BackendFuture<'a, Option<PolicyInfo>> {
        let verb = DescribePolicy { key: stream.to_owned(), group: group.map(str::to_owned) };
        let call = self.db.call(verb);
        Box::pin(async move {
            match call.await {
                Ok(described) => Ok(Some(policy_info(described))),
                Err(refused) if matches!(refused.refusal(), Some(Refusal::NoSuchKey | Refusal::NoGroup)) => {
                    Ok(None)
                }
                Err(failed) => Err(error(failed)),
            }
        })
    }

    fn now_ms<'a>(&'a self, _stream: &'a str) -> BackendFuture<'a, u64> {
        let db = self.db.clone();
        self.call_then(Ping, move |()| db.store().now_ms())
    }

    fn location(&self) -> String {
        self.location.clone()
    }

    fn create_group<'a>(&'a self, stream: &'a str, group: &'a str, start: Start) -> BackendFuture<'a, bool> {
        let (key, group, start) = (stream.to_owned(), group.to_owned(), group_start(start));
        let verb = GroupCreate { key, group, start, make_stream: true, entries_read: None };
        self.call_unless(Refusal::GroupExists, verb, |created| created.is_some())
    }

    fn join_group<'a>(&'a self, stream: &'a str, group: &'a str, start: Start) -> BackendFuture<'a, bool> {
        let (key, group, start) = (stream.to_owned(), group.to_owned(), group_start(start));
        let call = self.db.call(GroupCreate { key, group, start, make_stream: false, entries_read: None });
        Box::pin(async move {
            match call.await {
                Ok(()) => Ok(true),
                Err(refused) => match refused.refusal() {
                    Some(Refusal::GroupExists) => Ok(true),
                    Some(Refusal::GroupNeedsKey) => Ok(false),
                    _ => Err(error(refused)),
                },
            }
        })
    }

    fn stream<'a>(&'a self, stream: &'a str) -> BackendFuture<'a, Option<StreamInfo>> {
        let verb = DescribeStream { key: stream.to_owned() };
        self.call_unless(Refusal::NoSuchKey, verb, |found| found.map(|found| stream_info(&found)))
    }

    fn read<'a>(&'a self, read: &'a Read<'a>) -> BackendFuture<'a, Vec<Delivery>> {
        if read.count == 0 {
            return Box::pin(async { Ok(Vec::new()) });
        }
        self.call(Collect::new(ReadGroup {
            count: Some(read.count as u64),
            block: read.block,
            claim_idle_ms_min: read.claim_idle.map(millis),
            ..ReadGroup::new(consumer_path::<String>(Consumer::new(read.stream, read.group, read.consumer)))
        }))
    }

    fn read_many<'a>(&'a self, read: &'a ReadMany<'a>) -> BackendFuture<'a, Vec<StreamRead>> {
        let ReadMany { streams, group, consumer, count, claim_idle, .. } = *read;
        if streams.is_empty() || count == 0 {
            return Box::pin(async { Ok(Vec::new()) });
        }
        let verb = ReadGroup {
            keys: streams.iter().map(|stream| stream.to_string()).collect(),
            count: Some(count as u64),
            block: read.block,
            claim_idle_ms_min: claim_idle.map(millis),
            ..ReadGroup::new(consumer_path::<String>(Consumer::new(&streams[0], group, consumer)))
        };
        let call = self.call::<Collect<_, ReadBatch<Delivery>>>(Collect::new(verb));
        Box::pin(async move {
            let found = match call.await {
                Ok(batch) => batch.streams,
                // The store refuses the read because of one stream: read each on its own.
                Err(error) if matches!(error.kind(), ErrorKind::NoGroup | ErrorKind::WrongType) => {
                    let mut found = Vec::new();
                    for (at, stream) in streams.iter().enumerate() {
                        let read = Read { stream, group, consumer, count, block: None, claim_idle };
                        let result = self.read(&read).await;
                        if !result.as_ref().is_ok_and(Vec::is_empty) {
                            found.push(StreamRead { stream: at, result });
                        }
                    }
                    return Ok(found);
                }
                Err(error) => return Err(error),
            };
            // The result has the order of the request.
            let mut names = streams.iter().enumerate();
            let mut index_of = |key: &[u8]| names.find(|(_, name)| name.as_bytes() == key).map(|(at, _)| at);
            let read = |batch: StreamBatch<Delivery>| {
                Some(StreamRead { stream: index_of(&batch.key)?, result: Ok(batch.entries) })
            };
            Ok(found.into_iter().filter_map(read).collect())
        })
    }

    fn own_pending<'a>(
        &'a self,
        consumer: Consumer<'a>,
        after: StreamId,
        count: usize,
    ) -> BackendFuture<'a, Vec<Delivery>> {
        let consumer = consumer_path::<String>(consumer);
        self.call_then(Collect::new(OwnPending { consumer, after, count: count as u64 }), all_claimed)
    }

    fn autoclaim<'a>(
        &'a self,
        consumer: Consumer<'a>,
        min_idle: Duration,
        from: StreamId,
        count: usize,
    ) -> BackendFuture<'a, Claimed> {
        if count == 0 {
            return Box::pin(async move { Ok(Claimed { next: from, ..Claimed::default() }) });
        }
        let verb = WalkIdle {
            consumer: consumer_path::<String>(consumer),
            start: from,
            count: count as u64,
            min_idle_ms: millis(min_idle),
        };
        self.call_then(Collect::new(verb), |walked: verbs::Claimed<Delivery>| Claimed {
            deliveries: all_claimed(walked.claimed),
            next: walked.next.unwrap_or(StreamId::MIN),
            due_in: None,
        })
    }
}

impl SettleMessages for Embedded {
    fn add<'a>(
        &'a self,
        stream: &'a str,
        entries: &'a [NewEntry],
        trim: Option<Trim>,
    ) -> BackendFuture<'a, Vec<StreamId>> {
        self.add_with(stream, entries, AddOptions { trim, ..AddOptions::default() })
    }

    fn add_with<'a>(
        &'a self,
        stream: &'a str,
        entries: &'a [NewEntry],
        AddOptions { due, trim, only_existing }: AddOptions,
    ) -> BackendFuture<'a, Vec<StreamId>> {
        if let Err(refused) = super::check_fields(entries.iter().map(|entry| &entry.fields)) {
            return Box::pin(async { Err(refused) });
        }
        let key = Bytes::copy_from_slice(stream.as_bytes());
        let id = due.map_or(IdSpec::Auto, IdSpec::Delayed);
        let add = |entry: &NewEntry| Add { id, make_stream: !only_existing, ..new_entry(key.clone(), entry) };
        let mut adds: Vec<Add<_>> = entries.iter().map(add).collect();
        if let Some(last) = adds.last_mut() {
            last.trim = trim.map(values::store_trim);
            if trim.is_some_and(|trim| trim.keep_unread) {
                last.references = References::Acked;
            }
        }
        let added = self.call_unless(Refusal::NoSuchKey, adds, |ids| ids);
        Box::pin(async move { added.await?.ok_or_else(|| super::no_stream(stream)) })
    }

    fn acknowledge<'a>(
        &'a self,
        stream: &'a str,
        group: &'a str,
        done: &'a Acknowledgement,
    ) -> BackendFuture<'a, u64> {
        let remember = done.remember.iter();
        let remember: Vec<_> = remember
            .map(|(key, lifetime)| {
                let lifetime_ms = millis(*lifetime);
                OnKey::change(key.clone(), 0, move |txn, key| {
                    let until = SetExpiry::At(txn.now_ms().saturating_add(lifetime_ms));
                    Ok(txn.set(key, b"1", SetIf::Always, until))
                })
            })
            .collect();
        let acknowledge =
            Acknowledge { key: stream.to_owned(), group: group.to_owned(), ids: done.ids.clone() };
        // Without ids, do not require that the group exists.
        let acknowledge: Vec<_> = (!done.ids.is_empty()).then_some(acknowledge).into_iter().collect();
        let forget: Vec<_> = if done.forget.is_empty() {
            Vec::new()
        } else {
            vec![values::hash_delete(
                retry_key(stream, group),
                done.forget.iter().map(StreamId::to_string).collect(),
            )]
        };
        self.call_then((remember, (forget, acknowledge)), |(_, (_, acknowledged))| {
            acknowledged.into_iter().sum()
        })
    }

    fn delete_done<'a>(&'a self, stream: &'a str, gaps: bool) -> BackendFuture<'a, u64> {
        Box::pin(async move {
            let mut needed = Vec::new();
            for group in self.groups(stream).await? {
                needed.extend(group.last_delivered.next());
                if group.pending > 0 && !gaps {
                    let first = PendingFilter::starting_at(StreamId::MIN, 1);
                    needed.extend(self.pending(stream, &group.name, &first).await?.iter().map(|row| row.id));
                }
            }
            let Some(end) = needed.into_iter().min() else { return Ok(0) };
            let mut deleted = 0;
            loop {
                let trimmed = self.call(values::trim_acknowledged(stream, end, false)).await?;
                deleted += trimmed;
                if trimmed == 0 {
                    // Few entries are left, between entries that groups still need.
                    return Ok(deleted + self.call(values::trim_acknowledged(stream, end, true)).await?);
                }
            }
        })
    }

    fn seen<'a>(&'a self, keys: &'a [String]) -> BackendFuture<'a, Vec<bool>> {
        let exists = |key: &String| OnKey::read(key.clone(), |txn, key| Ok(txn.exists(key)));
        self.call(keys.iter().map(exists).collect::<Vec<_>>())
    }

    fn extend<'a>(&'a self, consumer: Consumer<'a>, ids: &'a [StreamId]) -> BackendFuture<'a, Vec<StreamId>> {
        if ids.is_empty() {
            return Box::pin(async { Ok(Vec::new()) });
        }
        let verb = Extend { consumer: consumer_path::<String>(consumer), ids: ids.to_vec() };
        let ids = ids.to_vec();
        self.call_then(verb, move |ours| {
            ids.into_iter().zip(ours).filter(|(_, is_ours)| *is_ours).map(|(id, _)| id).collect()
        })
    }

    fn release<'a>(&'a self, consumer: Consumer<'a>, rows: &'a [Release]) -> BackendFuture<'a, u64> {
        if rows.is_empty() {
            return Box::pin(async { Ok(0) });
        }
        if rows.iter().all(|row| row.retry.is_none()) {
            let rows = rows.iter().map(own_release).collect();
            return self.call(verbs::Release { consumer: consumer_path::<String>(consumer), rows });
        }
        let now_ms = self.db.store().now_ms();
        let record = |row: &Release| row.retry.as_ref().map(|retry| retry.record_at(now_ms).into_bytes());
        self.call(ReleaseRecorded {
            hash: retry_key(consumer.stream, consumer.group),
            consumer: consumer_path::<String>(consumer),
            rows: rows.iter().map(|row| (own_release(row), record(row))).collect(),
        })
    }

    fn dead_letter<'a>(
        &'a self,
        consumer: Consumer<'a>,
        dead_letters: &'a [NewDeadLetter],
    ) -> BackendFuture<'a, Vec<StreamId>> {
        let fields = dead_letters.iter().map(|dead_letter| &dead_letter.fields);
        if let Err(refused) = super::check_fields(fields) {
            return Box::pin(async { Err(refused) });
        }
        let dead_letters = dead_letters.iter().map(new_dead_letter).collect();
        let hash = Bytes::from(retry_key(consumer.stream, consumer.group));
        let dead_letters = verbs::DeadLetters { consumer: consumer_path(consumer), dead_letters };
        self.call(DeadLettersRecorded { dead_letters, hash })
    }

    fn hash_get<'a>(&'a self, key: &'a str, fields: &'a [String]) -> BackendFuture<'a, Vec<Option<Bytes>>> {
        let fields = fields.to_vec();
        self.call(OnKey::read(key.to_owned(), move |txn, key| {
            let hash = txn.hash(key)?;
            let value = |field: &String| hash?.get(field.as_bytes()).map(Bytes::copy_from_slice);
            Ok(fields.iter().map(value).collect())
        }))
    }

    fn hash_len<'a>(&'a self, key: &'a str) -> BackendFuture<'a, u64> {
        self.call(OnKey::read(key.to_owned(), |txn, key| txn.hash_len(key)))
    }

    fn hash_get_all<'a>(&'a self, key: &'a str) -> BackendFuture<'a, Vec<(String, Bytes)>> {
        self.call(OnKey::read(key.to_owned(), |txn, key| {
            let mut all = Vec::new();
            if let Some(hash) = txn.hash(key)? {
                hash.visit(|field, value| all.push((text(field), Bytes::copy_from_slice(value))));
            }
            Ok(all)
        }))
    }

    fn hash_fields<'a>(&'a self, key: &'a str) -> BackendFuture<'a, Vec<String>> {
        self.call(OnKey::read(key.to_owned(), |txn, key| {
            let mut fields = Vec::new();
            if let Some(hash) = txn.hash(key)? {
                hash.visit(|field, _| fields.push(text(field)));
            }
            Ok(fields)
        }))
    }

    fn hash_set<'a>(&'a self, key: &'a str, pairs: &'a [(String, Bytes)]) -> BackendFuture<'a, ()> {
        let pairs = pairs.to_vec();
        let bytes = pairs.iter().map(|(field, value)| (field.len() + value.len()) as u64).sum();
        self.call(OnKey::change(key.to_owned(), bytes, move |txn, key| {
            let flat: Vec<&[u8]> =
                pairs.iter().flat_map(|(field, value)| [field.as_bytes(), value]).collect();
            if !flat.is_empty() {
                txn.hash_set(key, &flat)?;
            }
            Ok(())
        }))
    }

    fn hash_delete<'a>(&'a self, key: &'a str, fields: &'a [String]) -> BackendFuture<'a, u64> {
        self.call(values::hash_delete(key.to_owned(), fields.to_vec()))
    }
}

impl OwnStreams for Embedded {
    fn follow<'a>(
        &'a self,
        stream: &'a str,
        after: StreamId,
        count: usize,
        block: Duration,
    ) -> BackendFuture<'a, Vec<Entry>> {
        let streams = vec![(stream.to_owned(), verbs::ReadFrom::After(after))];
        let read = verbs::Read { streams, count: Some(count as u64), block: Some(block) };
        self.call(Collect::new(read))
    }

    fn take_over<'a>(
        &'a self,
        consumer: Consumer<'a>,
        from: StreamId,
        count: usize,
    ) -> BackendFuture<'a, Claimed> {
        Box::pin(async move {
            if count == 0 {
                return Ok(Claimed { next: from, ..Claimed::default() });
            }
            let Consumer { stream, group, .. } = consumer;
            let rows = self.pending(stream, group, &PendingFilter::starting_at(from, count)).await?;
            let last = rows.last().filter(|_| rows.len() == count).map(|row| row.id);
            // A claim by id removes entries that were deleted from the stream: claim only the others.
            let (mut existing, mut deliveries) = (Vec::with_capacity(rows.len()), Vec::new());
            for PendingRow { id, deliveries: count, .. } in rows {
                match self.range(stream, Range::single(id)).await?.is_empty() {
                    true => deliveries.push(Delivery { id, fields: None, deliveries: count, claimed: true }),
                    false => existing.push(id),
                }
            }
            let path = consumer_path::<String>(consumer);
            let options = ClaimOptions::default();
            let claim = Claim { consumer: path, ids: existing, options, idle_ms: None, last_id: None };
            deliveries.extend(self.call_then(Collect::new(claim), all_claimed).await?);
            deliveries.sort_unstable_by_key(|delivery| delivery.id);
            let next = last.and_then(StreamId::next).unwrap_or(StreamId::MIN);
            Ok(Claimed { deliveries, next, due_in: None })
        })
    }

    fn acquire<'a>(&'a self, claimant: Claimant<'a>, lease: Duration) -> BackendFuture<'a, StreamOwner> {
        let Claimant { stream, group, instance } = claimant;
        let (lease_ms, owner) = (millis(lease), instance.to_owned());
        let verb =
            Acquire { lease: lease_key(stream, group), fence: fence_key(stream, group), owner, lease_ms };
        self.call_then(verb, stream_owner)
    }

    fn renew<'a>(&'a self, claimant: Claimant<'a>, fence: u64, lease: Duration) -> BackendFuture<'a, bool> {
        let Claimant { stream, group, .. } = claimant;
        let lease_ms = millis(lease);
        self.call(Renew { lease: lease_key(stream, group), mark: owner_mark(claimant, fence), lease_ms })
    }

    fn give_up<'a>(&'a self, claimant: Claimant<'a>, fence: u64) -> BackendFuture<'a, bool> {
        let Claimant { stream, group, .. } = claimant;
        self.call(GiveUp { lease: lease_key(stream, group), mark: owner_mark(claimant, fence) })
    }

    fn owner<'a>(&'a self, stream: &'a str, group: &'a str) -> BackendFuture<'a, Option<StreamOwner>> {
        let verb = FindOwner { lease: lease_key(stream, group), fence: fence_key(stream, group) };
        self.call_then(verb, |found| found.map(stream_owner))
    }

    fn read_owned<'a>(
        &'a self,
        read: &'a Read<'a>,
        claimant: Claimant<'a>,
        fence: u64,
    ) -> BackendFuture<'a, Option<Vec<Delivery>>> {
        let consumer = consumer_path::<String>(Consumer::new(read.stream, read.group, read.consumer));
        let verb = ReadGroup { count: Some(read.count.max(1) as u64), ..ReadGroup::new(consumer) };
        self.call(Fenced {
            fence: fence_key(read.stream, read.group),
            mark: owner_mark(claimant, fence),
            verb: Collect::<_, Vec<Delivery>>::new(verb),
        })
    }
}

impl Backend for Embedded {
    fn admin(self: Arc<Self>) -> Option<Arc<dyn Admin>> {
        Some(self)
    }
}
