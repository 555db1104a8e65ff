//! An incremental decoder for requests.
//!
//! A request is an array of bulk strings or an inline line:
//!
//! ```text
//! *2 CRLF $3 CRLF GET CRLF $1 CRLF k CRLF          arguments are spans of the caller's buffer
//! GET "a key" CRLF                                 the decoder unquotes arguments into its own buffer
//! ```
//!
//! The decoder remembers its position, so it scans each byte once even if a large request arrives in many pieces.
//! Announced lengths are checked against the limits; no memory is allocated for them in advance. As in Redis, the two
//! bytes after a bulk string are skipped without being checked.
//!
//! An inline request contains no control bytes except tabs and its line end. So binary data that was not meant for this
//! server, for example the start of a TLS connection, ends the connection. A part of it that looks like a line with a
//! command must not run.

use super::inline;
use smallvec::SmallVec;
use std::fmt;

/// The arguments of one request; the first is the command's name. Up to 16 arguments need no allocation.
pub type RequestArgs<'a> = SmallVec<[&'a [u8]; 16]>;

/// Maximum number of arguments of a request before the client has authenticated.
const UNAUTHENTICATED_ARGS_MAX: u64 = 10;
/// Maximum length of a bulk string in bytes before the client has authenticated.
const UNAUTHENTICATED_BULK_MAX: u64 = 16 * 1024;
/// Maximum number of arguments of a request that [`Decoder::next_plain`] reads.
pub const PLAIN_ARGS_MAX: usize = 32;
/// Maximum length in bytes of a short argument. Its length has at most three digits.
const SHORT_BYTES_MAX: u64 = 999;
/// First byte of a TLS connection: the type of a handshake record.
const TLS_HANDSHAKE: u8 = 0x16;
/// Maximum capacity of the list of spans between requests; a larger list is shrunk.
const SPANS_KEPT_MAX: usize = 256;

/// Limits on what a client may send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximum number of arguments of a request.
    pub args_max: u64,
    /// Maximum length of a bulk string, in bytes.
    pub bulk_bytes_max: u64,
    /// Maximum length of an inline request, and of a line with a count or length, in bytes.
    pub line_bytes_max: usize,
    /// Whether the client has authenticated. Before that, much smaller limits apply.
    pub authenticated: bool,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            args_max: 1024 * 1024,
            bulk_bytes_max: 512 * 1024 * 1024,
            line_bytes_max: 64 * 1024,
            authenticated: true,
        }
    }
}

impl Limits {
    /// Returns whether a plain request (see [`Decoder::next_plain`]) can never exceed these limits.
    #[inline]
    fn allow_plain_requests(&self) -> bool {
        self.authenticated && self.bulk_bytes_max >= SHORT_BYTES_MAX && self.args_max >= PLAIN_ARGS_MAX as u64
    }
}

/// Malformed input. The server sends the error and closes the connection, because it cannot find the next request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProtocolError {
    /// `*` is followed by something that is not a number, or by a number that is too large.
    InvalidMultibulkLength,
    /// The client has not authenticated and sends too many arguments.
    UnauthenticatedMultibulkLength,
    /// The line that begins with `*` has no end within the limit.
    MultibulkLineTooLong,
    /// An argument begins with this byte instead of `$`.
    ExpectedDollar(u8),
    /// `$` is followed by something that is not a number, or by a number that is negative or too large.
    InvalidBulkLength,
    /// The client has not authenticated and sends an argument that is too long.
    UnauthenticatedBulkLength,
    /// The line that begins with `$` has no end within the limit.
    BulkLineTooLong,
    /// An inline request has no end within the limit.
    InlineTooLong,
    /// An inline request contains this control byte.
    InlineControlByte(u8),
    /// The client speaks another protocol.
    Foreign(ForeignProtocol),
    /// In an inline request, a quote is not closed, or a byte other than white space follows a closing quote.
    UnbalancedQuotes,
}

/// A protocol that clients send to this port by mistake, or because a web page makes them do it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForeignProtocol {
    /// A line of an HTTP request. Lines after it can look like commands and must not run.
    Http,
    /// The start of a TLS connection.
    Tls,
    /// The version line of SSH.
    Ssh,
}

