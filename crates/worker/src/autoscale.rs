//! How many slots a pool should have: decided from exact lag and its age, between bounds.
//!
//! The decision is a pure function of what was seen and when ([`Scaler::decide`]). It is slow to change its mind: growing
//! and shrinking have different thresholds, each must hold for a while, and after a step nothing happens for a
//! cool-down. Every step is kept with what led to it.

use std::fmt;
use std::ops::RangeInclusive;
use std::time::{Duration, SystemTime};

use tokio::time::Instant;

/// When a pool grows and shrinks.
///
/// A range is enough: `.autoscale(2..=32)`. The rest has defaults that fit messages of a few milliseconds to a few seconds.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Autoscale {
    /// Never fewer slots.
    pub min: usize,
    /// Never more slots.
    pub max: usize,
    /// Grow when more messages than this wait for each slot.
    pub lag_per_slot: u64,
    /// Grow when the oldest unread message has waited longer.
    pub max_age: Duration,
    /// How often to look.
    pub every: Duration,
    /// How long there must be too much to do before the pool grows.
    pub grow_after: Duration,
    /// How long there must be too little to do before the pool shrinks.
    pub shrink_after: Duration,
    /// How long after a step nothing happens.
    pub cool_down: Duration,
}

impl Autoscale {
    /// Between these bounds, with the defaults for the rest. At least one slot.
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

    /// Grow when more messages than this wait for each slot. At least one.
    pub fn lag_per_slot(mut self, messages: u64) -> Autoscale {
        self.lag_per_slot = messages.max(1);
        self
    }

    /// Grow when the oldest unread message has waited longer.
    pub fn max_age(mut self, age: Duration) -> Autoscale {
        self.max_age = age;
        self
    }

    /// How often to look.
    pub fn every(mut self, interval: Duration) -> Autoscale {
        self.every = interval.max(Duration::from_millis(10));
        self
    }

    /// How long there must be too much to do before the pool grows, and too little before it shrinks.
    pub fn patience(mut self, grow_after: Duration, shrink_after: Duration) -> Autoscale {
        self.grow_after = grow_after;
        self.shrink_after = shrink_after;
        self
    }

    /// How long after a step nothing happens.
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

/// What a decision rests on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// How many messages the group has yet to read, and how many were read and wait for a slot.
    pub lag: u64,
    /// Whether that number is exact, or at least so many.
    pub lag_exact: bool,
    /// How long the oldest unread message has waited.
    pub oldest_age: Duration,
    /// How many slots there are.
    pub slots: usize,
    /// How many of them run a handler.
    pub busy: usize,
}

/// Why the number of slots changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Cause {
    /// Too many messages waited.
    Lag,
    /// A message waited too long.
    Age,
    /// Too little to do.
    Idle,
    /// The number was outside the bounds.
    Bounds,
}

impl Cause {
    /// Its name in logs and metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Cause::Lag => "lag",
            Cause::Age => "age",
            Cause::Idle => "idle",
            Cause::Bounds => "bounds",
        }
    }
}

/// A step of the autoscaler, with what led to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// When.
    pub at: SystemTime,
    /// How many slots it will be.
    pub to: usize,
    /// Why.
    pub cause: Cause,
    /// What was seen; [`Sample::slots`] is how many slots it was.
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

/// Decides, remembering for how long there has been too much or too little to do.
#[derive(Debug)]
pub struct Scaler {
    policy: Autoscale,
    too_much_since: Option<Instant>,
    too_little_since: Option<Instant>,
    changed_at: Option<Instant>,
}

impl Scaler {
    /// One that has seen nothing yet.
    pub fn new(policy: Autoscale) -> Scaler {
        Scaler { policy, too_much_since: None, too_little_since: None, changed_at: None }
    }

    /// How many slots there should be now, and why; `None` if it is well as it is.
    pub fn decide(&mut self, now: Instant, sample: &Sample) -> Option<(usize, Cause)> {
        let slots = sample.slots;
        let within = slots.clamp(self.policy.min, self.policy.max);
        if within != slots {
            return self.step(now, within, Cause::Bounds);
        }
        let (too_much, too_little) = (self.too_much(sample), self.too_little(sample));
        let too_much_for = held_for(&mut self.too_much_since, too_much.is_some(), now);
        let too_little_for = held_for(&mut self.too_little_since, too_little, now);
        if self.changed_at.is_some_and(|at| now.duration_since(at) < self.policy.cool_down) {
            return None;
        }
        if let Some(cause) = too_much
            && too_much_for >= Some(self.policy.grow_after)
            && slots < self.policy.max
        {
            return self.step(now, (slots * 2).min(self.policy.max), cause);
        }
        if too_little_for >= Some(self.policy.shrink_after) && slots > self.policy.min {
            return self.step(now, (slots - slots.div_ceil(4)).max(self.policy.min), Cause::Idle);
        }
        None
    }

