//! Server processes for tests. Each listens on a free port, has its own folder, and is stopped on drop.

use std::fs::{self, File};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::peers::{Peer, REDIS_7_0};
use super::resp::Value;
use super::run::new_folder;
use super::wire::{Client, Outcome};

/// Environment variable: `MILLSTREAM_REFERENCE=none` skips every comparison with real servers, for machines without
/// them.
const REFERENCE_SWITCH: &str = "MILLSTREAM_REFERENCE";

/// File in a server's folder that collects its standard output and standard error.
const OUTPUT: &str = "output.txt";

/// Program that a server process runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ServerKind {
    /// A real server to compare with.
    Peer(&'static Peer),
    /// The binary under test.
    Millstream,
}

/// A running server. Killed, and its folder removed, on drop.
pub(crate) struct Server {
    child: Child,
    folder: PathBuf,
    /// The program that it runs.
    pub kind: ServerKind,
    /// Its port on 127.0.0.1.
    pub port: u16,
}

impl Server {
    /// Starts the binary under test with additional arguments of `millstream serve`. Data stays in memory unless
    /// they set `--appendonly`.
    ///
    /// # Panics
    /// If it does not reply to PING in time. The message contains its output.
    pub(crate) fn millstream(arguments: &[&str]) -> Server {
        let in_memory: &[&str] =
            if arguments.contains(&"--appendonly") { &[] } else { &["--appendonly", "no"] };
        Server::start(ServerKind::Millstream, &[in_memory, arguments].concat())
    }

    /// Starts Redis 7.0 with additional arguments of `redis-server`. `None` if comparisons are switched off.
    ///
    /// # Panics
    /// If comparisons are switched on, and it is not installed or does not reply in time.
    pub(crate) fn redis(arguments: &[&str]) -> Option<Server> {
        Server::compares_with_real_servers().then(|| Server::start(ServerKind::Peer(&REDIS_7_0), arguments))
    }

    /// Starts a real server.
    ///
    /// # Panics
    /// If it is not installed, does not reply in time, or reports an unexpected version.
    pub(crate) fn peer(peer: &'static Peer) -> Server {
        let server = Server::start(ServerKind::Peer(peer), &[]);
        assert_eq!(server.version(), peer.redis_version, "unexpected version of {}", peer.title);
        server
    }

    /// Whether suites compare with real servers. See `MILLSTREAM_REFERENCE`.
    pub(crate) fn compares_with_real_servers() -> bool {
        !std::env::var(REFERENCE_SWITCH).is_ok_and(|value| value == "none")
    }

    /// Opens a new connection.
    ///
    /// # Panics
    /// If the server has ended.
    pub(crate) fn client(&self) -> Client {
        Client::connect(self.port).unwrap_or_else(|error| panic!("cannot connect to {}: {error}", self.port))
    }

    /// Returns the major and minor version from INFO.
    pub(crate) fn version(&self) -> (u32, u32) {
        let Value::Bulk(info) = self.client().call(&["INFO", "server"]) else {
            panic!("INFO did not reply with a bulk string")
        };
        let info = String::from_utf8_lossy(&info).into_owned();
        let version = info.lines().find_map(|line| line.strip_prefix("redis_version:")).expect("a version");
        let mut parts = version.split('.').map(|part| part.trim().parse().expect("a number"));
        (parts.next().expect("a major version"), parts.next().expect("a minor version"))
    }

    /// The process id, for tests that send signals or read `/proc`.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The server's working folder.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    fn start(kind: ServerKind, arguments: &[&str]) -> Server {
        // Another process can take the free port before the server binds it.
        for _ in 0..4 {
            if let Ok(server) = Server::try_start(kind, arguments) {
                return server;
            }
        }
        Server::try_start(kind, arguments)
            .unwrap_or_else(|output| panic!("{kind:?} did not start:\n{output}"))
    }

    fn try_start(kind: ServerKind, arguments: &[&str]) -> Result<Server, String> {
        let port = free_port();
        let folder = new_folder();
        let output = folder.join(OUTPUT);
        let log = File::create(&output).expect("create the server's output file");
        let child = command(kind, port, &folder)
            .args(arguments)
            .current_dir(&folder)
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("share the output file"))
            .stderr(log)
            .spawn()
            .map_err(|error| {
                format!("{error} (set {REFERENCE_SWITCH}=none on machines without redis-server)")
            })?;
        let mut server = Server { child, folder, kind, port };
        if server.wait_until_ready() {
            return Ok(server);
        }
        Err(fs::read_to_string(&output).unwrap_or_default())
    }

    fn wait_until_ready(&mut self) -> bool {
        let deadline = Instant::now() + Duration::from_secs(60);
        while Instant::now() < deadline {
            if self.child.try_wait().is_ok_and(|status| status.is_some()) {
                return false;
            }
            // A reply to PING alone does not prove that this server is ready: another process may have taken the port.
            if self.logged_that_it_listens()
                && let Ok(mut client) = Client::connect(self.port)
            {
                client.send(&["PING"]);
                if matches!(client.next(Duration::from_secs(1)), Outcome::Reply(_)) {
                    return true;
                }
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        false
    }

    fn logged_that_it_listens(&self) -> bool {
        let message = match self.kind {
            ServerKind::Peer(_) => "Ready to accept connections",
            ServerKind::Millstream => "listening",
        };
        fs::read_to_string(self.folder.join(OUTPUT)).is_ok_and(|output| output.contains(message))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // `kill` and `wait` fail only if the process has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn command(kind: ServerKind, port: u16, folder: &Path) -> Command {
    let port = port.to_string();
    let mut command;
    match kind {
        ServerKind::Peer(peer) => {
            command = Command::new(peer.program());
            command.args(["--port", &port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]);
        }
        ServerKind::Millstream => {
            let built = env!("CARGO_BIN_EXE_millstream").into();
            command = Command::new(std::env::var_os("MILLSTREAM_TEST_BINARY").unwrap_or(built));
            command.args(["serve", "--port", &port]);
        }
    }
    // Millstream creates a store only in an empty folder. The server's output is in `folder`.
    let data = folder.join("data");
    fs::create_dir_all(&data).expect("create the data folder");
    command.arg("--dir").arg(data);
    command
}

pub(crate) fn free_port() -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("bind a free port");
    listener.local_addr().expect("the address just bound").port()
}
