//! Inline requests: a line of words, as a person types it.
//!
//! Words are separated by spaces and tabs. The decoder has refused other control bytes. Inside double quotes
//! `\n \r \t \b \a \xHH` have their meaning in C, and any other escaped byte means itself. Inside single quotes only
//! `\'` is special. A closing quote ends its word, so a space, a tab or the end of the line must follow.

use super::decode::Span;

/// Splits a line into words. Appends their bytes to `unquoted` and the range of each word to `spans`.
///
/// Returns `None` if a quote is not closed, or if a byte other than a space or a tab follows a closing quote.
pub(super) fn split(line: &[u8], unquoted: &mut Vec<u8>, spans: &mut Vec<Span>) -> Option<()> {
    let mut rest = line;
    loop {
        rest = skip_spaces(rest);
        if rest.is_empty() {
            return Some(());
        }
        let from = unquoted.len();
        rest = take_word(rest, unquoted)?;
        spans.push((from, unquoted.len()));
    }
}

/// Appends the word at the start of `rest` to `word`. Returns the text after it.
fn take_word<'a>(mut rest: &'a [u8], word: &mut Vec<u8>) -> Option<&'a [u8]> {
    loop {
        match rest {
            [] | [b' ' | b'\t', ..] => return Some(rest),
            [b'"', quoted @ ..] => return take_double_quoted(quoted, word),
            [b'\'', quoted @ ..] => return take_single_quoted(quoted, word),
            [byte, after @ ..] => {
                word.push(*byte);
                rest = after;
            }
        }
    }
}

fn take_double_quoted<'a>(mut rest: &'a [u8], word: &mut Vec<u8>) -> Option<&'a [u8]> {
    loop {
        match rest {
            [b'\\', b'x', high, low, after @ ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
                word.push(hex(*high) << 4 | hex(*low));
                rest = after;
            }
            [b'\\', escaped, after @ ..] => {
                word.push(unescape(*escaped));
                rest = after;
            }
            [b'"', after @ ..] => return ends_word(after).then_some(after),
            [byte, after @ ..] => {
                word.push(*byte);
                rest = after;
            }
            [] => return None,
        }
    }
}

fn take_single_quoted<'a>(mut rest: &'a [u8], word: &mut Vec<u8>) -> Option<&'a [u8]> {
    loop {
        match rest {
            [b'\\', b'\'', after @ ..] => {
                word.push(b'\'');
                rest = after;
            }
            [b'\'', after @ ..] => return ends_word(after).then_some(after),
            [byte, after @ ..] => {
                word.push(*byte);
                rest = after;
            }
            [] => return None,
        }
    }
}

fn skip_spaces(line: &[u8]) -> &[u8] {
    let spaces = line.iter().take_while(|&&byte| is_space(byte)).count();
    &line[spaces..]
}

fn ends_word(after: &[u8]) -> bool {
    after.first().is_none_or(|&byte| is_space(byte))
}

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t')
}

fn unescape(byte: u8) -> u8 {
    match byte {
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'b' => 0x08,
        b'a' => 0x07,
        other => other,
    }
}

fn hex(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        _ => (digit | 0x20) - b'a' + 10,
    }
}
