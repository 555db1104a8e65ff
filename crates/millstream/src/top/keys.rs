//! Maps keys to actions, and lists the keys for the help.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    Quit,
    /// Quit with the exit code for Ctrl-C.
    Interrupt,
    /// Suspend the process until the shell continues it.
    Suspend,
    /// Move down by this number of rows, or up if negative.
    Move(isize),
    First,
    Last,
    Open,
    /// Go back to the overview, or clear the filter.
    Back,
    Filter,
    /// Append this character to the filter.
    Type(char),
    /// Remove the last character of the filter.
    Erase,
    EraseAll,
    KeepFilter,
    Sort,
    Reverse,
    Pause,
    Slower,
    Faster,
    PollNow,
    Help,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    Browse,
    Typing,
}

/// The keys and their descriptions for the help.
pub(super) const HELP: [(&str, &str); 13] = [
    ("j k ↓ ↑", "move to the next or the previous row"),
    ("PgDn PgUp Home End", "move a page down or up, to the first or the last row"),
    ("Enter l →", "open a group: partitions, consumers, stuck messages, dead letters"),
    ("Esc h ←", "go back; in the overview, clear the filter"),
    ("/", "filter by part of a name, or by health: ok, unknown, degraded, critical"),
    ("s", "sort by the next column"),
    ("r", "reverse the sort order"),
    ("p", "pause or resume updates"),
    ("+ -", "update less often, more often"),
    ("Space", "update now"),
    ("?", "show this help"),
    ("Ctrl-Z", "suspend"),
    ("q Ctrl-C", "quit"),
];

const PAGE: isize = 10;

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
        // On many keyboards, + without Shift is =.
        KeyCode::Char('+' | '=') => Action::Slower,
        KeyCode::Char('-') => Action::Faster,
        KeyCode::Char(' ') => Action::PollNow,
        KeyCode::Char('?') => Action::Help,
        _ => return None,
    })
}

fn typing(code: KeyCode) -> Option<Action> {
    Some(match code {
        KeyCode::Char(c) => Action::Type(c),
        KeyCode::Backspace => Action::Erase,
        KeyCode::Enter => Action::KeepFilter,
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
    fn characters_are_commands_or_text() {
        assert_eq!(pressed(KeyCode::Char('q'), Mode::Browse), Some(Action::Quit));
        assert_eq!(pressed(KeyCode::Char('q'), Mode::Typing), Some(Action::Type('q')));
        assert_eq!(pressed(KeyCode::Enter, Mode::Browse), Some(Action::Open));
        assert_eq!(pressed(KeyCode::Enter, Mode::Typing), Some(Action::KeepFilter));
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
    fn control_keys_work_while_typing() {
        let control = |c, mode| action(KeyEvent::new(KeyCode::Char(c), KeyModifiers::CONTROL), mode);
        for mode in [Mode::Browse, Mode::Typing] {
            assert_eq!(control('c', mode), Some(Action::Interrupt));
            assert_eq!(control('z', mode), Some(Action::Suspend));
        }
        assert_eq!(control('u', Mode::Typing), Some(Action::EraseAll));
        assert_eq!(control('q', Mode::Browse), None);
    }

    #[test]
    fn releasing_a_key_does_nothing() {
        let mut key = KeyEvent::new(KeyCode::Char('q'), KeyModifiers::NONE);
        key.kind = KeyEventKind::Release;
        assert_eq!(action(key, Mode::Browse), None);
    }

    #[test]
    fn help_lists_every_character_with_an_action() {
        let listed: String = HELP.iter().map(|(keys, _)| *keys).collect::<Vec<_>>().join(" ");
        for c in ('a'..='z').chain(['/', '?', '+', '-']) {
            let has_action = pressed(KeyCode::Char(c), Mode::Browse).is_some();
            assert_eq!(listed.split(' ').any(|key| key == c.to_string()), has_action, "{c}");
        }
    }
}
