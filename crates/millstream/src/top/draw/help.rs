//! The box that tells what the keys do.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Clear};

use super::palette::Palette;
use super::put;
use crate::top::keys::HELP;

/// Draws it over the middle of the area.
pub(super) fn draw(palette: &Palette, area: Rect, frame: &mut Frame<'_>) {
    let keys_width = HELP.iter().map(|(keys, _)| Span::raw(*keys).width()).max().unwrap_or_default();
    let line = |(keys, what): (&'static str, &'static str)| {
        let padding = " ".repeat(keys_width - Span::raw(keys).width() + 2);
        Line::from(vec![
            Span::raw(" "),
            Span::styled(keys, palette.title),
            Span::raw(padding),
            Span::raw(what),
        ])
    };
    let lines = HELP.map(line);
    let text_width = lines.iter().map(Line::width).max().unwrap_or_default();
    let around = middle(area, text_width as u16 + 3, lines.len() as u16 + 2);
    let block = Block::bordered().title(" keys ").title_bottom(" Esc closes this ");
    let inside = block.inner(around);
    frame.render_widget(Clear, around);
    frame.render_widget(block, around);
    put(&lines, inside, frame);
}

/// A rectangle of this size in the middle of another, or as much of it as fits.
fn middle(area: Rect, width: u16, height: u16) -> Rect {
    let (width, height) = (width.min(area.width), height.min(area.height));
    Rect { x: area.x + (area.width - width) / 2, y: area.y + (area.height - height) / 2, width, height }
}
