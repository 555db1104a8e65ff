//! The door: accepts connections, turns away those that may not enter, and hands each to a thread in turn.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use millstream_protocol::errors::{self, CommandError};
use millstream_protocol::resp::Writer;
use socket2::{SockRef, TcpKeepalive};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::task::JoinSet;

use crate::connection::Connection;
use crate::io_thread::Entrance;
use crate::listen::{Listeners, UnixSocket};
use crate::registry::{Client, Peer};
use crate::settings::Id;
use crate::state::Server;

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
        server.stats.rare.connections.fetch_add(1, Ordering::Relaxed);
        if !addr.ip().to_canonical().is_loopback() && is_protected(server) {
            return turn_away(&stream, &errors::PROTECTED_MODE);
        }
        prepare(&stream, server);
        let laddr = stream.local_addr().map(|laddr| laddr.to_string()).unwrap_or_default();
        let peer = Peer { addr: addr.to_string(), laddr, fd: stream.as_raw_fd(), by_unix_socket: false };
        let Some(client) = self.register(peer) else { return turn_away(&stream, &errors::MAX_CLIENTS) };
        let Ok(stream) = stream.into_std() else { return server.clients.remove(client.id) };
        let connection = self.connection(client);
        self.thread_for(connection.client_id()).spawn(async move {
            // Registered again with the runtime of the thread that serves it.
            if let Ok(stream) = TcpStream::from_std(stream) {
                connection.serve(stream).await;
            }
        });
    }

    fn enter_unix(&self, stream: UnixStream, path: &str) {
        let server = &self.server;
        server.stats.rare.connections.fetch_add(1, Ordering::Relaxed);
        let addr = format!("{path}:0");
        let peer = Peer { addr: addr.clone(), laddr: addr, fd: stream.as_raw_fd(), by_unix_socket: true };
        let Some(client) = self.register(peer) else { return turn_away(&stream, &errors::MAX_CLIENTS) };
        let Ok(stream) = stream.into_std() else { return server.clients.remove(client.id) };
        let connection = self.connection(client);
        self.thread_for(connection.client_id()).spawn(async move {
            if let Ok(stream) = UnixStream::from_std(stream) {
                connection.serve(stream).await;
            }
        });
    }

    fn register(&self, peer: Peer) -> Option<Arc<Client>> {
        let server = &self.server;
        let client = server.clients.add(peer, server.uptime_ms(), server.settings.size(Id::MaxClients));
        if client.is_none() {
            server.stats.rare.rejected_connections.fetch_add(1, Ordering::Relaxed);
        }
        client
    }

    fn connection(&self, client: Arc<Client>) -> Connection {
        let stats = Arc::clone(&self.thread_for(client.id).stats);
        Connection::new(Arc::clone(&self.server), stats, client)
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
