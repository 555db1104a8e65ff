//! The decoder of requests: its result does not depend on how the input is cut into pieces, and an encoded request is
//! decoded to itself.

use millstream_protocol::resp::{Decoder, Limits, PLAIN_ARGS_MAX, ProtocolError, RequestArgs};
use millstream_server::fuzzing::Choices;

/// Input up to this length is cut at every byte.
const CUT_EVERYWHERE_MAX: usize = 64;

/// The decoded requests, the error, and the number of bytes used.
type Decoded = (Vec<Vec<Vec<u8>>>, Option<ProtocolError>, usize);

pub(crate) fn run(input: &[u8]) -> usize {
    let Some((&mode, rest)) = input.split_first() else { return 0 };
    if mode & 0x80 == 0 { decode_bytes(mode, rest) } else { decode_encoded(rest) }
}

/// Decodes any bytes, in one piece and in several.
fn decode_bytes(mode: u8, bytes: &[u8]) -> usize {
    let strict = Limits { args_max: 20, bulk_bytes_max: 40, line_bytes_max: 24, authenticated: true };
    let limits = match mode % 4 {
        0 => Limits::default(),
        1 => Limits { authenticated: false, ..Limits::default() },
        2 => strict,
        _ => Limits { authenticated: false, ..strict },
    };
    let whole = decode(bytes, &[], limits);
    if bytes.len() <= CUT_EVERYWHERE_MAX {
        for cut in 0..bytes.len() {
            assert_eq!(decode(bytes, &[cut], limits), whole, "cut at {cut}");
        }
    } else {
        let (one, two) = (bytes.len() / 3, bytes.len() * usize::from(mode) / 128);
        assert_eq!(decode(bytes, &[one.min(two), one.max(two)], limits), whole);
    }
    let every_byte: Vec<usize> = (0..bytes.len()).collect();
    assert_eq!(decode(bytes, &every_byte, limits), whole, "byte by byte");
    bytes.len()
}

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
            assert_eq!(found, expected, "next_plain and next differ");
            match found {
                Ok(Some(bytes)) => {
                    assert_eq!(args, slow.args(buffer));
                    requests.push(args.iter().map(|arg| arg.to_vec()).collect());
                    start += bytes;
                }
                Ok(None) => break,
                Err(error) => {
                    assert!(error.reply().starts_with(b"ERR Protocol error: "));
                    return (requests, Some(error), start);
                }
            }
        }
    }
    (requests, None, start)
}

/// Generates requests, encodes them as arrays, and decodes them.
fn decode_encoded(choices: &[u8]) -> usize {
    let mut choices = Choices::of_input(choices);
    let mut requests = Vec::new();
    while !choices.is_empty() && requests.len() < 8 {
        let count = 1 + choices.below(40);
        let request: Vec<Vec<u8>> = (0..count)
            .map(|_| {
                let length = choices.below(4) * choices.below(300);
                (0..length).map(|_| choices.below(256) as u8).collect()
            })
            .collect();
        requests.push(request);
    }
    let mut bytes = Vec::new();
    for request in &requests {
        bytes.extend(format!("*{}\r\n", request.len()).bytes());
        for arg in request {
            bytes.extend([format!("${}\r\n", arg.len()).as_bytes(), arg, b"\r\n"].concat());
        }
    }
    let used = bytes.len();
    assert_eq!(decode(&bytes, &[used / 2], Limits::default()), (requests, None, used));
    used
}
