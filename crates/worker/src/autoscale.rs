//! Decides how many slots a pool should have, from the lag of the group and the age of its oldest unread message.
//!
//! The decision is a pure function of samples and their times ([`Scaler::decide`]). Three rules prevent the pool
//! from swinging: growing and shrinking have different thresholds, the pool must be overloaded or underused for some
//! time before it changes, and no change follows another within a cool-down. A decision contains the sample that led
//! to it.

use std::fmt;
use std::ops::RangeInclusive;
use std::time::{Duration, SystemTime};

use tokio::time::Instant;

/// Policy of the autoscaler: when a pool grows and shrinks.
///
/// A range is enough: `.autoscale(2..=32)`. The defaults of the other settings fit handlers that run from a few
/// milliseconds to a few seconds.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Autoscale {
    /// Minimum number of slots.
    pub min: usize,
    /// Maximum number of slots.
    pub max: usize,
    /// The pool grows if more messages than this wait for each slot.
    pub lag_per_slot: u64,
    /// The pool grows if the oldest unread message has waited longer than this.
    pub max_age: Duration,
    /// Interval between two measurements.
    pub every: Duration,
    /// How long the pool must be overloaded before it grows.
    pub grow_after: Duration,
    /// How long the pool must be underused before it shrinks.
    pub shrink_after: Duration,
    /// Minimum time between two changes.
    pub cool_down: Duration,
}

impl Autoscale {
    /// Returns a policy with these bounds and defaults for the rest. The minimum is at least one slot.
    pub fn between(bounds: RangeInclusive<usize>) -> Autoscale {
        let min = (*bounds.start()).max(1);
        Autoscale {
            min,
            max: (*bounds.end()).max(min),
            lag_per_slot: 20,
            max_age: Duration::from_secs(5),
            every: Duration::from_secs(1),
            grow_after: Duration::from_secs(1),
            shrink_after: Duration::from_secs(30),
            cool_down: Duration::from_secs(5),
        }
    }

    /// Sets how many messages can wait for each slot before the pool grows, at least one.
    pub fn lag_per_slot(mut self, messages: u64) -> Autoscale {
        self.lag_per_slot = messages.max(1);
        self
    }

    /// Sets how long the oldest unread message can wait before the pool grows.
    pub fn max_age(mut self, age: Duration) -> Autoscale {
        self.max_age = age;
        self
    }

    /// Sets the interval between two measurements, at least 10 ms.
    pub fn every(mut self, interval: Duration) -> Autoscale {
        self.every = interval.max(Duration::from_millis(10));
        self
    }

    /// Sets how long the pool must be overloaded before it grows, and underused before it shrinks.
    pub fn patience(mut self, grow_after: Duration, shrink_after: Duration) -> Autoscale {
        self.grow_after = grow_after;
        self.shrink_after = shrink_after;
        self
    }

    /// Sets the minimum time between two changes.
    pub fn cool_down(mut self, cool_down: Duration) -> Autoscale {
        self.cool_down = cool_down;
        self
    }
}

impl From<RangeInclusive<usize>> for Autoscale {
    fn from(bounds: RangeInclusive<usize>) -> Autoscale {
        Autoscale::between(bounds)
    }
}

/// A measurement on which the autoscaler decides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// Messages that wait for a slot: unread by the group, or prefetched.
    pub lag: u64,
    /// Whether `lag` is exact. If not, it is a lower bound.
    pub lag_exact: bool,
    /// Age of the oldest unread message.
    pub oldest_age: Duration,
    /// Number of slots.
    pub slots: usize,
    /// Number of slots that run a handler.
    pub busy: usize,
}

/// Why the number of slots changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Cause {
    /// More messages waited than [`Autoscale::lag_per_slot`] allows.
    Lag,
    /// The oldest message waited longer than [`Autoscale::max_age`].
    Age,
    /// The pool was underused.
    Idle,
    /// The number of slots was outside the bounds.
    Bounds,
}

impl Cause {
    /// Returns the name in logs and metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Cause::Lag => "lag",
            Cause::Age => "age",
            Cause::Idle => "idle",
            Cause::Bounds => "bounds",
        }
    }
}

