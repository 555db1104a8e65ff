//! Taking a look: the calls to the store, and how much of it is read.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use super::snapshot::{GroupSnapshot, Lag, LagKnown, PendingScan, StreamSnapshot, Waiting};
use crate::backend::{Admin, Error, GroupInfo, PendingFilter, PendingRow, Range, StreamId, StreamInfo};
use crate::message::age_of;
use crate::names::dead_letters_of;

/// The most entries or rows that one call reads.
const PAGE: usize = 1_000;
/// The most stuck rows that a snapshot lists.
const STUCK_LISTED: usize = 20;

/// Looks at streams and groups. Changes nothing.
#[derive(Clone)]
pub struct Monitor {
    backend: Arc<dyn Admin>,
    scan: usize,
    stuck_deliveries: u64,
    stuck_idle: Duration,
}

impl Monitor {
    /// A monitor of a store. It reads at most 10,000 entries or rows of a group; a message is stuck from the
    /// fifth delivery on, or if nobody has touched it for five minutes.
    pub fn new(backend: Arc<dyn Admin>) -> Monitor {
        Monitor { backend, scan: 10_000, stuck_deliveries: 5, stuck_idle: Duration::from_secs(300) }
    }

    /// Reads at most so many entries to count a lag, and so many pending rows to find the stuck ones.
    #[must_use]
    pub fn scan(mut self, scan: usize) -> Monitor {
        self.scan = scan;
        self
    }

    /// From when on a message is stuck: delivered so often, or not touched for so long.
    #[must_use]
    pub fn stuck(mut self, deliveries: u64, idle: Duration) -> Monitor {
        self.stuck_deliveries = deliveries;
        self.stuck_idle = idle;
        self
    }

    /// The streams whose names match a glob pattern, with their groups.
    pub async fn streams(&self, pattern: &str) -> Result<Vec<StreamSnapshot>, Error> {
        let mut found = Vec::new();
        for name in self.backend.streams(pattern).await? {
            // A stream may have gone since it was listed.
            found.extend(self.stream(&name).await?);
        }
        Ok(found)
    }

    /// A stream with its groups; `None` if there is none.
    pub async fn stream(&self, name: &str) -> Result<Option<StreamSnapshot>, Error> {
        let Some(info) = self.backend.stream(name).await? else { return Ok(None) };
        let (dead_letters, dead_letters_length) = self.dead_letters(name).await?;
        let mut groups = Vec::new();
        for group in self.backend.groups(name).await? {
            groups.push(self.look(name, &info, group, dead_letters_length).await?);
        }
        let at = SystemTime::now();
        Ok(Some(StreamSnapshot {
            name: name.to_owned(),
            at,
            info,
            groups,
            dead_letters,
            dead_letters_length,
        }))
    }

    /// One group; `None` if there is none.
    pub async fn group(&self, stream: &str, group: &str) -> Result<Option<GroupSnapshot>, Error> {
        let Some(info) = self.backend.stream(stream).await? else { return Ok(None) };
        let groups = self.backend.groups(stream).await?;
        let Some(group) = groups.into_iter().find(|found| found.name == group) else { return Ok(None) };
        let (_, dead_letters_length) = self.dead_letters(stream).await?;
        self.look(stream, &info, group, dead_letters_length).await.map(Some)
    }

    /// How many entries a group has yet to read, and the oldest of them. Cheaper than [`Monitor::group`].
    pub async fn backlog(&self, stream: &str, group: &str) -> Result<Option<(Lag, Option<Waiting>)>, Error> {
        let Some(info) = self.backend.stream(stream).await? else { return Ok(None) };
        let groups = self.backend.groups(stream).await?;
        let Some(group) = groups.into_iter().find(|found| found.name == group) else { return Ok(None) };
        let oldest = self.oldest_unread(stream, &info, &group, SystemTime::now()).await?;
        let lag = self.lag(stream, &info, &group).await?;
        Ok(Some((lag, oldest)))
    }

    async fn dead_letters(&self, stream: &str) -> Result<(String, u64), Error> {
        let name = dead_letters_of(stream);
        let length = self.backend.stream(&name).await?.map_or(0, |letters| letters.length);
        Ok((name, length))
    }

