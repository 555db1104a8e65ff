//! A store with a stream `orders`, workers of its group `billing`, and what is left of it all afterwards.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::process::Server;
use crate::support::run::{Run, new_folder};

/// How long anything may take before a test gives up.
const PATIENCE: Duration = Duration::from_secs(120);

/// A store of its own for one test.
pub(crate) struct Place {
    server: Option<Server>,
    /// Its URL.
    pub url: String,
    /// A folder of its own, where commands run.
    pub folder: PathBuf,
}

impl Place {
    /// A Millstream server.
    pub(crate) fn server() -> Place {
        let server = Server::millstream(&[]);
        Place {
            url: format!("redis://127.0.0.1:{}", server.port),
            server: Some(server),
            folder: new_folder(),
        }
    }

    /// An embedded store.
    pub(crate) fn embedded() -> Place {
        let folder = new_folder();
        Place { url: format!("embedded:{}", folder.join("store").display()), server: None, folder }
    }

    /// One of each.
    pub(crate) fn both() -> [Place; 2] {
        [Place::server(), Place::embedded()]
    }

    /// One command straight to the server.
    pub(crate) fn call(&self, argv: &[&str]) {
        self.server.as_ref().expect("a place with a server").client().call(argv);
    }

    /// Adds so many orders, each with its number.
    pub(crate) fn add(&self, orders: u64) {
        self.run(&["add", "orders", "item=book", "n={i}", "--count", &orders.to_string()]).ok();
    }

    /// The binary with these arguments, against this store.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_millstream"));
        command.args(arguments).current_dir(&self.folder);
        command.env_remove("REDIS_URL").env_remove("RUST_LOG").env("MILLSTREAM_URL", &self.url);
        command
    }

    /// Runs the binary to its end.
    pub(crate) fn run(&self, arguments: &[&str]) -> Run {
        Running::start(&mut self.command(arguments)).ended()
    }

    /// Works until nothing is left, with short waits between tries, and reports as JSON.
    pub(crate) fn work(&self, arguments: &[&str]) -> Run {
        self.start(&[&["--until-empty", "--json"], arguments].concat()).ended()
    }

    /// Starts a worker.
    pub(crate) fn start(&self, arguments: &[&str]) -> Running {
        let group = ["work", "--stream", "orders", "--group", "billing"];
        let waits: &[&str] =
            if arguments.contains(&"--backoff") { &[] } else { &["--backoff", "20ms..100ms"] };
        Running::start(&mut self.command(&[&group, waits, arguments].concat()))
    }

    /// The dead letters.
    pub(crate) fn letters(&self) -> Vec<Value> {
        let run = self.run(&["dlq", "ls", "orders", "--json"]);
        // Where nothing has died there are no letters to find.
        if run.code == Some(4) { Vec::new() } else { run.ok().json().as_array().expect("a list").clone() }
    }

    /// How many orders the group has yet to read, and how many are pending.
    pub(crate) fn left(&self) -> (u64, u64) {
        let groups = self.run(&["group", "ls", "orders", "--json"]).ok().json();
        let number = |name: &str| groups[0][name].as_u64().expect("a number");
        (number("lag"), number("pending"))
    }

    /// The lines of a file in the folder; none if it is not there.
    pub(crate) fn lines(&self, file: &str) -> Vec<String> {
        let text = fs::read_to_string(self.folder.join(file)).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// Writes a file in the folder.
    pub(crate) fn write(&self, file: &str, text: &str) {
        fs::write(self.folder.join(file), text).expect("write a file");
    }

    /// Waits for a file with at least so many lines, and gives them.
    pub(crate) fn wait_for(&self, file: &str, lines: usize) -> Vec<String> {
        wait_until(&format!("{lines} lines in {file}"), || self.lines(file).len() >= lines);
        self.lines(file)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // It may be gone already.
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Waits until something is so.
pub(crate) fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < PATIENCE, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Whether a process is there and no mere memory of one.
pub(crate) fn is_alive(pid: &str) -> bool {
    let stat = fs::read_to_string(Path::new("/proc").join(pid.trim()).join("stat"));
    stat.is_ok_and(|stat| stat.rsplit(')').next().is_some_and(|rest| !rest.trim_start().starts_with('Z')))
}

/// The binary while it runs. Killed on drop.
pub(crate) struct Running {
    child: Child,
    asked: String,
    output: PathBuf,
}

impl Running {
    /// Starts a command whose output is kept in files.
    pub(crate) fn start(command: &mut Command) -> Running {
        let output = new_folder();
        let file = |name: &str| File::create(output.join(name)).expect("create a file");
        let asked = format!("{command:?}");
        let child = command.stdin(Stdio::null()).stdout(file("out")).stderr(file("err")).spawn();
        Running { child: child.expect("run the binary"), asked, output }
    }

    /// Sends it a signal.
    pub(crate) fn signal(&self, name: &str) {
        let signal = format!("-{name}");
        let sent = Command::new("kill").args([&signal, &self.child.id().to_string()]).status();
        assert!(sent.expect("run kill").success());
    }

    /// What it has written to its standard error so far.
    pub(crate) fn err(&self) -> String {
        fs::read_to_string(self.output.join("err")).expect("its standard error")
    }

    /// Waits until it has ended.
    pub(crate) fn ended(mut self) -> Run {
        let began = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().expect("wait for it") {
                break status;
            }
            assert!(began.elapsed() < PATIENCE, "{} goes on and on:\n{}", self.asked, self.err());
            std::thread::sleep(Duration::from_millis(10));
        };
        let out = fs::read_to_string(self.output.join("out")).expect("its standard output");
        Run { asked: self.asked.clone(), code: status.code(), out, err: self.err() }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // These fail only because the process is already gone.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.output);
    }
}
