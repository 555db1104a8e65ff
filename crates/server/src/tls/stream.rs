//! A client's socket after the TLS handshake.
//!
//! Records are decrypted and encrypted in one buffer per thread. A connection itself keeps only the beginning of a record
//! that has not arrived completely, and records that the socket did not take.

use std::cell::RefCell;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use rustls::server::UnbufferedServerConnection;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use super::records;

/// Maximum bytes of plaintext that are encrypted before the socket must take their records.
const ENCRYPTED_BYTES: usize = 64 * 1024;
/// Size of the thread's buffer. Encryption adds up to 30 bytes to every 16 KiB, and the session's own records.
const BUFFER_BYTES: usize = ENCRYPTED_BYTES + 4 * 1024;
/// Maximum length of a record: a header, 16 KiB of plaintext, and what encryption may add.
const RECORD_BYTES_MAX: usize = 5 + (16 << 10) + 2048;
/// Approximate memory of an idle session: keys, hashes and the client's certificate.
const SESSION_BYTES: usize = 9 * 1024;

thread_local! {
    static BUFFER: RefCell<Box<[u8]>> = RefCell::new(vec![0; BUFFER_BYTES].into());
}

/// A socket whose client has completed the TLS handshake.
pub(crate) struct TlsStream {
    socket: TcpStream,
    session: Box<UnbufferedServerConnection>,
    /// Plaintext that arrived with the last message of the handshake.
    early: Vec<u8>,
    /// Received bytes that the session has not used: the beginning of a record.
    incoming: Vec<u8>,
    /// Records that the socket did not take. `sent` bytes of them are sent.
    outgoing: Vec<u8>,
    sent: usize,
    /// Bytes of records that the last read has received.
    received: usize,
    /// Whether the client sends no more data.
    is_closed: bool,
    /// Whether the session has failed. rustls panics if a failed session is used again.
    has_failed: bool,
}

impl TlsStream {
    /// Minimum size of a buffer to read into: the plaintext of a whole record must fit.
    pub(crate) const READ_BYTES_MIN: usize = RECORD_BYTES_MAX + 1;

    pub(super) fn new(
        socket: TcpStream,
        session: Box<UnbufferedServerConnection>,
        mut early: Vec<u8>,
        mut incoming: Vec<u8>,
        is_closed: bool,
    ) -> TlsStream {
        early.shrink_to_fit();
        incoming.shrink_to_fit();
        TlsStream {
            socket,
            session,
            early,
            incoming,
            outgoing: Vec::new(),
            sent: 0,
            received: 0,
            is_closed,
            has_failed: false,
        }
    }

    /// Encrypts and sends as much as the socket takes without blocking. Up to [`ENCRYPTED_BYTES`] that the socket does not
    /// take are kept, count as written, and are sent by the next call or by `poll_flush`.
    pub(crate) fn write_now(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if !self.send_kept()? {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let mut written = 0;
        BUFFER.with_borrow_mut(|buffer| {
            while written < bytes.len() && self.unsent_bytes() == 0 {
                let end = bytes.len().min(written + ENCRYPTED_BYTES);
                let plaintext = &bytes[written..end];
                let length = records::encrypt(&mut self.session, &mut self.incoming, plaintext, buffer)
                    .inspect_err(|_| self.has_failed = true)
                    .map_err(io::Error::other)?;
                let sent = send(&self.socket, &buffer[..length])?;
                self.outgoing.extend_from_slice(&buffer[sent..length]);
                written = end;
            }
            Ok(written)
        })
    }

    /// Bytes of records that the socket did not take.
    pub(crate) fn unsent_bytes(&self) -> usize {
        self.outgoing.len() - self.sent
    }

    /// Bytes of records that the last read has received. Tiny records have many times as many bytes as their plaintext.
    pub(crate) fn received_bytes(&self) -> usize {
        self.received
    }

    /// Approximate memory of the session and its buffers.
    pub(crate) fn memory_bytes(&self) -> usize {
        SESSION_BYTES + self.early.capacity() + self.incoming.capacity() + self.outgoing.capacity()
    }

    /// Sends records that the socket did not take before. Returns whether all are sent.
    fn send_kept(&mut self) -> io::Result<bool> {
        self.sent += send(&self.socket, &self.outgoing[self.sent..])?;
        let is_all = self.sent == self.outgoing.len();
        if is_all && self.sent > 0 {
            (self.outgoing, self.sent) = (Vec::new(), 0);
        }
        Ok(is_all)
    }

    /// Reads records and decrypts them into `into`, which must have room for as much plaintext as the buffer has records.
    fn poll_decrypt(&mut self, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        BUFFER.with_borrow_mut(|buffer| {
            while into.filled().is_empty() && !self.is_closed {
                let kept = self.incoming.len();
                let end = buffer.len().min(into.remaining());
                if kept >= end {
                    return Poll::Ready(Err(io::Error::other("the client sent a record that is too long")));
                }
                let mut fresh = ReadBuf::new(&mut buffer[kept..end]);
                ready!(Pin::new(&mut self.socket).poll_read(cx, &mut fresh))?;
                let end = kept + fresh.filled().len();
                self.received += end - kept;
                if end == kept {
                    self.is_closed = true;
                    break;
                }
                buffer[..kept].copy_from_slice(&self.incoming);
                let (records, outgoing) = (&mut buffer[..end], &mut self.outgoing);
                let received = records::receive(&mut self.session, records, outgoing, |plaintext| {
                    into.put_slice(plaintext)
                });
                self.incoming = records[received.used..].to_vec();
                self.is_closed = received.is_closed;
                self.has_failed = received.result.is_err();
                // The session's own records, such as an alert. A client that makes the server send many must read them.
                self.send_kept()?;
                if self.unsent_bytes() > ENCRYPTED_BYTES {
                    return Poll::Ready(Err(io::Error::other("the client does not read")));
                }
                received.result.map_err(io::Error::other)?;
            }
            Poll::Ready(Ok(()))
        })
    }
}

/// Sends until the socket takes no more. Returns the number of bytes it took.
pub(super) fn send(socket: &TcpStream, bytes: &[u8]) -> io::Result<usize> {
    let mut sent = 0;
    while sent < bytes.len() {
        match socket.try_write(&bytes[sent..]) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => sent += count,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
            Err(error) => return Err(error),
        }
    }
    Ok(sent)
}

impl AsyncRead for TlsStream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        this.received = 0;
        if !this.early.is_empty() {
            let count = this.early.len().min(into.remaining());
            into.put_slice(&this.early[..count]);
            this.early.drain(..count);
            return Poll::Ready(Ok(()));
        }
        this.poll_decrypt(cx, into)
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
    /// Tells the client that the connection ends here, and was not cut. Does not wait if the socket is full. After a panic,
    /// the session could panic again, and that would end the server.
    fn drop(&mut self) {
        let mut record = [0; 256];
        if !self.has_failed
            && !std::thread::panicking()
            && self.unsent_bytes() == 0
            && let Ok(length) = records::close_notify(&mut self.session, &mut self.incoming, &mut record)
        {
            let _ = self.socket.try_write(&record[..length]);
        }
    }
}
