//! A faulty proxy between workers and a server. It cuts connections, cuts them in the middle of a reply, stalls all
//! of them for a while, or makes one half-open without either side noticing.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use crate::random::Random;

/// Value of `replies_left` without a cut.
const UNLIMITED: u64 = u64::MAX;

/// A running proxy.
pub(crate) struct Proxy {
    /// Its port on 127.0.0.1.
    pub port: u16,
    shared: Arc<Shared>,
}

struct Shared {
    target: SocketAddr,
    links: Mutex<Vec<Arc<Link>>>,
    stalled: AtomicBool,
}

/// One connection through the proxy.
struct Link {
    client: TcpStream,
    server: TcpStream,
    /// Half-open: bytes are discarded, and the client gets no close.
    half_open: AtomicBool,
    /// Number of bytes of replies to forward before the cut.
    replies_left: AtomicU64,
    ended: AtomicBool,
}

impl Proxy {
    /// Starts a proxy to the server at this port.
    pub(crate) fn start(target: u16) -> Proxy {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("bind a free port");
        let port = listener.local_addr().expect("the address just bound").port();
        let shared = Arc::new(Shared {
            target: SocketAddr::from(([127, 0, 0, 1], target)),
            links: Mutex::default(),
            stalled: AtomicBool::new(false),
        });
        let accepting = Arc::clone(&shared);
        thread::spawn(move || {
            // If the server is down, the connection closes immediately.
            listener.incoming().flatten().for_each(|client| drop(Shared::connect(&accepting, client)));
        });
        Proxy { port, shared }
    }

    /// Cuts every connection.
    pub(crate) fn cut_all(&self) {
        self.shared.links().iter().for_each(|link| link.cut());
    }

    /// Cuts a random connection after a few more bytes of replies.
    pub(crate) fn cut_in_a_reply(&self, random: &mut Random) {
        if let Some(link) = self.random_link(random) {
            link.replies_left.store(random.between(1, 400), Ordering::Relaxed);
        }
    }

    /// Makes a random connection half-open, permanently.
    pub(crate) fn make_half_open(&self, random: &mut Random) {
        if let Some(link) = self.random_link(random) {
            link.half_open.store(true, Ordering::Relaxed);
        }
    }

    /// Stalls all connections, or lets them continue.
    pub(crate) fn stall(&self, stalled: bool) {
        self.shared.stalled.store(stalled, Ordering::Relaxed);
    }

    fn random_link(&self, random: &mut Random) -> Option<Arc<Link>> {
        let links = self.shared.links();
        let at = random.below(links.len().max(1) as u64) as usize;
        links.get(at).cloned()
    }
}

impl Shared {
    fn connect(shared: &Arc<Shared>, client: TcpStream) -> std::io::Result<()> {
        let server = TcpStream::connect(shared.target)?;
        client.set_nodelay(true)?;
        server.set_nodelay(true)?;
        let link = Arc::new(Link {
            client,
            server,
            half_open: AtomicBool::new(false),
            replies_left: AtomicU64::new(UNLIMITED),
            ended: AtomicBool::new(false),
        });
        shared.links().push(Arc::clone(&link));
        let (requests, replies) = (Arc::clone(shared), Arc::clone(shared));
        let replying = Arc::clone(&link);
        thread::spawn(move || {
            requests.pump(&link, &link.client, &link.server, |link, bytes| {
                !link.half_open.load(Ordering::Relaxed) && (&link.server).write_all(bytes).is_ok()
            })
        });
        thread::spawn(move || replies.pump(&replying, &replying.server, &replying.client, Link::reply));
        Ok(())
    }

    /// Forwards bytes until one end closes.
    fn pump(&self, link: &Link, from: &TcpStream, to: &TcpStream, forward: impl Fn(&Link, &[u8]) -> bool) {
        let mut buffer = [0; 16 * 1024];
        let mut source = from;
        while let Ok(count @ 1..) = source.read(&mut buffer) {
            while self.stalled.load(Ordering::Relaxed) {
                thread::sleep(Duration::from_millis(5));
            }
            if !forward(link, &buffer[..count]) && !link.half_open.load(Ordering::Relaxed) {
                break;
            }
        }
        // A client of a half-open connection must not see that the server closed it.
        let is_client = std::ptr::eq(to, &link.client);
        if !(is_client && link.half_open.load(Ordering::Relaxed)) {
            link.cut();
        }
    }

    fn links(&self) -> MutexGuard<'_, Vec<Arc<Link>>> {
        let mut links = self.links.lock().unwrap_or_else(PoisonError::into_inner);
        links.retain(|link| !link.ended.load(Ordering::Relaxed));
        links
    }
}

impl Link {
    /// Forwards a reply up to the limit.
    fn reply(&self, bytes: &[u8]) -> bool {
        if self.half_open.load(Ordering::Relaxed) {
            return false;
        }
        let left = self.replies_left.load(Ordering::Relaxed);
        if left == UNLIMITED {
            return (&self.client).write_all(bytes).is_ok();
        }
        let some = bytes.len().min(left as usize);
        self.replies_left.store(left - some as u64, Ordering::Relaxed);
        (&self.client).write_all(&bytes[..some]).is_ok() && left > some as u64
    }

    fn cut(&self) {
        self.ended.store(true, Ordering::Relaxed);
        // Either end may be closed already.
        let _ = self.client.shutdown(Shutdown::Both);
        let _ = self.server.shutdown(Shutdown::Both);
    }
}
