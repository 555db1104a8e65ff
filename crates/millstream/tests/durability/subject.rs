//! The server under test, which is restarted many times on one folder: Millstream, or a real `redis-server` for
//! comparison.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use crate::support::process::ServerKind;
use crate::support::resp::Value;
use crate::support::wire::{Client, Outcome};

/// Longest time to start or stop, including the recovery of a folder.
const START_TIMEOUT: Duration = Duration::from_secs(30);
/// Environment variable: path of a binary to test instead of the one that cargo built.
const BINARY_VARIABLE: &str = "MILLSTREAM_DURABILITY_BINARY";
/// Environment variable: additional arguments for `millstream serve`, separated by spaces.
const ARGUMENTS_VARIABLE: &str = "MILLSTREAM_DURABILITY_ARGS";

/// When writes are synced, with Redis' names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Policy {
    Always,
    Everysec,
    No,
}

impl Policy {
    /// Returns the value of `appendfsync`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Policy::Always => "always",
            Policy::Everysec => "everysec",
            Policy::No => "no",
        }
    }

    /// Returns the policy of this name.
    pub(crate) fn parse(name: &str) -> Option<Policy> {
        [Policy::Always, Policy::Everysec, Policy::No].into_iter().find(|policy| policy.name() == name)
    }
}

/// A program and its sync policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Subject {
    pub kind: ServerKind,
    pub policy: Policy,
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.program_name(), self.policy.name())
    }
}

impl Subject {
    /// Name of the program for messages.
    pub(crate) fn program_name(&self) -> &'static str {
        match self.kind {
            ServerKind::Peer(_) => "redis",
            ServerKind::Millstream => "millstream",
        }
    }

    /// Starts the program on this folder and waits until it replies. `output` collects what it prints.
    ///
    /// The error contains its output if it exited, or states that it did not reply.
    pub(crate) fn start(&self, folder: &Path, output: &Path) -> Result<Running, String> {
        let mut failure = String::new();
        // Another process can take the free port before the server binds it.
        for _ in 0..3 {
            let mut running = self.launch(folder, output);
            match running.wait_until_ready() {
                Ok(()) => return Ok(running),
                Err(error) => failure = format!("{error}\n{}", tail(output)),
            }
            if !failure.to_lowercase().contains("address already in use") {
                break;
            }
        }
        Err(failure)
    }

    /// Starts the program without waiting.
    pub(crate) fn launch(&self, folder: &Path, output: &Path) -> Running {
        let port = free_port();
        let log = OpenOptions::new().create(true).append(true).open(output).expect("open the output file");
        let child = self
            .command(port, folder)
            .stdin(Stdio::null())
            .stdout(File::try_clone(&log).expect("share the output file"))
            .stderr(log)
            .spawn()
            .unwrap_or_else(|error| panic!("start {self}: {error}"));
        Running { child, port, output: output.to_owned() }
    }

    fn command(&self, port: u16, folder: &Path) -> Command {
        let port = port.to_string();
        let mut command = match self.kind {
            ServerKind::Peer(peer) => {
                let mut command = Command::new(peer.program());
                command.args(["--port", &port, "--bind", "127.0.0.1", "--save", ""]);
                command
            }
            ServerKind::Millstream => {
                let built = env!("CARGO_BIN_EXE_millstream").to_owned();
                let mut command = Command::new(std::env::var(BINARY_VARIABLE).unwrap_or(built));
                command.args(["serve", "--port", &port]);
                let more = std::env::var(ARGUMENTS_VARIABLE).unwrap_or_default();
                command.args(more.split_whitespace());
                command
            }
        };
        command.arg("--dir").arg(folder).args(["--appendonly", "yes", "--appendfsync", self.policy.name()]);
        command
    }
}

/// A server process. Killed on drop.
pub(crate) struct Running {
    child: Child,
    /// Its port on 127.0.0.1.
    pub port: u16,
    output: PathBuf,
}

impl Running {
    /// Opens a new connection.
    pub(crate) fn client(&self) -> Client {
        Client::connect(self.port).unwrap_or_else(|error| panic!("connect: {error}\n{}", tail(&self.output)))
    }

    /// Whether its output contains this text.
    pub(crate) fn has_printed(&self, text: &str) -> bool {
        std::fs::read_to_string(&self.output).is_ok_and(|output| output.contains(text))
    }

    /// The process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends SIGKILL and waits until the process has exited.
    pub(crate) fn kill(&mut self) {
        // Both fail only if the process has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Sends SIGTERM and waits until the process has exited. `None` if it does not exit in time.
    pub(crate) fn stop(&mut self) -> Option<ExitStatus> {
        let _ = Command::new("kill").args(["-TERM", &self.pid().to_string()]).status();
        self.wait_for_exit(START_TIMEOUT)
    }

    /// Waits for the process to exit.
    pub(crate) fn wait_for_exit(&mut self, within: Duration) -> Option<ExitStatus> {
        let deadline = Instant::now() + within;
        loop {
            if let Ok(Some(status)) = self.child.try_wait() {
                return Some(status);
            }
            if Instant::now() >= deadline {
                return None;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    fn wait_until_ready(&mut self) -> Result<(), String> {
        let deadline = Instant::now() + START_TIMEOUT;
        while Instant::now() < deadline {
            if let Ok(Some(status)) = self.child.try_wait() {
                return Err(format!("ended with {status}"));
            }
            if self.replies_to_ping() {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(3));
        }
        Err("does not reply to PING".to_owned())
    }

    fn replies_to_ping(&self) -> bool {
        let Ok(mut client) = Client::connect(self.port) else { return false };
        client.send(&["PING"]);
        matches!(client.next(Duration::from_secs(5)), Outcome::Reply(reply) if reply.value == Value::Simple(b"PONG".to_vec()))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Returns the last lines of the server's output.
fn tail(output: &Path) -> String {
    let text = std::fs::read(output).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().rev().take(20).collect();
    lines.into_iter().rev().collect::<Vec<_>>().join("\n")
}

fn free_port() -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("bind a free port");
    listener.local_addr().expect("the address just bound").port()
}
