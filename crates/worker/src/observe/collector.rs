//! Looks at all streams of a store for the sampler: cheap properties of everything, and the details of some groups in
//! turn.
//!
//! Each look takes some steps of a walk over the names of streams, so a new stream shows after one walk. It reads the
//! details of the groups in view, and of those whose details are oldest. Other groups keep the details of an earlier
//! look.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use super::row::RowKey;
use crate::backend::{Admin, Error, ErrorKind, GroupLook, LookDetail, PolicyInfo, StreamCursor, StreamLook};
use crate::monitor::{
    DeadLetters, GroupSnapshot, GroupWorkers, PartitionLists, StreamSnapshot, StuckRule, dead_letter_streams,
    fold, logical_groups, read_workers,
};
use crate::names::is_control_stream;
use crate::partitions::{Partitions, partitions_matching};

/// Maximum number of steps of a walk per look. A step visits 1,000 keys.
const WALK_STEPS: usize = 20;
/// Maximum number of groups whose details a look reads.
pub(super) const DETAILS_PER_LOOK: usize = 200;
/// Number of pending entries that a look reads of each of these groups.
const PENDING_ROWS: usize = 100;
/// Number of entries that a look reads to count the unread ones of a group, if the store does not know their number.
const UNREAD_ENTRIES: usize = 100;
/// How long a stream is left out that the user may not read: the server logs each attempt.
const REFUSED_FOR: Duration = Duration::from_secs(60);
/// How long a list of partitions is not read again.
const LISTS_AGE_MAX: Duration = Duration::from_secs(10);

/// What a look found.
#[derive(Debug, Default)]
pub(super) struct Collected {
    /// The streams. Those that did not answer are as they were before.
    pub(super) streams: Vec<StreamSnapshot>,
    /// Why some streams did not answer.
    pub(super) trouble: Option<Error>,
}

/// Looks at a store again and again.
pub(super) struct Collector {
    admin: Arc<dyn Admin>,
    pattern: String,
    /// The streams, each with the number of the walk that found it last.
    names: BTreeMap<String, u64>,
    /// Names that are not UTF-8, escaped.
    unopenable: BTreeMap<String, u64>,
    refused: HashMap<String, Instant>,
    walk: Walk,
    known: HashMap<String, StreamSnapshot>,
    policies: HashMap<String, PolicyInfo>,
    /// Which of the streams are partitions.
    lists: PartitionLists,
    /// The workers of logical streams.
    workers: GroupWorkers,
    /// Whether the store counts the entries that a group missed.
    counts_missed: bool,
    stuck: StuckRule,
}

/// A walk over the names of all streams.
#[derive(Debug, Default)]
struct Walk {
    number: u64,
    next: StreamCursor,
}

impl Collector {
    pub(super) fn new(admin: Arc<dyn Admin>, pattern: String) -> Collector {
        Collector {
            admin,
            pattern,
            names: BTreeMap::new(),
            unopenable: BTreeMap::new(),
            refused: HashMap::new(),
            walk: Walk::default(),
            known: HashMap::new(),
            policies: HashMap::new(),
            lists: PartitionLists::default(),
            workers: GroupWorkers::new(),
            counts_missed: false,
            stuck: StuckRule::default(),
        }
    }

    /// Looks at all streams. Reads the details of the groups in view first.
    pub(super) async fn collect(&mut self, in_view: &[RowKey]) -> Result<Collected, Error> {
        self.walk_on().await?;
        self.refused.retain(|_, at| at.elapsed() < REFUSED_FOR);
        // If this fails, the look says why, and the lists stay as they were.
        let _ = self.lists.update(&self.admin, self.names.keys().map(String::as_str), LISTS_AGE_MAX).await;
        // The walk may not have found all partitions yet, or the pattern does not match them.
        let listed = self.lists.all().flat_map(Partitions::names).map(str::to_owned);
        let names: BTreeSet<String> = self.names.keys().cloned().chain(listed).collect();
        self.known.retain(|name, _| names.contains(name));
        let names: Vec<String> = names.into_iter().filter(|name| !self.refused.contains_key(name)).collect();
        let mut detail = LookDetail::of(self.groups_in_turn(in_view), PENDING_ROWS);
        detail.unread_entries = UNREAD_ENTRIES;
        let looks = self.admin.look(&names, &detail).await?;
        let at = SystemTime::now();
        let (mut found, mut trouble) = (Vec::with_capacity(names.len()), None);
        for (name, look) in names.into_iter().zip(looks) {
            match look {
                Ok(Some(look)) => found.push((name, look)),
                Ok(None) => self.forget(&name),
                Err(error) if error.is_transient() => trouble = Some(error),
                Err(error) => self.refuse(name, &error),
            }
        }
        match trouble {
            // Nothing has answered: keep everything as it was.
            Some(error) if found.is_empty() => Err(error),
            trouble => {
                self.describe(found, at).await?;
                self.update_workers(at).await?;
                Ok(Collected { streams: self.snapshots(at), trouble })
            }
        }
    }

