//! The lines that the server writes to standard error: levels, formats, and clients that are closed.

use serde_json::Value;

use crate::process::{Server, TempDir, millstream};

/// Splits a line of text into time, level and the rest.
fn parts(line: &str) -> (&str, &str, &str) {
    let (time, rest) = line.split_once(' ').expect("a time");
    let (level, rest) = rest.split_once(' ').expect("a level");
    (time, level, rest.trim())
}

/// Whether a text is a time such as 2026-11-18T05:46:00.783Z.
fn is_time(text: &str) -> bool {
    let digits_as_zeros: String = text.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
    digits_as_zeros == "0000-00-00T00:00:00.000Z"
}

#[test]
fn every_line_has_a_time_and_a_level() {
    let server = Server::start(&[]);
    let mut client = server.connect();
    client.call("CONFIG GET loglevel", "*2\r\n$8\r\nloglevel\r\n$6\r\nnotice\r\n");
    client.call("CONFIG SET timeout 100", "+OK\r\n");
    server.signal("-TERM");
    let (log, _) = server.wait();
    let lines: Vec<&str> = log.lines().filter(|line| !line.is_empty()).collect();
    assert!(lines.iter().all(|line| is_time(parts(line).0) && parts(line).1 == "notice"), "{log}");
    let text: Vec<&str> = lines.iter().map(|line| parts(line).2).collect();
    assert!(text[0].starts_with("audit event=connected address=\"127.0.0.1:"), "{log}");
    assert!(text[1].ends_with(" user=\"default\" what=\"CONFIG SET timeout\""), "{log}");
    assert_eq!(text.last(), Some(&"the server has stopped"));
}

#[test]
fn loglevel_hides_lines_and_shows_more() {
    let server = Server::start(&["--loglevel", "warning", "--audit-log", "no"]);
    let mut client = server.connect();
    client.call("SAVE", "+OK\r\n");
    client.call("CONFIG SET loglevel debug", "+OK\r\n");
    client.call("SAVE", "+OK\r\n");
    drop(client);
    let mut second = server.connect();
    second.call("PING", "+PONG\r\n");
    second
        .call("CONFIG SET loglevel loud", "-ERR CONFIG SET failed (possibly related to argument 'loglevel')");
    server.signal("-TERM");
    let (log, _) = server.wait();
    assert_eq!(log.matches(" verbose took a snapshot in ").count(), 1, "{log}");
    assert!(log.contains(" debug   a client disconnected address=\"127.0.0.1:"), "{log}");

    let quiet = Server::start(&["--loglevel", "nothing", "--audit-log", "no"]);
    quiet.connect().call("PING", "+PONG\r\n");
    quiet.signal("-TERM");
    assert_eq!(quiet.wait().0.trim(), "");
}

#[test]
fn with_log_format_json_every_line_is_an_object() {
    let dir = TempDir::new();
    let mut command = millstream(&dir);
    command.args(["serve", "--port", "0", "--log-format", "json", "--unixsocket", "m.sock"]);
    let child = command.spawn().expect("the binary is built");
    let socket = dir.path.join("m.sock");
    let connect = || std::os::unix::net::UnixStream::connect(&socket);
    // The file exists a moment before the server listens.
    crate::process::eventually("the server listens", || connect().is_ok());
    let mut stream = connect().expect("it listens");
    std::io::Write::write_all(&mut stream, b"AUTH \"a\\x22\\n\" wrong\r\n").expect("it reads");
    std::io::Read::read_exact(&mut stream, &mut [0; 9]).expect("it replies");
    drop(stream);
    std::process::Command::new("kill").arg(child.id().to_string()).status().expect("kill runs");
    let log = String::from_utf8(child.wait_with_output().expect("it ends").stderr).expect("text");
    let lines: Vec<Value> =
        log.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}"))).collect();
    assert!(lines.iter().all(|line| is_time(line["time"].as_str().unwrap())), "{log}");
    assert!(lines[0]["message"].as_str().unwrap().contains(" has started; listening: 127.0.0.1:"), "{log}");
    let failed = lines.iter().find(|line| line["event"] == "failed-login").expect("an audit line");
    assert_eq!((&failed["level"], &failed["message"]), (&"notice".into(), &"audit".into()));
    assert_eq!(failed["address"], "m.sock:0");
    assert_eq!(lines.last().unwrap()["message"], "the server has stopped");
}

#[test]
fn a_client_that_is_closed_at_a_limit_is_logged() {
    let limits = ["--client-output-buffer-limit", "20kb", "--client-query-buffer-limit", "1mb"];
    let mut server = Server::start(&limits);
    let large = "x".repeat(30_000);
    server.connect().call(&format!("SET large {large}"), "+OK\r\n");
    server.connect().ask(&vec!["XADD many * field value"; 1_100]);
    let mut blocked = server.connect();
    blocked.send("XREAD BLOCK 0 STREAMS s $\r\n");
    crate::process::eventually("a client is blocked", || {
        server.connect().ask(&["INFO clients"]).contains("blocked_clients:1")
    });
    server.connect().send(format!("XADD s * large {large}\r\n"));
    // Replies to a blocked client, in one piece, and in slices.
    for (command, name) in [("", "xread"), ("GET large", "get"), ("XRANGE many - +", "xrange")] {
        let mut client = server.connect();
        client.send(format!("{command}\r\n"));
        let line = server.line_with("client-output-buffer-limit");
        let expected = "closed a client whose reply exceeds client-output-buffer-limit or what maxmemory-clients allows \
                        address=\"127.0.0.1:";
        assert!(parts(&line).1 == "warning" && parts(&line).2.starts_with(expected), "{line}");
        assert!(line.ends_with(&format!("user=\"default\" command=\"{name}\"\n")), "{name}: {line}");
    }
    let mut client = server.connect();
    // The server closes the connection while the client sends.
    let _ = std::io::Write::write_all(
        &mut client.stream,
        format!("*1\r\n$3000000\r\n{}", "x".repeat(2_000_000)).as_bytes(),
    );
    let line = server.line_with("client-query-buffer-limit");
    assert!(line.contains(" warning closed a client whose requests exceed "), "{line}");
}
