//! Changes of a cluster with replicas: its slots move to another node and back, and replicas become primaries.

use std::process::Command;
use std::time::{Duration, Instant};

use crate::support::peers::Peer;

/// Longest time of one step. The machine may be slow.
const STEP_TIMEOUT: Duration = Duration::from_secs(60);
/// How often the state of the cluster is looked at.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);
/// Number of slots of a cluster.
const SLOTS: u16 = 16_384;

/// The nodes of a cluster: primaries, a replica of each, and one that has no slots at first.
#[derive(Clone, Debug)]
pub(crate) struct Cluster {
    peer: &'static Peer,
    ports: Vec<u16>,
}

/// A line of CLUSTER NODES.
#[derive(Debug)]
struct NodeState {
    id: String,
    /// Its index among the ports.
    at: usize,
    is_primary: bool,
    /// The id of its primary.
    primary: String,
    slots: Vec<(u16, u16)>,
}

impl NodeState {
    fn slot_count(&self) -> usize {
        self.slots.iter().map(|(first, last)| usize::from(last - first) + 1).sum()
    }
}

impl Cluster {
    pub(crate) fn new(peer: &'static Peer, ports: Vec<u16>) -> Cluster {
        Cluster { peer, ports }
    }

    /// Whether slots can move as a whole.
    pub(crate) fn moves_slots_at_once(&self) -> bool {
        self.peer.is_valkey
    }

    /// Returns the output of `redis-cli` for a command to a node.
    fn cli(&self, at: usize, arguments: &[&str]) -> String {
        let port = self.ports[at].to_string();
        let output = Command::new("redis-cli").args(["-p", &port]).args(arguments).output();
        String::from_utf8_lossy(&output.expect("run redis-cli").stdout).trim().to_owned()
    }

    /// Returns what a living node knows about all nodes.
    fn nodes(&self) -> Vec<NodeState> {
        let known = |at: usize| self.cli(at, &["CLUSTER", "NODES"]);
        let text = (0..self.ports.len()).map(known).find(|text| text.contains("myself")).unwrap_or_default();
        text.lines().filter_map(|line| self.node(line)).collect()
    }

    /// Parses a line of a node that does not fail.
    fn node(&self, line: &str) -> Option<NodeState> {
        let words: Vec<&str> = line.split(' ').collect();
        let [id, address, flags, primary, _, _, _, _, slots @ ..] = &*words else { return None };
        let port: u16 = address.split('@').next()?.rsplit(':').next()?.parse().ok()?;
        let range = |text: &&str| {
            let (first, last) = text.split_once('-').unwrap_or((text, text));
            Some((first.parse().ok()?, last.parse().ok()?))
        };
        let is_failing = flags.split(',').any(|flag| flag.starts_with("fail") || flag == "noaddr");
        (!is_failing).then(|| NodeState {
            id: (*id).to_owned(),
            at: self.ports.iter().position(|known| *known == port).unwrap_or(usize::MAX),
            is_primary: flags.contains("master"),
            primary: (*primary).to_owned(),
            slots: slots.iter().filter_map(range).collect(),
        })
    }

    fn wait_until(&self, what: &str, is_true: impl Fn() -> bool) {
        let deadline = Instant::now() + STEP_TIMEOUT;
        while !is_true() {
            assert!(Instant::now() < deadline, "{} in time: {:?}", what, self.nodes());
            std::thread::sleep(LOOK_INTERVAL);
        }
    }

    /// Forms the cluster: each of the first nodes gets a replica, and the last one no slots.
    pub(crate) fn form(&self) {
        let spare = self.ports.len() - 1;
        let addresses: Vec<String> = self.ports.iter().map(|port| format!("127.0.0.1:{port}")).collect();
        let cluster = |arguments: &[&str]| {
            let output = Command::new("redis-cli").arg("--cluster").args(arguments).output();
            let output = output.expect("run redis-cli");
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        };
        let members: Vec<&str> = addresses[..spare].iter().map(String::as_str).collect();
        cluster(&[&["create"], &*members, &["--cluster-replicas", "1", "--cluster-yes"]].concat());
        self.wait_until("all nodes are connected", || self.is_whole(spare));
        assert_eq!(self.cli(spare, &["CLUSTER", "MEET", "127.0.0.1", &self.ports[0].to_string()]), "OK");
        self.wait_until("all nodes know all nodes", || self.is_whole(self.ports.len()));
    }

    /// Whether the first nodes agree that all slots are served, and all replicas have their primaries' data.
    fn is_whole(&self, count: usize) -> bool {
        (0..count).all(|at| {
            let info = self.cli(at, &["CLUSTER", "INFO"]);
            let replication = self.cli(at, &["INFO", "replication"]);
            info.contains("cluster_state:ok")
                && info.contains(&format!("cluster_known_nodes:{count}"))
                && (replication.contains("role:master") || replication.contains("master_link_status:up"))
        })
    }

