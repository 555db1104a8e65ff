//! Parsing of stream ids.
//!
//! An id is `ms-seq`, or `ms` alone. For `ms` alone, the command defines the missing sequence number. Redis reads the
//! numbers with C's `strtoull`, so `01-05`, `+2-1` and ` 1- 2` are ids, and a NUL byte ends the text. Replies contain
//! only the canonical spelling, which is the `Display` form of `StreamId`.

use std::ops::Range;

use millstream_engine::{Due, IdSpec, StreamId};
use smallvec::SmallVec;

use crate::errors::{self, CommandError};

/// Maximum length of an id; Redis rejects longer texts.
const ID_BYTES_MAX: usize = 127;

/// Unix times in seconds from March 1973 to November 5138. As milliseconds they would be in the first three years after
/// 1970, so a client that sends one has forgotten to multiply it.
const UNIX_SECONDS: Range<u64> = 100_000_000..100_000_000_000;

/// A list of ids from one command.
pub type Ids = SmallVec<[StreamId; 8]>;

/// Parses an id. `-` and `+` are errors. A missing sequence number is 0.
pub fn parse_id(text: &[u8]) -> Result<StreamId, CommandError> {
    parse_with_seq(text, 0)
}

/// Parses an id, `-` (the smallest id) or `+` (the greatest id). A missing sequence number is 0.
pub fn parse_id_or_extreme(text: &[u8]) -> Result<StreamId, CommandError> {
    id_or_extreme(text, 0)
}

/// Parses the id of a new entry: `*`, `ms-*`, `ms-seq` or `ms`. Also parses `*+ms` and `*@unix-ms`, which delay the
/// entry and which no Redis accepts.
pub fn parse_id_spec(text: &[u8]) -> Result<IdSpec, CommandError> {
    if text == b"*" {
        return Ok(IdSpec::Auto);
    }
    match text {
        [b'*', b'+', delay_ms @ ..] => return parse_due(delay_ms, Due::In),
        [b'*', b'@', due_ms @ ..] => return parse_due(due_ms, Due::At),
        _ => {}
    }
    match id_text(text).and_then(|text| text.strip_suffix(b"-*")) {
        // `1-2-*` has a second dash: `parse_id` below rejects it.
        Some(ms) if !ms.contains(&b'-') => {
            lenient_u64(ms).map(IdSpec::AutoSeq).ok_or(errors::INVALID_STREAM_ID)
        }
        _ => parse_id(text).map(IdSpec::Explicit),
    }
}

/// Parses a number of milliseconds, which consists of digits only. One that exceeds 64 bits is out of range later.
fn parse_due(text: &[u8], due: fn(u64) -> Due) -> Result<IdSpec, CommandError> {
    if text.is_empty() || !text.iter().all(u8::is_ascii_digit) {
        return Err(errors::INVALID_STREAM_ID);
    }
    let due = due(digits(text).unwrap_or(u64::MAX));
    match due {
        // A time in the past would be due at once.
        Due::At(due_ms) if UNIX_SECONDS.contains(&due_ms) => Err(errors::DUE_TIME_IN_SECONDS),
        _ => Ok(IdSpec::Delayed(due)),
    }
}

/// Parses the first id of a range: `-`, `+`, an id, or `(` and an id to exclude. A missing sequence number is 0.
pub fn parse_start(text: &[u8]) -> Result<StreamId, CommandError> {
    match text {
        [b'(', excluded @ ..] if !excluded.is_empty() => {
            parse_id(excluded)?.next().ok_or(errors::INVALID_INTERVAL_START)
        }
        _ => id_or_extreme(text, 0),
    }
}

/// Parses the last id of a range. Accepts the forms of [`parse_start`], but a missing sequence number is the greatest.
pub fn parse_end(text: &[u8]) -> Result<StreamId, CommandError> {
    match text {
        [b'(', excluded @ ..] if !excluded.is_empty() => {
            parse_with_seq(excluded, u64::MAX)?.prev().ok_or(errors::INVALID_INTERVAL_END)
        }
        _ => id_or_extreme(text, u64::MAX),
    }
}

/// Parses a list of ids. Fails if one of them is invalid.
pub fn parse_ids(texts: &[&[u8]]) -> Result<Ids, CommandError> {
    let mut ids = Ids::new();
    read_ids(texts, &mut ids)?;
    Ok(ids)
}

