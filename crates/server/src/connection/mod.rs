//! A connection: reads requests, runs them and sends the replies.
//!
//! ```text
//! poll:  read into the thread's buffer -> decode and run all complete requests in it -> write once
//! ```
//!
//! All of this happens in one poll and uses the thread's buffers. Between polls the connection keeps only the
//! left-over bytes: the beginning of a request, requests after one that blocks, and replies not sent yet. It reads
//! and runs nothing while it has unsent replies, so a client that does not read its replies costs the memory of one
//! batch at most.
//!
//! A panic in a command ends only this connection's task: tokio catches the panic, the buffers are cleared before their
//! next use, and the locks are released as the stack unwinds. Changes that the command has applied stay applied.

mod leftover;
mod logged_out;
mod long_reply;
#[cfg(test)]
mod record_limit_tests;
mod socket;
mod stall;

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};

use millstream_protocol::resp::{Decoder, Limits, PLAIN_ARGS_MAX, ProtocolError, RequestArgs, Writer};
use tokio::io::{AsyncRead, ReadBuf};

use crate::acl::User;
use crate::blocked::BlockedClient;
use crate::command::{Batch, CommandContext, LongReply};
use crate::deferred_replies;
use crate::dispatch::AfterRequest;
use crate::event_log::EventKind;
use crate::io_thread::{Buffers, INPUT_BYTES, recycle, spare_buffer, with_buffers};
use crate::registry::Client;
use crate::session::{AfterReply, Session};
use crate::settings::Id;
use crate::state::Server;
use crate::stats::{Event, ThreadStats};
use crate::table::COMMANDS;
use leftover::{Input, Output};
use socket::Socket;

/// A batch with more reply bytes than this is interrupted, and the replies are sent first.
const FLUSH_BYTES: usize = 1024 * 1024;
/// If the replies have at least this many bytes and need only a write of the log, no sync, the connection writes the
/// log itself and sends them at once. By the time the flush task runs, the processor's cache would no longer contain
/// them.
const SEND_NOW_BYTES: usize = 4096;
/// If a client leaves more unread than this, the server looks at once whether all clients use too much memory.
const CHECK_CLIENTS_BYTES: usize = 16 << 20;
/// Maximum bytes of input kept for a client that has not authenticated.
const UNAUTHENTICATED_INPUT_BYTES_MAX: usize = 1024 * 1024;

pub(crate) struct Connection {
    server: Arc<Server>,
    stats: Arc<ThreadStats>,
    session: Session,
    decoder: Decoder,
    input: Input,
    output: Output,
    /// The log position that must be durable before `output` is sent.
    awaited_position: Option<u64>,
    /// Bytes that it has received since it last waited for input or yielded. If the socket always has more, the
    /// connection yields from time to time.
    turn_bytes: usize,
}

