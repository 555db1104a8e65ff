//! Glob patterns: a text matches itself when escaped, and stars match what they should.

use millstream_protocol::glob::{matches, matches_ignoring_case};

pub(super) fn run(input: &[u8]) {
    let Some((&at, rest)) = input.split_first() else { return };
    let (pattern, text) = rest.split_at(rest.len() * usize::from(at) / 256);
    let is_match = matches(pattern, text);
    let is_match_ignoring_case = matches_ignoring_case(pattern, text);
    let (upper_pattern, upper_text) = (pattern.to_ascii_lowercase(), text.to_ascii_lowercase());
    if !pattern.contains(&b'[') {
        // The range [Z-a] means something else in lower case.
        assert_eq!(matches(&upper_pattern, &upper_text), is_match_ignoring_case);
        assert!(is_match_ignoring_case || !is_match);
    }
    let escaped: Vec<u8> = text.iter().flat_map(|byte| [b'\\', *byte]).collect();
    assert!(matches(&escaped, text), "a text does not match itself");
    assert!(matches(b"*", text));
    if !text.is_empty() {
        assert!(matches(&[b"*", &*escaped, b"*"].concat(), text));
        assert!(matches(&vec![b'?'; text.len()], text));
    }
    if is_match && !text.is_empty() {
        assert!(matches(&[b"*", pattern].concat(), text), "a star before the pattern");
    }
}
