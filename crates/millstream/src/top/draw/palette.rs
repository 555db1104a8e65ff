//! The styles of the view. Without colours, text, bold and reversed video still distinguish everything.

use millstream_worker::monitor::Health;
use ratatui::style::{Color, Modifier, Style};

pub(in crate::top) struct Palette {
    pub(super) title: Style,
    /// Secondary text.
    pub(super) dim: Style,
    pub(super) good: Style,
    pub(super) warn: Style,
    /// Errors and critical groups.
    pub(super) bad: Style,
    pub(super) selected: Style,
    pub(super) graph: Style,
}

impl Palette {
    /// Returns styles with the sixteen standard colours, so that the theme of the terminal applies.
    pub(in crate::top) fn coloured() -> Palette {
        Palette {
            title: Style::new().fg(Color::Cyan).add_modifier(Modifier::BOLD),
            good: Style::new().fg(Color::Green),
            warn: Style::new().fg(Color::Yellow),
            bad: Style::new().fg(Color::Red).add_modifier(Modifier::BOLD),
            graph: Style::new().fg(Color::Cyan),
            ..Palette::plain()
        }
    }

    pub(in crate::top) fn plain() -> Palette {
        let bold = Style::new().add_modifier(Modifier::BOLD);
        Palette {
            title: bold,
            dim: Style::new().add_modifier(Modifier::DIM),
            good: Style::new(),
            warn: Style::new(),
            bad: bold,
            selected: Style::new().add_modifier(Modifier::REVERSED),
            graph: Style::new(),
        }
    }

    pub(super) fn health(&self, health: Health) -> Style {
        match health {
            Health::Ok => self.good,
            Health::Unknown => self.dim,
            Health::Degraded => self.warn,
            Health::Critical => self.bad,
        }
    }
}
