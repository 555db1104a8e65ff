//! A minimal RESP2 client: prepares servers and drives the loads that `redis-benchmark` cannot express.
//!
//! Replies can be skipped while they arrive, so a reply of many megabytes costs the generator little.

use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use crate::Failure;

/// Maximum time for a reply. If a server hangs, the run fails instead of hanging too.
const REPLY_WITHIN: Duration = Duration::from_secs(120);
const BUFFER: usize = 256 * 1024;

/// A blocking connection.
pub(crate) struct Connection {
    reader: BufReader<TcpStream>,
    /// The last line of a reply.
    line: Vec<u8>,
}

/// Connects a socket that sends small requests at once, and fails if the server is silent for too long.
pub(crate) fn connect(address: &str) -> Result<TcpStream, Failure> {
    let socket = TcpStream::connect(address).map_err(|e| format!("cannot connect to {address}: {e}"))?;
    socket.set_nodelay(true)?;
    socket.set_read_timeout(Some(REPLY_WITHIN))?;
    Ok(socket)
}

impl Connection {
    pub(crate) fn open(address: &str) -> Result<Connection, Failure> {
        Ok(Connection { reader: BufReader::with_capacity(BUFFER, connect(address)?), line: Vec::new() })
    }

    /// Opens a connection with a small buffer, for workloads with thousands of connections.
    pub(crate) fn small(address: &str) -> Result<Connection, Failure> {
        Ok(Connection { reader: BufReader::with_capacity(1024, connect(address)?), line: Vec::new() })
    }

    pub(crate) fn socket(&self) -> &TcpStream {
        self.reader.get_ref()
    }

    /// Sends a command and returns its raw reply; fails on an error reply.
    pub(crate) fn call<A: AsRef<[u8]>>(&mut self, command: &[A]) -> Result<Vec<u8>, Failure> {
        self.send(&encoded(command))?;
        self.reply()
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

    pub(crate) fn send(&self, requests: &[u8]) -> io::Result<()> {
        self.socket().write_all(requests)
    }

    /// Returns the next raw reply; fails on an error reply.
    pub(crate) fn reply(&mut self) -> Result<Vec<u8>, Failure> {
        let mut reply = Vec::new();
        self.next_reply(Some(&mut reply))?;
        Ok(reply)
    }

    /// Skips `count` replies; fails on an error reply.
    pub(crate) fn skip(&mut self, count: usize) -> Result<(), Failure> {
        (0..count).try_for_each(|_| self.next_reply(None))
    }

    fn next_reply(&mut self, mut keep: Option<&mut Vec<u8>>) -> Result<(), Failure> {
        let (mut values, mut is_first) = (1, true);
        while values > 0 {
            self.line.clear();
            // A read with a timeout is interrupted when the virtual machine was paused; `read_until` then goes on.
            self.reader.read_until(b'\n', &mut self.line)?;
            let line = self.line.strip_suffix(b"\r\n").ok_or("the server closed the connection")?;
            let (kind, rest) = line.split_first().unwrap_or((&b'+', &[]));
            if is_first && *kind == b'-' {
                return Err(
                    format!("the server replied with an error: {}", String::from_utf8_lossy(rest)).into()
                );
            }
            let count = || std::str::from_utf8(rest).ok()?.parse::<u64>().ok();
            let (more, bulk) = match kind {
                b'*' => (count().unwrap_or(0), 0),
                b'$' => (0, count().map_or(0, |len| len + 2)),
                _ => (0, 0),
            };
            values = values - 1 + more;
            is_first = false;
            if let Some(keep) = &mut keep {
                keep.extend_from_slice(&self.line);
                self.reader.by_ref().take(bulk).read_to_end(keep)?;
            } else {
                self.skip_bytes(bulk as usize)?;
            }
        }
        Ok(())
    }

    fn skip_bytes(&mut self, mut left: usize) -> Result<(), Failure> {
        while left > 0 {
            let available = match self.reader.fill_buf() {
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                received => received?.len(),
            };
            if available == 0 {
                return Err("the server closed the connection".into());
            }
            let taken = available.min(left);
            self.reader.consume(taken);
            left -= taken;
        }
        Ok(())
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

/// Returns a command in wire format.
pub(crate) fn encoded<A: AsRef<[u8]>>(command: &[A]) -> Vec<u8> {
    let mut out = Vec::new();
    encode(&mut out, command);
    out
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    /// Returns a connection to a server that sends these bytes and closes.
    fn receiving(bytes: &[u8]) -> Connection {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let connection = Connection::small(&listener.local_addr().unwrap().to_string()).unwrap();
        listener.accept().unwrap().0.write_all(bytes).unwrap();
        connection
    }

    #[test]
    fn replies_are_kept_or_skipped_as_a_whole() {
        let long = format!("$5000\r\n{}\r\n", "x".repeat(5000));
        let replies = ["+OK\r\n", ":1\r\n", "$-1\r\n", "*-1\r\n", "*0\r\n", "$2\r\na\n\r\n", &long];
        let nested = "*2\r\n*1\r\n$1\r\ns\r\n*2\r\n:1\r\n-ERR inside an array does not count\r\n";
        for reply in replies.into_iter().chain([nested]) {
            let mut connection = receiving(format!("{reply}{reply}:7\r\n").as_bytes());
            assert_eq!(connection.reply().unwrap(), reply.as_bytes());
            connection.skip(1).unwrap();
            assert_eq!(connection.reply().unwrap(), b":7\r\n");
            assert!(connection.reply().is_err());
        }
        let error = receiving(b"-ERR no\r\n").skip(1).unwrap_err().to_string();
        assert_eq!(error, "the server replied with an error: ERR no");
    }

    #[test]
    fn commands_are_arrays_of_bulk_strings() {
        assert_eq!(encoded(&["XLEN", "s"]), b"*2\r\n$4\r\nXLEN\r\n$1\r\ns\r\n");
    }
}
