//! Collects snapshots: which calls to make to the store, and how many entries to read.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use super::dead_letters::DeadLetters;
use super::missed::{Missed, unread};
use super::retries::known_records;
use super::snapshot::{GroupSnapshot, Lag, LagAccuracy, OldestEntry, PendingScan, StreamSnapshot};
use crate::backend::{
    Admin, Error, GroupInfo, GroupMissed, PendingFilter, PendingRow, Range, StreamId, StreamInfo,
};
use crate::heartbeat::known_workers;
use crate::message::age_of;

/// Maximum number of entries or pending entries to read per call.
const PAGE_SIZE: usize = 1_000;
/// Maximum number of stuck pending entries in a snapshot.
const STUCK_LISTED_MAX: usize = 20;

/// Takes snapshots of streams and groups. Read-only.
#[derive(Clone)]
pub struct Monitor {
    backend: Arc<dyn Admin>,
    scan_limit: usize,
    stuck_deliveries: u64,
    stuck_idle: Duration,
}

impl Monitor {
    /// Creates a monitor of a store.
    ///
    /// It reads at most 10,000 entries and 10,000 pending entries per group. A pending entry counts as stuck from its
    /// fifth delivery on, or when it has been idle for five minutes.
    pub fn new(backend: Arc<dyn Admin>) -> Monitor {
        Monitor { backend, scan_limit: 10_000, stuck_deliveries: 5, stuck_idle: Duration::from_secs(300) }
    }

    /// Sets a limit per group: the maximum number of entries to read for counting the lag, and the maximum number of
    /// pending entries to scan for stuck ones.
    #[must_use]
    pub fn scan(mut self, limit: usize) -> Monitor {
        self.scan_limit = limit;
        self
    }

    /// Sets when a pending entry counts as stuck: from this number of deliveries or this idle time on.
    #[must_use]
    pub fn stuck(mut self, deliveries: u64, idle: Duration) -> Monitor {
        self.stuck_deliveries = deliveries;
        self.stuck_idle = idle;
        self
    }

    /// Returns snapshots of the streams whose names match a glob pattern, with their groups.
    pub async fn streams(&self, pattern: &str) -> Result<Vec<StreamSnapshot>, Error> {
        let mut found = Vec::new();
        for name in self.backend.streams(pattern).await? {
            // A stream may have been deleted since it was listed.
            found.extend(self.stream(&name).await?);
        }
        Ok(found)
    }

    /// Returns a snapshot of a stream with its groups, or `None` if the stream does not exist.
    pub async fn stream(&self, name: &str) -> Result<Option<StreamSnapshot>, Error> {
        let Some(info) = self.backend.stream(name).await? else { return Ok(None) };
        let dead_letters = DeadLetters::count(&*self.backend, name).await?;
        let mut groups = Vec::new();
        // Before the groups, as the stream: see `Missed::of`.
        let missed = self.backend.missed(name).await?;
        for group in self.backend.groups(name).await? {
            let missed = missed.iter().find(|missed| missed.group == group.name);
            groups.push(self.snapshot(name, &info, missed, group, &dead_letters).await?);
        }
        Ok(Some(StreamSnapshot {
            name: name.to_owned(),
            at: SystemTime::now(),
            info,
            groups,
            dead_letters: dead_letters.first(),
            dead_letters_length: dead_letters.total(),
            dead_letter_streams: dead_letters.streams,
        }))
    }

    /// Returns a snapshot of a group, or `None` if the group does not exist.
    pub async fn group(&self, stream: &str, group: &str) -> Result<Option<GroupSnapshot>, Error> {
        let Some(info) = self.backend.stream(stream).await? else { return Ok(None) };
        let missed = self.backend.missed(stream).await?;
        let groups = self.backend.groups(stream).await?;
        let Some(group) = groups.into_iter().find(|found| found.name == group) else { return Ok(None) };
        let dead_letters = DeadLetters::count(&*self.backend, stream).await?;
        let missed = missed.iter().find(|missed| missed.group == group.name);
        self.snapshot(stream, &info, missed, group, &dead_letters).await.map(Some)
    }

    /// Returns the lag of a group and its oldest unread entry, or `None` if the group does not exist.
    ///
    /// Cheaper than [`Monitor::group`].
    pub async fn backlog(
        &self,
        stream: &str,
        group: &str,
    ) -> Result<Option<(Lag, Option<OldestEntry>)>, Error> {
        let Some(info) = self.backend.stream(stream).await? else { return Ok(None) };
        let groups = self.backend.groups(stream).await?;
        let Some(group) = groups.into_iter().find(|found| found.name == group) else { return Ok(None) };
        let oldest = self.oldest_unread(stream, &info, &group, SystemTime::now()).await?;
        let lag = lag_of(&*self.backend, stream, &info, &group, self.scan_limit).await?;
        Ok(Some((lag, oldest)))
    }

