//! The constant bytes of entries that share their field names.
//!
//! An entry with the names `user` and `n` is this, and only what stands in brackets changes:
//!
//! ```text
//! *2 $15 [1526569495631-0] *4 $4 user $[3 ann] $1 n $[2 17]
//! |---- id prefix ------| |seq
//!                          |-- piece 0 ----| |piece 1|
//! ```
//!
//! Bytes are laid out in a stage of fixed size, which is appended to the output when it is full. Pieces, lengths and short
//! values are copied by moves of a fixed width, past their end if need be: what lies beyond is overwritten
//! by what comes next. The stage holds many entries, because reading back bytes that were stored a moment ago stalls
//! the processor.

use super::decimal::{DIGITS_MAX, PAIRS, digit_count, four_digits, push_header, write_digits};
use super::id_prefix::IdPrefix;
use millstream_engine::stream::{EntryRef, SHORT_TEXT, StoredValue};

/// Pieces and prefixes of up to this length are copied by one move.
const CHUNK: usize = 32;
/// Longer pieces and values bypass the stage.
const STAGED_MAX: usize = 256;
/// What one field may take of the stage: a piece, a length, a value, a line end.
const FIELD_ROOM: usize = 2 * STAGED_MAX + 2 * CHUNK;
/// A power of two: see [`put`].
const STAGE_BYTES: usize = 4096;

/// Bytes before they are output, with room behind them for a move that begins at the last.
type StageBytes = [u8; STAGE_BYTES + CHUNK];

#[derive(Debug, Default)]
pub(super) struct Template {
    /// The names it was prepared for, as blocks keep them.
    names: Vec<u8>,
    pieces: Vec<Piece>,
    prefix: IdPrefix,
    stage: Stage,
}

/// The constant bytes before a value.
#[derive(Debug)]
struct Piece {
    length: usize,
    /// The piece, or its beginning.
    bytes: [u8; CHUNK],
    /// The whole piece, if that is longer.
    long: Box<[u8]>,
}

impl Piece {
    fn new(text: &[u8]) -> Piece {
        let mut bytes = [0; CHUNK];
        let begins = text.len().min(CHUNK);
        bytes[..begins].copy_from_slice(&text[..begins]);
        let long = if text.len() > CHUNK { text.into() } else { Box::default() };
        Piece { length: text.len(), bytes, long }
    }
}

impl Template {
    /// Whether it is one for entries with these names, as their block keeps them.
    #[inline]
    pub(super) fn is_for(&self, names: &[u8]) -> bool {
        self.names == names
    }

    /// Forgets what it held and takes the names of this entry, which it shares and which are these.
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

    /// Writes an entry that has the names this template was prepared for. It may stay on the stage.
    #[inline(always)]
    pub(super) fn write(&mut self, out: &mut Vec<u8>, entry: &EntryRef<'_>) {
        let id = entry.id();
        let seq_digits = digit_count(id.seq);
        self.prefix.turn_to(id.ms, seq_digits);
        self.stage.make_room(out);
        let (mut at, bytes) = (self.stage.length, &mut *self.stage.bytes);
        put(bytes, at, b"*2\r\n");
        put(bytes, at + 4, self.prefix.bytes());
        at += 4 + self.prefix.length();
        at = put_digits(bytes, at, id.seq, seq_digits);
        let mut values = entry.stored_values();
        for piece in &self.pieces {
            if at > STAGE_BYTES - FIELD_ROOM {
                out.extend_from_slice(&bytes[..at]);
                at = 0;
            }
            if piece.length <= CHUNK {
                put(bytes, at, &piece.bytes);
                at += piece.length;
            } else {
                at = put_long(bytes, at, &piece.long, out);
            }
            // The line end after a value is the next piece's.
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

    /// Bytes that are on the stage.
    #[inline]
    pub(super) fn staged(&self) -> usize {
        self.stage.length
    }

    /// Moves what is on the stage to the output.
    #[inline]
    pub(super) fn flush(&mut self, out: &mut Vec<u8>) {
        self.stage.flush(out);
    }
}

/// Bytes on their way to the output.
#[derive(Debug)]
struct Stage {
    length: usize,
    bytes: Box<StageBytes>,
}

impl Default for Stage {
    fn default() -> Self {
        Stage { length: 0, bytes: Box::new([0; STAGE_BYTES + CHUNK]) }
    }
}

impl Stage {
    /// Makes sure that one more field fits.
    #[inline(always)]
    fn make_room(&mut self, out: &mut Vec<u8>) {
        if self.length > STAGE_BYTES - FIELD_ROOM {
            self.flush(out);
        }
    }

    #[inline]
    fn flush(&mut self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.bytes[..self.length]);
        self.length = 0;
    }
}

/// Writes these bytes at `at`, which is on the stage.
#[inline(always)]
fn put<const N: usize>(stage: &mut StageBytes, at: usize, from: &[u8; N]) {
    const { assert!(N <= CHUNK) }
    debug_assert!(at < STAGE_BYTES);
    // Changes nothing, and tells the compiler that the bytes fit.
    let at = at % STAGE_BYTES;
    stage[at..at + N].copy_from_slice(from);
}

/// Writes text of any length. Text that is not for the stage goes to the output behind what is on it. Returns where to
/// go on.
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

/// Writes the length of a number and the number.
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
            // Those of three go over the zero before them.
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

/// The lengths of short values, each with a line end.
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

/// Numbers of one and two digits, each behind its length.
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