/// A change of the number of slots, with the sample that led to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// Time of the decision.
    pub at: SystemTime,
    /// New number of slots.
    pub to: usize,
    /// Why the number changes.
    pub cause: Cause,
    /// The measurement. [`Sample::slots`] is the old number of slots.
    pub sample: Sample,
}

impl fmt::Display for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Sample { lag, lag_exact, oldest_age, slots, busy } = self.sample;
        let bound = if lag_exact { "" } else { "at least " };
        let (to, cause, age) = (self.to, self.cause.as_str(), oldest_age.as_secs_f64());
        write!(f, "{slots} -> {to} ({cause}): lag {bound}{lag}, oldest {age:.1} s, {busy} of {slots} busy")
    }
}

/// The autoscaler: decides, and remembers since when the pool has been overloaded or underused.
#[derive(Debug)]
pub struct Scaler {
    policy: Autoscale,
    overloaded_since: Option<Instant>,
    underused_since: Option<Instant>,
    changed_at: Option<Instant>,
}

impl Scaler {
    /// Returns an autoscaler without measurements.
    pub fn new(policy: Autoscale) -> Scaler {
        Scaler { policy, overloaded_since: None, underused_since: None, changed_at: None }
    }

    /// Returns the new number of slots and why, or `None` if nothing should change.
    pub fn decide(&mut self, now: Instant, sample: &Sample) -> Option<(usize, Cause)> {
        let slots = sample.slots;
        let within = slots.clamp(self.policy.min, self.policy.max);
        if within != slots {
            return self.step(now, within, Cause::Bounds);
        }
        let (overloaded, underused) = (self.overloaded(sample), self.underused(sample));
        let overloaded_for = true_for(&mut self.overloaded_since, overloaded.is_some(), now);
        let underused_for = true_for(&mut self.underused_since, underused, now);
        if self.changed_at.is_some_and(|at| now.duration_since(at) < self.policy.cool_down) {
            return None;
        }
        if let Some(cause) = overloaded
            && overloaded_for >= Some(self.policy.grow_after)
            && slots < self.policy.max
        {
            return self.step(now, (slots * 2).min(self.policy.max), cause);
        }
        if underused_for >= Some(self.policy.shrink_after) && slots > self.policy.min {
            return self.step(now, (slots - slots.div_ceil(4)).max(self.policy.min), Cause::Idle);
        }
        None
    }

    fn step(&mut self, now: Instant, to: usize, cause: Cause) -> Option<(usize, Cause)> {
        self.changed_at = Some(now);
        self.overloaded_since = None;
        self.underused_since = None;
        Some((to, cause))
    }

    fn overloaded(&self, sample: &Sample) -> Option<Cause> {
        if sample.lag > self.policy.lag_per_slot.saturating_mul(sample.slots as u64) {
            Some(Cause::Lag)
        } else if sample.lag > 0 && sample.oldest_age > self.policy.max_age {
            Some(Cause::Age)
        } else {
            None
        }
    }

    /// Returns whether fewer slots would be enough. The thresholds are far below those for growing, so a pool is
    /// never overloaded and underused at the same time.
    fn underused(&self, sample: &Sample) -> bool {
        let spare = sample.busy * 4 < sample.slots * 3;
        let few = sample.lag.saturating_mul(4) < self.policy.lag_per_slot.saturating_mul(sample.slots as u64);
        let young = sample.lag == 0 || sample.oldest_age * 2 < self.policy.max_age;
        spare && few && young
    }
}

