//! Real servers for the tests: on free ports of the loopback interface, in their own folders, stopped on drop.

use std::fs::{self, File};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::TIMEOUT;
use crate::peers::{Peer, REDIS_7_0};

/// The program of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Program {
    Peer(&'static Peer),
    Millstream,
}

/// A server process.
pub(crate) struct Server {
    program: Program,
    arguments: Vec<String>,
    folder: Folder,
    child: Child,
    is_tls: bool,
    /// Its port on 127.0.0.1.
    pub(crate) port: u16,
}

impl Server {
    /// Starts a server with additional arguments.
    pub(crate) fn start(program: Program, arguments: &[&str]) -> Server {
        Server::start_at(program, free_port, arguments, false)
    }

    /// Starts Redis 7.0, the `redis-server` of the system. `None` if it is not installed, which is an error in CI.
    pub(crate) fn redis(arguments: &[&str]) -> Option<Server> {
        Server::peer(&REDIS_7_0, arguments)
    }

    /// Starts a real server. `None` if it is not installed, which is an error in CI.
    pub(crate) fn peer(peer: &'static Peer, arguments: &[&str]) -> Option<Server> {
        is_installed(peer).then(|| Server::start(Program::Peer(peer), arguments))
    }

    /// Starts a server that accepts only TLS. `None` if it is not installed, which is an error in CI.
    pub(crate) fn tls(program: Program, arguments: &[&str]) -> Option<Server> {
        let is_installed = match program {
            Program::Peer(peer) => is_installed(peer),
            Program::Millstream => true,
        };
        is_installed.then(|| Server::start_at(program, free_port, arguments, true))
    }

    fn start_at(program: Program, port: fn() -> u16, arguments: &[&str], is_tls: bool) -> Server {
        let arguments: Vec<String> = arguments.iter().map(|argument| (*argument).to_owned()).collect();
        let mut problem = String::new();
        // Another process can take the free port before the server binds it.
        for _ in 0..5 {
            let (port, folder) = (port(), new_folder());
            let child = spawn(program, port, folder.path(), &arguments, is_tls);
            let arguments = arguments.clone();
            let mut server = Server { program, arguments, folder, child, is_tls, port };
            match server.wait_until_listening() {
                Ok(()) => return server,
                Err(why) => problem = why,
            }
            if !problem.to_lowercase().contains("address already in use") {
                break;
            }
        }
        panic!("{problem}");
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Kills the server, as a crash would.
    pub(crate) fn kill(&mut self) {
        self.child.kill().expect("kill the server");
        self.child.wait().expect("wait for the server's end");
    }

    /// Starts the server again on the same port with the same data.
    pub(crate) fn restart(&mut self) {
        self.child = spawn(self.program, self.port, self.folder.path(), &self.arguments, self.is_tls);
        self.wait_until_listening().unwrap_or_else(|problem| panic!("{problem}"));
    }

    /// Sends a signal to the server.
    pub(crate) fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([&format!("-{name}"), &self.child.id().to_string()]).status();
        assert!(sent.expect("run kill").success());
    }

    /// Returns the output of `redis-cli` for a command.
    pub(crate) fn cli(&self, arguments: &[&str]) -> String {
        cli(self.port, arguments)
    }

    pub(crate) fn configure(&self, name: &str, value: &str) {
        assert_eq!(self.cli(&["CONFIG", "SET", name, value]), "OK");
    }

