//! Tells when the server's clock and the wall clock are far apart, once.
//!
//! The clock follows a wall clock that was set slowly, on purpose. Nobody would guess that from ids that lag for hours.

use millstream_store::SLEW_MS_PER_SECOND;

/// A gap that is worth a line. Corrections of a clock that is kept are far smaller.
const FAR_MS: u64 = 5_000;
/// A gap that is none any more.
const NEAR_MS: u64 = 1_000;

/// Remembers whether the gap was told.
#[derive(Default)]
pub(crate) struct Drift {
    is_told: bool,
}

impl Drift {
    /// What is to be said of this gap, if anything is. It is negative when the wall clock is behind.
    pub(crate) fn look(&mut self, behind_wall_ms: i64) -> Option<String> {
        let gap_ms = behind_wall_ms.unsigned_abs();
        if self.is_told && gap_ms <= NEAR_MS {
            self.is_told = false;
            return Some("the server's clock and the wall clock agree again".to_owned());
        }
        if self.is_told || gap_ms <= FAR_MS {
            return None;
        }
        self.is_told = true;
        let (gap_s, hours) = (gap_ms / 1_000, gap_ms as f64 / SLEW_MS_PER_SECOND as f64 / 3_600.0);
        let so_long =
            format!("It follows by {SLEW_MS_PER_SECOND} ms a second, so for about {hours:.1} hours");
        Some(if behind_wall_ms > 0 {
            format!(
                "the wall clock was set, and the server's clock is {gap_s} s behind it. {so_long} the ids of new entries and \
                 expiries at a given time lag, while idle times stay right. Restart the server to follow at once; \
                 everything pending is then idle for {gap_s} s more"
            )
        } else {
            format!(
                "the wall clock was set back, or is wrong, and the server's clock is {gap_s} s ahead of it. {so_long} the ids \
                 of new entries lie in the future and expiries at a given time come early, while idle times stay right. A \
                 restart does not change that where the data tells of later times: time never goes back"
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gap_is_told_when_it_begins_and_when_it_ends() {
        let mut drift = Drift::default();
        assert_eq!(drift.look(4_900), None);
        let told = drift.look(3_600_000).expect("a line");
        assert!(told.contains("3600 s behind") && told.contains("20.0 hours"), "{told}");
        assert!(told.contains("Restart the server"), "{told}");
        assert_eq!([3_599_950, 4_000, 1_001].map(|gap_ms| drift.look(gap_ms)), [None, None, None]);
        assert!(drift.look(1_000).is_some_and(|told| told.contains("agree again")));
        assert_eq!(drift.look(0), None);
        let told = drift.look(-60_000).expect("a line");
        assert!(told.contains("60 s ahead") && !told.contains("Restart the server"), "{told}");
    }
}
