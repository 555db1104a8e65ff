//! A store with something in it, and the binary run against it.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::iter;
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};

use serde_json::Value;

use crate::support::peers::{PEERS, Peer};
use crate::support::process::Server;
use crate::support::run::{Run, new_folder};

/// Five entries were added to `orders`, a millisecond apart, beginning with this one.
pub(crate) const FIRST: &str = "1731664200000-0";

/// A store of its own for one test.
pub(crate) struct World {
    server: Option<Server>,
    /// Its URL.
    pub url: String,
    /// A folder of its own, and where commands run.
    pub folder: PathBuf,
}

impl World {
    /// A Millstream server with orders in it, see [`World::fill`].
    pub(crate) fn millstream() -> World {
        let world = World::over(Server::millstream(&[]));
        world.fill();
        world
    }

    /// The same on a real `redis-server`, unless this machine has none.
    pub(crate) fn redis() -> Option<World> {
        let world = World::over(Server::redis(&[])?);
        world.fill();
        Some(world)
    }

    /// Servers of both kinds.
    pub(crate) fn servers() -> Vec<World> {
        [Some(World::millstream()), World::redis()].into_iter().flatten().collect()
    }

    /// Servers of every kind, with nothing in them.
    pub(crate) fn every_server() -> Vec<World> {
        let peers: &[&Peer] = if Server::reference_is_wanted() { &PEERS } else { &[] };
        let peers = peers.iter().map(|peer| World::over(Server::peer(peer)));
        iter::once(World::empty(&[])).chain(peers).collect()
    }

    /// A Millstream server with these arguments and nothing in it.
    pub(crate) fn empty(arguments: &[&str]) -> World {
        World::over(Server::millstream(arguments))
    }

    /// An embedded store that is not there yet.
    pub(crate) fn embedded() -> World {
        let folder = new_folder();
        World { server: None, url: format!("embedded:{}", folder.join("store").display()), folder }
    }

    fn over(server: Server) -> World {
        let url = format!("redis://127.0.0.1:{}", server.port);
        World { server: Some(server), url, folder: new_folder() }
    }

    /// Five orders, a group `billing` that has read four of them: one pending with `worker-1`, one with `worker-2`, and two
    /// that became dead letters. One is unread.
    pub(crate) fn fill(&self) {
        let ids: Vec<String> = (0..5).map(|n| format!("{}-0", 1_731_664_200_000_u64 + n)).collect();
        for (n, id) in ids.iter().enumerate() {
            self.call(&["XADD", "orders", id, "item", "book", "n", &n.to_string()]);
        }
        self.call(&["XGROUP", "CREATE", "orders", "billing", "0"]);
        self.call(&["XREADGROUP", "GROUP", "billing", "worker-1", "COUNT", "1", "STREAMS", "orders", ">"]);
        self.call(&["XREADGROUP", "GROUP", "billing", "worker-2", "COUNT", "3", "STREAMS", "orders", ">"]);
        self.call(&["XACK", "orders", "billing", &ids[2], &ids[3]]);
        self.bury(&ids[0], &ids[2], "max_deliveries", "timeout after 10 s");
        self.bury(&ids[1], &ids[3], "rejected", "no such customer");
    }

    fn bury(&self, id: &str, origin: &str, reason: &str, error: &str) {
        self.bury_for("billing", id, origin, reason, error);
    }

    /// A dead letter that ended for this group.
    pub(crate) fn bury_for(&self, group: &str, id: &str, origin: &str, reason: &str, error: &str) {
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

    /// Ends the server.
    pub(crate) fn stop(&mut self) {
        drop(self.server.take());
    }

    /// One command straight to the server.
    pub(crate) fn call(&self, argv: &[&str]) -> String {
        let server = self.server.as_ref().expect("a world with a server");
        format!("{:?}", server.client().call(argv))
    }

    /// The binary with these arguments, against this store.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_millstream"));
        command.args(arguments).current_dir(&self.folder);
        command.env_remove("REDIS_URL").env("MILLSTREAM_URL", &self.url);
        command
    }

    /// Runs it to its end.
    pub(crate) fn run(&self, arguments: &[&str]) -> Run {
        self.run_with(arguments, "")
    }

    /// Runs it to its end with this on its standard input.
    pub(crate) fn run_with(&self, arguments: &[&str], input: &str) -> Run {
        let mut command = self.command(arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("run the binary");
        child.stdin.take().expect("its input").write_all(input.as_bytes()).expect("write its input");
        let output = child.wait_with_output().expect("its output");
        Run {
            asked: format!("millstream {}", arguments.join(" ")),
            code: output.status.code(),
            out: String::from_utf8(output.stdout).expect("text"),
            err: String::from_utf8(output.stderr).expect("text"),
        }
    }

    /// Runs it until the test has seen enough.
    pub(crate) fn follow(&self, arguments: &[&str]) -> Followed {
        let mut command = self.command(arguments);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        let mut child = command.spawn().expect("run the binary");
        let lines = BufReader::new(child.stdout.take().expect("its output"));
        Followed { child, lines }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        // It may be gone already.
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// A command that goes on until it is dropped.
pub(crate) struct Followed {
    child: Child,
    lines: BufReader<ChildStdout>,
}

impl Followed {
    /// Its next line; empty when it has ended.
    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        self.lines.read_line(&mut line).expect("a line");
        line.trim_end().to_owned()
    }

    /// Its next line as JSON.
    pub(crate) fn json(&mut self) -> Value {
        let line = self.line();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"))
    }
}

impl Followed {
    /// Presses Ctrl-C and gives the exit code and what it still said.
    pub(crate) fn interrupt_and_read(mut self) -> (Option<i32>, String) {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args(["-INT", &id]).status().expect("run kill").success());
        let mut said = String::new();
        self.lines.read_to_string(&mut said).expect("its last words");
        (self.child.wait().expect("see it end").code(), said)
    }

    /// Presses Ctrl-C and gives the exit code.
    pub(crate) fn interrupt(self) -> Option<i32> {
        self.interrupt_and_read().0
    }
}

impl Drop for Followed {
    fn drop(&mut self) {
        // Both may fail only because the process is already gone.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
