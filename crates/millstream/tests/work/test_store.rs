//! A store with a stream `orders`, workers of its group `billing`, and queries of the results.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::process::Server;
use crate::support::run::{Run, new_folder};
use crate::support::wire::Client;

/// Longest wait for anything before a test fails.
const TIMEOUT: Duration = Duration::from_secs(120);

/// A store for one test.
pub(crate) struct TestStore {
    server: Option<Server>,
    /// URL of the store.
    pub url: String,
    /// Folder of this test. Commands run in it.
    pub folder: PathBuf,
}

impl TestStore {
    /// A Millstream server.
    pub(crate) fn server() -> TestStore {
        TestStore::on(Server::millstream(&[]))
    }

    /// A Millstream server, and a Redis server if comparisons are switched on.
    pub(crate) fn servers() -> impl Iterator<Item = TestStore> {
        [Some(Server::millstream(&[])), Server::redis(&[])].into_iter().flatten().map(TestStore::on)
    }

    fn on(server: Server) -> TestStore {
        TestStore {
            url: format!("redis://127.0.0.1:{}", server.port),
            server: Some(server),
            folder: new_folder(),
        }
    }

    /// A Redis server. `None` if comparisons with real servers are switched off.
    pub(crate) fn redis() -> Option<TestStore> {
        let server = Server::redis(&[])?;
        let url = format!("redis://127.0.0.1:{}", server.port);
        Some(TestStore { url, server: Some(server), folder: new_folder() })
    }

    /// An embedded store.
    pub(crate) fn embedded() -> TestStore {
        let folder = new_folder();
        TestStore { url: format!("embedded:{}", folder.join("store").display()), server: None, folder }
    }

    /// A Millstream server and an embedded store.
    pub(crate) fn both() -> [TestStore; 2] {
        [TestStore::server(), TestStore::embedded()]
    }

    /// Sends one command directly to the server.
    pub(crate) fn call(&self, argv: &[&str]) {
        self.client().call(argv);
    }

    /// Opens a new connection to the server.
    pub(crate) fn client(&self) -> Client {
        self.server.as_ref().expect("this store has no server").client()
    }

    /// Adds this number of orders, numbered from 1.
    pub(crate) fn add(&self, orders: u64) {
        self.run(&["add", "orders", "item=book", "n={i}", "--count", &orders.to_string()]).ok();
    }

    /// Returns the command line of the binary with these arguments, against this store.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_millstream"));
        command.args(arguments).current_dir(&self.folder);
        command.env_remove("REDIS_URL").env_remove("RUST_LOG").env("MILLSTREAM_URL", &self.url);
        command
    }

    /// Runs the binary until it exits.
    pub(crate) fn run(&self, arguments: &[&str]) -> Run {
        Running::start(&mut self.command(arguments)).wait()
    }

    /// Runs a worker until the group has no messages left, with short backoffs and a JSON report.
    pub(crate) fn work(&self, arguments: &[&str]) -> Run {
        self.start(&[&["--until-empty", "--json"], arguments].concat()).wait()
    }

    /// Starts a worker.
    pub(crate) fn start(&self, arguments: &[&str]) -> Running {
        let group = ["work", "--stream", "orders", "--group", "billing"];
        let backoff: &[&str] =
            if arguments.contains(&"--backoff") { &[] } else { &["--backoff", "20ms..100ms"] };
        Running::start(&mut self.command(&[&group, backoff, arguments].concat()))
    }

    /// Returns the dead letters of `orders`.
    pub(crate) fn dead_letters(&self) -> Vec<Value> {
        let run = self.run(&["dlq", "ls", "orders", "--json"]);
        // Exit code 4: the dead-letter stream does not exist.
        if run.code == Some(4) { Vec::new() } else { run.ok().json().as_array().expect("a list").clone() }
    }

    /// Number of orders that the group has yet to read, and number of pending orders.
    pub(crate) fn lag_and_pending(&self) -> (u64, u64) {
        let groups = self.run(&["group", "ls", "orders", "--json"]).ok().json();
        let number = |name: &str| groups[0][name].as_u64().expect("a number");
        (number("lag"), number("pending"))
    }

    /// Returns the lines of a file in the folder. Empty if the file does not exist.
    pub(crate) fn lines(&self, file: &str) -> Vec<String> {
        let text = fs::read_to_string(self.folder.join(file)).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// Writes a file in the folder.
    pub(crate) fn write(&self, file: &str, text: &str) {
        fs::write(self.folder.join(file), text).expect("write a file");
    }

    /// Returns the processes whose working folder is that of this store.
    pub(crate) fn processes(&self) -> Vec<String> {
        let folder = self.folder.canonicalize().expect("the folder");
        let pids = fs::read_dir("/proc").expect("/proc").filter_map(|entry| {
            let entry = entry.ok()?;
            // A process that has ended has no working folder.
            let is_ours = fs::read_link(entry.path().join("cwd")).is_ok_and(|cwd| cwd == folder);
            is_ours.then(|| entry.file_name().to_string_lossy().into_owned())
        });
        pids.filter(|pid| pid.parse::<u32>().is_ok()).collect()
    }

    /// Waits until a file has at least this number of lines, and returns them.
    pub(crate) fn wait_for(&self, file: &str, lines: usize) -> Vec<String> {
        wait_until(&format!("{lines} lines in {file}"), || self.lines(file).len() >= lines);
        self.lines(file)
    }
}

