//! Formats rates.

use crate::ops::value::ABSENT;

/// Formats a rate per second in few characters: `0`, `1.5`, `532`, `12.3k`, `1.2M`.
pub(super) fn rate(per_second: f64) -> String {
    let size = per_second.abs();
    match () {
        () if size < 0.05 => "0".to_owned(),
        () if size < 9.95 => format!("{per_second:.1}"),
        () if size < 9_999.5 => format!("{per_second:.0}"),
        () if size < 999_950.0 => format!("{:.1}k", per_second / 1e3),
        () => format!("{:.1}M", per_second / 1e6),
    }
}

/// Formats a rate like [`rate`], or returns [`ABSENT`] for `None`.
pub(super) fn rate_or_absent(per_second: Option<f64>) -> String {
    per_second.map_or_else(|| ABSENT.to_owned(), rate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_have_few_characters() {
        let shown = [0.0, 0.04, 1.53, 9.96, 532.2, 9_999.6, 12_345.0, 1_234_567.0, -2.5].map(rate);
        assert_eq!(shown, ["0", "0", "1.5", "10", "532", "10.0k", "12.3k", "1.2M", "-2.5"]);
        assert_eq!(rate_or_absent(None), "-");
    }
}
