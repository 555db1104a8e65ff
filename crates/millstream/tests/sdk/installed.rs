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
    let run = Running::start(&mut python).wait().ok();
    assert!(run.err.contains("\nOK\n"), "{}", run.err);
}

#[test]
fn the_tests_of_the_node_package_pass() {
    let run = Running::start(Command::new("node").arg("--test").arg(sdk().join("node/test.js"))).wait().ok();
    assert!(run.out.contains("fail 0"), "{}", run.out);
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

/// Runs the code blocks of docs/workers/handlers.md, in a new virtual environment and a new folder.
#[test]
fn the_packages_install_and_the_examples_run() {
    let store = TestStore::server();
    Running::start(&mut shell(&store, "python3 -m venv venv")).wait().ok();
    std::os::unix::fs::symlink(sdk(), store.folder.join("sdk")).expect("a link");
    let page = include_str!("../../../../docs/workers/handlers.md");
    let (_, section) = page.split_once("## Python and Node\n").expect("the section");
    let (section, _) = section.split_once("\n## ").expect("the next section");
    let mut scripts = 0;
    for block in section.split("```").skip(1).step_by(2) {
        let (language, code) = block.split_once('\n').expect("a block");
        match language {
            "sh" => {
                scripts += 1;
                let run = Running::start(&mut shell(&store, code)).wait().ok();
                assert!(run.err.contains("charging 17\n"), "{code}{}{}", run.out, run.err);
                assert!(run.err.contains("1 received, 1 acknowledged"), "{code}{}", run.err);
                store.call(&["DEL", "orders"]);
            }
            _ => {
                let name = code.split_whitespace().nth(1).expect("the name of the file");
                store.write(name, code);
            }
        }
    }
    assert_eq!(scripts, 2);
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
