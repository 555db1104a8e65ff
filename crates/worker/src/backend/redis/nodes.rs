//! The nodes of a cluster: which node owns which slot, and the connection to each node that all calls share.
//!
//! A redirection (MOVED) changes the owner of one slot. The whole map is asked for again if a node cannot be reached or
//! says that the cluster has changed.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::RwLock;
use redis::{ConnectionAddr, ConnectionInfo, ErrorKind, RedisError, Value};
use tokio::sync::Mutex;
use tokio::time::timeout;

use super::commands::command;
use super::connection::{NoReply, ServerConnection};
use super::dial::Target;
use super::reply::{SlotRange, slots};
use crate::slots::{SLOTS, slot_of};

/// Maximum time for a node to say which node owns which slot. The next node is asked after it.
const MAP_TIMEOUT: Duration = Duration::from_secs(3);

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct NodeAddress {
    host: String,
    port: u16,
}

impl fmt::Display for NodeAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

pub(super) struct Node {
    pub(super) address: NodeAddress,
    pub(super) connection: ServerConnection,
}

pub(super) struct Nodes {
    /// Where connections to one of the nodes lead. Those to the others differ only in the address.
    base: Target,
    /// The nodes that the URL names.
    seeds: Vec<NodeAddress>,
    map: RwLock<SlotMap>,
    /// Locked while a task asks for the map, so that only one task does.
    asking: Mutex<()>,
}

/// Which node owns which slot.
struct SlotMap {
    /// Counts how often the map was asked for.
    version: u64,
    /// The nodes that own slots, and those to which calls were redirected since.
    nodes: Vec<Arc<Node>>,
    /// The owner of each slot: its index in `nodes`.
    owners: Vec<Option<usize>>,
    /// The nodes that can take over slots.
    replicas: Vec<NodeAddress>,
}

impl Nodes {
    /// The nodes of a cluster, before the first [`refresh`](Nodes::refresh). `infos` names at least one of them.
    pub(super) fn new(base: Target, infos: &[ConnectionInfo]) -> Nodes {
        let seeds = infos.iter().filter_map(|info| match info.addr() {
            ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => {
                Some(NodeAddress { host: host.clone(), port: *port })
            }
            _ => None,
        });
        let owners = vec![None; usize::from(SLOTS)];
        let map = RwLock::new(SlotMap { version: 0, nodes: Vec::new(), owners, replicas: Vec::new() });
        Nodes { base, seeds: seeds.collect(), map, asking: Mutex::default() }
    }

    /// Returns the node that owns a slot, if one does.
    pub(super) fn owner(&self, slot: u16) -> Option<Arc<Node>> {
        let map = self.map.read();
        map.owners[usize::from(slot)].map(|at| Arc::clone(&map.nodes[at]))
    }

    /// Returns the nodes that own slots, sorted by address.
    pub(super) fn masters(&self) -> Vec<Arc<Node>> {
        let map = self.map.read();
        let mut masters: Vec<usize> = map.owners.iter().flatten().copied().collect();
        masters.sort_unstable();
        masters.dedup();
        let mut masters: Vec<Arc<Node>> = masters.into_iter().map(|at| Arc::clone(&map.nodes[at])).collect();
        masters.sort_by(|a, b| a.address.cmp(&b.address));
        masters
    }

    /// Returns the address of each node that owns slots, and how many of these keys it has.
    pub(super) fn keys_per_node(&self, keys: &[&str]) -> Vec<(String, usize)> {
        let of_node = |node: Arc<Node>| {
            let is_owner =
                |key: &&&str| self.owner(slot_of(key)).is_some_and(|owner| owner.address == node.address);
            (node.address.to_string(), keys.iter().filter(is_owner).count())
        };
        self.masters().into_iter().map(of_node).collect()
    }

    /// Returns the node with an address to which a call was redirected.
    pub(super) fn node(&self, address: &NodeAddress) -> Arc<Node> {
        let known = self.map.read().find(address);
        if let Some(known) = known {
            return known;
        }
        let mut map = self.map.write();
        if let Some(known) = map.find(address) {
            return known;
        }
        let node = self.connect_later(address);
        map.nodes.push(Arc::clone(&node));
        node
    }

    pub(super) fn set_owner(&self, slot: u16, owner: &NodeAddress) {
        let mut map = self.map.write();
        let at = map.nodes.iter().position(|node| node.address == *owner);
        map.owners[usize::from(slot)] = at.or(map.owners[usize::from(slot)]);
    }

    /// Returns the version of the map, for [`refresh`](Nodes::refresh).
    pub(super) fn version(&self) -> u64 {
        self.map.read().version
    }

