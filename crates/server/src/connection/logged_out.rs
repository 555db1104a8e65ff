//! A connection whose client has not logged in, while clients must log in. Anybody can open such a connection, so
//! it gets little of the server's time and memory: it runs a few requests per turn (see the module `turns`), and it is
//! closed if the client does not read the replies. After a failed login the reply is delayed.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use super::Connection;
use super::socket::Socket;
use crate::event_log::EventKind;
use crate::io_thread::{Buffers, recycle, with_buffers};
use crate::login_delays;
use crate::session::AfterReply;
use crate::stats::Event;
use crate::turns;

/// Maximum bytes read for one turn.
const READ_BYTES: usize = 4 << 10;
/// A turn ends when the replies have at least this many bytes.
pub(super) const REPLY_BYTES_PER_TURN: usize = 1 << 10;
/// Maximum bytes of replies that the socket does not take. Redis has the same limit.
const UNREAD_BYTES_MAX: usize = 1 << 10;

impl Connection {
    /// Reads, unless there are requests to run, and waits for a turn. Returns false if the connection must be closed.
    pub(super) async fn begin_turn(&mut self, stream: &mut impl Socket) -> bool {
        let has_input = self.input.runnable || poll_fn(|cx| self.poll_input(cx, stream)).await;
        if has_input {
            self.input.runnable = true;
            if !turns::wait_for_turn(&self.session.client).await {
                return false;
            }
            // If no password is required any more, the client becomes `default`.
            self.session.log_out(&self.server);
        }
        has_input
    }

    /// Reads some bytes and keeps them. Returns false if the connection must be closed.
    fn poll_input(&mut self, cx: &mut Context<'_>, stream: &mut impl Socket) -> Poll<bool> {
        if self.session.client.is_killed() {
            return Poll::Ready(false);
        }
        with_buffers(self.session.resp3, |Buffers { input, .. }| {
            match ready!(self.poll_read(cx, stream, &mut input[..READ_BYTES])) {
                Ok(0) | Err(_) => Poll::Ready(false),
                Ok(count) => {
                    self.input.bytes.extend_from_slice(&input[..count]);
                    Poll::Ready(true)
                }
            }
        })
    }

    /// Waits because a login has failed. Makes the connection close once the replies are sent, if too many logins have
    /// failed on it or its wait has ended early.
    pub(super) async fn delay_replies(&mut self) {
        let has_waited = login_delays::wait(&self.session.client).await;
        self.session.after_reply = AfterReply::Continue;
        if !has_waited && !self.session.authenticated || self.session.has_too_many_failed_logins() {
            self.session.after_reply = AfterReply::Close;
            self.server.stats.note(Event::FailedLoginsClose);
        }
    }

    /// Sends the replies that a batch has kept. Returns false if the connection must be closed.
    pub(super) async fn send_kept(&mut self, stream: &mut impl Socket) -> bool {
        if self.session.authenticated {
            return self.flush(stream).await;
        }
        poll_fn(|cx| self.poll_send(cx, stream)).await
    }

    /// Sends replies to a client that has not logged in. Returns false if the connection must be closed, for example
    /// because the client sends more requests instead of reading the replies.
    fn poll_send(&mut self, cx: &mut Context<'_>, stream: &mut impl Socket) -> Poll<bool> {
        while !self.output.is_empty() {
            let Poll::Ready(sent) = Pin::new(&mut *stream).poll_write(cx, self.output.unsent()) else {
                break;
            };
            match sent.and_then(|sent| self.count_write(sent)) {
                Ok(sent) => self.output.advance(sent).map_or((), recycle),
                Err(_) => return Poll::Ready(false),
            }
        }
        if self.output.is_empty()
            && let Poll::Ready(flushed) = Pin::new(&mut *stream).poll_flush(cx)
        {
            return Poll::Ready(flushed.is_ok());
        }
        self.publish_unsent(stream);
        if self.is_unread(stream) || ready!(self.poll_input(cx, stream)) {
            self.server.stats.note(Event::OutputLimitClose);
            self.note_event(EventKind::UnreadReplies);
        }
        Poll::Ready(false)
    }

    /// Whether the client has more requests to run, or many replies to read, before the socket takes more replies.
    fn is_unread(&self, stream: &impl Socket) -> bool {
        let unsent_bytes = self.output.unsent().len() + stream.unsent_bytes();
        unsent_bytes > UNREAD_BYTES_MAX || (unsent_bytes > 0 && !self.input.bytes.is_empty())
    }
}
