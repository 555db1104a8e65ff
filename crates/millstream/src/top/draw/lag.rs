//! The panel at the bottom: a graph of the lag of the selected group, and its health.

use millstream_worker::observe::{Eta, RowKey};
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use ratatui::widgets::Sparkline;

use super::draw_lines;
use super::group::name;
use super::palette::Palette;
use crate::ops::safe_text::printable;
use crate::ops::value::{age, count, format_lag};
use crate::top::state::State;

/// Height of the panel: a title, the health, and the graph.
pub(super) const HEIGHT: u16 = 6;
const TEXT_HEIGHT: u16 = 2;

pub(super) fn draw(state: &State, key: &RowKey, palette: &Palette, area: Rect, frame: &mut Frame<'_>) {
    let Some(group) = state.row(key).and_then(|row| row.group.as_ref()) else { return };
    let lags = state.lags(key, usize::from(area.width));
    let peak = lags.iter().copied().max().unwrap_or_default();
    let mut summary = format!(
        ": {}, peak {} in the last {} updates",
        format_lag(group.snapshot.lag),
        count(peak),
        lags.len()
    );
    if let Eta::At(time) = group.eta {
        summary += &format!(", caught up in {} at this rate", age(time));
    }
    let title = Line::from(vec![
        Span::styled("lag of ", palette.dim),
        Span::styled(name(key), palette.title),
        Span::raw(summary),
    ]);
    let verdict = printable(group.verdict().to_string());
    let verdict = Line::styled(verdict, palette.health(group.health));
    draw_lines(&[title, verdict], area, frame);
    let graph = Rect {
        y: area.y + TEXT_HEIGHT.min(area.height),
        height: area.height.saturating_sub(TEXT_HEIGHT),
        ..area
    };
    frame.render_widget(Sparkline::default().data(&lags).style(palette.graph), graph);
}
