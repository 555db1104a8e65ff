//! From keys to actions. One table tells people what the keys do.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

/// What somebody wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// Leave.
    Quit,
    /// Leave at once, as Ctrl-C does everywhere.
    Interrupt,
    /// Give the terminal back until the shell wakes us.
    Suspend,
    /// So many rows down, or up if negative.
    Move(isize),
    /// To the first row.
    First,
    /// To the last row.
    Last,
    /// Open the selected row.
    Open,
    /// Back to where we came from.
    Back,
    /// Begin to type a filter.
    Filter,
    /// Add this to the filter.
    Type(char),
    /// Take the last character of the filter away.
    Erase,
    /// Take the whole filter away.
    EraseAll,
    /// The filter is as it should be.
    Keep,
    /// Sort by the next column.
    Sort,
    /// Sort the other way round.
    Reverse,
    /// Stop looking, or go on.
    Pause,
    /// Look less often.
    Slower,
    /// Look more often.
    Faster,
    /// Look now.
    LookNow,
    /// Tell what the keys do, or stop telling.
    Help,
}

/// What keys mean at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// They are commands.
    Browse,
    /// They are the text of the filter.
    Typing,
}

/// The keys and what they do, as help tells it.
pub(super) const HELP: [(&str, &str); 13] = [
    ("j k ↓ ↑", "the next row, the one before"),
    ("PgDn PgUp Home End", "further, to the first row, to the last"),
    ("Enter l →", "open a group: consumers, stuck messages, dead letters"),
    ("Esc h ←", "back; in the overview it drops the filter"),
    ("/", "filter by words in the names, or ok, degraded, critical"),
    ("s", "sort by the next column"),
    ("r", "sort the other way round"),
    ("p", "pause, and go on"),
    ("+ -", "look less often, more often"),
    ("Space", "look now"),
    ("?", "this help"),
    ("Ctrl-Z", "suspend"),
    ("q Ctrl-C", "quit"),
];

/// How far a page is.
const PAGE: isize = 10;

/// What a key asks for; `None` if nothing.
pub(super) fn action(key: KeyEvent, mode: Mode) -> Option<Action> {
    if key.kind == KeyEventKind::Release {
        return None;
    }
    if key.modifiers.contains(KeyModifiers::CONTROL) {
        return with_control(key.code, mode);
    }
    match mode {
        Mode::Browse => browse(key.code),
        Mode::Typing => typing(key.code),
    }
}

fn with_control(code: KeyCode, mode: Mode) -> Option<Action> {
    match (code, mode) {
        (KeyCode::Char('c'), _) => Some(Action::Interrupt),
        (KeyCode::Char('z'), _) => Some(Action::Suspend),
        (KeyCode::Char('u'), Mode::Typing) => Some(Action::EraseAll),
        _ => None,
    }
}

fn browse(code: KeyCode) -> Option<Action> {
    Some(match code {
        KeyCode::Char('q') => Action::Quit,
        KeyCode::Char('j') | KeyCode::Down => Action::Move(1),
        KeyCode::Char('k') | KeyCode::Up => Action::Move(-1),
        KeyCode::PageDown => Action::Move(PAGE),
        KeyCode::PageUp => Action::Move(-PAGE),
        KeyCode::Home => Action::First,
        KeyCode::End => Action::Last,
        KeyCode::Enter | KeyCode::Char('l') | KeyCode::Right => Action::Open,
        KeyCode::Esc | KeyCode::Char('h') | KeyCode::Left => Action::Back,
        KeyCode::Char('/') => Action::Filter,
        KeyCode::Char('s') => Action::Sort,
        KeyCode::Char('r') => Action::Reverse,
        KeyCode::Char('p') => Action::Pause,
        // Without Shift the key of + is = on many keyboards.
        KeyCode::Char('+' | '=') => Action::Slower,
        KeyCode::Char('-') => Action::Faster,
        KeyCode::Char(' ') => Action::LookNow,
        KeyCode::Char('?') => Action::Help,
        _ => return None,
    })
}

fn typing(code: KeyCode) -> Option<Action> {
    Some(match code {
        KeyCode::Char(c) => Action::Type(c),
        KeyCode::Backspace => Action::Erase,
        KeyCode::Enter => Action::Keep,
        KeyCode::Esc => Action::Back,
        KeyCode::Down => Action::Move(1),
        KeyCode::Up => Action::Move(-1),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pressed(code: KeyCode, mode: Mode) -> Option<Action> {
        action(KeyEvent::new(code, KeyModifiers::NONE), mode)
    }

    #[test]
    fn letters_are_commands_or_text() {
        assert_eq!(pressed(KeyCode::Char('q'), Mode::Browse), Some(Action::Quit));
        assert_eq!(pressed(KeyCode::Char('q'), Mode::Typing), Some(Action::Type('q')));
        assert_eq!(pressed(KeyCode::Enter, Mode::Browse), Some(Action::Open));
        assert_eq!(pressed(KeyCode::Enter, Mode::Typing), Some(Action::Keep));
        assert_eq!(pressed(KeyCode::Esc, Mode::Typing), Some(Action::Back));
        assert_eq!(pressed(KeyCode::Char('j'), Mode::Browse), pressed(KeyCode::Down, Mode::Browse));
        assert_eq!(pressed(KeyCode::Char('='), Mode::Browse), Some(Action::Slower));
    }

    #[test]
    fn capital_letters_do_nothing() {
        for c in 'A'..='Z' {
            assert_eq!(pressed(KeyCode::Char(c), Mode::Browse), None, "{c}");
        }
    }

    #[test]
    fn control_works_while_typing() {
        let control = |c, mode| action(KeyEvent::new(KeyCode::Char(c), KeyModifiers::CONTROL), mode);
        for mode in [Mode::Browse, Mode::Typing] {
            assert_eq!(control('c', mode), Some(Action::Interrupt));
            assert_eq!(control('z', mode), Some(Action::Suspend));
        }
        assert_eq!(control('u', Mode::Typing), Some(Action::EraseAll));
        assert_eq!(control('q', Mode::Browse), None);
    }

    #[test]
    fn letting_a_key_go_is_no_second_press() {
        let mut key = KeyEvent::new(KeyCode::Char('q'), KeyModifiers::NONE);
        key.kind = KeyEventKind::Release;
        assert_eq!(action(key, Mode::Browse), None);
    }

    #[test]
    fn help_tells_every_letter_that_does_something() {
        let told: String = HELP.iter().map(|(keys, _)| *keys).collect::<Vec<_>>().join(" ");
        for c in ('a'..='z').chain(['/', '?', '+', '-']) {
            let does = pressed(KeyCode::Char(c), Mode::Browse).is_some();
            assert_eq!(told.split(' ').any(|key| key == c.to_string()), does, "{c}");
        }
    }
}
