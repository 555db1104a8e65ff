//! A connection whose server may be hostile or broken: it fails if one reply takes too much memory.
//!
//! The client library collects a reply of any size. So this module follows the framing of the replies on their way to
//! it, and fails the connection before a reply that exceeds [`REPLY_BYTES_MAX`] is complete. It decodes no values.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Maximum memory of one reply, in bytes. The server has the same limit (`client-output-buffer-limit`).
const REPLY_BYTES_MAX: u64 = 256 << 20;
/// What each value of a reply takes in memory, in addition to its bytes.
const VALUE_BYTES: u64 = 64;
/// Maximum length of a line: a number, a length, a simple string or an error. The library searches a line from its
/// beginning after each read.
const LINE_BYTES_MAX: usize = 64 << 10;
/// Number of bytes of a line that can hold a type and a number.
const NUMBER_BYTES_MAX: usize = 24;

/// A stream that fails if one reply takes too much memory.
pub(super) struct LimitedReplies<S> {
    stream: S,
    framing: Framing,
}

impl<S> LimitedReplies<S> {
    pub(super) fn new(stream: S) -> LimitedReplies<S> {
        LimitedReplies { stream, framing: Framing::default() }
    }
}

/// Where in a reply the next byte is. Lines and numbers are read exactly as the library reads them: a server that could
/// make the two disagree could hide how large a reply is.
#[derive(Debug, Default)]
struct Framing {
    /// The beginning of the line that is not complete.
    line: Vec<u8>,
    line_bytes: usize,
    /// Whether the last byte of the line so far is a carriage return.
    ends_with_cr: bool,
    /// Bytes left of the string that has begun, with its line end.
    string_bytes_left: u64,
    /// Values left in each array that has begun, the innermost last.
    values_left: Vec<u64>,
    /// Memory that the reply takes so far.
    reply_bytes: u64,
    /// Whether the bytes are not a reply. The library then returns an error.
    is_malformed: bool,
}

impl Framing {
    fn read(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() && !self.is_malformed {
            if self.string_bytes_left > 0 {
                let left = usize::try_from(self.string_bytes_left).unwrap_or(usize::MAX);
                let count = left.min(bytes.len());
                self.string_bytes_left -= count as u64;
                bytes = &bytes[count..];
                if self.string_bytes_left == 0 {
                    self.end_value();
                }
                continue;
            }
            let end = bytes.iter().position(|byte| *byte == b'\n').map_or(bytes.len(), |at| at + 1);
            let (piece, rest) = bytes.split_at(end);
            bytes = rest;
            let kept = piece.len().min(NUMBER_BYTES_MAX - self.line.len());
            self.line.extend_from_slice(&piece[..kept]);
            self.line_bytes += piece.len();
            if self.line_bytes > LINE_BYTES_MAX {
                return Err(too_large(&format!("a line of more than {} KiB", LINE_BYTES_MAX >> 10)));
            }
            let before_last = piece.len().checked_sub(2).map(|at| piece[at] == b'\r');
            let is_complete = piece.ends_with(b"\n") && before_last.unwrap_or(self.ends_with_cr);
            self.ends_with_cr = piece.ends_with(b"\r");
            if is_complete {
                self.end_line()?;
            }
        }
        Ok(())
    }

    /// Takes a complete line: a value, or the beginning of a string or an array.
    fn end_line(&mut self) -> io::Result<()> {
        let line = std::mem::take(&mut self.line);
        let line_bytes = std::mem::take(&mut self.line_bytes);
        self.add(VALUE_BYTES + line_bytes as u64)?;
        let kind = line[0];
        if b"+-:_,#(".contains(&kind) {
            self.end_value();
            return Ok(());
        }
        if line_bytes > NUMBER_BYTES_MAX {
            return Err(too_large("a length of too many digits"));
        }
        let number =
            std::str::from_utf8(&line[1..]).ok().and_then(|digits| digits.trim().parse::<i64>().ok());
        let values = match (kind, number.map(u64::try_from)) {
            (b'$' | b'*' | b'~' | b'>', Some(Err(_))) => 0,
            (b'$' | b'=' | b'!', Some(Ok(length))) => {
                self.add(length)?;
                self.string_bytes_left = length + 2;
                return Ok(());
            }
            (b'*' | b'~' | b'>', Some(Ok(length))) => length,
            (b'%', Some(Ok(pairs))) => pairs.saturating_mul(2),
            // An attribute, and the value that it belongs to.
            (b'|', Some(Ok(pairs))) => pairs.saturating_mul(2).saturating_add(1),
            // The library would wait for a string of negative length for ever.
            (b'=' | b'!', Some(Err(_))) => return Err(too_large("a string of negative length")),
            _ => {
                self.is_malformed = true;
                return Ok(());
            }
        };
        if values == 0 {
            self.end_value();
            return Ok(());
        }
        // The announced values are not here yet, so they do not count, but they will not fit.
        check(self.reply_bytes.saturating_add(values.saturating_mul(VALUE_BYTES)))?;
        self.values_left.push(values);
        Ok(())
    }

