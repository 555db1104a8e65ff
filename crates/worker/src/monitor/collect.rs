//! Collects snapshots: which calls to make to the store, and how many entries to read.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use super::dead_letters::DeadLetters;
use super::describe::{StuckRule, oldest};
use super::growth::Growth;
use super::missed::unread;
use super::partitioned::{
    GroupWorkers, PartitionLists, PartitionOwners, find, fold, logical_groups, read_owners, read_workers,
    sum_of_lags,
};
use super::retries::known_records;
use super::snapshot::{GroupSnapshot, Lag, LagAccuracy, OldestEntry, StreamSnapshot};
use crate::backend::{
    Admin, Error, GroupInfo, GroupLook, LookDetail, PendingFilter, PendingRow, Range, StreamId, StreamInfo,
    StreamLook,
};
use crate::names::is_control_stream;
use crate::partitions::{Partitions, partitions_matching};

/// Maximum number of entries or pending entries to read per call.
const PAGE_SIZE: usize = 1_000;
/// Maximum number of streams in a look, which limits the memory that it takes.
const STREAMS_PER_LOOK: usize = 200;
/// Maximum number of pending entries that a look reads of each group. Further ones are read page by page.
const ROWS_PER_LOOK: usize = 200;

/// Time between the two looks that show whether groups grow.
const GROWTH_TIME: Duration = Duration::from_secs(1);

/// Takes snapshots of streams and groups. Read-only.
#[derive(Clone)]
pub struct Monitor {
    backend: Arc<dyn Admin>,
    scan_limit: usize,
    stuck: StuckRule,
}

impl Monitor {
    /// Creates a monitor of a store.
    ///
    /// It reads at most 10,000 entries and 10,000 pending entries per group. A pending entry counts as stuck from its
    /// fifth delivery on, or when it has been idle for five minutes.
    pub fn new(backend: Arc<dyn Admin>) -> Monitor {
        Monitor { backend, scan_limit: 10_000, stuck: StuckRule::default() }
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
        self.stuck = StuckRule { deliveries, idle };
        self
    }

    /// Returns snapshots of the streams whose names match a glob pattern, with their groups. The partitions of a
    /// logical stream are [behind its name](StreamSnapshot::partitioned). The control streams of workers are left out.
    ///
    /// A pattern that matches a partition selects its logical stream.
    pub async fn streams(&self, pattern: &str) -> Result<Vec<StreamSnapshot>, Error> {
        let (names, lists) = self.names(pattern).await?;
        self.look_and_fold(&names, &lists, &LookDetail::all(self.first_rows())).await
    }

    /// Returns the streams whose names match a glob pattern, as [`streams`](Monitor::streams) does, without their
    /// groups and without their dead letters. Costs one call for each stream.
    pub async fn list(&self, pattern: &str) -> Result<Vec<StreamSnapshot>, Error> {
        let (names, lists) = self.names(pattern).await?;
        let (mut found, at) = (Vec::with_capacity(names.len()), SystemTime::now());
        for name in names {
            // The stream may have been deleted since it was listed.
            let Some(info) = self.backend.stream(&name).await? else { continue };
            let look = StreamLook {
                length: info.length,
                entries_added: info.entries_added,
                info,
                ..StreamLook::default()
            };
            found.push(StreamSnapshot::of(&name, &look, DeadLetters::default(), at));
        }
        Ok(fold(found, &lists, &GroupWorkers::new(), at))
    }

    /// Returns a snapshot of a stream with its groups, or `None` if the stream does not exist. The stream can be a
    /// logical one, or a partition.
    pub async fn stream(&self, name: &str) -> Result<Option<StreamSnapshot>, Error> {
        let lists = self.lists_of(name).await?;
        let names = names_behind(name, &lists);
        let found = self.look_and_fold(&names, &lists, &LookDetail::all(self.first_rows())).await?;
        Ok(named(found, name))
    }

    /// Returns a snapshot of a group, or `None` if the group does not exist. The stream can be a logical one, or a
    /// partition.
    pub async fn group(&self, stream: &str, group: &str) -> Result<Option<GroupSnapshot>, Error> {
        let lists = self.lists_of(stream).await?;
        let names = names_behind(stream, &lists);
        let groups = names.iter().map(|name| (&**name, group));
        let detail = LookDetail::of(groups, self.first_rows());
        let found = named(self.look_and_fold(&names, &lists, &detail).await?, stream);
        let groups = found.into_iter().flat_map(|stream| stream.groups);
        Ok(groups.into_iter().find(|found| found.name == group))
    }

