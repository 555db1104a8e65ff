//! Opens connections: to an address, or over streams that a function of the program opens. The second way is for
//! programs that run the server in the same process.
//!
//! This module does not know what the connections are used for.

use std::io;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::io::tcp::socket2::{SockRef, TcpKeepalive};
use redis::{
    AsyncConnectionConfig, Cmd, ConnectionAddr, ConnectionInfo, ErrorKind, Pipeline, RedisConnectionInfo,
    RedisError, Value,
};
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_util::task::AbortOnDropHandle;

use super::commands::command;
use super::connection::{CONNECT_TIMEOUT, pipeline_of};
use super::limit::LimitedReplies;

/// A function that opens a stream to a server. The stream is authenticated.
type Dial = Arc<dyn Fn() -> io::Result<UnixStream> + Send + Sync>;

/// Where connections lead to, and how they introduce themselves.
#[derive(Clone)]
pub(super) struct Target {
    place: DialAddress,
    introduction: Arc<Introduction>,
}

#[derive(Clone)]
enum DialAddress {
    Address {
        info: Box<ConnectionInfo>,
        /// `None` without TLS.
        tls: Option<TlsConnector>,
    },
    /// A server to which a function of the program opens streams.
    Streams {
        dial: Dial,
        /// The user as which the streams are authenticated.
        user: String,
    },
}

/// The commands that tell a server who its client is. A command that the server refuses is not sent again.
#[derive(Default)]
struct Introduction(Mutex<Vec<Cmd>>);

/// An open connection. Clones share it, and it is closed when the last one is dropped.
#[derive(Clone)]
pub(super) struct OpenConnection {
    connection: MultiplexedConnection,
    /// The task that reads and writes.
    _driver: Arc<AbortOnDropHandle<()>>,
}

impl Target {
    pub(super) fn address(info: ConnectionInfo, tls: Option<TlsConnector>) -> Target {
        Target { place: DialAddress::Address { info: Box::new(info), tls }, introduction: Arc::default() }
    }

    pub(super) fn streams(
        dial: impl Fn() -> io::Result<UnixStream> + Send + Sync + 'static,
        user: &str,
    ) -> Target {
        let place = DialAddress::Streams { dial: Arc::new(dial), user: user.to_owned() };
        Target { place, introduction: Arc::default() }
    }

    /// Returns the same target with another host and port, for another node of a cluster.
    pub(super) fn at(&self, host: String, port: u16) -> Target {
        let mut target = self.clone();
        if let DialAddress::Address { info, .. } = &mut target.place {
            let address = match info.addr() {
                ConnectionAddr::TcpTls { insecure, tls_params, .. } => {
                    ConnectionAddr::TcpTls { host, port, insecure: *insecure, tls_params: tls_params.clone() }
                }
                _ => ConnectionAddr::Tcp(host, port),
            };
            **info = info.as_ref().clone().set_addr(address);
        }
        target
    }

    /// Returns the user as which connections authenticate.
    pub(super) fn user(&self) -> &str {
        match &self.place {
            DialAddress::Address { info, .. } => info.redis_settings().username().unwrap_or("default"),
            DialAddress::Streams { user, .. } => user,
        }
    }

    /// Sets the name that CLIENT LIST shows, for connections that are opened from now on.
    pub(super) fn set_name(&self, name: &str) {
        // The server accepts only these characters in names.
        let name: String = name.chars().map(|c| if c.is_ascii_graphic() { c } else { '_' }).collect();
        let version = env!("CARGO_PKG_VERSION");
        *self.introduction.0.lock() = vec![
            command!("CLIENT", "SETNAME", name),
            command!("CLIENT", "SETINFO", "LIB-NAME", "millstream"),
            command!("CLIENT", "SETINFO", "LIB-VER", version),
        ];
    }

    /// Tells the server who its client is, if a name is set.
    pub(super) async fn introduce(&self, connection: &mut OpenConnection) -> Result<(), RedisError> {
        let commands = self.introduction.0.lock().clone();
        if commands.is_empty() {
            return Ok(());
        }
        let replies = connection.pipeline(&pipeline_of(commands.clone())).await?;
        let accepted = commands.into_iter().zip(replies);
        let accepted = accepted.filter(|(_, reply)| !matches!(reply, Value::ServerError(_)));
        *self.introduction.0.lock() = accepted.map(|(command, _)| command).collect();
        Ok(())
    }

