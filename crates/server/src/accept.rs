//! Accepts connections, rejects those that are not allowed, and assigns each to an I/O thread.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use millstream_protocol::errors::{self, CommandError};
use millstream_protocol::resp::Writer;
use socket2::{SockRef, TcpKeepalive};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::task::JoinSet;

use crate::connection::Connection;
use crate::event_log::EventKind;
use crate::io_thread::IoThreadHandle;
use crate::listen::{Listeners, UnixSocket};
use crate::registry::{Client, ConnectionInfo, Transport};
use crate::settings::Id;
use crate::state::Server;
use crate::stats::Event;

/// Pause after a failed accept, for example for lack of descriptors or memory.
const RETRY_PAUSE: Duration = Duration::from_millis(100);
/// Maximum number of clients that wait until their thread serves them.
const UNSERVED_MAX: usize = 1024;
/// Pause while too many clients wait until their thread serves them.
const UNSERVED_PAUSE: Duration = Duration::from_millis(1);

pub(crate) async fn run(
    server: &Arc<Server>,
    listeners: Listeners,
    threads: &[IoThreadHandle],
) -> io::Result<()> {
    let acceptor = Acceptor { server: Arc::clone(server), threads: threads.into() };
    let Listeners { tcp, tls, unix, http: _ } = listeners;
    // Dropping the set ends the loops and closes their sockets.
    let mut loops = JoinSet::new();
    for listener in tcp {
        loops.spawn(accept_tcp(TcpListener::from_std(listener)?, acceptor.clone(), Acceptor::start_tcp));
    }
    for listener in tls {
        loops.spawn(accept_tcp(TcpListener::from_std(listener)?, acceptor.clone(), Acceptor::start_tls));
    }
    if let Some(socket) = unix {
        loops.spawn(accept_unix(socket, acceptor.clone())?);
    }
    server.shutdown.begun().await;
    Ok(())
}

#[derive(Clone)]
struct Acceptor {
    server: Arc<Server>,
    threads: Arc<[IoThreadHandle]>,
}

async fn accept_tcp(
    listener: TcpListener,
    acceptor: Acceptor,
    start: fn(&Acceptor, stream: TcpStream, addr: SocketAddr),
) {
    loop {
        acceptor.wait_for_threads().await;
        match listener.accept().await {
            Ok((stream, addr)) => start(&acceptor, stream, addr),
            Err(error) => acceptor.after_failure(&error).await,
        }
    }
}

/// Returns the loop that accepts from a Unix socket. It owns the socket, so the socket file is removed when the
/// loop ends.
fn accept_unix(socket: UnixSocket, acceptor: Acceptor) -> io::Result<impl Future<Output = ()>> {
    let listener = UnixListener::from_std(socket.listener.try_clone()?)?;
    Ok(async move {
        let path = socket.path().display().to_string();
        loop {
            acceptor.wait_for_threads().await;
            match listener.accept().await {
                Ok((stream, _)) => acceptor.start_unix(stream, &path),
                Err(error) => acceptor.after_failure(&error).await,
            }
        }
    })
}

impl Acceptor {
    /// Waits while too many clients wait until their thread serves them. A flood of connections then waits in the
    /// system's queue, where it takes neither open files nor memory of the server.
    async fn wait_for_threads(&self) {
        while self.server.clients.unserved() >= UNSERVED_MAX {
            tokio::time::sleep(UNSERVED_PAUSE).await;
        }
    }

    /// Logs a failed accept and waits before the next one.
    ///
    /// A client that disconnected before it was accepted is no failure. If descriptors or memory are short, the loop
    /// can only wait until other clients disconnect.
    async fn after_failure(&self, error: &io::Error) {
        if error.kind() == io::ErrorKind::ConnectionAborted {
            return;
        }
        self.server.note_event(EventKind::CannotAccept, "", None, &error.to_string());
        tokio::time::sleep(RETRY_PAUSE).await;
    }

    fn start_tcp(&self, stream: TcpStream, addr: SocketAddr) {
        self.server.stats.note(Event::Connection);
        if self.is_protected_from(addr) {
            return reject(&stream, &errors::PROTECTED_MODE);
        }
        let client = match self.register(tcp_info(&stream, addr)) {
            Ok(client) => client,
            Err(error) => return reject(&stream, &error),
        };
        set_socket_options(&stream, &self.server);
        self.start(client, stream, TcpStream::into_std, TcpStream::from_std, Connection::serve);
    }

    /// Starts a connection with TLS. A client that is not allowed gets no error: it could read one only after a
    /// handshake.
    fn start_tls(&self, stream: TcpStream, addr: SocketAddr) {
        self.server.stats.note(Event::Connection);
        if self.is_protected_from(addr) {
            return;
        }
        let Ok(client) = self.register(tcp_info(&stream, addr)) else { return };
        set_socket_options(&stream, &self.server);
        self.start(client, stream, TcpStream::into_std, TcpStream::from_std, Connection::serve_tls);
    }

