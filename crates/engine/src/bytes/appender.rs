//! Appends small pieces to a byte vector: entries to a block, effects to a record.
//!
//! An entry consists of about a dozen pieces of a few bytes. Appending each of them to a vector costs more
//! than copying its bytes. So pieces are first copied into a fixed array, by copies of a fixed width, and
//! then appended to the vector together. Before a long text, the array is appended to the vector; then the
//! text is appended directly.

use super::{short, varint};

/// Size of the array in bytes. A power of two, see [`Appender::set`].
const ARRAY_BYTES: usize = 128;
/// If the array holds at least this many bytes, they are appended to the vector before the next piece. If it
/// holds fewer, a number and a short text still fit.
const FULL_BYTES: usize = ARRAY_BYTES - 2 * short::BYTES_MAX;

/// Appends pieces to a vector through a fixed array. The vector is complete only after
/// [`finish`](Appender::finish).
pub struct Appender<'a> {
    out: &'a mut Vec<u8>,
    length: usize,
    /// The array, with space for a copy of full width that starts at its last byte.
    bytes: [u8; ARRAY_BYTES + short::BYTES_MAX],
}

impl<'a> Appender<'a> {
    /// Creates an appender to `out`.
    #[inline(always)]
    pub fn new(out: &'a mut Vec<u8>) -> Appender<'a> {
        Appender { out, length: 0, bytes: [0; ARRAY_BYTES + short::BYTES_MAX] }
    }

    /// Returns the position in the vector at which the next piece will be.
    #[inline(always)]
    pub fn position(&self) -> usize {
        self.out.len() + self.length
    }

    /// Appends one byte.
    #[inline(always)]
    pub fn byte(&mut self, byte: u8) {
        self.make_room();
        self.set(self.length, &[byte]);
        self.length += 1;
    }

    /// Appends a number as a varint.
    #[inline(always)]
    pub fn number(&mut self, number: u64) {
        self.make_room();
        self.put_number(number);
    }

    #[inline(always)]
    pub(crate) fn number_and_text(&mut self, number: u64, text: &[u8]) {
        self.make_room();
        self.put_number(number);
        self.put_text(text);
    }

    /// Appends the length of a text as a varint, then the text.
    #[inline(always)]
    pub fn text(&mut self, text: &[u8]) {
        self.number_and_text(text.len() as u64, text);
    }

    #[inline(always)]
    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        self.make_room();
        self.put_text(bytes);
    }

    /// Appends the rest of the array and returns the vector.
    #[inline(always)]
    pub fn finish(self) -> &'a mut Vec<u8> {
        self.out.extend_from_slice(&self.bytes[..self.length]);
        self.out
    }

    #[inline(always)]
    fn put_number(&mut self, number: u64) {
        if number < 0x80 {
            self.set(self.length, &[number as u8]);
            self.length += 1;
        } else if number < 0x4000 {
            self.set(self.length, &[number as u8 | 0x80, (number >> 7) as u8]);
            self.length += 2;
        } else {
            let (bytes, length) = varint::encode(number);
            self.set(self.length, &bytes);
            self.length += length;
        }
    }

    #[inline(always)]
    fn put_text(&mut self, text: &[u8]) {
        let (at, length) = (self.length, text.len());
        match length {
            0..4 => {
                for (offset, byte) in text.iter().enumerate() {
                    self.set(at + offset, &[*byte]);
                }
            }
            4..8 => {
                let (first, last) = short::ends::<4>(text);
                self.set(at, first);
                self.set(at + length - 4, last);
            }
            8..=short::BYTES_MAX => {
                let (first, last) = short::ends::<8>(text);
                self.set(at, first);
                self.set(at + length - 8, last);
            }
            _ => return self.append(text),
        }
        self.length += length;
    }

    #[inline(always)]
    fn set<const N: usize>(&mut self, at: usize, bytes: &[u8; N]) {
        const { assert!(N <= short::BYTES_MAX) }
        debug_assert!(at < ARRAY_BYTES);
        // `at` is smaller already. The remainder lets the compiler prove that the bytes fit.
        let at = at % ARRAY_BYTES;
        self.bytes[at..at + N].copy_from_slice(bytes);
    }

    #[inline(always)]
    fn make_room(&mut self) {
        if self.length >= FULL_BYTES {
            self.append(&[]);
        }
    }

    /// Appends the content of the array, then this text, to the vector.
    #[inline(always)]
    fn append(&mut self, text: &[u8]) {
        append_both(self.out, &self.bytes[..self.length], text);
        self.length = 0;
    }
}

#[inline(never)]
fn append_both(block: &mut Vec<u8>, first: &[u8], second: &[u8]) {
    block.reserve(first.len() + second.len());
    block.extend_from_slice(first);
    block.extend_from_slice(second);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_of_every_length_are_appended_in_order() {
        let text: Vec<u8> = (0..=255).cycle().take(600).collect();
        for length in (0..40).chain([100, 128, 300, 600]) {
            for pieces in [1, 2, 3, 20] {
                let (mut block, mut plain) = (b"before".to_vec(), b"before".to_vec());
                let mut appender = Appender::new(&mut block);
                for number in (0..pieces).map(|piece| length as u64 * 1_000_003 * piece) {
                    appender.byte(number as u8);
                    appender.number(number);
                    appender.number_and_text(u64::MAX - number, &text[..length]);
                    appender.text(&text[..length]);
                    appender.bytes(&text[..length]);
                    let encoded = |number: u64| {
                        let (bytes, length) = varint::encode(number);
                        bytes[..length].to_vec()
                    };
                    plain.push(number as u8);
                    plain.extend(encoded(number));
                    plain.extend(encoded(u64::MAX - number));
                    plain.extend(&text[..length]);
                    plain.extend(encoded(length as u64));
                    plain.extend(&text[..length]);
                    plain.extend(&text[..length]);
                }
                appender.finish();
                assert_eq!(block, plain, "{pieces} pieces of {length}");
            }
        }
    }
}
