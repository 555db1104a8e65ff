//! Text from a store, made safe for a terminal.
//!
//! Names, ids, fields and errors can contain characters that move the cursor, change a terminal or reverse the order
//! of a line. Every output for people passes through this module. In JSON, these characters are escaped as `\uXXXX`.

use std::fmt::Write;

pub(crate) use millstream_worker::operate::wording::printable;
use millstream_worker::operate::wording::{is_unsafe, push_printable};

/// Like [`printable`], but keeps newlines and tabs: for messages of several lines.
pub(crate) fn printable_lines(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if matches!(c, '\n' | '\t') { shown.push(c) } else { push_printable(&mut shown, c) }
    }
    shown
}

/// Like [`printable_lines`], but keeps styles too. The caller has made names and other text from a store printable.
pub(crate) fn printable_styled(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('\u{1b}') {
        shown.push_str(&printable_lines(&rest[..at]));
        rest = &rest[at..];
        let style = style_bytes(rest).unwrap_or(0);
        shown.push_str(&rest[..style]);
        if style == 0 {
            push_printable(&mut shown, '\u{1b}');
        }
        rest = &rest[style.max(1)..];
    }
    shown.push_str(&printable_lines(rest));
    shown
}

/// Returns the length of the style at the start of the text: `ESC [ numbers m`.
fn style_bytes(text: &str) -> Option<usize> {
    let numbers = text.strip_prefix("\u{1b}[")?;
    let end = numbers.find(|c: char| !c.is_ascii_digit() && c != ';')?;
    numbers[end..].starts_with('m').then_some("\u{1b}[".len() + end + 1)
}

/// Escapes the characters of a JSON document that are valid in JSON but not safe on a terminal.
pub(crate) fn safe_json(json: &str) -> String {
    let mut shown = String::with_capacity(json.len());
    for c in json.chars() {
        // Outside of strings, the only control characters of a document are newlines.
        if is_unsafe(c) && c != '\n' {
            write!(shown, "\\u{:04x}", u32::from(c)).expect("writing to a string cannot fail");
        } else {
            shown.push(c);
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_keep_their_lines_and_styled_text_its_styles() {
        assert_eq!(printable_lines("a\n\tb\u{1b}[1m\r"), "a\n\tb\\u{1b}[1m\\r");
        let styled = "\u{1b}[1m\u{1b}[38;5;9mbad\u{1b}[0m\nx";
        assert_eq!(printable_styled(styled), styled);
        assert_eq!(printable_styled("\u{1b}]0;title\u{7}"), "\\u{1b}]0;title\\u{7}");
        assert_eq!(printable_styled("\u{1b}[2J \u{1b}[1"), "\\u{1b}[2J \\u{1b}[1");
        assert_eq!(printable_styled("\u{1b}\u{1b}[0m\u{1b}"), "\\u{1b}\u{1b}[0m\\u{1b}");
    }

    #[test]
    fn json_stays_the_same_document() {
        let name = "a\u{1b}\u{9b}2J\u{202e}\u{7f}\né\"";
        let json = serde_json::json!({ name: [name] });
        let shown = safe_json(&format!("{json:#}"));
        assert!(!shown.contains(|c: char| is_unsafe(c) && c != '\n'), "{shown:?}");
        assert!(shown.contains("\\u009b2J\\u202e\\u007f"), "{shown}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&shown).unwrap(), json);
    }
}
