//! The connections of blocking calls: each call has its own connection, to the server that owns its key.

use std::collections::HashMap;
use std::ops::RangeInclusive;
use std::time::Duration;

use parking_lot::Mutex;
use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::cluster_routing::Slot;
use redis::{AsyncConnectionConfig, Client, Cmd, ConnectionAddr, ConnectionInfo, RedisError, Value, cmd};
use tokio::time::timeout;

use super::super::{Error, ErrorKind};
use super::connection::{CONNECT_TIMEOUT, Connection, REPLY_TIMEOUT};
use super::errors::from_redis;

/// How often a call follows a redirection to another node before it fails.
const REDIRECTS_MAX: usize = 5;

/// The address of a node of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
struct NodeAddress {
    host: String,
    port: u16,
}

/// A pool of connections for blocking calls.
pub(super) struct BlockingConnections {
    /// The parameters of all connections. On a cluster, each node's address replaces the one in here.
    base: ConnectionInfo,
    config: AsyncConnectionConfig,
    /// Unused connections, by node. The node is `None` if there is only one server.
    idle: Mutex<Vec<(Option<NodeAddress>, MultiplexedConnection)>>,
    /// The node that owns a slot, for the slots used so far.
    owners: Mutex<HashMap<Slot, NodeAddress>>,
}

