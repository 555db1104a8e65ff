//! Which rows a viewer wants, and in which order.

use std::cmp::Ordering;
use std::sync::Arc;

use super::row::{Eta, GroupRow, Look, Row};
use crate::monitor::Health;

/// Sort order of rows. Every order but [`Sort::Name`] and [`Sort::Eta`] is descending: the greatest or worst first.
/// Rows without a value are last; rows with equal values are sorted by name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sort {
    /// By names of streams and groups.
    Name,
    /// By health, worst first, then by lag.
    #[default]
    Health,
    /// By lag.
    Lag,
    /// By the age of the oldest unread entry.
    UnreadAge,
    /// By the number of pending entries.
    Pending,
    /// By the age of the oldest pending entry.
    PendingAge,
    /// By entries added per second.
    Added,
    /// By entries acknowledged per second.
    Acknowledged,
    /// By the number of entries in the stream.
    Length,
    /// By the number of stuck pending entries.
    Stuck,
    /// By the time until everything is read: never first, then the longest.
    Eta,
    /// By the number of dead letters.
    DeadLetters,
}

impl Sort {
    /// All sort orders with their names for programs.
    pub const ALL: [(Sort, &'static str); 12] = [
        (Sort::Name, "name"),
        (Sort::Health, "health"),
        (Sort::Lag, "lag"),
        (Sort::UnreadAge, "oldest"),
        (Sort::Pending, "pending"),
        (Sort::PendingAge, "oldest_pending"),
        (Sort::Added, "in"),
        (Sort::Acknowledged, "out"),
        (Sort::Length, "length"),
        (Sort::Stuck, "stuck"),
        (Sort::Eta, "eta"),
        (Sort::DeadLetters, "dead"),
    ];

    /// Returns the sort order with this name.
    pub fn named(name: &str) -> Option<Sort> {
        Sort::ALL.iter().find(|(_, known)| *known == name).map(|(sort, _)| *sort)
    }

    /// Returns the name for programs.
    pub fn as_str(self) -> &'static str {
        Sort::ALL.iter().find(|(sort, _)| *sort == self).map_or("", |(_, name)| name)
    }

    /// Compares two rows of a look. Equal rows keep the order of their names if the sort is stable.
    pub fn compare(self, a: &Row, b: &Row) -> Ordering {
        match self {
            Sort::Name => Ordering::Equal,
            Sort::Health => b.health().cmp(&a.health()).then_with(|| Sort::Lag.compare(a, b)),
            _ => descending(self.value(a), self.value(b)),
        }
    }

    /// Returns the number by which a row is sorted.
    fn value(self, row: &Row) -> Option<f64> {
        let group = |value: fn(&GroupRow) -> Option<f64>| row.group.as_ref().and_then(value);
        match self {
            Sort::Name | Sort::Health => None,
            Sort::Lag => group(|group| Some(group.snapshot.lag.count as f64)),
            Sort::UnreadAge => group(|group| Some(group.snapshot.unread_age()?.as_secs_f64())),
            Sort::Pending => group(|group| Some(group.snapshot.pending as f64)),
            Sort::PendingAge => group(|group| Some(group.snapshot.pending_age()?.as_secs_f64())),
            Sort::Added => row.rates.added,
            Sort::Acknowledged => row.rates.acknowledged,
            Sort::Length => Some(row.info.length as f64),
            Sort::Stuck => group(|group| Some(group.snapshot.scan.stuck as f64)),
            Sort::Eta => group(|group| match group.eta {
                Eta::Never => Some(f64::INFINITY),
                Eta::At(time) => Some(time.as_secs_f64()),
                Eta::CaughtUp => Some(0.0),
                Eta::Unknown => None,
            }),
            Sort::DeadLetters => group(|group| Some(group.snapshot.dead_letters_length as f64)),
        }
    }
}

fn descending(a: Option<f64>, b: Option<f64>) -> Ordering {
    match (a, b) {
        (Some(a), Some(b)) => b.total_cmp(&a),
        (a, b) => b.is_some().cmp(&a.is_some()),
    }
}

/// Selects, sorts and pages rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Query {
    /// Only rows whose names or health contain each of these words, ignoring case.
    pub words: String,
    /// Only groups with this health.
    pub health: Option<Health>,
    /// The order.
    pub sort: Sort,
    /// Whether the order is reversed.
    pub reversed: bool,
    /// Number of rows to skip.
    pub offset: usize,
    /// Maximum number of rows to return.
    pub count: usize,
}

impl Default for Query {
    fn default() -> Query {
        Query {
            words: String::new(),
            health: None,
            sort: Sort::default(),
            reversed: false,
            offset: 0,
            count: 100,
        }
    }
}

/// A part of the rows that match a query.
#[derive(Clone, Debug, Default)]
pub struct Page {
    /// The rows.
    pub rows: Vec<Arc<Row>>,
    /// Number of rows that match.
    pub matched: usize,
    /// Number of matching rows before these. Less than asked for if fewer rows match.
    pub offset: usize,
}

impl Look {
    /// Returns a page of the rows that match. `may_see` decides about a stream by its name.
    pub fn page(&self, query: &Query, may_see: impl Fn(&str) -> bool) -> Page {
        let is_wanted = |row: &&Arc<Row>| {
            query.health.is_none_or(|health| row.health() == Some(health))
                && row.matches(&query.words)
                && self.is_seen(row, &may_see)
        };
        let mut found: Vec<&Arc<Row>> = self.rows.iter().filter(is_wanted).collect();
        // The rows are sorted by name, and the sort is stable.
        found.sort_by(|a, b| query.sort.compare(a, b));
        if query.reversed {
            found.reverse();
        }
        let matched = found.len();
        let offset = query.offset.min(matched);
        let rows = found.into_iter().skip(offset).take(query.count).cloned().collect();
        Page { rows, matched, offset }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_order_has_a_name_of_its_own() {
        for (sort, name) in Sort::ALL {
            assert_eq!((Sort::named(name), sort.as_str()), (Some(sort), name));
        }
        assert_eq!(Sort::named("x"), None);
    }
}
