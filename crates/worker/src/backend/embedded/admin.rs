//! Implements [`Admin`]: inspecting and administering the streams, groups and consumers of the embedded store.

use bytes::Bytes;
use millstream_engine::StreamId;
use millstream_engine::stream::{ClaimOptions, IdRange};
use millstream_protocol::glob;
use millstream_store::embedded::{References, Refusal};
use millstream_store::verbs::{
    self, Adopt, CancelDelayed, Claim, Collect, DelayedRange, Delete, DescribeGroup, DescribeStream,
    GroupDestroy, GroupSetId, Length, ListStreams, MoveGroup, Pending, PendingRows, Ping, PromoteDelayed,
    RemoveEmptyConsumer, RemoveStream, ResetPolicy, Restore, SetPolicy, TrimStream,
};

use super::super::policy::{Backoff, Policy, PolicyField, PolicyValue};
use super::super::{
    BackendFuture, ChangeStore, Consumer, ConsumerInfo, Delivery, Entry, Error, ErrorKind, GroupInfo,
    GroupMissed, IdOrder, InspectStore, LookDetail, PendingFilter, PendingRow, PendingSummary, Range,
    SnapshotRequest, Start, StreamCursor, StreamLook, StreamNames, Trim,
};
use super::values::{
    self, consumer_info, error, group_info, group_missed, group_start, millis, pending_row, text,
};
use super::{Embedded, consumer_path};

impl InspectStore for Embedded {
    fn ping(&self) -> BackendFuture<'_, ()> {
        self.call(Ping)
    }

    fn streams<'a>(&'a self, pattern: &'a str) -> BackendFuture<'a, Vec<String>> {
        let pattern = pattern.to_owned();
        self.call_then(ListStreams, move |names| {
            let matching = names.iter().filter(|name| glob::matches(pattern.as_bytes(), name));
            matching.map(|name| text(name)).collect()
        })
    }

    fn walk_streams<'a>(
        &'a self,
        pattern: &'a str,
        _from: &'a StreamCursor,
        _steps: usize,
    ) -> BackendFuture<'a, StreamNames> {
        let pattern = pattern.to_owned();
        self.call_then(ListStreams, move |mut names| {
            names.retain(|name| glob::matches(pattern.as_bytes(), name));
            StreamNames { names: names.into_iter().map(Bytes::from).collect(), next: None }
        })
    }

    fn look<'a>(
        &'a self,
        streams: &'a [String],
        detail: &'a LookDetail,
    ) -> BackendFuture<'a, Vec<Result<Option<StreamLook>, Error>>> {
        Box::pin(self.look_at(streams, detail))
    }

    fn lengths<'a>(&'a self, streams: &'a [String]) -> BackendFuture<'a, Vec<Result<u64, Error>>> {
        Box::pin(async move {
            let mut lengths = Vec::with_capacity(streams.len());
            for stream in streams {
                lengths.push(self.call(Length { key: stream.clone() }).await);
            }
            Ok(lengths)
        })
    }

    fn range<'a>(&'a self, stream: &'a str, range: Range) -> BackendFuture<'a, Vec<Entry>> {
        self.call(Collect::new(verbs::Range {
            key: stream.to_owned(),
            ids: Some(IdRange { first: range.first, last: range.last }),
            count: Some(range.count as u64),
            reversed: range.order == IdOrder::Descending,
        }))
    }

    fn delayed<'a>(
        &'a self,
        stream: &'a str,
        first: StreamId,
        count: usize,
    ) -> BackendFuture<'a, Vec<Entry>> {
        let tickets = Some(IdRange { first, last: StreamId::MAX });
        self.call(Collect::new(DelayedRange { key: stream.to_owned(), tickets, count: Some(count as u64) }))
    }

    fn memory_usage<'a>(&'a self, stream: &'a str) -> BackendFuture<'a, Option<u64>> {
        let verb = DescribeStream { key: stream.to_owned() };
        self.call_unless(Refusal::NoSuchKey, verb, |found| found.map(|found| found.memory_bytes as u64))
    }

    fn groups<'a>(&'a self, stream: &'a str) -> BackendFuture<'a, Vec<GroupInfo>> {
        let verb = DescribeStream { key: stream.to_owned() };
        self.call_unless(Refusal::NoSuchKey, verb, |found| {
            found.map_or_else(Vec::new, |found| found.groups.iter().map(group_info).collect())
        })
    }

    fn missed<'a>(&'a self, stream: &'a str) -> BackendFuture<'a, Vec<GroupMissed>> {
        let verb = DescribeStream { key: stream.to_owned() };
        self.call_unless(Refusal::NoSuchKey, verb, |found| {
            found.map_or_else(Vec::new, |found| found.groups.iter().map(group_missed).collect())
        })
    }

    fn pending_summary<'a>(&'a self, stream: &'a str, group: &'a str) -> BackendFuture<'a, PendingSummary> {
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
    ) -> BackendFuture<'a, Vec<PendingRow>> {
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

    fn consumers<'a>(&'a self, stream: &'a str, group: &'a str) -> BackendFuture<'a, Vec<ConsumerInfo>> {
        let verb = DescribeGroup { key: stream.to_owned(), group: group.to_owned() };
        self.call_then(verb, |group| group.consumers.iter().map(consumer_info).collect())
    }
}

