//! The values that are counted and measured: relaxed atomics, touched from any task.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::definitions::Buckets;

/// A number that only grows.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// One more.
    pub fn increment(&self) {
        self.add(1);
    }

    /// So many more.
    pub fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    /// How many there were.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Something that is as it is now. Not written until it is known.
#[derive(Debug)]
pub struct Gauge(AtomicU64);

impl Default for Gauge {
    fn default() -> Gauge {
        Gauge(AtomicU64::new(f64::NAN.to_bits()))
    }
}

impl Gauge {
    /// It is so much.
    pub fn set(&self, value: f64) {
        self.0.store(value.to_bits(), Ordering::Relaxed);
    }

    /// How much it is, if that is known.
    pub fn get(&self) -> Option<f64> {
        let value = f64::from_bits(self.0.load(Ordering::Relaxed));
        (!value.is_nan()).then_some(value)
    }
}

/// How often values of which size were seen.
#[derive(Debug)]
pub struct Histogram {
    buckets: Buckets,
    // One for each bound, and one for what is above them all.
    counts: Box<[AtomicU64]>,
    // In whole units of the buckets: nanoseconds or things.
    sum: AtomicU64,
}

/// What a histogram has seen, added up as Prometheus wants it.
pub(super) struct Seen {
    /// For each bound the values up to it.
    pub(super) up_to: Vec<(f64, u64)>,
    pub(super) count: u64,
    pub(super) sum: f64,
}

impl Histogram {
    pub(super) fn new(buckets: Buckets) -> Histogram {
        let counts = (0..=buckets.bounds().len()).map(|_| AtomicU64::new(0)).collect();
        Histogram { buckets, counts, sum: AtomicU64::new(0) }
    }

    /// A time has been seen. For histograms of seconds.
    pub fn observe_duration(&self, duration: Duration) {
        self.observe(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX));
    }

    /// A number has been seen. For histograms of things.
    pub fn observe(&self, value: u64) {
        let bucket = self.buckets.bounds().take_while(|bound| *bound < value).count();
        self.counts[bucket].fetch_add(1, Ordering::Relaxed);
        self.sum.fetch_add(value, Ordering::Relaxed);
    }

    pub(super) fn seen(&self) -> Seen {
        let mut count = 0;
        let mut up_to = Vec::with_capacity(self.counts.len());
        for (bound, counted) in self.buckets.bounds().zip(&self.counts) {
            count += counted.load(Ordering::Relaxed);
            up_to.push((self.buckets.in_units(bound), count));
        }
        count += self.counts[up_to.len()].load(Ordering::Relaxed);
        Seen { up_to, count, sum: self.buckets.in_units(self.sum.load(Ordering::Relaxed)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_adds_up() {
        let counter = Counter::default();
        counter.increment();
        counter.add(4);
        assert_eq!(counter.get(), 5);
    }

    #[test]
    fn a_gauge_is_absent_until_known() {
        let gauge = Gauge::default();
        assert_eq!(gauge.get(), None);
        gauge.set(1.5);
        assert_eq!(gauge.get(), Some(1.5));
    }

    #[test]
    fn a_value_on_a_bound_belongs_below_it() {
        let histogram = Histogram::new(Buckets::Count(&[1, 2, 5]));
        for value in [1, 2, 2, 3, 9] {
            histogram.observe(value);
        }
        let seen = histogram.seen();
        assert_eq!(seen.up_to, [(1.0, 1), (2.0, 3), (5.0, 4)]);
        assert_eq!((seen.count, seen.sum), (5, 17.0));
    }

    #[test]
    fn times_are_told_in_seconds() {
        let histogram = Histogram::new(Buckets::Seconds(&[5, 1000]));
        histogram.observe_duration(Duration::from_millis(500));
        histogram.observe_duration(Duration::from_secs(2));
        let seen = histogram.seen();
        assert_eq!(seen.up_to, [(0.005, 0), (1.0, 1)]);
        assert_eq!((seen.count, seen.sum), (2, 2.5));
    }
}