    /// Takes some steps of the walk over the names of all streams.
    async fn walk_on(&mut self) -> Result<(), Error> {
        // The names of partitions are longer than that of their logical stream, so every second walk looks for them.
        let (is_for_partitions, is_alternating) = (self.walk.number % 2 == 1, !self.pattern.ends_with('*'));
        let pattern = match is_alternating && is_for_partitions {
            true => &partitions_matching(&self.pattern),
            false => &self.pattern,
        };
        let page = self.admin.walk_streams(pattern, &self.walk.next, WALK_STEPS).await?;
        for name in page.names {
            match String::from_utf8(name.to_vec()) {
                Ok(name) if is_control_stream(&name) => continue,
                Ok(name) => self.names.insert(name, self.walk.number),
                Err(_) => self.unopenable.insert(name.escape_ascii().to_string(), self.walk.number),
            };
        }
        match page.next {
            Some(next) => self.walk.next = next,
            None => {
                let ended = self.walk.number;
                let is_gone = |found: &u64| *found + u64::from(is_alternating) < ended;
                self.unopenable.retain(|_, found| !is_gone(found));
                let gone = self.names.iter().filter(|(_, found)| is_gone(found));
                let gone: Vec<String> = gone.map(|(name, _)| name.clone()).collect();
                gone.iter().for_each(|name| self.forget(name));
                self.walk = Walk { number: ended + 1, ..Walk::default() };
            }
        }
        Ok(())
    }

    /// Returns the groups whose details to read: those in view, then those whose details are oldest.
    fn groups_in_turn(&self, in_view: &[RowKey]) -> Vec<(String, String)> {
        let viewed = in_view.iter().filter_map(|row| Some((&*row.stream, row.group.as_deref()?)));
        let behind = |(stream, group)| {
            let partitions = self.lists.get(stream).map_or_else(|| vec![stream], Partitions::names);
            partitions.into_iter().map(move |name| (name, group))
        };
        let viewed: HashSet<(&str, &str)> = viewed.flat_map(behind).collect();
        let mut viewed: Vec<(&str, &str)> = viewed.into_iter().collect();
        if viewed.len() > DETAILS_PER_LOOK {
            // They have their turn too.
            viewed.sort_by_cached_key(|(stream, group)| self.known.get(*stream)?.group(group)?.detail_at);
            viewed.truncate(DETAILS_PER_LOOK);
        }
        let viewed: HashSet<(&str, &str)> = viewed.into_iter().collect();
        let groups = self.known.values().flat_map(|stream| &stream.groups);
        let mut others: Vec<&GroupSnapshot> =
            groups.filter(|group| !viewed.contains(&(&*group.stream, &*group.name))).collect();
        let left = (DETAILS_PER_LOOK - viewed.len()).min(others.len());
        if left > 0 && left < others.len() {
            others.select_nth_unstable_by_key(left - 1, |group| group.detail_at);
        }
        let others = others[..left].iter().map(|group| (&*group.stream, &*group.name));
        viewed
            .into_iter()
            .chain(others)
            .map(|(stream, group)| (stream.to_owned(), group.to_owned()))
            .collect()
    }

    fn forget(&mut self, name: &str) {
        self.names.remove(name);
        self.known.remove(name);
        self.policies.remove(name);
    }

    /// Leaves out a stream that the user may not read, for a while, or a key that is no stream.
    fn refuse(&mut self, name: String, error: &Error) {
        self.forget(&name);
        if error.kind() != ErrorKind::WrongType {
            tracing::debug!(stream = name, %error, "the store refuses to describe a stream");
            self.refused.insert(name, Instant::now());
        }
    }

