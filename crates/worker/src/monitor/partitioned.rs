//! Folds the partitions of a logical stream into one stream, and their groups of the same name into one group.
//!
//! ```text
//! orders:{ae}.1  billing  lag 3  ┐
//! orders:{ad}.1  billing  lag 9  ├─▶  orders  billing  lag 12, worst partition 1
//! orders:{6b}.1  billing  lag 0  ┘
//! ```
//!
//! Counts are sums, ages the greatest ones, consumers the union. If a value of one partition is not exact, the sum is
//! not. The workers are those with heartbeats under the logical name. A stream that only looks like a partition, but is
//! in no list, stays an ordinary stream.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use tokio::task::JoinSet;

use super::dead_letters::DeadLetters;
use super::describe::STUCK_LISTED_MAX;
use super::missed::{Missed, MissedAccuracy};
use super::snapshot::{GroupSnapshot, Lag, LagAccuracy, OldestEntry, PendingScan, StreamSnapshot};
use crate::backend::{Admin, ConsumerInfo, Error, ErrorKind, StreamId, StreamInfo, StreamLook, StreamOwner};
use crate::heartbeat::{WorkerInfo, known_workers};
use crate::names::origin_of;
use crate::partitions::{Partitions, logical_name};

/// Number of lists or of heartbeats that are read at the same time.
const CONCURRENCY: usize = 16;

/// The place of a partition: its logical stream and its number.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PartOf {
    /// The name of the logical stream.
    pub stream: Arc<str>,
    /// The number of the partition, from 0.
    pub number: usize,
}

/// Writes the name of the partition for people, such as `orders/3`.
impl fmt::Display for PartOf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.stream, self.number)
    }
}

/// The streams behind the name of a logical stream.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Partitioned {
    /// The list of the partitions.
    pub list: Partitions,
    /// The partitions that exist, in the order of their numbers.
    pub parts: Vec<Arc<StreamSnapshot>>,
    /// The dead-letter streams of the partitions, as far as they were looked at.
    pub dead_letters: Vec<Arc<StreamSnapshot>>,
    /// A stream that has the name of the logical one. No worker of the partitions reads it.
    pub plain: Option<Arc<StreamSnapshot>>,
}

impl Partitioned {
    /// Returns the numbers of the partitions that are in the list, but whose streams do not exist.
    pub fn missing(&self) -> Vec<usize> {
        let exists = |number: &usize| self.parts.iter().any(|part| part.number() == Some(*number));
        (0..self.list.len()).filter(|number| !exists(number)).collect()
    }
}

impl StreamSnapshot {
    /// Returns the partitions of a logical stream. Empty for an ordinary stream.
    pub fn parts(&self) -> &[Arc<StreamSnapshot>] {
        self.partitioned.as_ref().map_or(&[], |partitioned| &partitioned.parts)
    }

    /// Returns the number of a partition. `None` for an ordinary stream.
    pub fn number(&self) -> Option<usize> {
        self.part_of.as_ref().map(|part| part.number)
    }

    /// Whether somebody who may see the streams that `may_see` allows may see this one. Who sees a logical stream must
    /// be allowed to see its name and each of its partitions.
    pub fn is_seen(&self, may_see: impl Fn(&str) -> bool) -> bool {
        may_see(&self.name) && self.parts().iter().all(|part| may_see(&part.name))
    }
}

/// Which streams are partitions: the lists of partitions, as they were read last.
#[derive(Debug, Default)]
pub(crate) struct PartitionLists {
    /// By logical stream. `None` if a name only looked like that of a partition.
    known: BTreeMap<String, (Instant, Option<Partitions>)>,
}

