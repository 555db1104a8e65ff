//! SIGHUP: the server reads its configuration file again.

use std::process::{Command, Stdio};
use std::thread;

use crate::process::{Server, TempDir, eventually};

/// Returns the current values of these settings.
fn values<const N: usize>(server: &Server, names: [&str; N]) -> [String; N] {
    let mut client = server.connect();
    names.map(|name| {
        let reply = client.ask(&[&format!("CONFIG GET {name}")]);
        reply.trim_end().rsplit("\r\n").next().expect("a value").to_owned()
    })
}

#[test]
fn sighup_applies_what_has_changed_in_the_file() {
    let dir = TempDir::new();
    let file = dir.write("m.toml", "maxclients = 100\ntimeout = 50\nlogin-timeout = 20\ndatabases = 4\n");
    let mut server = Server::start(&["--config", &file, "--login-timeout", "30"]);
    let names = ["maxclients", "timeout", "login-timeout", "databases"];
    assert_eq!(values(&server, names), ["100", "50", "30", "4"]);
    // CONFIG SET wins until the file changes this setting. A flag always wins.
    server.connect().call("CONFIG SET timeout 70", "+OK\r\n");
    dir.write("m.toml", "maxclients = 200\ntimeout = 50\nlogin-timeout = 21\ndatabases = 5\n");
    server.signal("-HUP");
    let line = server.line_with("SIGHUP");
    assert!(line.ends_with(" notice  SIGHUP: changed maxclients to 200\n"), "{line}");
    let line = server.line_with("SIGHUP");
    assert!(line.ends_with(" warning SIGHUP: restart the server to change databases to 5\n"), "{line}");
    assert_eq!(values(&server, names), ["200", "70", "30", "4"]);

    // The setting that needs a restart is reported again, and passwords are not logged.
    dir.write("m.toml", "timeout = 60\nrequirepass = 'a long secret'\ndatabases = 5\n");
    server.signal("-HUP");
    let line = server.line_with("SIGHUP");
    assert!(line.ends_with("SIGHUP: changed requirepass, maxclients to 10000, timeout to 60\n"), "{line}");
    assert!(server.line_with("SIGHUP").contains("restart the server to change databases to 5"));
    server.connect().call("PING", "-NOAUTH Authentication required.\r\n");
    server.connect().call("AUTH \"a long secret\"", "+OK\r\n");
}

#[test]
fn sighup_with_a_wrong_file_changes_nothing() {
    let dir = TempDir::new();
    let file = dir.write("m.toml", "timeout = 50\n");
    let mut server = Server::start(&["--config", &file]);
    assert_eq!(values(&server, ["timeout"]), ["50"]);
    for (text, error) in [
        ("timeout = 60\nmaxclients = 0\n", "m.toml: maxclients 0: argument must be between 1 and"),
        ("timeout = 60\nmaxclient = 9\n", "m.toml: maxclient: unknown setting. Did you mean maxclients?"),
        ("timeout = 60\nmaxclients =\n", "m.toml is not valid TOML: TOML parse error at line 2"),
        // Only the running server can tell that the system allows fewer clients.
        ("timeout = 60\nmaxclients = 4000000000\n", "maxclients: The operating system is not able to handle"),
    ] {
        dir.write("m.toml", text);
        server.signal("-HUP");
        let line = server.line_with("SIGHUP");
        assert!(line.contains(" warning SIGHUP: nothing was changed: ") && line.contains(error), "{line}");
        assert_eq!(values(&server, ["timeout"]), ["50"]);
    }
    std::fs::remove_file(&file).expect("removable");
    server.signal("-HUP");
    let line = server.line_with("SIGHUP");
    assert!(line.contains("nothing was changed: cannot read configuration file"), "{line}");

    dir.write("m.toml", "timeout = 60\n");
    server.signal("-HUP");
    assert!(server.line_with("SIGHUP").ends_with("SIGHUP: changed timeout to 60\n"));
    assert_eq!(values(&server, ["timeout"]), ["60"]);
}

#[test]
fn sighup_without_a_file_does_not_end_the_server() {
    let mut server = Server::start(&[]);
    server.connect().call("PING", "+PONG\r\n");
    server.signal("-HUP");
    assert!(server.line_with("SIGHUP").ends_with("SIGHUP: no setting has changed\n"));
    server.connect().call("PING", "+PONG\r\n");
}

#[test]
fn sighup_while_the_server_loads_its_data_is_remembered() {
    let dir = TempDir::new();
    let server = Server::start_in(&dir, &["--appendfsync", "no"]);
    let entries = vec!["XADD s * field value"; 10_000];
    for _ in 0..5 {
        server.connect().ask(&entries);
    }
    server.signal("-TERM");
    assert!(server.wait().1.success());

    // The server creates its Unix socket before it loads the data.
    let (socket, pid) = (dir.path.join("m.sock"), dir.path.join("pid"));
    let signal = thread::spawn(move || {
        eventually("the server starts", || socket.exists());
        let pid = std::fs::read_to_string(pid).expect("a file");
        Command::new("kill").args(["-HUP", pid.trim()]).status().expect("kill runs")
    });
    let mut command = Command::new("sh");
    let script = "echo $$ > pid; exec \"$0\" serve --port 0 --unixsocket m.sock";
    command
        .args(["-c", script, env!("CARGO_BIN_EXE_millstream")])
        .current_dir(&dir.path)
        .stderr(Stdio::piped());
    let mut server = Server::try_spawn(command, None).expect("the server starts");
    assert!(signal.join().expect("no panic").success());
    assert!(server.line_with("SIGHUP").ends_with("SIGHUP: no setting has changed\n"));
    server.connect().call("XLEN s", ":50000\r\n");
}