    pub(super) async fn connect(&self, config: &AsyncConnectionConfig) -> Result<OpenConnection, RedisError> {
        let opened = timeout(CONNECT_TIMEOUT, async {
            let mut connection = self.open(config.clone()).await?;
            self.introduce(&mut connection).await?;
            Ok(connection)
        });
        opened.await.unwrap_or_else(|_| Err(io::Error::from(io::ErrorKind::TimedOut).into()))
    }

    async fn open(&self, config: AsyncConnectionConfig) -> Result<OpenConnection, RedisError> {
        let (info, tls) = match &self.place {
            DialAddress::Streams { dial, .. } => {
                let info = RedisConnectionInfo::default().set_skip_set_lib_name();
                return OpenConnection::over(open_stream(dial)?, &info, config).await;
            }
            DialAddress::Address { info, tls } => (info, tls),
        };
        let settings = info.redis_settings();
        match (info.addr(), tls) {
            (ConnectionAddr::TcpTls { host, port, .. }, Some(tls)) => {
                let name = ServerName::try_from(host.as_str()).map_err(|error| {
                    RedisError::from((ErrorKind::InvalidClientConfig, "invalid host name", error.to_string()))
                })?;
                let stream = tls.connect(name.to_owned(), connect_tcp(host, *port).await?).await?;
                OpenConnection::over(stream, settings, config).await
            }
            (ConnectionAddr::Tcp(host, port), _) => {
                OpenConnection::over(connect_tcp(host, *port).await?, settings, config).await
            }
            (ConnectionAddr::Unix(path), _) => {
                OpenConnection::over(tokio::net::UnixStream::connect(path).await?, settings, config).await
            }
            (other, _) => Err((ErrorKind::InvalidClientConfig, "no TLS", other.to_string()).into()),
        }
    }
}

fn open_stream(dial: &Dial) -> Result<tokio::net::UnixStream, RedisError> {
    let stream = dial().map_err(|error| match error.kind() {
        io::ErrorKind::PermissionDenied => {
            (ErrorKind::AuthenticationFailed, "login refused", error.to_string()).into()
        }
        _ => RedisError::from(error),
    })?;
    stream.set_nonblocking(true)?;
    Ok(tokio::net::UnixStream::from_std(stream)?)
}

/// Connects to the first address of a host that accepts. One that does not answer delays none of the others.
async fn connect_tcp(host: &str, port: u16) -> io::Result<TcpStream> {
    let mut attempts: JoinSet<_> =
        tokio::net::lookup_host((host, port)).await?.map(TcpStream::connect).collect();
    let mut failure = io::Error::new(io::ErrorKind::NotFound, format!("the host {host} has no address"));
    while let Some(Ok(attempt)) = attempts.join_next().await {
        match attempt {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                // The system detects a dead server even on a connection that only waits for a reply.
                let keepalive = TcpKeepalive::new().with_time(Duration::from_secs(10));
                let keepalive = keepalive.with_interval(Duration::from_secs(5)).with_retries(3);
                SockRef::from(&stream).set_tcp_keepalive(&keepalive)?;
                return Ok(stream);
            }
            Err(error) => failure = error,
        }
    }
    Err(failure)
}

impl OpenConnection {
    async fn over(
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        info: &RedisConnectionInfo,
        config: AsyncConnectionConfig,
    ) -> Result<OpenConnection, RedisError> {
        let stream = LimitedReplies::new(stream);
        let (connection, driver) = MultiplexedConnection::new_with_config(info, stream, config).await?;
        let driver = Arc::new(AbortOnDropHandle::new(tokio::spawn(driver)));
        Ok(OpenConnection { connection, _driver: driver })
    }

    pub(super) async fn command(&mut self, command: &Cmd) -> Result<Value, RedisError> {
        self.connection.req_packed_command(command).await
    }

    pub(super) async fn pipeline(&mut self, pipeline: &Pipeline) -> Result<Vec<Value>, RedisError> {
        self.connection.req_packed_commands(pipeline, 0, pipeline.len()).await
    }
}
