//! Server processes for tests: started on a free port in a folder of their own, stopped when dropped.

use std::fs::{self, File};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::peers::{Peer, REDIS_7_0};
use super::resp::Value;
use super::run::new_folder;
use super::wire::{Client, Outcome};

/// With `MILLSTREAM_REFERENCE=none` suites do not compare with real servers, for a machine that has none.
const REFERENCE_SWITCH: &str = "MILLSTREAM_REFERENCE";

/// What a server prints, in its folder.
const OUTPUT: &str = "output.txt";

/// Which program answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A real server to compare with.
    Peer(&'static Peer),
    /// The binary under test.
    Millstream,
}

/// A running server. Killed, and its folder removed, on drop.
pub(crate) struct Server {
    child: Child,
    folder: PathBuf,
    /// Which program this is.
    pub kind: Kind,
    /// Where it listens, on 127.0.0.1.
    pub port: u16,
}

impl Server {
    /// Starts the binary under test with further arguments of `millstream serve`; in memory, unless they say otherwise.
    ///
    /// # Panics
    /// When it does not answer PING in time; the message holds what it wrote.
    pub(crate) fn millstream(arguments: &[&str]) -> Server {
        let in_memory: &[&str] =
            if arguments.contains(&"--appendonly") { &[] } else { &["--appendonly", "no"] };
        Server::start(Kind::Millstream, &[in_memory, arguments].concat())
    }

    /// Starts Redis 7.0 with further arguments of `redis-server`, or `None` when real servers are not wanted.
    ///
    /// # Panics
    /// When it is wanted and not installed, or does not answer in time.
    pub(crate) fn redis(arguments: &[&str]) -> Option<Server> {
        Server::reference_is_wanted().then(|| Server::start(Kind::Peer(&REDIS_7_0), arguments))
    }

    /// Starts a real server.
    ///
    /// # Panics
    /// When it is not installed, does not answer in time, or is of another version than its name says.
    pub(crate) fn peer(peer: &'static Peer) -> Server {
        let server = Server::start(Kind::Peer(peer), &[]);
        assert_eq!(server.version(), peer.redis_version, "{} is of another version", peer.title);
        server
    }

    /// Whether suites compare with real servers. The environment may say that this machine has none.
    pub(crate) fn reference_is_wanted() -> bool {
        !std::env::var(REFERENCE_SWITCH).is_ok_and(|value| value == "none")
    }

    /// A new connection.
    ///
    /// # Panics
    /// When the server is gone.
    pub(crate) fn client(&self) -> Client {
        Client::connect(self.port).unwrap_or_else(|error| panic!("connect to {}: {error}", self.port))
    }

    /// The major and minor version that INFO tells.
    pub(crate) fn version(&self) -> (u32, u32) {
        let Value::Bulk(info) = self.client().call(&["INFO", "server"]) else { panic!("INFO tells no text") };
        let info = String::from_utf8_lossy(&info).into_owned();
        let version = info.lines().find_map(|line| line.strip_prefix("redis_version:")).expect("a version");
        let mut parts = version.split('.').map(|part| part.trim().parse().expect("a number"));
        (parts.next().expect("a major version"), parts.next().expect("a minor version"))
    }

    /// The process id, for tests that send signals or read `/proc`.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Its working folder.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    fn start(kind: Kind, arguments: &[&str]) -> Server {
        // Another process may take the free port between our look and the server's bind.
        for _ in 0..4 {
            if let Ok(server) = Server::try_start(kind, arguments) {
                return server;
            }
        }
        Server::try_start(kind, arguments)
            .unwrap_or_else(|output| panic!("{kind:?} did not start:\n{output}"))
    }

    fn try_start(kind: Kind, arguments: &[&str]) -> Result<Server, String> {
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
                format!("{error} (set {REFERENCE_SWITCH}=none where there is no redis-server)")
            })?;
        let mut server = Server { child, folder, kind, port };
        if server.answers() {
            return Ok(server);
        }
        Err(fs::read_to_string(&output).unwrap_or_default())
    }

    fn answers(&mut self) -> bool {
        let deadline = Instant::now() + Duration::from_secs(60);
        while Instant::now() < deadline {
            if self.child.try_wait().is_ok_and(|status| status.is_some()) {
                return false;
            }
            // Only its own words tell that it is this one who listens there, and not another who was quicker.
            if self.says_it_listens()
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

    fn says_it_listens(&self) -> bool {
        let words = match self.kind {
            Kind::Peer(_) => "Ready to accept connections",
            Kind::Millstream => "listening",
        };
        fs::read_to_string(self.folder.join(OUTPUT)).is_ok_and(|output| output.contains(words))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Both may fail only because the process is already gone.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn command(kind: Kind, port: u16, folder: &Path) -> Command {
    let port = port.to_string();
    let mut command;
    match kind {
        Kind::Peer(peer) => {
            command = Command::new(peer.program());
            command.args(["--port", &port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]);
        }
        Kind::Millstream => {
            command = Command::new(env!("CARGO_BIN_EXE_millstream"));
            command.args(["serve", "--port", &port]);
        }
    }
    command.arg("--dir").arg(folder);
    command
}

fn free_port() -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("bind a free port");
    listener.local_addr().expect("the address just bound").port()
}
