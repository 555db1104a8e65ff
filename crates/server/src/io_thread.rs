//! I/O threads. Each serves its connections with one tokio runtime and one pair of buffers.
//!
//! A connection is polled only on its own thread, and uses the buffers only between two awaits. So one pair per
//! thread is enough, and an idle connection owns no buffers.

use std::cell::RefCell;
use std::future::Future;
use std::io;
use std::sync::Arc;
use std::sync::mpsc;
use std::thread;

use millstream_protocol::resp::Writer;
use tokio::runtime::Handle;

use crate::deferred_replies;
use crate::state::Server;
use crate::stats::ThreadStats;
use crate::turns;

/// Maximum bytes per read from a socket.
pub(crate) const INPUT_BYTES: usize = 64 * 1024;
/// An output buffer larger than this is freed after the batch.
const OUTPUT_BYTES_KEPT: usize = 2 * 1024 * 1024;
/// Maximum number of buffers a thread keeps for reuse, once the deferred replies in them were sent.
const SPARES_MAX: usize = 64;
/// Buffers larger than this are freed, not kept.
const SPARE_BYTES_MAX: usize = 32 * 1024;

thread_local! {
    static BUFFERS: RefCell<Buffers> = RefCell::new(Buffers {
        input: vec![0; INPUT_BYTES].into(),
        output: Writer::new(false),
    });
    static SPARES: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

pub(crate) struct Buffers {
    pub(crate) input: Box<[u8]>,
    pub(crate) output: Writer,
}

/// Lends this thread's buffers to `work`, which must not await. The output buffer starts empty.
pub(crate) fn with_buffers<T>(resp3: bool, work: impl FnOnce(&mut Buffers) -> T) -> T {
    BUFFERS.with_borrow_mut(|buffers| {
        buffers.output.truncate(0);
        buffers.output.resp3 = resp3;
        let result = work(buffers);
        if buffers.output.buf.capacity() > OUTPUT_BYTES_KEPT {
            buffers.output = Writer::new(false);
        }
        result
    })
}

/// Returns an empty buffer, a used one if the thread has one.
pub(crate) fn spare_buffer() -> Vec<u8> {
    SPARES.with_borrow_mut(Vec::pop).unwrap_or_default()
}

/// Keeps a buffer for reuse, or frees it if it is too large or enough are kept.
pub(crate) fn recycle(mut buffer: Vec<u8>) {
    SPARES.with_borrow_mut(|spares| {
        if spares.len() < SPARES_MAX && buffer.capacity() <= SPARE_BYTES_MAX {
            buffer.clear();
            spares.push(buffer);
        }
    });
}

pub(crate) struct IoThread {
    thread: thread::JoinHandle<()>,
    handle: IoThreadHandle,
}

#[derive(Clone)]
pub(crate) struct IoThreadHandle {
    runtime: Handle,
    pub(crate) stats: Arc<ThreadStats>,
}

impl IoThreadHandle {
    pub(crate) fn spawn(&self, connection: impl Future<Output = ()> + Send + 'static) {
        self.runtime.spawn(connection);
    }
}

impl IoThread {
    /// Starts the I/O thread `number`. It ends when the server is asked to stop.
    pub(crate) fn start(number: usize, server: &Arc<Server>) -> io::Result<IoThread> {
        let (sender, receiver) = mpsc::channel();
        let for_thread = Arc::clone(server);
        let thread = thread::Builder::new().name(format!("io-{number}")).spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            match runtime {
                Err(error) => drop(sender.send(Err(error))),
                Ok(runtime) => {
                    drop(sender.send(Ok(runtime.handle().clone())));
                    runtime.spawn(deferred_replies::run_flush_task(Arc::clone(&for_thread)));
                    runtime.spawn(turns::run_turn_task());
                    runtime.block_on(for_thread.shutdown.begun());
                }
            }
        })?;
        let runtime = receiver
            .recv()
            .map_err(|_| io::Error::other("the I/O thread ended before it served clients"))??;
        let stats = Arc::clone(server.stats.of_thread(number));
        Ok(IoThread { thread, handle: IoThreadHandle { runtime, stats } })
    }

    pub(crate) fn handle(&self) -> IoThreadHandle {
        self.handle.clone()
    }

    /// Waits until the thread has ended. Returns false if it panicked.
    pub(crate) fn join(self) -> bool {
        self.thread.join().is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn panic_leaves_buffers_usable_and_empty() {
        let panicked = std::panic::catch_unwind(|| {
            with_buffers(true, |buffers| {
                buffers.output.ok();
                panic!("a command failed");
            })
        });
        assert!(panicked.is_err());
        with_buffers(false, |buffers| assert!(buffers.output.is_empty() && !buffers.output.resp3));
    }

    #[test]
    fn small_buffers_are_reused_up_to_a_limit() {
        recycle(b"text".to_vec());
        let again = spare_buffer();
        assert!(again.is_empty() && again.capacity() >= 4);
        recycle(vec![0; SPARE_BYTES_MAX + 1]);
        assert_eq!(spare_buffer().capacity(), 0);
        (0..2 * SPARES_MAX).for_each(|_| recycle(vec![0]));
        let kept = (0..2 * SPARES_MAX).filter(|_| spare_buffer().capacity() > 0).count();
        assert_eq!(kept, SPARES_MAX);
    }

    #[test]
    fn large_output_buffer_is_freed() {
        with_buffers(false, |buffers| buffers.output.bulk(vec![0; 2 * OUTPUT_BYTES_KEPT]));
        with_buffers(false, |buffers| assert!(buffers.output.buf.capacity() <= OUTPUT_BYTES_KEPT));
    }
}
