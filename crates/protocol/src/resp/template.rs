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
//! Bytes are laid out in a stage of fixed size, which is appended to the output when it is full. Pieces are
//! padded to whole chunks, so that they are copied by a few wide moves, past their end if need be: what
//! lies beyond is overwritten by what comes next. The stage holds many entries, because reading back
//! bytes that were stored a moment ago stalls the processor.

use super::decimal::{digit_count, push_header, write_digits};
use millstream_engine::stream::{EntryRef, ValueRef};

/// Pieces and prefixes are copied in steps of this many bytes.
const CHUNK: usize = 32;
/// Longer pieces and values bypass the stage.
const STAGED_MAX: usize = 256;
/// What one field may take of the stage: a piece, a length, a value, and a chunk copied past the end.
const FIELD_ROOM: usize = 2 * STAGED_MAX + 2 * CHUNK;
const STAGE_BYTES: usize = 4096;

#[derive(Debug, Default)]
pub(super) struct Template {
    pieces: Vec<Piece>,
    /// The bytes of all pieces, each padded to whole chunks.
    chunks: Vec<[u8; CHUNK]>,
    prefix: IdPrefix,
    stage: Stage,
}

/// The constant bytes before a value.
#[derive(Clone, Copy, Debug)]
struct Piece {
    chunk_first: usize,
    chunk_end: usize,
    length: usize,
}

impl Template {
    /// Forgets what it held and takes the names of this entry.
    pub(super) fn prepare(&mut self, entry: &EntryRef<'_>) {
        self.pieces.clear();
        self.chunks.clear();
        let mut text = Vec::with_capacity(64);
        text.extend_from_slice(b"\r\n");
        push_header(&mut text, b'*', 2 * entry.field_count());
        for name in entry.names() {
            push_header(&mut text, b'$', name.len());
            text.extend_from_slice(name);
            text.extend_from_slice(b"\r\n$");
            self.add_piece(&text);
            text.clear();
            text.extend_from_slice(b"\r\n");
        }
    }

    fn add_piece(&mut self, text: &[u8]) {
        let chunk_first = self.chunks.len();
        for part in text.chunks(CHUNK) {
            let mut chunk = [0; CHUNK];
            chunk[..part.len()].copy_from_slice(part);
            self.chunks.push(chunk);
        }
        self.pieces.push(Piece { chunk_first, chunk_end: self.chunks.len(), length: text.len() });
    }

    /// Writes an entry that has the names this template was prepared for. It may stay on the stage.
    #[inline]
    pub(super) fn write(&mut self, out: &mut Vec<u8>, entry: &EntryRef<'_>) {
        let id = entry.id();
        let seq_digits = digit_count(id.seq);
        if self.prefix.ms != id.ms || self.prefix.seq_digits != seq_digits {
            self.prefix = IdPrefix::new(id.ms, seq_digits);
        }
        let stage = &mut self.stage;
        stage.make_room(out);
        stage.chunks(&[self.prefix.bytes], self.prefix.length);
        stage.digits(id.seq, seq_digits);
        for (piece, value) in self.pieces.iter().zip(entry.values()) {
            stage.make_room(out);
            stage.piece(&self.chunks[piece.chunk_first..piece.chunk_end], piece.length, out);
            match value {
                ValueRef::Bytes(bytes) => stage.bytes_value(bytes, out),
                ValueRef::Int(number) => stage.int_value(number),
            }
        }
        stage.line_end();
    }

    /// Bytes that are on the stage.
    #[inline]
    pub(super) fn staged(&self) -> usize {
        self.stage.length
    }

    /// Moves what is on the stage to the output.
    pub(super) fn flush(&mut self, out: &mut Vec<u8>) {
        self.stage.flush(out);
    }
}

/// Everything of an entry before the sequence number of its id. Entries of one millisecond share it.
#[derive(Debug)]
struct IdPrefix {
    ms: u64,
    seq_digits: usize,
    length: usize,
    bytes: [u8; CHUNK],
}

impl Default for IdPrefix {
    fn default() -> Self {
        IdPrefix::new(0, 1)
    }
}