    async fn look(
        &self,
        stream: &str,
        info: &StreamInfo,
        group: GroupInfo,
        dead_letters_length: u64,
    ) -> Result<GroupSnapshot, Error> {
        let at = SystemTime::now();
        let oldest_unread = self.oldest_unread(stream, info, &group, at).await?;
        let lag = self.lag(stream, info, &group).await?;
        let (scan, oldest) = self.scan_pending(stream, &group.name).await?;
        let consumers = self.backend.consumers(stream, &group.name).await?;
        Ok(GroupSnapshot {
            stream: stream.to_owned(),
            name: group.name,
            at,
            stream_length: info.length,
            entries_added: info.entries_added,
            lag,
            oldest_unread,
            pending: group.pending,
            oldest_pending: oldest.map(|id| Waiting { id, age: age_of(id, at) }),
            scan,
            consumers,
            last_delivered: group.last_delivered,
            entries_read: group.entries_read,
            dead_letters_length,
        })
    }

    async fn oldest_unread(
        &self,
        stream: &str,
        info: &StreamInfo,
        group: &GroupInfo,
        at: SystemTime,
    ) -> Result<Option<Waiting>, Error> {
        if info.last_entry.is_none_or(|last| last <= group.last_delivered) {
            return Ok(None);
        }
        let Some(first) = group.last_delivered.next() else { return Ok(None) };
        let unread = self.backend.range(stream, Range::rising(first, 1)).await?;
        Ok(unread.first().map(|entry| Waiting { id: entry.id, age: age_of(entry.id, at) }))
    }

    /// The store's own lag, or what counting gives where it has none.
    async fn lag(&self, stream: &str, info: &StreamInfo, group: &GroupInfo) -> Result<Lag, Error> {
        if let Some(count) = group.lag {
            return Ok(Lag::kept(count));
        }
        count_after(&*self.backend, stream, info, group.last_delivered, self.scan).await
    }

    async fn scan_pending(
        &self,
        stream: &str,
        group: &str,
    ) -> Result<(PendingScan, Option<StreamId>), Error> {
        let mut scan = PendingScan::default();
        let mut oldest = None;
        let mut next = Some(StreamId::MIN);
        while let Some(first) = next {
            let left = self.scan - usize::try_from(scan.looked_at).unwrap_or(self.scan).min(self.scan);
            if left == 0 {
                return Ok((scan, oldest));
            }
            let count = PAGE.min(left);
            let filter = PendingFilter::rising(first, count);
            let rows = self.backend.pending(stream, group, &filter).await?;
            oldest = oldest.or_else(|| rows.first().map(|row| row.id));
            next = rows.last().filter(|_| rows.len() == count).and_then(|row| row.id.next());
            rows.into_iter().for_each(|row| self.look_at_row(&mut scan, row));
        }
        scan.complete = true;
        Ok((scan, oldest))
    }

    fn look_at_row(&self, scan: &mut PendingScan, row: PendingRow) {
        scan.looked_at += 1;
        scan.released += u64::from(row.consumer.is_none());
        scan.longest_idle = scan.longest_idle.max(row.idle);
        scan.most_deliveries = scan.most_deliveries.max(row.deliveries);
        let stuck =
            row.deliveries >= self.stuck_deliveries || row.idle.is_some_and(|idle| idle >= self.stuck_idle);
        if stuck {
            scan.stuck += 1;
            if scan.stuck_rows.len() < STUCK_LISTED {
                scan.stuck_rows.push(row);
            }
        }
    }
}

/// How many entries come after an id, reading at most so many of them.
pub(crate) async fn count_after(
    backend: &dyn Admin,
    stream: &str,
    info: &StreamInfo,
    after: StreamId,
    at_most: usize,
) -> Result<Lag, Error> {
    let (Some(begin), Some(end)) = (info.first_entry, info.last_entry) else {
        return Ok(Lag { count: 0, known: LagKnown::Counted });
    };
    if after < begin {
        return Ok(Lag { count: info.length, known: LagKnown::Counted });
    }
    let mut count = 0;
    let mut last = after;
    // Entries that are added meanwhile are not counted, or a busy stream would never be done with.
    while last < end {
        let Some(first) = last.next() else { break };
        if count >= at_most {
            return Ok(Lag { count: count as u64, known: LagKnown::AtLeast });
        }
        let range = Range { last: end, ..Range::rising(first, PAGE.min(at_most - count)) };
        let entries = backend.range(stream, range).await?;
        let Some(entry) = entries.last() else { break };
        last = entry.id;
        count += entries.len();
    }
    Ok(Lag { count: count as u64, known: LagKnown::Counted })
}
