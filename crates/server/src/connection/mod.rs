//! A connection: bytes in, commands, bytes out.
//!
//! ```text
//! poll:  read into the thread's buffer -> decode and run everything in it -> write once
//! ```
//!
//! All of that happens in one poll, so it borrows the thread's buffers and the connection keeps only what is
//! left over: the beginning of a request, replies that the peer has not taken, commands after one that
//! waits. While replies are left over nothing is read or run, so a peer that does not read holds one batch
//! at most.
//!
//! A panic in a command ends this connection's task and nothing else: tokio catches it, the buffers are
//! cleared before their next use, and locks are freed as the stack unwinds. What the command had applied
//! stays applied.

mod leftover;
mod long_reply;
mod stall;

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, ready};

use millstream_protocol::resp::{Args, Decoder, Limits, PLAIN_ARGS_MAX, ProtocolError, Writer};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};

use crate::command::{Batch, CommandContext, LongReply};
use crate::dispatch::Step;
use crate::held;
use crate::io_thread::{Buffers, give_back, spare_buffer, with_buffers};
use crate::registry::Client;
use crate::session::Session;
use crate::settings::Id;
use crate::state::Server;
use crate::stats::{Event, ThreadStats};
use crate::table::COMMANDS;
use crate::waiting::Waiting;
use leftover::{Input, Output};

/// When a batch's replies exceed this they are sent before it goes on.
const FLUSH_BYTES: usize = 1024 * 1024;
/// Replies of so many bytes are not held with those of the round, if writing the log lets them go: by the time the round
/// ends they would have left the processor's cache.
const LONG_BYTES: usize = 4096;
/// What a peer that has not given the password may send of one request.
const UNAUTHENTICATED_INPUT_BYTES: usize = 1024 * 1024;

/// A client's socket. To write at once is cheaper than to ask the runtime first whether that would wait.
pub(crate) trait Socket: AsyncRead + AsyncWrite + Unpin {
    /// Writes what the peer takes now; `WouldBlock` if that is nothing.
    fn write_now(&self, bytes: &[u8]) -> io::Result<usize>;
}

impl Socket for TcpStream {
    fn write_now(&self, bytes: &[u8]) -> io::Result<usize> {
        self.try_write(bytes)
    }
}

impl Socket for UnixStream {
    fn write_now(&self, bytes: &[u8]) -> io::Result<usize> {
        self.try_write(bytes)
    }
}

/// A client's connection, without the socket.
pub(crate) struct Connection {
    server: Arc<Server>,
    stats: Arc<ThreadStats>,
    session: Session,
    decoder: Decoder,
    input: Input,
    output: Output,
    /// The log's position that must be settled before `output` may be sent.
    owed: Option<u64>,
}

/// The decision at the end of a batch: what the connection does after it has sent the replies.
enum Next {
    /// It reads on: everything complete was run.
    Read,
    /// It sends, and goes on with the batch after others had their turn.
    Yield,
    /// It waits for the reply of a command.
    Wait(Box<Waiting>),
    /// It writes the rest of a reply, for so many bytes at most.
    Long(Box<LongReply>, usize),
    /// It holds commands back until this uptime, in nanoseconds.
    Hold { until_ns: u64 },
    /// It ends.
    Close,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.session.unwatch(&self.server);
        self.server.clients.remove(self.session.client.id);
    }
}

impl Connection {
    pub(crate) fn new(server: Arc<Server>, stats: Arc<ThreadStats>, client: Arc<Client>) -> Connection {
        let session = Session::new(client, &server);
        let decoder = Decoder::new(limits(&server, session.authenticated));
        Connection {
            server,
            stats,
            session,
            decoder,
            input: Input::default(),
            output: Output::default(),
            owed: None,
        }
    }

    /// Serves the peer until one of the two has enough.
    pub(crate) async fn serve(mut self, mut stream: impl Socket) {
        poll_fn(|cx| {
            self.session.client.wake_with(cx.waker());
            Poll::Ready(())
        })
        .await;
        loop {
            let next = poll_fn(|cx| self.poll_batch(cx, &mut stream)).await;
            if self.owed.is_some() && !self.settle().await {
                return;
            }
            if !self.output.is_empty() && !self.flush(&mut stream).await {
                return;
            }
            match next {
                Next::Read => {}
                Next::Yield => tokio::task::yield_now().await,
                Next::Wait(waiting) => {
                    if !self.wait(*waiting, &mut stream).await {
                        return;
                    }
                }
                Next::Long(reply, bytes_max) => {
                    if !self.send_long(*reply, bytes_max, &mut stream).await {
                        return;
                    }
                }
                Next::Hold { until_ns } => {
                    if !self.hold(until_ns, &mut stream).await {
                        return;
                    }
                }
                Next::Close => return,
            }
        }
    }

