//! Planted mistakes: code around the product that makes a mistake, which the model must notice.

use std::panic::{AssertUnwindSafe, catch_unwind};

use millstream_engine::{Effect, StreamEffect};

use super::naive::Place;
use super::{DATABASES, History, NaiveKey};
use crate::clock::Clock;

/// Number of seeds within which a mistake must be noticed.
const SEEDS_PER_MISTAKE: u64 = 60;

/// A mistake that a store with policies could make.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Mistake {
    DueOneMillisecondLate,
    DueTimeCountsAsClock,
    ScheduleNotRebuilt,
    EarlierEntryNotScheduled,
    ScheduleLeftBehind,
    ConsumerRemovedWithRows,
    TrimmedPastUnread,
    ReadersOutOfLine,
}

impl Mistake {
    pub(crate) const ALL: [Mistake; 8] = [
        Mistake::DueOneMillisecondLate,
        Mistake::DueTimeCountsAsClock,
        Mistake::ScheduleNotRebuilt,
        Mistake::EarlierEntryNotScheduled,
        Mistake::ScheduleLeftBehind,
        Mistake::ConsumerRemovedWithRows,
        Mistake::TrimmedPastUnread,
        Mistake::ReadersOutOfLine,
    ];

    /// Describes the mistake for docs/planted-bugs.md.
    pub(crate) fn text(self) -> &'static str {
        match self {
            Mistake::DueOneMillisecondLate => "an entry counts as due one millisecond after its time",
            Mistake::DueTimeCountsAsClock => "recovery takes the due time of an entry for the current time",
            Mistake::ScheduleNotRebuilt => "a restart forgets when streams have something to do",
            Mistake::EarlierEntryNotScheduled => {
                "an entry that is due earlier than all others does not move the next time of its stream"
            }
            Mistake::ScheduleLeftBehind => "RENAME, COPY and SWAPDB leave the times of streams behind",
            Mistake::ConsumerRemovedWithRows => "CONSUMERTTL removes a consumer that has pending entries",
            Mistake::TrimmedPastUnread => "ACKEDAGE removes an entry that a group has not acknowledged",
            Mistake::ReadersOutOfLine => "a blocked reader is served before one that came earlier",
        }
    }
}

impl History {
    fn has(&self, mistake: Mistake) -> bool {
        self.mistake == Some(mistake)
    }

    /// The timekeeper is about to work. Returns whether it does.
    pub(super) fn before_duties(&self) -> bool {
        let now_ms = self.now_ms();
        if self.has(Mistake::DueOneMillisecondLate) {
            let is_due = |key: &NaiveKey| key.stream.delayed.keys().any(|ticket| ticket.ms == now_ms);
            return !self.keys.values().any(is_due);
        }
        for (place, NaiveKey { stream, .. }) in &self.keys {
            let exists = self.txn(place).exists(&place.1);
            if self.has(Mistake::ConsumerRemovedWithRows) && exists {
                let has_ttl =
                    |name: &[u8]| stream.rules(name).is_some_and(|rules| rules.consumer_ttl_ms.is_some());
                for (group, state) in stream.groups.iter().filter(|(name, _)| has_ttl(name)) {
                    if let Some(consumer) = state.rows.values().find_map(|row| row.owner.as_deref()) {
                        self.apply(place, StreamEffect::ConsumerDelete { group, consumer });
                    }
                }
            }
            let unread = stream.entries.keys().next().filter(|id| !stream.is_done(**id));
            if self.has(Mistake::TrimmedPastUnread) && exists && stream.policy.acked_age_ms.is_some() {
                unread.into_iter().for_each(|last| {
                    self.apply(place, StreamEffect::TrimThrough { last: *last });
                });
            }
        }
        true
    }

    /// The store was opened.
    pub(super) fn after_open(&self) {
        if self.has(Mistake::DueTimeCountsAsClock) {
            let due = self.keys.values().filter_map(|key| key.stream.delayed.keys().next_back());
            due.for_each(|ticket| self.clock.advance_to(ticket.ms));
        }
        if self.has(Mistake::ScheduleNotRebuilt) {
            for shard in 0..self.store.shard_count() {
                (0..DATABASES).for_each(|db| self.store.shard(shard).lock().schedule.clear(db));
            }
        }
    }

    /// Returns when the timekeeper looks at a stream.
    pub(super) fn scheduled_ms(&self, place: &Place) -> Option<u64> {
        self.store.shard(self.store.shard_of(&place.1)).lock().schedule.time_of(place.0, &place.1)
    }

    fn schedule(&self, place: &Place, at_ms: Option<u64>) {
        self.store.shard(self.store.shard_of(&place.1)).lock().schedule.set(place.0, &place.1, at_ms);
    }

    /// An entry was delayed. The stream was scheduled at this time before.
    pub(super) fn after_delay(&self, place: &Place, scheduled_ms: Option<u64>) {
        if self.has(Mistake::EarlierEntryNotScheduled) && scheduled_ms.is_some() {
            self.schedule(place, scheduled_ms);
        }
    }

    /// Keys were moved or copied. These streams have other places now.
    pub(super) fn after_rearrangement(&self, moved: &[Place]) {
        if self.has(Mistake::ScheduleLeftBehind) {
            moved.iter().for_each(|place| self.schedule(place, None));
        }
    }

    /// Returns whether a blocked reader that can be served lets the next one go first.
    pub(super) fn readers_step_back(&self) -> bool {
        self.has(Mistake::ReadersOutOfLine)
    }

    fn apply(&self, place: &Place, effect: StreamEffect<'_>) {
        self.txn(place).apply(&place.1, &Effect::Stream(effect));
    }
}

/// Returns the first seed with which the model notices the mistake.
fn noticed(mistake: Mistake) -> Option<u64> {
    let is_noticed =
        |seed: &u64| catch_unwind(AssertUnwindSafe(|| History::new(*seed, Some(mistake)).run())).is_err();
    (1..=SEEDS_PER_MISTAKE).find(is_noticed)
}

#[test]
fn planted_mistakes_are_noticed() {
    for mistake in Mistake::ALL {
        let seed = noticed(mistake);
        println!("{mistake:?}: seed {seed:?}");
        assert!(seed.is_some(), "{mistake:?} is not noticed with {SEEDS_PER_MISTAKE} seeds");
    }
}
