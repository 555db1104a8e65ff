//! A reply that is too long to be written in one go: slice by slice, and others have their turn in between.

use std::io;

use super::{Connection, Socket};
use crate::command::LongReply;
use crate::io_thread::{Buffers, with_buffers};
use crate::stats::Event;

/// What is written before others have their turn.
const SLICE_BYTES: usize = 64 * 1024;

impl Connection {
    /// Writes and sends the rest of a reply, of which no more than `bytes_max` may follow. False: the peer is gone, or has to
    /// go.
    pub(super) async fn send_long(
        &mut self,
        mut reply: LongReply,
        bytes_max: usize,
        stream: &mut impl Socket,
    ) -> bool {
        let sent = self.send_slices(&mut reply, bytes_max, stream).await;
        if !sent {
            // It may be all that is left of a stream that was deleted meanwhile.
            self.server.store.reclaim(reply.into_remains());
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
                reply.write(output, SLICE_BYTES);
                match bytes_left.checked_sub(output.len()) {
                    Some(left) => bytes_left = left,
                    None => {
                        self.server.stats.note(Event::OutputLimitClose);
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
