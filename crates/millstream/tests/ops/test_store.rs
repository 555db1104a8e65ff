//! A store with test data, and runs of the binary against it.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::iter;
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};

use serde_json::Value;

use crate::support::peers::{PEERS, Peer};
use crate::support::process::{Server, ServerKind};
use crate::support::run::{Run, new_folder};

/// Id of the first entry of `orders`. The stream has five entries, a millisecond apart.
pub(crate) const FIRST: &str = "1731664200000-0";

/// A store for one test.
pub(crate) struct TestStore {
    server: Option<Server>,
    /// URL of the store.
    pub url: String,
    /// Folder of this test. Commands run in it.
    pub folder: PathBuf,
}

impl TestStore {
    /// A Millstream server that contains orders, see [`TestStore::fill`].
    pub(crate) fn millstream() -> TestStore {
        let store = TestStore::over(Server::millstream(&[]));
        store.fill();
        store
    }

    /// A real `redis-server` with the same data. `None` if comparisons are switched off.
    pub(crate) fn redis() -> Option<TestStore> {
        let store = TestStore::over(Server::redis(&[])?);
        store.fill();
        Some(store)
    }

    /// Millstream and Redis 7.0, each with orders.
    pub(crate) fn servers() -> Vec<TestStore> {
        [Some(TestStore::millstream()), TestStore::redis()].into_iter().flatten().collect()
    }

    /// Millstream and every peer, each without data.
    pub(crate) fn every_server() -> Vec<TestStore> {
        let peers: &[&Peer] = if Server::compares_with_real_servers() { &PEERS } else { &[] };
        let peers = peers.iter().map(|peer| TestStore::over(Server::peer(peer)));
        iter::once(TestStore::empty(&[])).chain(peers).collect()
    }

    /// Another server without data. `None` if comparisons are switched off.
    pub(crate) fn peer(peer: &'static Peer) -> Option<TestStore> {
        Server::compares_with_real_servers().then(|| TestStore::over(Server::peer(peer)))
    }

    /// A Millstream server with these arguments and without data.
    pub(crate) fn empty(arguments: &[&str]) -> TestStore {
        TestStore::over(Server::millstream(arguments))
    }

    /// The URL of an embedded store that does not exist yet.
    pub(crate) fn embedded() -> TestStore {
        let folder = new_folder();
        TestStore { server: None, url: format!("embedded:{}", folder.join("store").display()), folder }
    }

    fn over(server: Server) -> TestStore {
        let url = format!("redis://127.0.0.1:{}", server.port);
        TestStore { server: Some(server), url, folder: new_folder() }
    }

    /// Adds five orders and a group `billing` that has read four of them.
    ///
    /// One is pending with `worker-1`, one with `worker-2`, and two became dead letters. The fifth is unread.
    pub(crate) fn fill(&self) {
        let ids: Vec<String> = (0..5).map(|n| format!("{}-0", 1_731_664_200_000_u64 + n)).collect();
        for (n, id) in ids.iter().enumerate() {
            self.call(&["XADD", "orders", id, "item", "book", "n", &n.to_string()]);
        }
        self.call(&["XGROUP", "CREATE", "orders", "billing", "0"]);
        self.call(&["XREADGROUP", "GROUP", "billing", "worker-1", "COUNT", "1", "STREAMS", "orders", ">"]);
        self.call(&["XREADGROUP", "GROUP", "billing", "worker-2", "COUNT", "3", "STREAMS", "orders", ">"]);
        self.call(&["XACK", "orders", "billing", &ids[2], &ids[3]]);
        self.add_dead_letter(&ids[0], &ids[2], "max_deliveries", "timeout after 10 s");
        self.add_dead_letter(&ids[1], &ids[3], "rejected", "no such customer");
    }

    fn add_dead_letter(&self, id: &str, origin: &str, reason: &str, error: &str) {
        self.add_dead_letter_for("billing", id, origin, reason, error);
    }

