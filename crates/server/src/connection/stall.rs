//! A connection that runs no commands for now: its client is blocked, or CLIENT PAUSE delays it. The connection still
//! reads from the socket, so that it notices when the client disconnects. It keeps requests that arrive early.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, ready};

use millstream_protocol::commands::UnblockReason;
use millstream_protocol::errors::{self, CommandError};
use millstream_protocol::resp::Writer;
use tokio::io::AsyncRead;

use super::socket::Socket;
use super::{Connection, note_long_reply};
use crate::blocked::BlockedClient;
use crate::io_thread::{Buffers, with_buffers};
use crate::registry::BlockedResult;

/// Maximum bytes read ahead while no command runs.
const READ_AHEAD_BYTES_MAX: usize = 1024 * 1024;

impl Connection {
    /// Waits for the result of a blocking command and sends the reply. Returns false if the connection must be closed.
    pub(super) async fn finish_blocked(&mut self, blocked: BlockedClient, stream: &mut impl Socket) -> bool {
        let mut blocked = blocked;
        let is_connected = self.wait_until_unblocked(&mut blocked, stream).await;
        let fallback_reply = blocked.fallback_reply.take();
        self.session.client.active_at_ms.store(self.server.uptime_ms(), Ordering::Relaxed);
        // Before the reply is sent: a client that has its reply must not count as blocked.
        drop(blocked);
        // After a timeout too: the result can have arrived at the same moment.
        let result = self.session.client.take_result();
        let mut out = Writer::new(self.session.resp3);
        if !is_connected {
            return false;
        }
        let is_wanted = self.session.take_reply();
        match result {
            Some(BlockedResult::Panicked) => return false,
            Some(BlockedResult::ReplyTooLong) if is_wanted => {
                note_long_reply(&self.server, &self.session);
                return false;
            }
            Some(BlockedResult::ReplyTooLong) => {}
            Some(BlockedResult::Reply(reply)) => out.buf = reply,
            Some(BlockedResult::Error(error)) => self.reply_error(&error, &mut out),
            Some(BlockedResult::Unblocked(UnblockReason::Error)) => {
                self.reply_error(&errors::UNBLOCKED, &mut out)
            }
            Some(BlockedResult::Unblocked(UnblockReason::Timeout)) | None => match fallback_reply {
                Some(reply) => out.buf = reply,
                None => out.null_array(),
            },
        }
        if is_wanted {
            self.session.client.output_bytes.store(out.buf.capacity(), Ordering::Relaxed);
            self.output.keep(&mut out.buf, 0);
        }
        self.defer_replies();
        self.wait_durable().await && self.flush(stream).await
    }

    /// Replies to a blocked command with an error, and counts the command as failed.
    fn reply_error(&self, error: &CommandError, out: &mut Writer) {
        self.server.stats.note_error(error.code());
        self.stats.commands[self.session.client.last_command()].failed.add(1);
        out.error(error.as_bytes());
    }

    /// Waits until the blocked command has a result or its timeout has passed. Returns false if the connection must
    /// be closed.
    async fn wait_until_unblocked(
        &mut self,
        blocked: &mut BlockedClient,
        stream: &mut (impl AsyncRead + Unpin),
    ) -> bool {
        let sleep = blocked.deadline.map(|deadline| tokio::time::sleep_until(deadline.into()));
        let retry = blocked.retry_at.map(|at| tokio::time::sleep_until(at.into()));
        tokio::pin!(sleep, retry);
        poll_fn(|cx| {
            while retry.as_mut().as_pin_mut().is_some_and(|retry| retry.poll(cx).is_ready()) {
                blocked.retry();
                retry.set(blocked.retry_at.map(|at| tokio::time::sleep_until(at.into())));
            }
            if self.session.client.has_result() {
                return Poll::Ready(true);
            }
            if sleep.as_mut().as_pin_mut().is_some_and(|sleep| sleep.poll(cx).is_ready()) {
                return Poll::Ready(true);
            }
            self.poll_disconnect(cx, stream).map(|()| false)
        })
        .await
    }

    /// Waits until a pause is over. Returns false if the connection must be closed.
    pub(super) async fn wait_for_pause(
        &mut self,
        until_ns: u64,
        stream: &mut (impl AsyncRead + Unpin),
    ) -> bool {
        let server = Arc::clone(&self.server);
        let ended = server.pause.ended();
        if !server.pause.may_be_active() {
            return true;
        }
        tokio::select! {
            () = ended => true,
            () = tokio::time::sleep_until(server.instant_at(until_ns).into()) => true,
            () = poll_fn(|cx| self.poll_disconnect(cx, stream)) => false,
        }
    }

    /// Resolves when the client has disconnected or was killed. Until then reads ahead, up to a limit.
    fn poll_disconnect(&mut self, cx: &mut Context<'_>, stream: &mut (impl AsyncRead + Unpin)) -> Poll<()> {
        if self.session.client.is_killed() {
            return Poll::Ready(());
        }
        with_buffers(self.session.resp3, |Buffers { input, .. }| {
            while self.input.bytes.len() < READ_AHEAD_BYTES_MAX {
                match ready!(self.poll_read(cx, stream, input)) {
                    Ok(0) | Err(_) => return Poll::Ready(()),
                    Ok(count) => {
                        self.input.bytes.extend_from_slice(&input[..count]);
                        self.publish_input();
                    }
                }
            }
            Poll::Pending
        })
    }
}