impl BlockingConnections {
    pub(super) fn new(base: ConnectionInfo) -> BlockingConnections {
        // `call_node` sets the timeout: it depends on how long the call blocks.
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(CONNECT_TIMEOUT))
            .set_response_timeout(None);
        BlockingConnections { base, config, idle: Mutex::default(), owners: Mutex::default() }
    }

    /// Sends a command that blocks for at most `block`. If the reply is late, the server counts as unreachable.
    pub(super) async fn call(
        &self,
        shared: &Connection,
        key: &str,
        command: &Cmd,
        block: Duration,
    ) -> Result<Value, Error> {
        match shared.is_cluster() {
            true => self.call_owner(shared, key, command, block).await,
            false => shared.explained(command, self.call_node(None, command, block, false).await?),
        }
    }

    /// Sends the command to the node that owns the key, and follows redirections.
    async fn call_owner(
        &self,
        shared: &Connection,
        key: &str,
        command: &Cmd,
        block: Duration,
    ) -> Result<Value, Error> {
        let slot = Slot::for_key(key);
        let mut node = match self.known_owner(slot) {
            Some(node) => node,
            None => self.find_owner(shared, key, slot).await?,
        };
        let mut asking = false;
        for _ in 0..REDIRECTS_MAX {
            let error = match self.call_node(Some(&node), command, block, asking).await {
                Ok(Ok(value)) => return Ok(value),
                Ok(Err(error)) => error,
                Err(unreachable) => {
                    self.forget_owner(slot);
                    return Err(unreachable);
                }
            };
            let Some(next) = error.redirect_node().and_then(|(address, _)| node.redirected(address)) else {
                return shared.explained(command, Err(error)).inspect_err(|error| {
                    if error.is_transient() {
                        // The node may have become a replica, or have left the cluster.
                        self.forget_owner(slot);
                    }
                });
            };
            asking = error.code() == Some("ASK");
            if !asking {
                self.set_owner(slot, &next);
            }
            node = next;
        }
        let message = format!(
            "the cluster redirected a read of {key} {REDIRECTS_MAX} times; retry after its slots have moved"
        );
        Err(Error::new(ErrorKind::Busy, message))
    }

    async fn call_node(
        &self,
        node: Option<&NodeAddress>,
        command: &Cmd,
        block: Duration,
        asking: bool,
    ) -> Result<Result<Value, RedisError>, Error> {
        let mut connection = self.connection(node).await?;
        let reply = async {
            if asking {
                connection.req_packed_command(&cmd("ASKING")).await?;
            }
            connection.req_packed_command(command).await
        };
        let limit = block.saturating_add(REPLY_TIMEOUT);
        let Ok(reply) = timeout(limit, reply).await else {
            let message = format!("the server did not reply within {} s", limit.as_secs());
            return Err(Error::new(ErrorKind::Unreachable, message));
        };
        let is_broken =
            reply.as_ref().is_err_and(|error| error.is_io_error() || error.is_unrecoverable_error());
        match is_broken {
            // The unused connections to this node are broken too.
            true => self.idle.lock().retain(|(to, _)| to.as_ref() != node),
            false => self.idle.lock().push((node.cloned(), connection)),
        }
        Ok(match reply {
            Ok(Value::ServerError(error)) => Err(RedisError::from(error)),
            reply => reply,
        })
    }

    async fn connection(&self, node: Option<&NodeAddress>) -> Result<MultiplexedConnection, Error> {
        let ready = {
            let mut idle = self.idle.lock();
            let found = idle.iter().rposition(|(to, _)| to.as_ref() == node);
            found.map(|at| idle.swap_remove(at).1)
        };
        if let Some(ready) = ready {
            return Ok(ready);
        }
        let client = Client::open(self.address(node)).map_err(from_redis)?;
        client.get_multiplexed_async_connection_with_config(&self.config).await.map_err(from_redis)
    }

    fn address(&self, node: Option<&NodeAddress>) -> ConnectionInfo {
        let base = self.base.clone();
        let Some(node) = node else { return base };
        let (host, port) = (node.host.clone(), node.port);
        let address = match base.addr() {
            ConnectionAddr::TcpTls { insecure, tls_params, .. } => {
                ConnectionAddr::TcpTls { host, port, insecure: *insecure, tls_params: tls_params.clone() }
            }
            _ => ConnectionAddr::Tcp(host, port),
        };
        base.set_addr(address)
    }

    /// Asks the cluster which node owns a slot, and remembers it.
    async fn find_owner(&self, shared: &Connection, key: &str, slot: Slot) -> Result<NodeAddress, Error> {
        let contains_slot =
            |mut numbers: RangeInclusive<u16>| numbers.any(|number| Slot::new(number) == Some(slot));
        let Some((_, host, port)) =
            shared.slots().await?.into_iter().find(|(numbers, ..)| contains_slot(numbers.clone()))
        else {
            return Err(Error::new(
                ErrorKind::Busy,
                format!("no node of the cluster serves the slot of {key}; see CLUSTER INFO"),
            ));
        };
        let node = NodeAddress { host: self.host(host), port };
        self.set_owner(slot, &node);
        Ok(node)
    }

    /// Returns the host of a node. If the node does not know its own address, it reports an empty host. The host of the
    /// URL is then used.
    pub(super) fn host(&self, reported: String) -> String {
        match self.base.addr() {
            ConnectionAddr::Tcp(host, _) | ConnectionAddr::TcpTls { host, .. } if reported.is_empty() => {
                host.clone()
            }
            _ => reported,
        }
    }

    fn known_owner(&self, slot: Slot) -> Option<NodeAddress> {
        self.owners.lock().get(&slot).cloned()
    }

    fn set_owner(&self, slot: Slot, node: &NodeAddress) {
        self.owners.lock().insert(slot, node.clone());
    }

    /// Forgets the owner of a slot, and drops the unused connections to it.
    fn forget_owner(&self, slot: Slot) {
        let node = self.owners.lock().remove(&slot);
        self.idle.lock().retain(|(to, _)| *to != node);
    }
}

impl NodeAddress {
    /// Parses the address in a redirection: `host:port`. An empty host means the host of this node.
    fn redirected(&self, address: &str) -> Option<NodeAddress> {
        let (host, port) = address.rsplit_once(':')?;
        let host = if host.is_empty() { &self.host } else { host };
        Some(NodeAddress { host: host.trim_matches(['[', ']']).to_owned(), port: port.parse().ok()? })
    }
}