impl ForeignProtocol {
    /// Returns its name.
    pub fn name(self) -> &'static str {
        match self {
            ForeignProtocol::Http => "HTTP",
            ForeignProtocol::Tls => "TLS",
            ForeignProtocol::Ssh => "SSH",
        }
    }

    /// Recognizes the protocol by the words of an inline request.
    fn of_words<'a>(mut words: impl DoubleEndedIterator<Item = &'a [u8]>) -> Option<ForeignProtocol> {
        let first = words.next()?;
        // The first line of a request ends with the version, as in `SET /x HTTP/1.1`.
        let has_version = words.next_back().is_some_and(|last| last.starts_with(b"HTTP/"));
        if first.starts_with(b"SSH-") {
            Some(ForeignProtocol::Ssh)
        } else if first.eq_ignore_ascii_case(b"POST") || first.eq_ignore_ascii_case(b"Host:") || has_version {
            Some(ForeignProtocol::Http)
        } else {
            None
        }
    }
}

impl ProtocolError {
    /// Returns the error reply without `-` and line end.
    ///
    /// It is bytes and not a `str`, because it can contain a byte that the client sent.
    pub fn reply(&self) -> SmallVec<[u8; 64]> {
        let mut text = SmallVec::from_slice(b"ERR Protocol error: ");
        text.extend_from_slice(self.detail().as_bytes());
        match self {
            ProtocolError::ExpectedDollar(got) => text.extend_from_slice(&[*got, b'\'']),
            ProtocolError::InlineControlByte(got) => {
                text.extend_from_slice(format!("0x{got:02x}").as_bytes())
            }
            _ => {}
        }
        text
    }

    fn detail(&self) -> &'static str {
        match self {
            ProtocolError::InvalidMultibulkLength => "invalid multibulk length",
            ProtocolError::UnauthenticatedMultibulkLength => "unauthenticated multibulk length",
            ProtocolError::MultibulkLineTooLong => "too big mbulk count string",
            ProtocolError::ExpectedDollar(_) => "expected '$', got '",
            ProtocolError::InvalidBulkLength => "invalid bulk length",
            ProtocolError::UnauthenticatedBulkLength => "unauthenticated bulk length",
            ProtocolError::BulkLineTooLong => "too big bulk count string",
            ProtocolError::InlineTooLong => "too big inline request",
            ProtocolError::InlineControlByte(_) => "inline request contains control byte ",
            ProtocolError::Foreign(ForeignProtocol::Http) => {
                "this looks like HTTP, but this port expects RESP"
            }
            ProtocolError::Foreign(ForeignProtocol::Tls) => {
                "this looks like TLS, but this port expects plain RESP"
            }
            ProtocolError::Foreign(ForeignProtocol::Ssh) => "this looks like SSH, but this port expects RESP",
            ProtocolError::UnbalancedQuotes => "unbalanced quotes in request",
        }
    }
}

impl fmt::Display for ProtocolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ProtocolError::ExpectedDollar(got) => {
                write!(f, "Protocol error: {}{}'", self.detail(), got.escape_ascii())
            }
            ProtocolError::InlineControlByte(got) => {
                write!(f, "Protocol error: {}0x{got:02x}", self.detail())
            }
            _ => write!(f, "Protocol error: {}", self.detail()),
        }
    }
}

impl std::error::Error for ProtocolError {}

