//! Tests of the decoder: its results are those of Redis, and do not depend on how the input is cut into pieces.

use super::*;

/// The decoded requests, the error, and the number of bytes used.
type Decoded = (Vec<Vec<Vec<u8>>>, Option<ProtocolError>, usize);

/// Feeds `input` to a decoder in pieces that end at `cuts`, as a connection does: the buffer begins with the unfinished
/// request, and plain requests are decoded by `next_plain`. A second decoder uses only `next`; both must agree.
fn decode(input: &[u8], cuts: &[usize], limits: Limits) -> Decoded {
    let (mut decoder, mut slow) = (Decoder::new(limits), Decoder::new(limits));
    let (mut requests, mut start) = (Vec::new(), 0);
    for &end in cuts.iter().chain([&input.len()]) {
        loop {
            let buffer = &input[start..end];
            let mut plain: [&[u8]; PLAIN_ARGS_MAX] = [&[]; PLAIN_ARGS_MAX];
            let expected = slow.next(buffer);
            let (found, args) = match decoder.next_plain(buffer, &mut plain) {
                Some((count, size)) => (Ok(Some(size)), RequestArgs::from_slice(&plain[..count])),
                None => (decoder.next(buffer), decoder.args(buffer)),
            };
            assert_eq!(found, expected, "cut at {cuts:?}");
            match found {
                Ok(Some(bytes)) => {
                    assert_eq!(args, slow.args(buffer));
                    requests.push(args.iter().map(|arg| arg.to_vec()).collect());
                    start += bytes;
                }
                Ok(None) => break,
                Err(error) => return (requests, Some(error), start),
            }
        }
    }
    (requests, None, start)
}

fn decode_whole(input: &[u8]) -> Decoded {
    decode(input, &[], Limits::default())
}

fn error_of(input: &[u8]) -> Option<ProtocolError> {
    decode_whole(input).1
}

fn args_of(input: &[u8]) -> Vec<Vec<u8>> {
    let (mut requests, error, used) = decode_whole(input);
    assert_eq!((error, used, requests.len()), (None, input.len(), 1), "{}", input.escape_ascii());
    requests.remove(0)
}

#[test]
fn arrays_and_inline_requests_can_be_mixed() {
    let (requests, error, used) =
        decode_whole(b"*2\r\n$4\r\nECHO\r\n$2\r\nhi\r\nPING a\r\n*1\r\n$0\r\n\r\n*1");
    assert_eq!(
        requests,
        [vec![b"ECHO".to_vec(), b"hi".to_vec()], vec![b"PING".to_vec(), b"a".to_vec()], vec![vec![]]]
    );
    assert_eq!((error, used), (None, 40));
}

/// The input contains an empty line between arrays, as redis-cli sends it at the end of a mass insertion.
#[test]
fn request_that_arrived_in_pieces_does_not_affect_the_next() {
    let ten = "$1\r\na\r\n".repeat(10);
    let input =
        format!("*10\r\n{ten}\r\n*2\r\n$4\r\nECHO\r\n$2\r\nhi\r\n*10\r\n{ten}*1\r\n$4\r\nPING\r\nPING\r\n");
    let whole = decode_whole(input.as_bytes());
    assert_eq!((whole.0.len(), whole.1), (6, None));
    for first in 1..input.len() {
        for second in first..input.len() {
            assert_eq!(decode(input.as_bytes(), &[first, second], Limits::default()), whole);
        }
    }
}

#[test]
fn next_plain_decodes_complete_requests_with_few_short_arguments() {
    let is_plain = |request: &[u8], limits: Limits| {
        Decoder::new(limits).next_plain(request, &mut [&[]; PLAIN_ARGS_MAX]).is_some()
    };
    let request = |args: usize, length: usize| {
        let arg = format!("${length}\r\n{}\r\n", "x".repeat(length));
        format!("*{args}\r\n{}", arg.repeat(args)).into_bytes()
    };
    for (args, length) in [(1, 0), (9, 9), (PLAIN_ARGS_MAX, 10), (2, 99), (2, 100), (3, 999)] {
        let whole = request(args, length);
        assert!(is_plain(&whole, Limits::default()), "{args} of {length}");
        assert!(!is_plain(&whole[..whole.len() - 1], Limits::default()), "{args} of {length}");
        assert!(!is_plain(&whole, Limits { authenticated: false, ..Limits::default() }));
    }
    for (args, length) in [(0, 0), (PLAIN_ARGS_MAX + 1, 1), (1, 1000)] {
        assert!(!is_plain(&request(args, length), Limits::default()), "{args} of {length}");
    }
}

#[test]
fn empty_requests_have_no_arguments() {
    for input in [&b"*0\r\n"[..], b"*-1\r\n", b"*-10000000000\r\n", b"\r\n", b"\n", b"  \t \r\n"] {
        assert_eq!(args_of(input), Vec::<Vec<u8>>::new(), "{}", input.escape_ascii());
    }
}

#[test]
fn bytes_after_a_bulk_string_are_not_checked() {
    assert_eq!(args_of(b"*1\r\n$4\r\nPINGxx"), [b"PING"]);
    assert_eq!(args_of(b"*1\rX$4\r\nPING\r\n"), [b"PING"]);
}

