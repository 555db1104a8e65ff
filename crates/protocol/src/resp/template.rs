//! A template for encoding entries that share their field names.
//!
//! This is an entry with the field names `user` and `n`. Only the parts in brackets differ from entry to entry:
//!
//! ```text
//! *2 $[15 1526569495631-0] *4 $4 user $[3 ann] $1 n $[2 17]
//!    |--- id prefix ---|   |-piece 0--|        |----|
//!                       seq                    piece 1
//! ```
//!
//! Entries are encoded into a staging buffer of fixed size, which is appended to the output when it is full. Pieces,
//! lengths and short values are copied with moves of a fixed width. Such a move can write more bytes than the text has;
//! the next copy overwrites the surplus bytes. The staging buffer holds many entries, because the processor
//! stalls if it reads bytes back right after they were stored.

use super::decimal::{DIGITS_MAX, PAIRS, digit_count, four_digits, push_header, write_digits};
use super::id_prefix::IdPrefix;
use millstream_engine::stream::{EntryRef, SHORT_TEXT, StoredValue};

/// Maximum length of a piece or prefix that is copied with one move.
const CHUNK: usize = 32;
/// Maximum length of a piece or value in the staging buffer; longer ones are appended to the output directly.
const STAGED_MAX: usize = 256;
/// Maximum bytes of one field in the staging buffer: a piece, a length, a value and a line end.
const FIELD_BYTES_MAX: usize = 2 * STAGED_MAX + 2 * CHUNK;
/// Capacity of the staging buffer. A power of two: see [`put`].
const STAGE_BYTES: usize = 4096;

/// The memory of the staging buffer. The additional `CHUNK` bytes allow a move that begins at the last byte.
type StageBytes = [u8; STAGE_BYTES + CHUNK];

#[derive(Debug, Default)]
pub(super) struct Template {
    /// The field names it is prepared for, encoded as in a block.
    names: Vec<u8>,
    pieces: Vec<Piece>,
    prefix: IdPrefix,
    stage: StagingBuffer,
}

/// The constant bytes before a value: from the end of the previous value, or of the id.
#[derive(Debug)]
struct Piece {
    length: usize,
    bytes: [u8; CHUNK],
    /// The whole piece if it is longer than `CHUNK`, otherwise empty.
    long: Box<[u8]>,
}

impl Piece {
    fn new(text: &[u8]) -> Piece {
        let mut bytes = [0; CHUNK];
        let copied = text.len().min(CHUNK);
        bytes[..copied].copy_from_slice(&text[..copied]);
        let long = if text.len() > CHUNK { text.into() } else { Box::default() };
        Piece { length: text.len(), bytes, long }
    }
}

impl Template {
    #[inline]
    pub(super) fn is_for(&self, names: &[u8]) -> bool {
        self.names == names
    }

    /// Prepares the template for the field names of this entry. `names` are these names, encoded as in its block.
    pub(super) fn prepare(&mut self, entry: &EntryRef<'_>, names: &[u8]) {
        self.names.clear();
        self.names.extend_from_slice(names);
        self.pieces.clear();
        let mut text = Vec::with_capacity(64);
        text.extend_from_slice(b"\r\n");
        push_header(&mut text, b'*', 2 * entry.field_count());
        for name in entry.names() {
            push_header(&mut text, b'$', name.len());
            text.extend_from_slice(name);
            text.extend_from_slice(b"\r\n$");
            self.pieces.push(Piece::new(&text));
            text.clear();
            text.extend_from_slice(b"\r\n");
        }
    }

    /// Encodes an entry, which must have the field names that the template is prepared for.
    ///
    /// The encoded bytes can stay in the staging buffer until [`flush`](Self::flush).
    #[inline(always)]
    pub(super) fn write(&mut self, out: &mut Vec<u8>, entry: &EntryRef<'_>) {
        let id = entry.id();
        let seq_digits = digit_count(id.seq);
        self.prefix.set(id.ms, seq_digits);
        self.stage.reserve_field(out);
        let (mut at, bytes) = (self.stage.length, &mut *self.stage.bytes);
        put(bytes, at, b"*2\r\n");
        put(bytes, at + 4, self.prefix.bytes());
        at += 4 + self.prefix.length();
        at = put_digits(bytes, at, id.seq, seq_digits);
        let mut values = entry.stored_values();
        for piece in &self.pieces {
            if at > STAGE_BYTES - FIELD_BYTES_MAX {
                out.extend_from_slice(&bytes[..at]);
                at = 0;
            }
            if piece.length <= CHUNK {
                put(bytes, at, &piece.bytes);
                at += piece.length;
            } else {
                at = put_long(bytes, at, &piece.long, out);
            }
            // The line end after a value belongs to the next piece.
            at = match values.take() {
                StoredValue::Short(window, length) => {
                    let at = put_short_length(bytes, at, length);
                    put(bytes, at, window);
                    at + length
                }
                StoredValue::Int(number @ 0..100) => {
                    let number = number as usize;
                    put(bytes, at, &SMALL_NUMBERS[number]);
                    at + if number < 10 { 4 } else { 5 }
                }
                StoredValue::Int(number) => put_number(bytes, at, number),
                StoredValue::Bytes(value) => {
                    let at = put_length(bytes, at, value.len());
                    put_long(bytes, at, value, out)
                }
            };
        }
        put(bytes, at, b"\r\n");
        self.stage.length = at + 2;
    }

