//! The store in this process as a backend: nothing in between, every verb one step under the lock of its keys.

mod folder;
mod values;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use millstream_engine::StreamId;
use millstream_engine::stream::IdRange;
use millstream_protocol::glob;
use millstream_store::FolderContents;
use millstream_store::embedded::{Callable, Millstream, Refusal};
use millstream_store::verbs::{
    self, Acknowledge, Add, Adopt, Collect, Delete, DescribeGroup, DescribeStream, Exists, Extend,
    GroupCreate, GroupDestroy, GroupSetId, ListStreams, OwnPending, Pending, PendingRows, Ping, ReadFrom,
    ReadGroup, Reader, Remember, RemoveEmptyConsumer, RemoveStream, Restore, WalkIdle,
};

use super::{
    Acknowledgement, Admin, Answer, Backend, Capabilities, Claimed, Consumer, ConsumerInfo, DeadLetter,
    Delivery, Entry, Error, GroupInfo, NewEntry, Order, PendingFilter, PendingRow, PendingSummary, Range,
    Read, Release, Start, StreamInfo, Trim,
};
use values::{
    consumer_info, error, group_info, group_start, letter, millis, new_entry, own_release, pending_row,
    stream_info, text,
};

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
        match folder::contents(folder)? {
            FolderContents::Store | FolderContents::Nothing => Embedded::open_any(folder),
            FolderContents::Foreign => Err(folder::foreign(folder)),
        }
    }

    /// The store in a folder, which must be there: nothing is made.
    pub fn open_existing(folder: impl AsRef<Path>) -> Result<Embedded, Error> {
        let folder = folder.as_ref();
        match folder::contents(folder)? {
            FolderContents::Store => Embedded::open_any(folder),
            FolderContents::Nothing | FolderContents::Foreign => Err(folder::no_store(folder)),
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

    /// The answer of a verb, as this backend gives it.
    fn call_then<V: Callable, T: Send + 'static>(
        &self,
        verb: V,
        then: impl FnOnce(V::Output) -> T + Send + 'static,
    ) -> Answer<'_, T> {
        let call = self.db.call(verb);
        Box::pin(async move { call.await.map(then).map_err(error) })
    }

    fn call<V: Callable>(&self, verb: V) -> Answer<'_, V::Output> {
        self.call_then(verb, |answer| answer)
    }

    /// The same where one refusal is an answer too: `None`.
    fn call_unless<V: Callable, T: Send + 'static>(
        &self,
        refusal: Refusal,
        verb: V,
        then: impl FnOnce(Option<V::Output>) -> T + Send + 'static,
    ) -> Answer<'_, T> {
        let call = self.db.call(verb);
        Box::pin(async move {
            match call.await {
                Ok(answer) => Ok(then(Some(answer))),
                Err(refused) if refused.refusal() == Some(refusal) => Ok(then(None)),
                Err(failed) => Err(error(failed)),
            }
        })
    }
}

fn reader<B: From<String>>(consumer: Consumer<'_>) -> Reader<B> {
    let Consumer { stream, group, name } = consumer;
    Reader { key: stream.to_owned().into(), group: group.to_owned().into(), consumer: name.to_owned().into() }
}

