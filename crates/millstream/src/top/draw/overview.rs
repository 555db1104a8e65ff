//! The table of all streams and groups.

use millstream_worker::monitor::{GroupSnapshot, Health};
use millstream_worker::observe::{Row, Sort};
use ratatui::text::{Line, Span};

use super::grid::{CellKind, Column, Grid};
use super::number::rate_or_absent;
use super::palette::Palette;
use crate::ops::safe_text::printable;
use crate::ops::value::{ABSENT, age_or_absent, count, format_lag, format_missed};
use crate::top::poller::ALL_STREAMS;

use crate::top::state::State;

/// For each column: heading, sort order, kind of cells, and drop priority.
const COLUMNS: [(&str, Option<Sort>, CellKind, u8); 13] = [
    ("STREAM", Some(Sort::Name), CellKind::Name, 0),
    ("GROUP", None, CellKind::Name, 0),
    ("LENGTH", Some(Sort::Length), CellKind::Number, 7),
    ("LAG", Some(Sort::Lag), CellKind::Number, 0),
    ("MISSED", None, CellKind::Number, 8),
    ("OLDEST-UNREAD", Some(Sort::UnreadAge), CellKind::Number, 1),
    ("PENDING", Some(Sort::Pending), CellKind::Number, 3),
    ("OLDEST-PENDING", Some(Sort::PendingAge), CellKind::Number, 4),
    ("STUCK", None, CellKind::Number, 2),
    ("CONSUMERS", None, CellKind::Number, 9),
    ("IN/S", Some(Sort::Added), CellKind::Number, 6),
    ("OUT/S", Some(Sort::Acknowledged), CellKind::Number, 5),
    ("HEALTH", Some(Sort::Health), CellKind::Word, 0),
];

/// Returns the headings and a line for each shown row.
pub(super) fn lines(state: &State, palette: &Palette, width: usize) -> Vec<Line<'static>> {
    let mut grid = Grid::new(columns(state));
    state.shown().into_iter().for_each(|row| grid.push(cells(row, palette)));
    grid.lines(width, palette.dim)
}

/// Returns the message that replaces an empty table.
pub(super) fn empty_message(state: &State) -> String {
    match (&state.snapshot, state.filter.as_str()) {
        (None, _) => String::new(),
        (Some(snapshot), "") if snapshot.pattern == ALL_STREAMS => {
            "no streams; create one with: millstream add STREAM FIELD=VALUE".to_owned()
        }
        (Some(snapshot), "") => format!("no streams match {}", printable(&snapshot.pattern)),
        (Some(_), _) => "no rows match the filter; press Esc to clear it".to_owned(),
    }
}

fn columns(state: &State) -> Vec<Column> {
    let (sort, reversed) = (state.sort, state.reversed);
    let ascending = reversed != (sort == Sort::Name);
    let column = |(heading, sorts_by, kind, drop_priority): (&str, Option<Sort>, CellKind, u8)| {
        let arrow = match sorts_by == Some(sort) {
            false => "",
            true if ascending => "▲",
            true => "▼",
        };
        Column { heading: format!("{heading}{arrow}"), kind, drop_priority }
    };
    COLUMNS.into_iter().map(column).collect()
}

fn cells(row: &Row, palette: &Palette) -> Vec<Span<'static>> {
    let group = row.group.as_ref().map(|group| &group.snapshot);
    let of_group =
        |value: fn(&GroupSnapshot) -> String| Span::raw(group.map_or_else(|| ABSENT.to_owned(), value));
    let missed = of_group(|group| format_missed(group.missed));
    let has_missed = group.is_some_and(|group| group.missed.is_ahead);
    let stuck = of_group(|group| count(group.scan.stuck));
    let is_stuck = group.is_some_and(|group| group.scan.stuck > 0);
    let name = |name: &str| Span::raw(printable(name));
    vec![
        name(&row.shown_key().stream),
        name(row.key.group.as_deref().unwrap_or(ABSENT)),
        Span::raw(count(row.info.length)),
        of_group(|group| format_lag(group.lag)),
        if has_missed { missed.style(palette.bad) } else { missed },
        of_group(|group| age_or_absent(group.unread_age())),
        of_group(|group| count(group.pending)),
        of_group(|group| age_or_absent(group.pending_age())),
        if is_stuck { stuck.style(palette.warn) } else { stuck },
        of_group(|group| group.consumers.len().to_string()),
        Span::raw(rate_or_absent(row.rates.added)),
        Span::raw(rate_or_absent(row.rates.acknowledged)),
        health(row.health(), palette),
    ]
}

fn health(health: Option<Health>, palette: &Palette) -> Span<'static> {
    match health {
        Some(health) => Span::styled(health.to_string(), palette.health(health)),
        None => Span::styled(ABSENT, palette.dim),
    }
}