    async fn snapshot(
        &self,
        stream: &str,
        info: &StreamInfo,
        missed: Option<&GroupMissed>,
        group: GroupInfo,
        dead_letters: &DeadLetters,
    ) -> Result<GroupSnapshot, Error> {
        let at = SystemTime::now();
        let oldest_unread = self.oldest_unread(stream, info, &group, at).await?;
        let lag = lag_of(&*self.backend, stream, info, &group, self.scan_limit).await?;
        let (scan, oldest) = self.scan_pending(stream, &group.name).await?;
        let consumers = self.backend.consumers(stream, &group.name).await?;
        let (dead_letters, dead_letters_length) = dead_letters.of_group(&group.name);
        let workers = known_workers(&*self.backend, stream, &group.name).await?;
        Ok(GroupSnapshot {
            stream: stream.to_owned(),
            missed: missed.map_or_else(
                || Missed::of(info, &group),
                |missed| Missed::counted(missed, group.last_delivered),
            ),
            name: group.name,
            at,
            detail_at: Some(at),
            stream_length: info.length,
            entries_added: info.entries_added,
            lag,
            oldest_unread,
            pending: group.pending,
            oldest_pending: oldest.map(|id| OldestEntry { id, age: age_of(id, at) }),
            scan,
            consumers,
            workers,
            last_delivered: group.last_delivered,
            entries_read: group.entries_read,
            dead_letters,
            dead_letters_length,
        })
    }

    async fn oldest_unread(
        &self,
        stream: &str,
        info: &StreamInfo,
        group: &GroupInfo,
        at: SystemTime,
    ) -> Result<Option<OldestEntry>, Error> {
        if info.last_entry.is_none_or(|last| last <= group.last_delivered) {
            return Ok(None);
        }
        let Some(first) = group.last_delivered.next() else { return Ok(None) };
        let unread = self.backend.range(stream, Range::starting_at(first, 1)).await?;
        Ok(unread.first().map(|entry| OldestEntry { id: entry.id, age: age_of(entry.id, at) }))
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
            let scanned = usize::try_from(scan.scanned).unwrap_or(self.scan_limit);
            let left = self.scan_limit.saturating_sub(scanned);
            if left == 0 {
                return Ok((scan, oldest));
            }
            let count = PAGE_SIZE.min(left);
            let filter = PendingFilter::starting_at(first, count);
            let rows = self.backend.pending(stream, group, &filter).await?;
            oldest = oldest.or_else(|| rows.first().map(|row| row.id));
            next = rows.last().filter(|_| rows.len() == count).and_then(|row| row.id.next());
            self.scan_retries(&mut scan, stream, group, &rows).await?;
            rows.into_iter().for_each(|row| self.scan_row(&mut scan, row));
        }
        scan.complete = true;
        Ok((scan, oldest))
    }

    /// Counts the entries that wait for their next attempt. They were released, and have a record with its time.
    async fn scan_retries(
        &self,
        scan: &mut PendingScan,
        stream: &str,
        group: &str,
        rows: &[PendingRow],
    ) -> Result<(), Error> {
        let released: Vec<StreamId> =
            rows.iter().filter(|row| row.consumer.is_none()).map(|row| row.id).collect();
        if released.is_empty() {
            return Ok(());
        }
        let (records, now_ms) = known_records(&*self.backend, stream, group, &released).await?;
        let due = records.into_iter().flatten().map(|record| record.due_at_ms);
        for due_at_ms in due.filter(|due_at_ms| *due_at_ms > now_ms) {
            let due_in = Duration::from_millis(due_at_ms - now_ms);
            scan.waiting += 1;
            scan.next_attempt_in = Some(scan.next_attempt_in.map_or(due_in, |first| first.min(due_in)));
        }
        Ok(())
    }

    fn scan_row(&self, scan: &mut PendingScan, row: PendingRow) {
        scan.scanned += 1;
        scan.released += u64::from(row.consumer.is_none());
        scan.longest_idle = scan.longest_idle.max(row.idle);
        scan.most_deliveries = scan.most_deliveries.max(row.deliveries);
        let stuck =
            row.deliveries >= self.stuck_deliveries || row.idle.is_some_and(|idle| idle >= self.stuck_idle);
        if stuck {
            scan.stuck += 1;
            if scan.stuck_rows.len() < STUCK_LISTED_MAX {
                scan.stuck_rows.push(row);
            }
        }
    }
}

/// Returns the lag of a group: the number that the store reports, or a count if it reports none or a wrong one.
pub(crate) async fn lag_of(
    backend: &dyn Admin,
    stream: &str,
    info: &StreamInfo,
    group: &GroupInfo,
    limit: usize,
) -> Result<Lag, Error> {
    match unread(info, group) {
        Some(count) => Ok(Lag::reported(count)),
        None => count_after(backend, stream, info, group.last_delivered, limit).await,
    }
}

/// Counts the entries after an id. Reads at most `limit` of them; if there are more, the result is a lower bound.
pub(crate) async fn count_after(
    backend: &dyn Admin,
    stream: &str,
    info: &StreamInfo,
    after: StreamId,
    limit: usize,
) -> Result<Lag, Error> {
    let (Some(begin), Some(end)) = (info.first_entry, info.last_entry) else {
        return Ok(Lag { count: 0, accuracy: LagAccuracy::Counted });
    };
    if after < begin {
        return Ok(Lag { count: info.length, accuracy: LagAccuracy::Counted });
    }
    let mut count = 0;
    let mut last = after;
    // Stop at `end`: on a busy stream, counting entries added meanwhile would never finish.
    while last < end {
        let Some(first) = last.next() else { break };
        if count >= limit {
            return Ok(Lag { count: count as u64, accuracy: LagAccuracy::LowerBound });
        }
        let range = Range { last: end, ..Range::starting_at(first, PAGE_SIZE.min(limit - count)) };
        let entries = backend.range(stream, range).await?;
        let Some(entry) = entries.last() else { break };
        last = entry.id;
        count += entries.len();
    }
    Ok(Lag { count: count as u64, accuracy: LagAccuracy::Counted })
}
