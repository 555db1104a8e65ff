//! A blocking client over one TCP connection. It keeps every reply as raw bytes and as a decoded value.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use super::resp::{self, Value};

/// Longest wait for a reply before a suite treats it as missing.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(60);

/// One reply.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Reply {
    /// Exact bytes received.
    pub raw: Vec<u8>,
    /// The decoded value.
    pub value: Value,
}

/// Result of waiting for a reply.
#[derive(Debug, PartialEq)]
pub(crate) enum Outcome {
    /// A complete reply.
    Reply(Reply),
    /// No complete reply arrived in time.
    TimedOut,
    /// The server closed the connection.
    Closed,
}

/// A connection to a server.
pub(crate) struct Client {
    stream: TcpStream,
    received: Vec<u8>,
    consumed: usize,
    closed: bool,
}

impl Client {
    /// Connects. Every connection starts with RESP2.
    pub(crate) fn connect(port: u16) -> std::io::Result<Client> {
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        let stream = TcpStream::connect_timeout(&address, TIMEOUT)?;
        stream.set_nodelay(true)?;
        Ok(Client { stream, received: Vec::new(), consumed: 0, closed: false })
    }

    /// Sends one command without waiting for its reply. If the connection is closed, the next read reports it.
    pub(crate) fn send<A: AsRef<[u8]>>(&mut self, argv: &[A]) {
        self.send_raw(&resp::encode(argv));
    }

    /// Sends raw bytes.
    pub(crate) fn send_raw(&mut self, bytes: &[u8]) {
        if self.stream.write_all(bytes).is_err() {
            self.closed = true;
        }
    }

    /// Waits for the next reply, at most `within`.
    ///
    /// # Panics
    /// If the server sends bytes that are not RESP.
    pub(crate) fn next(&mut self, within: Duration) -> Outcome {
        let deadline = Instant::now() + within;
        loop {
            if let Some(reply) = self.complete() {
                return Outcome::Reply(reply);
            }
            if self.closed {
                return Outcome::Closed;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Outcome::TimedOut;
            }
            self.receive(left);
        }
    }

    /// Waits for the next reply, which must arrive.
    ///
    /// # Panics
    /// If it does not arrive in time, or the server closes the connection.
    pub(crate) fn reply(&mut self) -> Reply {
        match self.next(TIMEOUT) {
            Outcome::Reply(reply) => reply,
            other => panic!("expected a reply, got {other:?}"),
        }
    }

    /// Sends one command and returns its reply.
    pub(crate) fn call<A: AsRef<[u8]>>(&mut self, argv: &[A]) -> Value {
        self.send(argv);
        self.reply().value
    }

    /// Returns the next `count` bytes, or fewer if the connection closes or the time is over.
    pub(crate) fn bytes(&mut self, count: usize, within: Duration) -> Vec<u8> {
        let deadline = Instant::now() + within;
        while self.received.len() - self.consumed < count && !self.closed {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            self.receive(left);
        }
        let end = self.received.len().min(self.consumed + count);
        let bytes = self.received[self.consumed..end].to_vec();
        self.consumed = end;
        bytes
    }

    /// Whether unread bytes have arrived or the connection is closed.
    pub(crate) fn has_input(&mut self) -> bool {
        self.receive(Duration::from_millis(1));
        self.received.len() > self.consumed || self.closed
    }

    fn complete(&mut self) -> Option<Reply> {
        let pending = &self.received[self.consumed..];
        let (value, length) = resp::decode(pending).unwrap_or_else(|error| panic!("{error}"))?;
        let raw = pending[..length].to_vec();
        self.consumed += length;
        if self.consumed == self.received.len() {
            self.received.clear();
            self.consumed = 0;
        }
        Some(Reply { raw, value })
    }

    fn receive(&mut self, within: Duration) {
        self.stream.set_read_timeout(Some(within)).expect("a timeout above zero");
        let mut chunk = [0; 64 * 1024];
        match self.stream.read(&mut chunk) {
            Ok(0) => self.closed = true,
            Ok(count) => self.received.extend_from_slice(&chunk[..count]),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => self.closed = true,
        }
    }
}
