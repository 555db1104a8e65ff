//! The store of a campaign: a server or a cluster whose nodes are killed and restarted on their folders, or a folder
//! that a process opens as an embedded store.

use std::fs::{File, OpenOptions};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::cluster::Cluster;
use crate::support::peers::Peer;
use crate::support::resp::Value;
use crate::support::wire::{Client, Outcome};

/// Longest time for a server to start.
const START_TIMEOUT: Duration = Duration::from_secs(60);
/// Number of nodes of a cluster.
const CLUSTER_NODES: u64 = 3;
/// Number of nodes of a cluster with replicas: three primaries, three replicas, and one without slots.
const REPLICATED_NODES: u64 = 7;

/// Options of a server that loses nothing when it is killed.
const DURABLE: &[&str] = &["--appendonly", "yes", "--appendfsync", "always"];

/// The kind of store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StoreKind {
    Millstream,
    Peer(&'static Peer),
    /// Three nodes of this server that share the slots.
    Cluster(&'static Peer),
    /// Three nodes of this server that share the slots, a replica of each, and a node without slots.
    Replicated(&'static Peer),
    Embedded,
}

/// A store in a folder.
pub(crate) struct Store {
    kind: StoreKind,
    folder: PathBuf,
    /// Options of the servers.
    durability: &'static [&'static str],
    /// None if the store is embedded, one for a server, three for a cluster.
    nodes: Vec<Node>,
}

/// A server process.
struct Node {
    folder: PathBuf,
    /// Its port on 127.0.0.1. It stays the same after a restart.
    port: u16,
    process: Option<Child>,
}

impl Store {
    /// Creates the folders, and starts the servers if there are any.
    pub(crate) fn start(kind: StoreKind, folder: &Path) -> Store {
        Store::start_with(kind, folder, DURABLE)
    }

    /// The same, but the servers do not use the disk: a disk that other programs use would slow them down.
    pub(crate) fn start_in_memory(kind: StoreKind, folder: &Path) -> Store {
        Store::start_with(kind, folder, &["--appendonly", "no"])
    }

    fn start_with(kind: StoreKind, folder: &Path, durability: &'static [&'static str]) -> Store {
        let folder = folder.join("store");
        let node = |number: u64, port: u16| {
            let folder = folder.join(format!("node-{number}"));
            std::fs::create_dir_all(&folder).expect("create a folder for a server");
            Node { folder, port, process: None }
        };
        let nodes = match kind {
            StoreKind::Embedded => Vec::new(),
            StoreKind::Cluster(_) => {
                (1..=CLUSTER_NODES).map(|number| node(number, free_cluster_port())).collect()
            }
            StoreKind::Replicated(_) => {
                (1..=REPLICATED_NODES).map(|number| node(number, free_cluster_port())).collect()
            }
            StoreKind::Millstream | StoreKind::Peer(_) => vec![node(1, free_port())],
        };
        std::fs::create_dir_all(&folder).expect("create a folder for the store");
        let mut store = Store { kind, folder, durability, nodes };
        store.start_servers();
        if let StoreKind::Cluster(_) = kind {
            store.form_cluster();
        }
        if let Some(cluster) = store.replicated() {
            cluster.form();
        }
        store
    }

    /// Whether there is a server.
    pub(crate) fn has_server(&self) -> bool {
        self.kind != StoreKind::Embedded
    }

    /// The port of its only server. A client can then reach the store through a proxy, which is not possible with a
    /// cluster, because its nodes tell clients their own ports.
    pub(crate) fn only_port(&self) -> Option<u16> {
        match &*self.nodes {
            [node] => Some(node.port),
            _ => None,
        }
    }

    /// Returns the URL of the store. `proxy` is a port to use instead of the server's own.
    pub(crate) fn url(&self, proxy: Option<u16>) -> String {
        match &*self.nodes {
            [] => format!("embedded:{}", self.folder.display()),
            [node] => format!("redis://127.0.0.1:{}", proxy.unwrap_or(node.port)),
            [first, second, ..] => {
                format!("redis+cluster://127.0.0.1:{},127.0.0.1:{}", first.port, second.port)
            }
        }
    }

    /// Returns the nodes of a cluster with replicas.
    pub(crate) fn replicated(&self) -> Option<Cluster> {
        let StoreKind::Replicated(peer) = self.kind else { return None };
        Some(Cluster::new(peer, self.nodes.iter().map(|node| node.port).collect()))
    }

    /// Kills a node of a cluster with SIGKILL.
    pub(crate) fn kill_node(&mut self, at: usize) {
        if let Some(mut process) = self.nodes[at].process.take() {
            // Both fail only if the process has already ended.
            let _ = process.kill();
            let _ = process.wait();
        }
    }

    /// Starts the nodes that were killed.
    pub(crate) fn start_dead_nodes(&mut self) {
        for at in 0..self.nodes.len() {
            if self.nodes[at].process.is_none() {
                self.nodes[at].process = Some(self.launch(&self.nodes[at]));
            }
        }
    }

    /// Kills the server with SIGKILL, or all nodes of the cluster.
    pub(crate) fn kill_servers(&mut self) {
        (0..self.nodes.len()).for_each(|at| self.kill_node(at));
    }

    /// Starts the servers on their folders, and waits until they reply.
    pub(crate) fn start_servers(&mut self) {
        for at in 0..self.nodes.len() {
            self.nodes[at].process = Some(self.launch(&self.nodes[at]));
        }
        let deadline = Instant::now() + START_TIMEOUT;
        for at in 0..self.nodes.len() {
            while !replies_to_ping(self.nodes[at].port) {
                let ended =
                    self.nodes[at].process.as_mut().and_then(|process| process.try_wait().ok().flatten());
                if ended.is_some() {
                    // Another process may use the port for a moment.
                    self.nodes[at].process = Some(self.launch(&self.nodes[at]));
                }
                assert!(Instant::now() < deadline, "{:?} does not start:\n{}", self.kind, self.output());
                std::thread::sleep(Duration::from_millis(50));
            }
        }
    }

    /// Distributes the slots of a new cluster, and waits until all nodes know about it.
    fn form_cluster(&self) {
        let addresses = self.nodes.iter().map(|node| format!("127.0.0.1:{}", node.port));
        let created = Command::new("redis-cli")
            .args(["--cluster", "create"])
            .args(addresses)
            .args(["--cluster-replicas", "0", "--cluster-yes"])
            .output()
            .expect("run redis-cli");
        assert!(created.status.success(), "{}", String::from_utf8_lossy(&created.stdout));
        let deadline = Instant::now() + START_TIMEOUT;
        for node in &self.nodes {
            while !is_cluster_ready(node.port) {
                assert!(Instant::now() < deadline, "the cluster is not ready:\n{}", self.output());
                std::thread::sleep(Duration::from_millis(50));
            }
        }
    }

    fn launch(&self, node: &Node) -> Child {
        let port = node.port.to_string();
        let log = OpenOptions::new().create(true).append(true).open(self.log_file()).expect("open the log");
        let mut command = match self.kind {
            StoreKind::Peer(peer) | StoreKind::Cluster(peer) | StoreKind::Replicated(peer) => {
                Command::new(peer.program())
            }
            _ => Command::new(env!("CARGO_BIN_EXE_millstream")),
        };
        match self.kind {
            StoreKind::Embedded | StoreKind::Millstream => command.arg("serve"),
            _ => command.args(["--bind", "127.0.0.1", "--save", ""]),
        };
        match self.kind {
            StoreKind::Cluster(_) => {
                command.args(["--cluster-enabled", "yes", "--cluster-node-timeout", "10000"])
            }
            StoreKind::Replicated(_) => {
                command.args(["--cluster-enabled", "yes", "--cluster-node-timeout", "2000"]);
                // The part of a dead primary is down, and the others serve theirs. A node without slots stays a
                // primary.
                command.args([
                    "--cluster-require-full-coverage",
                    "no",
                    "--cluster-allow-replica-migration",
                    "no",
                ]);
                // A killed primary has no data when it starts again: its replica has taken over by then.
                command.args(["--repl-diskless-sync-delay", "0"])
            }
            _ => &mut command,
        };
        command
            .args(self.durability)
            .args(["--port", &port, "--dir"])
            .arg(&node.folder)
            .stdin(Stdio::null())
            .stdout(File::try_clone(&log).expect("share the log"))
            .stderr(log)
            .spawn()
            .unwrap_or_else(|error| panic!("start {:?}: {error}", self.kind))
    }

    fn log_file(&self) -> PathBuf {
        self.folder.with_extension("log")
    }

    fn output(&self) -> String {
        std::fs::read_to_string(self.log_file()).unwrap_or_default()
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        self.kill_servers();
    }
}

fn replies_to_ping(port: u16) -> bool {
    let Ok(mut client) = Client::connect(port) else { return false };
    client.send(&["PING"]);
    matches!(client.next(Duration::from_secs(5)), Outcome::Reply(reply) if reply.value == Value::Simple(b"PONG".to_vec()))
}

fn free_port() -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("bind a free port");
    listener.local_addr().expect("the address just bound").port()
}

/// Returns a free port such that the port 10,000 above it is free too. Nodes of a cluster talk to each other there.
fn free_cluster_port() -> u16 {
    let is_free = |port: u16| TcpListener::bind(("127.0.0.1", port)).is_ok();
    loop {
        let port = 20_000 + free_port() % 20_000;
        if is_free(port) && is_free(port + 10_000) {
            return port;
        }
    }
}

fn is_cluster_ready(port: u16) -> bool {
    let info = Command::new("redis-cli").args(["-p", &port.to_string(), "CLUSTER", "INFO"]).output();
    info.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).contains("cluster_state:ok"))
}