/// Decodes requests, one after the other.
///
/// ```
/// # use millstream_protocol::resp::{Decoder, Limits};
/// let buffer = b"PING\r\n*2\r\n$4\r\nECHO\r\n$2\r\nhi\r\n*1\r\n$4\r\nPI";
/// let mut decoder = Decoder::new(Limits::default());
/// let mut start = 0;
/// while let Some(bytes) = decoder.next(&buffer[start..]).unwrap() {
///     let args = decoder.args(&buffer[start..]);
///     assert!(args[0] == b"PING" || args[..] == [b"ECHO".as_slice(), b"hi"]);
///     start += bytes;
/// }
/// assert_eq!(&buffer[start..], b"*1\r\n$4\r\nPI");
/// ```
///
/// Until a request is complete, the caller must pass a buffer that begins with the same bytes in every call; it can
/// contain more bytes each time. The caller must ignore a request without arguments (an empty line, `*0`).
#[derive(Debug)]
pub struct Decoder {
    limits: Limits,
    state: State,
    /// Number of bytes of the current request that are decoded.
    position: usize,
    /// Position up to which the decoder has searched for the end of the current line. At least `position`.
    scanned: usize,
    /// Number of arguments that are not decoded yet.
    args_left: u64,
    /// Positions of the arguments: in the caller's buffer, or in `unquoted` for an inline request.
    spans: Vec<Span>,
    unquoted: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Before the first byte of a request.
    Start,
    /// Before or inside the line with an argument's length.
    BulkLength,
    /// Before or inside an argument of this many bytes.
    Bulk(usize),
    /// The last request is complete; its spans are valid.
    Complete { inline: bool },
}

pub(super) type Span = (usize, usize);

impl Decoder {
    /// Frees most of the memory of the request that [`next`](Self::next) has decoded, once its arguments are not needed
    /// any more. Otherwise a client that has sent one large request would keep this memory while it is idle.
    pub fn release(&mut self) {
        if let State::Complete { .. } = self.state
            && self.memory_bytes() > SPANS_KEPT_MAX * size_of::<Span>()
        {
            self.begin();
            self.spans.shrink_to(SPANS_KEPT_MAX);
            self.unquoted.shrink_to(0);
        }
    }

