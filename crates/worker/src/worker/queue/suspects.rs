//! Suspects: messages that were in hand when their worker died, was frozen, or lost its lease. One of them may crash
//! workers. These are the rules by which workers find it: pure functions.
//!
//! **The promise.** A message that crashes every worker that handles it becomes a dead letter after as many crashes as
//! there may be deliveries, at least two. No other message becomes one because of it. All others are handled meanwhile.
//!
//! Three things keep the promise:
//!
//! 1. Before a handler begins with a suspect, the worker writes this to the record of the message. Only an answer
//!    removes it. So the number of unanswered beginnings is known after a crash. A message that was only read ahead has
//!    none.
//! 2. The level of a suspect is 2 plus this number. The higher the level, the fewer suspects run at the same time. So
//!    each crash leaves fewer suspects of the next level.
//! 3. At the two highest levels, a suspect runs alone: no other handler of the process runs. With a low limit it runs
//!    alone only at the highest level. Only a message whose worker died while it ran alone at the highest level is
//!    dead-lettered. A worker can also be killed for another reason at that moment; so two of them must have died.
//!
//! ```text
//! 1,000 messages at a time, limit of 5 deliveries        level  2    3    4      5
//!                                           suspects at a time  100  10   alone  alone
//! ```

use crate::retry_record::RetryRecord;

/// The level of a message that is suspect for the first time.
const FIRST_LEVEL: u64 = 2;

/// Lowest delivery limit with which two workers must die while a suspect runs alone. With a lower limit, there are not
/// enough levels to find the message that kills workers among many suspects.
const ALONE_TWICE_LIMIT_MIN: u64 = 5;

/// Decides about suspects, from the delivery limit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SuspectRules {
    /// The first level at which a suspect runs alone.
    alone_from: u64,
    /// The level at which a suspect is dead-lettered if its worker dies.
    highest: u64,
}

/// The decision about a message that was claimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Every earlier delivery was answered or released.
    Clear,
    /// Its worker may have died because of it. The number is its level.
    Suspect(u64),
    /// Its worker died while it ran alone.
    Guilty,
}

impl SuspectRules {
    /// Returns the rules for this delivery limit. With a limit of 1, a message that was in hand when its worker died
    /// is still delivered once more, alone: otherwise the messages around it would be dead-lettered with it.
    pub(crate) fn new(max_deliveries: u64) -> SuspectRules {
        let highest = max_deliveries.max(FIRST_LEVEL);
        let alone_from = if highest >= ALONE_TWICE_LIMIT_MIN { highest - 1 } else { highest };
        SuspectRules { alone_from, highest }
    }

    /// Decides about a message with this delivery count and this record.
    pub(crate) fn judge(self, delivery: u64, record: Option<&RetryRecord>) -> Verdict {
        if delivery < 2 {
            return Verdict::Clear;
        }
        let (begun, alone) = record.map_or((0, false), |record| (record.begun, record.alone));
        if alone && begun.saturating_add(1) >= self.highest {
            return Verdict::Guilty;
        }
        Verdict::Suspect(begun.saturating_add(FIRST_LEVEL))
    }

    /// Records that a handler begins with a suspect of this level, in the delivery with this count.
    pub(crate) fn begin(self, record: &mut RetryRecord, level: u64, delivery: u64) {
        record.begun = record.begun.saturating_add(1);
        record.begun_delivery = delivery;
        record.alone = self.runs_alone(level);
    }

    pub(crate) fn runs_alone(self, level: u64) -> bool {
        level >= self.alone_from
    }

    /// Returns how many suspects run at the same time if the highest of their levels is this one, in a worker that
    /// handles `width` messages at the same time.
    pub(crate) fn limit(self, level: u64, width: usize) -> usize {
        let steps_left = self.alone_from.saturating_sub(level) as f64;
        let share = steps_left / (self.alone_from - 1) as f64;
        // The power of a whole number can be slightly too large, and would be rounded up to the next number.
        ((width as f64).powf(share) - 1e-9).ceil().max(1.0) as usize
    }
}

