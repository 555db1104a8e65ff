//! The panel below: how the lag of the selected group went, and what is wrong with it.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use ratatui::widgets::Sparkline;

use super::group::name;
use super::palette::Palette;
use super::put;
use crate::ops::shape;
use crate::ops::value::{age, count, text};
use crate::top::row::Key;
use crate::top::state::State;

/// How many lines it takes: a title, the verdict, and the graph.
pub(super) const HEIGHT: u16 = 6;
const TEXT_HEIGHT: u16 = 2;

/// Draws it.
pub(super) fn draw(state: &State, key: &Key, palette: &Palette, area: Rect, frame: &mut Frame<'_>) {
    let Some(group) = state.row(key).and_then(|row| row.group.as_ref()) else { return };
    let lags = state.lags(key, usize::from(area.width));
    let peak = lags.iter().copied().max().unwrap_or_default();
    let mut told = format!(
        ": {}, at most {} in the last {} looks",
        shape::lag(group.snapshot.lag),
        count(peak),
        lags.len()
    );
    let caught_up_in = group.rates.and_then(|rates| rates.caught_up_in);
    if let Some(time) = caught_up_in.filter(|_| group.snapshot.lag.count > 0) {
        told += &format!(", caught up in {}", age(time));
    }
    let title = Line::from(vec![
        Span::styled("lag of ", palette.dim),
        Span::styled(name(key), palette.title),
        Span::raw(told),
    ]);
    let verdict = text(group.verdict.to_string().as_bytes());
    let verdict = Line::styled(verdict, palette.health(group.verdict.health));
    put(&[title, verdict], area, frame);
    let graph = Rect {
        y: area.y + TEXT_HEIGHT.min(area.height),
        height: area.height.saturating_sub(TEXT_HEIGHT),
        ..area
    };
    frame.render_widget(Sparkline::default().data(&lags).style(palette.graph), graph);
}