    /// Returns the memory that the request which is being decoded takes in this decoder, in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.spans.capacity() * size_of::<Span>() + self.unquoted.capacity()
    }

    /// Returns a decoder for a new connection.
    pub fn new(limits: Limits) -> Decoder {
        Decoder {
            limits,
            state: State::Start,
            position: 0,
            scanned: 0,
            args_left: 0,
            spans: Vec::new(),
            unquoted: Vec::new(),
        }
    }

    /// Returns the limits on what the client may send.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Changes the limits. They apply from the next length that the client announces.
    pub fn set_limits(&mut self, limits: Limits) {
        self.limits = limits;
    }

    /// Decodes a plain request: complete in `buffer`, at most [`PLAIN_ARGS_MAX`] arguments, each less than 1000 bytes.
    /// Nearly all requests are plain. This is faster than [`next`](Self::next).
    ///
    /// Returns the number of arguments stored in `args`, and the size of the request in bytes. Returns `None` if the
    /// request is not plain; then the caller must use [`next`](Self::next).
    #[inline]
    pub fn next_plain<'b>(
        &self,
        buffer: &'b [u8],
        args: &mut [&'b [u8]; PLAIN_ARGS_MAX],
    ) -> Option<(usize, usize)> {
        let is_between_requests = match self.state {
            State::Complete { .. } => true,
            // If `next` has begun to search for the end of the first line, it must finish. Otherwise its `scanned`
            // would be applied to the following request.
            State::Start => self.scanned == 0,
            State::BulkLength | State::Bulk(_) => false,
        };
        let (count, mut at) = short_header(b'*', buffer)?;
        if !is_between_requests || !self.limits.allow_plain_requests() || count == 0 {
            return None;
        }
        for arg in args.get_mut(..count)? {
            let rest = buffer.get(at..)?;
            let (from, to) = short_argument(rest)?;
            *arg = &rest[from..to];
            at += to + 2;
        }
        Some((count, at))
    }

    /// Continues to decode the request at the start of `buffer`. Returns its size in bytes once it is complete.
    ///
    /// After an error the decoder must not be used again.
    pub fn next(&mut self, buffer: &[u8]) -> Result<Option<usize>, ProtocolError> {
        if let State::Complete { .. } = self.state {
            self.begin();
        }
        if self.state == State::Start {
            match buffer.first() {
                None => return Ok(None),
                Some(b'*') => {
                    if !self.read_multibulk_header(buffer)? {
                        return Ok(None);
                    }
                }
                Some(_) => return self.read_inline(buffer),
            }
        }
        loop {
            self.read_short_arguments(buffer);
            if self.args_left == 0 {
                break;
            }
            if !self.read_argument(buffer)? {
                return Ok(None);
            }
        }
        self.state = State::Complete { inline: false };
        Ok(Some(self.position))
    }

    /// Returns the arguments of the request at the start of `buffer`, which [`next`](Self::next) has just completed.
    #[inline]
    pub fn args<'a>(&'a self, buffer: &'a [u8]) -> RequestArgs<'a> {
        let bytes = match self.state {
            State::Complete { inline: true } => &self.unquoted[..],
            State::Complete { inline: false } => buffer,
            _ => return RequestArgs::new(),
        };
        self.spans.iter().map(|&(from, to)| &bytes[from..to]).collect()
    }

    #[inline]
    fn begin(&mut self) {
        self.state = State::Start;
        self.position = 0;
        self.scanned = 0;
        self.spans.clear();
        self.unquoted.clear();
    }

    /// Reads `*n CRLF`. Returns `false` if it is not complete yet.
    fn read_multibulk_header(&mut self, buffer: &[u8]) -> Result<bool, ProtocolError> {
        let (args, end) = match short_header(b'*', buffer) {
            Some((args, end)) => (args as u64, end),
            None => match self.read_line(buffer).map_err(|TooLong| ProtocolError::MultibulkLineTooLong)? {
                Some(line) => {
                    let announced = line.number.ok_or(ProtocolError::InvalidMultibulkLength)?;
                    (u64::try_from(announced).unwrap_or(0), line.end)
                }
                None => return Ok(false),
            },
        };
        if args > self.limits.args_max {
            return Err(ProtocolError::InvalidMultibulkLength);
        }
        if args > UNAUTHENTICATED_ARGS_MAX && !self.limits.authenticated {
            return Err(ProtocolError::UnauthenticatedMultibulkLength);
        }
        self.args_left = args;
        self.advance_to(end);
        self.state = State::BulkLength;
        Ok(true)
    }

    /// Reads arguments up to the first one that is not short, well-formed and complete. Nearly all arguments are.
    #[inline]
    fn read_short_arguments(&mut self, buffer: &[u8]) {
        if self.state != State::BulkLength {
            return;
        }
        let mut position = self.position;
        while self.args_left > 0 {
            let Some((from, to)) = short_argument(&buffer[position..]) else { break };
            if (to - from) as u64 > self.limits.bulk_bytes_max {
                break;
            }
            self.spans.push((position + from, position + to));
            position += to + 2;
            self.args_left -= 1;
        }
        self.advance_to(position);
    }

    /// Reads `$n CRLF bytes CRLF`. Returns `false` if it is not complete yet.
    fn read_argument(&mut self, buffer: &[u8]) -> Result<bool, ProtocolError> {
        let length = match self.state {
            State::Bulk(length) => length,
            _ => match self.read_bulk_header(buffer)? {
                Some(length) => length,
                None => return Ok(false),
            },
        };
        if buffer.len() - self.position < length + 2 {
            self.state = State::Bulk(length);
            return Ok(false);
        }
        self.spans.push((self.position, self.position + length));
        self.advance_to(self.position + length + 2);
        self.args_left -= 1;
        self.state = State::BulkLength;
        Ok(true)
    }

    fn read_bulk_header(&mut self, buffer: &[u8]) -> Result<Option<usize>, ProtocolError> {
        let Some(line) = self.read_line(buffer).map_err(|TooLong| ProtocolError::BulkLineTooLong)? else {
            return Ok(None);
        };
        if buffer[self.position] != b'$' {
            return Err(ProtocolError::ExpectedDollar(buffer[self.position]));
        }
        let announced = line.number.ok_or(ProtocolError::InvalidBulkLength)?;
        let length = u64::try_from(announced).map_err(|_| ProtocolError::InvalidBulkLength)?;
        if length > self.limits.bulk_bytes_max {
            return Err(ProtocolError::InvalidBulkLength);
        }
        if length > UNAUTHENTICATED_BULK_MAX && !self.limits.authenticated {
            return Err(ProtocolError::UnauthenticatedBulkLength);
        }
        let length = usize::try_from(length).map_err(|_| ProtocolError::InvalidBulkLength)?;
        self.advance_to(line.end);
        Ok(Some(length))
    }

    /// Finds the line at the current position and the number after its first byte.
    fn read_line(&mut self, buffer: &[u8]) -> Result<Option<Line>, TooLong> {
        let last = buffer.len().min(self.position + self.limits.line_bytes_max + 1);
        let Some(offset) = buffer[self.scanned..last].iter().position(|&byte| byte == b'\r') else {
            self.scanned = last;
            return if last - self.position > self.limits.line_bytes_max { Err(TooLong) } else { Ok(None) };
        };
        let line_end = self.scanned + offset;
        self.scanned = line_end;
        if buffer.len() < line_end + 2 {
            return Ok(None);
        }
        // An empty line has no first byte to skip.
        let digits = buffer.get(self.position + 1..line_end).unwrap_or_default();
        Ok(Some(Line { number: crate::number::parse_i64(digits), end: line_end + 2 }))
    }

    fn read_inline(&mut self, buffer: &[u8]) -> Result<Option<usize>, ProtocolError> {
        let last = buffer.len().min(self.limits.line_bytes_max + 1);
        let unfinished =
            if last > self.limits.line_bytes_max { Err(ProtocolError::InlineTooLong) } else { Ok(None) };
        let is_control = |byte: &u8| byte.is_ascii_control() && *byte != b'\t';
        let Some(offset) = buffer[self.scanned..last].iter().position(is_control) else {
            self.scanned = last;
            return unfinished;
        };
        self.scanned += offset;
        let line_end = self.scanned;
        let next = match buffer[line_end..last] {
            [b'\n', ..] => line_end + 1,
            [b'\r', b'\n', ..] => line_end + 2,
            [b'\r'] => return unfinished,
            _ if buffer[0] == TLS_HANDSHAKE => return Err(ProtocolError::Foreign(ForeignProtocol::Tls)),
            _ => return Err(ProtocolError::InlineControlByte(buffer[line_end])),
        };
        inline::split(&buffer[..line_end], &mut self.unquoted, &mut self.spans)
            .ok_or(ProtocolError::UnbalancedQuotes)?;
        let words = self.spans.iter().map(|&(from, to)| &self.unquoted[from..to]);
        if let Some(foreign) = ForeignProtocol::of_words(words) {
            return Err(ProtocolError::Foreign(foreign));
        }
        self.state = State::Complete { inline: true };
        Ok(Some(next))
    }

    fn advance_to(&mut self, position: usize) {
        self.position = position;
        self.scanned = position;
    }
}

