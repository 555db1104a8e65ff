//! Counters, gauges and histograms: relaxed atomics that any task can update.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::definitions::Buckets;

/// A number that only increases.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds one.
    pub fn increment(&self) {
        self.add(1);
    }

    /// Adds `count`.
    pub fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    /// Returns the current value.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A value that goes up and down. It is not exported before it is first set.
#[derive(Debug)]
pub struct Gauge(AtomicU64);

impl Default for Gauge {
    fn default() -> Gauge {
        Gauge(AtomicU64::new(f64::NAN.to_bits()))
    }
}

impl Gauge {
    /// Sets the value.
    pub fn set(&self, value: f64) {
        self.0.store(value.to_bits(), Ordering::Relaxed);
    }

    /// Returns the value, or `None` if it was never set.
    pub fn get(&self) -> Option<f64> {
        let value = f64::from_bits(self.0.load(Ordering::Relaxed));
        (!value.is_nan()).then_some(value)
    }
}

/// Counts observed values in buckets by size.
#[derive(Debug)]
pub struct Histogram {
    buckets: Buckets,
    // One count for each bound, and one for values above all bounds.
    counts: Box<[AtomicU64]>,
    // In the unit of the observed values: nanoseconds or a count.
    sum: AtomicU64,
}

/// The content of a histogram, with the cumulative counts that Prometheus expects.
pub(super) struct HistogramSnapshot {
    /// Each bound in the exported unit, and the number of values up to it.
    pub(super) cumulative: Vec<(f64, u64)>,
    pub(super) count: u64,
    pub(super) sum: f64,
}

impl Histogram {
    pub(super) fn new(buckets: Buckets) -> Histogram {
        let counts = (0..=buckets.bounds().len()).map(|_| AtomicU64::new(0)).collect();
        Histogram { buckets, counts, sum: AtomicU64::new(0) }
    }

    /// Observes a duration. Only for histograms of seconds.
    pub fn observe_duration(&self, duration: Duration) {
        self.observe(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX));
    }

    /// Observes a value in the unit of the buckets: nanoseconds or a count.
    pub fn observe(&self, value: u64) {
        let bucket = self.buckets.bounds().take_while(|bound| *bound < value).count();
        self.counts[bucket].fetch_add(1, Ordering::Relaxed);
        self.sum.fetch_add(value, Ordering::Relaxed);
    }

    /// Returns the bound, in the unit of the observed values, below which this share of the values is. `None` if it is
    /// greater than all bounds, or if there are fewer than `count_min` values.
    pub fn quantile(&self, share: f64, count_min: u64) -> Option<u64> {
        let counts: Vec<u64> = self.counts.iter().map(|count| count.load(Ordering::Relaxed)).collect();
        let total: u64 = counts.iter().sum();
        let mut below = 0;
        let bounds = self.buckets.bounds().zip(counts).find(|(_, count)| {
            below += count;
            below as f64 >= total as f64 * share
        });
        bounds.map(|(bound, _)| bound).filter(|_| total >= count_min)
    }

    pub(super) fn snapshot(&self) -> HistogramSnapshot {
        let mut count = 0;
        let mut cumulative = Vec::with_capacity(self.counts.len());
        for (bound, counted) in self.buckets.bounds().zip(&self.counts) {
            count += counted.load(Ordering::Relaxed);
            cumulative.push((self.buckets.in_units(bound), count));
        }
        count += self.counts[cumulative.len()].load(Ordering::Relaxed);
        HistogramSnapshot { cumulative, count, sum: self.buckets.in_units(self.sum.load(Ordering::Relaxed)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counter_sums_its_increments() {
        let counter = Counter::default();
        counter.increment();
        counter.add(4);
        assert_eq!(counter.get(), 5);
    }

    #[test]
    fn gauge_has_no_value_before_it_is_set() {
        let gauge = Gauge::default();
        assert_eq!(gauge.get(), None);
        gauge.set(1.5);
        assert_eq!(gauge.get(), Some(1.5));
    }

    #[test]
    fn bounds_are_inclusive() {
        let histogram = Histogram::new(Buckets::Count(&[1, 2, 5]));
        for value in [1, 2, 2, 3, 9] {
            histogram.observe(value);
        }
        let snapshot = histogram.snapshot();
        assert_eq!(snapshot.cumulative, [(1.0, 1), (2.0, 3), (5.0, 4)]);
        assert_eq!((snapshot.count, snapshot.sum), (5, 17.0));
    }

    #[test]
    fn a_quantile_is_known_up_to_the_greatest_bound() {
        let histogram = Histogram::new(Buckets::Seconds(&[5, 1000]));
        (0..99).for_each(|_| histogram.observe_duration(Duration::from_millis(2)));
        assert_eq!(histogram.quantile(0.99, 100), None, "too few values");
        histogram.observe_duration(Duration::from_secs(60));
        assert_eq!(histogram.quantile(0.99, 100), Some(5_000_000));
        histogram.observe_duration(Duration::from_secs(60));
        assert_eq!(histogram.quantile(0.99, 100), None, "greater than all bounds");
    }

    #[test]
    fn durations_are_exported_in_seconds() {
        let histogram = Histogram::new(Buckets::Seconds(&[5, 1000]));
        histogram.observe_duration(Duration::from_millis(500));
        histogram.observe_duration(Duration::from_secs(2));
        let snapshot = histogram.snapshot();
        assert_eq!(snapshot.cumulative, [(0.005, 0), (1.0, 1)]);
        assert_eq!((snapshot.count, snapshot.sum), (2, 2.5));
    }
}
