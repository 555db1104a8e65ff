//! Encodes numbers, texts and ids, and decodes them from untrusted bytes.
//!
//! ```text
//! number := seven bits per byte, low bits first; the top bit means "more bytes follow"; always the shortest form
//! text   := length:number  byte…
//! id     := ms:number  seq:number
//! signed := a number: 0, -1, 1, -2, 2 … become 0, 1, 2, 3, 4 …
//! ```

use std::fmt;

use millstream_engine::StreamId;
use millstream_engine::bytes::varint;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CodecError {
    /// Offset at which decoding stopped: at the invalid bytes or just after them.
    pub(crate) offset: usize,
    pub(crate) what: &'static str,
}

impl fmt::Display for CodecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (at byte {})", self.what, self.offset)
    }
}

const CUT_SHORT: &str = "fewer bytes follow than announced";

#[inline]
pub(crate) fn put_number(out: &mut Vec<u8>, value: u64) {
    if value < 0x80 { out.push(value as u8) } else { put_long_number(out, value) }
}

/// Appends a number of more than seven bits.
fn put_long_number(out: &mut Vec<u8>, value: u64) {
    let (bytes, length) = varint::encode(value);
    out.extend_from_slice(&bytes[..length]);
}

/// Joins eight groups of seven bits, one per byte. Ignores the top bit of each byte.
fn gather(bytes: u64) -> u64 {
    let quarters = (bytes & 0x007f_007f_007f_007f) | ((bytes & 0x7f00_7f00_7f00_7f00) >> 1);
    let halves = (quarters & 0x0000_3fff_0000_3fff) | ((quarters & 0x3fff_0000_3fff_0000) >> 2);
    (halves & 0x0fff_ffff) | ((halves & 0x0fff_ffff_0000_0000) >> 4)
}

pub(crate) fn put_text(out: &mut Vec<u8>, text: &[u8]) {
    put_number(out, text.len() as u64);
    out.extend_from_slice(text);
}

#[inline]
pub(crate) fn put_id(out: &mut Vec<u8>, id: StreamId) {
    put_number(out, id.ms);
    put_number(out, id.seq);
}

/// Appends the difference between two numbers, which is short if they are close.
#[inline]
pub(crate) fn put_step(out: &mut Vec<u8>, from: u64, to: u64) {
    put_number(out, varint::zigzag(to.wrapping_sub(from) as i64));
}

pub(crate) fn put_optional(out: &mut Vec<u8>, value: Option<u64>) {
    out.push(u8::from(value.is_some()));
    if let Some(value) = value {
        put_number(out, value);
    }
}

