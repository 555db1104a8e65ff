//! Tests of the dashboard's pages in a real browser, on Millstream and on Redis. The tests are in
//! `crates/dash/browser`.
//!
//! They need Node.js, the packages that `scripts/clients-setup` installs, and Debian's `chromium-headless-shell`.
//! Screenshots of all pages, and those of failures, are in `dash-screenshots` in the target folder.
//! `MILLSTREAM_BROWSER_LONG=1` runs more of them, on larger stores.

use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// The browser of the tests; another one can be named in the environment.
const BROWSER: &str = "MILLSTREAM_BROWSER";
const BROWSER_OF_DEBIAN: &str = "/usr/bin/chromium-headless-shell";

/// Time that a file may take. On two idle cores, each takes less than a minute. On a busy machine, the thread of the
/// dashboard waits for all others, because it has a low priority.
const LIMIT: Duration = Duration::from_secs(600);
/// The same with `MILLSTREAM_BROWSER_LONG`.
const LIMIT_LONG: Duration = Duration::from_secs(1200);
/// Time that Node.js gets to close the browser after SIGTERM.
const CLOSING_LIMIT: Duration = Duration::from_secs(5);

/// A program in a process group of its own, with everything that it starts. It ends when this is dropped.
struct Group(Child);

impl Group {
    fn start(command: &mut Command) -> Group {
        let name = command.get_program().to_owned();
        Group(
            command
                .process_group(0)
                .spawn()
                .unwrap_or_else(|error| panic!("run {}: {error}", name.display())),
        )
    }

    /// Waits until the program ends. `None` if it runs for longer.
    fn wait(&mut self, limit: Duration) -> Option<ExitStatus> {
        let until = Instant::now() + limit;
        loop {
            if let Some(status) = self.0.try_wait().expect("wait for a program") {
                return Some(status);
            }
            if Instant::now() > until {
                return None;
            }
            sleep(Duration::from_millis(20));
        }
    }

    fn signal(&self, signal: &str) {
        // The group has no process left if everything has ended. Then this fails.
        let _ = Command::new("kill").args([signal, "--", &format!("-{}", self.0.id())]).output();
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if matches!(self.0.try_wait(), Ok(None)) {
            self.signal("-TERM");
            self.wait(CLOSING_LIMIT);
        }
        self.signal("-KILL");
        let _ = self.0.wait();
    }
}

fn target() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("the target folder").to_path_buf()
}

/// Runs a file of `crates/dash/browser`, which prints what the page showed if a test fails.
fn run(file: &str) {
    let clients =
        std::env::var_os("MILLSTREAM_CLIENTS_DIR").map_or_else(|| target().join("clients"), PathBuf::from);
    let folder = clients.join("browser");
    assert!(
        folder.join("node_modules").exists(),
        "run scripts/clients-setup: {} is missing",
        folder.display()
    );
    let browser = std::env::var_os(BROWSER).map_or_else(|| PathBuf::from(BROWSER_OF_DEBIAN), PathBuf::from);
    assert!(
        browser.exists(),
        "{} is missing: install chromium-headless-shell, or set {BROWSER}",
        browser.display()
    );
    let shots = target().join("dash-screenshots");
    fs::create_dir_all(&shots).expect("create the folder of the screenshots");
    // A file and not a pipe: a process that is left over could keep a pipe open.
    let log = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("browser-{file}.tap"));
    let output = File::create(&log).expect("create the file of the output");
    let is_long = std::env::var_os("MILLSTREAM_BROWSER_LONG").is_some_and(|value| value == "1");
    let limit = if is_long { LIMIT_LONG } else { LIMIT };
    let mut node = Group::start(
        Command::new("node")
            // The files are reached through a symbolic link beside their packages.
            .args(["--preserve-symlinks", "--preserve-symlinks-main", "--test", "--test-reporter=tap"])
            .arg(folder.join("tests").join(file))
            .env("MILLSTREAM_BIN", env!("CARGO_BIN_EXE_millstream"))
            .env("MILLSTREAM_SHOTS", shots)
            .env(BROWSER, browser)
            .stdout(output.try_clone().expect("share the file of the output"))
            .stderr(output),
    );
    let status = node.wait(limit);
    drop(node);
    let text = String::from_utf8_lossy(&fs::read(&log).expect("read the output")).into_owned();
    match status {
        None => panic!("{file} was stopped because it did not end within {limit:?}. Its output:\n{text}"),
        Some(status) => {
            assert!(status.success() && !text.contains("# pass 0"), "{file} failed ({status}):\n{text}");
            println!("{text}");
        }
    }
}

#[test]
fn tasks_of_an_operator() {
    run("tasks.test.js");
}

#[test]
fn tasks_of_an_operator_on_redis() {
    run("redis.test.js");
}

#[test]
fn tasks_on_special_stores() {
    run("stores.test.js");
}

#[test]
fn every_page_is_safe_and_accessible() {
    run("pages.test.js");
}
