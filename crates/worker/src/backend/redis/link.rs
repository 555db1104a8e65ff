//! Ordinary calls: one connection that all share, replaced when it breaks; or a cluster's.

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
use super::reply::{Slots, array, checked, slots};

/// How long a server may take to accept a connection.
pub(super) const CONNECT_WITHIN: Duration = Duration::from_secs(5);
/// How long a server may take to answer a call that does not wait for entries.
pub(super) const ANSWER_WITHIN: Duration = Duration::from_secs(10);

/// The way to a server, or to the servers of a cluster.
pub(super) enum Link {
    Server(Box<Server>),
    Cluster(ClusterConnection),
}

impl Link {
    /// Sends a command about a key.
    pub(super) async fn command(&self, key: &str, command: Cmd) -> Result<Value, Error> {
        let answer = match self {
            Link::Server(server) => server.command(&command).await,
            Link::Cluster(cluster) => {
                let routing = RoutingInfo::SingleNode(owner_of(key));
                cluster.clone().route_command(command, routing).await
            }
        };
        answer.map_err(from_redis).and_then(checked)
    }

    /// Sends commands about keys of one slot in one go. Each has its own answer, which may be an error.
    pub(super) async fn pipeline(&self, key: &str, commands: Vec<Cmd>) -> Result<Vec<Value>, Error> {
        let count = commands.len();
        if count == 0 {
            return Ok(Vec::new());
        }
        self.send_pipeline(key, pipeline_of(commands), 0, count).await
    }

    /// Sends commands about keys of one slot that happen as one step, or not at all.
    pub(super) async fn transaction(&self, key: &str, commands: Vec<Cmd>) -> Result<Vec<Value>, Error> {
        let count = commands.len();
        let mut pipeline = pipeline_of(commands);
        pipeline.atomic();
        let mut answers = self.send_pipeline(key, pipeline, count + 1, 1).await?;
        array(answers.pop().unwrap_or(Value::Nil))
    }

    /// Which server of a cluster has which slots.
    pub(super) async fn slots(&self) -> Result<Vec<Slots>, Error> {
        slots(self.command("", command!("CLUSTER", "SLOTS")).await?)
    }

    async fn send_pipeline(
        &self,
        key: &str,
        pipeline: Pipeline,
        offset: usize,
        count: usize,
    ) -> Result<Vec<Value>, Error> {
        let answers = match self {
            Link::Server(server) => server.pipeline(&pipeline, offset, count).await,
            Link::Cluster(cluster) => {
                cluster.clone().route_pipeline(pipeline, offset, count, owner_of(key)).await
            }
        };
        answers.map_err(from_redis)
    }
}

fn pipeline_of(commands: Vec<Cmd>) -> Pipeline {
    let mut pipeline = Pipeline::with_capacity(commands.len());
    for command in commands {
        pipeline.add_command(command);
    }
    pipeline
}

/// The master of a key's slot.
fn owner_of(key: &str) -> SingleNodeRoutingInfo {
    SingleNodeRoutingInfo::SpecificNode(Route::with_key(key, SlotAddr::Master))
}

/// One server, and the connection to it that all calls share.
pub(super) struct Server {
    client: Client,
    config: AsyncConnectionConfig,
    current: RwLock<Current>,
    /// Held by whoever connects, so that only one does.
    connecting: Mutex<()>,
}

/// The connection in use, and how many there were before it.
#[derive(Default)]
struct Current {
    number: u64,
    connection: Option<MultiplexedConnection>,
}

impl Server {
    pub(super) fn new(client: Client) -> Server {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(CONNECT_WITHIN))
            .set_response_timeout(Some(ANSWER_WITHIN));
        Server { client, config, current: RwLock::default(), connecting: Mutex::default() }
    }

    async fn command(&self, command: &Cmd) -> Result<Value, RedisError> {
        let (number, mut connection) = self.connection().await?;
        let answer = connection.req_packed_command(command).await;
        answer.inspect_err(|error| self.judge(number, error))
    }

    async fn pipeline(
        &self,
        pipeline: &Pipeline,
        offset: usize,
        count: usize,
    ) -> Result<Vec<Value>, RedisError> {
        let (number, mut connection) = self.connection().await?;
        let answers = connection.req_packed_commands(pipeline, offset, count).await;
        answers.inspect_err(|error| self.judge(number, error))
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

    /// Lets go of a connection that broke, or on which no answer came in time: the next call makes a new one.
    fn judge(&self, number: u64, error: &RedisError) {
        if error.is_io_error() || error.is_unrecoverable_error() {
            let mut current = self.current.write();
            if current.number == number {
                current.connection = None;
            }
        }
    }
}
