//! Starting and stopping the server, and failures to start.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Output;
use std::thread;
use std::time::{Duration, Instant};

use crate::process::{Server, TempDir, eventually, millstream};

fn run(args: &[&str]) -> (String, Output) {
    let dir = TempDir::new();
    let output = millstream(&dir).args(args).output().expect("the binary is built");
    (String::from_utf8_lossy(&output.stderr).into_owned(), output)
}

#[test]
fn the_greeting_shows_address_data_folder_and_an_example() {
    let server = Server::start(&[]);
    let greeting = &server.greeting;
    assert!(greeting.contains(concat!("millstream ", env!("CARGO_PKG_VERSION"))), "{greeting}");
    assert!(greeting.contains(&format!("127.0.0.1:{}", server.port)), "{greeting}");
    assert!(greeting.contains("./millstream-data, synced before every reply (new)"), "{greeting}");
    assert!(
        greeting.contains(&format!("redis-cli -p {} XADD orders '*' item book", server.port)),
        "{greeting}"
    );
    assert!(!greeting.contains('\u{1b}'), "colours without a terminal: {greeting:?}");
    server.connect().call("PING", "+PONG\r\n");
}

#[test]
fn flags_override_the_environment_and_the_environment_overrides_the_file() {
    let dir = TempDir::new();
    let file = dir.write("m.toml", "databases = 3\nmaxclients = 100\n");
    let highest = |server: &Server| {
        let mut client = server.connect();
        (0..20).rev().find(|db| {
            client.send(format!("SELECT {db}\r\n"));
            client.line() == "+OK"
        })
    };
    assert_eq!(highest(&Server::start(&[])), Some(15));
    assert_eq!(highest(&Server::start(&["--config", &file])), Some(2));
    let environment = [("MILLSTREAM_DATABASES", "5"), ("MILLSTREAM_CONFIG", file.as_str())];
    assert_eq!(highest(&Server::start_with(&[], &environment)), Some(4));
    assert_eq!(highest(&Server::start_with(&["--databases", "7"], &environment)), Some(6));
}

#[test]
fn the_example_in_the_greeting_works() {
    let server = Server::start(&[]);
    let mut client = server.connect();
    client.send("XADD orders * item book\r\n");
    assert_eq!(client.line(), "$15");
    assert!(client.line().ends_with("-0"));
    client.call("XLEN orders", ":1\r\n");
}

#[test]
fn sigterm_and_sigint_stop_the_server_with_connected_clients() {
    for name in ["-TERM", "-INT"] {
        let server = Server::start(&["--io-threads", "2"]);
        let mut idle = server.connect();
        idle.call("PING", "+PONG\r\n");
        let mut blocked = server.connect();
        blocked.send("XREAD BLOCK 0 STREAMS s $\r\n");
        let mut halfway = server.connect();
        halfway.send("*3\r\n$3\r\nSET\r\n$1");
        idle.call("PING", "+PONG\r\n");
        server.signal(name);
        let (stderr, status) = server.wait();
        assert_eq!(status.code(), Some(0), "{name}: {stderr}");
        assert!(stderr.contains("stopped"), "{stderr}");
        idle.expect_closed();
        blocked.expect_closed();
    }
}

#[test]
fn a_second_signal_stops_without_waiting_for_running_commands() {
    // Two threads take connections in turn, so the second client is served while the first thread sleeps.
    let mut server = Server::start(&["--io-threads", "2", "--enable-debug-command", "local"]);
    let mut sleeper = server.connect();
    let mut watcher = server.connect();
    watcher.call("PING", "+PONG\r\n");
    sleeper.send("DEBUG SLEEP 60\r\n");
    eventually("the first thread sleeps", || watcher.ask(&["CLIENT LIST"]).contains("cmd=debug"));
    server.signal("-TERM");
    let address = SocketAddr::from(([127, 0, 0, 1], server.port));
    eventually("the server refuses connections", || TcpStream::connect(address).is_err());
    // A signal within a second is a repetition, as `timeout` sends it.
    server.signal("-TERM");
    thread::sleep(Duration::from_millis(1100));
    assert!(server.is_running());
    let began = Instant::now();
    server.signal("-TERM");
    let (stderr, status) = server.wait();
    assert_eq!(status.code(), Some(143), "{stderr}");
    assert!(began.elapsed() < Duration::from_secs(10));
}

