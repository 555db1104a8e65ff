//! The schedule of a shard: when each of its streams has something to do without a request.
//!
//! A time in the schedule is never later than the stream's next duty, and can be earlier. At that time the timekeeper
//! looks at the stream, does what is due and asks the stream for the next time. So commands that make a duty later, or
//! end it, need not touch the schedule.

use std::collections::{BTreeMap, BTreeSet};

use hashbrown::HashMap;

use crate::dbkey::{DbKey, DbKeyRef};
use crate::secret::SecretState;

/// Number of streams of a cleared database that one step frees.
const FREED_STREAMS: usize = 1000;

/// The streams of a shard that have duties, by time. Those of each database are kept apart, so that a database is
/// cleared or swapped without a visit to each stream.
#[derive(Default)]
pub(crate) struct Schedule {
    databases: BTreeMap<u32, Streams>,
    /// The streams of databases that were cleared. The timekeeper frees them in steps.
    cleared: Vec<Streams>,
}

#[derive(Default)]
struct Streams {
    by_time: BTreeSet<(u64, Box<[u8]>)>,
    times: HashMap<Box<[u8]>, ScheduledTime, SecretState>,
}

/// The times of a stream, in Unix milliseconds, and how far the timekeeper has come with its duties.
#[derive(Clone, PartialEq, Eq)]
struct ScheduledTime {
    /// When the timekeeper looks at the stream.
    at_ms: u64,
    /// Since when it has something to do: `at_ms`, or earlier if it takes several turns.
    since_ms: u64,
    progress: DutyProgress,
}

/// How far the searches of a stream's duties have come. A stream with many groups or consumers takes several turns.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct DutyProgress {
    pub(crate) dead_letters: GroupSearch,
    pub(crate) idle_consumers: ConsumerSearch,
}

/// How far a search for idle consumers has come.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ConsumerSearch {
    /// The search continues in the group with this name. `None`: it begins with the first group.
    pub(crate) group: Option<Box<[u8]>>,
    /// It continues after the consumer with this name. `None`: it begins with the first consumer of the group.
    pub(crate) consumer: Option<Box<[u8]>>,
    /// Whether the search has visited all consumers.
    pub(crate) is_done: bool,
}

/// How far a search for groups with dead letters has come.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct GroupSearch {
    /// The search continues after the group with this name. `None`: it begins with the first group.
    pub(crate) after: Option<Box<[u8]>>,
    /// Whether a group had dead letters since the search began with the first group.
    pub(crate) has_found: bool,
}

pub(crate) struct DueStream {
    pub(crate) place: DbKey,
    pub(crate) since_ms: u64,
    /// How far the last turn of the stream has come.
    pub(crate) progress: DutyProgress,
}

impl Schedule {
    /// Sets when a stream has something to do, in Unix milliseconds; `None` removes it. Returns whether this time is
    /// earlier than all times that the schedule had before.
    pub(crate) fn set(&mut self, db: u32, key: &[u8], at_ms: Option<u64>) -> bool {
        self.put(
            DbKeyRef { db, key },
            at_ms.map(|at_ms| ScheduledTime { at_ms, since_ms: at_ms, progress: DutyProgress::default() }),
        )
    }

    /// Lets a stream that has more to do take its next turn at this time, in Unix milliseconds.
    pub(crate) fn set_next_turn(&mut self, db: u32, key: &[u8], at_ms: u64, progress: DutyProgress) {
        let before = self.databases.get(&db).and_then(|streams| streams.times.get(key));
        if let Some(since_ms) = before.map(|before| before.since_ms) {
            self.put(DbKeyRef { db, key }, Some(ScheduledTime { at_ms, since_ms, progress }));
        }
    }

    fn put(&mut self, DbKeyRef { db, key }: DbKeyRef<'_>, time: Option<ScheduledTime>) -> bool {
        let earliest_ms = self.earliest_ms();
        let streams = self.databases.entry(db).or_default();
        if streams.times.get(key) == time.as_ref() {
            return false;
        }
        if let Some((key, before)) = streams.times.remove_entry(key) {
            streams.by_time.remove(&(before.at_ms, key));
        }
        let Some(time) = time else { return false };
        let at_ms = time.at_ms;
        streams.by_time.insert((at_ms, key.into()));
        streams.times.insert(key.into(), time);
        earliest_ms.is_none_or(|earliest_ms| at_ms < earliest_ms)
    }

    pub(crate) fn time_of(&self, db: u32, key: &[u8]) -> Option<u64> {
        self.databases.get(&db)?.times.get(key).map(|time| time.at_ms)
    }

