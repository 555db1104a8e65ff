//! Glob patterns, as KEYS, SCAN, CONFIG GET and COMMAND LIST use them.
//!
//! ```text
//! *      any number of bytes           [abc]   one of these bytes
//! ?      any one byte                  [a-z]   one byte of this range; [z-a] is the same range
//! \x     x itself                      [^a]    any byte except these
//! ```
//!
//! A set without its closing bracket extends to the end of the pattern.
//!
//! Clients choose the pattern and the names that it is matched with. A name can have many megabytes. So [`matches()`],
//! which goes back to the last `*` whenever a byte does not match, is only for short texts. For others, a [`Glob`]
//! searches the *parts* of the pattern between stars one after the other, and each search takes time in proportion to
//! the text:
//!
//! - bytes only: by the rules of Knuth, Morris and Pratt
//! - with `?` or sets: the state of all possible beginnings is one number of 128 bits, so a part has at most 128
//!   elements

use crate::errors::{self, CommandError};

/// Maximum length in bytes of a pattern that a client may send.
pub const PATTERN_BYTES_MAX: usize = 4096;

/// Maximum number of elements between two stars of a pattern that a client may send, if they include `?` or sets.
const SEARCHED_ELEMENTS_MAX: usize = u128::BITS as usize;

/// For texts of at most this length, going back to the last star is faster than a prepared search.
const SHORT_TEXT_BYTES: usize = 64;

/// Returns a pattern that a client has sent, or an error if it is too long or takes too long to search.
pub fn check(pattern: &[u8]) -> Result<&[u8], CommandError> {
    if pattern.len() > PATTERN_BYTES_MAX {
        return Err(errors::PATTERN_TOO_LONG);
    }
    let is_simple = pattern.len() <= SEARCHED_ELEMENTS_MAX || Glob::new(pattern).is_fast_to_search();
    if is_simple { Ok(pattern) } else { Err(errors::PATTERN_TOO_COMPLEX) }
}

/// Returns whether the pattern matches the whole text.
pub fn matches(pattern: &[u8], text: &[u8]) -> bool {
    matches_with(pattern, text, |byte| byte)
}

/// Returns whether the pattern matches the whole text, ignoring case.
pub fn matches_ignoring_case(pattern: &[u8], text: &[u8]) -> bool {
    matches_with(pattern, text, |byte| byte.to_ascii_lowercase())
}