    /// Looks again at the groups whose unread or pending entries may grow, a second later, and adds their growth, so
    /// that their verdicts are those of a program that looks all the time. Returns at once if there are none.
    pub async fn observe_growth<'a>(
        &self,
        groups: impl IntoIterator<Item = &'a mut GroupSnapshot>,
    ) -> Result<(), Error> {
        let mut growing: Vec<&mut GroupSnapshot> =
            groups.into_iter().filter(|group| group.may_grow()).collect();
        if growing.is_empty() {
            return Ok(());
        }
        tokio::time::sleep(GROWTH_TIME).await;
        let places: BTreeSet<(&str, &str)> = growing.iter().flat_map(|group| group.places()).collect();
        let detail = LookDetail::of(places.iter().copied(), 0);
        let names: BTreeSet<&str> = places.iter().map(|(stream, _)| *stream).collect();
        let names: Vec<String> = names.into_iter().map(str::to_owned).collect();
        let (counting, mut found) = (self.clone().scan(0), HashMap::new());
        for part in names.chunks(STREAMS_PER_LOOK) {
            let groups = counting.look(part, &detail).await?.into_iter().flat_map(|stream| stream.groups);
            found.extend(groups.map(|group| ((group.stream.clone(), group.name.clone()), group)));
        }
        for group in &mut growing {
            let of_place = |(stream, name): (&str, &str)| found.get(&(stream.to_owned(), name.to_owned()));
            let parts: Vec<&GroupSnapshot> = group.places().filter_map(of_place).collect();
            // Without all partitions, the sums cannot be compared.
            if parts.len() == group.places().count() {
                group.growth = Growth::between(group, &sum_of(group, &parts));
            }
        }
        Ok(())
    }

    /// Returns who owns each partition of a group of a logical stream. Empty for any other group.
    pub async fn owners(&self, group: &GroupSnapshot) -> Result<PartitionOwners, Error> {
        read_owners(&self.backend, group).await
    }

    /// Returns the names of the streams that match a pattern and of all partitions of their logical streams, sorted,
    /// and the lists that name these partitions.
    async fn names(&self, pattern: &str) -> Result<(Vec<String>, PartitionLists), Error> {
        let found = self.backend.streams(pattern).await?.into_iter();
        let mut names: BTreeSet<String> = found.filter(|name| !is_control_stream(name)).collect();
        let mut lists = PartitionLists::default();
        // The name of a partition is longer than that of its logical stream.
        let of_partitions = match pattern.ends_with('*') {
            true => Vec::new(),
            false => self.backend.streams(&partitions_matching(pattern)).await?,
        };
        let candidates = names.iter().chain(&of_partitions).map(String::as_str);
        lists.update(&self.backend, candidates, Duration::ZERO).await?;
        names.extend(lists.all().flat_map(Partitions::names).map(str::to_owned));
        Ok((names.into_iter().collect(), lists))
    }

    /// Returns the list of a logical stream, or that to which a partition belongs.
    async fn lists_of(&self, stream: &str) -> Result<PartitionLists, Error> {
        let mut lists = PartitionLists::default();
        match find(&*self.backend, stream).await? {
            Some(list) => Ok(PartitionLists::of(list)),
            None => {
                lists.update(&self.backend, std::iter::once(stream), Duration::ZERO).await?;
                Ok(lists)
            }
        }
    }

    /// Looks at streams, and folds those that are partitions.
    async fn look_and_fold(
        &self,
        names: &[String],
        lists: &PartitionLists,
        detail: &LookDetail,
    ) -> Result<Vec<StreamSnapshot>, Error> {
        let mut found = Vec::with_capacity(names.len());
        for part in names.chunks(STREAMS_PER_LOOK) {
            // A stream may have been deleted since it was listed.
            found.extend(self.look(part, detail).await?);
        }
        let workers = read_workers(&self.backend, logical_groups(found.iter(), lists, |_| true)).await?;
        Ok(fold(found, lists, &workers, SystemTime::now()))
    }

    /// Returns the number of pending entries of each group to read with a look.
    fn first_rows(&self) -> usize {
        self.scan_limit.min(ROWS_PER_LOOK)
    }

    /// Looks at streams. Only groups with details are in the result.
    async fn look(&self, names: &[String], detail: &LookDetail) -> Result<Vec<StreamSnapshot>, Error> {
        let looks = self.backend.look(names, detail).await?;
        let at = SystemTime::now();
        let mut found = Vec::with_capacity(looks.len());
        for (name, look) in names.iter().zip(looks) {
            found.extend(look?.map(|look| (name, look)));
        }
        let streams: Vec<_> = found.iter().map(|(name, look)| (&***name, look.policy.as_ref())).collect();
        let dead_letters = DeadLetters::count(&*self.backend, &streams).await?;
        let mut snapshots = Vec::with_capacity(found.len());
        for ((name, look), dead_letters) in found.into_iter().zip(dead_letters) {
            snapshots.push(self.snapshot(name, look, dead_letters, detail.pending_rows, at).await?);
        }
        Ok(snapshots)
    }

    async fn snapshot(
        &self,
        stream: &str,
        mut look: StreamLook,
        dead_letters: DeadLetters,
        rows_max: usize,
        at: SystemTime,
    ) -> Result<StreamSnapshot, Error> {
        let mut groups = Vec::with_capacity(look.groups.len());
        for GroupLook { info, detail, .. } in std::mem::take(&mut look.groups) {
            let Some(detail) = detail else { continue };
            let mut group = GroupSnapshot::without_detail(stream, &look, &info, at);
            let next = group.add_detail(detail?, rows_max, &self.stuck);
            if !group.lag.is_exact() {
                group.lag = lag_of(&*self.backend, stream, &look.info, &info, self.scan_limit).await?;
            }
            if let Some(next) = next {
                self.scan_further(&mut group, next).await?;
            }
            (group.dead_letters, group.dead_letters_length) = dead_letters.of_group(&group.name);
            groups.push(group);
        }
        let mut snapshot = StreamSnapshot::of(stream, &look, dead_letters, at);
        snapshot.groups = groups;
        Ok(snapshot)
    }

    /// Scans the pending entries from an id on.
    async fn scan_further(&self, group: &mut GroupSnapshot, from: StreamId) -> Result<(), Error> {
        let mut next = Some(from);
        while let Some(first) = next {
            let scanned = usize::try_from(group.scan.scanned).unwrap_or(self.scan_limit);
            let count = PAGE_SIZE.min(self.scan_limit.saturating_sub(scanned));
            if count == 0 {
                return Ok(());
            }
            let filter = PendingFilter::starting_at(first, count);
            let rows = self.backend.pending(&group.stream, &group.name, &filter).await?;
            next = rows.last().filter(|_| rows.len() == count).and_then(|row| row.id.next());
            self.scan_retries(group, &rows).await?;
            rows.into_iter().for_each(|row| group.scan.add(row, &self.stuck));
        }
        group.scan.complete = true;
        Ok(())
    }

    /// Counts the entries that wait for their next attempt. They were released, and have a record with its time.
    async fn scan_retries(&self, group: &mut GroupSnapshot, rows: &[PendingRow]) -> Result<(), Error> {
        let released: Vec<StreamId> =
            rows.iter().filter(|row| row.consumer.is_none()).map(|row| row.id).collect();
        if released.is_empty() {
            return Ok(());
        }
        let (records, now_ms) = known_records(&*self.backend, &group.stream, &group.name, &released).await?;
        for record in records.into_iter().flatten() {
            group.scan.add_attempt(record.due_at_ms, now_ms);
        }
        Ok(())
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
        Ok(unread.first().map(|entry| oldest(entry.id, at)))
    }
}