/// Reads bytes from front to back. After a failed read it stays at the invalid bytes or just after them.
#[derive(Clone, Debug)]
pub(crate) struct ByteReader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> ByteReader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> ByteReader<'a> {
        ByteReader { bytes, at: 0 }
    }

    pub(crate) fn left(&self) -> usize {
        self.bytes.len() - self.at
    }

    #[cold]
    pub(crate) fn error(&self, what: &'static str) -> CodecError {
        CodecError { offset: self.at, what }
    }

    pub(crate) fn finish(&self) -> Result<(), CodecError> {
        if self.left() == 0 { Ok(()) } else { Err(self.error("bytes follow the end of the data")) }
    }

    #[inline]
    pub(crate) fn byte(&mut self) -> Result<u8, CodecError> {
        let byte = *self.bytes.get(self.at).ok_or_else(|| self.error("the data ends too early"))?;
        self.at += 1;
        Ok(byte)
    }

    /// Reads a byte that must be 0 or 1.
    pub(crate) fn flag(&mut self) -> Result<bool, CodecError> {
        match self.byte()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(self.error("a flag is neither 0 nor 1")),
        }
    }

    #[inline]
    pub(crate) fn number(&mut self) -> Result<u64, CodecError> {
        match self.bytes.get(self.at) {
            Some(&byte) if byte < 0x80 => {
                self.at += 1;
                Ok(u64::from(byte))
            }
            _ => self.long_number(),
        }
    }

    fn long_number(&mut self) -> Result<u64, CodecError> {
        let ahead = self.bytes.get(self.at..).and_then(|ahead| ahead.first_chunk());
        let Some(ahead) = ahead.map(|ahead| u64::from_le_bytes(*ahead)) else {
            return self.number_by_bytes();
        };
        // The top bit of every byte that ends a number: the lowest one is the end of this number.
        let last = ahead & varint::MORE ^ varint::MORE;
        if last == 0 {
            return self.number_by_bytes();
        }
        let len = last.trailing_zeros() / 8 + 1;
        let bytes = ahead & (u64::MAX >> (u64::BITS - 8 * len));
        if len > 1 && bytes >> (8 * (len - 1)) == 0 {
            return self.number_by_bytes();
        }
        self.at += len as usize;
        Ok(gather(bytes))
    }

    /// Reads a number byte by byte. Used near the end of the data, for a number of more than eight bytes, and for an
    /// invalid number.
    #[cold]
    fn number_by_bytes(&mut self) -> Result<u64, CodecError> {
        let first = self.byte()?;
        if first < 0x80 { Ok(u64::from(first)) } else { self.more_of_number(u64::from(first & 0x7f)) }
    }

    fn more_of_number(&mut self, mut value: u64) -> Result<u64, CodecError> {
        for shift in (7..u64::BITS).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if bits << shift >> shift != bits {
                return Err(self.error("a number has more than 64 bits"));
            }
            value |= bits << shift;
            match byte {
                0 => return Err(self.error("a number is not in its shortest form")),
                1..0x80 => return Ok(value),
                _ => {}
            }
        }
        Err(self.error("a number has more than 64 bits"))
    }

    pub(crate) fn small_number(&mut self) -> Result<u32, CodecError> {
        u32::try_from(self.number()?).map_err(|_| self.error("a number has more than 32 bits"))
    }

    /// Reads the number of items that follow, each of at least `bytes_each` bytes. Refuses a count for which too few
    /// bytes are left, so that the caller can allocate memory for the items.
    pub(crate) fn count(&mut self, bytes_each: usize) -> Result<usize, CodecError> {
        let count = self.number()?;
        match usize::try_from(count) {
            Ok(count) if count <= self.left() / bytes_each => Ok(count),
            _ => Err(self.error(CUT_SHORT)),
        }
    }

    #[inline]
    pub(crate) fn text(&mut self) -> Result<&'a [u8], CodecError> {
        let len = self.number()?;
        self.bytes(len)
    }

    #[inline]
    pub(crate) fn bytes(&mut self, len: u64) -> Result<&'a [u8], CodecError> {
        let ahead = &self.bytes[self.at..];
        let bytes = usize::try_from(len).ok().and_then(|len| ahead.get(..len));
        let bytes = bytes.ok_or_else(|| self.error(CUT_SHORT))?;
        self.at += bytes.len();
        Ok(bytes)
    }

    pub(crate) fn id(&mut self) -> Result<StreamId, CodecError> {
        Ok(StreamId::new(self.number()?, self.number()?))
    }

    /// Reads a difference that [`put_step`] wrote, and adds it to `from`.
    pub(crate) fn step(&mut self, from: u64) -> Result<u64, CodecError> {
        let step = self.number()?;
        Ok(from.wrapping_add_signed(varint::unzigzag(step)))
    }

    pub(crate) fn optional(&mut self) -> Result<Option<u64>, CodecError> {
        if self.flag()? { self.number().map(Some) } else { Ok(None) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Encodes a number as the top of this file describes.
    fn one_by_one(mut number: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        while number >= 0x80 {
            bytes.push(number as u8 | 0x80);
            number >>= 7;
        }
        bytes.push(number as u8);
        bytes
    }

    #[test]
    fn numbers_have_one_encoding() {
        let edges = (0..u64::BITS).flat_map(|bit| [(1u64 << bit) - 1, 1 << bit, (1 << bit) | 1]);
        for number in edges.chain([u64::MAX]) {
            let mut bytes = Vec::new();
            put_number(&mut bytes, number);
            assert_eq!(bytes, one_by_one(number), "{number}");
            for follows in [&[][..], &[0xff; 10], &[0; 10]] {
                let mut reader = ByteReader { bytes: &[&bytes, follows].concat(), at: 0 };
                assert_eq!((reader.number(), reader.left()), (Ok(number), follows.len()), "{number}");
            }
            *bytes.last_mut().unwrap() |= 0x80;
            bytes.push(0);
            assert!(ByteReader::new(&bytes).number().is_err(), "{number} in a longer form");
            bytes.extend([1; 10]);
            assert!(ByteReader::new(&bytes).number().is_err(), "{number} in a longer form, more behind it");
        }
        let too_great = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02];
        assert!(ByteReader::new(&too_great).number().is_err());
    }

    #[test]
    fn steps_reach_every_number_from_every_number() {
        let numbers = [0, 1, 2, 1 << 40, u64::MAX / 2, u64::MAX / 2 + 1, u64::MAX];
        for (from, to) in numbers.iter().flat_map(|from| numbers.map(|to| (*from, to))) {
            let mut bytes = Vec::new();
            put_step(&mut bytes, from, to);
            assert_eq!(ByteReader::new(&bytes).step(from), Ok(to), "{from} to {to}");
        }
    }

    #[test]
    fn texts_of_every_length_round_trip() {
        let bytes: Vec<u8> = (0..300u32).map(|n| n as u8).collect();
        for len in 0..bytes.len() {
            let mut out = b"before".to_vec();
            put_text(&mut out, &bytes[..len]);
            put_text(&mut out, &bytes[len..]);
            put_text(&mut out, &bytes[..len]);
            let mut reader = ByteReader::new(&out[6..]);
            for text in [&bytes[..len], &bytes[len..], &bytes[..len]] {
                assert_eq!(reader.text(), Ok(text));
            }
            assert_eq!(reader.left(), 0);
        }
    }

    #[test]
    fn count_is_limited_by_the_bytes_that_follow() {
        assert_eq!(ByteReader::new(&[2, 0, 0, 0, 0]).count(2), Ok(2));
        assert!(ByteReader::new(&[3, 0, 0, 0, 0]).count(2).is_err());
    }
}