    /// Waits until every node serves its part again.
    pub(crate) fn wait_until_whole(&self) {
        self.wait_until("the cluster is whole again", || self.is_whole(self.ports.len()));
    }

    /// Moves slots key by key, as `redis-cli --cluster rebalance` does: to the node without slots if there is one,
    /// otherwise all slots of that node to the others.
    pub(crate) fn move_slots_by_key(&self) {
        let nodes = self.nodes();
        let spare = self.spare(&nodes);
        let address = format!("127.0.0.1:{}", self.ports[0]);
        let weight = format!("{}=0", spare.id);
        let how: &[&str] = match spare.slots.is_empty() {
            true => &["--cluster-use-empty-masters"],
            false => &["--cluster-weight", &weight],
        };
        let arguments = [&["--cluster", "rebalance", &*address, "--cluster-pipeline", "10"], how].concat();
        let output = Command::new("redis-cli").args(arguments).output().expect("run redis-cli");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    }

    /// Moves slots as a whole, to the node without slots if there is one, otherwise all slots of that node to the
    /// others.
    pub(crate) fn move_slots_at_once(&self) {
        let nodes = self.nodes();
        let spare = self.spare(&nodes);
        let others: Vec<&NodeState> =
            nodes.iter().filter(|node| node.is_primary && node.id != spare.id).collect();
        // Slots, from which node, and to which one.
        let mut moves: Vec<((u16, u16), usize, &str)> = Vec::new();
        if spare.slots.is_empty() {
            for node in &others {
                // A quarter of the first range of each node.
                let (first, last) = node.slots[0];
                moves.push(((first, first + (last - first) / 4), node.at, &spare.id));
            }
        } else {
            for (at, range) in spare.slots.iter().enumerate() {
                moves.push((*range, spare.at, &others[at % others.len()].id));
            }
        }
        for ((first, last), from, to) in moves {
            let (first, last) = (first.to_string(), last.to_string());
            let begun = self.cli(from, &["CLUSTER", "MIGRATESLOTS", "SLOTSRANGE", &first, &last, "NODE", to]);
            assert_eq!(begun, "OK");
            // A node exports one range after the other.
            self.wait_until("the slots have moved", || {
                let first: u16 = first.parse().unwrap_or_default();
                let has = |node: &NodeState| node.slots.iter().any(|(a, b)| (*a..=*b).contains(&first));
                self.nodes().iter().any(|node| node.id == to && has(node))
            });
        }
        let count: usize = self.nodes().iter().map(NodeState::slot_count).sum();
        assert_eq!(count, usize::from(SLOTS));
    }

    fn spare<'n>(&self, nodes: &'n [NodeState]) -> &'n NodeState {
        let spare = self.ports.len() - 1;
        nodes.iter().find(|node| node.at == spare).expect("the last node lives")
    }

    /// Lets a replica take over its primary's slots on request.
    pub(crate) fn fail_over(&self, number: u64) {
        let nodes = self.nodes();
        let replicas: Vec<&NodeState> = nodes.iter().filter(|node| !node.is_primary).collect();
        let replica = replicas[number as usize % replicas.len()].at;
        assert_eq!(self.cli(replica, &["CLUSTER", "FAILOVER"]), "OK");
        self.wait_until("the replica is a primary", || self.is_primary(replica));
        self.wait_until_whole();
    }

    fn is_primary(&self, at: usize) -> bool {
        self.cli(at, &["ROLE"]).starts_with("master")
    }

    /// Returns a primary that has a replica and slots, and its replica.
    pub(crate) fn primary_with_replica(&self, number: u64) -> (usize, usize) {
        let nodes = self.nodes();
        let primary_of = |replica: &NodeState| nodes.iter().find(|node| node.id == replica.primary);
        let replicas = nodes.iter().filter(|node| !node.is_primary);
        let pairs: Vec<(usize, usize)> =
            replicas.filter_map(|replica| Some((primary_of(replica)?.at, replica.at))).collect();
        pairs[number as usize % pairs.len()]
    }

    /// Whether a node owns the slot of a key.
    pub(crate) fn owns(&self, at: usize, key: &str) -> bool {
        let slot: u16 = self.cli(at, &["CLUSTER", "KEYSLOT", key]).parse().expect("a slot");
        let has = |node: &NodeState| node.slots.iter().any(|(a, b)| (*a..=*b).contains(&slot));
        self.nodes().iter().any(|node| node.at == at && has(node))
    }

    /// Waits until a replica has become a primary.
    pub(crate) fn wait_for_promotion(&self, replica: usize) {
        self.wait_until("the replica is a primary", || self.is_primary(replica));
    }
}