/// What the connection does after a batch, once its replies are sent.
enum AfterBatch {
    /// It reads the next requests: all complete ones have run.
    Read,
    /// It lets the thread serve other connections, and then continues the batch.
    Yield,
    Block(Box<BlockedClient>),
    SendLongReply {
        reply: Box<LongReply>,
        bytes_max: usize,
    },
    /// Because of CLIENT PAUSE, it runs no commands until the server's uptime is `until_ns`.
    Pause {
        until_ns: u64,
    },
    DelayReplies,
    Close,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.session.unwatch(&self.server);
        self.note_event(EventKind::Disconnected);
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
            awaited_position: None,
            turn_bytes: 0,
        }
    }

    /// The number of clients of the whole server that wait until their thread serves them.
    pub(crate) fn unserved(&self) -> Arc<AtomicUsize> {
        Arc::clone(&self.session.client.unserved)
    }

    /// Logs the client in as this user. Returns false if the user was removed.
    pub(crate) fn log_in(&mut self, user: Arc<User>) -> bool {
        self.session.log_in(user)
    }

    pub(crate) async fn serve(mut self, mut stream: impl Socket) {
        poll_fn(|cx| {
            self.session.client.set_waker(cx.waker());
            Poll::Ready(())
        })
        .await;
        loop {
            if !self.session.authenticated && !self.begin_turn(&mut stream).await {
                return;
            }
            let next = poll_fn(|cx| self.poll_batch(cx, &mut stream)).await;
            if self.awaited_position.is_some() && !self.wait_durable().await {
                return;
            }
            if matches!(next, AfterBatch::DelayReplies) {
                self.delay_replies().await;
            }
            if (!self.output.is_empty() || stream.unsent_bytes() > 0) && !self.send_kept(&mut stream).await {
                return;
            }
            match next {
                AfterBatch::Read => {}
                AfterBatch::DelayReplies if self.session.after_reply == AfterReply::Close => return,
                AfterBatch::DelayReplies => {}
                AfterBatch::Yield => {
                    self.turn_bytes = 0;
                    tokio::task::yield_now().await;
                }
                AfterBatch::Block(blocked) => {
                    if !self.finish_blocked(*blocked, &mut stream).await {
                        return;
                    }
                }
                AfterBatch::SendLongReply { reply, bytes_max } => {
                    if !self.send_long_reply(*reply, bytes_max, &mut stream).await {
                        return;
                    }
                }
                AfterBatch::Pause { until_ns } => {
                    if !self.wait_for_pause(until_ns, &mut stream).await {
                        return;
                    }
                }
                AfterBatch::Close => return,
            }
        }
    }

    /// Reads, runs the complete requests, and writes as much of the replies as the socket takes without blocking.
    fn poll_batch(&mut self, cx: &mut Context<'_>, stream: &mut impl Socket) -> Poll<AfterBatch> {
        if self.session.client.is_killed() {
            return Poll::Ready(AfterBatch::Close);
        }
        with_buffers(self.session.resp3, |Buffers { input, output }| {
            let fresh = match self.input.runnable {
                true => &[],
                false => match self.poll_read(cx, stream, input) {
                    Poll::Pending => {
                        self.turn_bytes = 0;
                        return Poll::Pending;
                    }
                    Poll::Ready(Ok(0) | Err(_)) => return Poll::Ready(AfterBatch::Close),
                    Poll::Ready(Ok(count)) => {
                        self.turn_bytes += stream.received_bytes(count);
                        &input[..count]
                    }
                },
            };
            let next = match self.run(fresh, output) {
                AfterBatch::Read if self.turn_bytes >= INPUT_BYTES => AfterBatch::Yield,
                next => next,
            };
            stream.publish_memory(&self.session.client);
            if output.len() >= SEND_NOW_BYTES
                && self.awaited_position.is_some_and(|position| self.server.store.try_write_through(position))
            {
                self.awaited_position = None;
            }
            if self.awaited_position.is_some() && !output.is_empty() {
                self.session.client.output_bytes.store(output.buf.capacity(), Ordering::Relaxed);
                self.output.keep(&mut output.buf, 0);
                output.buf = spare_buffer();
                self.limit_clients_if_large();
            } else if self.write_first(stream, output).is_err() {
                return Poll::Ready(AfterBatch::Close);
            }
            Poll::Ready(next)
        })
    }

    /// Defers the replies if they depend on a log position that is not durable yet.
    fn defer_replies(&mut self) {
        let store = &self.server.store;
        let position = store.appended_position();
        self.awaited_position = (!store.is_durable_enough(position)).then_some(position);
    }

    /// Waits until deferred replies may be sent. Returns false if they must not be sent, because the log failed or was
    /// closed.
    async fn wait_durable(&mut self) -> bool {
        match self.awaited_position.take() {
            Some(position) => deferred_replies::wait_durable(&self.server, position).await,
            None => true,
        }
    }

    /// Runs all complete requests in the left-over input and in `fresh`, and keeps the bytes after them.
    fn run(&mut self, fresh: &[u8], out: &mut Writer) -> AfterBatch {
        let mut batch = Batch::begin(&self.server);
        self.decoder.set_limits(limits(&self.server, self.session.authenticated));
        self.session.client.active_at_ms.store(batch.uptime_ms, Ordering::Relaxed);
        let (used, next) = if self.input.bytes.is_empty() {
            let (used, next) = self.run_requests(fresh, out, &mut batch);
            self.input.bytes.extend_from_slice(&fresh[used..]);
            (used, next)
        } else {
            let mut bytes = std::mem::take(&mut self.input.bytes);
            bytes.extend_from_slice(fresh);
            let (used, next) = self.run_requests(&bytes, out, &mut batch);
            self.input.keep(bytes, used);
            (used, next)
        };
        batch.account_untimed(&self.server, &self.stats);
        self.input.runnable = !matches!(next, AfterBatch::Read);
        if batch.saw_data {
            self.defer_replies();
        } else if used > 0 {
            deferred_replies::note_batch_without_sync(batch.uptime_ms);
        }
        self.publish();
        match next {
            AfterBatch::Read if self.input_is_too_long() => {
                self.server.stats.note(Event::QueryLimitClose);
                self.note_event(EventKind::QueryLimit);
                AfterBatch::Close
            }
            AfterBatch::DelayReplies => {
                self.output.keep(&mut out.buf, 0);
                out.buf = spare_buffer();
                AfterBatch::DelayReplies
            }
            next => next,
        }
    }

    /// Runs requests until one is incomplete or the connection must do something else first. Returns how many bytes
    /// were used.
    fn run_requests(&mut self, bytes: &[u8], out: &mut Writer, batch: &mut Batch) -> (usize, AfterBatch) {
        let Connection { server, stats, session, decoder, .. } = self;
        let commands = &COMMANDS;
        let mut context =
            CommandContext { server, stats, session, batch, commands, is_short: false, in_exec: false };
        let reply_bytes_max = server.reply_bytes_max();
        let flush_bytes =
            if context.session.authenticated { FLUSH_BYTES } else { logged_out::REPLY_BYTES_PER_TURN };
        // The last request's transaction, kept open: the next request may need the same lock.
        let mut open = None;
        let mut used = 0;
        let mut plain: [&[u8]; PLAIN_ARGS_MAX] = [&[]; PLAIN_ARGS_MAX];
        loop {
            let mark = out.len();
            out.length_max = mark.saturating_add(reply_bytes_max);
            // The arguments of requests that `next_plain` does not decode.
            let mut decoded = RequestArgs::new();
            let found = decoder.next_plain(&bytes[used..], &mut plain);
            context.is_short = found.is_some();
            let (argv, size) = match found {
                Some((count, size)) => (&plain[..count], size),
                None => match decoder.next(&bytes[used..]) {
                    Ok(Some(size)) => {
                        decoded = decoder.args(&bytes[used..]);
                        (&decoded[..], size)
                    }
                    Ok(None) => return (used, AfterBatch::Read),
                    Err(error) => return (used, reject(server, &context.session.client, error, out)),
                },
            };
            let after = match argv {
                // An empty line, or an empty array.
                [] => AfterRequest::Continue,
                argv => context.run(argv, out, &mut open),
            };
            drop(decoded);
            if !context.is_short {
                decoder.release();
            }
            match after {
                AfterRequest::Continue => used += size,
                AfterRequest::Block(blocked) => return (used + size, AfterBatch::Block(blocked)),
                AfterRequest::SendLongReply(reply) => {
                    let written = out.len() - mark;
                    let bytes_max = reply_bytes_max.saturating_sub(written);
                    return (used + size, AfterBatch::SendLongReply { reply, bytes_max });
                }
                AfterRequest::Pause { until_ns } => return (used, AfterBatch::Pause { until_ns }),
            }
            if context.session.authenticated != decoder.limits().authenticated {
                decoder.set_limits(limits(server, context.session.authenticated));
            }
            if out.is_full() {
                note_long_reply(server, context.session);
                out.truncate(mark);
                return (used, AfterBatch::Close);
            }
            match context.session.after_reply {
                AfterReply::Continue => {}
                AfterReply::Delay => return (used, AfterBatch::DelayReplies),
                AfterReply::Close => return (used, AfterBatch::Close),
            }
            if out.len() >= flush_bytes || context.batch.is_long() {
                return (used, AfterBatch::Yield);
            }
        }
    }

    fn note_event(&self, kind: EventKind) {
        self.server.note_event(kind, &self.session.client.addr, None, "");
    }

    fn input_is_too_long(&self) -> bool {
        let limit = match self.session.authenticated {
            true => self.server.settings.size(Id::ClientQueryBufferLimit),
            false => UNAUTHENTICATED_INPUT_BYTES_MAX,
        };
        self.input.bytes.len() + self.session.kept_bytes() > limit
    }

    fn publish(&self) {
        self.session.publish();
        self.publish_input();
    }

    /// Publishes how much memory the requests that have not run take. An incomplete request with many short arguments
    /// takes more in the decoder than in the buffer.
    fn publish_input(&self) {
        let bytes = self.input.bytes.capacity() + self.decoder.memory_bytes();
        self.session.client.input_bytes.store(bytes, Ordering::Relaxed);
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

    /// Writes once. Bytes that the socket does not take are kept for [`flush`](Self::flush).
    fn write_first(&mut self, stream: &mut impl Socket, out: &mut Writer) -> io::Result<()> {
        if out.is_empty() {
            return Ok(());
        }
        let sent = match stream.write_now(&out.buf) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
            sent => self.count_write(sent?)?,
        };
        if sent < out.len() {
            self.output.keep(&mut out.buf, sent);
            self.publish_unsent(stream);
            self.limit_clients_if_large();
        }
        Ok(())
    }

    fn limit_clients_if_large(&self) {
        if self.output.unsent().len() > CHECK_CLIENTS_BYTES {
            self.server.limit_clients();
        }
    }

    fn publish_unsent(&self, stream: &impl Socket) {
        let bytes = self.output.unsent().len() + stream.unsent_bytes();
        self.session.client.output_bytes.store(bytes, Ordering::Relaxed);
    }

    fn count_write(&self, sent: usize) -> io::Result<usize> {
        if sent == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        self.stats.writes.add(1);
        self.stats.output_bytes.add(sent as u64);
        Ok(sent)
    }

    /// Sends all unsent replies. Returns false if the connection must be closed.
    async fn flush(&mut self, stream: &mut impl Socket) -> bool {
        while !self.output.is_empty() {
            let sent = poll_fn(|cx| {
                if self.session.client.is_killed() {
                    return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
                }
                Pin::new(&mut *stream).poll_write(cx, self.output.unsent())
            })
            .await;
            match sent.and_then(|sent| self.count_write(sent)) {
                Ok(sent) => self.output.advance(sent).map_or((), recycle),
                Err(_) => return false,
            }
            self.publish_unsent(stream);
        }
        stream.unsent_bytes() == 0 || self.flush_socket(stream).await
    }

    /// Sends what the socket itself has kept. Returns false if the connection must be closed.
    async fn flush_socket(&mut self, stream: &mut impl Socket) -> bool {
        self.publish_unsent(stream);
        let flushed = poll_fn(|cx| match self.session.client.is_killed() {
            true => Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into())),
            false => Pin::new(&mut *stream).poll_flush(cx),
        });
        let is_flushed = flushed.await.is_ok();
        self.publish_unsent(stream);
        is_flushed
    }
}

