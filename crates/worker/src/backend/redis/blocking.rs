//! The connections of blocking calls: each call has its own connection, to the server that owns its key.

use std::time::Duration;

use parking_lot::Mutex;
use redis::{AsyncConnectionConfig, Cmd, RedisError, Value, cmd};
use tokio::time::timeout;

use super::super::Error;
use super::connection::{CONNECT_TIMEOUT, Connection, Link, NoReply, REPLY_TIMEOUT};
use super::dial::{OpenConnection, Target};
use super::nodes::{NodeAddress, Nodes};
use super::routing::{NodeRefusal, Route, no_owner};

pub(super) struct BlockingConnections {
    /// The only server.
    server: Target,
    config: AsyncConnectionConfig,
    /// Unused connections, by node. The node is `None` if there is only one server.
    idle: Mutex<Vec<(Option<NodeAddress>, OpenConnection)>>,
}

impl BlockingConnections {
    pub(super) fn new(server: Target) -> BlockingConnections {
        // `call_server` sets the timeout: it depends on how long the call blocks.
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(CONNECT_TIMEOUT))
            .set_response_timeout(None);
        BlockingConnections { server, config, idle: Mutex::default() }
    }

    /// Sends a command that blocks for at most `block`. If the reply is late, the server counts as unreachable.
    pub(super) async fn call(
        &self,
        shared: &Connection,
        key: &str,
        command: &Cmd,
        block: Duration,
    ) -> Result<Value, Error> {
        match &shared.link {
            Link::Cluster(nodes) => {
                let reply = self.call_owner(nodes, key, command, block).await;
                shared.explained(command, reply)
            }
            Link::Server(_) => {
                let reply = self.call_server(None, &self.server, command, block, false).await;
                shared.explained(command, reply.map_err(NoReply::into_error))
            }
        }
    }

    /// Sends the command to the node that owns the key. If the key moves while the command waits, sends it again.
    async fn call_owner(
        &self,
        nodes: &Nodes,
        key: &str,
        command: &Cmd,
        block: Duration,
    ) -> Result<Value, RedisError> {
        let mut route = Route::new(nodes, key);
        loop {
            let Some((node, asking)) = route.next() else {
                if route.refresh().await {
                    continue;
                }
                return Err(no_owner(key));
            };
            let (address, target) = (Some(&node.address), nodes.target(&node.address));
            let error = match self.call_server(address, &target, command, block, asking).await {
                Ok(Value::ServerError(error)) => error,
                Ok(reply) => return Ok(reply),
                Err(NoReply::NotSent(error)) if error.is_io_error() => {
                    if route.refresh().await {
                        continue;
                    }
                    return Err(error);
                }
                Err(no_reply) => return Err(no_reply.into_error()),
            };
            let may_go_on = match NodeRefusal::of(&error, &node) {
                Some(refusal) => route.after_refusal(refusal).await,
                // The key has left the node, or the node has become a replica.
                None if error.code() == "UNBLOCKED" => route.pause().await,
                None => false,
            };
            if !may_go_on {
                return Err(error.into());
            }
        }
    }

    async fn call_server(
        &self,
        node: Option<&NodeAddress>,
        target: &Target,
        command: &Cmd,
        block: Duration,
        asking: bool,
    ) -> Result<Value, NoReply> {
        let mut connection = self.connection(node, target).await.map_err(NoReply::NotSent)?;
        let reply = async {
            if asking && let Value::ServerError(denied) = connection.command(&cmd("ASKING")).await? {
                return Ok(Value::ServerError(denied));
            }
            connection.command(command).await
        };
        let limit = block.saturating_add(REPLY_TIMEOUT);
        let reply = timeout(limit, reply).await.unwrap_or_else(|_| {
            let message = format!("the server did not reply within {} s", limit.as_secs());
            Err(std::io::Error::new(std::io::ErrorKind::TimedOut, message).into())
        });
        // A primary that becomes a replica wakes its blocked clients, and then closes their connections.
        let is_closing = matches!(&reply, Ok(Value::ServerError(error)) if error.code() == "UNBLOCKED");
        match reply {
            Ok(reply) if !is_closing => {
                self.idle.lock().push((node.cloned(), connection));
                Ok(reply)
            }
            reply => {
                // The unused connections to this node are broken too.
                self.idle.lock().retain(|(to, _)| to.as_ref() != node);
                reply.map_err(NoReply::Broken)
            }
        }
    }

    /// Returns a connection to the only server that nobody else uses. It is closed when the caller drops it.
    pub(super) async fn take_server(&self) -> Result<OpenConnection, RedisError> {
        self.connection(None, &self.server).await
    }

    async fn connection(
        &self,
        node: Option<&NodeAddress>,
        target: &Target,
    ) -> Result<OpenConnection, RedisError> {
        let ready = {
            let mut idle = self.idle.lock();
            let found = idle.iter().rposition(|(to, _)| to.as_ref() == node);
            found.map(|at| idle.swap_remove(at).1)
        };
        if let Some(ready) = ready {
            return Ok(ready);
        }
        target.connect(&self.config).await
    }
}