fn matches_with(pattern: &[u8], text: &[u8], fold: fn(u8) -> u8) -> bool {
    // In Redis, only two patterns match an empty text: the empty pattern and a single star.
    if text.is_empty() {
        return pattern.is_empty() || pattern == b"*";
    }
    if text.len() > SHORT_TEXT_BYTES {
        return Glob::with(pattern, fold).matches(text);
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
        } else if let Some(next) = match_one(pattern, pattern_at, text[text_at], fold) {
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
fn match_set(pattern: &[u8], at: usize, byte: u8, fold: impl Fn(u8) -> u8) -> Option<usize> {
    let mut found = false;
    let (negated, end) = visit_set(pattern, at, fold, |first, last| found |= (first..=last).contains(&byte));
    (found != negated).then_some(end)
}

/// Visits the ranges of a set, folded. `at` is the position after the opening bracket. Returns whether the set is
/// negated, and the position after it.
fn visit_set(
    pattern: &[u8],
    mut at: usize,
    fold: impl Fn(u8) -> u8,
    mut visit: impl FnMut(u8, u8),
) -> (bool, usize) {
    let negated = pattern.get(at) == Some(&b'^');
    at += usize::from(negated);
    loop {
        match pattern[at..] {
            [] => return (negated, at),
            [b']', ..] => return (negated, at + 1),
            [b'\\', literal, ..] => {
                visit(fold(literal), fold(literal));
                at += 2;
            }
            [first, b'-', last, ..] => {
                visit(fold(first.min(last)), fold(first.max(last)));
                at += 3;
            }
            [literal, ..] => {
                visit(fold(literal), fold(literal));
                at += 1;
            }
        }
    }
}

/// A pattern that is prepared for many or long texts.
pub struct Glob {
    /// The elements between stars. A pattern without a star is one part.
    parts: Vec<Vec<Element>>,
    fold: fn(u8) -> u8,
}

enum Element {
    /// This byte, folded.
    Byte(u8),
    /// A folded byte whose bit is set: `?` or a set.
    Set(Box<[u128; 2]>),
}

impl Element {
    #[inline]
    fn matches(&self, folded: u8) -> bool {
        match self {
            Element::Byte(byte) => *byte == folded,
            Element::Set(bits) => bits[usize::from(folded >> 7)] >> (folded & 127) & 1 == 1,
        }
    }
}

impl Glob {
    /// Prepares a pattern.
    pub fn new(pattern: &[u8]) -> Glob {
        Glob::with(pattern, |byte| byte)
    }

    /// Prepares a pattern that ignores case.
    pub fn ignoring_case(pattern: &[u8]) -> Glob {
        Glob::with(pattern, |byte| byte.to_ascii_lowercase())
    }

    fn with(pattern: &[u8], fold: fn(u8) -> u8) -> Glob {
        let (mut parts, mut part, mut at) = (Vec::new(), Vec::new(), 0);
        while let Some(&byte) = pattern.get(at) {
            at += 1;
            part.push(match byte {
                b'*' => {
                    parts.push(std::mem::take(&mut part));
                    continue;
                }
                b'?' => Element::Set(Box::new([u128::MAX; 2])),
                b'[' => {
                    let mut bits = [0; 2];
                    let add = |first, last| {
                        (first..=last).for_each(|byte: u8| bits[usize::from(byte >> 7)] |= 1 << (byte & 127));
                    };
                    let (negated, end) = visit_set(pattern, at, fold, add);
                    at = end;
                    Element::Set(Box::new(if negated { bits.map(|bits: u128| !bits) } else { bits }))
                }
                b'\\' if at < pattern.len() => {
                    at += 1;
                    Element::Byte(fold(pattern[at - 1]))
                }
                literal => Element::Byte(fold(literal)),
            });
        }
        parts.push(part);
        Glob { parts, fold }
    }

    /// Returns whether the pattern matches the whole text.
    pub fn matches(&self, text: &[u8]) -> bool {
        let (Some((first, others)), Some(last)) = (self.parts.split_first(), self.parts.last()) else {
            return false;
        };
        if text.is_empty() {
            // Only the empty pattern and a single star match an empty text.
            return self.parts.len() <= 2 && self.parts.iter().all(Vec::is_empty);
        }
        let Some((_, middle)) = others.split_last() else {
            return text.len() == first.len() && self.begins(text, first);
        };
        let Some(end) = text.len().checked_sub(last.len()).filter(|end| *end >= first.len()) else {
            return false;
        };
        if !self.begins(text, first) || !self.begins(&text[end..], last) {
            return false;
        }
        let mut rest = &text[first.len()..end];
        for part in middle {
            match self.find(rest, part) {
                Some(after) => rest = &rest[after..],
                None => return false,
            }
        }
        true
    }

    fn begins(&self, text: &[u8], part: &[Element]) -> bool {
        part.len() <= text.len()
            && part.iter().zip(text).all(|(element, byte)| element.matches((self.fold)(*byte)))
    }

    /// Returns the position after the first occurrence of a part in a text.
    fn find(&self, text: &[u8], part: &[Element]) -> Option<usize> {
        if text.len() <= SHORT_TEXT_BYTES {
            let mut starts = 0..(text.len() + 1).checked_sub(part.len())?;
            return starts.find(|start| self.begins(&text[*start..], part)).map(|start| start + part.len());
        }
        match part.iter().map(Element::byte).collect::<Option<Vec<u8>>>() {
            Some(bytes) => self.find_bytes(text, &bytes),
            None => self.find_elements(text, part),
        }
    }

    /// Finds folded bytes: after a byte that does not match, it continues with the longest beginning of the part that
    /// the text before this byte ends with.
    fn find_bytes(&self, text: &[u8], bytes: &[u8]) -> Option<usize> {
        // For each position, the length of the longest beginning that ends there and is not the whole.
        let mut borders = vec![0; bytes.len()];
        let mut matched = 0;
        for at in 1..bytes.len() {
            while matched > 0 && bytes[matched] != bytes[at] {
                matched = borders[matched - 1];
            }
            matched += usize::from(bytes[matched] == bytes[at]);
            borders[at] = matched;
        }
        matched = 0;
        for (at, byte) in text.iter().enumerate() {
            if matched == bytes.len() {
                return Some(at);
            }
            let byte = (self.fold)(*byte);
            while matched > 0 && bytes[matched] != byte {
                matched = borders[matched - 1];
            }
            matched += usize::from(bytes[matched] == byte);
        }
        (matched == bytes.len()).then_some(text.len())
    }

    /// Finds elements: bit `n` of the state says whether the text so far ends with the first `n + 1` elements. Elements
    /// after the first 128 are compared where those match.
    fn find_elements(&self, text: &[u8], part: &[Element]) -> Option<usize> {
        let (searched, others) = part.split_at(part.len().min(SEARCHED_ELEMENTS_MAX));
        let mut bits_of_byte = vec![0u128; 256];
        for (byte, bits) in (0..=u8::MAX).zip(&mut bits_of_byte) {
            for (at, element) in searched.iter().enumerate() {
                *bits |= u128::from(element.matches(byte)) << at;
            }
        }
        let (mut state, found) = (0u128, 1u128 << (searched.len() - 1));
        for (at, byte) in text.iter().enumerate() {
            state = (state << 1 | 1) & bits_of_byte[usize::from((self.fold)(*byte))];
            if state & found != 0 && self.begins(&text[at + 1..], others) {
                return Some(at + 1 + others.len());
            }
        }
        None
    }

    /// Returns whether each search takes time in proportion to the text.
    fn is_fast_to_search(&self) -> bool {
        let searched = self.parts.get(1..self.parts.len() - 1).unwrap_or_default();
        let has_sets = |part: &[Element]| part.iter().any(|element| element.byte().is_none());
        searched.iter().all(|part| part.len() <= SEARCHED_ELEMENTS_MAX || !has_sets(part))
    }
}

impl Element {
    fn byte(&self) -> Option<u8> {
        match self {
            Element::Byte(byte) => Some(*byte),
            Element::Set(_) => None,
        }
    }
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

    /// A matcher that goes back to every star takes exponential time here, and one that goes back to the last star
    /// takes 17 billion steps for the second pattern.
    #[test]
    fn hostile_patterns_take_time_in_proportion_to_the_text() {
        let text = b"a".repeat(1 << 20);
        for part in ["*a".repeat(2000), "a".repeat(4000), "a?".repeat(60), "[ab]".repeat(120)] {
            for (end, expected) in [("*", true), ("*b", false), ("b*", false)] {
                let pattern = format!("*{part}{end}");
                assert_eq!(matches(check(pattern.as_bytes()).unwrap(), &text), expected, "{pattern}");
            }
        }
    }

    #[test]
    fn the_length_of_a_part_with_sets_is_limited() {
        let most = "?".repeat(SEARCHED_ELEMENTS_MAX);
        for pattern in [format!("*{most}*"), format!("{most}{most}*{most}{most}"), "x".repeat(4000)] {
            assert!(check(pattern.as_bytes()).is_ok(), "{pattern}");
        }
        assert_eq!(check(format!("*{most}x*").as_bytes()), Err(errors::PATTERN_TOO_COMPLEX));
        assert!(errors::PATTERN_TOO_COMPLEX.to_string().contains(&format!(" {SEARCHED_ELEMENTS_MAX} ")));
        // Patterns that no client sent, such as those of users, still match.
        assert!(matches(format!("*{most}x*").as_bytes(), &b"x".repeat(200)));
        assert!(!matches(format!("*{most}y*").as_bytes(), &b"x".repeat(200)));
    }

    /// Both matchers must agree. The text is as long as needed for the prepared search.
    #[test]
    fn prepared_patterns_match_as_others() {
        let mut state = 7u64;
        let mut below = |n: u64| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) % n
        };
        let (mut matched, filler) = (0, "x".repeat(SHORT_TEXT_BYTES));
        for _ in 0..20_000 {
            let elements = ["a", "b", "A", "*", "*", "?", "[ab]", "[^b]", "\\a", "[b-a]", "[", "[^a-"];
            let pattern: String = (0..below(7)).map(|_| elements[below(12) as usize]).collect();
            let text: String = (0..below(8)).map(|_| ["a", "b", "c", "B"][below(4) as usize]).collect();
            let (pattern, text) = (pattern.as_bytes(), text.as_bytes());
            let expected = matches(pattern, text);
            matched += u32::from(expected);
            assert_eq!(Glob::new(pattern).matches(text), expected, "{pattern:?} {text:?}");
            let expected = matches_ignoring_case(pattern, text);
            assert_eq!(Glob::ignoring_case(pattern).matches(text), expected, "{pattern:?} {text:?}");
            // Bytes that only a star matches make the text long.
            for at in (0..pattern.len()).filter(|at| pattern[*at] == b'*' && !pattern[..*at].contains(&b'['))
            {
                let long = [&pattern[..at], b"*", filler.as_bytes(), b"*", &pattern[at + 1..]].concat();
                let cut = below(text.len() as u64 + 1) as usize;
                let text = [&text[..cut], filler.as_bytes(), &text[cut..]].concat();
                let expected = slow(&long, &text);
                assert_eq!(matches(&long, &text), expected, "{long:?} {text:?}");
                matched += u32::from(expected);
            }
        }
        assert!(matched > 2000, "{matched}");
    }

    /// Tries all texts that a star can match.
    fn slow(pattern: &[u8], text: &[u8]) -> bool {
        match pattern {
            [b'*', rest @ ..] => (0..=text.len()).any(|at| slow(rest, &text[at..])),
            [] => text.is_empty(),
            _ => text.first().is_some_and(|byte| {
                let next = match_one(pattern, 0, *byte, |byte| byte);
                next.is_some_and(|next| slow(&pattern[next..], &text[1..]))
            }),
        }
    }
}
