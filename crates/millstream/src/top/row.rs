//! The rows of the overview: one for each group, and one for each stream without groups.

use std::cmp::Ordering;

use millstream_worker::monitor::{
    GroupRates, GroupSnapshot, GroupVerdict, Health, Limits, StreamRates, StreamSnapshot,
};

use super::poller::StoreSnapshot;

/// Identifies a row: a group, or a stream without groups.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct RowKey {
    /// Name of the stream.
    pub(super) stream: String,
    /// Name of the group. `None` for a stream without groups.
    pub(super) group: Option<String>,
}

/// A row of the overview.
#[derive(Clone, Debug)]
pub(super) struct Row {
    /// The group or stream of the row.
    pub(super) key: RowKey,
    /// Number of entries in the stream.
    pub(super) length: u64,
    /// Entries added per second. `None` if unknown, for example before the second poll.
    pub(super) added: Option<f64>,
    /// State of the group. `None` for a stream without groups.
    pub(super) group: Option<GroupRow>,
}

/// The state of the group of a row.
#[derive(Clone, Debug)]
pub(super) struct GroupRow {
    /// The group at the last poll.
    pub(super) snapshot: GroupSnapshot,
    /// Rates since the previous poll. `None` if they are unknown.
    pub(super) rates: Option<GroupRates>,
    /// Health of the group, with its problems.
    pub(super) verdict: GroupVerdict,
}

impl Row {
    /// Returns the health of the group. `None` for a stream without groups.
    pub(super) fn health(&self) -> Option<Health> {
        self.group.as_ref().map(|group| group.verdict.health)
    }

    /// Returns the entries acknowledged per second. `None` if unknown.
    pub(super) fn acknowledged(&self) -> Option<f64> {
        self.group.as_ref()?.rates?.acknowledged
    }

    /// Whether each word is contained in the names or the health of the row, ignoring case.
    pub(super) fn matches(&self, words: &str) -> bool {
        let group = self.key.group.as_deref().unwrap_or_default();
        let health = self.health().map(|health| health.to_string()).unwrap_or_default();
        let text = format!("{} {group} {health}", self.key.stream).to_lowercase();
        words.to_lowercase().split_whitespace().all(|word| text.contains(word))
    }
}

/// Returns the rows of a snapshot. `before` is the previous snapshot; the rates compare the two.
pub(super) fn rows(snapshot: &StoreSnapshot, before: Option<&StoreSnapshot>) -> Vec<Row> {
    snapshot.streams.iter().flat_map(|stream| stream_rows(stream, before)).collect()
}

fn stream_rows(stream: &StreamSnapshot, before: Option<&StoreSnapshot>) -> Vec<Row> {
    let before = before.and_then(|snapshot| snapshot.streams.iter().find(|found| found.name == stream.name));
    let added = before.and_then(|before| StreamRates::between(before, stream)?.added);
    let row = |group: Option<&GroupSnapshot>| Row {
        key: RowKey { stream: stream.name.clone(), group: group.map(|group| group.name.clone()) },
        length: stream.info.length,
        added,
        group: group.map(|group| group_row(group, before.and_then(|before| before.group(&group.name)))),
    };
    if stream.groups.is_empty() {
        return vec![row(None)];
    }
    stream.groups.iter().map(|group| row(Some(group))).collect()
}

fn group_row(group: &GroupSnapshot, before: Option<&GroupSnapshot>) -> GroupRow {
    GroupRow {
        snapshot: group.clone(),
        rates: before.and_then(|before| GroupRates::between(before, group)),
        verdict: group.verdict(&Limits::default()),
    }
}

/// Sort order of the rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sort {
    /// By names of streams and groups, ascending.
    Name,
    /// By health, worst first.
    Health,
    /// By lag, descending. All following orders are descending too.
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
}

impl Sort {
    /// All sort orders with their names, in the order of their declaration. The key `s` cycles through them.
    const ALL: [(Sort, &'static str); 9] = [
        (Sort::Name, "name"),
        (Sort::Health, "health"),
        (Sort::Lag, "lag"),
        (Sort::UnreadAge, "oldest unread"),
        (Sort::Pending, "pending"),
        (Sort::PendingAge, "oldest pending"),
        (Sort::Added, "in/s"),
        (Sort::Acknowledged, "out/s"),
        (Sort::Length, "length"),
    ];

    /// Returns the next sort order. The first follows the last.
    pub(super) fn next(self) -> Sort {
        Sort::ALL[(self as usize + 1) % Sort::ALL.len()].0
    }

    /// Returns the name of the sort order.
    pub(super) fn name(self) -> &'static str {
        Sort::ALL[self as usize].1
    }