struct Line {
    /// The number after the line's first byte; `None` if it is not a number.
    number: Option<i64>,
    end: usize,
}

struct TooLong;

/// Returns the range of the argument whose `$` is the first byte of `bytes`.
///
/// Returns `None` if the argument is not short, or if it or its line end is not complete.
#[inline]
fn short_argument(bytes: &[u8]) -> Option<Span> {
    let (length, from) = short_header(b'$', bytes)?;
    let to = from + length;
    (bytes.len() >= to + 2).then_some((from, to))
}

/// Reads `first`, a number of one to three digits and a line end. Returns the number, and how many bytes were
/// read.
#[inline]
fn short_header(first: u8, bytes: &[u8]) -> Option<(usize, usize)> {
    let digit = |byte: u8| usize::from(byte.wrapping_sub(b'0'));
    match *bytes {
        [byte, ones, b'\r', _, ..] if byte == first && digit(ones) < 10 => Some((digit(ones), 4)),
        [byte, tens @ b'1'..=b'9', ones, b'\r', _, ..] if byte == first && digit(ones) < 10 => {
            Some((digit(tens) * 10 + digit(ones), 5))
        }
        [byte, hundreds @ b'1'..=b'9', tens, ones, b'\r', _, ..]
            if byte == first && digit(tens) < 10 && digit(ones) < 10 =>
        {
            Some((digit(hundreds) * 100 + digit(tens) * 10 + digit(ones), 6))
        }
        _ => None,
    }
}

#[cfg(test)]
#[path = "decode_tests.rs"]
mod tests;
