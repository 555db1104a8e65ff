//! How long the pending entries of a group have been idle.

use std::time::Duration;

use super::pending::{PendingQuery, select};
use crate::backend::{Admin, Error, StreamId};

/// Maximum number of pending entries that are examined.
pub const SCAN_MAX: usize = 10_000;
/// The upper ends of all ranges but the last, in seconds.
const ENDS: [u64; 9] = [1, 5, 30, 60, 300, 1800, 3600, 21_600, 86_400];

/// The number of pending entries by idle time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct IdleTimes {
    /// The ranges, without gaps, the shortest idle times first.
    pub ranges: Vec<IdleRange>,
    /// Number of released entries, which have no idle time.
    pub released: u64,
    /// Number of entries examined, from the oldest one on.
    pub scanned: u64,
    /// Whether these are all. If not, each number is a lower bound.
    pub complete: bool,
}

/// The pending entries whose idle times are in a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdleRange {
    /// The shortest idle time.
    pub min: Duration,
    /// The end of the range, which is part of the next one. `None` for the last range.
    pub end: Option<Duration>,
    /// Number of entries.
    pub count: u64,
}

/// Counts the pending entries of a group by idle time. Examines at most [`SCAN_MAX`].
pub async fn idle_times(backend: &dyn Admin, stream: &str, group: &str) -> Result<IdleTimes, Error> {
    let all = PendingQuery::default();
    let (rows, complete) = select(backend, stream, group, &all, StreamId::MIN, SCAN_MAX).await?;
    let mut ranges = ranges();
    let mut released = 0;
    for row in &rows {
        match row.idle {
            None => released += 1,
            Some(idle) => {
                let at = ranges.partition_point(|range| range.end.is_some_and(|end| end <= idle));
                ranges[at].count += 1;
            }
        }
    }
    Ok(IdleTimes { ranges, released, scanned: rows.len() as u64, complete })
}

fn ranges() -> Vec<IdleRange> {
    let ends = ENDS.map(Duration::from_secs);
    let starts = std::iter::once(Duration::ZERO).chain(ends);
    let ends = ends.into_iter().map(Some).chain([None]);
    starts.zip(ends).map(|(min, end)| IdleRange { min, end, count: 0 }).collect()
}
