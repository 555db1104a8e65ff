//! TLS handshakes.
//!
//! A handshake takes up to a millisecond of CPU time. The thread that serves a client reads and sends the bytes of the
//! client's handshake, but one thread of low priority computes for all of them. So the other clients are served meanwhile,
//! however many handshakes there are.

use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, mpsc};
use std::thread;

use rustls::ServerConfig;
use rustls::server::UnbufferedServerConnection;
use tokio::net::TcpStream;
use tokio::sync::oneshot;

use super::records;
use super::stream::{TlsStream, send};

/// Maximum bytes per read during a handshake.
const READ_BYTES: usize = 4 * 1024;
/// Maximum bytes of unfinished messages that are kept for a client during the handshake.
const KEPT_BYTES_MAX: usize = 128 * 1024;

/// The thread that computes handshakes. It ends when this handle is dropped.
pub(super) struct HandshakeThread {
    jobs: mpsc::Sender<Box<dyn FnOnce() + Send>>,
}

/// Why a handshake failed.
pub(crate) enum HandshakeError {
    /// The client has closed the connection without sending anything, as a program does that only checks the port.
    NotBegun,
    /// The socket failed, or the client has closed it.
    Socket(io::Error),
    /// rustls rejected what the client sent.
    Tls(rustls::Error),
}

impl fmt::Display for HandshakeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HandshakeError::NotBegun => f.write_str("the client sent nothing"),
            HandshakeError::Socket(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                f.write_str("the client closed the connection")
            }
            HandshakeError::Socket(error) => error.fmt(f),
            HandshakeError::Tls(error) => error.fmt(f),
        }
    }
}

impl From<io::Error> for HandshakeError {
    fn from(error: io::Error) -> Self {
        HandshakeError::Socket(error)
    }
}

impl From<rustls::Error> for HandshakeError {
    fn from(error: rustls::Error) -> Self {
        HandshakeError::Tls(error)
    }
}

/// An unfinished handshake.
struct Handshake {
    session: Box<UnbufferedServerConnection>,
    incoming: Vec<u8>,
    outgoing: Vec<u8>,
    /// Requests that the client sent together with its last message.
    early: Vec<u8>,
    is_closed: bool,
    result: Result<(), rustls::Error>,
}

impl Handshake {
    /// Processes what has arrived.
    fn advance(mut self) -> Handshake {
        let early = &mut self.early;
        let received =
            records::receive(&mut self.session, &mut self.incoming, &mut self.outgoing, |plaintext| {
                early.extend_from_slice(plaintext)
            });
        self.incoming.drain(..received.used);
        self.is_closed = received.is_closed;
        self.result = received.result;
        self
    }
}

impl HandshakeThread {
    pub(super) fn start() -> io::Result<HandshakeThread> {
        let (jobs, queue) = mpsc::channel::<Box<dyn FnOnce() + Send>>();
        thread::Builder::new().name("tls".to_owned()).spawn(move || {
            millstream_store::priority::lower();
            for job in queue {
                // A panic ends only the connection whose handshake this is.
                let _ = catch_unwind(AssertUnwindSafe(job));
            }
        })?;
        Ok(HandshakeThread { jobs })
    }

    /// Advances a handshake on the thread. If the connection ends before its turn, nothing is computed.
    async fn advance(&self, handshake: Handshake) -> Result<Handshake, HandshakeError> {
        let (sender, receiver) = oneshot::channel();
        let job = move || {
            if !sender.is_closed() {
                let _ = sender.send(handshake.advance());
            }
        };
        let ended = || io::Error::other("the handshake panicked");
        self.jobs.send(Box::new(job)).map_err(|_| ended())?;
        receiver.await.map_err(|_| ended().into())
    }

    /// Does the handshake with a client.
    pub(super) async fn run(
        &self,
        config: Arc<ServerConfig>,
        socket: TcpStream,
    ) -> Result<TlsStream, HandshakeError> {
        let mut handshake = Handshake {
            session: Box::new(UnbufferedServerConnection::new(config)?),
            incoming: Vec::new(),
            outgoing: Vec::new(),
            early: Vec::new(),
            is_closed: false,
            result: Ok(()),
        };
        let mut has_begun = false;
        while handshake.session.is_handshaking() {
            match receive(&socket, &mut handshake.incoming).await {
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof && !has_begun => {
                    return Err(HandshakeError::NotBegun);
                }
                received => received?,
            }
            has_begun = true;
            handshake = self.advance(handshake).await?;
            send_all(&socket, &handshake.outgoing).await?;
            handshake.outgoing.clear();
            handshake.result.clone()?;
            if handshake.incoming.len() > KEPT_BYTES_MAX {
                return Err(io::Error::other("the client's messages are too long").into());
            }
        }
        let Handshake { session, incoming, early, is_closed, .. } = handshake;
        Ok(TlsStream::new(socket, session, early, incoming, is_closed))
    }
}

/// Waits for bytes and appends them.
async fn receive(socket: &TcpStream, incoming: &mut Vec<u8>) -> io::Result<()> {
    loop {
        socket.readable().await?;
        let begin = incoming.len();
        incoming.resize(begin + READ_BYTES, 0);
        let result = socket.try_read(&mut incoming[begin..]);
        incoming.truncate(begin + *result.as_ref().unwrap_or(&0));
        match result {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(_) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
}

async fn send_all(socket: &TcpStream, bytes: &[u8]) -> io::Result<()> {
    let mut sent = 0;
    loop {
        sent += send(socket, &bytes[sent..])?;
        if sent == bytes.len() {
            return Ok(());
        }
        socket.writable().await?;
    }
}