    /// Ends a value, and the arrays whose last value it is.
    fn end_value(&mut self) {
        while let Some(left) = self.values_left.last_mut() {
            *left -= 1;
            if *left > 0 {
                return;
            }
            self.values_left.pop();
        }
        self.reply_bytes = 0;
    }

    fn add(&mut self, bytes: u64) -> io::Result<()> {
        self.reply_bytes = self.reply_bytes.saturating_add(bytes);
        check(self.reply_bytes)
    }
}

fn check(bytes: u64) -> io::Result<()> {
    if bytes <= REPLY_BYTES_MAX {
        return Ok(());
    }
    Err(too_large(&format!("a reply that takes more than {} MiB", REPLY_BYTES_MAX >> 20)))
}

fn too_large(what: &str) -> io::Error {
    let text = format!("the server sent {what}: request fewer or smaller entries at a time");
    io::Error::new(io::ErrorKind::InvalidData, text)
}

impl<S: AsyncRead + Unpin> AsyncRead for LimitedReplies<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = into.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, into))?;
        Poll::Ready(self.framing.read(&into.filled()[before..]))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for LimitedReplies<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Follows replies that arrive in pieces of this size, and returns what they take when all have arrived.
    fn read(replies: &[u8], piece: usize) -> io::Result<(u64, usize)> {
        let mut framing = Framing::default();
        replies.chunks(piece).try_for_each(|piece| framing.read(piece))?;
        Ok((framing.reply_bytes, framing.values_left.len()))
    }

    #[test]
    fn the_count_begins_anew_after_each_reply() {
        let replies = b"+OK\r\n:1\r\n-ERR no\r\n$-1\r\n*-1\r\n*0\r\n$0\r\n\r\n$4\r\n*9\r\n\r\n*2\r\n*1\r\n$3\r\na\nb\r\n_\r\n\
            %1\r\n+k\r\n|1\r\n+a\r\n:1\r\n~2\r\n#t\r\n,1.5\r\n=5\r\ntxt:a\r\n(12\r\n>1\r\n+x\r\n!3\r\nERR\r\n";
        for piece in 1..=replies.len() {
            assert_eq!(read(replies, piece).unwrap(), (0, 0), "pieces of {piece}");
        }
        // A line ends with both bytes, and a number can have blanks and a sign.
        assert_eq!(read(b"+a\n+b\r\n$ +1 \r\nx\r\n$-0\r\n\r\n", 2).unwrap(), (0, 0));
        let begun = read(b"+OK\r\n*2\r\n*1\r\n:1\r\n*3\r\n+a\r\n", 3).unwrap();
        assert_eq!(begun, (5 * VALUE_BYTES + 4 + 4 + 4 + 4 + 4, 2));
    }

    #[test]
    fn a_string_or_an_array_that_is_too_large_fails_when_it_is_announced() {
        let announced = |text: String| read(text.as_bytes(), 7).map_err(|error| error.to_string());
        let fits = REPLY_BYTES_MAX - VALUE_BYTES - "$268435456\r\n".len() as u64;
        assert!(announced(format!("${fits}\r\n")).is_ok());
        assert!(announced(format!("${}\r\n", fits + 1)).unwrap_err().contains("more than 256 MiB"));
        let values = REPLY_BYTES_MAX / VALUE_BYTES;
        for (kind, values) in
            [('*', values), ('~', values), ('>', values), ('%', values / 2), ('|', values / 2)]
        {
            assert!(announced(format!("{kind}{}\r\n", values - 2)).is_ok(), "{kind}");
            assert!(announced(format!("{kind}{values}\r\n")).is_err(), "{kind}");
        }
        assert!(announced(format!("*{}\r\n", i64::MAX)).is_err());
        assert!(announced("=-1\r\n".to_owned()).is_err());
    }

    #[test]
    fn a_number_that_is_read_only_in_part_fails() {
        assert!(read(format!("${}9\r\n", "0".repeat(30)).as_bytes(), 5).is_err());
        let mut framing = Framing::default();
        framing.read(b"*x\r\n").unwrap();
        assert!(framing.is_malformed);
    }

    #[test]
    fn a_reply_that_grows_too_large_and_an_endless_line_fail() {
        let mut framing = Framing::default();
        framing.read(b"*4000000\r\n").unwrap();
        let text = b"$9000\r\n".iter().chain(&[b'x'; 9000]).chain(b"\r\n").copied().collect::<Vec<_>>();
        let count = (0..4_000_000).take_while(|_| framing.read(&text).is_ok()).count();
        assert_eq!(count as u64, REPLY_BYTES_MAX / (VALUE_BYTES + 9007));
        assert!(read(&[b'+'; LINE_BYTES_MAX], 4096).is_ok());
        assert!(read(&[b'+'; LINE_BYTES_MAX + 1], 4096).is_err());
    }
}
