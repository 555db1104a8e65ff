//! How stream ids are spelled in a request.
//!
//! An id is `ms-seq`, or `ms` alone where the position gives the missing sequence. Numbers are read as
//! C's `strtoull` reads them, because Redis does: `01-05`, `+2-1` and ` 1- 2` are ids, and a NUL ends the
//! text. A complete id always has one canonical spelling, `StreamId`'s own.

use millstream_engine::{IdSpec, StreamId};
use smallvec::SmallVec;

use crate::errors::{self, CommandError};

/// Longer texts are no ids.
const LONGEST_ID: usize = 127;

/// Ids that a command names one after the other.
pub type Ids = SmallVec<[StreamId; 8]>;

/// An id where `-` and `+` mean nothing. A missing sequence is 0.
pub fn parse_id(text: &[u8]) -> Result<StreamId, CommandError> {
    strict(text, 0)
}

/// An id where `-` is the smallest and `+` the greatest. A missing sequence is 0.
pub fn parse_id_or_extreme(text: &[u8]) -> Result<StreamId, CommandError> {
    id_or_extreme(text, 0)
}

/// The id of a new entry: `*`, `ms-*`, `ms-seq` or `ms`.
pub fn parse_id_spec(text: &[u8]) -> Result<IdSpec, CommandError> {
    if text == b"*" {
        return Ok(IdSpec::Auto);
    }
    match readable(text).and_then(|text| text.strip_suffix(b"-*")) {
        // `1-2-*` has its dash elsewhere, and is an id of no form.
        Some(ms) if !ms.contains(&b'-') => {
            lenient_u64(ms).map(IdSpec::AutoSeq).ok_or(errors::INVALID_STREAM_ID)
        }
        _ => parse_id(text).map(IdSpec::Explicit),
    }
}

/// The first id of an interval: `-`, `+`, an id (a missing sequence is 0), or `(` and an id to begin after.
pub fn parse_start(text: &[u8]) -> Result<StreamId, CommandError> {
    match text {
        [b'(', excluded @ ..] if !excluded.is_empty() => {
            parse_id(excluded)?.next().ok_or(errors::INVALID_INTERVAL_START)
        }
        _ => id_or_extreme(text, 0),
    }
}

/// The last id of an interval: as its first, but a missing sequence is the greatest.
pub fn parse_end(text: &[u8]) -> Result<StreamId, CommandError> {
    match text {
        [b'(', excluded @ ..] if !excluded.is_empty() => {
            strict(excluded, u64::MAX)?.prev().ok_or(errors::INVALID_INTERVAL_END)
        }
        _ => id_or_extreme(text, u64::MAX),
    }
}

/// Reads every id or refuses them all.
pub fn parse_ids(texts: &[&[u8]]) -> Result<Ids, CommandError> {
    let mut ids = Ids::new();
    read_ids(texts, &mut ids)?;
    Ok(ids)
}

/// The same, into a list that is where it will be used. After a refusal what is in it means nothing.
#[inline]
pub(crate) fn read_ids(texts: &[&[u8]], ids: &mut Ids) -> Result<(), CommandError> {
    ids.reserve(texts.len());
    for text in texts {
        ids.push(parse_id(text)?);
    }
    Ok(())
}

#[inline]
fn strict(text: &[u8], missing_seq: u64) -> Result<StreamId, CommandError> {
    match plain(text, missing_seq) {
        Some(id) => Ok(id),
        None => unusual(text, missing_seq),
    }
}

/// An id in its canonical spelling or nearly so: digits, and perhaps a dash between them. `None` leaves it to others.
#[inline]
fn plain(text: &[u8], missing_seq: u64) -> Option<StreamId> {
    let (ms, rest) = leading_digits(text)?;
    match rest {
        [] => Some(StreamId::new(ms, missing_seq)),
        [b'-', rest @ ..] => {
            let (seq, rest) = leading_digits(rest)?;
            rest.is_empty().then_some(StreamId::new(ms, seq))
        }
        _ => None,
    }
}

#[cold]
fn unusual(text: &[u8], missing_seq: u64) -> Result<StreamId, CommandError> {
    if text.len() > LONGEST_ID {
        return Err(errors::INVALID_STREAM_ID);
    }
    // Hardly any text has a NUL, and one that has is no number before it is cut.
    complete(text, missing_seq)
        .or_else(|| complete(until_nul(text), missing_seq))
        .ok_or(errors::INVALID_STREAM_ID)
}

fn id_or_extreme(text: &[u8], missing_seq: u64) -> Result<StreamId, CommandError> {
    if let Some(id) = plain(text, missing_seq) {
        return Ok(id);
    }
    readable(text)
        .and_then(|text| match text {
            b"-" => Some(StreamId::MIN),
            b"+" => Some(StreamId::MAX),
            _ => complete(text, missing_seq),
        })
        .ok_or(errors::INVALID_STREAM_ID)
}

