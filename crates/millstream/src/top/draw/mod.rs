//! From the state to a frame.
//!
//! ```text
//! header    which store, what everything comes to, what is wrong
//! body      the table of all groups, or the page of one
//! panel     the lag of the selected group over time, where there is room
//! footer    what the keys do
//! ```

mod grid;
mod group;
mod header;
mod help;
mod lag;
mod number;
mod overview;
mod palette;
#[cfg(test)]
mod tests;

use std::time::Instant;

use millstream_worker::monitor::Health;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::Line;

pub(super) use palette::Palette;

use super::state::{State, View};
use crate::ops::value::text;

/// With fewer lines than this the panel is left out.
const HEIGHT_FOR_PANEL: u16 = 18;

/// Draws a frame. The state learns how far it can be scrolled.
pub(super) fn draw(state: &mut State, palette: &Palette, now: Instant, frame: &mut Frame<'_>) {
    let panel_height = if frame.area().height < HEIGHT_FOR_PANEL { 0 } else { lag::HEIGHT };
    let [header, body, panel, footer] = Layout::vertical([
        Constraint::Length(header::HEIGHT),
        Constraint::Fill(1),
        Constraint::Length(panel_height),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    put(&header::lines(state, palette, now), header, frame);
    match state.view {
        View::Overview => draw_overview(state, palette, body, frame),
        View::Group { .. } => draw_group(state, palette, body, frame),
    }
    if let Some(key) = state.selected() {
        lag::draw(state, key, palette, panel, frame);
    }
    put(&[header::footer(state, palette)], footer, frame);
    if state.help {
        help::draw(palette, frame.area(), frame);
    }
}

fn draw_overview(state: &State, palette: &Palette, area: Rect, frame: &mut Frame<'_>) {
    let mut lines = overview::lines(state, palette, usize::from(area.width));
    let Some(position) = state.position() else {
        put(&[Line::from(overview::nothing(state))], area, frame);
        return;
    };
    let headings = lines.remove(0);
    lines[position] = std::mem::take(&mut lines[position]).patch_style(palette.selected);
    let [top, rows] = Layout::vertical([Constraint::Length(1), Constraint::Fill(1)]).areas(area);
    put(&[headings], top, frame);
    put(&lines[first_shown(position, lines.len(), usize::from(rows.height))..], rows, frame);
}

fn draw_group(state: &mut State, palette: &Palette, area: Rect, frame: &mut Frame<'_>) {
    let Some(key) = state.selected() else { return };
    let lines = group::lines(state, key, palette, usize::from(area.width));
    state.limit_scroll(lines.len().saturating_sub(usize::from(area.height)));
    if let View::Group { scroll } = state.view {
        put(&lines[scroll..], area, frame);
    }
}

/// The first row to draw, so that the selected one is in the middle where that is possible.
fn first_shown(selected: usize, rows: usize, height: usize) -> usize {
    selected.saturating_sub(height / 2).min(rows.saturating_sub(height))
}

/// Draws lines one below the other, as many as fit.
fn put(lines: &[Line<'_>], area: Rect, frame: &mut Frame<'_>) {
    for (line, row) in lines.iter().zip(area.rows()) {
        frame.render_widget(line, row);
    }
}

/// The overview as lines of text, as wide as it needs to be, and then what is not well.
pub(super) fn plain(state: &State) -> Vec<String> {
    let palette = Palette::plain();
    let [place, totals, _] = header::lines(state, &palette, Instant::now());
    let mut lines = vec![place.to_string(), totals.to_string(), String::new()];
    if state.shown().is_empty() {
        lines.push(overview::nothing(state));
        return lines;
    }
    lines.extend(overview::lines(state, &palette, usize::MAX).iter().map(ToString::to_string));
    let rows = state.shown();
    let bad = rows.iter().filter_map(|row| Some((&row.key, &row.group.as_ref()?.verdict)));
    let mut bad = bad.filter(|(_, verdict)| verdict.health > Health::Ok).peekable();
    if bad.peek().is_some() {
        lines.push(String::new());
    }
    lines.extend(
        bad.map(|(key, verdict)| format!("{}: {}", group::name(key), text(verdict.to_string().as_bytes()))),
    );
    lines
}
