//! Medians and percentiles, and the formatting of numbers.

use std::time::Duration;

use hdrhistogram::Histogram;

use crate::Failure;

/// Median, minimum and maximum of some values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
}

impl Spread {
    /// Returns `None` if there are no values.
    pub(crate) fn of(values: impl IntoIterator<Item = f64>) -> Option<Spread> {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let (min, max) = (*values.first()?, *values.last()?);
        let (low, high) = (values[(values.len() - 1) / 2], values[values.len() / 2]);
        Some(Spread { median: (low + high) / 2.0, min, max })
    }

    /// Formats factors: `2.50× (1.00–4.00)`.
    pub(crate) fn times(&self) -> String {
        let range = format!(" ({}–{})", significant(self.min), significant(self.max));
        format!("{}×{}", significant(self.median), if self.min == self.max { "" } else { &range })
    }

    /// Formats a change in percent: `+7.3 % (5.1–9.0)`.
    pub(crate) fn percent(&self) -> String {
        let range = format!(" ({:.1}–{:.1})", self.min, self.max);
        format!("{:+.1} %{}", self.median, if self.min == self.max { "" } else { &range })
    }
}

/// A series of latencies.
#[derive(Clone, Debug)]
pub(crate) struct Latencies(Histogram<u64>);

impl Latencies {
    pub(crate) fn new() -> Latencies {
        // Three digits are always a valid precision.
        Latencies(Histogram::new(3).expect("a histogram"))
    }

    pub(crate) fn of(all: impl IntoIterator<Item = Duration>) -> Latencies {
        let mut latencies = Latencies::new();
        all.into_iter().for_each(|took| latencies.record(took));
        latencies
    }

    pub(crate) fn record(&mut self, took: Duration) {
        // The histogram grows, so every value fits.
        let _ = self.0.record(took.as_nanos() as u64);
    }

    /// Records a latency of requests that are sent at this interval. A long one also delays the requests that would
    /// have been sent meanwhile. So records a latency for each of them too: the time from when it would have been sent
    /// to the reply.
    pub(crate) fn record_with_delayed(&mut self, took: Duration, interval: Duration) {
        let _ = self.0.record_correct(took.as_nanos() as u64, interval.as_nanos() as u64);
    }

    /// Fails if nothing was measured.
    pub(crate) fn checked(self, what: &str) -> Result<Latencies, Failure> {
        if self.0.is_empty() { Err(format!("{what} had no operations").into()) } else { Ok(self) }
    }

    pub(crate) fn count(&self) -> u64 {
        self.0.len()
    }

    /// Returns the smallest value that at least this share of the latencies do not exceed, in microseconds.
    pub(crate) fn us(&self, quantile: f64) -> f64 {
        self.0.value_at_quantile(quantile) as f64 / 1e3
    }

    pub(crate) fn p50_us(&self) -> f64 {
        self.us(0.5)
    }

    pub(crate) fn p99_us(&self) -> f64 {
        self.us(0.99)
    }

    pub(crate) fn worst_ms(&self) -> f64 {
        self.0.max() as f64 / 1e6
    }
}

/// Formats a number with three significant digits.
pub(crate) fn significant(value: f64) -> String {
    match value {
        v if v >= 999.5 => thousands(v),
        v if v >= 99.95 => format!("{v:.0}"),
        v if v >= 9.995 => format!("{v:.1}"),
        v if v >= 0.1 || v == 0.0 => format!("{v:.2}"),
        v => format!("{v:.4}"),
    }
}

/// Formats a whole number with thousands separators: `1,234,567`.
pub(crate) fn thousands(value: f64) -> String {
    let digits = format!("{value:.0}");
    let groups: Vec<_> = digits.as_bytes().rchunks(3).rev().map(String::from_utf8_lossy).collect();
    groups.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_separators_and_three_significant_digits() {
        assert_eq!([1234567.4, 999.0].map(thousands), ["1,234,567", "999"]);
        assert_eq!(
            [0.0123, 0.456, 4.56, 9.999, 45.6, 99.99, 456.0, 4560.0].map(significant),
            ["0.0123", "0.46", "4.56", "10.0", "45.6", "100", "456", "4,560"]
        );
    }

    #[test]
    fn median_of_an_even_count_is_the_mean_of_the_middle_two() {
        assert_eq!(Spread::of([4.0, 1.0, 3.0, 2.0]).unwrap().times(), "2.50× (1.00–4.00)");
        assert_eq!(Spread::of([5.0, 7.0, 9.0]).unwrap().percent(), "+7.0 % (5.0–9.0)");
        assert_eq!(Spread::of([3.0]).unwrap().times(), "3.00×");
        assert_eq!(Spread::of([]), None);
    }

    #[test]
    fn percentiles_are_measured_values() {
        let thousand = Latencies::of((1..=1000).map(Duration::from_micros));
        assert_eq!([0.5, 0.99, 0.999].map(|quantile| thousand.us(quantile).round()), [500.0, 990.0, 999.0]);
        assert_eq!((thousand.count(), thousand.worst_ms().round()), (1000, 1.0));
        assert!(Latencies::new().checked("nothing").is_err());
    }

    #[test]
    fn a_stall_counts_for_every_request_that_it_delays() {
        let (mut latencies, every) = (Latencies::new(), Duration::from_millis(1));
        latencies.record_with_delayed(Duration::from_micros(40), every);
        assert_eq!(latencies.count(), 1);
        latencies.record_with_delayed(Duration::from_micros(5_010), every);
        assert_eq!((latencies.count(), latencies.worst_ms().round()), (1 + 5, 5.0));
    }
}
