//! Gaps in the log: positions that no segment contains, described by the segments around them.

use std::fmt;

use super::segment;
use crate::disk::Listed;

/// A range of positions that no segment contains.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gap {
    /// First missing position.
    pub first: u64,
    /// First position after the gap; `None` if no segment follows.
    pub next: Option<u64>,
    /// Name of the segment before the gap.
    pub segment_before: Option<String>,
    /// Name of the segment after the gap.
    pub segment_after: Option<String>,
}

impl Gap {
    /// Returns the gap at the start of a log that is needed from `first` on.
    pub(super) fn at_start(first: u64, follows: Option<(u64, &Listed)>) -> Gap {
        let (next, segment_after) = follows.map(|(begins, file)| (begins, file.name.clone())).unzip();
        Gap { first, next, segment_before: None, segment_after }
    }

    /// Returns the gap between two segments.
    pub(super) fn between(first: u64, segment_before: &Listed, (begins, file): (u64, &Listed)) -> Gap {
        Gap {
            first,
            next: Some(begins),
            segment_before: Some(segment_before.name.clone()),
            segment_after: Some(file.name.clone()),
        }
    }

    /// Returns the name of the file that reveals the gap: the segment after it, or the missing segment if none follows.
    pub(super) fn reported_file(&self) -> String {
        self.segment_after.clone().unwrap_or_else(|| segment::name(self.first))
    }
}

impl fmt::Display for Gap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let first = self.first;
        match self.next.map(|next| next - 1) {
            None => write!(f, "the log is missing from position {first} on")?,
            Some(last) if last == first => write!(f, "position {first} of the log is missing")?,
            Some(last) => write!(f, "positions {first} to {last} of the log are missing")?,
        }
        match (&self.segment_before, &self.segment_after) {
            (Some(segment_before), Some(segment_after)) => {
                write!(f, ", between {segment_before} and {segment_after}")
            }
            (None, Some(segment_after)) => write!(f, ", before {segment_after}"),
            (Some(segment_before), None) => write!(f, ", after {segment_before}"),
            (None, None) => write!(f, ": the folder has no segment"),
        }
    }
}
