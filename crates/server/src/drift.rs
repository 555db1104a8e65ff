//! Reports when the server's clock and the wall clock differ by seconds.
//!
//! If the wall clock is set, the server's clock follows slowly, on purpose. Without a log line an operator could
//! not explain why ids lag for hours.

use millstream_store::SLEW_MS_PER_SECOND;

use crate::event_log::Level;

/// A difference above this is logged. Corrections of a synchronized clock are far smaller.
const REPORT_ABOVE_MS: u64 = 5_000;
/// A reported difference counts as gone at or below this.
const GONE_AT_MS: u64 = 1_000;

/// Decides when a difference is logged: once when it begins and once when it ends.
#[derive(Default)]
pub(crate) struct DriftMonitor {
    is_reported: bool,
}

impl DriftMonitor {
    /// Returns the line to log for this difference, if any. `behind_wall_ms` is negative if the wall clock is behind
    /// the server's clock.
    pub(crate) fn check(&mut self, behind_wall_ms: i64) -> Option<(Level, String)> {
        let gap_ms = behind_wall_ms.unsigned_abs();
        if self.is_reported && gap_ms <= GONE_AT_MS {
            self.is_reported = false;
            return Some((Level::Notice, "the server's clock and the wall clock agree again".to_owned()));
        }
        if self.is_reported || gap_ms <= REPORT_ABOVE_MS {
            return None;
        }
        self.is_reported = true;
        let (gap_s, hours) = (gap_ms / 1_000, gap_ms as f64 / SLEW_MS_PER_SECOND as f64 / 3_600.0);
        let duration = format!(
            "The server's clock follows by {SLEW_MS_PER_SECOND} ms per second, which takes about {hours:.1} hours"
        );
        let message = if behind_wall_ms > 0 {
            format!(
                "the wall clock was set forward, and the server's clock is {gap_s} s behind it. {duration}. \
                 Until then, ids of new entries contain a time that is too early, and keys with an absolute \
                 expiry time expire late; idle times are right. Restart the server to follow immediately; the \
                 restart adds {gap_s} s to the idle time of every pending entry"
            )
        } else {
            format!(
                "the wall clock was set back or is wrong, and the server's clock is {gap_s} s ahead of it. \
                 {duration}. Until then, ids of new entries contain a time in the future, and keys with an \
                 absolute expiry time expire early; idle times are right. A restart does not help if the data \
                 contains later times: the server's clock never goes back"
            )
        };
        Some((Level::Warning, message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn difference_is_logged_when_it_begins_and_when_it_ends() {
        let mut drift = DriftMonitor::default();
        assert_eq!(drift.check(4_900), None);
        let (level, message) = drift.check(3_600_000).expect("a message");
        assert_eq!(level, Level::Warning);
        assert!(message.contains("3600 s behind") && message.contains("20.0 hours"), "{message}");
        assert!(message.contains("Restart the server"), "{message}");
        assert_eq!([3_599_950, 4_000, 1_001].map(|gap_ms| drift.check(gap_ms)), [None, None, None]);
        assert!(drift.check(1_000).is_some_and(|(_, message)| message.contains("agree again")));
        assert_eq!(drift.check(0), None);
        let (_, message) = drift.check(-60_000).expect("a message");
        assert!(message.contains("60 s ahead") && !message.contains("Restart the server"), "{message}");
    }
}