impl ChangeStore for Embedded {
    fn delete_entries<'a>(&'a self, stream: &'a str, ids: &'a [StreamId]) -> BackendFuture<'a, u64> {
        self.call(Delete { key: stream.to_owned(), ids: ids.to_vec() })
    }

    fn cancel_delayed<'a>(&'a self, stream: &'a str, tickets: &'a [StreamId]) -> BackendFuture<'a, u64> {
        self.call(CancelDelayed { key: stream.to_owned(), tickets: tickets.to_vec() })
    }

    fn promote_delayed<'a>(&'a self, stream: &'a str, tickets: &'a [StreamId]) -> BackendFuture<'a, u64> {
        self.call(PromoteDelayed { key: stream.to_owned(), tickets: tickets.to_vec() })
    }

    fn trim<'a>(&'a self, stream: &'a str, trim: Trim) -> BackendFuture<'a, u64> {
        let references = if trim.keep_unread { References::Acked } else { References::Keep };
        self.call(TrimStream { key: stream.to_owned(), trim: values::store_trim(trim), references })
    }

    fn save_snapshot(&self) -> BackendFuture<'_, SnapshotRequest> {
        let db = self.db.clone();
        Box::pin(async move {
            let taking = tokio::task::spawn_blocking(move || db.snapshot());
            let stopped = |_| Error::new(ErrorKind::Closed, "the program ends: no snapshot was taken");
            let taken = taking.await.map_err(stopped)?.map_err(error)?;
            let taken = taken.map(|taken| SnapshotRequest::Taken { keys: taken.keys, bytes: taken.bytes });
            Ok(taken.unwrap_or(SnapshotRequest::NotNeeded))
        })
    }

    fn delete_stream<'a>(&'a self, stream: &'a str) -> BackendFuture<'a, bool> {
        self.call(RemoveStream { key: stream.to_owned() })
    }

    fn set_policy<'a>(
        &'a self,
        stream: &'a str,
        group: Option<&'a str>,
        change: &'a Policy,
        off: &'a [PolicyField],
    ) -> BackendFuture<'a, ()> {
        let mut set = SetPolicy::new(stream.to_owned(), group.map(str::to_owned), change.clone());
        for field in off {
            match field {
                PolicyField::AckedAge => set.unset.push(*field),
                PolicyField::Backoff => set.change.set(*field, PolicyValue::Backoff(Backoff::default())),
                PolicyField::DeadLetters => set.change.set(*field, PolicyValue::Key(b"")),
                _ => set.change.set(*field, PolicyValue::Number(0)),
            }
        }
        self.call(set)
    }

    fn reset_policy<'a>(&'a self, stream: &'a str, group: Option<&'a str>) -> BackendFuture<'a, ()> {
        self.call(ResetPolicy { key: stream.to_owned(), group: group.map(str::to_owned) })
    }

    fn move_group<'a>(&'a self, stream: &'a str, group: &'a str, start: Start) -> BackendFuture<'a, ()> {
        let (key, group, start) = (stream.to_owned(), group.to_owned(), group_start(start));
        self.call(GroupSetId { key, group, start, entries_read: None })
    }

    fn move_group_from<'a>(
        &'a self,
        stream: &'a str,
        group: &'a str,
        from: StreamId,
        start: Start,
    ) -> BackendFuture<'a, bool> {
        let (key, group, start) = (stream.to_owned(), group.to_owned(), group_start(start));
        self.call(MoveGroup { from, to: GroupSetId { key, group, start, entries_read: None } })
    }

    fn delete_group<'a>(&'a self, stream: &'a str, group: &'a str) -> BackendFuture<'a, bool> {
        let verb = GroupDestroy { key: stream.to_owned(), group: group.to_owned() };
        self.call_unless(Refusal::GroupNeedsKey, verb, |destroyed| destroyed == Some(true))
    }

    fn claim<'a>(
        &'a self,
        consumer: Consumer<'a>,
        rows: &'a [PendingRow],
    ) -> BackendFuture<'a, Vec<StreamId>> {
        let claim = |row: &PendingRow| {
            let min_idle_ms = row.idle.map_or(0, millis);
            let options = ClaimOptions { min_idle_ms, ..ClaimOptions::default() };
            let (consumer, ids) = (consumer_path::<String>(consumer), vec![row.id]);
            Collect::new(Claim { consumer, ids, options, idle_ms: None, last_id: None })
        };
        self.call_then(rows.iter().map(claim).collect::<Vec<_>>(), |claimed: Vec<Vec<Delivery>>| {
            claimed.into_iter().flatten().map(|delivery| delivery.id).collect()
        })
    }

    fn restore<'a>(&'a self, stream: &'a str, group: &'a str, id: StreamId) -> BackendFuture<'a, bool> {
        self.call(Restore { key: stream.to_owned(), group: group.to_owned(), id })
    }

    fn remove_consumer<'a>(&'a self, consumer: Consumer<'a>, heir: &'a str) -> BackendFuture<'a, u64> {
        self.call(Adopt { from: consumer_path(consumer), to: heir.to_owned() })
    }

    fn remove_empty_consumer<'a>(&'a self, consumer: Consumer<'a>) -> BackendFuture<'a, bool> {
        self.call(RemoveEmptyConsumer(consumer_path::<String>(consumer)))
    }
}
