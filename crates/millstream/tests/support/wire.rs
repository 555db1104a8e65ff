//! A blocking client over one TCP connection. Every reply is kept as the bytes that came and as a value.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use super::resp::{self, Value};

/// How long a reply may take before a suite calls it missing.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// One reply.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Reply {
    /// Exactly what came over the wire.
    pub raw: Vec<u8>,
    /// The same, decoded.
    pub value: Value,
}

/// What waiting for a reply came to.
#[derive(Debug, PartialEq)]
pub(crate) enum Outcome {
    /// A complete reply.
    Reply(Reply),
    /// Nothing, or not all of it, in the time allowed.
    Silence,
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
    /// Connects, in RESP2 as every connection begins.
    pub(crate) fn connect(port: u16) -> std::io::Result<Client> {
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        let stream = TcpStream::connect_timeout(&address, PATIENCE)?;
        stream.set_nodelay(true)?;
        Ok(Client { stream, received: Vec::new(), consumed: 0, closed: false })
    }

    /// Sends one command and does not wait. A connection that is already gone shows at the next read.
    pub(crate) fn send<A: AsRef<[u8]>>(&mut self, argv: &[A]) {
        self.send_raw(&resp::encode(argv));
    }

    /// Sends bytes as they are.
    pub(crate) fn send_raw(&mut self, bytes: &[u8]) {
        if self.stream.write_all(bytes).is_err() {
            self.closed = true;
        }
    }

    /// The next reply, waiting at most `within`.
    ///
    /// # Panics
    /// When the server sends something that is not RESP.
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
                return Outcome::Silence;
            }
            self.receive(left);
        }
    }

    /// The next reply, which must come.
    ///
    /// # Panics
    /// When it does not.
    pub(crate) fn reply(&mut self) -> Reply {
        match self.next(PATIENCE) {
            Outcome::Reply(reply) => reply,
            other => panic!("expected a reply, got {other:?}"),
        }
    }

    /// Sends one command and waits for its reply.
    pub(crate) fn call<A: AsRef<[u8]>>(&mut self, argv: &[A]) -> Value {
        self.send(argv);
        self.reply().value
    }

    /// Exactly the next `count` bytes, or fewer when the connection closes or time runs out.
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

    /// Whether anything has come that was not read yet.
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
