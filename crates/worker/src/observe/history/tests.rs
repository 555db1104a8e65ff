//! Tests of the history: what comes out is what went in, and it takes no more memory than promised.

use super::*;

const EVERY: Duration = Duration::from_secs(2);

fn key(n: usize) -> RowKey {
    RowKey::group(format!("stream-{:04}", n / 10), format!("group-{}", n % 10))
}

/// The time of a point, with looks about every two seconds.
fn time(point: u64) -> u64 {
    1_794_000_000_000 + point * 2_000 + (point * 7919) % 13
}

/// A busy group: 38 to 44 entries a second, with a lag that goes up and down.
fn busy(point: u64, seed: u64) -> Values {
    let noise = |n: u64| (point.wrapping_mul(2_654_435_761).wrapping_add(seed * 97 + n * 31) >> 3) % 12;
    let added = 1_000_000 + point * 80 + noise(1);
    Values {
        added: Some(added),
        read: Some(added - 100 - noise(2) * 9),
        lag: 100 + noise(2) * 9,
        pending: noise(3) * 3,
        oldest_unread_at_ms: Some(time(point) - 2_000 - noise(4) * 100),
        dead_letters: point / 500,
    }
}

fn points_of<'a>(history: &'a History, key: &RowKey) -> &'a VecDeque<HistoryPoint> {
    &history.groups[key].points
}

#[test]
fn values_that_change_are_points() {
    let mut history = History::new(usize::MAX);
    let values = |point: u64| match point {
        // Everything changes, by as much as possible.
        70 => Values { added: None, lag: u64::MAX, pending: u64::MAX, ..Values::default() },
        71 => Values { added: Some(0), read: Some(u64::MAX), ..Values::default() },
        100..=400 => Values {
            added: Some(7),
            read: Some(7),
            oldest_unread_at_ms: Some(time(100)),
            ..Values::default()
        },
        _ => busy(point, 1),
    };
    // The second group is new at point 17.
    for point in 0..500 {
        let groups = [(key(0), busy(point, 2)), (key(1), values(point))];
        let count = if point < 17 { 1 } else { 2 };
        history.add_values(time(point), EVERY, groups.iter().take(count).map(|(key, values)| (key, *values)));
    }
    let points = points_of(&history, &key(1));
    // Of the points from 100 to 400, the first has unknown rates, and the second has those that stay.
    let times = (17..=101).chain(401..500).map(time);
    assert_eq!(points.iter().map(|point| point.at_ms).collect::<Vec<_>>(), times.collect::<Vec<_>>());
    let at = |point: u64| points.iter().find(|found| found.at_ms == time(point)).unwrap();
    assert_eq!(
        (at(70).lag, at(70).pending, at(70).added, at(71).acknowledged),
        (u32::MAX, u32::MAX, Rate(-1.0), Rate(-1.0))
    );
    let rate =
        |point: u64| (busy(point, 1).added.unwrap() - busy(point - 1, 1).added.unwrap()) as f64 * 1000.0;
    assert_eq!(at(60).added, Rate((rate(60) / (time(60) - time(59)) as f64) as f32));
    let series = history.series(&key(1), time(200), time(240), 1);
    assert_eq!((series.added[0], series.oldest_unread_ms[0]), (Some(0.0), Some(time(240) - time(100))));

    history.add_values(time(500), EVERY, [(&key(1), values(500))].into_iter());
    assert!(!history.groups.contains_key(&key(0)), "a group that is gone is forgotten");
}

#[test]
fn thinned_rings_keep_their_first_and_last_point() {
    let mut history = History::new(usize::MAX);
    for point in 7..600 {
        history.add_values(time(point), EVERY, [(&key(0), busy(point, 1))].into_iter());
    }
    let all = points_of(&history, &key(0)).clone();
    let mut thin_out = || {
        history.groups.get_mut(&key(0)).unwrap().thin_out();
        points_of(&history, &key(0)).clone()
    };
    let thinned = thin_out();
    assert_eq!(thinned.len(), all.len() - all.len() / 4);
    let thinned = (0..100).map(|_| thin_out()).last().unwrap();
    assert!(thinned.iter().all(|point| all.contains(point)), "a point has changed");
    assert_eq!((thinned.len(), thinned.front(), thinned.back()), (2, all.front(), all.back()));
}

#[test]
fn an_hour_is_kept_and_looks_every_few_milliseconds_are_not_all_points() {
    let mut history = History::new(usize::MAX);
    for point in 0..4_000 {
        history.add_values(time(point), EVERY, [(&key(0), busy(point, 1))].into_iter());
        history.add_values(time(point) + 100, EVERY, [(&key(0), busy(point, 1))].into_iter());
    }
    let points = points_of(&history, &key(0)).len() as u64;
    assert!((POINTS_MAX..=POINTS_MAX + 2).contains(&points), "{points}");
    assert_eq!(history.since_ms(), Some(time(3_999) - KEPT_MS));
}

