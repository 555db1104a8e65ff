//! The help box with the list of keys.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Clear};

use super::draw_lines;
use super::palette::Palette;
use crate::top::keys::HELP;

pub(super) fn draw(palette: &Palette, area: Rect, frame: &mut Frame<'_>) {
    let keys_width = HELP.iter().map(|(keys, _)| Span::raw(*keys).width()).max().unwrap_or_default();
    let line = |(keys, description): (&'static str, &'static str)| {
        let padding = " ".repeat(keys_width - Span::raw(keys).width() + 2);
        Line::from(vec![
            Span::raw(" "),
            Span::styled(keys, palette.title),
            Span::raw(padding),
            Span::raw(description),
        ])
    };
    let lines = HELP.map(line);
    let text_width = lines.iter().map(Line::width).max().unwrap_or_default();
    let around = middle(area, text_width as u16 + 3, lines.len() as u16 + 2);
    let block = Block::bordered().title(" keys ").title_bottom(" Esc closes this ");
    let inside = block.inner(around);
    frame.render_widget(Clear, around);
    frame.render_widget(block, around);
    draw_lines(&lines, inside, frame);
}

/// Returns a rectangle of this size in the middle of the area, cut to the area.
fn middle(area: Rect, width: u16, height: u16) -> Rect {
    let (width, height) = (width.min(area.width), height.min(area.height));
    Rect { x: area.x + (area.width - width) / 2, y: area.y + (area.height - height) / 2, width, height }
}