impl PartitionLists {
    /// Reads the lists to which streams with these names can belong, unless they were read less than `age_max` ago.
    ///
    /// Other streams cost nothing. Fails if the store does not answer; the lists stay as they were.
    pub(crate) async fn update<'a>(
        &mut self,
        backend: &Arc<dyn Admin>,
        names: impl Iterator<Item = &'a str>,
        age_max: Duration,
    ) -> Result<(), Error> {
        let logical: BTreeSet<&str> = names.filter_map(logical_name).collect();
        self.known.retain(|stream, _| logical.contains(&**stream));
        let is_fresh = |stream: &&str| self.known.get(*stream).is_some_and(|(at, _)| at.elapsed() < age_max);
        let stale: Vec<String> =
            logical.into_iter().filter(|stream| !is_fresh(stream)).map(str::to_owned).collect();
        let found =
            all(backend, stale, |backend, stream| async move { find(&*backend, &stream).await }).await?;
        self.known.extend(found.into_iter().map(|(stream, list)| (stream, (Instant::now(), list))));
        Ok(())
    }

    /// Remembers a list that was read elsewhere.
    pub(crate) fn of(list: Partitions) -> PartitionLists {
        PartitionLists { known: [(list.stream().to_string(), (Instant::now(), Some(list)))].into() }
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Partitions> {
        self.known.values().filter_map(|(_, list)| list.as_ref())
    }

    pub(crate) fn get(&self, stream: &str) -> Option<&Partitions> {
        self.known.get(stream)?.1.as_ref()
    }
}

/// Reads a list. `None` also if this version cannot read it: the streams are then shown as ordinary ones.
pub(super) async fn find(backend: &dyn Admin, stream: &str) -> Result<Option<Partitions>, Error> {
    match Partitions::find(backend, stream).await {
        Err(error) if error.kind() == ErrorKind::Refused => Ok(None),
        found => found,
    }
}

/// The owners of partitions, by their numbers. A partition that nobody owns now is missing.
pub type PartitionOwners = BTreeMap<usize, StreamOwner>;

impl GroupSnapshot {
    /// Returns the consumer name of the worker that owns a partition, or its id if it sends no heartbeats.
    pub fn name_of<'a>(&'a self, owner: &'a StreamOwner) -> &'a str {
        self.consumer_of(owner).unwrap_or(&owner.instance)
    }

    /// Returns the consumer name of the worker that owns a partition, if it sends heartbeats.
    pub fn consumer_of(&self, owner: &StreamOwner) -> Option<&str> {
        let mut workers = self.workers.iter().map(|worker| &worker.heartbeat);
        let worker = workers.find(|worker| worker.instance == owner.instance)?;
        Some(&worker.consumer)
    }
}

/// Reads who owns the partitions of a group of a logical stream.
pub(super) async fn read_owners(
    backend: &Arc<dyn Admin>,
    group: &GroupSnapshot,
) -> Result<PartitionOwners, Error> {
    let parts = group.parts.iter().filter_map(|part| Some((part.number()?, part.stream.clone())));
    let name = group.name.clone();
    let found = all(backend, parts.collect(), move |backend, (_, stream)| {
        let name = name.clone();
        async move {
            match backend.owner(&stream, &name).await {
                // Who may not know shows no owner.
                Err(error) if matches!(error.kind(), ErrorKind::Denied | ErrorKind::WrongType) => Ok(None),
                owner => owner,
            }
        }
    });
    let is_owned = |owner: &StreamOwner| !owner.lease_left.is_zero();
    let owned = found.await?.into_iter();
    Ok(owned.filter_map(|((number, _), owner)| Some((number, owner.filter(is_owned)?))).collect())
}

pub(crate) type GroupWorkers = HashMap<(String, String), Vec<WorkerInfo>>;

/// Reads the heartbeats of these groups: logical streams and groups.
pub(crate) async fn read_workers(
    backend: &Arc<dyn Admin>,
    groups: BTreeSet<(String, String)>,
) -> Result<GroupWorkers, Error> {
    let found = all(backend, groups.into_iter().collect(), |backend, (stream, group)| async move {
        known_workers(&*backend, &stream, &group).await
    });
    Ok(found.await?.into_iter().collect())
}

