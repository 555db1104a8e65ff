//! Numbers: medians and percentiles, and how they are written for people.

/// Median, least and greatest.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
}

impl Spread {
    /// `None` of nothing.
    pub(crate) fn of(values: impl IntoIterator<Item = f64>) -> Option<Spread> {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let (min, max) = (*values.first()?, *values.last()?);
        let (low, high) = (values[(values.len() - 1) / 2], values[values.len() / 2]);
        Some(Spread { median: (low + high) / 2.0, min, max })
    }

    /// How many times: `2.50× (1.00–4.00)`.
    pub(crate) fn times(&self) -> String {
        let median = format!("{}×", significant(self.median));
        match self.min == self.max {
            true => median,
            false => format!("{median} ({}–{})", significant(self.min), significant(self.max)),
        }
    }

    /// A change in parts of a hundred: `+7.3 % (5.1–9.0)`.
    pub(crate) fn percent(&self) -> String {
        let median = format!("{:+.1} %", self.median);
        match self.min == self.max {
            true => median,
            false => format!("{median} ({:.1}–{:.1})", self.min, self.max),
        }
    }
}

/// What a series of waits was like, all in microseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Waits {
    pub(crate) p50: f64,
    pub(crate) p99: f64,
    pub(crate) worst: f64,
}

impl Waits {
    /// `None` of nothing.
    pub(crate) fn of(mut waits_us: Vec<f64>) -> Option<Waits> {
        waits_us.sort_by(f64::total_cmp);
        let worst = *waits_us.last()?;
        Some(Waits { p50: percentile(&waits_us, 50.0), p99: percentile(&waits_us, 99.0), worst })
    }
}

/// The least value that this many parts of a hundred do not exceed. `sorted` is not empty.
fn percentile(sorted: &[f64], percent: f64) -> f64 {
    let rank = (sorted.len() as f64 * percent / 100.0).ceil() as usize;
    sorted[rank.clamp(1, sorted.len()) - 1]
}

/// Three digits that matter.
pub(crate) fn significant(value: f64) -> String {
    match value {
        v if v >= 1000.0 => thousands(v),
        v if v >= 99.95 => format!("{v:.0}"),
        v if v >= 9.995 => format!("{v:.1}"),
        v if v >= 0.1 || v == 0.0 => format!("{v:.2}"),
        v => format!("{v:.4}"),
    }
}

/// A whole number with its thousands set apart: `1,234,567`.
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
    fn numbers_read_well() {
        assert_eq!(thousands(1234567.4), "1,234,567");
        assert_eq!(thousands(999.0), "999");
        assert_eq!(
            [0.0123, 0.456, 4.56, 45.6, 456.0, 4560.0].map(significant),
            ["0.0123", "0.46", "4.56", "45.6", "456", "4,560"]
        );
        assert_eq!([9.999, 99.99].map(significant), ["10.0", "100"]);
    }

    #[test]
    fn the_median_lies_between_the_middle_two() {
        let spread = Spread::of([4.0, 1.0, 3.0, 2.0]).unwrap();
        assert_eq!((spread.median, spread.min, spread.max), (2.5, 1.0, 4.0));
        assert_eq!(spread.times(), "2.50× (1.00–4.00)");
        assert_eq!(Spread::of([]), None);
        assert_eq!(Spread::of([3.0]).unwrap().times(), "3.00×");
    }

    #[test]
    fn a_cost_has_a_sign() {
        assert_eq!(Spread::of([5.0, 7.0, 9.0]).unwrap().percent(), "+7.0 % (5.0–9.0)");
        assert_eq!(Spread::of([-1.25]).unwrap().percent(), "-1.2 %");
    }

    #[test]
    fn percentiles_are_values_that_occurred() {
        let waits = Waits::of((1..=1000).rev().map(f64::from).collect()).unwrap();
        assert_eq!(waits, Waits { p50: 500.0, p99: 990.0, worst: 1000.0 });
        let one = Waits::of(vec![7.0]).unwrap();
        assert_eq!(one, Waits { p50: 7.0, p99: 7.0, worst: 7.0 });
        assert_eq!(Waits::of(Vec::new()), None);
    }
}
