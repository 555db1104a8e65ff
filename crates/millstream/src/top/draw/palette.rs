//! The styles. Without colours everything is still told apart: by words, by weight and by reversing.

use millstream_worker::monitor::Health;
use ratatui::style::{Color, Modifier, Style};

/// The styles of everything that is drawn.
pub(in crate::top) struct Palette {
    /// Where we are.
    pub(super) title: Style,
    /// What is there but should not be in the way.
    pub(super) dim: Style,
    /// What is well.
    pub(super) good: Style,
    /// What wants attention.
    pub(super) warn: Style,
    /// What is wrong.
    pub(super) bad: Style,
    /// The selected row.
    pub(super) selected: Style,
    /// Lags over time.
    pub(super) graph: Style,
}

impl Palette {
    /// With the sixteen colours that every terminal has, so that its own theme decides what they look like.
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

    /// Without colours.
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

    /// The style of a verdict.
    pub(super) fn health(&self, health: Health) -> Style {
        match health {
            Health::Ok => self.good,
            Health::Degraded => self.warn,
            Health::Critical => self.bad,
        }
    }
}
