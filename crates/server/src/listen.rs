//! Sockets to listen on, made before anything else so that a wrong address ends the start with a clear word.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use socket2::{Domain, Protocol, Socket, Type};

use crate::settings::{Id, Settings};

/// The sockets of a server.
pub(crate) struct Listeners {
    pub(crate) tcp: Vec<TcpListener>,
    pub(crate) unix: Option<UnixSocket>,
}

/// A Unix socket; its file goes when the server does.
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
        // Whoever finds the file gone already has nothing to complain about.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Why there is nothing to listen on.
#[derive(Debug)]
pub enum ListenError {
    /// Not an address.
    NotAnAddress {
        /// As it was given.
        text: String,
    },
    /// Something else listens there.
    InUse {
        /// The address or path.
        at: String,
    },
    /// The system refused.
    Refused {
        /// The address or path.
        at: String,
        /// What it said.
        source: io::Error,
    },
    /// No address given, or none of the optional ones exists.
    Nowhere,
}

impl fmt::Display for ListenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ListenError::NotAnAddress { text } => {
                write!(f, "bind: '{text}' is not an IP address. Give addresses such as 127.0.0.1, ::1 or *")
            }
            ListenError::InUse { at } => write!(
                f,
                "cannot listen on {at}: something else does already.\n\
                 Stop it, or choose another port with --port (0 lets the system choose)"
            ),
            ListenError::Refused { at, source } => write!(f, "cannot listen on {at}: {source}"),
            ListenError::Nowhere => {
                f.write_str("there is nothing to listen on. Give --bind an address of this machine")
            }
        }
    }
}

impl std::error::Error for ListenError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            ListenError::Refused { source, .. } => Some(source),
            _ => None,
        }
    }
}

impl Listeners {
    /// Opens what the settings name.
    pub(crate) fn open(settings: &Settings) -> Result<Listeners, ListenError> {
        let backlog = i32::try_from(settings.number(Id::TcpBacklog)).unwrap_or(i32::MAX);
        let mut port = u16::try_from(settings.number(Id::Port)).unwrap_or(0);
        let mut tcp = Vec::new();
        for bind in parse_bind(&settings.text(Id::Bind))? {
            let address = SocketAddr::new(bind.ip, port);
            match listen_tcp(address, backlog) {
                Ok(listener) => {
                    // Further addresses share the port that the system chose for the first.
                    port = listener.local_addr().map_or(port, |chosen| chosen.port());
                    tcp.push(listener);
                }
                Err(_) if bind.optional => {}
                Err(source) => return Err(explain(address.to_string(), source)),
            }
        }
        let unix = match settings.text(Id::UnixSocket) {
            path if path.is_empty() => None,
            path => Some(listen_unix(Path::new(&path)).map_err(|source| explain(path, source))?),
        };
        if tcp.is_empty() && unix.is_none() {
            return Err(ListenError::Nowhere);
        }
        Ok(Listeners { tcp, unix })
    }

    /// The addresses, as the system gave them.
    pub(crate) fn addresses(&self) -> Vec<SocketAddr> {
        self.tcp.iter().filter_map(|listener| listener.local_addr().ok()).collect()
    }
}

fn explain(at: String, source: io::Error) -> ListenError {
    match source.kind() {
        io::ErrorKind::AddrInUse => ListenError::InUse { at },
        _ => ListenError::Refused { at, source },
    }
}

#[derive(Debug, PartialEq, Eq)]
struct Bind {
    ip: IpAddr,
    optional: bool,
}

/// Reads `127.0.0.1 -::1`; `*` stands for every IPv4 and, if there is any, every IPv6 address.
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
        // Each family has its own socket.
        socket.set_only_v6(true)?;
    }
    // A restart need not wait for the last run's connections to be forgotten.
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    socket.listen(backlog)?;
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}

/// A file that a dead server left behind is replaced; one that somebody answers on is not.
fn listen_unix(path: &Path) -> io::Result<UnixSocket> {
    if path.exists() && std::os::unix::net::UnixStream::connect(path).is_ok() {
        return Err(io::ErrorKind::AddrInUse.into());
    }
    match std::fs::symlink_metadata(path) {
        Ok(found) if is_socket(&found) => std::fs::remove_file(path)?,
        Ok(_) => return Err(io::ErrorKind::AddrInUse.into()),
        Err(_) => {}
    }
    let listener = UnixListener::bind(path)?;
    listener.set_nonblocking(true)?;
    Ok(UnixSocket { listener, path: path.to_owned() })
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
    fn addresses_may_be_optional_and_a_star_is_everything() {
        let binds = parse_bind("10.0.0.1 -::1 *").unwrap();
        let shown: Vec<_> = binds.iter().map(|bind| (bind.ip.to_string(), bind.optional)).collect();
        let expected = [("10.0.0.1", false), ("::1", true), ("0.0.0.0", false), ("::", true)];
        assert_eq!(shown, expected.map(|(ip, optional)| (ip.to_owned(), optional)));
        assert!(matches!(parse_bind("example"), Err(ListenError::NotAnAddress { .. })));
    }

    #[test]
    fn port_zero_is_chosen_once_and_shared() {
        let listeners = Listeners::open(&settings("127.0.0.1 127.0.0.2", 0)).unwrap();
        let ports: Vec<_> = listeners.addresses().iter().map(SocketAddr::port).collect();
        assert_eq!(ports.len(), 2);
        assert!(ports[0] != 0 && ports[0] == ports[1]);
    }

    #[test]
    fn a_taken_port_and_no_address_at_all_are_told_apart() {
        let taken = Listeners::open(&settings("127.0.0.1", 0)).unwrap();
        let port = taken.addresses()[0].port();
        assert!(matches!(Listeners::open(&settings("127.0.0.1", port)), Err(ListenError::InUse { .. })));
        assert!(matches!(Listeners::open(&settings("-127.0.0.1", port)), Err(ListenError::Nowhere)));
    }
}