/// Returns how long a condition has been true, or `None` if it is false now.
fn true_for(since: &mut Option<Instant>, holds: bool, now: Instant) -> Option<Duration> {
    if !holds {
        *since = None;
        return None;
    }
    Some(now.duration_since(*since.get_or_insert(now)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn scaler() -> Scaler {
        Scaler::new(
            Autoscale::between(2..=16)
                .lag_per_slot(10)
                .max_age(SECOND * 5)
                .patience(SECOND, SECOND * 30)
                .cool_down(SECOND * 5),
        )
    }

    fn sample(slots: usize, lag: u64, age: u64, busy: usize) -> Sample {
        Sample { lag, lag_exact: true, oldest_age: SECOND * u32::try_from(age).unwrap(), slots, busy }
    }

    #[test]
    fn the_pool_doubles_if_the_lag_lasts() {
        let (mut scaler, start) = (scaler(), Instant::now());
        assert_eq!(scaler.decide(start, &sample(2, 100, 0, 2)), None);
        assert_eq!(scaler.decide(start + SECOND, &sample(2, 100, 0, 2)), Some((4, Cause::Lag)));
        // No change within the cool-down, and no growth beyond the maximum.
        assert_eq!(scaler.decide(start + SECOND * 2, &sample(4, 100, 0, 4)), None);
        assert_eq!(scaler.decide(start + SECOND * 7, &sample(4, 100, 0, 4)), Some((8, Cause::Lag)));
        assert_eq!(scaler.decide(start + SECOND * 13, &sample(16, 900, 0, 4)), None);
        assert_eq!(scaler.decide(start + SECOND * 19, &sample(16, 900, 0, 4)), None);
    }

    #[test]
    fn a_short_burst_does_not_change_the_pool() {
        let (mut scaler, start) = (scaler(), Instant::now());
        for second in 0..20 {
            let lag = if second % 2 == 0 { 100 } else { 15 };
            assert_eq!(scaler.decide(start + SECOND * second, &sample(2, lag, 0, 2)), None, "{second}");
        }
    }

    #[test]
    fn one_old_message_makes_the_pool_grow() {
        let (mut scaler, start) = (scaler(), Instant::now());
        assert_eq!(scaler.decide(start, &sample(2, 1, 9, 2)), None);
        assert_eq!(scaler.decide(start + SECOND * 2, &sample(2, 1, 9, 2)), Some((4, Cause::Age)));
    }

    #[test]
    fn the_pool_shrinks_slowly_and_only_with_idle_slots() {
        let (mut scaler, start) = (scaler(), Instant::now());
        assert_eq!(scaler.decide(start, &sample(16, 0, 0, 15)), None);
        assert_eq!(scaler.decide(start + SECOND * 60, &sample(16, 0, 0, 15)), None);
        assert_eq!(scaler.decide(start + SECOND * 61, &sample(16, 0, 0, 1)), None);
        assert_eq!(scaler.decide(start + SECOND * 91, &sample(16, 0, 0, 1)), Some((12, Cause::Idle)));
        assert_eq!(scaler.decide(start + SECOND * 97, &sample(12, 0, 0, 1)), None);
        assert_eq!(scaler.decide(start + SECOND * 127, &sample(12, 0, 0, 1)), Some((9, Cause::Idle)));
        assert_eq!(scaler.decide(start + SECOND * 200, &sample(2, 0, 0, 0)), None);
        assert_eq!(scaler.decide(start + SECOND * 300, &sample(2, 0, 0, 0)), None);
    }

    #[test]
    fn nothing_changes_between_the_thresholds() {
        let (mut scaler, start) = (scaler(), Instant::now());
        for second in 0..100 {
            assert_eq!(scaler.decide(start + SECOND * second, &sample(4, 25, 3, 1)), None);
        }
    }

    #[test]
    fn a_number_outside_the_bounds_is_corrected_immediately() {
        assert_eq!(scaler().decide(Instant::now(), &sample(1, 0, 0, 0)), Some((2, Cause::Bounds)));
        assert_eq!(scaler().decide(Instant::now(), &sample(40, 900, 0, 40)), Some((16, Cause::Bounds)));
    }

    #[test]
    fn a_decision_is_displayed_with_its_sample() {
        let decision =
            Decision { at: SystemTime::UNIX_EPOCH, to: 4, cause: Cause::Lag, sample: sample(2, 50, 3, 2) };
        assert_eq!(decision.to_string(), "2 -> 4 (lag): lag 50, oldest 3.0 s, 2 of 2 busy");
    }
}