    pub(crate) fn earliest_ms(&self) -> Option<u64> {
        self.databases.values().filter_map(|streams| Some(streams.by_time.first()?.0)).min()
    }

    /// Returns the stream with the earliest time, if that time has come.
    pub(crate) fn due(&self, now_ms: u64) -> Option<DueStream> {
        let firsts = self.databases.iter().filter_map(|(db, streams)| Some((streams.by_time.first()?, *db)));
        let ((_, key), db) = firsts.min().filter(|((at_ms, _), _)| *at_ms <= now_ms)?;
        let ScheduledTime { since_ms, progress, .. } = self.databases.get(&db)?.times.get(key)?.clone();
        Some(DueStream { place: DbKey { db, key: key.clone() }, since_ms, progress })
    }

    pub(crate) fn swap(&mut self, a: u32, b: u32) {
        let [of_a, of_b] = [a, b].map(|db| self.databases.remove(&db));
        self.databases.extend(of_a.map(|streams| (b, streams)));
        self.databases.extend(of_b.map(|streams| (a, streams)));
    }

    pub(crate) fn clear(&mut self, db: u32) {
        self.cleared.extend(self.databases.remove(&db));
    }

    /// Frees some of the streams of databases that were cleared. Returns whether there are more.
    pub(crate) fn free_some(&mut self) -> bool {
        let Some(streams) = self.cleared.last_mut() else { return false };
        for _ in 0..FREED_STREAMS {
            let Some((_, key)) = streams.by_time.pop_first() else {
                self.cleared.pop();
                break;
            };
            streams.times.remove(&key);
        }
        !self.cleared.is_empty()
    }
}

/// Returns the phase of a stream: the timekeeper looks at streams with different phases at different times.
pub(crate) fn phase_of(key: &[u8]) -> u64 {
    crc32fast::hash(key).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn due(schedule: &Schedule, now_ms: u64) -> Option<(u32, Vec<u8>)> {
        schedule.due(now_ms).map(|due| (due.place.db, due.place.key.into_vec()))
    }

    #[test]
    fn a_stream_is_due_at_its_time_wherever_it_was_moved() {
        let mut schedule = Schedule::default();
        assert!(schedule.set(0, b"a", Some(20)) && schedule.set(1, b"b", Some(10)));
        assert!(!schedule.set(1, b"b", Some(10)) && !schedule.set(0, b"a", Some(30)));
        assert_eq!((due(&schedule, 9), due(&schedule, 10)), (None, Some((1, b"b".to_vec()))));
        schedule.set(0, b"a", Some(5));
        assert_eq!((due(&schedule, 9), schedule.earliest_ms()), (Some((0, b"a".to_vec())), Some(5)));
        schedule.swap(0, 1);
        assert_eq!(due(&schedule, 9), Some((1, b"a".to_vec())));
        schedule.set(1, b"a", None);
        assert_eq!(due(&schedule, 10), Some((0, b"b".to_vec())));
        schedule.clear(0);
        let is_empty = schedule.databases.values().all(|streams| streams.times.is_empty());
        assert_eq!((schedule.earliest_ms(), is_empty), (None, true));
        while schedule.free_some() {}
        assert!(schedule.cleared.is_empty());
        (0..=FREED_STREAMS).for_each(|at| _ = schedule.set(0, at.to_string().as_bytes(), Some(7)));
        schedule.clear(0);
        assert_eq!([schedule.free_some(), schedule.free_some()], [true, false]);
    }

    #[test]
    fn a_stream_with_more_to_do_takes_turns_and_keeps_its_time() {
        let mut schedule = Schedule::default();
        schedule.set(0, b"a", Some(10));
        schedule.set(0, b"b", Some(12));
        let due = |schedule: &Schedule| schedule.due(20).map(|due| (due.since_ms, due.place.key.into_vec()));
        assert_eq!(due(&schedule), Some((10, b"a".to_vec())));
        let dead_letters = GroupSearch { after: Some(b"group"[..].into()), has_found: true };
        let progress = DutyProgress { dead_letters, ..DutyProgress::default() };
        schedule.set_next_turn(0, b"a", 20, progress.clone());
        assert_eq!(due(&schedule), Some((12, b"b".to_vec())));
        schedule.set(0, b"b", None);
        schedule.swap(0, 1);
        assert_eq!((due(&schedule), schedule.time_of(1, b"a")), (Some((10, b"a".to_vec())), Some(20)));
        assert_eq!(schedule.due(20).unwrap().progress, progress);
        schedule.set_next_turn(1, b"b", 20, progress);
        assert_eq!(schedule.time_of(1, b"b"), None);
    }
}
