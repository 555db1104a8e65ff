//! Changes an input at random.
//!
//! Most targets read an input as a list of choices for a generator, so that every changed input is again well formed.
//! The others get the bytes as they are.

use crate::random::Random;

/// Maximum length of an input, in bytes.
const INPUT_BYTES_MAX: usize = 2048;

/// Bytes at which readers often make decisions.
const BYTES: [u8; 14] = [0, 1, 2, 9, b'\n', b'\r', b' ', b'"', b'*', b'-', 0x7f, 0x80, 0xfe, 0xff];
/// Numbers at which arithmetic often goes wrong.
const NUMBERS: [u64; 14] = [
    0,
    1,
    127,
    128,
    255,
    65_535,
    65_536,
    i32::MAX as u64,
    u32::MAX as u64,
    1 << 32,
    1 << 62,
    i64::MAX as u64,
    1 << 63,
    u64::MAX,
];

/// Returns a changed copy of an input. `other` is another input, to take parts from; `words` are texts of the format.
pub(crate) fn mutate(random: &mut Random, input: &[u8], other: &[u8], words: &[&[u8]]) -> Vec<u8> {
    let mut bytes = input.to_vec();
    for _ in 0..1 << random.below(4) {
        change(random, &mut bytes, other, words);
    }
    bytes.truncate(INPUT_BYTES_MAX);
    bytes
}

fn change(random: &mut Random, bytes: &mut Vec<u8>, other: &[u8], words: &[&[u8]]) {
    let at = random.below(bytes.len() + 1);
    let length_max = 1 << random.below(6);
    let end = (at + 1 + random.below(length_max)).min(bytes.len()).max(at);
    match random.below(14) {
        0 if at < bytes.len() => bytes[at] ^= 1 << random.below(8),
        1 if at < bytes.len() => bytes[at] = random.next() as u8,
        2 if at < bytes.len() => bytes[at] = *random.pick(&BYTES),
        3 if at < bytes.len() => bytes[at] = bytes[at].wrapping_add(random.below(16) as u8).wrapping_sub(8),
        4 => drop(bytes.drain(at..end)),
        5 => {
            let copied = bytes[at..end].to_vec();
            insert(bytes, at, &copied);
        }
        6 => {
            let length = 1 + random.below(8);
            insert(bytes, at, &random.bytes(length));
        }
        7 if !words.is_empty() => insert(bytes, at, words[random.below(words.len())]),
        8 => {
            let text = random.pick(&NUMBERS).to_string();
            insert(bytes, at, text.as_bytes());
        }
        9 => overwrite(bytes, at, &random.pick(&NUMBERS).to_le_bytes()),
        10 => insert(bytes, at, &varint(*random.pick(&NUMBERS))),
        11 if !other.is_empty() => {
            let from = random.below(other.len());
            let length = 1 + random.below(other.len() - from);
            insert(bytes, at, &other[from..from + length]);
        }
        12 if !other.is_empty() => {
            bytes.truncate(at);
            bytes.extend_from_slice(&other[random.below(other.len())..]);
        }
        13 if random.one_in(4) => bytes.truncate(at),
        _ => insert(bytes, at, &[random.next() as u8]),
    }
}

fn insert(bytes: &mut Vec<u8>, at: usize, inserted: &[u8]) {
    bytes.splice(at..at, inserted.iter().copied());
}

fn overwrite(bytes: &mut [u8], at: usize, written: &[u8]) {
    bytes[at..].iter_mut().zip(written).for_each(|(byte, new)| *byte = *new);
}

/// Returns a number as the data format encodes it: seven bits a byte, the lowest first.
fn varint(mut number: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
    bytes
}
