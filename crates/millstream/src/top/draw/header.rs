//! The lines at the top: which store it is, what everything comes to, and what is wrong with it.

use std::time::Instant;

use millstream_worker::backend::Capabilities;
use ratatui::text::{Line, Span};

use super::number::rate;
use super::palette::Palette;
use crate::ops::value::{age, count, counted};
use crate::top::keys::Mode;
use crate::top::state::{State, View};

/// How many lines there are.
pub(super) const HEIGHT: u16 = 3;

/// The lines.
pub(super) fn lines(state: &State, palette: &Palette, now: Instant) -> [Line<'static>; HEIGHT as usize] {
    [place(state, palette), totals(state, palette), status(state, palette, now)]
}

fn place(state: &State, palette: &Palette) -> Line<'static> {
    let mut line = Line::from(Span::styled("millstream top", palette.title));
    match &state.look {
        None => line.push_span(Span::styled("  connecting", palette.dim)),
        Some(look) => {
            line.push_span(format!("  {}", look.place));
            line.push_span(Span::styled(format!("  {}", native(look.capabilities)), palette.dim));
        }
    }
    line
}

/// What the store does natively. What it does not is emulated.
fn native(capabilities: Capabilities) -> String {
    let Capabilities { read_claims, releases, extends, idempotent_adds, exact_lag, .. } = capabilities;
    let all = [
        (exact_lag, "exact lag"),
        (read_claims, "claiming reads"),
        (releases, "releases"),
        (extends, "leases"),
        (idempotent_adds, "idempotent adds"),
    ];
    let told: Vec<&str> = all.iter().filter(|(there, _)| *there).map(|(_, name)| *name).collect();
    if told.is_empty() { "nothing native".to_owned() } else { format!("native: {}", told.join(", ")) }
}

fn totals(state: &State, palette: &Palette) -> Line<'static> {
    if state.look.is_none() {
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
    // Told only where there is something to tell.
    let bad = [
        (totals.stuck, "stuck", palette.warn),
        (totals.dead, "dead", palette.warn),
        (totals.degraded as u64, "degraded", palette.warn),
        (totals.critical as u64, "critical", palette.bad),
    ];
    for (number, what, style) in bad.into_iter().filter(|(number, ..)| *number > 0) {
        line.push_span("  ");
        line.push_span(Span::styled(format!("{} {what}", count(number)), style));
    }
    line
}

fn status(state: &State, palette: &Palette, now: Instant) -> Line<'static> {
    let mut parts = Vec::new();
    if let Some(trouble) = state.trouble(now) {
        parts.push(Span::styled(trouble, palette.bad));
    }
    if state.pace.paused {
        parts.push(Span::styled("paused: p goes on", palette.warn));
    }
    if !state.filter.is_empty() {
        let shown = counted(state.shown().len() as u64, "row", "rows");
        parts.push(Span::styled(format!("filter {:?}: {shown}", state.filter), palette.title));
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

/// The line at the bottom: what the most useful keys do, or what is being typed.
pub(super) fn footer(state: &State, palette: &Palette) -> Line<'static> {
    if state.mode() == Mode::Typing {
        let typed = Span::styled(format!("/{}▏", state.filter), palette.title);
        return Line::from(vec![typed, Span::styled("  Enter keeps it, Esc drops it", palette.dim)]);
    }
    let (sort, reversed) = (state.sort, state.reversed);
    let turned = if reversed { " ↑" } else { "" };
    let here = match state.view {
        View::Overview => format!("Enter open  / filter  s sort: {}{turned}", sort.name()),
        View::Group { .. } => "Esc back  j/k scroll".to_owned(),
    };
    let interval = age(state.pace.interval);
    Line::styled(format!("{here}  p pause  +/- every {interval}  ? help  q quit"), palette.dim)
}
