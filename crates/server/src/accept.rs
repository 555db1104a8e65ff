//! The door: accepts connections, turns away those that may not enter, and hands each to a thread in turn.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use millstream_protocol::errors::{self, CommandError};
use millstream_protocol::resp::Writer;
use socket2::{SockRef, TcpKeepalive};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::task::JoinSet;

use crate::connection::{Connection, Socket};
use crate::io_thread::Entrance;
use crate::listen::{Listeners, UnixSocket};
use crate::registry::Peer;
use crate::settings::Id;
use crate::state::Server;
use crate::stats::Event;

/// How long to wait when the system cannot give us a connection: no descriptors, no memory.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// It is tried again until it succeeds, but not told more often than this.
const TELL_EVERY: Duration = Duration::from_secs(10);

/// Accepts until the server is asked to stop.
pub(crate) async fn run(server: &Arc<Server>, listeners: Listeners, threads: &[Entrance]) -> io::Result<()> {
    let doors = Doors { server: Arc::clone(server), threads: threads.into() };
    let Listeners { tcp, unix } = listeners;
    // Dropped at the end, and with it the loops and their sockets.
    let mut loops = JoinSet::new();
    for listener in tcp {
        loops.spawn(accept_tcp(TcpListener::from_std(listener)?, doors.clone()));
    }
    if let Some(socket) = unix {
        loops.spawn(accept_unix(socket, doors.clone())?);
    }
    server.shutdown.begun().await;
    Ok(())
}

#[derive(Clone)]
struct Doors {
    server: Arc<Server>,
    threads: Arc<[Entrance]>,
}

async fn accept_tcp(listener: TcpListener, doors: Doors) {
    let mut told_at = None;
    loop {
        match listener.accept().await {
            Ok((stream, addr)) => doors.enter_tcp(stream, addr),
            Err(error) => after_failure(&error, &mut told_at).await,
        }
    }
}

/// The socket is kept with the loop: its file goes when the loop ends.
fn accept_unix(socket: UnixSocket, doors: Doors) -> io::Result<impl Future<Output = ()>> {
    let listener = UnixListener::from_std(socket.listener.try_clone()?)?;
    Ok(async move {
        let path = socket.path().display().to_string();
        let mut told_at = None;
        loop {
            match listener.accept().await {
                Ok((stream, _)) => doors.enter_unix(stream, &path),
                Err(error) => after_failure(&error, &mut told_at).await,
            }
        }
    })
}

/// A connection that died in the queue is nobody's loss. Without descriptors or memory there is nothing to
/// do but wait; clients that leave make room.
async fn after_failure(error: &io::Error, told_at: &mut Option<Instant>) {
    if error.kind() == io::ErrorKind::ConnectionAborted {
        return;
    }
    if told_at.is_none_or(|at| at.elapsed() >= TELL_EVERY) {
        eprintln!("millstream: cannot accept a connection, trying again: {error}");
        *told_at = Some(Instant::now());
    }
    tokio::time::sleep(ACCEPT_PAUSE).await;
}

impl Doors {
    fn enter_tcp(&self, stream: TcpStream, addr: SocketAddr) {
        let server = &self.server;
        server.stats.note(Event::Connection);
        if !addr.ip().to_canonical().is_loopback() && is_protected(server) {
            return turn_away(&stream, &errors::PROTECTED_MODE);
        }
        prepare(&stream, server);
        let laddr = stream.local_addr().map(|laddr| laddr.to_string()).unwrap_or_default();
        let peer = Peer { addr: addr.to_string(), laddr, fd: stream.as_raw_fd(), by_unix_socket: false };
        self.enter(stream, peer, TcpStream::into_std, TcpStream::from_std);
    }

    fn enter_unix(&self, stream: UnixStream, path: &str) {
        self.server.stats.note(Event::Connection);
        let addr = format!("{path}:0");
        let peer = Peer { addr: addr.clone(), laddr: addr, fd: stream.as_raw_fd(), by_unix_socket: true };
        self.enter(stream, peer, UnixStream::into_std, UnixStream::from_std);
    }

    /// Registers a client and hands its connection to a thread, whose runtime takes the socket over from this one's.
    fn enter<S: Socket + AsFd + Send + 'static, T: Send + 'static>(
        &self,
        stream: S,
        peer: Peer,
        leave_runtime: fn(S) -> io::Result<T>,
        join_runtime: fn(T) -> io::Result<S>,
    ) {
        let server = &self.server;
        let clients_max = server.settings.size(Id::MaxClients);
        let Some(client) = server.clients.add(peer, server.uptime_ms(), clients_max) else {
            server.stats.note(Event::RejectedConnection);
            return turn_away(&stream, &errors::MAX_CLIENTS);
        };
        let Ok(stream) = leave_runtime(stream) else { return server.clients.remove(client.id) };
        let thread = self.thread_for(client.id);
        let connection = Connection::new(Arc::clone(server), Arc::clone(&thread.stats), client);
        thread.spawn(async move {
            if let Ok(stream) = join_runtime(stream) {
                connection.serve(stream).await;
            }
        });
    }

    /// Round robin.
    fn thread_for(&self, client_id: u64) -> &Entrance {
        &self.threads[(client_id % self.threads.len() as u64) as usize]
    }
}

fn is_protected(server: &Server) -> bool {
    server.settings.is_on(Id::ProtectedMode) && server.settings.is_empty(Id::RequirePass)
}

/// Says why and closes. A peer that cannot take a line at once does not get it.
fn turn_away(stream: &impl AsFd, why: &CommandError) {
    let mut out = Writer::new(false);
    out.error(why.as_bytes());
    let _ = SockRef::from(stream).send(&out.buf);
}

/// Replies leave at once, and a vanished peer is noticed. A socket that refuses either still serves.
fn prepare(stream: &TcpStream, server: &Server) {
    let _ = stream.set_nodelay(true);
    let seconds = server.settings.number(Id::TcpKeepAlive).unsigned_abs();
    if seconds > 0 {
        let probes = Duration::from_secs((seconds / 3).max(1));
        let keepalive =
            TcpKeepalive::new().with_time(Duration::from_secs(seconds)).with_interval(probes).with_retries(3);
        let _ = SockRef::from(stream).set_tcp_keepalive(&keepalive);
    }
}
