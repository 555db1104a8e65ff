//! The connections that all non-blocking calls share: one to the server, or one to each node of a cluster. If a
//! connection breaks, the next call opens a new one.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::RwLock;
use redis::{AsyncConnectionConfig, Cmd, Pipeline, RedisError, Value};
use tokio::sync::Mutex;

use super::super::Error;
use super::dial::{OpenConnection, Target};
use crate::slots::slot_of;

use super::errors::from_redis;
use super::nodes::Nodes;
use super::permissions::denied;
use super::reply::{array, checked};
use super::routing::Relation;

/// Maximum time for connecting to a server.
pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum time for the reply to a call that does not block.
pub(super) const REPLY_TIMEOUT: Duration = Duration::from_secs(10);

pub(super) struct Connection {
    pub(super) link: Link,
    /// The user as which the connection authenticates.
    pub(super) user: String,
}

/// What a [`Connection`] is connected to.
pub(super) enum Link {
    Server(Box<ServerConnection>),
    Cluster(Arc<Nodes>),
}

/// A call whose commands do not all have a reply.
pub(super) struct Incomplete {
    pub(super) outcomes: Vec<CallOutcome>,
    /// Why there are not more replies.
    pub(super) error: RedisError,
}

pub(super) enum CallOutcome {
    /// The server replied, possibly with an error.
    Replied(Value),
    /// The command was not sent, or a node of the cluster refused it.
    NotExecuted,
    /// The command was sent. The connection broke before the reply, or the reply did not come in time.
    Unknown,
}

impl CallOutcome {
    pub(super) fn into_reply(self) -> Option<Value> {
        match self {
            CallOutcome::Replied(reply) => Some(reply),
            CallOutcome::NotExecuted | CallOutcome::Unknown => None,
        }
    }
}

/// Why a server did not reply.
pub(super) enum NoReply {
    /// There is no connection. Nothing was sent.
    NotSent(RedisError),
    /// The connection broke, or the reply did not come in time. The server may have executed the commands.
    Broken(RedisError),
}

impl NoReply {
    pub(super) fn into_error(self) -> RedisError {
        match self {
            NoReply::NotSent(error) | NoReply::Broken(error) => error,
        }
    }
}

impl Connection {
    /// Returns the nodes of a cluster. `None` for a single server.
    pub(super) fn nodes(&self) -> Option<&Nodes> {
        match &self.link {
            Link::Server(_) => None,
            Link::Cluster(nodes) => Some(nodes),
        }
    }

    pub(super) fn is_cluster(&self) -> bool {
        matches!(self.link, Link::Cluster(_))
    }

    /// Returns the address of the node of a cluster that owns a key, if it is known.
    pub(super) fn owner(&self, key: &str) -> Option<String> {
        let Link::Cluster(nodes) = &self.link else { return None };
        nodes.owner(slot_of(key)).map(|node| node.address.to_string())
    }