    async fn describe(&mut self, found: Vec<(String, StreamLook)>, at: SystemTime) -> Result<(), Error> {
        for (name, look) in &found {
            if let Some(policy) = &look.policy {
                self.policies.insert(name.clone(), policy.clone());
            }
        }
        let lengths = self.dead_letter_lengths(&found).await?;
        for (name, mut look) in found {
            let policy = self.policies.get(&name);
            let with_length = |name: String| {
                let length = lengths.get(&name).copied().unwrap_or(0);
                (name, length)
            };
            let streams = dead_letter_streams(&name, policy).into_iter().map(with_length).collect();
            let dead_letters = DeadLetters::known(streams, policy);
            let mut groups = Vec::with_capacity(look.groups.len());
            let before = self.known.remove(&name);
            for group in std::mem::take(&mut look.groups) {
                let before = before.as_ref().and_then(|before| before.group(&group.info.name));
                let mut group = self.group(&name, &look, group, before, at);
                (group.dead_letters, group.dead_letters_length) = dead_letters.of_group(&group.name);
                groups.push(group);
            }
            let mut stream = StreamSnapshot::of(&name, &look, dead_letters, at);
            stream.groups = groups;
            self.known.insert(name, stream);
        }
        Ok(())
    }

    fn group(
        &mut self,
        stream: &str,
        look: &StreamLook,
        group: GroupLook,
        before: Option<&GroupSnapshot>,
        at: SystemTime,
    ) -> GroupSnapshot {
        let mut snapshot = GroupSnapshot::without_detail(stream, look, &group.info, at);
        if let Some(before) = before {
            snapshot.keep_detail(before, self.counts_missed);
        }
        match group.detail {
            Some(Ok(detail)) => {
                self.counts_missed |= detail.missed.is_some();
                snapshot.add_detail(detail, PENDING_ROWS, &self.stuck);
            }
            // The next attempt is due when all others have had their turn.
            Some(Err(error)) => {
                tracing::debug!(stream, group = group.info.name, %error, "the store refuses the details of a group");
                snapshot.detail_at = Some(at);
            }
            None => {}
        }
        snapshot
    }

    /// Returns the lengths of dead-letter streams. Most are among the streams that this look has found.
    async fn dead_letter_lengths(
        &self,
        found: &[(String, StreamLook)],
    ) -> Result<HashMap<String, u64>, Error> {
        let before = self.known.iter().map(|(name, stream)| (name.clone(), stream.info.length));
        let mut lengths: HashMap<String, u64> = before.collect();
        lengths.extend(found.iter().map(|(name, look)| (name.clone(), look.length)));
        if self.pattern == "*" {
            return Ok(lengths);
        }
        let named = found.iter().flat_map(|(name, _)| dead_letter_streams(name, self.policies.get(name)));
        let missing: BTreeSet<String> = named.filter(|name| !lengths.contains_key(name)).collect();
        let missing: Vec<String> = missing.into_iter().collect();
        let counted = self.admin.lengths(&missing).await?;
        lengths.extend(missing.into_iter().zip(counted).map(|(name, length)| (name, length.unwrap_or(0))));
        Ok(lengths)
    }

    /// Reads the heartbeats of the groups of logical streams, if this look has read the details of a partition.
    async fn update_workers(&mut self, at: SystemTime) -> Result<(), Error> {
        if self.lists.all().next().is_none() {
            self.workers.clear();
            return Ok(());
        }
        let all = logical_groups(self.known.values(), &self.lists, |_| true);
        self.workers.retain(|group, _| all.contains(group));
        let groups = logical_groups(self.known.values(), &self.lists, |group| group.detail_at == Some(at));
        self.workers.extend(read_workers(&self.admin, groups).await?);
        Ok(())
    }

