//! The files of `deploy/service`: the script that copies the data of a running server.

use std::path::PathBuf;
use std::process::Command;

use crate::process::{Server, TempDir};

/// Runs the script that `docs/service.md` installs, with the binary on its path.
fn backup(dir: &TempDir, keep: &str) -> bool {
    let binary = PathBuf::from(env!("CARGO_BIN_EXE_millstream"));
    let path = format!(
        "{}:{}",
        binary.parent().expect("a folder").display(),
        std::env::var("PATH").expect("a path")
    );
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/service/millstream-backup");
    let mut command = Command::new(script);
    command.args(["millstream-data", "copies", keep]).current_dir(&dir.path).env("PATH", path);
    command.output().expect("the script runs").status.success()
}

#[test]
fn the_backup_script_copies_a_running_server_and_keeps_the_newest_copies() {
    let dir = TempDir::new();
    let server = Server::start_in(&dir, &[]);
    let mut client = server.connect();
    for n in 1..=3 {
        client.call(&format!("XADD orders {n}-1 item book"), &format!("$3\r\n{n}-1\r\n"));
        assert!(backup(&dir, "2"));
    }
    assert!(!backup(&dir, "0"), "keeps no copy");
    let copies = || {
        let mut found: Vec<PathBuf> = std::fs::read_dir(dir.path.join("copies"))
            .expect("copies")
            .map(|copy| copy.expect("readable").path())
            .collect();
        found.sort();
        found
    };
    assert_eq!(copies().len(), 2, "{:?}", copies());
    for (copy, entries) in copies().iter().zip([2, 3]) {
        let restored = Server::start_in(&dir, &["--dir", copy.to_str().expect("UTF-8")]);
        restored.connect().call("XLEN orders", &format!(":{entries}\r\n"));
    }
}
