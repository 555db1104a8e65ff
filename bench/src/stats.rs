//! Medians and percentiles, and the formatting of numbers.

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
        let median = format!("{}×", significant(self.median));
        match self.min == self.max {
            true => median,
            false => format!("{median} ({}–{})", significant(self.min), significant(self.max)),
        }
    }

    /// Formats a change in percent: `+7.3 % (5.1–9.0)`.
    pub(crate) fn percent(&self) -> String {
        let median = format!("{:+.1} %", self.median);
        match self.min == self.max {
            true => median,
            false => format!("{median} ({:.1}–{:.1})", self.min, self.max),
        }
    }
}

/// Percentiles of a series of latencies, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Latencies {
    pub(crate) count: usize,
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
    pub(crate) p999_us: f64,
    pub(crate) worst_us: f64,
}

impl Latencies {
    /// Returns `None` if there are no latencies.
    pub(crate) fn of(mut latencies_us: Vec<f64>) -> Option<Latencies> {
        latencies_us.sort_by(f64::total_cmp);
        let worst_us = *latencies_us.last()?;
        let [p50_us, p99_us, p999_us] = [50.0, 99.0, 99.9].map(|percent| percentile(&latencies_us, percent));
        Some(Latencies { count: latencies_us.len(), p50_us, p99_us, p999_us, worst_us })
    }
}

/// Returns the smallest value that at least `percent` of the values do not exceed. `sorted` is not empty.
fn percentile(sorted: &[f64], percent: f64) -> f64 {
    let rank = (sorted.len() as f64 * percent / 100.0).ceil() as usize;
    sorted[rank.clamp(1, sorted.len()) - 1]
}

/// Formats a number with three significant digits.
pub(crate) fn significant(value: f64) -> String {
    match value {
        v if v >= 1000.0 => thousands(v),
        v if v >= 99.95 => format!("{v:.0}"),
        v if v >= 9.995 => format!("{v:.1}"),
        v if v >= 0.1 || v == 0.0 => format!("{v:.2}"),
        v => format!("{v:.4}"),
    }
}

/// Formats a whole number with thousands separators: `1,234,567`.
pub(crate) fn thousands(value: f64) -> String {
    let digits = format!("{value:.0}");
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_separators_and_three_significant_digits() {
        assert_eq!(thousands(1234567.4), "1,234,567");
        assert_eq!(thousands(999.0), "999");
        assert_eq!(
            [0.0123, 0.456, 4.56, 45.6, 456.0, 4560.0].map(significant),
            ["0.0123", "0.46", "4.56", "45.6", "456", "4,560"]
        );
        assert_eq!([9.999, 99.99].map(significant), ["10.0", "100"]);
    }

    #[test]
    fn median_of_an_even_count_is_the_mean_of_the_middle_two() {
        let spread = Spread::of([4.0, 1.0, 3.0, 2.0]).unwrap();
        assert_eq!((spread.median, spread.min, spread.max), (2.5, 1.0, 4.0));
        assert_eq!(spread.times(), "2.50× (1.00–4.00)");
        assert_eq!(Spread::of([]), None);
        assert_eq!(Spread::of([3.0]).unwrap().times(), "3.00×");
    }

    #[test]
    fn percentages_have_a_sign() {
        assert_eq!(Spread::of([5.0, 7.0, 9.0]).unwrap().percent(), "+7.0 % (5.0–9.0)");
        assert_eq!(Spread::of([-1.25]).unwrap().percent(), "-1.2 %");
    }

    #[test]
    fn percentiles_are_measured_values() {
        let thousand = Latencies::of((1..=1000).rev().map(f64::from).collect()).unwrap();
        assert_eq!(
            thousand,
            Latencies { count: 1000, p50_us: 500.0, p99_us: 990.0, p999_us: 999.0, worst_us: 1000.0 }
        );
        let single = Latencies::of(vec![7.0]).unwrap();
        assert_eq!(single, Latencies { count: 1, p50_us: 7.0, p99_us: 7.0, p999_us: 7.0, worst_us: 7.0 });
        assert_eq!(Latencies::of(Vec::new()), None);
    }
}