    /// Reads, runs what is complete, and writes as much as the peer takes at once.
    fn poll_batch(&mut self, cx: &mut Context<'_>, stream: &mut impl Socket) -> Poll<Next> {
        if self.session.client.is_killed() {
            return Poll::Ready(Next::Close);
        }
        with_buffers(self.session.resp3, |Buffers { input, output }| {
            let fresh = match self.input.runnable {
                true => &[],
                false => match ready!(self.poll_read(cx, stream, input)) {
                    Ok(0) | Err(_) => return Poll::Ready(Next::Close),
                    Ok(count) => &input[..count],
                },
            };
            let next = self.run(fresh, output);
            if output.len() >= LONG_BYTES
                && self.owed.is_some_and(|position| self.server.store.settle_now(position))
            {
                self.owed = None;
            }
            if self.owed.is_some() && !output.is_empty() {
                self.output.keep(&mut output.buf, 0);
                output.buf = spare_buffer();
            } else if self.write_first(stream, output).is_err() {
                return Poll::Ready(Next::Close);
            }
            Poll::Ready(next)
        })
    }

    /// What was seen must be safe before it is told.
    fn owe(&mut self) {
        let store = &self.server.store;
        let seen = store.seen();
        self.owed = (!store.is_settled(seen)).then_some(seen);
    }

    /// Waits until what the replies tell is safe. False: it never will be, and nothing is told.
    async fn settle(&mut self) -> bool {
        match self.owed.take() {
            Some(position) => held::until_settled(&self.server, position).await,
            None => true,
        }
    }

    /// Runs every request that is complete: what was left over, then what is fresh. Keeps the rest.
    fn run(&mut self, fresh: &[u8], out: &mut Writer) -> Next {
        let mut batch = Batch::begin(&self.server);
        self.decoder.set_limits(limits(&self.server, self.session.authenticated));
        self.session.client.active_at_ms.store(batch.uptime_ms, Ordering::Relaxed);
        let next = if self.input.bytes.is_empty() {
            let (used, next) = self.run_requests(fresh, out, &mut batch);
            self.input.bytes.extend_from_slice(&fresh[used..]);
            next
        } else {
            let mut bytes = std::mem::take(&mut self.input.bytes);
            bytes.extend_from_slice(fresh);
            let (used, next) = self.run_requests(&bytes, out, &mut batch);
            self.input.keep(bytes, used);
            next
        };
        batch.end_lap(&self.server, &self.stats);
        self.input.runnable = !matches!(next, Next::Read);
        if batch.saw_data {
            self.owe();
        } else {
            held::note_free();
        }
        self.publish();
        match next {
            Next::Read if self.input_is_too_long() => {
                self.server.stats.note(Event::QueryLimitClose);
                Next::Close
            }
            next => next,
        }
    }