    /// Waits for the server's own log message. A reply at the port is no proof, because another process may have
    /// taken it.
    fn wait_until_listening(&mut self) -> Result<(), String> {
        let message = match self.program {
            Program::Peer(_) => "Ready to accept connections",
            Program::Millstream => "listening",
        };
        let deadline = Instant::now() + TIMEOUT;
        loop {
            let ended = self.child.try_wait().expect("check the server");
            let output = fs::read_to_string(self.folder.path().join("output.txt")).unwrap_or_default();
            if ended.is_some() {
                return Err(format!("{:?} ended: {output}", self.program));
            }
            if output.contains(message) {
                return Ok(());
            }
            if Instant::now() >= deadline {
                return Err(format!("{:?} does not listen: {output}", self.program));
            }
            thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Both fail only if the process has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn spawn(program: Program, port: u16, folder: &Path, arguments: &[String], is_tls: bool) -> Child {
    let output = File::create(folder.join("output.txt")).expect("create the server's output file");
    let port = port.to_string();
    let mut command = match program {
        Program::Peer(peer) => {
            let mut command = Command::new(peer.program());
            command.args(["--bind", "127.0.0.1", "--save", ""]);
            command
        }
        Program::Millstream => {
            let mut command = Command::new(millstream());
            command.arg("serve");
            command
        }
    };
    match is_tls {
        true => command.args(["--port", "0", "--tls-port", &port]),
        false => command.args(["--port", &port]),
    };
    if !arguments.iter().any(|argument| argument == "--appendonly") {
        command.args(["--appendonly", "no"]);
    }
    // Millstream creates a store only in an empty folder. The server's output is in `folder`.
    let data = folder.join("data");
    fs::create_dir_all(&data).expect("create the data folder");
    command.arg("--dir").arg(data).args(arguments).current_dir(folder);
    command.stdin(Stdio::null()).stdout(output.try_clone().expect("share the output file")).stderr(output);
    command.spawn().unwrap_or_else(|error| panic!("start {program:?}: {error}"))
}

/// Path of the Millstream server: `TEST_MILLSTREAM_SERVER`, or else a binary built with the profile of this test.
fn millstream() -> &'static Path {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| {
        if let Some(binary) = std::env::var_os("TEST_MILLSTREAM_SERVER") {
            return binary.into();
        }
        let test = std::env::current_exe().expect("the path of this test");
        let profile = test.parent().and_then(Path::parent).expect("target/PROFILE/deps/test");
        let mut build = Command::new(env!("CARGO"));
        // Built with the whole workspace: alone, the binary would need its dependencies again with other features.
        build.args(["build", "--quiet", "--workspace", "--bins", "--examples"]);
        // Some build scripts depend on the variables that Cargo sets for this test. Removing these variables avoids
        // that the scripts run again and everything that depends on them is rebuilt.
        for (name, _) in std::env::vars_os() {
            if ["CARGO_PKG_", "CARGO_MANIFEST_"]
                .iter()
                .any(|prefix| name.to_string_lossy().starts_with(prefix))
            {
                build.env_remove(name);
            }
        }
        build.arg("--target-dir").arg(profile.parent().expect("target"));
        if profile.ends_with("release") {
            build.arg("--release");
        }
        let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let built = build.current_dir(workspace).status().expect("run cargo");
        assert!(built.success(), "cannot build millstream");
        profile.join("millstream")
    })
}

/// Three masters that share the slots, and optionally a replica of the first.
pub(crate) struct Cluster {
    peer: &'static Peer,
    nodes: Vec<Server>,
}

const CLUSTER_ARGUMENTS: &[&str] = &["--cluster-enabled", "yes", "--cluster-node-timeout", "3000"];

impl Cluster {
    pub(crate) fn start(peer: &'static Peer) -> Option<Cluster> {
        if !is_installed(peer) {
            return None;
        }
        let cluster = Cluster { peer, nodes: (0..3).map(|_| Cluster::node(peer)).collect() };
        let addresses: Vec<String> =
            cluster.nodes.iter().map(|node| format!("127.0.0.1:{}", node.port)).collect();
        let created = Command::new("redis-cli")
            .args(["--cluster", "create"])
            .args(&addresses)
            .args(["--cluster-replicas", "0", "--cluster-yes"])
            .output()
            .expect("run redis-cli");
        assert!(created.status.success(), "{}", String::from_utf8_lossy(&created.stdout));
        let deadline = Instant::now() + TIMEOUT;
        for node in &cluster.nodes {
            while !node.cli(&["CLUSTER", "INFO"]).contains("cluster_state:ok") {
                assert!(Instant::now() < deadline, "the cluster is not ready in time");
                thread::sleep(Duration::from_millis(50));
            }
        }
        Some(cluster)
    }

    fn node(peer: &'static Peer) -> Server {
        Server::start_at(Program::Peer(peer), free_cluster_port, CLUSTER_ARGUMENTS, false)
    }

    /// Adds a replica of the first server.
    pub(crate) fn add_replica(&mut self) {
        let replica = Cluster::node(self.peer);
        let (first, port) = (&self.nodes[0], replica.port.to_string());
        let id = first.cli(&["CLUSTER", "MYID"]);
        assert_eq!(first.cli(&["CLUSTER", "MEET", "127.0.0.1", &port]), "OK");
        let deadline = Instant::now() + TIMEOUT;
        while replica.cli(&["CLUSTER", "REPLICATE", &id]) != "OK" {
            assert!(Instant::now() < deadline, "the replica did not find its master in time");
            thread::sleep(Duration::from_millis(50));
        }
        self.nodes.push(replica);
    }

    /// Waits until the replica has its master's data and all nodes know it.
    pub(crate) fn wait_for_replica(&self) {
        let deadline = Instant::now() + TIMEOUT;
        let port = format!(":{}@", self.nodes[3].port);
        let is_known = |node: &Server| {
            let nodes = node.cli(&["CLUSTER", "NODES"]);
            nodes.lines().any(|line| line.contains(&port) && line.contains("slave"))
        };
        while self.nodes[0].cli(&["WAIT", "1", "1000"]) != "1" || !self.nodes.iter().all(is_known) {
            assert!(Instant::now() < deadline, "the replica is not up to date in time");
            thread::sleep(Duration::from_millis(50));
        }
    }

