//! The lines at the top and the line of keys at the bottom. The top shows the store, totals, and a status line:
//! problems of the store, whether updates are paused, and the filter.

use std::time::Instant;

use ratatui::text::{Line, Span};

use super::number::rate;
use super::palette::Palette;
use crate::ops::safe_text::printable;
use crate::ops::value::{age, count, counted};
use crate::top::keys::Mode;
use crate::top::sort;
use crate::top::state::{State, View};

pub(super) const HEIGHT: u16 = 3;

pub(super) fn lines(state: &State, palette: &Palette, now: Instant) -> [Line<'static>; HEIGHT as usize] {
    [store(state, palette), totals(state, palette), status(state, palette, now)]
}

fn store(state: &State, palette: &Palette) -> Line<'static> {
    let mut line = Line::from(Span::styled("millstream top", palette.title));
    match &state.snapshot {
        None => line.push_span(Span::styled("  connecting", palette.dim)),
        Some(snapshot) => line.push_span(format!("  {}", printable(&snapshot.location))),
    }
    line
}

fn totals(state: &State, palette: &Palette) -> Line<'static> {
    if state.snapshot.is_none() {
        return Line::default();
    }
    let totals = state.totals();
    let at_least = if totals.lag_is_exact { "" } else { "≥" };
    let mut line = Line::from(format!(
        "{}, {}, {}  lag {at_least}{}  pending {}  in {}/s  out {}/s",
        counted(totals.streams as u64, "stream", "streams"),
        counted(totals.groups as u64, "group", "groups"),
        counted(totals.entries, "entry", "entries"),
        count(totals.lag),
        count(totals.pending),
        rate(totals.added),
        rate(totals.acknowledged),
    ));
    // Zeros are not shown.
    let problems = [
        (totals.missed, "missed", palette.bad),
        (totals.stuck, "stuck", palette.warn),
        (totals.dead_letters, "dead", palette.warn),
        (totals.degraded as u64, "degraded", palette.warn),
        (totals.critical as u64, "critical", palette.bad),
    ];
    for (number, name, style) in problems.into_iter().filter(|(number, ..)| *number > 0) {
        line.push_span("  ");
        line.push_span(Span::styled(format!("{} {name}", count(number)), style));
    }
    line
}

fn status(state: &State, palette: &Palette, now: Instant) -> Line<'static> {
    let mut parts = Vec::new();
    if let Some(problem) = state.store_problem(now) {
        parts.push(Span::styled(printable(problem), palette.bad));
    }
    if state.schedule.paused {
        parts.push(Span::styled("paused: press p to resume", palette.warn));
    }
    if !state.filter.is_empty() {
        let shown = counted(state.shown().len() as u64, "row", "rows");
        parts.push(Span::styled(format!("filter \"{}\": {shown}", printable(&state.filter)), palette.title));
    }
    let mut line = Line::default();
    for part in parts {
        if !line.spans.is_empty() {
            line.push_span("  ");
        }
        line.push_span(part);
    }
    line
}

/// Returns the line at the bottom: the most useful keys, or the filter that is being typed.
pub(super) fn footer(state: &State, palette: &Palette) -> Line<'static> {
    if state.mode() == Mode::Typing {
        let typed = Span::styled(format!("/{}▏", printable(&state.filter)), palette.title);
        return Line::from(vec![typed, Span::styled("  Enter: keep, Esc: clear", palette.dim)]);
    }
    let (sort, reversed) = (state.sort, state.reversed);
    let arrow = if reversed { " ↑" } else { "" };
    let page_keys = match state.view {
        View::Overview => format!("Enter open  / filter  s sort: {}{arrow}", sort::name(sort)),
        View::Group { .. } => "Esc back  j/k scroll".to_owned(),
    };
    let interval = age(state.schedule.interval);
    Line::styled(format!("{page_keys}  p pause  +/- every {interval}  ? help  q quit"), palette.dim)
}