impl Drop for TestStore {
    fn drop(&mut self) {
        // The folder may not exist any more.
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Waits until a condition holds.
pub(crate) fn wait_until(what: &str, is_true: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_true() {
        assert!(began.elapsed() < TIMEOUT, "timed out waiting for {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Whether a process exists and is not a zombie.
pub(crate) fn is_alive(pid: &str) -> bool {
    let stat = fs::read_to_string(Path::new("/proc").join(pid.trim()).join("stat"));
    stat.is_ok_and(|stat| stat.rsplit(')').next().is_some_and(|rest| !rest.trim_start().starts_with('Z')))
}

/// A running process of the binary, killed on drop.
pub(crate) struct Running {
    child: Child,
    command: String,
    output: PathBuf,
}

impl Running {
    /// Starts a command and collects its output in files.
    pub(crate) fn start(command: &mut Command) -> Running {
        let output = new_folder();
        let file = |name: &str| File::create(output.join(name)).expect("create a file");
        let command_line = format!("{command:?}");
        let child = command.stdin(Stdio::null()).stdout(file("out")).stderr(file("err")).spawn();
        Running { child: child.expect("run the binary"), command: command_line, output }
    }

    /// Returns its process id.
    pub(crate) fn pid(&self) -> String {
        self.child.id().to_string()
    }

    /// Sends a signal to the process.
    pub(crate) fn signal(&self, name: &str) {
        let signal = format!("-{name}");
        let sent = Command::new("kill").args([&signal, &self.pid()]).status();
        assert!(sent.expect("run kill").success());
    }

    /// Sends several signals, with a pause of some seconds after each.
    pub(crate) fn signals(&self, names: &[&str], pause: f64) {
        let pid = self.child.id();
        let script: String = names.iter().map(|name| format!("kill -{name} {pid}; sleep {pause};")).collect();
        assert!(Command::new("sh").args(["-c", &script]).status().expect("run sh").success());
    }

    /// Returns its standard error so far.
    pub(crate) fn err(&self) -> String {
        fs::read_to_string(self.output.join("err")).expect("its standard error")
    }

    /// Waits until it exits.
    pub(crate) fn wait(mut self) -> Run {
        let began = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().expect("wait for it") {
                break status;
            }
            assert!(began.elapsed() < TIMEOUT, "{} did not exit:\n{}", self.command, self.err());
            std::thread::sleep(Duration::from_millis(10));
        };
        let out = fs::read_to_string(self.output.join("out")).expect("its standard output");
        Run { command: self.command.clone(), code: status.code(), out, err: self.err() }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // `kill` and `wait` fail only if the process has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.output);
    }
}
