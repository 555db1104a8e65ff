//! A minimal RESP2 client: prepares servers and drives the loads that `redis-benchmark` cannot express.
//!
//! Replies are skipped while they arrive, so a reply of many megabytes costs the generator little.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use crate::Failure;

/// Maximum time for a reply. If a server hangs, the run fails instead of hanging too.
const REPLY_WITHIN: Duration = Duration::from_secs(120);
const INBOX: usize = 256 * 1024;

/// A blocking connection.
pub(crate) struct Connection {
    socket: TcpStream,
    inbox: Box<[u8]>,
    /// Received bytes that are not consumed yet: `inbox[used..filled]`.
    used: usize,
    filled: usize,
}

impl Connection {
    pub(crate) fn open(address: &str) -> Result<Connection, Failure> {
        Connection::with_inbox(address, INBOX)
    }

    /// Opens a connection with a small buffer, for workloads with thousands of connections.
    pub(crate) fn small(address: &str) -> Result<Connection, Failure> {
        Connection::with_inbox(address, 1024)
    }

    fn with_inbox(address: &str, size: usize) -> Result<Connection, Failure> {
        let socket = TcpStream::connect(address).map_err(|e| format!("cannot connect to {address}: {e}"))?;
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(REPLY_WITHIN))?;
        Ok(Connection { socket, inbox: vec![0; size].into(), used: 0, filled: 0 })
    }

    /// Sends a command and returns its raw reply; fails on an error reply.
    pub(crate) fn call<A: AsRef<[u8]>>(&mut self, command: &[A]) -> Result<Vec<u8>, Failure> {
        let mut request = Vec::new();
        encode(&mut request, command);
        self.send(&request)?;
        let mut reply = Vec::new();
        self.next_reply(|bytes| reply.extend_from_slice(bytes))?;
        Ok(reply)
    }

    /// Like `call`; returns the reply as text.
    pub(crate) fn call_text<A: AsRef<[u8]>>(&mut self, command: &[A]) -> Result<String, Failure> {
        Ok(String::from_utf8_lossy(&self.call(command)?).into_owned())
    }

    /// Like `call`; returns the integer in the reply, or the first integer of an array (XPENDING).
    pub(crate) fn call_int(&mut self, command: &[&str]) -> Result<u64, Failure> {
        let reply = self.call_text(command)?;
        let int = reply.lines().find_map(|l| l.strip_prefix(':'));
        Ok(int.ok_or_else(|| format!("{command:?}: expected an integer, got {reply:?}"))?.parse()?)
    }

    pub(crate) fn send(&mut self, requests: &[u8]) -> io::Result<()> {
        self.socket.write_all(requests)
    }

    /// Skips `count` replies; fails on an error reply.
    pub(crate) fn skip(&mut self, count: usize) -> Result<(), Failure> {
        (0..count).try_for_each(|_| self.next_reply(|_| ()))
    }

    fn next_reply(&mut self, mut seen: impl FnMut(&[u8])) -> Result<(), Failure> {
        let mut progress = Progress::begin();
        while !progress.is_complete() {
            if self.used == self.filled {
                self.receive()?;
            }
            let bytes = &self.inbox[self.used..self.filled];
            let taken = progress.take(bytes);
            seen(&bytes[..taken]);
            self.used += taken;
        }
        match progress.error {
            Some(text) => Err(format!("the server replied with an error: {text}").into()),
            None => Ok(()),
        }
    }

    fn receive(&mut self) -> Result<(), Failure> {
        let received = loop {
            match self.socket.read(&mut self.inbox) {
                // A read with a timeout is interrupted when the virtual machine was paused.
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                other => break other?,
            }
        };
        (self.used, self.filled) = (0, received);
        match self.filled {
            0 => Err("the server closed the connection".into()),
            _ => Ok(()),
        }
    }
}

