//! The connection that all non-blocking calls share: to one server or to a cluster. If the connection to a server
//! breaks, the next call opens a new one.

use std::time::Duration;

use parking_lot::RwLock;
use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::cluster_async::ClusterConnection;
use redis::cluster_routing::{Route, RoutingInfo, SingleNodeRoutingInfo, SlotAddr};
use redis::{AsyncConnectionConfig, Client, Cmd, Pipeline, RedisError, Value};
use tokio::sync::Mutex;

use super::super::Error;
use super::commands::command;
use super::errors::from_redis;
use super::permissions::denied;
use super::reply::{SlotRange, array, slots};

/// Maximum time for connecting to a server.
pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum time for the reply to a call that does not block.
pub(super) const REPLY_TIMEOUT: Duration = Duration::from_secs(10);

/// The connection to a server or to a cluster.
pub(super) struct Connection {
    pub(super) link: Link,
    /// The user as which the connection authenticates.
    pub(super) user: String,
}

/// What a [`Connection`] is connected to.
pub(super) enum Link {
    Server(Box<ServerConnection>),
    Cluster(ClusterConnection),
}

impl Connection {
    pub(super) fn is_cluster(&self) -> bool {
        matches!(self.link, Link::Cluster(_))
    }

    /// Sends a command to the server, or to the node of the cluster that owns the key.
    pub(super) async fn command(&self, key: &str, command: Cmd) -> Result<Value, Error> {
        let reply = match &self.link {
            Link::Server(server) => server.command(&command).await,
            Link::Cluster(cluster) => {
                let routing = RoutingInfo::SingleNode(owner_of(key));
                cluster.clone().route_command(command.clone(), routing).await
            }
        };
        self.explained(&command, reply)
    }

    /// Returns the reply to a command, or an error. The error for a denied command says what to grant.
    pub(super) fn explained(&self, command: &Cmd, reply: Result<Value, RedisError>) -> Result<Value, Error> {
        match reply {
            Ok(Value::ServerError(error)) => Err(self.explain(command, error.into())),
            Ok(value) => Ok(value),
            Err(error) => Err(self.explain(command, error)),
        }
    }

    /// Converts the error of a command. The error for a denied command says what to grant.
    pub(super) fn explain(&self, command: &Cmd, error: RedisError) -> Error {
        self.denied(&error, |_| Some(command)).unwrap_or_else(|| from_redis(error))
    }

    /// Returns the error for a denied command, or `None` if the error is another. `command_at` returns the command with
    /// this number.
    fn denied<'c>(&self, error: &RedisError, command_at: impl Fn(usize) -> Option<&'c Cmd>) -> Option<Error> {
        let errors = error.clone().into_server_errors()?;
        errors.iter().find_map(|(at, error)| denied(&self.user, command_at(*at)?, error))
    }

    /// Sends commands in one round trip. All their keys must be in one slot. Each reply can be an error, but if the user
    /// may not run one of the commands, the call fails.
    pub(super) async fn pipeline(&self, key: &str, commands: Vec<Cmd>) -> Result<Vec<Value>, Error> {
        let pipeline = pipeline_of(commands);
        let replies = self.send_pipeline(key, &pipeline, 0, pipeline.len()).await?;
        for (command, reply) in pipeline.cmd_iter().zip(&replies) {
            if let Value::ServerError(error) = reply
                && let Some(denied) = denied(&self.user, command, error)
            {
                return Err(denied);
            }
        }
        Ok(replies)
    }

    /// Sends commands in one round trip. All their keys must be in one slot. Each reply can be an error.
    pub(super) async fn replies(&self, key: &str, commands: Vec<Cmd>) -> Result<Vec<Value>, Error> {
        let pipeline = pipeline_of(commands);
        self.send_pipeline(key, &pipeline, 0, pipeline.len()).await
    }

    /// Sends commands as one transaction (MULTI). All their keys must be in one slot.
    pub(super) async fn transaction(&self, key: &str, commands: Vec<Cmd>) -> Result<Vec<Value>, Error> {
        let count = commands.len();
        let mut pipeline = pipeline_of(commands);
        pipeline.atomic();
        let mut replies = self.send_pipeline(key, &pipeline, count + 1, 1).await?;
        array(replies.pop().unwrap_or(Value::Nil))
    }

    /// Returns which node of the cluster serves which slots.
    pub(super) async fn slots(&self) -> Result<Vec<SlotRange>, Error> {
        slots(self.command("", command!("CLUSTER", "SLOTS")).await?)
    }

    async fn send_pipeline(
        &self,
        key: &str,
        pipeline: &Pipeline,
        offset: usize,
        count: usize,
    ) -> Result<Vec<Value>, Error> {
        if count == 0 {
            return Ok(Vec::new());
        }
        let replies = match &self.link {
            Link::Server(server) => server.pipeline(pipeline, offset, count).await,
            Link::Cluster(cluster) => {
                cluster.clone().route_pipeline(pipeline.clone(), offset, count, owner_of(key)).await
            }
        };
        replies.map_err(|error| {
            let denied = self.denied(&error, |at| pipeline.cmd_iter().nth(at));
            denied.unwrap_or_else(|| from_redis(error))
        })
    }
}

