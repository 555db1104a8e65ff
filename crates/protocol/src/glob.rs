//! Glob patterns, as KEYS, SCAN, CONFIG GET and COMMAND LIST use them.
//!
//! ```text
//! *      any number of bytes           [abc]   one of these bytes
//! ?      any one byte                  [a-z]   one byte of this range; [z-a] is the same range
//! \x     x itself                      [^a]    any byte except these
//! ```
//!
//! A set without its closing bracket extends to the end of the pattern. The matcher backtracks to the last `*` only,
//! so its time is at most proportional to the pattern's length times the text's length. Clients choose both. So the commands
//! that take a pattern [`check`] its length.

use crate::errors::{self, CommandError};

/// Maximum length in bytes of a pattern that a client may send.
pub const PATTERN_BYTES_MAX: usize = 4096;

/// Returns a pattern that a client has sent, or an error if it is too long.
pub fn check(pattern: &[u8]) -> Result<&[u8], CommandError> {
    if pattern.len() > PATTERN_BYTES_MAX { Err(errors::PATTERN_TOO_LONG) } else { Ok(pattern) }
}

/// Returns whether the pattern matches the whole text.
pub fn matches(pattern: &[u8], text: &[u8]) -> bool {
    matches_with(pattern, text, |byte| byte)
}

/// Returns whether the pattern matches the whole text, ignoring case.
pub fn matches_ignoring_case(pattern: &[u8], text: &[u8]) -> bool {
    matches_with(pattern, text, |byte| byte.to_ascii_lowercase())
}

fn matches_with(pattern: &[u8], text: &[u8], fold: impl Fn(u8) -> u8) -> bool {
    // In Redis, only two patterns match an empty text: the empty pattern and a single star.
    if text.is_empty() {
        return pattern.is_empty() || pattern == b"*";
    }
    let (mut pattern_at, mut text_at) = (0, 0);
    // The last star: the position after it in the pattern, and the end of the text that the star matches so far.
    let mut star: Option<(usize, usize)> = None;
    while text_at < text.len() {
        if pattern.get(pattern_at) == Some(&b'*') {
            pattern_at += 1;
            if pattern_at == pattern.len() {
                return true;
            }
            star = Some((pattern_at, text_at));
        } else if let Some(next) = match_one(pattern, pattern_at, text[text_at], &fold) {
            pattern_at = next;
            text_at += 1;
        } else if let Some((after_star, taken)) = star {
            star = Some((after_star, taken + 1));
            (pattern_at, text_at) = (after_star, taken + 1);
        } else {
            return false;
        }
    }
    pattern[pattern_at..].iter().all(|&byte| byte == b'*')
}

/// Matches one byte of the text. Returns the position of the next pattern element, or `None` if the byte does not
/// match.
fn match_one(pattern: &[u8], at: usize, byte: u8, fold: impl Fn(u8) -> u8) -> Option<usize> {
    match *pattern.get(at)? {
        b'?' => Some(at + 1),
        b'[' => match_set(pattern, at + 1, fold(byte), fold),
        b'\\' if at + 1 < pattern.len() => (fold(pattern[at + 1]) == fold(byte)).then_some(at + 2),
        literal => (fold(literal) == fold(byte)).then_some(at + 1),
    }
}

/// Matches a byte, already folded, against a set. `at` is the position after the opening bracket.
///
/// Returns the position after the set, or `None` if the byte does not match.
fn match_set(pattern: &[u8], mut at: usize, byte: u8, fold: impl Fn(u8) -> u8) -> Option<usize> {
    let negated = pattern.get(at) == Some(&b'^');
    at += usize::from(negated);
    let mut found = false;
    loop {
        match pattern[at..] {
            [] => break,
            [b']', ..] => {
                at += 1;
                break;
            }
            [b'\\', literal, ..] => {
                found |= fold(literal) == byte;
                at += 2;
            }
            [first, b'-', last, ..] => {
                let (first, last) = (fold(first.min(last)), fold(first.max(last)));
                found |= (first..=last).contains(&byte);
                at += 3;
            }
            [literal, ..] => {
                found |= fold(literal) == byte;
                at += 1;
            }
        }
    }
    (found != negated).then_some(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matching(pattern: &str) -> String {
        const TEXTS: &[&str] =
            &["", "a", "b", "ab", "abc", "a-c", "-", "]", "[", "\\", "*", "^", "a]", "[a]", "Z"];
        let matched: Vec<&str> =
            TEXTS.iter().copied().filter(|text| matches(pattern.as_bytes(), text.as_bytes())).collect();
        matched.join(" ")
    }

    /// The expected matches are the replies of `KEYS pattern` in Redis 7.0.15.
    #[test]
    fn patterns_match_as_in_redis() {
        assert_eq!(matching("a*"), "a ab abc a-c a]");
        assert_eq!(matching("*c"), "abc a-c");
        assert_eq!(matching("a?c"), "abc a-c");
        assert_eq!(matching("**"), "a b ab abc a-c - ] [ \\ * ^ a] [a] Z");
        assert_eq!(matching("**?"), "a b ab abc a-c - ] [ \\ * ^ a] [a] Z");
        assert_eq!(matching(""), "");
        assert_eq!(matching("*"), " a b ab abc a-c - ] [ \\ * ^ a] [a] Z");
        assert_eq!(matching("[ab]"), "a b");
        assert_eq!(matching("[^a]"), "b - ] [ \\ * ^ Z");
        assert_eq!(matching("[^]a]"), "[a]");
        assert_eq!(matching("[c-a]"), "a b");
        assert_eq!(matching("[a-]"), "a ] ^");
        assert_eq!(matching("[-a]"), "a -");
        assert_eq!(matching("[\\]]"), "]");
        assert_eq!(matching("a[b-]"), "ab a]");
        assert_eq!(matching("["), "");
        assert_eq!(matching("[a"), "a");
        assert_eq!(matching("[]"), "");
        assert_eq!(matching("[^"), "a b - ] [ \\ * ^ Z");
        assert_eq!(matching("\\*"), "*");
        assert_eq!(matching("\\"), "\\");
        assert_eq!(matching("\\[a\\]"), "[a]");
    }

    #[test]
    fn the_length_of_a_pattern_is_limited() {
        let longest = [b'*'; PATTERN_BYTES_MAX];
        assert_eq!(check(&longest), Ok(&longest[..]));
        assert_eq!(check(&[b'*'; PATTERN_BYTES_MAX + 1]), Err(errors::PATTERN_TOO_LONG));
        assert!(errors::PATTERN_TOO_LONG.to_string().ends_with(&format!(" {PATTERN_BYTES_MAX} bytes")));
    }

    #[test]
    fn matching_can_ignore_case() {
        assert!(matches_ignoring_case(b"X[a-c]*\\D", b"xB..d"));
        assert!(!matches(b"X*", b"xyz"));
    }

    /// A matcher that backtracks to every star would take exponential time here.
    #[test]
    fn pattern_with_many_stars_takes_bounded_time() {
        let (pattern, text) = (b"*a".repeat(500), b"a".repeat(20_000));
        assert!(matches(&pattern, &text));
        assert!(!matches(&[&pattern[..], b"b"].concat(), &text));
    }
}