    fn snapshots(&self, at: SystemTime) -> Vec<StreamSnapshot> {
        let unopenable = self.unopenable.keys().map(|name| StreamSnapshot::unopenable(name, at));
        let streams = self.known.values().cloned().chain(unopenable).collect();
        fold(streams, &self.lists, &self.workers, at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::{Embedded, Read, Start};
    use crate::names::dead_letters_of;
    use crate::producer::Producer;

    async fn groups(streams: usize, groups: usize) -> Arc<dyn Admin> {
        let backend: Arc<dyn Admin> = Arc::new(Embedded::in_memory());
        for stream in 0..streams {
            let stream = format!("s{stream:03}");
            for group in 0..groups {
                backend.create_group(&stream, &format!("g{group}"), Start::Beginning).await.unwrap();
            }
            Producer::new(backend.clone(), stream).send([("n", "1")]).await.unwrap();
        }
        backend
    }

    fn detailed(collected: &Collected) -> usize {
        let groups = collected.streams.iter().flat_map(|stream| &stream.groups);
        groups.filter(|group| group.detail_at.is_some()).count()
    }

    #[tokio::test]
    async fn all_groups_get_their_turn_and_those_in_view_every_time() {
        let mut collector = Collector::new(groups(50, 10).await, "*".to_owned());
        let in_view = [RowKey::group("s049", "g9")];
        assert_eq!(
            detailed(&collector.collect(&in_view).await.unwrap()),
            1,
            "only the group in view is known"
        );
        let counts = [200, 399, 500];
        let mut last = None;
        for count in counts {
            let collected = collector.collect(&in_view).await.unwrap();
            assert_eq!(detailed(&collected), count.max(1));
            let streams = &collected.streams;
            let viewed = streams.iter().find(|stream| stream.name == "s049").unwrap().group("g9").unwrap();
            assert!(viewed.detail_at > last, "the group in view was not read again");
            last = viewed.detail_at;
        }
    }

    #[tokio::test]
    async fn a_group_keeps_the_details_of_an_earlier_look() {
        let backend = groups(30, 10).await;
        let read = |count| Read {
            stream: "s000",
            group: "g0",
            consumer: "one",
            count,
            block: None,
            claim_idle: None,
        };
        backend.read(&read(1)).await.unwrap();
        Producer::new(backend.clone(), "s000").send([("n", "2")]).await.unwrap();
        Producer::new(backend.clone(), dead_letters_of("s000")).send([("n", "2")]).await.unwrap();
        let mut collector = Collector::new(backend.clone(), "*".to_owned());
        let key = RowKey::group("s000", "g0");
        collector.collect(std::slice::from_ref(&key)).await.unwrap();
        let group = |collected: Collected| {
            let mut streams = collected.streams.into_iter();
            streams.find(|stream| stream.name == "s000").unwrap().group("g0").unwrap().clone()
        };
        let before = group(collector.collect(&[key]).await.unwrap());
        assert_eq!((before.consumers.len(), before.scan.scanned, before.lag.count), (1, 1, 1));
        assert!(before.oldest_unread.is_some() && before.oldest_pending.is_some());
        assert_eq!(before.dead_letters_length, 1);
        // Only others have their turn.
        let others: Vec<RowKey> = (1..30)
            .flat_map(|s| (0..10).map(move |g| RowKey::group(format!("s{s:03}"), format!("g{g}"))))
            .collect();
        let kept = group(collector.collect(&others).await.unwrap());
        assert_eq!((kept.detail_at, kept.consumers.len()), (before.detail_at, 1));
        backend.read(&read(1)).await.unwrap();
        let read_on = group(collector.collect(&others).await.unwrap());
        assert_eq!((read_on.oldest_unread, read_on.lag.count, read_on.pending), (None, 0, 2));
        assert!(read_on.oldest_pending.is_some());
    }

    #[tokio::test]
    async fn deleted_streams_disappear_and_a_pattern_counts_its_dead_letters() {
        let backend = groups(3, 1).await;
        Producer::new(backend.clone(), dead_letters_of("s001")).send([("n", "2")]).await.unwrap();
        let mut collector = Collector::new(backend.clone(), "s*".to_owned());
        let collected = collector.collect(&[]).await.unwrap();
        let dead: Vec<u64> = {
            let mut streams: Vec<_> = collected.streams.iter().collect();
            streams.sort_by(|a, b| a.name.cmp(&b.name));
            streams.iter().map(|stream| stream.dead_letters_length).collect()
        };
        assert_eq!(dead, [0, 1, 0]);
        backend.delete_stream("s001").await.unwrap();
        assert_eq!(collector.collect(&[]).await.unwrap().streams.len(), 2);
    }
}