/// Like [`parse_ids`], but appends to an existing list. After an error the content of the list is unspecified.
#[inline]
pub(crate) fn read_ids(texts: &[&[u8]], ids: &mut Ids) -> Result<(), CommandError> {
    ids.reserve(texts.len());
    for text in texts {
        ids.push(parse_id(text)?);
    }
    Ok(())
}

#[inline]
fn parse_with_seq(text: &[u8], missing_seq: u64) -> Result<StreamId, CommandError> {
    match parse_digits(text, missing_seq) {
        Some(id) => Ok(id),
        None => parse_lenient(text, missing_seq),
    }
}

/// Parses an id of digits with at most one dash between them. Returns `None` for any other spelling, valid or not.
#[inline]
fn parse_digits(text: &[u8], missing_seq: u64) -> Option<StreamId> {
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
fn parse_lenient(text: &[u8], missing_seq: u64) -> Result<StreamId, CommandError> {
    if text.len() > ID_BYTES_MAX {
        return Err(errors::INVALID_STREAM_ID);
    }
    // Few texts contain a NUL, so the first attempt does not look for one. A text with a NUL fails the first attempt.
    parse_numbers(text, missing_seq)
        .or_else(|| parse_numbers(until_nul(text), missing_seq))
        .ok_or(errors::INVALID_STREAM_ID)
}

fn id_or_extreme(text: &[u8], missing_seq: u64) -> Result<StreamId, CommandError> {
    if let Some(id) = parse_digits(text, missing_seq) {
        return Ok(id);
    }
    id_text(text)
        .and_then(|text| match text {
            b"-" => Some(StreamId::MIN),
            b"+" => Some(StreamId::MAX),
            _ => parse_numbers(text, missing_seq),
        })
        .ok_or(errors::INVALID_STREAM_ID)
}

/// Returns the text up to its first NUL, or `None` if it is too long to be an id.
fn id_text(text: &[u8]) -> Option<&[u8]> {
    if text.len() > ID_BYTES_MAX {
        return None;
    }
    Some(until_nul(text))
}

fn until_nul(text: &[u8]) -> &[u8] {
    text.iter().position(|&byte| byte == 0).map_or(text, |end| &text[..end])
}

/// Parses `ms-seq` or `ms` in any spelling that `strtoull` accepts.
fn parse_numbers(text: &[u8], missing_seq: u64) -> Option<StreamId> {
    match text.iter().position(|&byte| byte == b'-') {
        Some(dash) => Some(StreamId::new(lenient_u64(&text[..dash])?, lenient_u64(&text[dash + 1..])?)),
        None => Some(StreamId::new(lenient_u64(text)?, missing_seq)),
    }
}

/// Parses one half of an id as Redis does.
fn lenient_u64(text: &[u8]) -> Option<u64> {
    match digits(text) {
        Some(number) => Some(number),
        None => signed_or_padded(text),
    }
}

/// Parses the digits at the start of a text. Returns the number and the rest of the text.
///
/// Returns `None` if there are no digits, or more than 19 digits: such a number can exceed 64 bits.
#[inline]
fn leading_digits(text: &[u8]) -> Option<(u64, &[u8])> {
    const SAFE_DIGITS: usize = 19;
    // Current Unix times in milliseconds have 13 digits: eight, then four, then one.
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

/// Parses eight digits in a few integer operations. Returns `None` if a byte is not a digit.
#[inline]
fn eight_digits(text: &[u8; 8]) -> Option<u64> {
    const EVERY_BYTE: u64 = u64::from_le_bytes([1; 8]);
    let word = u64::from_le_bytes(*text);
    // A byte is a digit if its upper half is 3 and is still 3 after 6 is added.
    let upper = 0xf0 * EVERY_BYTE;
    if (word & upper) | ((word.wrapping_add(6 * EVERY_BYTE) & upper) >> 4) != 0x33 * EVERY_BYTE {
        return None;
    }
    // Combine neighbouring digits into pairs, pairs into groups of four, and these into the number. The first digit is
    // the lowest byte.
    let ones = word & (0x0f * EVERY_BYTE);
    let pairs = (ones * 10 + (ones >> 8)) & 0x00ff_00ff_00ff_00ff;
    let fours = (pairs * 100 + (pairs >> 16)) & 0x0000_ffff_0000_ffff;
    Some((fours * 10_000 + (fours >> 32)) & 0xffff_ffff)
}

#[inline]
fn four_digits(text: &[u8; 4]) -> Option<u64> {
    let [a, b, c, d] = *text;
    eight_digits(&[b'0', b'0', b'0', b'0', a, b, c, d])
}

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

/// Parses the other spellings of `strtoull`: leading white space, then an optional sign.
///
/// A negative number wraps around, as in C. But Redis rejects a canonically spelled negative 64-bit integer.
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
    fn ids_are_parsed_as_leniently_as_in_redis() {
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
    fn leading_digits_parses_any_number_of_digits() {
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
    fn delays_consist_of_digits() {
        for (text, due) in [
            ("*+0", Due::In(0)),
            ("*+30000", Due::In(30_000)),
            ("*@1794844800000", Due::At(1_794_844_800_000)),
            ("*+007", Due::In(7)),
            ("*@99999999", Due::At(99_999_999)),
            ("*@100000000000", Due::At(100_000_000_000)),
            ("*@99999999999999999999", Due::At(u64::MAX)),
        ] {
            assert_eq!(parse_id_spec(text.as_bytes()), Ok(IdSpec::Delayed(due)), "{text}");
        }
        for text in
            ["*+", "*@", "*+-1", "*++1", "*+1-1", "*+ 1", "*+1 ", "*+1.5", "*@x", "*5", "*-*", "**", "*+*"]
        {
            assert_eq!(parse_id_spec(text.as_bytes()), Err(errors::INVALID_STREAM_ID), "{text}");
        }
        for text in ["*@100000000", "*@1795052999", "*@99999999999"] {
            assert_eq!(parse_id_spec(text.as_bytes()), Err(errors::DUE_TIME_IN_SECONDS), "{text}");
        }
        assert_eq!(parse_id_spec(b"*+1795052999"), Ok(IdSpec::Delayed(Due::In(1_795_052_999))));
    }

    #[test]
    fn ids_that_redis_rejects_are_rejected() {
        let rejected = [
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
        for text in rejected {
            assert_eq!(parse_id(text.as_bytes()), INVALID, "{text:?}");
        }
    }

    #[test]
    fn id_has_at_most_127_bytes() {
        let zeros = |len: usize| vec![b'0'; len];
        assert_eq!(parse_id(&zeros(127)), id(0, 0));
        assert_eq!(parse_id(&zeros(128)), INVALID);
        let ended_early = [b"1\0".as_slice(), &zeros(126)].concat();
        assert_eq!(parse_id(&ended_early), INVALID);
    }

    #[test]
    fn new_entry_id_can_be_generated_in_part_or_whole() {
        assert_eq!(parse_id_spec(b"*"), Ok(IdSpec::Auto));
        assert_eq!(parse_id_spec(b"5-*"), Ok(IdSpec::AutoSeq(5)));
        assert_eq!(parse_id_spec(b"05-*\0x"), Ok(IdSpec::AutoSeq(5)));
        assert_eq!(parse_id_spec(b"5"), Ok(IdSpec::Explicit(StreamId::new(5, 0))));
        for text in ["-*", "1-2-*", "1-**", "**", "*-1", "-", "+"] {
            assert_eq!(parse_id_spec(text.as_bytes()), Err(errors::INVALID_STREAM_ID), "{text:?}");
        }
    }

    #[test]
    fn range_bounds_include_all_sequence_numbers_of_an_incomplete_id() {
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
    fn range_cannot_begin_after_the_greatest_id_or_end_before_the_smallest() {
        let last = StreamId::MAX.to_string();
        assert_eq!(parse_start(format!("({last}").as_bytes()), Err(errors::INVALID_INTERVAL_START));
        assert_eq!(parse_end(b"(0-0"), Err(errors::INVALID_INTERVAL_END));
        for text in ["(", "(-", "(+", "((1"] {
            assert_eq!(parse_start(text.as_bytes()), INVALID, "{text:?}");
            assert_eq!(parse_end(text.as_bytes()), INVALID, "{text:?}");
        }
    }

    #[test]
    fn list_with_one_invalid_id_is_rejected() {
        let good: [&[u8]; 2] = [b"1", b"2-3"];
        assert_eq!(parse_ids(&good).unwrap().as_slice(), [StreamId::new(1, 0), StreamId::new(2, 3)]);
        let bad: [&[u8]; 2] = [b"1", b"-"];
        assert_eq!(parse_ids(&bad), Err(errors::INVALID_STREAM_ID));
    }
}
