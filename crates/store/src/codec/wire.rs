//! Numbers, texts and ids as bytes, and a reader that trusts none.
//!
//! ```text
//! number := seven bits a byte, low bits first, the top bit says "more"; never longer than it needs to be
//! text   := length:number  byte…
//! id     := ms:number  seq:number
//! signed := number of 0, -1, 1, -2, 2 …
//! ```

use std::fmt;

use millstream_engine::StreamId;

/// Where bytes are not what they should be, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CodecError {
    /// How many bytes in.
    pub(crate) offset: usize,
    /// What is wrong there.
    pub(crate) what: &'static str,
}

impl fmt::Display for CodecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (at byte {})", self.what, self.offset)
    }
}

impl std::error::Error for CodecError {}

/// Appends a number.
#[inline]
pub(crate) fn put_number(out: &mut Vec<u8>, mut value: u64) {
    if value < 0x80 {
        return out.push(value as u8);
    }
    // Gathered first and copied as a whole: a copy of known length is a few instructions.
    let mut bytes = [0; NUMBER_BYTES_MAX];
    let mut len = 0;
    while value >= 0x80 {
        bytes[len] = value as u8 | 0x80;
        value >>= 7;
        len += 1;
    }
    bytes[len] = value as u8;
    let end = out.len() + len + 1;
    out.extend_from_slice(&bytes);
    out.truncate(end);
}

/// Ten times seven bits are enough for 64.
const NUMBER_BYTES_MAX: usize = 10;

/// Appends a text.
#[inline]
pub(crate) fn put_text(out: &mut Vec<u8>, text: &[u8]) {
    put_number(out, text.len() as u64);
    match text.len() {
        0 => {}
        1..4 => text.iter().for_each(|byte| out.push(*byte)),
        4..8 => put_short::<4>(out, text),
        8..=16 => put_short::<8>(out, text),
        _ => out.extend_from_slice(text),
    }
}

/// Appends a text of `N` to `2 * N` bytes as its first `N` and its last `N`, which may overlap: copies of known length
/// are several times as fast as one of any length, and most texts are short.
#[inline]
fn put_short<const N: usize>(out: &mut Vec<u8>, text: &[u8]) {
    let (Some(first), Some(last)) = (text.first_chunk::<N>(), text.last_chunk::<N>()) else {
        return debug_assert!(false, "a text of {} bytes is not {N} long", text.len());
    };
    out.extend_from_slice(first);
    out.truncate(out.len() + text.len() - 2 * N);
    out.extend_from_slice(last);
}

/// Appends an id.
#[inline]
pub(crate) fn put_id(out: &mut Vec<u8>, id: StreamId) {
    put_number(out, id.ms);
    put_number(out, id.seq);
}

/// Appends the way from one number to another, short when they are near each other.
#[inline]
pub(crate) fn put_step(out: &mut Vec<u8>, from: u64, to: u64) {
    let step = to.wrapping_sub(from) as i64;
    put_number(out, ((step << 1) ^ (step >> 63)) as u64);
}

/// Appends a number that may be missing.
pub(crate) fn put_optional(out: &mut Vec<u8>, value: Option<u64>) {
    out.push(u8::from(value.is_some()));
    if let Some(value) = value {
        put_number(out, value);
    }
}