/// The text up to its NUL, if it is not too long to be an id.
fn readable(text: &[u8]) -> Option<&[u8]> {
    if text.len() > LONGEST_ID {
        return None;
    }
    Some(until_nul(text))
}

fn until_nul(text: &[u8]) -> &[u8] {
    text.iter().position(|&byte| byte == 0).map_or(text, |end| &text[..end])
}

fn complete(text: &[u8], missing_seq: u64) -> Option<StreamId> {
    match text.iter().position(|&byte| byte == b'-') {
        Some(dash) => Some(StreamId::new(lenient_u64(&text[..dash])?, lenient_u64(&text[dash + 1..])?)),
        None => Some(StreamId::new(lenient_u64(text)?, missing_seq)),
    }
}

/// A number as Redis reads one half of an id.
fn lenient_u64(text: &[u8]) -> Option<u64> {
    match digits(text) {
        Some(number) => Some(number),
        None => signed_or_padded(text),
    }
}

/// The number that a text begins with, if it has so few digits that it is surely less than 2^64, and the rest of the text.
#[inline]
fn leading_digits(text: &[u8]) -> Option<(u64, &[u8])> {
    const SAFE_DIGITS: usize = 19;
    // A time of this age has thirteen.
    let (mut number, mut at) = match text.first_chunk().and_then(eight_digits) {
        Some(number) => match text[8..].first_chunk().and_then(four_digits) {
            Some(four) => (number * 10_000 + four, 12),
            None => (number, 8),
        },
        None => (0, 0),
    };
    while let Some(digit) = text.get(at).map(|byte| byte.wrapping_sub(b'0')).filter(|digit| *digit < 10) {
        number = number.wrapping_mul(10).wrapping_add(u64::from(digit));
        at += 1;
    }
    (1..=SAFE_DIGITS).contains(&at).then(|| (number, &text[at..]))
}

/// Eight digits at once.
#[inline]
fn eight_digits(text: &[u8; 8]) -> Option<u64> {
    const EVERY: u64 = u64::from_le_bytes([1; 8]);
    let word = u64::from_le_bytes(*text);
    // The upper half of every byte is 3, and stays so when 6 is added: these are the digits.
    let upper = 0xf0 * EVERY;
    if (word & upper) | ((word.wrapping_add(6 * EVERY) & upper) >> 4) != 0x33 * EVERY {
        return None;
    }
    // Neighbours become pairs, pairs fours, fours the number. The first digit is the lowest byte.
    let ones = word & (0x0f * EVERY);
    let pairs = (ones * 10 + (ones >> 8)) & 0x00ff_00ff_00ff_00ff;
    let fours = (pairs * 100 + (pairs >> 16)) & 0x0000_ffff_0000_ffff;
    Some((fours * 10_000 + (fours >> 32)) & 0xffff_ffff)
}

/// Four digits at once.
#[inline]
fn four_digits(text: &[u8; 4]) -> Option<u64> {
    let [a, b, c, d] = *text;
    eight_digits(&[b'0', b'0', b'0', b'0', a, b, c, d])
}

/// A number that is nothing but digits.
fn digits(text: &[u8]) -> Option<u64> {
    if text.is_empty() {
        return None;
    }
    text.iter().try_fold(0u64, |number, byte| {
        let digit = byte.wrapping_sub(b'0');
        (digit < 10).then_some(())?;
        number.checked_mul(10)?.checked_add(u64::from(digit))
    })
}