#[test]
fn malformed_lengths_are_reported() {
    use ProtocolError::*;
    for line in ["*abc", "*", "*+1", "* 1", "*01", "*1048577", "*2147483648", "*99999999999999999999", "*1\n"]
    {
        assert_eq!(error_of(format!("{line}\r\n").as_bytes()), Some(InvalidMultibulkLength), "{line}");
    }
    for line in ["$-1", "$abc", "$", "$04", "$536870913", "$9223372036854775808", "$4\nPING"] {
        assert_eq!(error_of(format!("*1\r\n{line}\r\n").as_bytes()), Some(InvalidBulkLength), "{line}");
    }
    assert_eq!(error_of(b"*1\r\n:1\r\n"), Some(ExpectedDollar(b':')));
    assert_eq!(error_of(b"*1\r\n*1\r\n"), Some(ExpectedDollar(b'*')));
    assert_eq!(error_of(b"*1\r\n\r\nPING\r\n"), Some(ExpectedDollar(b'\r')));
}

#[test]
fn error_replies_are_those_of_redis() {
    assert_eq!(&ProtocolError::InvalidBulkLength.reply()[..], b"ERR Protocol error: invalid bulk length");
    assert_eq!(
        &ProtocolError::ExpectedDollar(0xff).reply()[..],
        b"ERR Protocol error: expected '$', got '\xff'"
    );
    assert_eq!(ProtocolError::ExpectedDollar(0xff).to_string(), "Protocol error: expected '$', got '\\xff'");
}

#[test]
fn error_reply_names_the_control_byte() {
    let error = ProtocolError::InlineControlByte(0x16);
    assert_eq!(&error.reply()[..], b"ERR Protocol error: inline request contains control byte 0x16");
    assert_eq!(error.to_string(), "Protocol error: inline request contains control byte 0x16");
}

#[test]
fn lines_end_within_64_kib() {
    let line_max = Limits::default().line_bytes_max;
    let long = |first: &str, bytes: usize| format!("{first}{}", "1".repeat(bytes - 1)).into_bytes();
    assert_eq!(error_of(&long("*", line_max)), None);
    assert_eq!(error_of(&long("*", line_max + 1)), Some(ProtocolError::MultibulkLineTooLong));
    assert_eq!(error_of(&long("A", line_max)), None);
    assert_eq!(error_of(&long("A", line_max + 1)), Some(ProtocolError::InlineTooLong));
    let inline = |bytes, end: &[u8]| [&long("A", bytes), end].concat();
    for (bytes, end) in [(line_max, &b"\n"[..]), (line_max - 1, b"\r\n")] {
        assert_eq!(error_of(&inline(bytes, end)), None);
        assert_eq!(error_of(&inline(bytes + 1, end)), Some(ProtocolError::InlineTooLong));
    }
    let bulk = |bytes| [&b"*1\r\n"[..], &long("$", bytes)].concat();
    assert_eq!(error_of(&bulk(line_max)), None);
    assert_eq!(error_of(&bulk(line_max + 1)), Some(ProtocolError::BulkLineTooLong));
}

#[test]
fn limits_are_inclusive() {
    let limits = Limits { args_max: 3, bulk_bytes_max: 5, ..Limits::default() };
    let error = |input: &[u8]| decode(input, &[], limits).1;
    assert_eq!(error(b"*3\r\n"), None);
    assert_eq!(error(b"*4\r\n"), Some(ProtocolError::InvalidMultibulkLength));
    assert_eq!(error(b"*1\r\n$5\r\n"), None);
    assert_eq!(error(b"*1\r\n$6\r\n"), Some(ProtocolError::InvalidBulkLength));
}

#[test]
fn clients_have_smaller_limits_until_they_authenticate() {
    let limits = Limits { authenticated: false, ..Limits::default() };
    let error = |input: &[u8]| decode(input, &[], limits).1;
    assert_eq!(error(b"*10\r\n"), None);
    assert_eq!(error(b"*11\r\n"), Some(ProtocolError::UnauthenticatedMultibulkLength));
    assert_eq!(error(b"*2147483648\r\n"), Some(ProtocolError::InvalidMultibulkLength));
    assert_eq!(error(b"*1\r\n$16384\r\n"), None);
    assert_eq!(error(b"*1\r\n$16385\r\n"), Some(ProtocolError::UnauthenticatedBulkLength));
    assert_eq!(error(b"*1\r\n$536870913\r\n"), Some(ProtocolError::InvalidBulkLength));

    let mut decoder = Decoder::new(limits);
    assert_eq!(decoder.next(b"PING\r\n"), Ok(Some(6)));
    decoder.set_limits(Limits { authenticated: true, ..limits });
    assert_eq!(decoder.next(b"*11\r\n"), Ok(None));
}

