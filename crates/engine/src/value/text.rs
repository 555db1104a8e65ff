//! A string: bytes that are overwritten as a whole or appended to.

use super::Layout;
use crate::bytes::number;
use crate::memory::allocation_bytes;

/// Maximum length of a short string, whose header and bytes share a 64-byte cache line in Redis.
const SHORT_BYTES_MAX: usize = 44;
/// Unused bytes that do not justify a new allocation when a string is overwritten.
const SLACK_BYTES: usize = 64;

/// A string value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Text {
    bytes: Vec<u8>,
}

impl Text {
    /// Creates a string of these bytes.
    pub fn new(bytes: &[u8]) -> Text {
        Text { bytes: bytes.to_vec() }
    }

    /// Returns the bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the layout.
    pub fn layout(&self) -> Layout {
        if number::parse_integer(&self.bytes).is_some() {
            Layout::Integer
        } else if self.bytes.len() <= SHORT_BYTES_MAX {
            Layout::ShortString
        } else {
            Layout::LongString
        }
    }

    /// Overwrites the string. Reuses the allocation if that wastes little memory.
    pub(crate) fn apply_set(&mut self, bytes: &[u8]) {
        let fits = bytes.len()..=2 * bytes.len() + SLACK_BYTES;
        if fits.contains(&self.bytes.capacity()) {
            self.bytes.clear();
            self.bytes.extend_from_slice(bytes);
        } else {
            self.bytes = bytes.to_vec();
        }
    }

    pub(crate) fn apply_append(&mut self, tail: &[u8]) {
        self.bytes.extend_from_slice(tail);
    }

    /// Returns the bytes allocated.
    pub fn memory_bytes(&self) -> usize {
        allocation_bytes(self.bytes.capacity())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overwriting_a_long_string_frees_memory() {
        let mut text = Text::new(&[b'x'; 10_000]);
        text.apply_set(b"short");
        assert_eq!(text.as_bytes(), b"short");
        assert_eq!(text.memory_bytes(), 32);
    }

    #[test]
    fn overwriting_with_the_same_size_keeps_the_allocation() {
        let mut text = Text::new(b"0000");
        let before = text.as_bytes().as_ptr();
        text.apply_set(b"1111");
        assert_eq!(text.as_bytes().as_ptr(), before);
    }

    #[test]
    fn layouts_follow_content_and_length() {
        assert_eq!(Text::new(b"-17").layout(), Layout::Integer);
        assert_eq!(Text::new(b"017").layout(), Layout::ShortString);
        assert_eq!(Text::new(&[b'x'; 44]).layout(), Layout::ShortString);
        assert_eq!(Text::new(&[b'x'; 45]).layout(), Layout::LongString);
    }
}
