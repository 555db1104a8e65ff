//! A string: bytes that are set as a whole or grow at the end.

use super::Layout;
use crate::bytes::number;
use crate::memory::allocation_bytes;

/// The longest string that counts as short: header and bytes share a 64-byte line.
const SHORT_BYTES_MAX: usize = 44;
/// Slack that is not worth a new allocation when a string is overwritten.
const SLACK_BYTES: usize = 64;

/// A string value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Text {
    bytes: Vec<u8>,
}

impl Text {
    /// A string of exactly these bytes.
    pub fn new(bytes: &[u8]) -> Text {
        Text { bytes: bytes.to_vec() }
    }

    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The layout.
    pub fn layout(&self) -> Layout {
        if number::parse_integer(&self.bytes).is_some() {
            Layout::Integer
        } else if self.bytes.len() <= SHORT_BYTES_MAX {
            Layout::ShortString
        } else {
            Layout::LongString
        }
    }

    /// Overwrites the string, in place where that wastes little.
    pub(crate) fn apply_set(&mut self, bytes: &[u8]) {
        let fits = bytes.len()..=2 * bytes.len() + SLACK_BYTES;
        if fits.contains(&self.bytes.capacity()) {
            self.bytes.clear();
            self.bytes.extend_from_slice(bytes);
        } else {
            self.bytes = bytes.to_vec();
        }
    }

    /// Adds bytes at the end.
    pub(crate) fn apply_append(&mut self, tail: &[u8]) {
        self.bytes.extend_from_slice(tail);
    }

    /// Bytes allocated.
    pub fn memory_bytes(&self) -> usize {
        allocation_bytes(self.bytes.capacity())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overwriting_gives_memory_back() {
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
