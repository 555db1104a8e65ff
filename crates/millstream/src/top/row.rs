//! The rows of the overview: one for each group, and one for each stream that no group reads.

use std::cmp::Ordering;

use millstream_worker::monitor::{
    GroupRates, GroupSnapshot, Health, Limits, StreamRates, StreamSnapshot, Verdict,
};

use super::watcher::Look;

/// What a row is about.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Key {
    /// The stream.
    pub(super) stream: String,
    /// The group; `None` for a stream that has none.
    pub(super) group: Option<String>,
}

/// A row.
#[derive(Clone, Debug)]
pub(super) struct Row {
    /// What it is about.
    pub(super) key: Key,
    /// How many entries the stream has.
    pub(super) length: u64,
    /// Entries added per second, where known.
    pub(super) added: Option<f64>,
    /// The group.
    pub(super) group: Option<GroupRow>,
}

/// What a row says about its group.
#[derive(Clone, Debug)]
pub(super) struct GroupRow {
    /// The group as last seen.
    pub(super) snapshot: GroupSnapshot,
    /// What it did since the look before, where known.
    pub(super) rates: Option<GroupRates>,
    /// Whether it is well, and why not.
    pub(super) verdict: Verdict,
}

impl Row {
    /// How well its group is.
    pub(super) fn health(&self) -> Option<Health> {
        self.group.as_ref().map(|group| group.verdict.health)
    }

    /// Entries acknowledged per second, where known.
    pub(super) fn acknowledged(&self) -> Option<f64> {
        self.group.as_ref()?.rates?.acknowledged
    }

    /// Whether every word is somewhere in its names or its health, in capital letters or not.
    pub(super) fn matches(&self, words: &str) -> bool {
        let group = self.key.group.as_deref().unwrap_or_default();
        let health = self.health().map(|health| health.to_string()).unwrap_or_default();
        let text = format!("{} {group} {health}", self.key.stream).to_lowercase();
        words.to_lowercase().split_whitespace().all(|word| text.contains(word))
    }
}

/// The rows of a look; the look before gives the rates.
pub(super) fn rows(look: &Look, before: Option<&Look>) -> Vec<Row> {
    look.streams.iter().flat_map(|stream| stream_rows(stream, before)).collect()
}

fn stream_rows(stream: &StreamSnapshot, before: Option<&Look>) -> Vec<Row> {
    let before = before.and_then(|look| look.streams.iter().find(|found| found.name == stream.name));
    let added = before.and_then(|before| StreamRates::between(before, stream)?.added);
    let row = |group: Option<&GroupSnapshot>| Row {
        key: Key { stream: stream.name.clone(), group: group.map(|group| group.name.clone()) },
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

/// By what the rows are sorted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sort {
    /// Names of streams and groups, rising.
    Name,
    /// The worst first.
    Health,
    /// The greatest first, as all that follow.
    Lag,
    /// How old the oldest unread entry is.
    UnreadAge,
    /// Entries pending.
    Pending,
    /// How old the oldest pending entry is.
    PendingAge,
    /// Entries added per second.
    Added,
    /// Entries acknowledged per second.
    Acknowledged,
    /// Entries in the stream.
    Length,
}

impl Sort {
    /// All of them with their names, in the order of the declaration and of the key that turns to the next.
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

    /// The next one; after the last comes the first.
    pub(super) fn next(self) -> Sort {
        Sort::ALL[(self as usize + 1) % Sort::ALL.len()].0
    }

    /// What it is called.
    pub(super) fn name(self) -> &'static str {
        Sort::ALL[self as usize].1
    }

    /// Which of two rows comes first. Rows that have no value come last.
    pub(super) fn compare(self, a: &Row, b: &Row) -> Ordering {
        let of_group = |value: fn(&GroupSnapshot) -> Option<f64>| {
            let value = |row: &Row| row.group.as_ref().and_then(|group| value(&group.snapshot));
            falling(value(a), value(b))
        };
        match self {
            Sort::Name => Ordering::Equal,
            Sort::Health => b.health().cmp(&a.health()),
            Sort::Lag => of_group(|group| Some(group.lag.count as f64)),
            Sort::UnreadAge => of_group(|group| group.unread_age().map(|age| age.as_secs_f64())),
            Sort::Pending => of_group(|group| Some(group.pending as f64)),
            Sort::PendingAge => of_group(|group| group.pending_age().map(|age| age.as_secs_f64())),
            Sort::Added => falling(a.added, b.added),
            Sort::Acknowledged => falling(a.acknowledged(), b.acknowledged()),
            Sort::Length => b.length.cmp(&a.length),
        }
    }
}

fn falling(a: Option<f64>, b: Option<f64>) -> Ordering {
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
    async fn a_stream_without_a_group_is_a_row_too() {
        let rows = rows(&sample::look().await, None);
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
    async fn two_looks_give_rates() {
        let before = sample::look().await;
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
    async fn words_are_found_in_names_and_health() {
        let rows = rows(&sample::look().await, None);
        let found = |words| rows.iter().filter(|row| row.matches(words)).count();
        assert_eq!([found(""), found("ORD"), found("ord bill"), found("x")], [3, 2, 1, 0]);
        assert_eq!(found("degraded"), 1, "nobody reads for audit yet");
    }

    #[tokio::test]
    async fn rows_without_a_value_come_last() {
        let rows = rows(&sample::look().await, None);
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