/// Corrects the record of a message whose last delivery was released: a handler had begun with it, but its worker
/// did not die. It may have drained. Returns whether the record has changed.
///
/// A delivery that was released has the same count as the next one.
pub(crate) fn forget_given_back(record: &mut RetryRecord, delivery: u64) -> bool {
    let was_given_back = record.begun > 0 && record.begun_delivery >= delivery;
    if was_given_back {
        record.begun -= 1;
        (record.begun_delivery, record.alone) = (0, false);
    }
    was_given_back
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(begun: u64, alone: bool) -> RetryRecord {
        RetryRecord { begun, alone, ..RetryRecord::default() }
    }

    #[test]
    fn a_message_in_hand_of_a_dead_worker_is_a_suspect() {
        let suspects = SuspectRules::new(5);
        assert_eq!(suspects.judge(1, None), Verdict::Clear);
        assert_eq!(suspects.judge(1, Some(&record(4, true))), Verdict::Clear, "the delivery was released");
        assert_eq!(suspects.judge(2, None), Verdict::Suspect(2));
        assert_eq!(suspects.judge(99, None), Verdict::Suspect(2), "it was only read ahead");
        assert_eq!(suspects.judge(3, Some(&record(1, false))), Verdict::Suspect(3));
        assert_eq!(suspects.judge(5, Some(&record(4, false))), Verdict::Suspect(6), "it was never alone");
        assert_eq!(suspects.judge(2, Some(&record(4, true))), Verdict::Guilty);
    }

    #[test]
    fn a_message_that_always_crashes_its_worker_has_max_deliveries() {
        for (max_deliveries, deliveries) in [(1, 2), (2, 2), (3, 3), (4, 4), (5, 5), (8, 8)] {
            let suspects = SuspectRules::new(max_deliveries);
            let (mut begun, mut alone, mut alone_times, mut delivery) = (0, false, 0, 1);
            while let Verdict::Suspect(level) = suspects.judge(delivery + 1, Some(&record(begun, alone))) {
                (begun, alone) = (begun + 1, suspects.runs_alone(level));
                alone_times += u64::from(alone);
                delivery += 1;
            }
            assert_eq!(delivery, deliveries, "limit {max_deliveries}");
            assert_eq!(alone_times, if max_deliveries >= ALONE_TWICE_LIMIT_MIN { 2 } else { 1 });
        }
    }

    #[test]
    fn a_delivery_that_was_given_back_is_no_evidence() {
        let suspects = SuspectRules::new(2);
        let mut begun = RetryRecord::default();
        suspects.begin(&mut begun, 2, 7);
        assert_eq!((begun.begun, begun.begun_delivery, begun.alone), (1, 7, true));
        assert_eq!(suspects.judge(8, Some(&begun)), Verdict::Guilty);
        assert!(!forget_given_back(&mut begun.clone(), 8), "the worker died");
        assert!(forget_given_back(&mut begun, 7));
        assert_eq!(begun, RetryRecord::default());
        assert_eq!(suspects.judge(7, Some(&begun)), Verdict::Suspect(2));
        assert!(!forget_given_back(&mut begun, 7));
    }

    #[test]
    fn fewer_suspects_run_at_the_same_time_at_higher_levels() {
        let limits = |max_deliveries, width| {
            let suspects = SuspectRules::new(max_deliveries);
            (2..=suspects.highest + 1).map(move |level| suspects.limit(level, width)).collect::<Vec<_>>()
        };
        assert_eq!(limits(8, 1000), [317, 100, 32, 10, 4, 1, 1, 1]);
        assert_eq!(limits(5, 1000), [100, 10, 1, 1, 1]);
        assert_eq!(limits(5, 8), [4, 2, 1, 1, 1]);
        assert_eq!(limits(4, 1000), [100, 10, 1, 1]);
        assert_eq!(limits(3, 16), [4, 1, 1]);
        assert_eq!(limits(2, 1000), [1, 1]);
        assert_eq!(limits(1, 1000), [1, 1]);
        assert_eq!(limits(4, 1), [1, 1, 1, 1]);
        assert!(SuspectRules::new(u64::MAX).limit(2, 1000) <= 1000);
    }

    /// One of 1,000 messages in hand crashes its worker. Counts the rounds in which handlers of the same duration run
    /// until every message but that one is done.
    fn rounds(max_deliveries: u64, width: usize, culprit: usize) -> usize {
        let suspects = SuspectRules::new(max_deliveries);
        let mut waiting: Vec<(usize, u64, bool)> = (0..width).map(|message| (message, 0, false)).collect();
        for round in 0.. {
            let level = |(_, begun, _): &(usize, u64, bool)| begun + FIRST_LEVEL;
            waiting.retain(|(_, begun, alone)| {
                suspects.judge(2, Some(&record(*begun, *alone))) != Verdict::Guilty
            });
            waiting.sort_by_key(|suspect| std::cmp::Reverse(level(suspect)));
            let Some(highest) = waiting.first().map(level) else { return round };
            let count = suspects.limit(highest, width).min(waiting.len());
            if waiting[..count].iter().any(|(message, ..)| *message == culprit) {
                for suspect in &mut waiting[..count] {
                    *suspect = (suspect.0, suspect.1 + 1, suspects.runs_alone(highest));
                }
            } else {
                waiting.drain(..count);
            }
        }
        unreachable!()
    }

    #[test]
    fn a_thousand_suspects_are_done_within_sixty_rounds() {
        for culprit in [0, 1, 99, 100, 500, 999] {
            let rounds = rounds(5, 1000, culprit);
            assert!(rounds <= 32, "culprit {culprit}: {rounds} rounds");
        }
        assert!(rounds(8, 1000, 999) <= 60, "{}", rounds(8, 1000, 999));
        // No message kills workers.
        assert_eq!(rounds(5, 1000, usize::MAX), 10);
    }
}
