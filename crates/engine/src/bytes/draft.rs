//! Bytes on their way to the end of a block, or of a record.
//!
//! An entry is a dozen pieces of a few bytes, and to append each of them to a vector costs more than its bytes. So pieces are
//! laid out here, by moves of a fixed width, and appended together. Long text goes to its end directly, behind what was
//! laid out before it.

use super::{short, varint};

/// Where pieces are laid out: a power of two, see [`Draft::set`].
const PLACES: usize = 128;
/// What is laid out is appended before the next piece when it takes this much: a number and a short text fit behind it.
const FULL_BYTES: usize = PLACES - 2 * short::BYTES_MAX;

/// See the module. What was written has arrived when the draft is finished.
pub struct Draft<'a> {
    out: &'a mut Vec<u8>,
    length: usize,
    /// With room behind it for a move that begins at the last place.
    bytes: [u8; PLACES + short::BYTES_MAX],
}

impl<'a> Draft<'a> {
    /// Nothing is laid out yet.
    #[inline(always)]
    pub fn new(out: &'a mut Vec<u8>) -> Draft<'a> {
        Draft { out, length: 0, bytes: [0; PLACES + short::BYTES_MAX] }
    }

    /// Where in the block the next piece will be.
    #[inline(always)]
    pub fn position(&self) -> usize {
        self.out.len() + self.length
    }

    /// One byte.
    #[inline(always)]
    pub fn byte(&mut self, byte: u8) {
        self.make_room();
        self.set(self.length, &[byte]);
        self.length += 1;
    }

    /// A number, in as few bytes as it needs.
    #[inline(always)]
    pub fn number(&mut self, number: u64) {
        self.make_room();
        self.put_number(number);
    }

    /// A number, and text of any length behind it.
    #[inline(always)]
    pub(crate) fn number_and_text(&mut self, number: u64, text: &[u8]) {
        self.make_room();
        self.put_number(number);
        self.put_text(text);
    }

    /// Text of any length, behind its length.
    #[inline(always)]
    pub fn text(&mut self, text: &[u8]) {
        self.number_and_text(text.len() as u64, text);
    }

    #[inline(always)]
    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        self.make_room();
        self.put_text(bytes);
    }

    /// Appends the rest, and says where it all is.
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

    /// Lays out these bytes from a place on.
    #[inline(always)]
    fn set<const N: usize>(&mut self, at: usize, bytes: &[u8; N]) {
        const { assert!(N <= short::BYTES_MAX) }
        debug_assert!(at < PLACES);
        // Changes nothing, and tells the compiler that the bytes fit.
        let at = at % PLACES;
        self.bytes[at..at + N].copy_from_slice(bytes);
    }

    #[inline(always)]
    fn make_room(&mut self) {
        if self.length >= FULL_BYTES {
            self.append(&[]);
        }
    }

    /// Appends what was laid out, and this text.
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
                let mut draft = Draft::new(&mut block);
                for number in (0..pieces).map(|piece| length as u64 * 1_000_003 * piece) {
                    draft.byte(number as u8);
                    draft.number(number);
                    draft.number_and_text(u64::MAX - number, &text[..length]);
                    draft.text(&text[..length]);
                    draft.bytes(&text[..length]);
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
                draft.finish();
                assert_eq!(block, plain, "{pieces} pieces of {length}");
            }
        }
    }
}
