//! Positions that no segment has, told by what lies around them: the files that are there are not to blame.

use std::fmt;

use super::segment;
use crate::disk::Listed;

/// Positions that no segment has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gap {
    /// The first of them.
    pub first: u64,
    /// The position found next; `None` when nothing follows.
    pub next: Option<u64>,
    /// The name of the segment before them.
    pub behind: Option<String>,
    /// The name of the segment that follows.
    pub before: Option<String>,
}

impl Gap {
    /// At the beginning of a log that is needed from `first` on.
    pub(super) fn at_begin(first: u64, follows: Option<(u64, &Listed)>) -> Gap {
        let (next, before) = follows.map(|(begins, file)| (begins, file.name.clone())).unzip();
        Gap { first, next, behind: None, before }
    }

    /// Between two segments.
    pub(super) fn between(first: u64, behind: &Listed, (begins, file): (u64, &Listed)) -> Gap {
        Gap { first, next: Some(begins), behind: Some(behind.name.clone()), before: Some(file.name.clone()) }
    }

    /// The name of the file that shows it: the one that follows, or that of which nothing is there.
    pub(super) fn shown_by(&self) -> String {
        self.before.clone().unwrap_or_else(|| segment::name(self.first))
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
        match (&self.behind, &self.before) {
            (Some(behind), Some(before)) => write!(f, ", between {behind} and {before}"),
            (None, Some(before)) => write!(f, ", before {before}"),
            (Some(behind), None) => write!(f, ", behind {behind}"),
            (None, None) => write!(f, ": there is no segment"),
        }
    }
}