impl IdPrefix {
    /// At most `*2 CRLF $41 CRLF`, twenty digits and a dash: 30 bytes.
    fn new(ms: u64, seq_digits: usize) -> IdPrefix {
        let ms_digits = digit_count(ms);
        let id_length = ms_digits + 1 + seq_digits;
        let length_digits = digit_count(id_length as u64);
        let mut bytes = [0; CHUNK];
        bytes[..5].copy_from_slice(b"*2\r\n$");
        let mut at = 5;
        write_digits(id_length as u64, &mut bytes[at..at + length_digits]);
        at += length_digits;
        bytes[at..at + 2].copy_from_slice(b"\r\n");
        at += 2;
        write_digits(ms, &mut bytes[at..at + ms_digits]);
        at += ms_digits;
        bytes[at] = b'-';
        IdPrefix { ms, seq_digits, length: at + 1, bytes }
    }
}

/// Bytes on their way to the output.
#[derive(Debug)]
struct Stage {
    length: usize,
    bytes: Box<[u8; STAGE_BYTES]>,
}

impl Default for Stage {
    fn default() -> Self {
        Stage { length: 0, bytes: Box::new([0; STAGE_BYTES]) }
    }
}

impl Stage {
    /// Makes sure that one more field fits.
    #[inline]
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

    #[inline]
    fn piece(&mut self, chunks: &[[u8; CHUNK]], length: usize, out: &mut Vec<u8>) {
        if length <= STAGED_MAX {
            self.chunks(chunks, length);
        } else {
            self.flush(out);
            out.extend_from_slice(&chunks.as_flattened()[..length]);
        }
    }

    /// Copies whole chunks, of which `length` bytes count.
    #[inline]
    fn chunks(&mut self, chunks: &[[u8; CHUNK]], length: usize) {
        let mut at = self.length;
        for chunk in chunks {
            self.bytes[at..][..CHUNK].copy_from_slice(chunk);
            at += CHUNK;
        }
        self.length += length;
    }

    /// The length and the bytes of a value, without the line end: the next piece begins with it.
    #[inline]
    fn bytes_value(&mut self, value: &[u8], out: &mut Vec<u8>) {
        self.value_length(value.len());
        if value.len() <= STAGED_MAX {
            self.short(value);
        } else {
            self.flush(out);
            out.extend_from_slice(value);
        }
    }

    #[inline]
    fn int_value(&mut self, number: i64) {
        let digits = digit_count(number.unsigned_abs());
        let sign = usize::from(number < 0);
        self.value_length(sign + digits);
        self.bytes[self.length] = b'-';
        self.length += sign;
        self.digits(number.unsigned_abs(), digits);
    }

    #[inline]
    fn value_length(&mut self, length: usize) {
        match length {
            0..10 => {
                self.bytes[self.length..][..3].copy_from_slice(&[b'0' + length as u8, b'\r', b'\n']);
                self.length += 3;
            }
            _ => {
                self.digits(length as u64, digit_count(length as u64));
                self.line_end();
            }
        }
    }

    #[inline]
    fn line_end(&mut self) {
        self.bytes[self.length..][..2].copy_from_slice(b"\r\n");
        self.length += 2;
    }

    #[inline]
    fn digits(&mut self, number: u64, count: usize) {
        if count == 1 {
            self.bytes[self.length] = b'0' + number as u8;
        } else {
            write_digits(number, &mut self.bytes[self.length..][..count]);
        }
        self.length += count;
    }

    /// Copies a few bytes by two moves that overlap, where a call of `memcpy` would cost more.
    #[inline]
    fn short(&mut self, value: &[u8]) {
        let length = value.len();
        let into = &mut self.bytes[self.length..][..length];
        match length {
            0 => {}
            1..4 => {
                into[0] = value[0];
                into[length / 2] = value[length / 2];
                into[length - 1] = value[length - 1];
            }
            4..8 => overlapping::<4>(into, value),
            8..16 => overlapping::<8>(into, value),
            16..=32 => overlapping::<16>(into, value),
            _ => into.copy_from_slice(value),
        }
        self.length += length;
    }
}

/// Copies between `STEP` and twice as many bytes.
#[inline]
fn overlapping<const STEP: usize>(into: &mut [u8], from: &[u8]) {
    let tail = from.len() - STEP;
    into[..STEP].copy_from_slice(&from[..STEP]);
    into[tail..tail + STEP].copy_from_slice(&from[tail..]);
}