    /// Returns the clients of each node.
    pub(crate) fn clients(&self) -> Vec<String> {
        self.nodes.iter().map(|node| node.cli(&["CLIENT", "LIST", "TYPE", "NORMAL"])).collect()
    }

    /// Sends a command to every node, which must reply OK.
    pub(crate) fn cli_all(&self, arguments: &[&str]) {
        self.nodes.iter().for_each(|node| assert_eq!(node.cli(arguments), "OK"));
    }

    pub(crate) fn kill_first(&mut self) {
        self.nodes[0].kill();
    }

    pub(crate) fn url(&self) -> String {
        // Two of three nodes: the backend must discover the third.
        format!("redis+cluster://127.0.0.1:{},127.0.0.1:{}", self.nodes[0].port, self.nodes[1].port)
    }

    /// Moves the slot of a key to the next node as `redis-cli --cluster reshard` does: key by key. Pauses for `pause`
    /// at every step, so that the slot is half moved for a while.
    pub(crate) fn reshard(&self, key: &str, pause: Duration) {
        let slot = self.nodes[0].cli(&["CLUSTER", "KEYSLOT", key]);
        let is_owner = |node: &Server| !node.cli(&["EXISTS", key]).contains("MOVED");
        let from = self.nodes.iter().position(is_owner).expect("a node owns the slot");
        let to = (from + 1) % self.nodes.len();
        let (from, to) = (&self.nodes[from], &self.nodes[to]);
        let (from_id, to_id) = (from.cli(&["CLUSTER", "MYID"]), to.cli(&["CLUSTER", "MYID"]));
        let set_slot = |node: &Server, state: &str, id: &str| {
            assert_eq!(node.cli(&["CLUSTER", "SETSLOT", &slot, state, id]), "OK");
        };
        set_slot(to, "IMPORTING", &from_id);
        set_slot(from, "MIGRATING", &to_id);
        thread::sleep(pause);
        loop {
            let keys = from.cli(&["CLUSTER", "GETKEYSINSLOT", &slot, "10"]);
            if keys.is_empty() {
                break;
            }
            for key in keys.lines() {
                let moved = from.cli(&["MIGRATE", "127.0.0.1", &to.port.to_string(), key, "0", "5000"]);
                assert!(["OK", "NOKEY"].contains(&&*moved), "{moved}");
                thread::sleep(pause);
            }
        }
        // The new owner first, so that the slot always has an owner.
        set_slot(to, "NODE", &to_id);
        thread::sleep(pause);
        set_slot(from, "NODE", &to_id);
    }

    /// Moves the empty slot of a key to another server.
    pub(crate) fn move_slot_of(&self, key: &str) {
        let slot = self.nodes[0].cli(&["CLUSTER", "KEYSLOT", key]);
        let owner = self.nodes.iter().position(|node| !node.cli(&["EXISTS", key]).contains("MOVED"));
        let next = (owner.expect("a node owns the slot") + 1) % self.nodes.len();
        let id = self.nodes[next].cli(&["CLUSTER", "MYID"]);
        // The new owner is set first, so that the slot always has an owner.
        for at in [next, owner.expect("a node owns the slot")] {
            assert_eq!(self.nodes[at].cli(&["CLUSTER", "SETSLOT", &slot, "NODE", &id]), "OK");
        }
    }
}

/// A temporary folder, removed on drop.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // Errors are ignored: the folder is in the system's temporary folder.
        let _ = fs::remove_dir_all(&self.0);
    }
}

pub(crate) fn new_folder() -> Folder {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let folder = std::env::temp_dir().join(format!("millstream-worker-{}-{number}", std::process::id()));
    // A killed run with the same process id may have left its folder behind.
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).expect("create a folder");
    Folder(folder)
}

pub(crate) fn free_port() -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("bind a free port");
    listener.local_addr().expect("the address just bound").port()
}

/// Returns a free port such that the port 10,000 above it is free too. Nodes of a cluster talk to each other there.
fn free_cluster_port() -> u16 {
    loop {
        let port = 20_000 + free_port() % 20_000;
        let is_free = |port| TcpListener::bind(("127.0.0.1", port)).is_ok();
        if is_free(port) && is_free(port + 10_000) {
            return port;
        }
    }
}

fn cli(port: u16, arguments: &[&str]) -> String {
    let port = port.to_string();
    let output =
        Command::new("redis-cli").args(["-p", &port]).args(arguments).output().expect("run redis-cli");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// Whether this server is installed. In CI it must be.
fn is_installed(peer: &Peer) -> bool {
    can_run(&peer.path().to_string_lossy(), &["--version"])
}

fn can_run(program: &str, arguments: &[&str]) -> bool {
    let found = Command::new(program).args(arguments).output().is_ok_and(|output| output.status.success());
    assert!(
        found || std::env::var_os("CI").is_none(),
        "{program} is missing; scripts/peers installs servers"
    );
    if !found {
        eprintln!("skipped: {program} is not installed; scripts/peers installs servers");
    }
    found
}
