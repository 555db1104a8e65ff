//! A faulty way between workers and a server: it cuts connections, cuts them in the middle of a reply, holds
//! everything up for a while, or turns one into a half-open one that nobody is told about.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use crate::random::Random;

/// No limit to the bytes of replies.
const UNLIMITED: u64 = u64::MAX;

/// A running proxy.
pub(crate) struct Proxy {
    /// Where it listens, on 127.0.0.1.
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
    /// Half-open: bytes vanish, and the client is not told of anything.
    deaf: AtomicBool,
    /// How many bytes of replies still go through before the cut.
    replies_left: AtomicU64,
    ended: AtomicBool,
}

impl Proxy {
    /// A way to the server at this port.
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
            // A server that is down is a connection that closes at once.
            listener.incoming().flatten().for_each(|client| drop(Shared::connect(&accepting, client)));
        });
        Proxy { port, shared }
    }

    /// Cuts every connection.
    pub(crate) fn cut_all(&self) {
        self.shared.links().iter().for_each(|link| link.cut());
    }

    /// Cuts some connection after a few more bytes of replies.
    pub(crate) fn cut_in_a_reply(&self, random: &mut Random) {
        if let Some(link) = self.some_link(random) {
            link.replies_left.store(random.between(1, 400), Ordering::Relaxed);
        }
    }

    /// Makes some connection half-open for ever.
    pub(crate) fn open_half(&self, random: &mut Random) {
        if let Some(link) = self.some_link(random) {
            link.deaf.store(true, Ordering::Relaxed);
        }
    }

    /// Holds everything up, or lets it go on.
    pub(crate) fn stall(&self, stalled: bool) {
        self.shared.stalled.store(stalled, Ordering::Relaxed);
    }

    fn some_link(&self, random: &mut Random) -> Option<Arc<Link>> {
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
            deaf: AtomicBool::new(false),
            replies_left: AtomicU64::new(UNLIMITED),
            ended: AtomicBool::new(false),
        });
        shared.links().push(Arc::clone(&link));
        let (there, back) = (Arc::clone(shared), Arc::clone(shared));
        let replying = Arc::clone(&link);
        thread::spawn(move || {
            there.pump(&link, &link.client, &link.server, |link, bytes| {
                !link.deaf.load(Ordering::Relaxed) && (&link.server).write_all(bytes).is_ok()
            })
        });
        thread::spawn(move || back.pump(&replying, &replying.server, &replying.client, Link::reply));
        Ok(())
    }

    /// Passes bytes on until one end closes.
    fn pump(&self, link: &Link, from: &TcpStream, to: &TcpStream, pass: impl Fn(&Link, &[u8]) -> bool) {
        let mut buffer = [0; 16 * 1024];
        let mut source = from;
        while let Ok(count @ 1..) = source.read(&mut buffer) {
            while self.stalled.load(Ordering::Relaxed) {
                thread::sleep(Duration::from_millis(5));
            }
            if !pass(link, &buffer[..count]) && !link.deaf.load(Ordering::Relaxed) {
                break;
            }
        }
        // The server's end is not told to a client that is cut off from it.
        let is_client = std::ptr::eq(to, &link.client);
        if !(is_client && link.deaf.load(Ordering::Relaxed)) {
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
    /// Passes on what the server says, as far as the limit goes.
    fn reply(&self, bytes: &[u8]) -> bool {
        if self.deaf.load(Ordering::Relaxed) {
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
        // Either may be closed already.
        let _ = self.client.shutdown(Shutdown::Both);
        let _ = self.server.shutdown(Shutdown::Both);
    }
}