    fn start_unix(&self, stream: UnixStream, path: &str) {
        self.server.stats.note(Event::Connection);
        let addr = format!("{path}:0");
        let info = ConnectionInfo {
            addr: addr.clone(),
            laddr: addr,
            fd: stream.as_raw_fd(),
            transport: Transport::UnixSocket,
        };
        let client = match self.register(info) {
            Ok(client) => client,
            Err(error) => return reject(&stream, &error),
        };
        self.start(client, stream, UnixStream::into_std, UnixStream::from_std, Connection::serve);
    }

    /// Whether protected mode rejects this client. Logs it if so.
    fn is_protected_from(&self, addr: SocketAddr) -> bool {
        let is_protected = !addr.ip().to_canonical().is_loopback() && is_protected(&self.server);
        if is_protected {
            self.server.audit(EventKind::Refused, &addr.to_string(), None, "protected mode");
        }
        is_protected
    }

    fn register(&self, info: ConnectionInfo) -> Result<Arc<Client>, CommandError> {
        let (server, addr) = (&self.server, info.addr.clone());
        let clients_max = server.settings.size(Id::MaxClients);
        let must_log_in = server.requires_login();
        if must_log_in && let Some(closed) = server.clients.close_longest_logged_out(clients_max) {
            server.stats.note(Event::LoginTimeoutClose);
            server.audit(EventKind::LoginTimeout, &closed.addr, None, "to make room for a new client");
        }
        let added = server.clients.add(info, server.uptime_ms(), clients_max, must_log_in);
        let (kind, what) = match added {
            Some(_) => (EventKind::Connected, ""),
            None => (EventKind::Refused, "maxclients"),
        };
        server.audit(kind, &addr, None, what);
        added.ok_or_else(|| {
            server.stats.note(Event::RejectedConnection);
            errors::MAX_CLIENTS
        })
    }

    /// Starts a client's connection on an I/O thread. The socket moves from the accepting runtime to the runtime of
    /// that thread.
    fn start<S: Send + 'static, T: Send + 'static, F: Future<Output = ()> + Send + 'static>(
        &self,
        client: Arc<Client>,
        stream: S,
        leave_runtime: fn(S) -> io::Result<T>,
        join_runtime: fn(T) -> io::Result<S>,
        serve: fn(Connection, S) -> F,
    ) {
        let server = &self.server;
        let Ok(stream) = leave_runtime(stream) else { return server.clients.remove(client.id) };
        let thread = self.thread_for(client.id);
        let connection = Connection::new(Arc::clone(server), Arc::clone(&thread.stats), client);
        start_on(thread, connection, stream, join_runtime, serve);
    }

    fn thread_for(&self, client_id: u64) -> &IoThreadHandle {
        &self.threads[(client_id % self.threads.len() as u64) as usize]
    }
}

/// Serves a connection on an I/O thread. `join_runtime` adds the socket to the runtime of that thread.
pub(crate) fn start_on<S: Send + 'static, T: Send + 'static, F: Future<Output = ()> + Send + 'static>(
    thread: &IoThreadHandle,
    connection: Connection,
    stream: T,
    join_runtime: fn(T) -> io::Result<S>,
    serve: fn(Connection, S) -> F,
) {
    let unserved = connection.unserved();
    unserved.fetch_add(1, Ordering::Relaxed);
    thread.spawn(async move {
        unserved.fetch_sub(1, Ordering::Relaxed);
        if let Ok(stream) = join_runtime(stream) {
            serve(connection, stream).await;
        }
    });
}

fn tcp_info(stream: &TcpStream, addr: SocketAddr) -> ConnectionInfo {
    let laddr = stream.local_addr().map(|laddr| laddr.to_string()).unwrap_or_default();
    ConnectionInfo { addr: addr.to_string(), laddr, fd: stream.as_raw_fd(), transport: Transport::Tcp }
}

/// Whether only clients of this machine may connect: protected mode is on and clients need no password.
fn is_protected(server: &Server) -> bool {
    server.settings.is_on(Id::ProtectedMode) && !server.requires_login()
}

/// Sends an error, unless that would block. The caller then drops the socket, which closes it.
fn reject(stream: &impl AsFd, error: &CommandError) {
    let mut out = Writer::new(false);
    out.error(error.as_bytes());
    let _ = SockRef::from(stream).send(&out.buf);
}

/// Sets TCP_NODELAY and keepalive: replies are sent without delay, and a lost client is noticed. If the system
/// refuses an option, the connection is served without it.
fn set_socket_options(stream: &TcpStream, server: &Server) {
    let _ = stream.set_nodelay(true);
    let seconds = server.settings.number(Id::TcpKeepAlive).unsigned_abs();
    if seconds > 0 {
        let probes = Duration::from_secs((seconds / 3).max(1));
        let keepalive =
            TcpKeepalive::new().with_time(Duration::from_secs(seconds)).with_interval(probes).with_retries(3);
        let _ = SockRef::from(stream).set_tcp_keepalive(&keepalive);
    }
}
