//! The sockets that a connection can have: TCP, Unix, and TCP with TLS.

use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};

use super::Connection;
use crate::event_log::EventKind;
use crate::registry::Client;
use crate::tls::{HandshakeError, TlsStream};

const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// A client's socket. Trying to write is cheaper than asking the runtime first whether the socket is writable.
///
/// A connection is compiled once per kind of socket, so the methods that only TLS needs cost the others nothing.
pub(crate) trait Socket: AsyncRead + AsyncWrite + Unpin {
    /// Writes as much as the socket takes without blocking; fails with `WouldBlock` if it takes no bytes.
    fn write_now(&mut self, bytes: &[u8]) -> io::Result<usize>;

    /// Bytes that count as written, but must still be flushed.
    fn unsent_bytes(&self) -> usize {
        0
    }

    /// Bytes that the last read took from the network, if it returned `count` bytes.
    fn received_bytes(&self, count: usize) -> usize {
        count
    }

    /// Publishes the memory that the socket needs beside the connection's.
    fn publish_memory(&self, _: &Client) {}
}

impl Socket for TcpStream {
    fn write_now(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.try_write(bytes)
    }
}

impl Socket for UnixStream {
    fn write_now(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.try_write(bytes)
    }
}

impl Socket for TlsStream {
    fn write_now(&mut self, bytes: &[u8]) -> io::Result<usize> {
        TlsStream::write_now(self, bytes)
    }

    fn unsent_bytes(&self) -> usize {
        TlsStream::unsent_bytes(self)
    }

    fn received_bytes(&self, _: usize) -> usize {
        TlsStream::received_bytes(self)
    }

    fn publish_memory(&self, client: &Client) {
        client.tls_bytes.store(self.memory_bytes(), Ordering::Relaxed);
    }
}

impl Connection {
    pub(crate) async fn serve_tls(self, socket: TcpStream) {
        let server = Arc::clone(&self.server);
        let client = Arc::clone(&self.session.client);
        let Some(tls) = &server.tls else { return };
        let killed = poll_fn(|cx| {
            client.set_waker(cx.waker());
            if client.is_killed() { Poll::Ready(()) } else { Poll::Pending }
        });
        let result = tokio::select! {
            biased;
            () = killed => return,
            result = tls.accept(socket) => result,
            () = tokio::time::sleep(HANDSHAKE_TIMEOUT) => {
                let error = "the client did not complete it in time";
                return server.note_event(EventKind::FailedHandshake, &client.addr, None, error);
            }
        };
        match result {
            Ok(stream) => {
                stream.publish_memory(&client);
                self.serve(stream).await;
            }
            Err(HandshakeError::NotBegun) => {}
            Err(error) => {
                server.note_event(EventKind::FailedHandshake, &client.addr, None, &error.to_string());
            }
        }
    }
}
