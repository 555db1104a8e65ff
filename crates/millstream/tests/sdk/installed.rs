//! The packages' own tests, and their installation without a network, followed by the examples of the documents.

use std::path::Path;
use std::process::Command;

use crate::language::sdk;
use crate::test_store::{Running, TestStore};

#[test]
fn the_tests_of_the_python_package_pass() {
    let mut python = Command::new("python3");
    python
        .args(["-m", "unittest", "-b"])
        .current_dir(sdk().join("python"))
        .env("PYTHONDONTWRITEBYTECODE", "1");
    let run = Running::start(without_settings(&mut python)).wait().ok();
    assert!(run.err.contains("\nOK\n"), "{}", run.err);
}

#[test]
fn the_tests_of_the_node_package_pass() {
    let mut node = Command::new("node");
    node.arg("--test").arg(sdk().join("node/test.js"));
    let run = Running::start(without_settings(&mut node)).wait().ok();
    assert!(run.out.contains("fail 0"), "{}", run.out);
}

/// Removes the settings of these suites, because the packages' tests check that no variable of Millstream is passed on.
fn without_settings(command: &mut Command) -> &mut Command {
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("MILLSTREAM_") {
            command.env_remove(name);
        }
    }
    command
}

#[test]
fn the_packages_have_the_version_of_the_binary() {
    let version = env!("CARGO_PKG_VERSION");
    for (file, line) in [
        ("python/pyproject.toml", format!("version = \"{version}\"")),
        ("python/millstream/__init__.py", format!("__version__ = \"{version}\"")),
        ("python/build_package.py", format!("NAME, VERSION = \"millstream\", \"{version}\"")),
        ("node/package.json", format!("\"version\": \"{version}\"")),
        ("node/index.js", format!("const VERSION = \"{version}\"")),
    ] {
        let text = std::fs::read_to_string(sdk().join(file)).expect("a file of a package");
        assert!(text.contains(&line), "{file} lacks {line}");
    }
}

/// Runs the code blocks of docs/workers/handlers.md, in a new virtual environment and a new folder. Then runs the
/// programs of the packages' own pages.
#[test]
fn the_packages_install_and_the_examples_run() {
    let store = TestStore::server();
    Running::start(&mut shell(&store, "python3 -m venv venv")).wait().ok();
    std::os::unix::fs::symlink(sdk(), store.folder.join("sdk")).expect("a link");
    let page = include_str!("../../../../docs/workers/handlers.md");
    let (_, section) = page.split_once("## Python and Node\n").expect("the section");
    let (section, _) = section.split_once("\n## ").expect("the next section");
    let scripts = write_programs(&store, section);
    assert_eq!(scripts.len(), 2);
    scripts.iter().for_each(|script| charges(&store, script));
    for (page, start) in [
        (include_str!("../../../../sdk/python/README.md"), "python3 worker.py"),
        (include_str!("../../../../sdk/node/README.md"), "node worker.mjs"),
    ] {
        // This script runs until it is stopped.
        let endless = write_programs(&store, page).remove(0);
        assert!(endless.contains(&format!("\n{start} --url redis://127.0.0.1:6379\n")), "{endless}");
        charges(&store, &format!("millstream add orders item=book amount=17\n{start} --until-empty\n"));
    }
}

/// Writes the programs of a page into the folder. Their first line is a comment with the name of the file. Returns the
/// scripts for a shell.
fn write_programs(store: &TestStore, page: &str) -> Vec<String> {
    let mut scripts = Vec::new();
    for block in page.split("```").skip(1).step_by(2) {
        let (language, code) = block.split_once('\n').expect("a block");
        if language == "sh" {
            scripts.push(code.to_owned());
        } else {
            let name = code.split_whitespace().nth(1).expect("the name of the file");
            store.write(name, code);
        }
    }
    scripts
}

/// Runs a script that charges 17 once.
fn charges(store: &TestStore, script: &str) {
    let run = Running::start(&mut shell(store, script)).wait().ok();
    assert!(run.err.contains("charging 17\n"), "{script}{}{}", run.out, run.err);
    assert!(run.err.contains("1 received, 1 acknowledged"), "{script}{}", run.err);
    store.call(&["DEL", "orders"]);
}

/// A shell in which `millstream` and the virtual environment are on the PATH, and nothing is downloaded.
pub(crate) fn shell(store: &TestStore, script: &str) -> Command {
    let binary = Path::new(env!("CARGO_BIN_EXE_millstream")).parent().expect("a folder");
    let path = std::env::var("PATH").unwrap_or_default();
    let mut command = Command::new("sh");
    command.args(["-ec", script]).current_dir(&store.folder);
    command.env("PATH", format!("{}/venv/bin:{}:{path}", store.folder.display(), binary.display()));
    command.env("MILLSTREAM_URL", &store.url).env_remove("REDIS_URL").env_remove("MILLSTREAM_BIN");
    command.env("PIP_NO_INDEX", "1").env("PIP_DISABLE_PIP_VERSION_CHECK", "1").env_remove("PYTHONPATH");
    command
        .env("npm_config_offline", "true")
        .env("npm_config_audit", "false")
        .env("npm_config_fund", "false");
    command
}
