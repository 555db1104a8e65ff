//! Sends a long reply in slices, with other connections served in between.

use std::io;

use super::socket::Socket;
use super::{Connection, note_long_reply};
use crate::command::LongReply;
use crate::io_thread::{Buffers, with_buffers};

/// Approximate bytes per slice. Between two slices the thread serves other connections.
const SLICE_BYTES: usize = 64 * 1024;

impl Connection {
    /// Writes and sends the rest of a reply, at most `bytes_max` bytes. Returns false if the connection must be closed.
    pub(super) async fn send_long_reply(
        &mut self,
        mut reply: LongReply,
        bytes_max: usize,
        stream: &mut impl Socket,
    ) -> bool {
        let sent = self.send_slices(&mut reply, bytes_max, stream).await;
        if !sent {
            // If the stream was deleted meanwhile, these are its last references: freeing them here could take long.
            self.server.store.reclaim(reply.into_values());
        }
        sent
    }

    async fn send_slices(
        &mut self,
        reply: &mut LongReply,
        bytes_max: usize,
        stream: &mut impl Socket,
    ) -> bool {
        let mut bytes_left = bytes_max;
        while !reply.is_done() {
            tokio::task::yield_now().await;
            if self.session.client.is_killed() {
                return false;
            }
            let sent = with_buffers(self.session.resp3, |Buffers { output, .. }| {
                output.length_max = bytes_left;
                reply.write(output, SLICE_BYTES);
                match bytes_left.checked_sub(output.len()) {
                    Some(left) => bytes_left = left,
                    None => {
                        note_long_reply(&self.server, &self.session);
                        return Err(io::ErrorKind::OutOfMemory.into());
                    }
                }
                self.write_first(stream, output)
            });
            if sent.is_err() || !self.flush(stream).await {
                return false;
            }
        }
        true
    }
}