    #[inline]
    pub(super) fn staged_len(&self) -> usize {
        self.stage.length
    }

    #[inline]
    pub(super) fn flush(&mut self, out: &mut Vec<u8>) {
        self.stage.flush(out);
    }
}

/// Encoded bytes that are not in the output yet.
#[derive(Debug)]
struct StagingBuffer {
    length: usize,
    bytes: Box<StageBytes>,
}

impl Default for StagingBuffer {
    fn default() -> Self {
        StagingBuffer { length: 0, bytes: Box::new([0; STAGE_BYTES + CHUNK]) }
    }
}

impl StagingBuffer {
    /// Flushes the buffer unless one more field fits.
    #[inline(always)]
    fn reserve_field(&mut self, out: &mut Vec<u8>) {
        if self.length > STAGE_BYTES - FIELD_BYTES_MAX {
            self.flush(out);
        }
    }

    #[inline]
    fn flush(&mut self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.bytes[..self.length]);
        self.length = 0;
    }
}

#[inline(always)]
fn put<const N: usize>(stage: &mut StageBytes, at: usize, from: &[u8; N]) {
    const { assert!(N <= CHUNK) }
    debug_assert!(at < STAGE_BYTES);
    // Does not change `at`, but proves to the compiler that the bytes fit.
    let at = at % STAGE_BYTES;
    stage[at..at + N].copy_from_slice(from);
}

/// Copies text of any length. Text that is too long for the staging buffer is appended to the output, after the staged
/// bytes. Returns the position in the staging buffer after the text.
#[inline(never)]
fn put_long(stage: &mut StageBytes, at: usize, text: &[u8], out: &mut Vec<u8>) -> usize {
    if text.len() <= STAGED_MAX {
        stage[at..at + text.len()].copy_from_slice(text);
        return at + text.len();
    }
    out.reserve(at + text.len());
    out.extend_from_slice(&stage[..at]);
    out.extend_from_slice(text);
    0
}

/// Writes the length of a short value and a line end.
#[inline(always)]
fn put_short_length(stage: &mut StageBytes, at: usize, length: usize) -> usize {
    put(stage, at, &SHORT_LENGTHS[length % SHORT_LENGTHS.len()]);
    at + if length < 10 { 3 } else { 4 }
}

#[inline]
fn put_length(stage: &mut StageBytes, at: usize, length: usize) -> usize {
    let at = put_digits(stage, at, length as u64, digit_count(length as u64));
    put(stage, at, b"\r\n");
    at + 2
}

/// Writes a number as a bulk string without its `$`: its length, a line end, and its digits.
#[inline(never)]
fn put_number(stage: &mut StageBytes, at: usize, number: i64) -> usize {
    let magnitude = number.unsigned_abs();
    let digits = digit_count(magnitude);
    let sign = usize::from(number < 0);
    let at = put_length(stage, at, sign + digits);
    put(stage, at, b"-");
    put_digits(stage, at + sign, magnitude, digits)
}

#[inline(always)]
fn put_digits(stage: &mut StageBytes, at: usize, number: u64, count: usize) -> usize {
    match number {
        0..10 => put(stage, at, &[b'0' + number as u8]),
        10..100 => put(stage, at, &PAIRS[number as usize]),
        100..10_000 => {
            // Shift out the leading zero of a number with three digits.
            let digits = u32::from_le_bytes(four_digits(number)) >> if count == 3 { 8 } else { 0 };
            put(stage, at, &digits.to_le_bytes());
        }
        _ => put_many_digits(stage, at, number, count),
    }
    at + count
}

#[inline(never)]
fn put_many_digits(stage: &mut StageBytes, at: usize, number: u64, count: usize) {
    let mut digits = [0; DIGITS_MAX];
    write_digits(number, &mut digits[..count]);
    put(stage, at, &digits);
}

/// Every length of a short value, followed by a line end.
const SHORT_LENGTHS: [[u8; 4]; 32] = {
    let mut lengths = [[0; 4]; 32];
    let mut length = 0;
    while length <= SHORT_TEXT {
        let ones = b'0' + (length % 10) as u8;
        lengths[length] = if length < 10 { [ones, b'\r', b'\n', 0] } else { [b'1', ones, b'\r', b'\n'] };
        length += 1;
    }
    lengths
};

/// Every number of one or two digits, preceded by its length and a line end.
const SMALL_NUMBERS: [[u8; 8]; 100] = {
    let mut numbers = [[0; 8]; 100];
    let mut number = 0;
    while number < 100 {
        let (tens, ones) = (b'0' + number / 10, b'0' + number % 10);
        numbers[number as usize] = if number < 10 {
            [b'1', b'\r', b'\n', ones, 0, 0, 0, 0]
        } else {
            [b'2', b'\r', b'\n', tens, ones, 0, 0, 0]
        };
        number += 1;
    }
    numbers
};