/// Asks the store about each of these things, some at the same time.
async fn all<K, V, F>(
    backend: &Arc<dyn Admin>,
    keys: Vec<K>,
    ask: impl Fn(Arc<dyn Admin>, K) -> F,
) -> Result<Vec<(K, V)>, Error>
where
    K: Clone + Send + 'static,
    V: Send + 'static,
    F: Future<Output = Result<V, Error>> + Send + 'static,
{
    let (mut asking, mut found) = (JoinSet::new(), Vec::with_capacity(keys.len()));
    let mut keys = keys.into_iter();
    loop {
        while asking.len() < CONCURRENCY
            && let Some(key) = keys.next()
        {
            let answer = ask(Arc::clone(backend), key.clone());
            asking.spawn(async move { (key, answer.await) });
        }
        match asking.join_next().await {
            None => return Ok(found),
            Some(Ok((key, answer))) => found.push((key, answer?)),
            // The task has panicked, which the runtime has reported.
            Some(Err(_)) => {}
        }
    }
}

/// Returns the groups of logical streams: those of partitions among these streams for which `is_wanted` holds.
pub(crate) fn logical_groups<'a>(
    streams: impl Iterator<Item = &'a StreamSnapshot>,
    lists: &PartitionLists,
    is_wanted: impl Fn(&GroupSnapshot) -> bool,
) -> BTreeSet<(String, String)> {
    let mut groups = BTreeSet::new();
    for stream in streams {
        let list = logical_name(&stream.name).and_then(|logical| lists.get(logical));
        if let Some(list) = list.filter(|list| list.number_of(&stream.name).is_some()) {
            let wanted = stream.groups.iter().filter(|group| is_wanted(group));
            groups.extend(wanted.map(|group| (list.stream().to_string(), group.name.clone())));
        }
    }
    groups
}

/// Replaces the partitions among these streams by their logical streams, each of which has its partitions.
pub(crate) fn fold(
    streams: Vec<StreamSnapshot>,
    lists: &PartitionLists,
    workers: &GroupWorkers,
    at: SystemTime,
) -> Vec<StreamSnapshot> {
    let mut behind: BTreeMap<&str, Behind> =
        lists.all().map(|list| (&**list.stream(), Behind::new(list))).collect();
    if behind.is_empty() {
        return streams;
    }
    let places: HashMap<&str, PartOf> = lists
        .all()
        .flat_map(|list| {
            let place = |number| PartOf { stream: Arc::clone(list.stream()), number };
            list.names().into_iter().enumerate().map(move |(number, name)| (name, place(number)))
        })
        .collect();
    let mut folded = Vec::with_capacity(streams.len());
    for mut stream in streams {
        let place = places.get(&*stream.name);
        let dead_letters_of = || origin_of(&stream.name).and_then(|origin| places.get(origin));
        if let Some(place) = place {
            stream.part_of = Some(place.clone());
            behind.get_mut(&*place.stream).into_iter().for_each(|behind| behind.parts.push(stream.clone()));
        } else if let Some(place) = dead_letters_of() {
            let behind = behind.get_mut(&*place.stream);
            behind.into_iter().for_each(|behind| behind.dead_letters.push(stream.clone()));
        } else if let Some(behind) = behind.get_mut(&*stream.name) {
            behind.plain = Some(stream);
        } else {
            folded.push(stream);
        }
    }
    folded.extend(behind.into_values().map(|behind| behind.fold(workers, at)));
    folded.sort_by(|a, b| a.name.cmp(&b.name));
    folded
}

/// What was found behind the name of a logical stream.
struct Behind<'a> {
    list: &'a Partitions,
    parts: Vec<StreamSnapshot>,
    dead_letters: Vec<StreamSnapshot>,
    plain: Option<StreamSnapshot>,
}