    /// Adds a dead letter of this group.
    pub(crate) fn add_dead_letter_for(&self, group: &str, id: &str, origin: &str, reason: &str, error: &str) {
        self.call(&[
            "XADD",
            "{orders}:dlq",
            id,
            "item",
            "book",
            "dlq.stream",
            "orders",
            "dlq.id",
            origin,
            "dlq.group",
            group,
            "dlq.consumer",
            "worker-2",
            "dlq.deliveries",
            "5",
            "dlq.reason",
            reason,
            "dlq.error",
            error,
            "dlq.error_type",
            "ShopError",
            "dlq.first_seen",
            "1731664200002",
            "dlq.dead_at",
            "1731664260000",
            "dlq.redrives",
            "0",
        ]);
    }

    /// Stops the server.
    pub(crate) fn stop(&mut self) {
        drop(self.server.take());
    }

    /// Sends one command directly to the server.
    pub(crate) fn call(&self, argv: &[&str]) -> String {
        let server = self.server.as_ref().expect("this store has no server");
        format!("{:?}", server.client().call(argv))
    }

    /// Whether the store is a Millstream server.
    pub(crate) fn is_millstream(&self) -> bool {
        self.server.as_ref().is_some_and(|server| server.kind == ServerKind::Millstream)
    }

    /// Whether the store counts the entries ever added. Redis 6.2 does not.
    pub(crate) fn counts_entries(&self) -> bool {
        self.server.as_ref().is_none_or(|server| server.version() >= (7, 0))
    }

    /// Returns the command line of the binary with these arguments, against this store.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_millstream"));
        command.args(arguments).current_dir(&self.folder);
        command.env_remove("REDIS_URL").env("MILLSTREAM_URL", &self.url);
        command
    }

    /// Runs the binary until it exits.
    pub(crate) fn run(&self, arguments: &[&str]) -> Run {
        self.run_with(arguments, "")
    }

    /// Runs the binary until it exits, with this standard input.
    pub(crate) fn run_with(&self, arguments: &[&str], input: &str) -> Run {
        let mut command = self.command(arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("run the binary");
        child.stdin.take().expect("its input").write_all(input.as_bytes()).expect("write its input");
        let output = child.wait_with_output().expect("its output");
        Run {
            command: format!("millstream {}", arguments.join(" ")),
            code: output.status.code(),
            out: String::from_utf8(output.stdout).expect("text"),
            err: String::from_utf8(output.stderr).expect("text"),
        }
    }

    /// Starts the binary and reads its output while it runs.
    pub(crate) fn follow(&self, arguments: &[&str]) -> Followed {
        let mut command = self.command(arguments);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        let mut child = command.spawn().expect("run the binary");
        let lines = BufReader::new(child.stdout.take().expect("its output"));
        Followed { child, lines }
    }
}

impl Drop for TestStore {
    fn drop(&mut self) {
        // The folder may not exist any more.
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// A running command, killed on drop.
pub(crate) struct Followed {
    child: Child,
    lines: BufReader<ChildStdout>,
}

impl Followed {
    /// Returns the id of the process.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns the next line of its output. Empty once it has ended.
    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        self.lines.read_line(&mut line).expect("a line");
        line.trim_end().to_owned()
    }

    /// Returns the next line of its output as JSON.
    pub(crate) fn json(&mut self) -> Value {
        let line = self.line();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"))
    }
}

impl Followed {
    /// Sends SIGINT, as Ctrl-C does, and returns the exit code and the rest of the output.
    pub(crate) fn interrupt_and_read(mut self) -> (Option<i32>, String) {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args(["-INT", &id]).status().expect("run kill").success());
        let mut rest = String::new();
        self.lines.read_to_string(&mut rest).expect("the rest of its output");
        (self.child.wait().expect("see it end").code(), rest)
    }

    /// Sends SIGINT, as Ctrl-C does, and returns the exit code.
    pub(crate) fn interrupt(self) -> Option<i32> {
        self.interrupt_and_read().0
    }
}

impl Drop for Followed {
    fn drop(&mut self) {
        // Both fail only if the process has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