    /// Runs requests until one is incomplete or something else must happen first. Returns the bytes used.
    fn run_requests(&mut self, bytes: &[u8], out: &mut Writer, batch: &mut Batch) -> (usize, Next) {
        let Connection { server, stats, session, decoder, .. } = self;
        let commands = &COMMANDS;
        let mut context = CommandContext { server, stats, session, batch, commands, is_short: false };
        let reply_bytes_max = match server.settings.size(Id::ClientOutputBufferLimit) {
            0 => usize::MAX,
            limit => limit,
        };
        // What the last request had locked, which the next may need too.
        let mut open = None;
        let mut used = 0;
        let mut plain: [&[u8]; PLAIN_ARGS_MAX] = [&[]; PLAIN_ARGS_MAX];
        loop {
            let mark = out.len();
            out.length_max = mark.saturating_add(reply_bytes_max);
            // What is not plain lies elsewhere.
            let mut decoded = Args::new();
            let found = decoder.next_plain(&bytes[used..], &mut plain);
            context.is_short = found.is_some();
            let (argv, size) = match found {
                Some((count, size)) => (&plain[..count], size),
                None => match decoder.next(&bytes[used..]) {
                    Ok(Some(size)) => {
                        decoded = decoder.args(&bytes[used..]);
                        (&decoded[..], size)
                    }
                    Ok(None) => return (used, Next::Read),
                    Err(error) => return (used, refuse(server, error, out)),
                },
            };
            let step = match argv {
                // An empty line, or an array of nothing.
                [] => Step::Done,
                argv => context.run(argv, out, &mut open),
            };
            drop(decoded);
            match step {
                Step::Done => used += size,
                Step::Wait(waiting) => return (used + size, Next::Wait(waiting)),
                Step::Long(reply) => {
                    let written = out.len() - mark;
                    return (used + size, Next::Long(reply, reply_bytes_max.saturating_sub(written)));
                }
                Step::Hold { until_ns } => return (used, Next::Hold { until_ns }),
            }
            if context.session.authenticated != decoder.limits().authenticated {
                decoder.set_limits(limits(server, context.session.authenticated));
            }
            if out.len() - mark > reply_bytes_max {
                server.stats.note(Event::OutputLimitClose);
                out.truncate(mark);
                return (used, Next::Close);
            }
            if context.session.close {
                return (used, Next::Close);
            }
            if out.len() >= FLUSH_BYTES {
                return (used, Next::Yield);
            }
        }
    }

    fn input_is_too_long(&self) -> bool {
        let limit = match self.session.authenticated {
            true => self.server.settings.size(Id::ClientQueryBufferLimit),
            false => UNAUTHENTICATED_INPUT_BYTES,
        };
        let queued = self.session.transaction.as_ref().map_or(0, |transaction| transaction.memory_bytes);
        self.input.bytes.len() + queued > limit
    }

    fn publish(&self) {
        self.session.publish();
        self.session.client.input_bytes.store(self.input.bytes.len(), Ordering::Relaxed);
    }

    fn poll_read(
        &self,
        cx: &mut Context<'_>,
        stream: &mut (impl AsyncRead + Unpin),
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        let mut buffer = ReadBuf::new(buffer);
        ready!(Pin::new(stream).poll_read(cx, &mut buffer))?;
        let count = buffer.filled().len();
        self.stats.reads.add(1);
        self.stats.input_bytes.add(count as u64);
        Poll::Ready(Ok(count))
    }

    /// Writes once; what the peer does not take now is kept for [`flush`](Self::flush).
    fn write_first(&mut self, stream: &impl Socket, out: &mut Writer) -> io::Result<()> {
        if out.is_empty() {
            return Ok(());
        }
        let sent = match stream.write_now(&out.buf) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
            sent => self.count_write(sent?)?,
        };
        if sent < out.len() {
            self.output.keep(&mut out.buf, sent);
            self.session.client.output_bytes.store(self.output.unsent().len(), Ordering::Relaxed);
        }
        Ok(())
    }

    fn count_write(&self, sent: usize) -> io::Result<usize> {
        if sent == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        self.stats.writes.add(1);
        self.stats.output_bytes.add(sent as u64);
        Ok(sent)
    }

    /// Waits until the peer has taken everything. False: it will not.
    async fn flush(&mut self, stream: &mut (impl AsyncWrite + Unpin)) -> bool {
        while !self.output.is_empty() {
            let sent = poll_fn(|cx| {
                if self.session.client.is_killed() {
                    return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
                }
                Pin::new(&mut *stream).poll_write(cx, self.output.unsent())
            })
            .await;
            match sent.and_then(|sent| self.count_write(sent)) {
                Ok(sent) => self.output.advance(sent).map_or((), give_back),
                Err(_) => return false,
            }
            self.session.client.output_bytes.store(self.output.unsent().len(), Ordering::Relaxed);
        }
        true
    }
}

fn refuse(server: &Server, error: ProtocolError, out: &mut Writer) -> Next {
    server.stats.note_error(b"ERR");
    out.error(error.reply());
    Next::Close
}

fn limits(server: &Server, authenticated: bool) -> Limits {
    let bulk_bytes_max = server.settings.number(Id::ProtoMaxBulkLen).unsigned_abs();
    Limits { bulk_bytes_max, authenticated, ..Limits::default() }
}