/// Prints the bytes: `cargo test -p millstream-worker ten_thousand -- --nocapture`.
#[test]
fn ten_thousand_groups_fit_into_the_default_memory() {
    const BUSY: usize = 500;
    // A tenth of the groups, so that the test is fast.
    let keys: Vec<RowKey> = (0..1_000).map(key).collect();
    let quiet = Values { added: Some(123_456), read: Some(123_456), ..Values::default() };
    let mut history = History::new(usize::MAX);
    for point in 0..POINTS_MAX {
        let values = |n: usize| if n < BUSY / 10 { busy(point, n as u64) } else { quiet };
        history.add_values(time(point), EVERY, keys.iter().enumerate().map(|(n, key)| (key, values(n))));
    }
    let bytes = history.bytes() * 10;
    println!("10,000 groups, {BUSY} busy, an hour at 2 s: {:.1} MB", bytes as f64 / 1e6);
    assert!(bytes < 50_000_000, "{bytes}");
}

#[test]
fn the_least_viewed_groups_lose_points_first_if_the_memory_is_used_up() {
    let limit = 100_000;
    let mut history = History::new(limit);
    let keys: Vec<RowKey> = (0..10).map(key).collect();
    for point in 0..POINTS_MAX {
        let groups = keys.iter().enumerate().map(|(n, key)| (key, busy(point, n as u64)));
        history.add_values(time(point), EVERY, groups);
        let _ = history.series(&keys[3], 0, u64::MAX, 10);
        assert!(history.bytes() <= limit, "{} at {point}", history.bytes());
    }
    let points = |at: usize| points_of(&history, &keys[at]).len();
    assert!(points(3) > 2 * points(0), "{} {}", points(3), points(0));
    assert!(points(0) >= POINTS_KEPT / 2, "{}", points(0));
}

#[test]
fn a_series_has_the_greatest_values_and_gaps() {
    let mut history = History::new(usize::MAX);
    let at = |second: u64| 1_794_000_000_000 + second * 1_000;
    let values = |n: u64, lag| Values { added: Some(n * 20), read: Some(n * 10), lag, ..Values::default() };
    for (n, second) in [0, 2, 4, 6, 60, 62].into_iter().enumerate() {
        let lag = if second == 2 { 99 } else { 5 };
        history.add_values(at(second), EVERY, [(&key(0), values(n as u64, lag))].into_iter());
    }
    let series = history.series(&key(0), at(0), at(64), 16);
    assert_eq!((series.step_ms, series.lag.len()), (4_000, 16));
    assert_eq!(series.lag[..4], [Some(99), Some(5), Some(5), None]);
    assert_eq!((series.lag[14], series.lag[15]), (None, Some(5)));
    assert_eq!((series.added[0], series.acknowledged[1]), (Some(10.0), Some(5.0)));
    assert_eq!(series.oldest_unread_ms[0], Some(0));
    // The rate over the gap is unknown.
    assert_eq!(series.added[15], Some(10.0));
    let unknown = history.series(&key(5), at(0), at(64), 16);
    assert!(unknown.is_empty() && unknown.lag.len() == 16 && !series.is_empty());
    let stream = RowKey { stream: key(0).stream, group: None };
    assert_eq!(history.series(&stream, at(0), at(64), 16), series);
    assert_eq!(history.since_ms(), Some(at(0)));
}

/// Somebody watches for a while, nobody does, and then the store does not answer for a minute.
#[test]
fn a_history_has_gaps_only_where_looks_were_missing() {
    let mut history = History::new(usize::MAX);
    let at = |second: u64| 1_794_000_000_000 + second * 1_000;
    let watched = (0..1_200).step_by(2).map(|second| (second, EVERY));
    let idle = (1_200..2_940).step_by(10).map(|second| (second, Duration::from_secs(10)));
    let after = (3_000..3_600).step_by(10).map(|second| (second, Duration::from_secs(10)));
    for (second, interval) in watched.chain(idle).chain(after) {
        history.add_values(
            at(second),
            interval,
            [(&key(0), Values { lag: 5, ..Values::default() })].into_iter(),
        );
    }
    let gaps = |history: &mut History| {
        let series = history.series(&key(0), at(0), at(3_600), 300);
        let gaps = series.lag.iter().enumerate().filter(|(_, lag)| lag.is_none());
        gaps.map(|(step, _)| step * 12).collect::<Vec<_>>()
    };
    assert_eq!(gaps(&mut history), [2_964, 2_976, 2_988]);
    for _ in 0..4 {
        history.groups.get_mut(&key(0)).unwrap().thin_out();
    }
    assert_eq!(gaps(&mut history), [2_964, 2_976, 2_988], "a point that was thinned out is no gap");
}
