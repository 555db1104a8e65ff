//! Opens the sockets to listen on. This is the first step of a start, so that a wrong address fails before data is
//! loaded.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use socket2::{Domain, Protocol, SockAddr, SockRef, Socket, Type};

use crate::settings::{Id, Settings};

pub(crate) struct Listeners {
    pub(crate) tcp: Vec<TcpListener>,
    pub(crate) tls: Vec<TcpListener>,
    pub(crate) unix: Option<UnixSocket>,
    pub(crate) http: Option<TcpListener>,
}

/// A Unix socket. Dropping it removes its file.
pub(crate) struct UnixSocket {
    pub(crate) listener: UnixListener,
    path: PathBuf,
}

impl UnixSocket {
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for UnixSocket {
    fn drop(&mut self) {
        // It does not matter if the file is already gone.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Why the server cannot listen.
#[derive(Debug)]
#[expect(missing_docs, reason = "the texts below say what each means")]
pub enum ListenError {
    NotAnAddress { text: String },
    NotHttpAddress { text: String },
    InUse { at: String },
    System { at: String, source: io::Error },
    NoAddress,
}

impl fmt::Display for ListenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ListenError::NotAnAddress { text } => {
                write!(
                    f,
                    "invalid bind address '{text}': expected an IP address such as 127.0.0.1 or ::1, localhost, or *"
                )
            }
            ListenError::NotHttpAddress { text } => {
                write!(
                    f,
                    "invalid http address '{text}': expected an IP address and a port, such as 127.0.0.1:8001"
                )
            }
            ListenError::InUse { at } => write!(
                f,
                "cannot listen on {at}: the address is already in use.\n\
                 Stop the process that uses it, or choose another port with --port (0 lets the system choose) \
                 or --tls-port, another address with --http, or another socket file with --unixsocket"
            ),
            ListenError::System { at, source } => write!(f, "cannot listen on {at}: {source}"),
            ListenError::NoAddress => f.write_str(
                "the server has no address to listen on. Set --bind to an address of this machine",
            ),
        }
    }
}

impl std::error::Error for ListenError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            ListenError::System { source, .. } => Some(source),
            _ => None,
        }
    }
}

impl Listeners {
    pub(crate) fn open(settings: &Settings) -> Result<Listeners, ListenError> {
        let backlog = i32::try_from(settings.number(Id::TcpBacklog)).unwrap_or(i32::MAX);
        let binds = parse_bind(&settings.text(Id::Bind))?;
        let port = |id| u16::try_from(settings.number(id)).unwrap_or(0);
        let (tcp, tls) = match (port(Id::Port), port(Id::TlsPort)) {
            (port, 0) => (open_port(&binds, port, backlog)?, Vec::new()),
            (0, tls_port) => (Vec::new(), open_port(&binds, tls_port, backlog)?),
            (port, tls_port) => (open_port(&binds, port, backlog)?, open_port(&binds, tls_port, backlog)?),
        };
        let unix = match settings.text(Id::UnixSocket) {
            path if path.is_empty() => None,
            path => {
                let mode = u32::try_from(settings.number(Id::UnixSocketPerm)).unwrap_or(0);
                let listening = listen_unix(Path::new(&path), mode, backlog);
                Some(listening.map_err(|source| listen_error(path, source))?)
            }
        };
        if tcp.is_empty() && tls.is_empty() && unix.is_none() {
            return Err(ListenError::NoAddress);
        }
        let http = open_http(&settings.text(Id::Http), backlog)?;
        Ok(Listeners { tcp, tls, unix, http })
    }
}

/// Returns the addresses of listeners, with the ports that the system chose.
pub(crate) fn addresses(listeners: &[TcpListener]) -> Vec<SocketAddr> {
    listeners.iter().filter_map(|listener| listener.local_addr().ok()).collect()
}

fn open_http(text: &str, backlog: i32) -> Result<Option<TcpListener>, ListenError> {
    if text.is_empty() {
        return Ok(None);
    }
    let with_ip = text.strip_prefix("localhost:").map(|port| format!("127.0.0.1:{port}"));
    let address: SocketAddr = with_ip
        .as_deref()
        .unwrap_or(text)
        .parse()
        .map_err(|_| ListenError::NotHttpAddress { text: text.to_owned() })?;
    listen_tcp(address, backlog).map(Some).map_err(|source| listen_error(address.to_string(), source))
}

fn open_port(binds: &[Bind], mut port: u16, backlog: i32) -> Result<Vec<TcpListener>, ListenError> {
    let mut listeners = Vec::new();
    for bind in binds {
        let address = SocketAddr::new(bind.ip, port);
        match listen_tcp(address, backlog) {
            Ok(listener) => {
                // For port 0, all addresses share the port that the system chose for the first.
                port = listener.local_addr().map_or(port, |chosen| chosen.port());
                listeners.push(listener);
            }
            Err(_) if bind.optional => {}
            Err(source) => return Err(listen_error(address.to_string(), source)),
        }
    }
    Ok(listeners)
}

fn listen_error(at: String, source: io::Error) -> ListenError {
    match source.kind() {
        io::ErrorKind::AddrInUse => ListenError::InUse { at },
        _ => ListenError::System { at, source },
    }
}

