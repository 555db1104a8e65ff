//! A client that others can hold up. It has a connection on another I/O thread than the command that is measured, and
//! sends PING, which needs no lock, and a read of the key that the commands use.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::connection::Connection;
use crate::support::process::Server;
use crate::support::resp::encode;

/// What the client sends, in turn.
pub(crate) const REQUESTS: [&[&str]; 2] = [&["PING"], &["EXISTS", "s"]];
/// Pause between two requests.
const PAUSE: Duration = Duration::from_micros(300);

#[derive(Default)]
struct Shared {
    ends: AtomicBool,
    waits: AtomicBool,
    longest_ns: [AtomicU64; 2],
}

pub(crate) struct Bystander {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Bystander {
    /// Starts the client, on another I/O thread than this one.
    pub(crate) fn start(server: &Server, io_thread: &Path) -> Bystander {
        let mut connections = (0..8).map(|_| Connection::new(server));
        let mut connection = connections
            .find_map(|mut connection| (connection.find_io_thread(server) != io_thread).then_some(connection))
            .expect("a connection on another I/O thread");
        let shared = Arc::new(Shared::default());
        let known = Arc::clone(&shared);
        let run = move || {
            while !known.ends.load(Ordering::Relaxed) {
                for (request, longest_ns) in REQUESTS.iter().zip(&known.longest_ns) {
                    known.waits.store(true, Ordering::Release);
                    let began = Instant::now();
                    connection.run(&encode(request));
                    longest_ns.fetch_max(began.elapsed().as_nanos() as u64, Ordering::Relaxed);
                    known.waits.store(false, Ordering::Release);
                    std::thread::sleep(PAUSE);
                }
            }
        };
        Bystander { shared, thread: Some(std::thread::spawn(run)) }
    }

    /// Returns the longest time that each request has taken since the last call, after the reply to the current one.
    pub(crate) fn take(&self) -> [Duration; 2] {
        while self.shared.waits.load(Ordering::Acquire) {
            std::thread::sleep(Duration::from_micros(20));
        }
        [0, 1].map(|at| Duration::from_nanos(self.shared.longest_ns[at].swap(0, Ordering::Relaxed)))
    }
}

impl Drop for Bystander {
    fn drop(&mut self) {
        self.shared.ends.store(true, Ordering::Relaxed);
        // It has failed only if the server has ended: the test fails then anyway.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}
