//! The table of all streams and groups.

use millstream_worker::monitor::{GroupSnapshot, Health};
use ratatui::text::{Line, Span};

use super::grid::{Column, Grid, Kind};
use super::number::rate_or_nothing;
use super::palette::Palette;
use crate::ops::shape::lag;
use crate::ops::value::{NOTHING, age_or_nothing, count, text};
use crate::top::row::{Row, Sort};
use crate::top::state::State;
use crate::top::watcher::EVERYTHING;

/// Headings, what they sort by, what the cells are, and which column goes first where it is narrow.
const COLUMNS: [(&str, Option<Sort>, Kind, u8); 12] = [
    ("STREAM", Some(Sort::Name), Kind::Name, 0),
    ("GROUP", None, Kind::Name, 0),
    ("LENGTH", Some(Sort::Length), Kind::Number, 6),
    ("LAG", Some(Sort::Lag), Kind::Number, 0),
    ("OLDEST-UNREAD", Some(Sort::UnreadAge), Kind::Number, 4),
    ("PENDING", Some(Sort::Pending), Kind::Number, 1),
    ("OLDEST-PENDING", Some(Sort::PendingAge), Kind::Number, 5),
    ("STUCK", None, Kind::Number, 7),
    ("CONSUMERS", None, Kind::Number, 8),
    ("IN/S", Some(Sort::Added), Kind::Number, 3),
    ("OUT/S", Some(Sort::Acknowledged), Kind::Number, 2),
    ("HEALTH", Some(Sort::Health), Kind::Word, 0),
];

/// The headings, and then a line for each row that is shown.
pub(super) fn lines(state: &State, palette: &Palette, width: usize) -> Vec<Line<'static>> {
    let mut grid = Grid::new(columns(state));
    state.shown().into_iter().for_each(|row| grid.push(cells(row, palette)));
    grid.lines(width, palette.dim)
}

/// What to say where there is no row.
pub(super) fn nothing(state: &State) -> String {
    match (&state.look, state.filter.as_str()) {
        (None, _) => String::new(),
        (Some(look), "") if look.pattern == EVERYTHING => {
            "there are no streams; begin one with: millstream add STREAM FIELD=VALUE".to_owned()
        }
        (Some(look), "") => format!("no streams match {}", text(look.pattern.as_bytes())),
        (Some(_), _) => "nothing matches the filter; Esc drops it".to_owned(),
    }
}

fn columns(state: &State) -> Vec<Column> {
    let (sort, reversed) = (state.sort, state.reversed);
    let rising = reversed != (sort == Sort::Name);
    let column = |(heading, sorts_by, kind, expendable): (&str, Option<Sort>, Kind, u8)| {
        let mark = match sorts_by == Some(sort) {
            false => "",
            true if rising => "▲",
            true => "▼",
        };
        Column { heading: format!("{heading}{mark}"), kind, expendable }
    };
    COLUMNS.into_iter().map(column).collect()
}

fn cells(row: &Row, palette: &Palette) -> Vec<Span<'static>> {
    let group = row.group.as_ref().map(|group| &group.snapshot);
    let of_group =
        |value: fn(&GroupSnapshot) -> String| Span::raw(group.map_or_else(|| NOTHING.to_owned(), value));
    let stuck = of_group(|group| count(group.scan.stuck));
    let is_stuck = group.is_some_and(|group| group.scan.stuck > 0);
    let name = |name: &str| Span::raw(text(name.as_bytes()));
    vec![
        name(&row.key.stream),
        name(row.key.group.as_deref().unwrap_or(NOTHING)),
        Span::raw(count(row.length)),
        of_group(|group| lag(group.lag)),
        of_group(|group| age_or_nothing(group.unread_age())),
        of_group(|group| count(group.pending)),
        of_group(|group| age_or_nothing(group.pending_age())),
        if is_stuck { stuck.style(palette.warn) } else { stuck },
        of_group(|group| group.consumers.len().to_string()),
        Span::raw(rate_or_nothing(row.added)),
        Span::raw(rate_or_nothing(row.acknowledged())),
        health(row.health(), palette),
    ]
}

fn health(health: Option<Health>, palette: &Palette) -> Span<'static> {
    match health {
        Some(health) => Span::styled(health.to_string(), palette.health(health)),
        None => Span::styled(NOTHING, palette.dim),
    }
}