/// Returns a group with the lag and the number of pending entries of these snapshots of it or of its partitions.
fn sum_of(group: &GroupSnapshot, parts: &[&GroupSnapshot]) -> GroupSnapshot {
    GroupSnapshot {
        at: parts.iter().map(|part| part.at).max().unwrap_or(group.at),
        lag: parts.iter().map(|part| part.lag).fold(Lag::reported(0), sum_of_lags),
        pending: parts.iter().map(|part| part.pending).sum(),
        ..group.clone()
    }
}

/// Returns the streams behind a name: the partitions of a logical stream, or the stream itself.
fn names_behind(name: &str, lists: &PartitionLists) -> Vec<String> {
    let partitions = lists.get(name).map(Partitions::names).unwrap_or_default();
    // The stream with the logical name usually does not exist, so it is no good first one: features are probed with
    // that.
    partitions.into_iter().chain(std::iter::once(name)).map(str::to_owned).collect()
}

/// Returns the stream with this name. It can be behind another one.
fn named(found: Vec<StreamSnapshot>, name: &str) -> Option<StreamSnapshot> {
    let part = found.iter().flat_map(StreamSnapshot::parts).find(|part| part.name == name);
    let part = part.map(|part| (**part).clone());
    part.or_else(|| found.into_iter().find(|stream| stream.name == name))
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