/// The state of a partly received reply.
struct Progress {
    /// Number of values still to receive, including a value that is partly received.
    values: u64,
    /// Bytes still to receive of a bulk string, including its line end.
    bulk: u64,
    /// The beginning of a line whose end is not received yet.
    line: Vec<u8>,
    /// Set if the reply as a whole is an error. Errors inside an array do not count.
    error: Option<String>,
    is_first: bool,
}

impl Progress {
    fn begin() -> Progress {
        Progress { values: 1, bulk: 0, line: Vec::new(), error: None, is_first: true }
    }

    fn is_complete(&self) -> bool {
        self.values == 0
    }

    /// Consumes the bytes that belong to the reply and returns their number.
    fn take(&mut self, bytes: &[u8]) -> usize {
        let mut at = 0;
        while !self.is_complete() && at < bytes.len() {
            at += match self.bulk {
                0 => self.take_line(&bytes[at..]),
                _ => self.take_bulk(bytes.len() - at),
            };
        }
        at
    }

    fn take_bulk(&mut self, available: usize) -> usize {
        let taken = self.bulk.min(available as u64);
        self.bulk -= taken;
        if self.bulk == 0 {
            self.values -= 1;
        }
        taken as usize
    }

    fn take_line(&mut self, bytes: &[u8]) -> usize {
        let Some(end) = bytes.iter().position(|&byte| byte == b'\n') else {
            self.line.extend_from_slice(bytes);
            return bytes.len();
        };
        if self.line.is_empty() {
            self.parse_line(&bytes[..end]);
        } else {
            let mut line = std::mem::take(&mut self.line);
            line.extend_from_slice(&bytes[..end]);
            self.parse_line(&line);
        }
        end + 1
    }

    fn parse_line(&mut self, line: &[u8]) {
        let (kind, rest) = line.split_first().unwrap_or((&b'+', &[]));
        let rest = rest.strip_suffix(b"\r").unwrap_or(rest);
        let number = || std::str::from_utf8(rest).ok()?.parse::<u64>().ok();
        match (kind, number()) {
            (b'$', Some(len)) => self.bulk = len + 2,
            (b'*', Some(len)) => self.values = self.values - 1 + len,
            (b'-', _) if self.is_first => {
                self.error = Some(String::from_utf8_lossy(rest).into_owned());
                self.values -= 1;
            }
            // Simple values, and the nulls `$-1` and `*-1`.
            _ => self.values -= 1,
        }
        self.is_first = false;
    }
}

/// Appends a command in wire format.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reply_is_complete_at_its_end_wherever_reads_split_it() {
        for reply in [
            "+OK\r\n",
            ":12\r\n",
            "$3\r\nabc\r\n",
            "$0\r\n\r\n",
            "$-1\r\n",
            "*-1\r\n",
            "*0\r\n",
            "*2\r\n:1\r\n*1\r\n$2\r\nhi\r\n",
        ] {
            let followed = format!("{reply}+MORE\r\n");
            for cut in 0..=reply.len() {
                let mut progress = Progress::begin();
                let (head, tail) = followed.as_bytes().split_at(cut);
                let taken = progress.take(head);
                assert_eq!(progress.is_complete(), cut == reply.len(), "{reply:?} cut at {cut}");
                assert_eq!(taken + progress.take(tail), reply.len(), "{reply:?} cut at {cut}");
                assert!(progress.is_complete() && progress.error.is_none());
            }
        }
    }

    #[test]
    fn errors_inside_an_array_do_not_count() {
        let mut alone = Progress::begin();
        alone.take(b"-ERR no\r\n");
        assert_eq!(alone.error.as_deref(), Some("ERR no"));
        let mut within = Progress::begin();
        within.take(b"*1\r\n-ERR no\r\n");
        assert!(within.is_complete() && within.error.is_none());
    }

    #[test]
    fn commands_are_arrays_of_bulk_strings() {
        let mut out = Vec::new();
        encode(&mut out, &["XLEN", "s"]);
        assert_eq!(out, b"*2\r\n$4\r\nXLEN\r\n$1\r\ns\r\n");
    }
}
