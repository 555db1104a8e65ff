//! The store of a campaign: a server that is killed and restarted on its folder, or a folder that a process opens as
//! an embedded store.

use std::fs::{File, OpenOptions};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::peers::Peer;
use crate::support::resp::Value;
use crate::support::wire::{Client, Outcome};

/// Longest time for a server to start.
const START_TIMEOUT: Duration = Duration::from_secs(60);

/// The kind of store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StoreKind {
    Millstream,
    Peer(&'static Peer),
    Embedded,
}

/// A store in a folder.
pub(crate) struct Store {
    kind: StoreKind,
    folder: PathBuf,
    /// Port of its server on 127.0.0.1. It stays the same after a restart.
    pub port: u16,
    server: Option<Child>,
}

impl Store {
    /// Creates the folder, and starts the server if there is one.
    pub(crate) fn start(kind: StoreKind, folder: &Path) -> Store {
        let folder = folder.join("store");
        std::fs::create_dir_all(&folder).expect("create a folder for the store");
        let mut store = Store { kind, folder, port: 0, server: None };
        if store.has_server() {
            store.port = free_port();
            store.start_server();
        }
        store
    }

    /// Whether there is a server.
    pub(crate) fn has_server(&self) -> bool {
        self.kind != StoreKind::Embedded
    }

    /// Returns the URL of the store with this port.
    pub(crate) fn url(&self, port: u16) -> String {
        match self.kind {
            StoreKind::Embedded => format!("embedded:{}", self.folder.display()),
            _ => format!("redis://127.0.0.1:{port}"),
        }
    }

    /// Kills the server with SIGKILL.
    pub(crate) fn kill_server(&mut self) {
        if let Some(mut server) = self.server.take() {
            // Both fail only if the process has already ended.
            let _ = server.kill();
            let _ = server.wait();
        }
    }

    /// Starts the server on its folder, and waits until it replies.
    pub(crate) fn start_server(&mut self) {
        self.server = Some(self.launch());
        let deadline = Instant::now() + START_TIMEOUT;
        while !replies_to_ping(self.port) {
            let ended = self.server.as_mut().and_then(|server| server.try_wait().ok().flatten());
            if ended.is_some() {
                // Another process may use the port for a moment.
                self.server = Some(self.launch());
            }
            assert!(Instant::now() < deadline, "{:?} does not start:\n{}", self.kind, self.output());
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn launch(&self) -> Child {
        let port = self.port.to_string();
        let log = OpenOptions::new().create(true).append(true).open(self.log_file()).expect("open the log");
        let mut command = match self.kind {
            StoreKind::Peer(peer) => Command::new(peer.program()),
            _ => Command::new(env!("CARGO_BIN_EXE_millstream")),
        };
        match self.kind {
            StoreKind::Peer(_) => command.args(["--bind", "127.0.0.1", "--save", ""]),
            _ => command.arg("serve"),
        };
        command
            .args(["--port", &port, "--appendonly", "yes", "--appendfsync", "always", "--dir"])
            .arg(&self.folder)
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
        self.kill_server();
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