/// `strtoull`'s other spellings: blanks before the number, then a sign. A minus wraps around, except that
/// Redis refuses what is a negative 64-bit integer in its canonical spelling.
fn signed_or_padded(text: &[u8]) -> Option<u64> {
    let blanks = text.iter().take_while(|byte| matches!(byte, b' ' | b'\t'..=b'\r')).count();
    match &text[blanks..] {
        [b'+', number @ ..] => digits(number),
        [b'-', number @ ..] => {
            let canonical = blanks == 0 && !number.starts_with(b"0");
            let magnitude = digits(number)?;
            let fits = magnitude <= i64::MIN.unsigned_abs();
            (!(canonical && fits)).then(|| magnitude.wrapping_neg())
        }
        number => digits(number),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INVALID: Result<StreamId, CommandError> = Err(errors::INVALID_STREAM_ID);

    fn id(ms: u64, seq: u64) -> Result<StreamId, CommandError> {
        Ok(StreamId::new(ms, seq))
    }

    #[test]
    fn ids_are_read_as_leniently_as_redis_reads_them() {
        let read = [
            ("1-1", 1, 1),
            ("7", 7, 0),
            ("01-05", 1, 5),
            ("+2-1", 2, 1),
            (" 1- 2", 1, 2),
            ("\t\n1-\r3", 1, 3),
            ("1--0", 1, 0),
            ("1--05", 1, 5u64.wrapping_neg()),
            ("1- -5", 1, 5u64.wrapping_neg()),
            ("1--9223372036854775809", 1, 9_223_372_036_854_775_807),
            ("1-1\0junk", 1, 1),
            ("18446744073709551615-18446744073709551615", u64::MAX, u64::MAX),
            ("000000000000000000000000000000000000001-2", 1, 2),
        ];
        for (text, ms, seq) in read {
            assert_eq!(parse_id(text.as_bytes()), id(ms, seq), "{text:?}");
        }
    }

    #[test]
    fn digits_are_read_alike_in_whatever_number() {
        for length in 0..30 {
            let text: String = "907856341290785634129078563412".chars().take(length).collect();
            let safe = (1..20).contains(&length);
            let number = text.parse().ok().filter(|_| safe);
            assert_eq!(leading_digits(text.as_bytes()).map(|(number, _)| number), number, "{text}");
            for at in 0..length {
                for byte in [0, b'/', b':', b'-', 0x80, 0xb5, 0xff] {
                    let mut other = text.clone().into_bytes();
                    other[at] = byte;
                    let number = text[..at].parse().ok().filter(|_| (1..20).contains(&at));
                    assert_eq!(leading_digits(&other), number.map(|n: u64| (n, &other[at..])), "{other:?}");
                }
            }
        }
    }

    #[test]
    fn what_redis_refuses_is_refused() {
        let refused = [
            "",
            " ",
            "-",
            "+",
            "-\0",
            "*",
            "$",
            ">",
            "abc",
            "123-",
            "-123",
            "--",
            "1-+",
            "1-++1",
            "1-+ 1",
            "1-1 ",
            "1-2-3",
            "1--5",
            "1--9223372036854775808",
            "18446744073709551616",
            "1-18446744073709551616",
            "1-*",
            "(1",
            "0x1",
        ];
        for text in refused {
            assert_eq!(parse_id(text.as_bytes()), INVALID, "{text:?}");
        }
    }

    #[test]
    fn an_id_has_at_most_127_bytes() {
        let zeros = |len: usize| vec![b'0'; len];
        assert_eq!(parse_id(&zeros(127)), id(0, 0));
        assert_eq!(parse_id(&zeros(128)), INVALID);
        let ended_early = [b"1\0".as_slice(), &zeros(126)].concat();
        assert_eq!(parse_id(&ended_early), INVALID);
    }

    #[test]
    fn new_entries_may_leave_their_id_open() {
        assert_eq!(parse_id_spec(b"*"), Ok(IdSpec::Auto));
        assert_eq!(parse_id_spec(b"5-*"), Ok(IdSpec::AutoSeq(5)));
        assert_eq!(parse_id_spec(b"05-*\0x"), Ok(IdSpec::AutoSeq(5)));
        assert_eq!(parse_id_spec(b"5"), Ok(IdSpec::Explicit(StreamId::new(5, 0))));
        for text in ["-*", "1-2-*", "1-**", "**", "*-1", "-", "+"] {
            assert_eq!(parse_id_spec(text.as_bytes()), Err(errors::INVALID_STREAM_ID), "{text:?}");
        }
    }

    #[test]
    fn the_ends_of_an_interval_complete_their_ids_outwards() {
        assert_eq!(parse_start(b"-"), id(0, 0));
        assert_eq!(parse_start(b"+"), id(u64::MAX, u64::MAX));
        assert_eq!(parse_start(b"5"), id(5, 0));
        assert_eq!(parse_end(b"5"), id(5, u64::MAX));
        assert_eq!(parse_start(b"(5"), id(5, 1));
        assert_eq!(parse_end(b"(5"), id(5, u64::MAX - 1));
        assert_eq!(parse_end(b"(5-0"), id(4, u64::MAX));
        assert_eq!(parse_end(b"-\0"), id(0, 0));
    }

    #[test]
    fn an_interval_cannot_begin_after_the_last_id_or_end_before_the_first() {
        let last = StreamId::MAX.to_string();
        assert_eq!(parse_start(format!("({last}").as_bytes()), Err(errors::INVALID_INTERVAL_START));
        assert_eq!(parse_end(b"(0-0"), Err(errors::INVALID_INTERVAL_END));
        for text in ["(", "(-", "(+", "((1"] {
            assert_eq!(parse_start(text.as_bytes()), INVALID, "{text:?}");
            assert_eq!(parse_end(text.as_bytes()), INVALID, "{text:?}");
        }
    }

    #[test]
    fn a_list_of_ids_is_read_whole_or_not_at_all() {
        let good: [&[u8]; 2] = [b"1", b"2-3"];
        assert_eq!(parse_ids(&good).unwrap().as_slice(), [StreamId::new(1, 0), StreamId::new(2, 3)]);
        let bad: [&[u8]; 2] = [b"1", b"-"];
        assert_eq!(parse_ids(&bad), Err(errors::INVALID_STREAM_ID));
    }
}
