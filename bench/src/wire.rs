//! Just enough of RESP2 to prepare servers and to drive the loads that `redis-benchmark` cannot express.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use crate::Failure;

/// Longer than any reply should take; a server that hangs ends the run instead of stalling it.
const REPLY_WITHIN: Duration = Duration::from_secs(60);

/// A blocking connection.
pub(crate) struct Connection {
    socket: TcpStream,
    inbox: Vec<u8>,
    /// Bytes of `inbox` already handed out. `used <= inbox.len()`.
    used: usize,
}

impl Connection {
    pub(crate) fn open(port: u16) -> Result<Connection, Failure> {
        let socket = TcpStream::connect(("127.0.0.1", port))?;
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(REPLY_WITHIN))?;
        Ok(Connection { socket, inbox: Vec::new(), used: 0 })
    }

    /// One command, one reply; an error reply is an error.
    pub(crate) fn call(&mut self, command: &[&str]) -> Result<Vec<u8>, Failure> {
        let mut request = Vec::new();
        encode(&mut request, command);
        self.send(&request)?;
        self.reply()
    }

    /// A command whose reply is an integer, or an array that begins with one (XPENDING).
    pub(crate) fn call_int(&mut self, command: &[&str]) -> Result<u64, Failure> {
        let reply = String::from_utf8(self.call(command)?)?;
        let int = reply.lines().find_map(|l| l.strip_prefix(':'));
        Ok(int.ok_or_else(|| format!("{command:?} answered {reply:?}"))?.parse()?)
    }

    pub(crate) fn send(&mut self, requests: &[u8]) -> io::Result<()> {
        self.socket.write_all(requests)
    }

    /// The next reply as it came; an error reply is an error.
    pub(crate) fn reply(&mut self) -> Result<Vec<u8>, Failure> {
        let span = self.next_reply()?;
        Ok(self.inbox[span].to_vec())
    }

    /// Passes over `count` replies; an error reply is an error.
    pub(crate) fn skip(&mut self, count: usize) -> Result<(), Failure> {
        (0..count).try_for_each(|_| self.next_reply().map(|_| ()))
    }

    fn next_reply(&mut self) -> Result<std::ops::Range<usize>, Failure> {
        loop {
            if let Some(len) = reply_len(&self.inbox[self.used..]) {
                let span = self.used..self.used + len;
                self.used = span.end;
                if self.inbox[span.start] == b'-' {
                    let text = String::from_utf8_lossy(&self.inbox[span]).trim().to_owned();
                    return Err(format!("the server answered {text}").into());
                }
                return Ok(span);
            }
            self.inbox.drain(..self.used);
            self.used = 0;
            self.receive()?;
        }
    }

    fn receive(&mut self) -> Result<(), Failure> {
        let held = self.inbox.len();
        self.inbox.resize(held + 64 * 1024, 0);
        let got = self.socket.read(&mut self.inbox[held..])?;
        self.inbox.truncate(held + got);
        match got {
            0 => Err("the server closed the connection".into()),
            _ => Ok(()),
        }
    }
}

/// Appends a command in its wire form.
pub(crate) fn encode<A: AsRef<[u8]>>(out: &mut Vec<u8>, command: &[A]) {
    // Writing to a Vec cannot fail.
    let _ = write!(out, "*{}\r\n", command.len());
    for argument in command {
        let argument = argument.as_ref();
        let _ = write!(out, "${}\r\n", argument.len());
        out.extend_from_slice(argument);
        out.extend_from_slice(b"\r\n");
    }
}

/// The length of the whole reply that `bytes` begins with; `None` while it is not complete.
fn reply_len(bytes: &[u8]) -> Option<usize> {
    let line_end = bytes.windows(2).position(|pair| pair == b"\r\n")? + 2;
    let number = || std::str::from_utf8(&bytes[1..line_end - 2]).ok()?.parse::<i64>().ok();
    match bytes[0] {
        b'$' => match usize::try_from(number()?) {
            Ok(len) => Some(line_end + len + 2).filter(|&end| end <= bytes.len()),
            Err(_) => Some(line_end),
        },
        b'*' => (0..number()?).try_fold(line_end, |end, _| Some(end + reply_len(&bytes[end..])?)),
        _ => Some(line_end),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_is_measured_only_when_complete() {
        for reply in
            ["+OK\r\n", ":12\r\n", "$3\r\nabc\r\n", "$-1\r\n", "*-1\r\n", "*2\r\n:1\r\n*1\r\n$2\r\nhi\r\n"]
        {
            let bytes = reply.as_bytes();
            assert_eq!(reply_len(bytes), Some(bytes.len()), "{reply:?}");
            for cut in 0..bytes.len() {
                assert_eq!(reply_len(&bytes[..cut]), None, "{reply:?} cut at {cut}");
            }
            let followed = format!("{reply}+MORE\r\n");
            assert_eq!(reply_len(followed.as_bytes()), Some(bytes.len()), "{reply:?} followed");
        }
    }

    #[test]
    fn commands_are_arrays_of_bulks() {
        let mut out = Vec::new();
        encode(&mut out, &["XLEN", "s"]);
        assert_eq!(out, b"*2\r\n$4\r\nXLEN\r\n$1\r\ns\r\n");
    }
}
