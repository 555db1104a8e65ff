//! Numbers of bytes as people read them.

/// Formats a number of bytes with a unit, as Redis does: `1.50M`.
pub fn human(bytes: u64) -> String {
    let mut value = bytes as f64;
    for unit in ["B", "K", "M", "G"] {
        if value < 1024.0 {
            return if unit == "B" { format!("{bytes}B") } else { format!("{value:.2}{unit}") };
        }
        value /= 1024.0;
    }
    format!("{value:.2}T")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_formatted_with_a_unit() {
        assert_eq!(human(0), "0B");
        assert_eq!(human(1536), "1.50K");
        assert_eq!(human(3 << 30), "3.00G");
    }
}