impl<'a> Behind<'a> {
    fn new(list: &'a Partitions) -> Behind<'a> {
        Behind { list, parts: Vec::new(), dead_letters: Vec::new(), plain: None }
    }

    fn fold(self, workers: &GroupWorkers, at: SystemTime) -> StreamSnapshot {
        let Behind { list, mut parts, dead_letters, plain } = self;
        let stream = list.stream().to_string();
        parts.sort_by_key(StreamSnapshot::number);
        for part in &mut parts {
            for group in &mut part.groups {
                group.part_of.clone_from(&part.part_of);
                let of_group = workers.get(&(stream.clone(), group.name.clone()));
                let is_here = |worker: &&WorkerInfo| {
                    group.consumers.iter().any(|consumer| consumer.name == worker.heartbeat.consumer)
                };
                group.workers = of_group.into_iter().flatten().filter(is_here).cloned().collect();
            }
        }
        let names: BTreeSet<&str> =
            parts.iter().flat_map(|part| &part.groups).map(|group| &*group.name).collect();
        let groups = names.into_iter().map(|name| {
            let of_name = parts.iter().filter_map(|part| part.group(name));
            let workers = workers.get(&(stream.clone(), name.to_owned()));
            group(list, name, of_name.cloned().map(Arc::new).collect(), workers)
        });
        let groups: Vec<GroupSnapshot> = groups.collect();
        let mut found: Vec<(String, u64)> = Vec::new();
        for (name, length) in parts.iter().flat_map(|part| &part.dead_letter_streams) {
            if !found.iter().any(|(known, _)| known == name) {
                found.push((name.clone(), *length));
            }
        }
        let at = parts.iter().map(|part| part.at).max().unwrap_or(at);
        let info = info(&parts, groups.len() as u64);
        let look = StreamLook::default();
        StreamSnapshot {
            info,
            groups,
            partitioned: Some(Box::new(Partitioned {
                list: list.clone(),
                parts: parts.into_iter().map(Arc::new).collect(),
                dead_letters: dead_letters.into_iter().map(Arc::new).collect(),
                plain: plain.map(Arc::new),
            })),
            ..StreamSnapshot::of(&stream, &look, DeadLetters::known(found, None), at)
        }
    }
}

/// Adds up the properties of the partitions. Ids are the least or the greatest of them.
fn info(parts: &[StreamSnapshot], groups: u64) -> StreamInfo {
    let all = || parts.iter().map(|part| &part.info);
    StreamInfo {
        length: all().map(|info| info.length).fold(0, u64::saturating_add),
        groups: all().map(|info| info.groups).max().unwrap_or_default().max(groups),
        entries_added: sum_of_known(all().map(|info| info.entries_added)),
        last_id: all().map(|info| info.last_id).max().unwrap_or_default(),
        max_deleted_id: all().filter_map(|info| info.max_deleted_id).max(),
        first_entry: all().filter_map(|info| info.first_entry).min(),
        last_entry: all().filter_map(|info| info.last_entry).max(),
    }
}

/// Folds the groups with one name. There is at least one.
fn group(
    list: &Partitions,
    name: &str,
    parts: Vec<Arc<GroupSnapshot>>,
    workers: Option<&Vec<WorkerInfo>>,
) -> GroupSnapshot {
    let all = || parts.iter().map(|part| &**part);
    let oldest = |of: fn(&GroupSnapshot) -> Option<OldestEntry>| {
        // An entry whose id contains no time has no age.
        all().filter_map(of).max_by_key(|oldest| (oldest.age, std::cmp::Reverse(oldest.id)))
    };
    let mut dead_letters: BTreeMap<&str, u64> = BTreeMap::new();
    dead_letters.extend(all().map(|part| (&*part.dead_letters, part.dead_letters_length)));
    let first = dead_letters.iter().find(|(_, length)| **length > 0).or(dead_letters.iter().next());
    GroupSnapshot {
        stream: list.stream().to_string(),
        name: name.to_owned(),
        at: all().map(|part| part.at).max().unwrap_or(SystemTime::UNIX_EPOCH),
        detail_at: all().map(|part| part.detail_at).min().flatten(),
        stream_length: all().map(|part| part.stream_length).fold(0, u64::saturating_add),
        entries_added: sum_of_known(all().map(|part| part.entries_added)),
        lag: all().map(|part| part.lag).fold(Lag::reported(0), sum_of_lags),
        growth: None,
        missed: all().map(|part| part.missed).fold(Missed::default(), sum_of_missed),
        oldest_unread: oldest(|part| part.oldest_unread),
        pending: all().map(|part| part.pending).fold(0, u64::saturating_add),
        oldest_pending: oldest(|part| part.oldest_pending),
        scan: scan(all()),
        consumers: consumers(all()),
        workers: workers.cloned().unwrap_or_default(),
        last_delivered: position(all()),
        entries_read: sum_of_known(all().map(GroupSnapshot::read_so_far)),
        dead_letters: first.map(|(name, _)| (*name).to_owned()).unwrap_or_default(),
        dead_letters_length: dead_letters.values().copied().fold(0, u64::saturating_add),
        part_of: None,
        partitions: list.len(),
        parts,
    }
}

pub(super) fn sum_of_lags(a: Lag, b: Lag) -> Lag {
    use LagAccuracy::{Counted, LowerBound, Reported};
    let accuracy = match (a.accuracy, b.accuracy) {
        (LowerBound, _) | (_, LowerBound) => LowerBound,
        (Counted, _) | (_, Counted) => Counted,
        (Reported, Reported) => Reported,
    };
    Lag { count: a.count.saturating_add(b.count), accuracy }
}

/// Adds up numbers; `None` if one of them is unknown.
fn sum_of_known(mut numbers: impl Iterator<Item = Option<u64>>) -> Option<u64> {
    numbers.try_fold(0, |sum: u64, number| Some(sum.saturating_add(number?)))
}

fn sum_of_missed(a: Missed, b: Missed) -> Missed {
    use MissedAccuracy::{AtLeast, Exact, Unknown};
    let accuracy = match (a.accuracy, b.accuracy) {
        (a, b) if a == b => a,
        (Exact, other) | (other, Exact) if other != Unknown => other,
        // What is unknown is not negative.
        (AtLeast | Exact, Unknown) | (Unknown, AtLeast | Exact) if a.count > 0 || b.count > 0 => AtLeast,
        _ => Unknown,
    };
    let count = if accuracy == Unknown { 0 } else { a.count.saturating_add(b.count) };
    Missed { count, accuracy, is_ahead: a.is_ahead || b.is_ahead }
}

/// Returns the position of the partition that is furthest behind. If no entry is unread: the greatest position.
fn position<'a>(parts: impl Iterator<Item = &'a GroupSnapshot> + Clone) -> StreamId {
    let behind = parts.clone().filter(|part| !part.lag.is_exact() || part.lag.count > 0);
    let behind = behind.map(|part| part.last_delivered).min();
    behind.or_else(|| parts.map(|part| part.last_delivered).max()).unwrap_or_default()
}

