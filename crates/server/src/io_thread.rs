//! A thread that serves clients: one runtime, and buffers that all its connections share.
//!
//! A connection is polled on its own thread only and uses the buffers between two awaits, so one pair per
//! thread is enough and an idle connection owns none.

use std::cell::RefCell;
use std::future::Future;
use std::io;
use std::sync::Arc;
use std::sync::mpsc;
use std::thread;

use millstream_protocol::resp::Writer;
use tokio::runtime::Handle;

use crate::held;
use crate::state::Server;
use crate::stats::ThreadStats;

/// Bytes read from a client at a time.
const INPUT_BYTES: usize = 64 * 1024;
/// An output buffer that grew beyond this is given back after the batch.
const OUTPUT_BYTES_KEPT: usize = 2 * 1024 * 1024;
/// Buffers of replies that were held and have gone: so many are kept for the next, if they are no larger than this.
const SPARES_MAX: usize = 64;
const SPARE_BYTES_MAX: usize = 32 * 1024;

thread_local! {
    static BUFFERS: RefCell<Buffers> = RefCell::new(Buffers {
        input: vec![0; INPUT_BYTES].into(),
        output: Writer::new(false),
    });
    static SPARES: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

/// What the connections of a thread share.
pub(crate) struct Buffers {
    pub(crate) input: Box<[u8]>,
    pub(crate) output: Writer,
}

/// Lends this thread's buffers to a stretch of code that does not wait. The output starts empty.
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

/// An empty buffer, if possible one that was used before.
pub(crate) fn spare_buffer() -> Vec<u8> {
    SPARES.with_borrow_mut(Vec::pop).unwrap_or_default()
}

/// Takes a buffer that is not needed any more.
pub(crate) fn give_back(mut buffer: Vec<u8>) {
    SPARES.with_borrow_mut(|spares| {
        if spares.len() < SPARES_MAX && buffer.capacity() <= SPARE_BYTES_MAX {
            buffer.clear();
            spares.push(buffer);
        }
    });
}

/// A thread that serves clients.
pub(crate) struct IoThread {
    thread: thread::JoinHandle<()>,
    entrance: Entrance,
}

/// Where new connections go in.
#[derive(Clone)]
pub(crate) struct Entrance {
    runtime: Handle,
    pub(crate) stats: Arc<ThreadStats>,
}

impl Entrance {
    /// Runs a connection on the thread.
    pub(crate) fn spawn(&self, connection: impl Future<Output = ()> + Send + 'static) {
        self.runtime.spawn(connection);
    }
}

impl IoThread {
    /// Starts thread `number`; it ends when the server is asked to stop.
    pub(crate) fn start(number: usize, server: &Arc<Server>) -> io::Result<IoThread> {
        let (sender, receiver) = mpsc::channel();
        let for_thread = Arc::clone(server);
        let thread = thread::Builder::new().name(format!("io-{number}")).spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            match runtime {
                Err(error) => drop(sender.send(Err(error))),
                Ok(runtime) => {
                    drop(sender.send(Ok(runtime.handle().clone())));
                    runtime.spawn(held::settle_for_all(Arc::clone(&for_thread)));
                    runtime.block_on(for_thread.shutdown.begun());
                }
            }
        })?;
        let runtime = receiver.recv().map_err(|_| io::Error::other("the thread ended at once"))??;
        let stats = Arc::clone(server.stats.of_thread(number));
        Ok(IoThread { thread, entrance: Entrance { runtime, stats } })
    }

    pub(crate) fn entrance(&self) -> Entrance {
        self.entrance.clone()
    }

    /// Waits until the thread has ended.
    pub(crate) fn join(self) {
        if self.thread.join().is_err() {
            eprintln!("millstream: a thread that served clients had failed");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_leaves_the_buffers_usable_and_empty() {
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
    fn a_buffer_is_used_again_if_it_is_small_and_few_are_kept() {
        give_back(b"told".to_vec());
        let again = spare_buffer();
        assert!(again.is_empty() && again.capacity() >= 4);
        give_back(vec![0; SPARE_BYTES_MAX + 1]);
        assert_eq!(spare_buffer().capacity(), 0);
        (0..2 * SPARES_MAX).for_each(|_| give_back(vec![0]));
        let kept = (0..2 * SPARES_MAX).filter(|_| spare_buffer().capacity() > 0).count();
        assert_eq!(kept, SPARES_MAX);
    }

    #[test]
    fn a_large_output_buffer_is_given_back() {
        with_buffers(false, |buffers| buffers.output.bulk(vec![0; 2 * OUTPUT_BYTES_KEPT]));
        with_buffers(false, |buffers| assert!(buffers.output.buf.capacity() <= OUTPUT_BYTES_KEPT));
    }
}
