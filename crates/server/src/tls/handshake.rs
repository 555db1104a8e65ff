//! TLS handshakes.
//!
//! A handshake takes up to a millisecond of CPU time. The thread that serves a client reads and sends the bytes of the
//! client's handshake, but one thread of low priority computes for all of them. So the other clients are served
//! meanwhile, however many handshakes there are.

use std::fmt;
use std::future::poll_fn;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, mpsc};
use std::thread;

use rustls::{ServerConfig, ServerConnection};
use tokio::net::TcpStream;
use tokio::sync::oneshot;

use super::stream::{TlsStream, poll_receive, send};

/// The thread that computes handshakes. It ends when this handle is dropped.
pub(super) struct HandshakeThread {
    jobs: mpsc::Sender<Box<dyn FnOnce() + Send>>,
}

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

    /// Processes what has arrived, on the thread. If the connection ends before its turn, nothing is computed.
    async fn advance(
        &self,
        mut session: Box<ServerConnection>,
    ) -> io::Result<(Box<ServerConnection>, Result<(), rustls::Error>)> {
        let (sender, receiver) = oneshot::channel();
        let job = move || {
            if !sender.is_closed() {
                let result = session.process_new_packets().map(drop);
                let _ = sender.send((session, result));
            }
        };
        let ended = || io::Error::other("the handshake panicked");
        self.jobs.send(Box::new(job)).map_err(|_| ended())?;
        receiver.await.map_err(|_| ended())
    }

    pub(super) async fn run(
        &self,
        config: Arc<ServerConfig>,
        mut socket: TcpStream,
    ) -> Result<TlsStream, HandshakeError> {
        let mut session = Box::new(ServerConnection::new(config)?);
        let mut has_begun = false;
        while session.is_handshaking() {
            match poll_fn(|cx| poll_receive(&mut socket, &mut session, cx)).await? {
                0 if has_begun => return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
                0 => return Err(HandshakeError::NotBegun),
                _ => has_begun = true,
            }
            let result;
            (session, result) = self.advance(session).await?;
            // If rustls rejects the message, this is an alert.
            while !send(&socket, &mut session)? {
                socket.writable().await?;
            }
            result?;
        }
        Ok(TlsStream::new(socket, session))
    }
}