impl Backend for Embedded {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            read_claims: true,
            releases: true,
            extends: true,
            idempotent_adds: true,
            exact_lag: self.db.store().settings().exact_lag.load(Ordering::Relaxed),
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
        let mut adds: Vec<Add<_>> = entries.iter().map(|entry| new_entry(stream, entry)).collect();
        if let Some(last) = adds.last_mut() {
            last.trim = trim.map(values::store_trim);
        }
        self.call(adds)
    }

    fn create_group<'a>(&'a self, stream: &'a str, group: &'a str, start: Start) -> Answer<'a, bool> {
        let (key, group, start) = (stream.to_owned(), group.to_owned(), group_start(start));
        let verb = GroupCreate { key, group, start, make_stream: true, entries_read: None };
        self.call_unless(Refusal::GroupExists, verb, |created| created.is_some())
    }

    fn stream<'a>(&'a self, stream: &'a str) -> Answer<'a, Option<StreamInfo>> {
        let verb = DescribeStream { key: stream.to_owned() };
        self.call_unless(Refusal::NoSuchKey, verb, |found| found.map(|found| stream_info(&found)))
    }

    fn read<'a>(&'a self, read: &'a Read<'a>) -> Answer<'a, Vec<Delivery>> {
        if read.count == 0 {
            return Box::pin(async { Ok(Vec::new()) });
        }
        self.call(Collect::new(ReadGroup {
            count: Some(read.count as u64),
            block: read.block,
            claim_idle_ms_min: read.claim_idle.map(millis),
            ..ReadGroup::new(reader::<String>(Consumer::new(read.stream, read.group, read.consumer)))
        }))
    }

    fn own_pending<'a>(
        &'a self,
        consumer: Consumer<'a>,
        after: StreamId,
        count: usize,
    ) -> Answer<'a, Vec<Delivery>> {
        let reader = reader::<String>(consumer);
        self.call(Collect::new(OwnPending { reader, after, count: count as u64 }))
    }

    fn autoclaim<'a>(
        &'a self,
        consumer: Consumer<'a>,
        min_idle: Duration,
        from: StreamId,
        count: usize,
    ) -> Answer<'a, Claimed> {
        if count == 0 {
            return Box::pin(async move { Ok(Claimed { deliveries: Vec::new(), next: from }) });
        }
        let verb = WalkIdle {
            reader: reader::<String>(consumer),
            start: from,
            count: count as u64,
            min_idle_ms: millis(min_idle),
        };
        self.call_then(Collect::new(verb), |walked: verbs::Claimed<Delivery>| Claimed {
            deliveries: walked.claimed,
            next: walked.next.unwrap_or(StreamId::MIN),
        })
    }

    fn acknowledge<'a>(
        &'a self,
        stream: &'a str,
        group: &'a str,
        done: &'a Acknowledgement,
    ) -> Answer<'a, u64> {
        let remember = done.remember.iter();
        let remember: Vec<_> = remember
            .map(|(key, lifetime)| Remember { key: key.clone(), lifetime_ms: millis(*lifetime) })
            .collect();
        let acknowledge =
            Acknowledge { key: stream.to_owned(), group: group.to_owned(), ids: done.ids.clone() };
        // Without ids, nothing is asked of the stream.
        let acknowledge: Vec<_> = (!done.ids.is_empty()).then_some(acknowledge).into_iter().collect();
        self.call_then((remember, acknowledge), |(_, acknowledged)| acknowledged.into_iter().sum())
    }

    fn seen<'a>(&'a self, keys: &'a [String]) -> Answer<'a, Vec<bool>> {
        self.call(keys.iter().map(|key| Exists { key: key.clone() }).collect::<Vec<_>>())
    }

    fn extend<'a>(&'a self, consumer: Consumer<'a>, ids: &'a [StreamId]) -> Answer<'a, Vec<StreamId>> {
        if ids.is_empty() {
            return Box::pin(async { Ok(Vec::new()) });
        }
        let verb = Extend { reader: reader::<String>(consumer), ids: ids.to_vec() };
        let ids = ids.to_vec();
        self.call_then(verb, move |ours| {
            ids.into_iter().zip(ours).filter(|(_, is_ours)| *is_ours).map(|(id, _)| id).collect()
        })
    }

    fn release<'a>(&'a self, consumer: Consumer<'a>, rows: &'a [Release]) -> Answer<'a, u64> {
        if rows.is_empty() {
            return Box::pin(async { Ok(0) });
        }
        let rows = rows.iter().map(own_release).collect();
        self.call(verbs::Release { reader: reader::<String>(consumer), rows })
    }

    fn dead_letter<'a>(
        &'a self,
        consumer: Consumer<'a>,
        letters: &'a [DeadLetter],
    ) -> Answer<'a, Vec<StreamId>> {
        if let Err(refused) = super::check_letters(letters) {
            return Box::pin(async { Err(refused) });
        }
        let letters = letters.iter().map(letter).collect();
        self.call(verbs::DeadLetters { reader: reader(consumer), letters })
    }
}