    fn step(&mut self, now: Instant, to: usize, cause: Cause) -> Option<(usize, Cause)> {
        self.changed_at = Some(now);
        self.too_much_since = None;
        self.too_little_since = None;
        Some((to, cause))
    }

    fn too_much(&self, sample: &Sample) -> Option<Cause> {
        if sample.lag > self.policy.lag_per_slot.saturating_mul(sample.slots as u64) {
            Some(Cause::Lag)
        } else if sample.lag > 0 && sample.oldest_age > self.policy.max_age {
            Some(Cause::Age)
        } else {
            None
        }
    }

    /// Far below what makes it grow, and with slots to spare: the two never meet.
    fn too_little(&self, sample: &Sample) -> bool {
        let spare = sample.busy * 4 < sample.slots * 3;
        let few = sample.lag.saturating_mul(4) < self.policy.lag_per_slot.saturating_mul(sample.slots as u64);
        let young = sample.lag == 0 || sample.oldest_age * 2 < self.policy.max_age;
        spare && few && young
    }
}

/// For how long something has been so; `None` if it is not.
fn held_for(since: &mut Option<Instant>, is_so: bool, now: Instant) -> Option<Duration> {
    if !is_so {
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
    fn lag_must_last_before_the_pool_grows_and_it_grows_by_doubling() {
        let (mut scaler, start) = (scaler(), Instant::now());
        assert_eq!(scaler.decide(start, &sample(2, 100, 0, 2)), None);
        assert_eq!(scaler.decide(start + SECOND, &sample(2, 100, 0, 2)), Some((4, Cause::Lag)));
        // Not again within the cool-down, and not beyond the bounds afterwards.
        assert_eq!(scaler.decide(start + SECOND * 2, &sample(4, 100, 0, 4)), None);
        assert_eq!(scaler.decide(start + SECOND * 7, &sample(4, 100, 0, 4)), Some((8, Cause::Lag)));
        assert_eq!(scaler.decide(start + SECOND * 13, &sample(16, 900, 0, 4)), None);
        assert_eq!(scaler.decide(start + SECOND * 19, &sample(16, 900, 0, 4)), None);
    }

    #[test]
    fn a_short_burst_changes_nothing() {
        let (mut scaler, start) = (scaler(), Instant::now());
        for second in 0..20 {
            let lag = if second % 2 == 0 { 100 } else { 15 };
            assert_eq!(scaler.decide(start + SECOND * second, &sample(2, lag, 0, 2)), None, "{second}");
        }
    }

    #[test]
    fn one_old_message_is_enough() {
        let (mut scaler, start) = (scaler(), Instant::now());
        assert_eq!(scaler.decide(start, &sample(2, 1, 9, 2)), None);
        assert_eq!(scaler.decide(start + SECOND * 2, &sample(2, 1, 9, 2)), Some((4, Cause::Age)));
    }

    #[test]
    fn it_shrinks_slowly_and_only_with_slots_to_spare() {
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
    fn between_the_thresholds_nothing_happens() {
        let (mut scaler, start) = (scaler(), Instant::now());
        for second in 0..100 {
            assert_eq!(scaler.decide(start + SECOND * second, &sample(4, 25, 3, 1)), None);
        }
    }

    #[test]
    fn a_number_outside_the_bounds_is_put_right_at_once() {
        assert_eq!(scaler().decide(Instant::now(), &sample(1, 0, 0, 0)), Some((2, Cause::Bounds)));
        assert_eq!(scaler().decide(Instant::now(), &sample(40, 900, 0, 40)), Some((16, Cause::Bounds)));
    }

    #[test]
    fn a_decision_reads_well() {
        let decision =
            Decision { at: SystemTime::UNIX_EPOCH, to: 4, cause: Cause::Lag, sample: sample(2, 50, 3, 2) };
        assert_eq!(decision.to_string(), "2 -> 4 (lag): lag 50, oldest 3.0 s, 2 of 2 busy");
    }
}
