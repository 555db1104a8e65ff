//! A client's socket after the TLS handshake.

use std::io::{self, IoSlice, Read, Write};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use rustls::ServerConnection;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// Approximate memory of an idle session: keys, hashes, the client's certificate, and rustls' buffer of 4 KiB.
const SESSION_BYTES: usize = 13 * 1024;
/// Maximum size of a record. The session keeps the beginning of one at most.
const RECORD_BYTES_MAX: usize = 5 + 16 * 1024 + 2048;
/// Maximum size of the records without plaintext that one read receives.
const RECEIVED_BYTES_MAX: usize = 64 * 1024;

/// A socket whose client has completed the TLS handshake.
pub(crate) struct TlsStream {
    socket: TcpStream,
    session: Box<ServerConnection>,
    /// Bytes of records that the last read has received.
    received: usize,
    /// Maximum number of received bytes that the session keeps: plaintext, and the beginning of a record.
    kept: usize,
    unsent: usize,
}

impl TlsStream {
    pub(super) fn new(socket: TcpStream, session: Box<ServerConnection>) -> TlsStream {
        TlsStream { socket, session, received: 0, kept: 0, unsent: 0 }
    }

    /// Encrypts and sends as much as the socket takes without blocking. Up to 64 KiB that the socket does not take
    /// (rustls' limit) are kept, count as written, and are sent by the next call or by `poll_flush`.
    pub(crate) fn write_now(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut written = 0;
        while self.send_kept()? && written < bytes.len() {
            match self.session.writer().write(&bytes[written..])? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                count => written += count,
            }
        }
        match written {
            0 => Err(io::ErrorKind::WouldBlock.into()),
            written => Ok(written),
        }
    }

    pub(crate) fn unsent_bytes(&self) -> usize {
        self.unsent
    }

    /// Bytes of records that the last read has received. Tiny records have many times as many bytes as their plaintext.
    pub(crate) fn received_bytes(&self) -> usize {
        self.received
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        SESSION_BYTES + self.kept + self.unsent
    }

    /// Sends records that the socket did not take before. Returns whether all are sent.
    fn send_kept(&mut self) -> io::Result<bool> {
        let is_all = send(&self.socket, &mut self.session)?;
        self.unsent = match is_all {
            true => 0,
            false => self.session.process_new_packets().map_err(io::Error::other)?.tls_bytes_to_write(),
        };
        Ok(is_all)
    }
}

/// Receives some bytes of records. Returns 0 if the client sends no more.
pub(super) fn poll_receive(
    socket: &mut TcpStream,
    session: &mut ServerConnection,
    cx: &mut Context<'_>,
) -> Poll<io::Result<usize>> {
    match session.read_tls(&mut Receiver(socket, cx)) {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Poll::Pending,
        received => Poll::Ready(received),
    }
}

/// Sends until the socket takes no more. Returns whether all records are sent.
pub(super) fn send(socket: &TcpStream, session: &mut ServerConnection) -> io::Result<bool> {
    while session.wants_write() {
        match session.write_tls(&mut Sender(socket)) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}

/// Reads without blocking, and wakes the task when there is more.
struct Receiver<'a, 'b>(&'a mut TcpStream, &'a mut Context<'b>);

impl Read for Receiver<'_, '_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let mut into = ReadBuf::new(into);
        match Pin::new(&mut *self.0).poll_read(self.1, &mut into) {
            Poll::Ready(result) => result.map(|()| into.filled().len()),
            Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
        }
    }
}

struct Sender<'a>(&'a TcpStream);

impl Write for Sender<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.try_write(bytes)
    }

    fn write_vectored(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        self.0.try_write_vectored(pieces)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl AsyncRead for TlsStream {
    /// Reads until the socket has no more, `into` is full, or as many bytes of records were received as `into` has room
    /// for: rustls receives at most 4 KiB at a time.
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        this.received = 0;
        while into.remaining() > 0 {
            // Not if there is plaintext, or if the client has announced the end.
            let count = match this.session.wants_read() {
                true => match poll_receive(&mut this.socket, &mut this.session, cx) {
                    Poll::Ready(Ok(0)) => break,
                    Poll::Ready(Ok(count)) => count,
                    _ if !into.filled().is_empty() => break,
                    received => ready!(received)?,
                },
                false => 0,
            };
            this.received += count;
            this.kept = (this.kept + count).min(RECORD_BYTES_MAX);
            let state = this.session.process_new_packets();
            // Also if that has failed: rustls tells the client why.
            let sent = this.send_kept();
            let plaintext = state.map_err(io::Error::other)?.plaintext_bytes_to_read();
            sent?;
            if plaintext > 0 {
                let read = this.session.reader().read(into.initialize_unfilled())?;
                into.advance(read);
                this.kept = plaintext - read + count;
            } else if count == 0 {
                break;
            }
            // A client that sends tiny or empty records must not hold up the others of this thread.
            match into.filled().is_empty() {
                false if this.received >= into.capacity() => break,
                true if this.received >= RECEIVED_BYTES_MAX => {
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
                _ => {}
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for TlsStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        ready!(Pin::new(&mut *this).poll_flush(cx))?;
        Poll::Ready(this.write_now(bytes))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        while !this.send_kept()? {
            ready!(this.socket.poll_write_ready(cx))?;
        }
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().socket).poll_shutdown(cx)
    }
}

impl Drop for TlsStream {
    /// Tells the client that the connection ends here, and was not cut. Does not wait if the socket is full. After a
    /// panic, the session could panic again, and that would end the server.
    fn drop(&mut self) {
        if !std::thread::panicking() && !self.session.wants_write() {
            self.session.send_close_notify();
            let _ = send(&self.socket, &mut self.session);
        }
    }
}
