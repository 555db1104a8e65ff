//! Programs in other languages: paths of their interpreters, and running them.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::support::process::Server;

/// Time limit of one program. Building the Rust examples on a busy machine takes longest.
const LIMIT: Duration = Duration::from_secs(600);

/// A command with the server's address in the environment variables that suites and examples read.
pub(crate) fn command(program: impl AsRef<Path>, server: &Server) -> Command {
    let mut command = Command::new(program.as_ref());
    command
        .env("MILLSTREAM_TEST_PORT", server.port.to_string())
        .env("REDIS_URL", format!("redis://127.0.0.1:{}", server.port))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("PYTHONIOENCODING", "utf-8")
        .env("NO_COLOR", "1")
        .current_dir(repository());
    command
}

/// Python in the virtual environment `name`.
pub(crate) fn python(name: &str, server: &Server) -> Command {
    command(installed(&format!("{name}/bin/python")), server)
}

/// Node.js, to which the caller adds the path of a script below [`node_folder`].
pub(crate) fn node(server: &Server) -> Command {
    installed("node/node_modules");
    let mut node = command("node", server);
    // Scripts are reached through symbolic links, and their packages are next to the links.
    node.args(["--preserve-symlinks", "--preserve-symlinks-main"]);
    node
}

/// The folder that contains `node_modules` and the links `suites` and `examples`.
pub(crate) fn node_folder() -> PathBuf {
    clients_folder().join("node")
}

/// Runs a command until it exits and returns its output.
///
/// # Panics
/// If it fails or exceeds the time limit. The message contains its output.
pub(crate) fn run(command: &mut Command) -> String {
    let path = output_path();
    let output = File::create(&path).expect("create a file for the output");
    let mut child = command
        .stdin(Stdio::null())
        .stdout(output.try_clone().expect("share the output file"))
        .stderr(output)
        .spawn()
        .unwrap_or_else(|error| panic!("start {command:?}: {error}"));
    let deadline = Instant::now() + LIMIT;
    let status = loop {
        if let Some(status) = child.try_wait().expect("wait for the program") {
            break Some(status);
        }
        if Instant::now() > deadline {
            child.kill().expect("kill the program");
            child.wait().expect("wait for the killed program");
            break None;
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    let printed = String::from_utf8_lossy(&fs::read(&path).expect("read the output")).into_owned();
    fs::remove_file(&path).expect("remove the output file");
    match status {
        Some(status) if status.success() => printed,
        Some(status) => panic!("{command:?} ended with {status}:\n{printed}"),
        None => panic!("{command:?} was still running after {LIMIT:?}:\n{printed}"),
    }
}

/// Root folder of the repository.
pub(crate) fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Returns the path of something that `scripts/clients-setup` installs, and asserts that it exists.
fn installed(path: &str) -> PathBuf {
    let path = clients_folder().join(path);
    assert!(path.exists(), "{} is missing: run scripts/clients-setup first", path.display());
    path
}

fn clients_folder() -> PathBuf {
    match std::env::var_os("MILLSTREAM_CLIENTS_DIR") {
        Some(folder) => PathBuf::from(folder),
        None => Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("clients"),
    }
}

fn output_path() -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    std::env::temp_dir().join(format!("millstream-clients-{}-{number}.txt", std::process::id()))
}