impl Admin for Embedded {
    fn ping(&self) -> Answer<'_, ()> {
        self.call(Ping)
    }

    fn streams<'a>(&'a self, pattern: &'a str) -> Answer<'a, Vec<String>> {
        let pattern = pattern.to_owned();
        self.call_then(ListStreams, move |names| {
            let matching = names.iter().filter(|name| glob::matches(pattern.as_bytes(), name));
            matching.map(|name| text(name)).collect()
        })
    }

    fn range<'a>(&'a self, stream: &'a str, range: Range) -> Answer<'a, Vec<Entry>> {
        self.call(Collect::new(verbs::Range {
            key: stream.to_owned(),
            ids: Some(IdRange { first: range.first, last: range.last }),
            count: Some(range.count as u64),
            reversed: range.order == Order::Falling,
        }))
    }

    fn follow<'a>(
        &'a self,
        stream: &'a str,
        after: StreamId,
        count: usize,
        block: Duration,
    ) -> Answer<'a, Vec<Entry>> {
        let streams = vec![(stream.to_owned(), ReadFrom::After(after))];
        let read = verbs::Read { streams, count: Some(count as u64), block: Some(block) };
        self.call(Collect::new(read))
    }

    fn delete_entries<'a>(&'a self, stream: &'a str, ids: &'a [StreamId]) -> Answer<'a, u64> {
        self.call(Delete { key: stream.to_owned(), ids: ids.to_vec() })
    }

    fn delete_stream<'a>(&'a self, stream: &'a str) -> Answer<'a, bool> {
        self.call(RemoveStream { key: stream.to_owned() })
    }

    fn groups<'a>(&'a self, stream: &'a str) -> Answer<'a, Vec<GroupInfo>> {
        let verb = DescribeStream { key: stream.to_owned() };
        self.call_unless(Refusal::NoSuchKey, verb, |found| {
            found.map_or_else(Vec::new, |found| found.groups.iter().map(group_info).collect())
        })
    }

    fn move_group<'a>(&'a self, stream: &'a str, group: &'a str, start: Start) -> Answer<'a, ()> {
        let (key, group, start) = (stream.to_owned(), group.to_owned(), group_start(start));
        self.call(GroupSetId { key, group, start, entries_read: None })
    }

    fn delete_group<'a>(&'a self, stream: &'a str, group: &'a str) -> Answer<'a, bool> {
        let verb = GroupDestroy { key: stream.to_owned(), group: group.to_owned() };
        self.call_unless(Refusal::GroupNeedsKey, verb, |destroyed| destroyed == Some(true))
    }

    fn pending_summary<'a>(&'a self, stream: &'a str, group: &'a str) -> Answer<'a, PendingSummary> {
        let verb = Pending { key: stream.to_owned(), group: group.to_owned() };
        self.call_then(verb, |summary| {
            let consumers = summary.consumers.iter().map(|(name, pending)| (text(name), *pending));
            PendingSummary { total: summary.count, ids: summary.ids, consumers: consumers.collect() }
        })
    }

    fn pending<'a>(
        &'a self,
        stream: &'a str,
        group: &'a str,
        filter: &'a PendingFilter,
    ) -> Answer<'a, Vec<PendingRow>> {
        let verb = PendingRows {
            key: stream.to_owned(),
            group: group.to_owned(),
            ids: Some(IdRange { first: filter.first, last: filter.last }),
            consumer: filter.consumer.clone(),
            min_idle_ms: filter.min_idle.map_or(0, millis),
            count: filter.count as u64,
        };
        self.call_then(verb, |rows| rows.into_iter().map(pending_row).collect())
    }

    fn restore<'a>(&'a self, stream: &'a str, group: &'a str, id: StreamId) -> Answer<'a, bool> {
        self.call(Restore { key: stream.to_owned(), group: group.to_owned(), id })
    }

    fn consumers<'a>(&'a self, stream: &'a str, group: &'a str) -> Answer<'a, Vec<ConsumerInfo>> {
        let verb = DescribeGroup { key: stream.to_owned(), group: group.to_owned() };
        self.call_then(verb, |group| group.consumers.iter().map(consumer_info).collect())
    }

    fn remove_consumer<'a>(&'a self, consumer: Consumer<'a>, heir: &'a str) -> Answer<'a, u64> {
        self.call(Adopt { from: reader(consumer), to: heir.to_owned() })
    }

    fn remove_empty_consumer<'a>(&'a self, consumer: Consumer<'a>) -> Answer<'a, bool> {
        self.call(RemoveEmptyConsumer(reader::<String>(consumer)))
    }
}
