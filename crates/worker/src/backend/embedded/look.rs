//! Looks at many streams of the embedded store: several short calls for each, so that no lock is held for long.

use std::time::Duration;

use millstream_engine::StreamId;
use millstream_engine::stream::IdRange;
use millstream_store::embedded::Refusal;
use millstream_store::verbs::{self, Collect, LookAtStream};

use super::super::{
    Error, ErrorKind, GroupDetail, GroupInfo, GroupLook, GroupMissed, InspectStore, LookDetail,
    PendingFilter, ReadMessages, SettleMessages, StreamInfo, StreamLook,
};
use super::Embedded;
use super::values::{error, text};
use crate::names::{retry_key, workers_key};
use crate::retry_record::RetryRecord;

/// Maximum number of groups that one call describes.
const GROUPS_PER_CALL: usize = 64;
/// Number of streams after which other tasks of this thread run.
const STREAMS_PER_TURN: usize = 16;

impl Embedded {
    pub(super) async fn look_at(
        &self,
        streams: &[String],
        detail: &LookDetail,
    ) -> Result<Vec<Result<Option<StreamLook>, Error>>, Error> {
        let mut looks = Vec::with_capacity(streams.len());
        for (at, stream) in streams.iter().enumerate() {
            if at % STREAMS_PER_TURN == STREAMS_PER_TURN - 1 {
                tokio::task::yield_now().await;
            }
            let look = match self.look_at_stream(stream, detail).await {
                Err(closed) if closed.kind() == ErrorKind::Closed => return Err(closed),
                look => look,
            };
            looks.push(look);
        }
        Ok(looks)
    }

    async fn look_at_stream(&self, stream: &str, detail: &LookDetail) -> Result<Option<StreamLook>, Error> {
        let Some(first) = self.page_of_groups(stream, None).await? else { return Ok(None) };
        let policy = if detail.wants_stream(stream) { self.policy(stream, None).await? } else { None };
        let info = stream_info(&first);
        let mut groups: Vec<GroupLook> = Vec::with_capacity(first.groups.len());
        let mut page = first.groups;
        while let Some(last) = page.last().map(|group| group.name.clone()) {
            let is_last = page.len() < GROUPS_PER_CALL;
            for group in page {
                groups.push(self.look_at_group(stream, group, &info, detail).await);
            }
            if is_last {
                break;
            }
            page = self.page_of_groups(stream, Some(last)).await?.map_or(Vec::new(), |page| page.groups);
        }
        Ok(Some(StreamLook {
            info_age: Duration::ZERO,
            length: info.length,
            entries_added: info.entries_added,
            info,
            policy,
            groups,
        }))
    }

    async fn page_of_groups(
        &self,
        stream: &str,
        after: Option<Vec<u8>>,
    ) -> Result<Option<verbs::StreamLook>, Error> {
        let key = stream.as_bytes().to_vec();
        match self.db.call(LookAtStream { key, after, groups_max: GROUPS_PER_CALL }).await {
            Ok(page) => Ok(Some(page)),
            Err(refused) if refused.refusal() == Some(Refusal::NoSuchKey) => Ok(None),
            Err(failed) => Err(error(failed)),
        }
    }

    async fn look_at_group(
        &self,
        stream: &str,
        group: verbs::GroupLook,
        info: &StreamInfo,
        detail: &LookDetail,
    ) -> GroupLook {
        let (missed, info_of_group) = (missed(&group), group_info(&group));
        if !detail.wants(stream, &info_of_group.name) {
            return GroupLook { info: info_of_group, detail: None };
        }
        let found = self.detail_of(stream, &info_of_group, info, detail).await;
        let found = found.map(|found| GroupDetail { missed: Some(missed), ..found });
        GroupLook { info: info_of_group, detail: Some(found) }
    }

    async fn detail_of(
        &self,
        stream: &str,
        group: &GroupInfo,
        info: &StreamInfo,
        detail: &LookDetail,
    ) -> Result<GroupDetail, Error> {
        let mut found = GroupDetail { unread: Some(Vec::new()), ..GroupDetail::default() };
        if group.consumers > 0 {
            found.consumers = self.consumers(stream, &group.name).await?;
        }
        if group.pending > 0 && detail.pending_rows > 0 {
            let filter = PendingFilter::starting_at(StreamId::MIN, detail.pending_rows);
            found.pending = self.pending(stream, &group.name, &filter).await?;
        }
        if info.last_entry.is_some_and(|last| last > group.last_delivered) {
            found.unread = Some(self.ids_after(stream, group.last_delivered, detail.unread_entries).await?);
        }
        found.heartbeats = self.hash_get_all(&workers_key(stream, &group.name)).await.or_else(unless_hash)?;
        let released = found.pending.iter().filter(|row| row.consumer.is_none()).map(|row| row.id);
        let released: Vec<StreamId> = released.collect();
        if !released.is_empty() {
            let fields: Vec<String> = released.iter().map(StreamId::to_string).collect();
            let key = retry_key(stream, &group.name);
            let records = self.hash_get(&key, &fields).await.or_else(unless_hash)?;
            let record = |(id, json): (StreamId, Option<_>)| json.map(|json| (id, json));
            let records = released.into_iter().zip(records).filter_map(record);
            found.retries = records.map(|(id, json)| (id, RetryRecord::parse(&json))).collect();
        }
        if !found.heartbeats.is_empty() || !found.retries.is_empty() {
            found.now_ms = self.now_ms(stream).await?;
        }
        Ok(found)
    }

    /// Returns the ids of entries after an id, at least one if there is one.
    async fn ids_after(&self, stream: &str, after: StreamId, count: usize) -> Result<Vec<StreamId>, Error> {
        let Some(first) = after.next() else { return Ok(Vec::new()) };
        self.call(Collect::new(verbs::Range {
            key: stream.to_owned(),
            ids: Some(IdRange { first, last: StreamId::MAX }),
            count: Some(count.max(1) as u64),
            reversed: false,
        }))
        .await
    }
}

/// Returns nothing if the key of a hash holds another type of value.
fn unless_hash<T: Default>(error: Error) -> Result<T, Error> {
    if error.kind() == ErrorKind::WrongType { Ok(T::default()) } else { Err(error) }
}

fn stream_info(look: &verbs::StreamLook) -> StreamInfo {
    StreamInfo {
        length: look.length,
        groups: look.groups_len,
        entries_added: Some(look.entries_added),
        last_id: look.last_id,
        max_deleted_id: Some(look.max_deleted_id),
        first_entry: look.ends.map(|(first, _)| first),
        last_entry: look.ends.map(|(_, last)| last),
    }
}

fn group_info(group: &verbs::GroupLook) -> GroupInfo {
    GroupInfo {
        name: text(&group.name),
        consumers: group.consumers,
        pending: group.pending,
        last_delivered: group.last_id,
        entries_read: group.entries_read,
        lag: group.lag,
    }
}

fn missed(group: &verbs::GroupLook) -> GroupMissed {
    GroupMissed { group: text(&group.name), count: group.missed.count, through: group.missed.through }
}
