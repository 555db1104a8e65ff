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
    times: DbKeyMap<u64>,
}

impl Schedule {
    /// Sets when a stream has something to do, in Unix milliseconds; `None` removes it. Returns whether it has to do
    /// something earlier than all streams before.
    pub(crate) fn set(&mut self, db: u32, key: &[u8], at_ms: Option<u64>) -> bool {
        let place = DbKeyRef { db, key };
        if self.times.get(&place).copied() == at_ms {
            return false;
        }
        let earliest_ms = self.earliest_ms();
        if let Some((place, before_ms)) = self.times.remove_entry(&place) {
            self.by_time.remove(&(before_ms, place));
        }
        if let Some(at_ms) = at_ms {
            self.by_time.insert((at_ms, place.into()));
            self.times.insert(place.into(), at_ms);
        }
        at_ms.is_some_and(|at_ms| earliest_ms.is_none_or(|earliest_ms| at_ms < earliest_ms))
    }

    /// Returns the earliest time of a stream, in Unix milliseconds.
    pub(crate) fn earliest_ms(&self) -> Option<u64> {
        self.by_time.first().map(|(at_ms, _)| *at_ms)
    }

    /// Returns the stream with the earliest time, if that time has come.
    pub(crate) fn due(&self, now_ms: u64) -> Option<DbKey> {
        self.by_time.first().filter(|(at_ms, _)| *at_ms <= now_ms).map(|(_, place)| place.clone())
    }

    /// Returns the streams that have something to do.
    pub(crate) fn streams(&self) -> impl Iterator<Item = &DbKey> {
        self.times.keys()
    }

    /// Exchanges the streams of two databases.
    pub(crate) fn swap(&mut self, a: u32, b: u32) {
        let swapped = |db| match db {
            db if db == a => b,
            db if db == b => a,
            db => db,
        };
        let move_to = |(at_ms, place): (u64, DbKey)| (at_ms, DbKey { db: swapped(place.db), ..place });
        self.by_time = std::mem::take(&mut self.by_time).into_iter().map(move_to).collect();
        self.times = self.by_time.iter().map(|(at_ms, place)| (place.clone(), *at_ms)).collect();
    }

    /// Removes all streams of a database.
    pub(crate) fn clear(&mut self, db: u32) {
        self.by_time.retain(|(_, place)| place.db != db);
        self.times.retain(|place, _| place.db != db);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn due(schedule: &Schedule, now_ms: u64) -> Option<(u32, Vec<u8>)> {
        schedule.due(now_ms).map(|place| (place.db, place.key.into_vec()))
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
}