    /// Compares two rows. Rows without a value are sorted last.
    pub(super) fn compare(self, a: &Row, b: &Row) -> Ordering {
        let of_group = |value: fn(&GroupSnapshot) -> Option<f64>| {
            let value = |row: &Row| row.group.as_ref().and_then(|group| value(&group.snapshot));
            descending(value(a), value(b))
        };
        match self {
            Sort::Name => Ordering::Equal,
            Sort::Health => b.health().cmp(&a.health()),
            Sort::Lag => of_group(|group| Some(group.lag.count as f64)),
            Sort::UnreadAge => of_group(|group| group.unread_age().map(|age| age.as_secs_f64())),
            Sort::Pending => of_group(|group| Some(group.pending as f64)),
            Sort::PendingAge => of_group(|group| group.pending_age().map(|age| age.as_secs_f64())),
            Sort::Added => descending(a.added, b.added),
            Sort::Acknowledged => descending(a.acknowledged(), b.acknowledged()),
            Sort::Length => b.length.cmp(&a.length),
        }
    }
}

fn descending(a: Option<f64>, b: Option<f64>) -> Ordering {
    match (a, b) {
        (Some(a), Some(b)) => b.total_cmp(&a),
        (a, b) => b.is_some().cmp(&a.is_some()),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::top::sample;

    #[tokio::test]
    async fn a_stream_without_groups_has_a_row() {
        let rows = rows(&sample::snapshot().await, None);
        let names: Vec<(&str, Option<&str>)> =
            rows.iter().map(|row| (row.key.stream.as_str(), row.key.group.as_deref())).collect();
        assert_eq!(names, [("events", None), ("orders", Some("audit")), ("orders", Some("billing"))]);
        assert_eq!(rows[0].length, 1);
        assert_eq!(rows[1].group.as_ref().unwrap().snapshot.lag.count, 5);
        let billing = &rows[2].group.as_ref().unwrap().snapshot;
        assert_eq!((billing.lag.count, billing.pending, billing.consumers.len()), (3, 2, 1));
        assert!(rows.iter().all(|row| row.added.is_none() && row.acknowledged().is_none()));
    }

    #[tokio::test]
    async fn two_snapshots_give_rates() {
        let before = sample::snapshot().await;
        let mut after = before.clone();
        let orders = &mut after.streams[1];
        orders.at += Duration::from_secs(2);
        *orders.info.entries_added.as_mut().unwrap() += 10;
        let billing = &mut orders.groups[1];
        billing.at += Duration::from_secs(2);
        *billing.entries_read.as_mut().unwrap() += 4;
        let rows = rows(&after, Some(&before));
        assert_eq!((rows[2].added, rows[2].acknowledged()), (Some(5.0), Some(2.0)));
    }

    #[tokio::test]
    async fn filter_words_match_names_and_health() {
        let rows = rows(&sample::snapshot().await, None);
        let found = |words| rows.iter().filter(|row| row.matches(words)).count();
        assert_eq!([found(""), found("ORD"), found("ord bill"), found("x")], [3, 2, 1, 0]);
        assert_eq!(found("degraded"), 1, "audit has no consumer");
    }

    #[tokio::test]
    async fn rows_without_a_value_are_sorted_last() {
        let rows = rows(&sample::snapshot().await, None);
        let sorted = |sort: Sort| {
            let mut sorted: Vec<&Row> = rows.iter().collect();
            sorted.sort_by(|a, b| sort.compare(a, b));
            sorted.into_iter().map(|row| row.key.group.as_deref().unwrap_or("-")).collect::<Vec<_>>()
        };
        assert_eq!(sorted(Sort::Name), ["-", "audit", "billing"]);
        assert_eq!(sorted(Sort::Health), ["audit", "billing", "-"]);
        assert_eq!(sorted(Sort::Lag), ["audit", "billing", "-"]);
        assert_eq!(sorted(Sort::Pending), ["billing", "audit", "-"]);
        assert_eq!(sorted(Sort::Length), ["audit", "billing", "-"]);
        let mut sort = Sort::Name;
        for _ in 0..9 {
            sort = sort.next();
        }
        assert_eq!(sort, Sort::Name);
    }
}