#[test]
fn inline_words_are_unquoted() {
    let words = |line: &[u8]| args_of(&[line, b"\r\n"].concat());
    assert_eq!(words(br#"a "\x41\n\r\t\b\a\"\\\q\xZZ""#), [&b"a"[..], b"A\n\r\t\x08\x07\"\\qxZZ"]);
    assert_eq!(words(br"'a\'b\n'"), [br"a'b\n"]);
    assert_eq!(words(br#"a"b c""#), [b"ab c"]);
    assert_eq!(words(br#""" ''"#), [b"", b""]);
    assert_eq!(words(b"PING\ta \t\xc3\xa4 "), [&b"PING"[..], b"a", b"\xc3\xa4"]);
    for line in [&b"\"a"[..], b"'a", b"\"a\"b", b"'a'b", b"a\"b", b"\"a\\"] {
        assert_eq!(
            error_of(&[line, b"\n"].concat()),
            Some(ProtocolError::UnbalancedQuotes),
            "{}",
            line.escape_ascii()
        );
    }
}

#[test]
fn control_byte_in_an_inline_request_is_an_error_at_once() {
    for byte in (0..=u8::MAX).filter(|byte| byte.is_ascii_control() && !b"\t\n".contains(byte)) {
        let error = Some(ProtocolError::InlineControlByte(byte));
        let at_start = if byte == 0x16 { Some(ProtocolError::Foreign(ForeignProtocol::Tls)) } else { error };
        assert_eq!(error_of(&[byte, b'x']), at_start, "{byte:#x} at the start");
        assert_eq!(error_of(&[&b"SET k 'a"[..], &[byte], b"b'"].concat()), error, "{byte:#x} in quotes");
        let (requests, found, used) = decode_whole(&[&b"PING\nx"[..], &[byte], b"x\nSET k v\n"].concat());
        assert_eq!((requests.len(), found, used), (1, error, 5), "{byte:#x} in the second line");
    }
    // The start of a TLS connection, with a session id that looks like a command.
    let hello = b"\x16\x03\x01\x00\xf4\x01\x00\x00\xf0\x03\x03\nSET pwned 1\n";
    assert_eq!(decode_whole(hello), (vec![], Some(ProtocolError::Foreign(ForeignProtocol::Tls)), 0));
    assert_eq!(error_of(b"PING\r\r\n"), Some(ProtocolError::InlineControlByte(b'\r')));
    assert_eq!(error_of(b"PING\r"), None);
    // Arguments of an array can contain any bytes.
    assert_eq!(args_of(b"*1\r\n$3\r\n\x00\x16\n\r\n"), [b"\x00\x16\n"]);
}

#[test]
fn announced_sizes_are_not_allocated() {
    let mut decoder = Decoder::new(Limits::default());
    assert_eq!(decoder.next(b"*1048576\r\n$536870912\r\nx"), Ok(None));
    assert_eq!((decoder.spans.capacity(), decoder.unquoted.capacity()), (0, 0));
}

#[test]
fn memory_of_a_large_request_is_counted_and_released() {
    let input = [&b"*100000\r\n"[..], &b"$1\r\nx\r\n".repeat(100_000)].concat();
    let mut decoder = Decoder::new(Limits::default());
    assert_eq!(decoder.next(&input), Ok(Some(input.len())));
    assert_eq!(decoder.args(&input).len(), 100_000);
    assert!(decoder.memory_bytes() >= 100_000 * size_of::<Span>());
    decoder.release();
    assert!(decoder.memory_bytes() <= SPANS_KEPT_MAX * size_of::<Span>());
    assert_eq!(decoder.next(&input), Ok(Some(input.len())));
    // An incomplete request keeps its memory.
    decoder.release();
    assert_eq!(decoder.next(&input[..input.len() - 1]), Ok(None));
    decoder.release();
    assert!(decoder.memory_bytes() >= 99_999 * size_of::<Span>());
    assert_eq!(decoder.next(&input), Ok(Some(input.len())));
    assert_eq!(decoder.args(&input).len(), 100_000);
    // An inline request is unquoted into a buffer of the decoder.
    let inline = format!("ECHO \"{}\"\r\n", "x".repeat(60_000));
    assert_eq!(decoder.next(inline.as_bytes()), Ok(Some(inline.len())));
    decoder.release();
    assert!(decoder.memory_bytes() <= SPANS_KEPT_MAX * size_of::<Span>());
}

/// The input arrives byte by byte. `scanned` shows from where the decoder would scan again.
#[test]
fn request_that_arrives_in_pieces_is_scanned_once() {
    let many_arguments = [&b"*20000\r\n"[..], &b"$1\r\nx\r\n".repeat(20_000)].concat();
    let one_argument = [&b"*1\r\n$140000\r\n"[..], &b"x".repeat(140_002)].concat();
    for input in
        [many_arguments, one_argument, b" ".repeat(65_000), [b"*", &b"1".repeat(65_000)[..]].concat()]
    {
        let mut decoder = Decoder::new(Limits::default());
        for end in 0..input.len() {
            assert_eq!(decoder.next(&input[..end]), Ok(None));
            let waits_for_bulk = matches!(decoder.state, State::Bulk(_));
            assert!(waits_for_bulk || end - decoder.scanned <= 1, "{} of {end}", decoder.scanned);
        }
    }
}
