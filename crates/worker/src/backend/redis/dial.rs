//! Opens connections: to an address, or over streams that a function of the program opens. The second way is for programs
//! that run the server in the same process.
//!
//! This module does not know what the connections are used for.

use std::io;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::{
    AsyncConnectionConfig, Client, Cmd, ConnectionInfo, ErrorKind, Pipeline, RedisConnectionInfo, RedisError,
    Value,
};
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;

use super::connection::CONNECT_TIMEOUT;

/// A function that opens a stream to a server. The stream is authenticated.
type Dial = Arc<dyn Fn() -> io::Result<UnixStream> + Send + Sync>;

/// Where connections lead to.
#[derive(Clone)]
pub(super) enum Target {
    /// A server with an address.
    Address(Box<Client>),
    /// A server to which a function of the program opens streams.
    Streams {
        dial: Dial,
        /// The user as which the streams are authenticated.
        user: String,
    },
}

/// An open connection. Clones share it, and it is closed when the last one is dropped.
#[derive(Clone)]
pub(super) struct OpenConnection {
    connection: MultiplexedConnection,
    /// The task that reads and writes. `None` if the client library owns it.
    _driver: Option<Arc<AbortOnDropHandle<()>>>,
}

impl Target {
    pub(super) fn address(info: ConnectionInfo) -> Result<Target, RedisError> {
        Ok(Target::Address(Box::new(Client::open(info)?)))
    }

    pub(super) fn streams(
        dial: impl Fn() -> io::Result<UnixStream> + Send + Sync + 'static,
        user: &str,
    ) -> Target {
        Target::Streams { dial: Arc::new(dial), user: user.to_owned() }
    }

    /// Returns the user as which connections authenticate.
    pub(super) fn user(&self) -> &str {
        match self {
            Target::Address(client) => {
                client.get_connection_info().redis_settings().username().unwrap_or("default")
            }
            Target::Streams { user, .. } => user,
        }
    }

    pub(super) async fn connect(&self, config: &AsyncConnectionConfig) -> Result<OpenConnection, RedisError> {
        match self {
            Target::Address(client) => {
                let connection = client.get_multiplexed_async_connection_with_config(config).await?;
                Ok(OpenConnection { connection, _driver: None })
            }
            Target::Streams { dial, .. } => {
                let opened = timeout(CONNECT_TIMEOUT, open(dial, config.clone())).await;
                opened.unwrap_or_else(|_| Err(io::Error::from(io::ErrorKind::TimedOut).into()))
            }
        }
    }
}

async fn open(dial: &Dial, config: AsyncConnectionConfig) -> Result<OpenConnection, RedisError> {
    let stream = dial().map_err(|error| match error.kind() {
        io::ErrorKind::PermissionDenied => {
            (ErrorKind::AuthenticationFailed, "login refused", error.to_string()).into()
        }
        _ => RedisError::from(error),
    })?;
    stream.set_nonblocking(true)?;
    let stream = tokio::net::UnixStream::from_std(stream)?;
    let info = RedisConnectionInfo::default().set_skip_set_lib_name();
    let (connection, driver) = MultiplexedConnection::new_with_config(&info, stream, config).await?;
    let driver = Arc::new(AbortOnDropHandle::new(tokio::spawn(driver)));
    Ok(OpenConnection { connection, _driver: Some(driver) })
}

impl OpenConnection {
    pub(super) async fn command(&mut self, command: &Cmd) -> Result<Value, RedisError> {
        self.connection.req_packed_command(command).await
    }

    pub(super) async fn pipeline(&mut self, pipeline: &Pipeline) -> Result<Vec<Value>, RedisError> {
        self.connection.req_packed_commands(pipeline, 0, pipeline.len()).await
    }
}