/// Reads bytes from front to back. A failed read leaves it where the trouble is.
#[derive(Clone, Debug)]
pub(crate) struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { bytes, at: 0 }
    }

    /// How many bytes are left.
    pub(crate) fn left(&self) -> usize {
        self.bytes.len() - self.at
    }

    /// An error at this place.
    #[cold]
    pub(crate) fn error(&self, what: &'static str) -> CodecError {
        CodecError { offset: self.at, what }
    }

    /// Nothing may be left.
    pub(crate) fn finish(&self) -> Result<(), CodecError> {
        if self.left() == 0 { Ok(()) } else { Err(self.error("bytes follow the end")) }
    }

    #[inline]
    pub(crate) fn byte(&mut self) -> Result<u8, CodecError> {
        let byte = *self.bytes.get(self.at).ok_or_else(|| self.error("the end comes too early"))?;
        self.at += 1;
        Ok(byte)
    }

    /// A byte that says yes or no.
    pub(crate) fn flag(&mut self) -> Result<bool, CodecError> {
        match self.byte()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(self.error("neither yes nor no")),
        }
    }

    #[inline]
    pub(crate) fn number(&mut self) -> Result<u64, CodecError> {
        let first = self.byte()?;
        if first < 0x80 { Ok(u64::from(first)) } else { self.long_number(u64::from(first & 0x7f)) }
    }

    fn long_number(&mut self, mut value: u64) -> Result<u64, CodecError> {
        for shift in (7..u64::BITS).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if bits << shift >> shift != bits {
                return Err(self.error("a number of more than 64 bits"));
            }
            value |= bits << shift;
            match byte {
                0 => return Err(self.error("a number longer than it needs to be")),
                1..0x80 => return Ok(value),
                _ => {}
            }
        }
        Err(self.error("a number of more than 64 bits"))
    }

    pub(crate) fn small_number(&mut self) -> Result<u32, CodecError> {
        u32::try_from(self.number()?).map_err(|_| self.error("a number of more than 32 bits"))
    }

    /// How many things follow, of at least `bytes_each`: never more than there can be, so that room may be made for them.
    pub(crate) fn count(&mut self, bytes_each: usize) -> Result<usize, CodecError> {
        let count = self.number()?;
        match usize::try_from(count) {
            Ok(count) if count <= self.left() / bytes_each => Ok(count),
            _ => Err(self.error("more is announced than follows")),
        }
    }

    #[inline]
    pub(crate) fn text(&mut self) -> Result<&'a [u8], CodecError> {
        let len = self.count(1)?;
        let text = &self.bytes[self.at..self.at + len];
        self.at += len;
        Ok(text)
    }

    pub(crate) fn id(&mut self) -> Result<StreamId, CodecError> {
        Ok(StreamId::new(self.number()?, self.number()?))
    }

    /// What [`put_step`] wrote, taken from the same number.
    pub(crate) fn step(&mut self, from: u64) -> Result<u64, CodecError> {
        let step = self.number()?;
        Ok(from.wrapping_add((step >> 1) ^ (step & 1).wrapping_neg()))
    }

    pub(crate) fn optional(&mut self) -> Result<Option<u64>, CodecError> {
        if self.flag()? { self.number().map(Some) } else { Ok(None) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_one_form() {
        for number in [0, 1, 127, 128, 16_383, 16_384, 1 << 62, u64::MAX] {
            let mut bytes = Vec::new();
            put_number(&mut bytes, number);
            assert_eq!(Reader::new(&bytes).number(), Ok(number));
            *bytes.last_mut().unwrap() |= 0x80;
            bytes.push(0);
            assert!(Reader::new(&bytes).number().is_err(), "{number} in a longer form");
        }
        let too_great = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02];
        assert!(Reader::new(&too_great).number().is_err());
    }

    #[test]
    fn steps_reach_every_number_from_every_number() {
        let numbers = [0, 1, 2, 1 << 40, u64::MAX / 2, u64::MAX / 2 + 1, u64::MAX];
        for (from, to) in numbers.iter().flat_map(|from| numbers.map(|to| (*from, to))) {
            let mut bytes = Vec::new();
            put_step(&mut bytes, from, to);
            assert_eq!(Reader::new(&bytes).step(from), Ok(to), "{from} to {to}");
        }
    }

    #[test]
    fn texts_of_every_length_come_back() {
        let bytes: Vec<u8> = (0..300u32).map(|n| n as u8).collect();
        for len in 0..bytes.len() {
            let mut out = b"before".to_vec();
            put_text(&mut out, &bytes[..len]);
            let mut reader = Reader::new(&out[6..]);
            assert_eq!((reader.text(), reader.left()), (Ok(&bytes[..len]), 0));
        }
    }

    #[test]
    fn a_count_is_bounded_by_what_follows() {
        assert_eq!(Reader::new(&[2, 0, 0, 0, 0]).count(2), Ok(2));
        assert!(Reader::new(&[3, 0, 0, 0, 0]).count(2).is_err());
    }
}