fn scan<'a>(parts: impl Iterator<Item = &'a GroupSnapshot>) -> PendingScan {
    let mut sum = PendingScan { complete: true, ..PendingScan::default() };
    for scan in parts.map(|part| &part.scan) {
        sum.scanned = sum.scanned.saturating_add(scan.scanned);
        sum.complete &= scan.complete;
        sum.released = sum.released.saturating_add(scan.released);
        sum.waiting = sum.waiting.saturating_add(scan.waiting);
        sum.next_attempt_in = [sum.next_attempt_in, scan.next_attempt_in].into_iter().flatten().min();
        sum.longest_idle = sum.longest_idle.max(scan.longest_idle);
        sum.most_deliveries = sum.most_deliveries.max(scan.most_deliveries);
        sum.stuck = sum.stuck.saturating_add(scan.stuck);
        let left = STUCK_LISTED_MAX - sum.stuck_rows.len();
        sum.stuck_rows.extend(scan.stuck_rows.iter().take(left).cloned());
    }
    sum
}

/// Returns the union of the consumers: what is pending for each, and when it was last active.
fn consumers<'a>(parts: impl Iterator<Item = &'a GroupSnapshot>) -> Vec<ConsumerInfo> {
    let mut all: BTreeMap<&str, ConsumerInfo> = BTreeMap::new();
    for consumer in parts.flat_map(|part| &part.consumers) {
        match all.get_mut(&*consumer.name) {
            None => drop(all.insert(&consumer.name, consumer.clone())),
            Some(sum) => {
                sum.pending = sum.pending.saturating_add(consumer.pending);
                sum.idle = sum.idle.min(consumer.idle);
                sum.inactive = [sum.inactive, consumer.inactive].into_iter().flatten().min();
            }
        }
    }
    all.into_values().collect()
}
