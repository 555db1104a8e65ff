//! The schedule of a shard: when each of its streams has something to do without a request.
//!
//! A time in the schedule is never later than the stream's next duty, and can be earlier. At that time the timekeeper
//! looks at the stream, does what is due and asks the stream for the next time. So commands that make a duty later, or
//! end it, need not touch the schedule.

use std::collections::BTreeSet;

use crate::dbkey::{DbKey, DbKeyMap, DbKeyRef};

/// The streams of a shard that have duties, by time.
#[derive(Default)]
pub(crate) struct Schedule {
    by_time: BTreeSet<(u64, DbKey)>,
    times: DbKeyMap<ScheduledTime>,
}

/// The times of a stream, in Unix milliseconds, and how far the timekeeper has come with its duties.
#[derive(Clone, PartialEq, Eq)]
struct ScheduledTime {
    /// When the timekeeper looks at the stream.
    at_ms: u64,
    /// Since when it has something to do: `at_ms`, or earlier if it takes several turns.
    since_ms: u64,
    search: GroupSearch,
}

/// How far a search for groups with dead letters has come. A stream with many groups takes several turns.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct GroupSearch {
    /// The search continues after the group with this name. `None`: it begins with the first group.
    pub(crate) after: Option<Box<[u8]>>,
    /// Whether a group had dead letters since the search began with the first group.
    pub(crate) has_found: bool,
}

/// A stream whose time has come.
pub(crate) struct DueStream {
    /// The stream.
    pub(crate) place: DbKey,
    /// Since when it has something to do, in Unix milliseconds.
    pub(crate) since_ms: u64,
    /// How far the last turn of the stream has come.
    pub(crate) search: GroupSearch,
}

impl Schedule {
    /// Sets when a stream has something to do, in Unix milliseconds; `None` removes it. Returns whether this time is
    /// earlier than all times that the schedule had before.
    pub(crate) fn set(&mut self, db: u32, key: &[u8], at_ms: Option<u64>) -> bool {
        self.put(
            DbKeyRef { db, key },
            at_ms.map(|at_ms| ScheduledTime { at_ms, since_ms: at_ms, search: GroupSearch::default() }),
        )
    }

    /// Lets a stream that has more to do take its next turn at this time, in Unix milliseconds.
    pub(crate) fn set_next_turn(&mut self, db: u32, key: &[u8], at_ms: u64, search: GroupSearch) {
        let place = DbKeyRef { db, key };
        if let Some(since_ms) = self.times.get(&place).map(|before| before.since_ms) {
            self.put(place, Some(ScheduledTime { at_ms, since_ms, search }));
        }
    }

    fn put(&mut self, place: DbKeyRef<'_>, time: Option<ScheduledTime>) -> bool {
        if self.times.get(&place) == time.as_ref() {
            return false;
        }
        let earliest_ms = self.earliest_ms();
        if let Some((place, before)) = self.times.remove_entry(&place) {
            self.by_time.remove(&(before.at_ms, place));
        }
        let Some(time) = time else { return false };
        let at_ms = time.at_ms;
        self.by_time.insert((at_ms, place.into()));
        self.times.insert(place.into(), time);
        earliest_ms.is_none_or(|earliest_ms| at_ms < earliest_ms)
    }

    /// Returns when the timekeeper looks at a stream, in Unix milliseconds.
    pub(crate) fn time_of(&self, db: u32, key: &[u8]) -> Option<u64> {
        self.times.get(&DbKeyRef { db, key }).map(|time| time.at_ms)
    }

    /// Returns the earliest time of a stream, in Unix milliseconds.
    pub(crate) fn earliest_ms(&self) -> Option<u64> {
        self.by_time.first().map(|(at_ms, _)| *at_ms)
    }

    /// Returns the stream with the earliest time, if that time has come.
    pub(crate) fn due(&self, now_ms: u64) -> Option<DueStream> {
        let (_, place) = self.by_time.first().filter(|(at_ms, _)| *at_ms <= now_ms)?;
        let ScheduledTime { since_ms, search, .. } = self.times.get(place)?.clone();
        Some(DueStream { place: place.clone(), since_ms, search })
    }

    /// Exchanges the streams of two databases.
    pub(crate) fn swap(&mut self, a: u32, b: u32) {
        let swapped = |db| match db {
            db if db == a => b,
            db if db == b => a,
            db => db,
        };
        let move_to = |place: DbKey| DbKey { db: swapped(place.db), ..place };
        let by_time = std::mem::take(&mut self.by_time).into_iter();
        self.by_time = by_time.map(|(at_ms, place)| (at_ms, move_to(place))).collect();
        let times = std::mem::take(&mut self.times).into_iter();
        self.times = times.map(|(place, time)| (move_to(place), time)).collect();
    }

    /// Removes all streams of a database.
    pub(crate) fn clear(&mut self, db: u32) {
        self.by_time.retain(|(_, place)| place.db != db);
        self.times.retain(|place, _| place.db != db);
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
        assert_eq!((schedule.earliest_ms(), schedule.times.len()), (None, 0));
    }

    #[test]
    fn a_stream_with_more_to_do_takes_turns_and_keeps_its_time() {
        let mut schedule = Schedule::default();
        schedule.set(0, b"a", Some(10));
        schedule.set(0, b"b", Some(12));
        let due = |schedule: &Schedule| schedule.due(20).map(|due| (due.since_ms, due.place.key.into_vec()));
        assert_eq!(due(&schedule), Some((10, b"a".to_vec())));
        let search = GroupSearch { after: Some(b"group"[..].into()), has_found: true };
        schedule.set_next_turn(0, b"a", 20, search.clone());
        assert_eq!(due(&schedule), Some((12, b"b".to_vec())));
        schedule.set(0, b"b", None);
        schedule.swap(0, 1);
        assert_eq!((due(&schedule), schedule.time_of(1, b"a")), (Some((10, b"a".to_vec())), Some(20)));
        assert_eq!(schedule.due(20).unwrap().search, search);
        schedule.set_next_turn(1, b"b", 20, search);
        assert_eq!(schedule.time_of(1, b"b"), None);
    }
}
