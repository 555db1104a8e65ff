//! Counts texts, and errors that differ only in numbers and ids.

use std::collections::HashMap;

use crate::redaction::HIDDEN;

/// Number of texts that are listed. The rest is only counted.
pub const LISTED_MAX: usize = 100;
/// Number of different texts that are counted. Further ones are part of the rest.
const DIFFERENT_MAX: usize = 10_000;
/// Maximum number of characters of an error that are compared.
const ERROR_CHARS_MAX: usize = 200;

/// Counts by text.
#[derive(Clone, Debug, Default)]
pub struct TextCounts {
    counts: HashMap<String, u64>,
    rest: u64,
}

impl TextCounts {
    /// Counts a text.
    pub fn add(&mut self, text: &str) {
        if let Some(count) = self.counts.get_mut(text) {
            *count += 1;
        } else if self.counts.len() == DIFFERENT_MAX {
            self.rest += 1;
        } else {
            self.counts.insert(text.to_owned(), 1);
        }
    }

    /// Returns the most frequent texts, at most [`LISTED_MAX`], and how often the others occur together.
    pub fn top(&self) -> (Vec<(&str, u64)>, u64) {
        let mut sorted: Vec<(&str, u64)> =
            self.counts.iter().map(|(text, count)| (text.as_str(), *count)).collect();
        sorted.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(b.0)));
        let others = sorted.split_off(sorted.len().min(LISTED_MAX));
        (sorted, self.rest + others.iter().map(|(_, count)| count).sum::<u64>())
    }
}

/// Counts by error. Errors that differ only in numbers and ids count as the same.
#[derive(Clone, Debug, Default)]
pub struct ErrorCounts(TextCounts);

impl ErrorCounts {
    /// Counts an error.
    pub fn add(&mut self, error: &str) {
        self.0.add(&pattern_of(error));
    }

    /// Returns the most frequent errors and how often the others occur together. Numbers and ids are `#`.
    pub fn top(&self) -> (Vec<(&str, u64)>, u64) {
        self.0.top()
    }
}

/// Returns the longest part of an error pattern that its errors have in common: a text to filter by.
pub fn common_text(pattern: &str) -> &str {
    let parts = pattern.split(HIDDEN).flat_map(|part| part.split(['#', '…']));
    parts.map(str::trim).max_by_key(|part| part.len()).unwrap_or_default()
}

/// Returns an error with its numbers and ids replaced by `#`, cut to one comparable length.
fn pattern_of(error: &str) -> String {
    let mut pattern = String::new();
    let mut rest = error.trim();
    let mut chars = 0;
    while let Some(first) = rest.chars().next() {
        if chars == ERROR_CHARS_MAX {
            pattern.push('…');
            break;
        }
        chars += 1;
        let word = &rest[..rest.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(rest.len())];
        let taken = match word {
            "" => {
                pattern.push(if first.is_control() { ' ' } else { first });
                first.len_utf8()
            }
            _ if uuid_bytes(rest) > 0 => {
                push_mark(&mut pattern);
                uuid_bytes(rest)
            }
            _ if is_id(word) => {
                push_mark(&mut pattern);
                word.len()
            }
            _ => {
                let is_number = first.is_ascii_digit();
                let end = word.find(|c: char| c.is_ascii_digit() != is_number).unwrap_or(word.len());
                if is_number {
                    push_mark(&mut pattern)
                } else {
                    pattern.push_str(&word[..end])
                }
                end
            }
        };
        rest = &rest[taken..];
    }
    pattern
}

/// Appends `#`. Numbers with one separator between them, such as a time or an address, are one.
fn push_mark(pattern: &mut String) {
    let joined =
        [".", ":", "-", "/", ","].iter().any(|separator| pattern.ends_with(&format!("#{separator}")));
    if joined {
        pattern.pop();
    } else if !pattern.ends_with('#') {
        pattern.push('#');
    }
}

/// Whether a word looks like a hexadecimal id: it has digits, and at least eight characters.
fn is_id(word: &str) -> bool {
    word.len() >= 8
        && word.bytes().all(|byte| byte.is_ascii_hexdigit())
        && word.bytes().any(|byte| byte.is_ascii_digit())
}

/// Returns the length of the UUID at the beginning of the text, or 0.
fn uuid_bytes(text: &str) -> usize {
    const BYTES: usize = 36;
    let is_uuid = text.len() >= BYTES
        && text.bytes().take(BYTES).enumerate().all(|(at, byte)| match at {
            8 | 13 | 18 | 23 => byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        });
    if is_uuid { BYTES } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_ids_do_not_split_errors() {
        for (error, pattern) in [
            ("timeout after 30 s", "timeout after # s"),
            ("timeout after 1.5 s", "timeout after # s"),
            ("connect 10.0.0.7:6379 refused", "connect # refused"),
            ("order 8c2e1f90-7a61-4c3f-9d52-aabbccddeeff not found", "order # not found"),
            ("entry 1731664200000-0 of shard7", "entry # of shard#"),
            ("commit deadbee5cafe failed\n", "commit # failed"),
            ("defaced", "defaced"),
            ("", ""),
            ("größe 7\tx", "größe # x"),
        ] {
            assert_eq!(pattern_of(error), pattern);
        }
        let long = "é".repeat(ERROR_CHARS_MAX + 1);
        assert_eq!(pattern_of(&long).chars().count(), ERROR_CHARS_MAX + 1);
        assert_eq!(pattern_of(&long[2..]), &long[2..]);
    }

    #[test]
    fn the_most_frequent_errors_are_listed_and_the_rest_is_counted() {
        let mut counts = ErrorCounts::default();
        (0..5).for_each(|n| counts.add(&format!("timeout {n}")));
        assert_eq!(counts.top(), (vec![("timeout #", 5)], 0));
        let mut counts = TextCounts::default();
        (0..=LISTED_MAX).for_each(|n| counts.add(&n.to_string()));
        counts.add("7");
        let (top, rest) = counts.top();
        assert_eq!((top.len(), top[0], rest), (LISTED_MAX, ("7", 2), 1));
        let mut counts = TextCounts::default();
        (0..=DIFFERENT_MAX).for_each(|n| counts.add(&n.to_string()));
        let (top, rest) = counts.top();
        assert_eq!(top.len() as u64 + rest, DIFFERENT_MAX as u64 + 1);
    }

    #[test]
    fn the_common_text_of_an_error_selects_it() {
        assert_eq!(common_text("timeout after # s"), "timeout after");
        assert_eq!(common_text("# of # not found"), "not found");
        assert_eq!(common_text("login (hidden) failed for book"), "failed for book");
        assert_eq!(common_text("#"), "");
    }
}