/// One address of the setting `bind`.
#[derive(Debug, PartialEq, Eq)]
struct Bind {
    ip: IpAddr,
    /// Whether the server starts even if it cannot listen on this address.
    optional: bool,
}

/// Parses the setting `bind`, for example `127.0.0.1 -::1`. A minus sign marks an optional address. `*` means all IPv4
/// addresses and, if the machine has IPv6, all IPv6 addresses. `localhost` means the loopback addresses.
fn parse_bind(text: &str) -> Result<Vec<Bind>, ListenError> {
    let mut binds = Vec::new();
    for word in text.split_ascii_whitespace() {
        let (optional, address) = match word.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, word),
        };
        if address == "*" {
            binds.push(Bind { ip: Ipv4Addr::UNSPECIFIED.into(), optional });
            binds.push(Bind { ip: Ipv6Addr::UNSPECIFIED.into(), optional: true });
        } else if address == "localhost" {
            binds.push(Bind { ip: Ipv4Addr::LOCALHOST.into(), optional });
            binds.push(Bind { ip: Ipv6Addr::LOCALHOST.into(), optional: true });
        } else {
            let ip = address.parse().map_err(|_| ListenError::NotAnAddress { text: address.to_owned() })?;
            binds.push(Bind { ip, optional });
        }
    }
    Ok(binds)
}

fn listen_tcp(address: SocketAddr, backlog: i32) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    if address.is_ipv6() {
        // IPv4 and IPv6 have separate sockets.
        socket.set_only_v6(true)?;
    }
    // After a restart the port is free even while old connections are in TIME_WAIT.
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    socket.listen(backlog)?;
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}

/// Listens on a Unix socket with these permissions, or with those of the umask if `mode` is 0. A socket file without a
/// listening process is replaced; any other file is an error.
fn listen_unix(path: &Path, mode: u32, backlog: i32) -> io::Result<UnixSocket> {
    if path.exists() && std::os::unix::net::UnixStream::connect(path).is_ok() {
        return Err(io::ErrorKind::AddrInUse.into());
    }
    match std::fs::symlink_metadata(path) {
        Ok(found) if is_socket(&found) => std::fs::remove_file(path)?,
        Ok(_) => return Err(io::ErrorKind::AddrInUse.into()),
        Err(_) => {}
    }
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.bind(&SockAddr::unix(path)?)?;
    let socket = UnixSocket { listener: socket.into(), path: path.to_owned() };
    if mode != 0 {
        // Before the socket listens, nobody can connect. So nobody can connect with the permissions of the umask.
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))?;
    }
    SockRef::from(&socket.listener).listen(backlog)?;
    socket.listener.set_nonblocking(true)?;
    Ok(socket)
}

fn is_socket(found: &std::fs::Metadata) -> bool {
    std::os::unix::fs::FileTypeExt::is_socket(&found.file_type())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(bind: &str, port: u16) -> Settings {
        let settings = Settings::new();
        settings.set(Id::Bind, bind).unwrap();
        settings.set(Id::Port, &port.to_string()).unwrap();
        settings
    }

    #[test]
    fn bind_accepts_optional_addresses_and_a_star() {
        let binds = parse_bind("10.0.0.1 -::1 *").unwrap();
        let shown: Vec<_> = binds.iter().map(|bind| (bind.ip.to_string(), bind.optional)).collect();
        let expected = [("10.0.0.1", false), ("::1", true), ("0.0.0.0", false), ("::", true)];
        assert_eq!(shown, expected.map(|(ip, optional)| (ip.to_owned(), optional)));
        assert!(matches!(parse_bind("example"), Err(ListenError::NotAnAddress { .. })));
    }

    #[test]
    fn all_addresses_share_the_port_chosen_for_port_zero() {
        let listeners = Listeners::open(&settings("127.0.0.1 127.0.0.2", 0)).unwrap();
        let ports: Vec<_> = addresses(&listeners.tcp).iter().map(SocketAddr::port).collect();
        assert_eq!(ports.len(), 2);
        assert!(ports[0] != 0 && ports[0] == ports[1]);
    }

    #[test]
    fn port_in_use_and_missing_address_are_different_errors() {
        let taken = Listeners::open(&settings("127.0.0.1", 0)).unwrap();
        let port = addresses(&taken.tcp)[0].port();
        assert!(matches!(Listeners::open(&settings("127.0.0.1", port)), Err(ListenError::InUse { .. })));
        assert!(matches!(Listeners::open(&settings("-127.0.0.1", port)), Err(ListenError::NoAddress)));
    }

    #[test]
    fn port_zero_beside_a_tls_port_opens_no_plain_port() {
        let free = addresses(&Listeners::open(&settings("127.0.0.1", 0)).unwrap().tcp)[0].port();
        let settings = settings("127.0.0.1", 0);
        settings.set(Id::TlsPort, &free.to_string()).unwrap();
        let listeners = Listeners::open(&settings).unwrap();
        assert!(listeners.tcp.is_empty());
        assert_eq!(addresses(&listeners.tls), [SocketAddr::from(([127, 0, 0, 1], free))]);
    }
}