/// Counts and logs a client that is closed because the reply to its last command is too long.
#[cold]
fn note_long_reply(server: &Server, session: &Session) {
    server.stats.note(Event::OutputLimitClose);
    let client = &session.client;
    let command = COMMANDS.get(client.last_command()).map_or("", |spec| spec.name);
    server.note_event(EventKind::OutputLimit, &client.addr, Some(&session.user_name()), command);
}

/// Replies to a request that violates the protocol, and closes the connection.
fn reject(server: &Server, client: &Client, error: ProtocolError, out: &mut Writer) -> AfterBatch {
    if let ProtocolError::Foreign(protocol) = error {
        server.audit(EventKind::ForeignProtocol, &client.addr, None, protocol.name());
    }
    server.stats.note_error(b"ERR");
    out.error(error.reply());
    AfterBatch::Close
}

fn limits(server: &Server, authenticated: bool) -> Limits {
    let bulk_bytes_max = server.settings.number(Id::ProtoMaxBulkLen).unsigned_abs();
    Limits { bulk_bytes_max, authenticated, ..Limits::default() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Settings;
    use crate::registry::{ConnectionInfo, Transport};
    use crate::settings::Setting;

    /// Starts a server in memory, and a connection that is not served.
    fn connection(setting: (&str, &str)) -> (Arc<Server>, Connection) {
        let settings = Settings::new();
        for (name, value) in [("port", "0"), ("appendonly", "no"), setting] {
            settings.set(Setting::find(name).unwrap().id, value).unwrap();
        }
        let running = Server::start(settings).unwrap();
        let server = Arc::clone(running.server());
        let info = ConnectionInfo { addr: "".into(), laddr: "".into(), fd: 0, transport: Transport::Tcp };
        let client = server.clients.add(info, 0, 1, server.requires_login()).unwrap();
        let stats = Arc::clone(server.stats.of_thread(0));
        let connection = Connection::new(Arc::clone(&server), stats, client);
        (server, connection)
    }

    #[test]
    fn only_a_batch_with_requests_counts_as_one_that_needs_no_sync() {
        let (server, mut connection) = connection(("timeout", "0"));
        let is_noted = || deferred_replies::serves_clients_without_sync(server.uptime_ms());
        // After a blocking command, the connection runs the requests that have arrived meanwhile: usually none.
        connection.run(b"", &mut Writer::new(false));
        assert!(!is_noted());
        connection.run(b"PING\r\n", &mut Writer::new(false));
        assert!(is_noted());
        server.shutdown.begin();
    }

    /// Otherwise a client that sends faster than the server reads would keep the thread for itself.
    #[tokio::test]
    async fn connection_yields_although_the_socket_has_more_bytes() {
        let (server, mut connection) = connection(("timeout", "0"));
        let (mut client, served) = std::os::unix::net::UnixStream::pair().unwrap();
        served.set_nonblocking(true).unwrap();
        let mut served = tokio::net::UnixStream::from_std(served).unwrap();
        let mut rest = vec![b'\n'; INPUT_BYTES + 1];
        rest.extend_from_slice(b"PING\r\n");
        io::Write::write_all(&mut client, &rest).unwrap();
        for yields in [true, false] {
            let next = poll_fn(|cx| connection.poll_batch(cx, &mut served)).await;
            assert_eq!(matches!(next, AfterBatch::Yield), yields);
            connection.turn_bytes = 0;
        }
        let mut reply = [0; 7];
        io::Read::read_exact(&mut client, &mut reply).unwrap();
        assert_eq!(&reply, b"+PONG\r\n");
        server.shutdown.begin();
    }

    /// A socket that receives more bytes than it returns, as one with TLS does.
    struct Wordy(tokio::net::UnixStream);

    impl AsyncRead for Wordy {
        fn poll_read(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
            into: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            Pin::new(&mut self.0).poll_read(cx, into)
        }
    }

    impl tokio::io::AsyncWrite for Wordy {
        fn poll_write(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<io::Result<usize>> {
            Pin::new(&mut self.0).poll_write(cx, bytes)
        }

        fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
            Pin::new(&mut self.0).poll_flush(cx)
        }

        fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
            Pin::new(&mut self.0).poll_shutdown(cx)
        }
    }

    impl Socket for Wordy {
        fn write_now(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.try_write(bytes)
        }

        fn received_bytes(&self, _: usize) -> usize {
            INPUT_BYTES
        }
    }

    /// Otherwise a client that sends each byte in a TLS record of its own would get many times as much of the thread.
    #[tokio::test]
    async fn connection_yields_by_what_it_has_received() {
        let (server, mut connection) = connection(("timeout", "0"));
        let (mut client, served) = std::os::unix::net::UnixStream::pair().unwrap();
        served.set_nonblocking(true).unwrap();
        let mut served = Wordy(tokio::net::UnixStream::from_std(served).unwrap());
        io::Write::write_all(&mut client, b"PING\r\n").unwrap();
        let next = poll_fn(|cx| connection.poll_batch(cx, &mut served)).await;
        assert!(matches!(next, AfterBatch::Yield));
        server.shutdown.begin();
    }

    #[test]
    fn client_that_has_not_logged_in_runs_few_requests_per_turn() {
        let (server, mut connection) = connection(("requirepass", "secret"));
        let mut out = Writer::new(false);
        let error = b"-NOAUTH Authentication required.\r\n";
        let next = connection.run(&b"PING\r\n".repeat(1000), &mut out);
        assert!(matches!(next, AfterBatch::Yield) && connection.input.runnable);
        let replies = logged_out::REPLY_BYTES_PER_TURN.div_ceil(error.len());
        assert_eq!(out.buf, error.repeat(replies));
        assert_eq!(connection.input.bytes, b"PING\r\n".repeat(1000 - replies));

        connection.input.bytes.clear();
        out.truncate(0);
        connection.run(b"AUTH secret\r\nPING\r\n", &mut out);
        assert_eq!(out.buf, b"+OK\r\n+PONG\r\n");
        assert_eq!(server.clients.logged_out_count(), 0);
        server.shutdown.begin();
    }
}
