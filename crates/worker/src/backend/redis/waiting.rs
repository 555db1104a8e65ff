//! Calls that wait: each has a connection of its own while it waits, to the server that owns its key.

use std::collections::HashMap;
use std::ops::RangeInclusive;
use std::time::Duration;

use parking_lot::Mutex;
use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::cluster_routing::Slot;
use redis::{AsyncConnectionConfig, Client, Cmd, ConnectionAddr, ConnectionInfo, RedisError, Value, cmd};
use tokio::time::timeout;

use super::super::{Error, ErrorKind};
use super::errors::from_redis;
use super::link::{ANSWER_WITHIN, CONNECT_WITHIN, Link};

/// How often a call follows its slot to another server before it gives up.
const REDIRECTS_MAX: usize = 5;

/// A server of a cluster, or the only one.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Node {
    host: String,
    port: u16,
}

/// Connections for calls that wait.
pub(super) struct Waiters {
    /// How to connect; on a cluster the address is another for each server.
    base: ConnectionInfo,
    config: AsyncConnectionConfig,
    /// Connections that nobody uses now.
    idle: Mutex<Vec<(Option<Node>, MultiplexedConnection)>>,
    /// Which server owns a slot, as far as is known.
    owners: Mutex<HashMap<Slot, Node>>,
}

impl Waiters {
    pub(super) fn new(base: ConnectionInfo) -> Waiters {
        // How long an answer may take depends on the call: see `ask`.
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(CONNECT_WITHIN))
            .set_response_timeout(None);
        Waiters { base, config, idle: Mutex::default(), owners: Mutex::default() }
    }

    /// Sends a command that the server answers within `at_most`. A server that stays silent for longer is not there.
    pub(super) async fn ask(
        &self,
        link: &Link,
        key: &str,
        command: &Cmd,
        at_most: Duration,
    ) -> Result<Value, Error> {
        match link {
            Link::Server(_) => {
                let answer = self.ask_node(None, command, at_most, false).await?;
                answer.map_err(from_redis)
            }
            Link::Cluster(_) => self.ask_owner(link, key, command, at_most).await,
        }
    }

    /// Asks the server that owns the key, wherever that is now.
    async fn ask_owner(
        &self,
        link: &Link,
        key: &str,
        command: &Cmd,
        at_most: Duration,
    ) -> Result<Value, Error> {
        let slot = Slot::for_key(key);
        let mut node = match self.known_owner(slot) {
            Some(node) => node,
            None => self.find_owner(link, key, slot).await?,
        };
        let mut asking = false;
        for _ in 0..REDIRECTS_MAX {
            let answer = self.ask_node(Some(&node), command, at_most, asking).await;
            let error = match answer {
                Ok(Ok(value)) => return Ok(value),
                Ok(Err(error)) => error,
                Err(silent) => {
                    self.forget_owner(slot);
                    return Err(silent);
                }
            };
            let Some(next) = error.redirect_node().and_then(|(address, _)| node.redirected(address)) else {
                let error = from_redis(error);
                if error.is_passing() {
                    // It may be a replica by now, or gone.
                    self.forget_owner(slot);
                }
                return Err(error);
            };
            asking = error.code() == Some("ASK");
            if !asking {
                self.set_owner(slot, &next);
            }
            node = next;
        }
        Err(Error::new(ErrorKind::Busy, format!("the slot of {key} moves from server to server")))
    }

    async fn ask_node(
        &self,
        node: Option<&Node>,
        command: &Cmd,
        at_most: Duration,
        asking: bool,
    ) -> Result<Result<Value, RedisError>, Error> {
        let mut connection = self.connection(node).await?;
        let answer = async {
            if asking {
                connection.req_packed_command(&cmd("ASKING")).await?;
            }
            connection.req_packed_command(command).await
        };
        let Ok(answer) = timeout(at_most.saturating_add(ANSWER_WITHIN), answer).await else {
            return Err(Error::new(ErrorKind::Unreachable, "the server did not answer in time"));
        };
        let is_broken =
            answer.as_ref().is_err_and(|error| error.is_io_error() || error.is_unrecoverable_error());
        match is_broken {
            // Those that wait for use are broken too.
            true => self.idle.lock().retain(|(to, _)| to.as_ref() != node),
            false => self.idle.lock().push((node.cloned(), connection)),
        }
        Ok(match answer {
            Ok(Value::ServerError(error)) => Err(RedisError::from(error)),
            answer => answer,
        })
    }

    async fn connection(&self, node: Option<&Node>) -> Result<MultiplexedConnection, Error> {
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

    fn address(&self, node: Option<&Node>) -> ConnectionInfo {
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

    /// Asks the cluster which server owns a slot, and remembers it.
    async fn find_owner(&self, link: &Link, key: &str, slot: Slot) -> Result<Node, Error> {
        let has_it = |mut numbers: RangeInclusive<u16>| numbers.any(|number| Slot::new(number) == Some(slot));
        let Some((_, host, port)) =
            link.slots().await?.into_iter().find(|(numbers, ..)| has_it(numbers.clone()))
        else {
            return Err(Error::new(
                ErrorKind::Busy,
                format!("no server of the cluster has the slot of {key}"),
            ));
        };
        let node = Node { host: self.host(host), port };
        self.set_owner(slot, &node);
        Ok(node)
    }

    /// A server that does not know its own address is where it was reached.
    fn host(&self, told: String) -> String {
        match self.base.addr() {
            ConnectionAddr::Tcp(host, _) | ConnectionAddr::TcpTls { host, .. } if told.is_empty() => {
                host.clone()
            }
            _ => told,
        }
    }

    fn known_owner(&self, slot: Slot) -> Option<Node> {
        self.owners.lock().get(&slot).cloned()
    }

    fn set_owner(&self, slot: Slot, node: &Node) {
        self.owners.lock().insert(slot, node.clone());
    }

    /// What was known of the slot's server is no longer true; its idle connections are of no use either.
    fn forget_owner(&self, slot: Slot) {
        let node = self.owners.lock().remove(&slot);
        self.idle.lock().retain(|(to, _)| *to != node);
    }
}

impl Node {
    /// The server that this one points to: `host:port`, without a host if it is the same.
    fn redirected(&self, address: &str) -> Option<Node> {
        let (host, port) = address.rsplit_once(':')?;
        let host = if host.is_empty() { &self.host } else { host };
        Some(Node { host: host.trim_matches(['[', ']']).to_owned(), port: port.parse().ok()? })
    }
}