fn pipeline_of(commands: Vec<Cmd>) -> Pipeline {
    let mut pipeline = Pipeline::with_capacity(commands.len());
    for command in commands {
        pipeline.add_command(command);
    }
    pipeline
}

/// Routes to the master of the key's slot.
fn owner_of(key: &str) -> SingleNodeRoutingInfo {
    SingleNodeRoutingInfo::SpecificNode(Route::with_key(key, SlotAddr::Master))
}

/// A server, and the connection to it that all calls share.
pub(super) struct ServerConnection {
    client: Client,
    config: AsyncConnectionConfig,
    current: RwLock<CurrentConnection>,
    /// Locked while a task connects, so that only one task does.
    connecting: Mutex<()>,
}

/// The connection in use, and its number: connections are counted from 1.
#[derive(Default)]
struct CurrentConnection {
    number: u64,
    connection: Option<MultiplexedConnection>,
}

impl ServerConnection {
    pub(super) fn new(client: Client) -> ServerConnection {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(CONNECT_TIMEOUT))
            .set_response_timeout(Some(REPLY_TIMEOUT));
        ServerConnection { client, config, current: RwLock::default(), connecting: Mutex::default() }
    }

    async fn command(&self, command: &Cmd) -> Result<Value, RedisError> {
        let (number, mut connection) = self.connection().await?;
        let reply = connection.req_packed_command(command).await;
        reply.inspect_err(|error| self.discard_if_broken(number, error))
    }

    async fn pipeline(
        &self,
        pipeline: &Pipeline,
        offset: usize,
        count: usize,
    ) -> Result<Vec<Value>, RedisError> {
        let (number, mut connection) = self.connection().await?;
        let replies = connection.req_packed_commands(pipeline, offset, count).await;
        replies.inspect_err(|error| self.discard_if_broken(number, error))
    }

    async fn connection(&self) -> Result<(u64, MultiplexedConnection), RedisError> {
        if let Some(ready) = self.ready() {
            return Ok(ready);
        }
        let _connecting = self.connecting.lock().await;
        if let Some(ready) = self.ready() {
            return Ok(ready);
        }
        let connection = self.client.get_multiplexed_async_connection_with_config(&self.config).await?;
        let mut current = self.current.write();
        current.number += 1;
        current.connection = Some(connection.clone());
        Ok((current.number, connection))
    }

    fn ready(&self) -> Option<(u64, MultiplexedConnection)> {
        let current = self.current.read();
        current.connection.clone().map(|connection| (current.number, connection))
    }

    /// Drops the connection if it broke or a reply timed out. The next call opens a new one.
    fn discard_if_broken(&self, number: u64, error: &RedisError) {
        if error.is_io_error() || error.is_unrecoverable_error() {
            let mut current = self.current.write();
            if current.number == number {
                current.connection = None;
            }
        }
    }
}
