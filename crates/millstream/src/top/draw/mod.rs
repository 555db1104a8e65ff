//! Draws the state as a frame.
//!
//! ```text
//! header    the store, totals, problems of the store, pause, filter
//! body      the table of all groups, or the page of one group
//! panel     the lag of the selected group over time, if the terminal is high enough
//! footer    the most useful keys
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
use crate::ops::safe_text::printable;

/// Minimum height of the terminal for the panel.
const PANEL_HEIGHT_MIN: u16 = 18;

/// Draws a frame. Limits the scroll position of the state to the height of the page.
pub(super) fn draw(state: &mut State, palette: &Palette, now: Instant, frame: &mut Frame<'_>) {
    let panel_height = if frame.area().height < PANEL_HEIGHT_MIN { 0 } else { lag::HEIGHT };
    let [header, body, panel, footer] = Layout::vertical([
        Constraint::Length(header::HEIGHT),
        Constraint::Fill(1),
        Constraint::Length(panel_height),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    draw_lines(&header::lines(state, palette, now), header, frame);
    match state.view {
        View::Overview => draw_overview(state, palette, body, frame),
        View::Group { .. } => draw_group(state, palette, body, frame),
    }
    if let Some(key) = state.selected() {
        lag::draw(state, key, palette, panel, frame);
    }
    draw_lines(&[header::footer(state, palette)], footer, frame);
    if state.help {
        help::draw(palette, frame.area(), frame);
    }
}

fn draw_overview(state: &State, palette: &Palette, area: Rect, frame: &mut Frame<'_>) {
    let mut lines = overview::lines(state, palette, usize::from(area.width));
    let Some(position) = state.position() else {
        draw_lines(&[Line::from(overview::empty_message(state))], area, frame);
        return;
    };
    let headings = lines.remove(0);
    lines[position] = std::mem::take(&mut lines[position]).patch_style(palette.selected);
    let [top, rows] = Layout::vertical([Constraint::Length(1), Constraint::Fill(1)]).areas(area);
    draw_lines(&[headings], top, frame);
    draw_lines(&lines[first_shown(position, lines.len(), usize::from(rows.height))..], rows, frame);
}

fn draw_group(state: &mut State, palette: &Palette, area: Rect, frame: &mut Frame<'_>) {
    let Some(key) = state.selected() else { return };
    let lines = group::lines(state, key, palette, usize::from(area.width));
    state.limit_scroll(lines.len().saturating_sub(usize::from(area.height)));
    if let View::Group { scroll } = state.view {
        draw_lines(&lines[scroll..], area, frame);
    }
}

/// Returns the first row to draw, so that the selected row is in the middle if possible.
fn first_shown(selected: usize, rows: usize, height: usize) -> usize {
    selected.saturating_sub(height / 2).min(rows.saturating_sub(height))
}

/// Draws as many lines as fit into the area.
fn draw_lines(lines: &[Line<'_>], area: Rect, frame: &mut Frame<'_>) {
    for (line, row) in lines.iter().zip(area.rows()) {
        frame.render_widget(line, row);
    }
}

/// Returns the overview as plain text without a width limit, followed by the problems of the groups.
pub(super) fn plain(state: &State) -> Vec<String> {
    let palette = Palette::plain();
    let [store, totals, _] = header::lines(state, &palette, Instant::now());
    let mut lines = vec![store.to_string(), totals.to_string(), String::new()];
    if state.shown().is_empty() {
        lines.push(overview::empty_message(state));
        return lines;
    }
    lines.extend(overview::lines(state, &palette, usize::MAX).iter().map(ToString::to_string));
    let rows = state.shown();
    let problems = rows.iter().filter_map(|row| Some((row.shown_key(), row.group.as_ref()?.verdict())));
    let mut problems = problems.filter(|(_, verdict)| verdict.health > Health::Unknown).peekable();
    if problems.peek().is_some() {
        lines.push(String::new());
    }
    lines.extend(
        problems.map(|(key, verdict)| format!("{}: {}", group::name(&key), printable(verdict.to_string()))),
    );
    lines
}