#[test]
fn a_port_in_use_is_reported_with_a_remedy() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let (stderr, output) = run(&["serve", "--bind", "127.0.0.1", "--port", &port]);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains(&format!("127.0.0.1:{port}")) && stderr.contains("--port"), "{stderr}");
}

#[test]
fn invalid_flags_and_values_exit_with_2() {
    for (args, hint) in [
        (&["serve", "--prot", "1"][..], "--port"),
        (&["serve", "--port", "70000"], "between 0 and 65535"),
        (&["serve", "--exact-lag", "maybe"], "--exact-lag maybe: argument must be 'yes' or 'no'"),
        (&["serve", "--appendfsync", "often"], "--appendfsync often: argument"),
        (&["dance"], "dance"),
    ] {
        let (stderr, output) = run(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {stderr}");
        assert!(stderr.contains(hint), "{args:?}: {stderr}");
    }
}

#[test]
fn a_missing_or_invalid_configuration_file_is_reported() {
    let (stderr, output) = run(&["serve", "--config", "/no/such/file.toml"]);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("/no/such/file.toml"), "{stderr}");

    let dir = TempDir::new();
    let file = dir.write("m.toml", "exactlag = true\n");
    let (stderr, output) = run(&["serve", "--config", &file]);
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(stderr.contains("exactlag") && stderr.contains("Did you mean exact-lag?"), "{stderr}");
}

#[test]
fn a_data_folder_that_cannot_be_created_is_reported() {
    let (stderr, output) = run(&["serve", "--port", "0", "--dir", "/proc/millstream"]);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("/proc/millstream") && stderr.contains("--dir"), "{stderr}");
}

#[test]
fn help_lists_settings_and_version_prints_the_version() {
    let (_, output) = run(&["serve", "--help"]);
    let help = String::from_utf8(output.stdout).unwrap();
    for flag in ["--bind", "--port", "--dir", "--config", "--requirepass", "--maxclients", "--exact-lag"] {
        assert!(help.contains(flag), "{flag}: {help}");
    }
    assert!(help.contains("millstream serve --port 7000"), "{help}");
    let (_, output) = run(&["--version"]);
    let version = String::from_utf8(output.stdout).unwrap();
    assert_eq!(version.trim(), concat!("millstream ", env!("CARGO_PKG_VERSION")));
}

#[test]
fn compat_prints_the_command_table() {
    let (stderr, output) = run(&["compat"]);
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.starts_with('#') && text.contains("XREADGROUP") && text.contains("XAUTOCLAIM"), "{text}");
}

#[test]
fn a_unix_socket_works_and_is_removed_on_stop() {
    let dir = TempDir::new();
    let path = dir.path.join("m.sock");
    let server = Server::start(&["--unixsocket", path.to_str().unwrap()]);
    let stream = std::os::unix::net::UnixStream::connect(&path).unwrap();
    let mut reply = [0; 7];
    std::io::Write::write_all(&mut &stream, b"PING\r\n").unwrap();
    std::io::Read::read_exact(&mut &stream, &mut reply).unwrap();
    assert_eq!(&reply, b"+PONG\r\n");
    server.signal("-TERM");
    assert!(server.wait().1.success());
    assert!(!path.exists());
}

#[test]
fn the_unix_socket_has_the_permissions_of_the_setting() {
    use std::os::unix::fs::PermissionsExt;
    for (value, mode) in [("770", 0o770), ("0600", 0o600)] {
        let dir = TempDir::new();
        let path = dir.path.join("m.sock");
        let server = Server::start(&["--unixsocket", path.to_str().unwrap(), "--unixsocketperm", value]);
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o7777, mode);
        std::os::unix::net::UnixStream::connect(&path).unwrap();
        let shown = value.trim_start_matches('0');
        server.connect().call(
            "CONFIG GET unixsocketperm",
            &format!("*2\r\n$14\r\nunixsocketperm\r\n${}\r\n{shown}\r\n", shown.len()),
        );
    }
}
