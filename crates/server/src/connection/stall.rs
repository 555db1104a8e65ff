//! A connection that stands still: in a blocking command, or held back by a pause. It goes on listening to its
//! peer, so that a departure is noticed and what is sent ahead is kept.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, ready};

use millstream_protocol::commands::Unblock;
use millstream_protocol::errors::{self, CommandError};
use millstream_protocol::resp::Writer;
use tokio::io::{AsyncRead, AsyncWrite};

use super::Connection;
use crate::io_thread::{Buffers, with_buffers};
use crate::registry::Answer;
use crate::waiting::Waiting;

/// While a command waits, the peer may send this much ahead.
const READ_AHEAD_BYTES: usize = 1024 * 1024;

impl Connection {
    /// Waits for the reply of a blocking command and sends it. False: the peer is gone.
    pub(super) async fn wait(
        &mut self,
        waiting: Waiting,
        stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    ) -> bool {
        let mut waiting = waiting;
        let is_there = self.wait_for_end(&mut waiting, stream).await;
        let instead = waiting.instead.take();
        self.session.client.active_at_ms.store(self.server.uptime_ms(), Ordering::Relaxed);
        // Before the reply goes out: a client that has it in hand must not count as blocked any more.
        drop(waiting);
        // It may have come together with the deadline.
        let answer = self.session.client.end_wait();
        let mut out = Writer::new(self.session.resp3);
        if !is_there {
            return false;
        }
        match answer {
            Some(Answer::Panicked) => return false,
            Some(Answer::Reply(reply)) => out.buf = reply,
            Some(Answer::Refused(error)) => self.refuse_wait(&error, &mut out),
            Some(Answer::Unblocked(Unblock::Error)) => self.refuse_wait(&errors::UNBLOCKED, &mut out),
            Some(Answer::Unblocked(Unblock::Timeout)) | None => match instead {
                Some(reply) => out.buf = reply,
                None => out.null_array(),
            },
        }
        if self.session.take_reply() {
            self.output.keep(&mut out.buf, 0);
        }
        self.owe();
        self.settle().await && self.flush(stream).await
    }

    /// Answers a command that waited with an error, and counts it as failed.
    fn refuse_wait(&self, error: &CommandError, out: &mut Writer) {
        self.server.stats.note_error(error.code());
        self.stats.commands[self.session.client.last_command()].failed.add(1);
        out.error(error.as_bytes());
    }

    /// Waits until there is an answer, or time runs out. False: the peer is gone, or is to go.
    async fn wait_for_end(&mut self, waiting: &mut Waiting, stream: &mut (impl AsyncRead + Unpin)) -> bool {
        let sleep = waiting.deadline.map(|deadline| tokio::time::sleep_until(deadline.into()));
        let retry = waiting.retry_at.map(|at| tokio::time::sleep_until(at.into()));
        tokio::pin!(sleep, retry);
        poll_fn(|cx| {
            while retry.as_mut().as_pin_mut().is_some_and(|retry| retry.poll(cx).is_ready()) {
                waiting.retry();
                retry.set(waiting.retry_at.map(|at| tokio::time::sleep_until(at.into())));
            }
            if self.session.client.has_answer() {
                return Poll::Ready(true);
            }
            if sleep.as_mut().as_pin_mut().is_some_and(|sleep| sleep.poll(cx).is_ready()) {
                return Poll::Ready(true);
            }
            self.poll_gone(cx, stream).map(|()| false)
        })
        .await
    }

    /// Waits until a pause is over. False: the peer is gone.
    pub(super) async fn hold(&mut self, until_ns: u64, stream: &mut (impl AsyncRead + Unpin)) -> bool {
        let server = Arc::clone(&self.server);
        let ended = server.pause.ended();
        if !server.pause.may_hold() {
            return true;
        }
        tokio::select! {
            () = ended => true,
            () = tokio::time::sleep_until(server.instant_at(until_ns).into()) => true,
            () = poll_fn(|cx| self.poll_gone(cx, stream)) => false,
        }
    }

    /// Resolves when the peer is gone or is to go. Until then keeps what it sends ahead, up to a limit.
    fn poll_gone(&mut self, cx: &mut Context<'_>, stream: &mut (impl AsyncRead + Unpin)) -> Poll<()> {
        if self.session.client.is_killed() {
            return Poll::Ready(());
        }
        with_buffers(self.session.resp3, |Buffers { input, .. }| {
            while self.input.bytes.len() < READ_AHEAD_BYTES {
                match ready!(self.poll_read(cx, stream, input)) {
                    Ok(0) | Err(_) => return Poll::Ready(()),
                    Ok(count) => self.input.bytes.extend_from_slice(&input[..count]),
                }
            }
            Poll::Pending
        })
    }
}