    /// Asks the nodes, one after the other, which node owns which slot. Does nothing if another task has done so since
    /// the map had the version `seen`.
    pub(super) async fn refresh(&self, seen: u64) -> Result<(), RedisError> {
        let _asking = self.asking.lock().await;
        if self.version() != seen {
            return Ok(());
        }
        let mut candidates = self.masters();
        // A node that was cut off from the others has an old map. So another node is asked each time.
        let count = candidates.len().max(1);
        candidates.rotate_left(seen as usize % count);
        for other in self.map.read().replicas.iter().chain(&self.seeds) {
            if !candidates.iter().any(|node| node.address == *other) {
                candidates.push(self.connect_later(other));
            }
        }
        let mut failure = None;
        for node in candidates {
            let question = command!("CLUSTER", "SLOTS");
            match timeout(MAP_TIMEOUT, node.connection.command(&question)).await {
                Ok(Ok(Value::ServerError(error))) => failure = failure.or(Some(error.into())),
                Ok(Ok(reply)) => match slots(reply) {
                    Ok(ranges) if !ranges.is_empty() => {
                        self.replace(&node, &ranges);
                        return Ok(());
                    }
                    _ => {}
                },
                Ok(Err(NoReply::NotSent(error) | NoReply::Broken(error))) => {
                    failure = failure.or(Some(error));
                }
                Err(_) => {}
            }
        }
        let nobody = (ErrorKind::ClusterConnectionNotFound, "no node knows the slots; see CLUSTER INFO");
        Err(failure.unwrap_or_else(|| nobody.into()))
    }

    /// Stores a new map that a node sent. Keeps the connections to nodes that still own slots.
    fn replace(&self, sender: &Arc<Node>, ranges: &[SlotRange]) {
        let mut map = self.map.write();
        let mut nodes: Vec<Arc<Node>> = Vec::new();
        let (mut owners, mut replicas) = (vec![None; usize::from(SLOTS)], Vec::new());
        for (numbers, named) in ranges {
            let mut named = named.iter().map(|(host, port)| sender.address.beside(host, *port));
            let Some(master) = named.next() else { continue };
            replicas.extend(named);
            let at = nodes.iter().position(|node| node.address == master).unwrap_or_else(|| {
                let known = Some(sender).filter(|node| node.address == master).cloned();
                let known = known.or_else(|| map.find(&master));
                nodes.push(known.unwrap_or_else(|| self.connect_later(&master)));
                nodes.len() - 1
            });
            for number in numbers.clone() {
                if let Some(owner) = owners.get_mut(usize::from(number)) {
                    *owner = Some(at);
                }
            }
        }
        replicas.sort_unstable();
        replicas.dedup();
        *map = SlotMap { version: map.version + 1, nodes, owners, replicas };
    }

    /// Returns a node. The first call opens the connection.
    fn connect_later(&self, address: &NodeAddress) -> Arc<Node> {
        let connection = ServerConnection::new(self.target(address));
        Arc::new(Node { address: address.clone(), connection })
    }

    /// Returns where connections to a node lead to.
    pub(super) fn target(&self, node: &NodeAddress) -> Target {
        self.base.at(node.host.clone(), node.port)
    }
}

impl SlotMap {
    fn find(&self, address: &NodeAddress) -> Option<Arc<Node>> {
        self.nodes.iter().find(|node| node.address == *address).cloned()
    }
}

impl NodeAddress {
    /// Parses the address in a redirection: `host:port`.
    pub(super) fn redirected(&self, address: &str) -> Option<NodeAddress> {
        let (host, port) = address.rsplit_once(':')?;
        Some(self.beside(host.trim_matches(['[', ']']), port.parse().ok()?))
    }

    /// Returns the address of a node that this node names. A node that does not know the other's host leaves it empty,
    /// and means its own.
    fn beside(&self, host: &str, port: u16) -> NodeAddress {
        let host = if host.is_empty() || host == "?" { &self.host } else { host };
        NodeAddress { host: host.to_owned(), port }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redirections_name_nodes() {
        let node = NodeAddress { host: "10.0.0.1".to_owned(), port: 7000 };
        let redirected = |text| node.redirected(text).map(|to| (to.host, to.port));
        assert_eq!(redirected("10.0.0.2:7001"), Some(("10.0.0.2".to_owned(), 7001)));
        assert_eq!(redirected("[::1]:7001"), Some(("::1".to_owned(), 7001)));
        for unknown in [":7001", "?:7001"] {
            assert_eq!(redirected(unknown), Some(("10.0.0.1".to_owned(), 7001)));
        }
        assert_eq!((redirected("10.0.0.2"), redirected("10.0.0.2:x")), (None, None));
    }
}