    /// Sends a command to the server, or to the node of the cluster that owns the key.
    pub(super) async fn command(&self, key: &str, command: Cmd) -> Result<Value, Error> {
        match &self.link {
            Link::Server(server) => {
                let reply = server.command(&command).await;
                self.explained(&command, reply.map_err(NoReply::into_error))
            }
            Link::Cluster(_) => {
                let mut replies = self.pipeline(key, vec![command]).await?;
                checked(replies.pop().unwrap_or(Value::Nil))
            }
        }
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

    /// Sends commands in one round trip. All their keys must be in one slot. Each reply can be an error, but if the
    /// user may not run one of the commands, the call fails.
    pub(super) async fn pipeline(&self, key: &str, commands: Vec<Cmd>) -> Result<Vec<Value>, Error> {
        let pipeline = pipeline_of(commands);
        let replies = self.send(key, &pipeline, Relation::Independent).await;
        let replies = replies.map_err(|incomplete| from_redis(incomplete.error))?;
        self.check_permissions(&pipeline, &replies)?;
        Ok(replies)
    }

    /// Sends commands in one round trip. All their keys must be in one slot. Each reply can be an error.
    pub(super) async fn replies(&self, key: &str, commands: Vec<Cmd>) -> Result<Vec<Value>, Error> {
        let sent = self.send(key, &pipeline_of(commands), Relation::Independent).await;
        sent.map_err(|incomplete| from_redis(incomplete.error))
    }

    /// Sends commands that take effect in order. All their keys must be in one slot. Returns the outcome of each, and
    /// the error if not all of them have a reply or the user may not run one.
    pub(super) async fn in_order(&self, key: &str, commands: Vec<Cmd>) -> (Vec<CallOutcome>, Option<Error>) {
        let pipeline = pipeline_of(commands);
        match self.send(key, &pipeline, Relation::Ordered).await {
            Ok(replies) => {
                let error = self.check_permissions(&pipeline, &replies).err();
                (replies.into_iter().map(CallOutcome::Replied).collect(), error)
            }
            Err(Incomplete { outcomes, error }) => (outcomes, Some(from_redis(error))),
        }
    }

    /// Sends commands as one transaction (MULTI). All their keys must be in one slot.
    pub(super) async fn transaction(&self, key: &str, commands: Vec<Cmd>) -> Result<Vec<Value>, Error> {
        let mut all = vec![redis::cmd("MULTI")];
        all.extend(commands);
        all.push(redis::cmd("EXEC"));
        let pipeline = pipeline_of(all);
        let replies = self.send(key, &pipeline, Relation::Transaction).await;
        let mut replies = replies.map_err(|incomplete| from_redis(incomplete.error))?;
        let executed = replies.pop().unwrap_or(Value::Nil);
        if matches!(executed, Value::ServerError(_)) {
            // The error of EXEC says less than that of the command which the server did not accept.
            for (command, reply) in pipeline.cmd_iter().zip(replies) {
                self.explained(command, Ok(reply))?;
            }
        }
        array(self.explained(&redis::cmd("EXEC"), Ok(executed))?)
    }

    async fn send(
        &self,
        key: &str,
        pipeline: &Pipeline,
        relation: Relation,
    ) -> Result<Vec<Value>, Incomplete> {
        if pipeline.is_empty() {
            return Ok(Vec::new());
        }
        match &self.link {
            Link::Cluster(nodes) => nodes.send(key, pipeline, relation).await,
            Link::Server(server) => server.pipeline(pipeline).await.map_err(|no_reply| {
                let outcome = || match no_reply {
                    NoReply::NotSent(_) => CallOutcome::NotExecuted,
                    NoReply::Broken(_) => CallOutcome::Unknown,
                };
                let outcomes = std::iter::repeat_with(outcome).take(pipeline.len()).collect();
                Incomplete { outcomes, error: no_reply.into_error() }
            }),
        }
    }

    /// Returns an error if the user may not run one of the commands.
    fn check_permissions(&self, pipeline: &Pipeline, replies: &[Value]) -> Result<(), Error> {
        for (command, reply) in pipeline.cmd_iter().zip(replies) {
            if let Value::ServerError(error) = reply
                && let Some(denied) = denied(&self.user, command, error)
            {
                return Err(denied);
            }
        }
        Ok(())
    }
}

pub(super) fn pipeline_of(commands: Vec<Cmd>) -> Pipeline {
    let mut pipeline = Pipeline::with_capacity(commands.len());
    for command in commands {
        pipeline.add_command(command);
    }
    pipeline
}

/// A server, and the connection to it that all calls share.
pub(super) struct ServerConnection {
    target: Target,
    config: AsyncConnectionConfig,
    current: RwLock<CurrentConnection>,
    /// Locked while a task connects, so that only one task does.
    connecting: Mutex<()>,
    round_trips: AtomicU64,
}

/// The connection in use, and its number: connections are counted from 1.
#[derive(Default)]
struct CurrentConnection {
    number: u64,
    connection: Option<OpenConnection>,
}

impl ServerConnection {
    pub(super) fn new(target: Target) -> ServerConnection {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(CONNECT_TIMEOUT))
            .set_response_timeout(Some(REPLY_TIMEOUT));
        ServerConnection {
            target,
            config,
            current: RwLock::default(),
            connecting: Mutex::default(),
            round_trips: AtomicU64::new(0),
        }
    }

    pub(super) async fn command(&self, command: &Cmd) -> Result<Value, NoReply> {
        let (number, mut connection) = self.connection().await.map_err(NoReply::NotSent)?;
        self.round_trips.fetch_add(1, Ordering::Relaxed);
        let reply = connection.command(command).await;
        reply.map_err(|error| self.no_reply(number, error))
    }

    pub(super) async fn pipeline(&self, pipeline: &Pipeline) -> Result<Vec<Value>, NoReply> {
        let (number, mut connection) = self.connection().await.map_err(NoReply::NotSent)?;
        self.round_trips.fetch_add(1, Ordering::Relaxed);
        let replies = connection.pipeline(pipeline).await;
        replies.map_err(|error| self.no_reply(number, error))
    }

    /// Returns how many commands and pipelines were sent.
    pub(super) fn round_trips(&self) -> u64 {
        self.round_trips.load(Ordering::Relaxed)
    }

    /// Opens the connection if there is none.
    pub(super) async fn connect(&self) -> Result<(), RedisError> {
        self.connection().await.map(drop)
    }

    /// Tells the server who its client is, if the connection is open. One that is opened later does this by itself.
    pub(super) async fn introduce(&self) {
        if let Some((number, mut connection)) = self.ready()
            && let Err(error) = self.target.introduce(&mut connection).await
        {
            self.no_reply(number, error);
        }
    }

    async fn connection(&self) -> Result<(u64, OpenConnection), RedisError> {
        if let Some(ready) = self.ready() {
            return Ok(ready);
        }
        let _connecting = self.connecting.lock().await;
        if let Some(ready) = self.ready() {
            return Ok(ready);
        }
        let connection = self.target.connect(&self.config).await?;
        let mut current = self.current.write();
        current.number += 1;
        current.connection = Some(connection.clone());
        Ok((current.number, connection))
    }

    fn ready(&self) -> Option<(u64, OpenConnection)> {
        let current = self.current.read();
        current.connection.clone().map(|connection| (current.number, connection))
    }

    /// Drops the connection if it broke or a reply timed out. The next call opens a new one.
    fn no_reply(&self, number: u64, error: RedisError) -> NoReply {
        if error.is_io_error() || error.is_unrecoverable_error() {
            let mut current = self.current.write();
            if current.number == number {
                current.connection = None;
            }
        }
        NoReply::Broken(error)
    }
}
