//! Tests of the dashboard's pages in a real browser, on Millstream and on Redis. The tests are in `crates/dash/browser`.
//!
//! They need Node.js, the packages that `scripts/clients-setup` installs, and Debian's `chromium-headless-shell`.
//! Screenshots of all pages, and those of failures, are in `dash-screenshots` in the target folder.
//! `MILLSTREAM_BROWSER_LONG=1` runs them on larger stores.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The browser of the tests; another one can be named in the environment.
const BROWSER: &str = "MILLSTREAM_BROWSER";
const BROWSER_OF_DEBIAN: &str = "/usr/bin/chromium-headless-shell";

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
    let output = Command::new("node")
        // The files are reached through a symbolic link beside their packages.
        .args(["--preserve-symlinks", "--preserve-symlinks-main", "--test", "--test-reporter=tap"])
        .arg(folder.join("tests").join(file))
        .env("MILLSTREAM_BIN", env!("CARGO_BIN_EXE_millstream"))
        .env("MILLSTREAM_SHOTS", shots)
        .env(BROWSER, browser)
        .output()
        .expect("run node");
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success() && !text.contains("# pass 0"), "{file}:\n{text}");
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
fn every_page_is_safe_and_accessible() {
    run("pages.test.js");
}
