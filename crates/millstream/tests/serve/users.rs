//! Users: the ACL file, changes while clients are connected, protected mode, and the slow log.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;

use crate::access::address_of_this_machine;
use crate::process::{Client, Server, TempDir, eventually, millstream, request};

const DENIED: &str = "-NOPERM No permissions to access a key\r\n";
const WRONGPASS: &str = "-WRONGPASS invalid username-password pair or user is disabled.\r\n";
const NOAUTH: &str = "-NOAUTH Authentication required.\r\n";

/// Returns a client that has authenticated.
fn client_of(server: &Server, user: &str, password: &str) -> Client {
    let mut client = server.connect();
    client.call(&format!("AUTH {user} {password}"), "+OK\r\n");
    client
}

/// Starts a server with an ACL file of this content.
fn start_with_file(dir: &TempDir, text: &str) -> Server {
    fs::write(dir.path.join("users.acl"), text).unwrap();
    Server::start_in(dir, &["--aclfile", "users.acl"])
}

#[test]
fn users_of_the_file_are_loaded_saved_and_loaded_again() {
    let dir = TempDir::new();
    let server = start_with_file(
        &dir,
        "user default on >admin ~* &* +@all\n\nuser worker on >pw ~orders* +@stream (~cache* +get)\r\n",
    );
    server.connect().call("PING", NOAUTH);
    let mut worker = client_of(&server, "worker", "pw");
    worker.call("XADD orders 1-1 f v", "$3\r\n1-1\r\n");
    worker.call("XADD other 1-1 f v", DENIED);
    worker.call("GET cache", "$-1\r\n");
    let mut admin = client_of(&server, "default", "admin");
    admin.call("ACL SETUSER exporter on >metrics +info +xinfo ~*", "+OK\r\n");
    admin.call("ACL SETUSER default >admin2 <admin", "+OK\r\n");
    admin.call("ACL SAVE", "+OK\r\n");
    let path = dir.path.join("users.acl");
    let saved = fs::read_to_string(&path).unwrap();
    assert_eq!(saved.lines().count(), 3, "{saved}");
    assert!(saved.starts_with("user default on sanitize-payload #"), "{saved}");
    for password in ["pw", "admin", "metrics"] {
        assert!(!saved.contains(password), "{saved}");
    }
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(
        fs::read_dir(&dir.path)
            .unwrap()
            .filter(|entry| { entry.as_ref().unwrap().file_name().to_string_lossy().contains("users.acl") })
            .count(),
        1,
        "no temporary file is left"
    );
    let before = admin.ask(&["ACL LIST"]);
    drop(server);
    let server = Server::start_in(&dir, &["--aclfile", "users.acl"]);
    server.connect().call("AUTH admin", WRONGPASS);
    let mut admin = client_of(&server, "default", "admin2");
    assert_eq!(admin.ask(&["ACL LIST"]), before);
    client_of(&server, "exporter", "metrics").call(
        "XLEN orders",
        "-NOPERM User exporter has no permissions to run \
        the 'xlen' command\r\n",
    );
}

#[test]
fn acl_load_replaces_all_users_or_none() {
    let dir = TempDir::new();
    let server = start_with_file(
        &dir,
        "user same on >pw ~* +@all\nuser changed on >pw ~* +@all\nuser gone on >pw ~* +@all",
    );
    let mut admin = server.connect();
    let mut same = client_of(&server, "same", "pw");
    let mut changed = client_of(&server, "changed", "pw");
    let mut gone = client_of(&server, "gone", "pw");
    let path = dir.path.join("users.acl");
    fs::write(&path, "user same off\nusr x\n\nuser y +nope\nuser z <secret\nuser z2 (+get\nuser same on\n")
        .unwrap();
    let before = admin.ask(&["ACL LIST"]);
    admin.send("ACL LOAD\r\n");
    assert_eq!(
        admin.line(),
        "-ERR users.acl:2: should start with user keyword followed by the username. \
         users.acl:4: Error in applying operation '+nope': Unknown command or category name in ACL. \
         users.acl:5: Error in applying operation '<(redacted)': The password you are trying to remove from the user \
         does not exist. \
         users.acl:6: Unmatched parenthesis in selector definition. \
         users.acl:7: Duplicate user 'same'. \
         WARNING: ACL errors detected, no change to the previously active ACL rules was performed"
    );
    assert_eq!(admin.ask(&["ACL LIST"]), before);
    for client in [&mut same, &mut changed, &mut gone] {
        client.call("PING", "+PONG\r\n");
    }
    fs::write(&path, "user same on >pw ~* +@all\nuser changed on >pw ~a +@all\nuser new on >pw ~* +@all\n")
        .unwrap();
    admin.call("ACL LOAD", "+OK\r\n");
    same.call("PING", "+PONG\r\n");
    changed.expect_closed();
    gone.expect_closed();
    server.connect().call("AUTH gone pw", WRONGPASS);
    client_of(&server, "changed", "pw").call("GET b", DENIED);
    client_of(&server, "new", "pw").call("PING", "+PONG\r\n");
    // The file defines `default` now: the connection that loads it is closed after the reply.
    fs::write(&path, "user default on >pw ~* +@all\n").unwrap();
    admin.call("ACL LOAD", "+OK\r\n");
    admin.expect_closed();
    same.expect_closed();
    server.connect().call("PING", NOAUTH);
    fs::remove_file(&path).unwrap();
    let mut admin = client_of(&server, "default", "pw");
    admin.send("ACL LOAD\r\n");
    let reply = admin.line();
    assert!(reply.starts_with("-ERR Error loading ACLs, opening file 'users.acl': "), "{reply}");
    admin.call("PING", "+PONG\r\n");
}

#[test]
fn requirepass_is_the_password_of_default_unless_the_file_defines_it() {
    let dir = TempDir::new();
    fs::write(dir.path.join("users.acl"), "user worker on >pw +ping\n").unwrap();
    let flags = ["--aclfile", "users.acl", "--requirepass", "secret"];
    let server = Server::start_in(&dir, &flags);
    server.connect().call("PING", NOAUTH);
    let mut admin = client_of(&server, "default", "secret");
    fs::write(dir.path.join("users.acl"), "user worker off\n").unwrap();
    admin.call("ACL LOAD", "+OK\r\n");
    server.connect().call("PING", NOAUTH);
    client_of(&server, "default", "secret").call("PING", "+PONG\r\n");
    drop(server);
    fs::write(dir.path.join("users.acl"), "user default on nopass ~* +@all\n").unwrap();
    refuses_to_start(
        &dir,
        &flags,
        "the ACL file users.acl defines the user default, and requirepass is set too",
    );
}

#[test]
fn a_server_does_not_start_with_an_invalid_file() {
    let dir = TempDir::new();
    let flags = ["--aclfile", "users.acl"];
    refuses_to_start(&dir, &flags, "cannot load the users: Error loading ACLs, opening file 'users.acl'");
    fs::write(dir.path.join("users.acl"), "user default on nopass ~* +@all\nuser x on >pw +nope\n").unwrap();
    refuses_to_start(&dir, &flags, "users.acl:2: Error in applying operation '+nope': Unknown command");
    fs::write(dir.path.join("users.acl"), "user x on (>secret +get)\n").unwrap();
    refuses_to_start(
        &dir,
        &flags,
        "users.acl:1: Error in applying operation '(>(redacted) +get)': Syntax error",
    );
}

#[track_caller]
fn refuses_to_start(dir: &TempDir, flags: &[&str], text: &str) {
    let output = millstream(dir).arg("serve").args(["--port", "0"]).args(flags).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && stderr.contains(text), "{stderr}");
}

#[test]
fn a_blocked_reader_is_checked_again_when_it_is_served() {
    let server = Server::start(&[]);
    let mut admin = server.connect();
    admin.call("ACL SETUSER alice on >pw ~a +@all", "+OK\r\n");
    admin.call("XGROUP CREATE a g $ MKSTREAM", "+OK\r\n");
    let mut alice = client_of(&server, "alice", "pw");
    let blocked = |count: usize, admin: &mut Client| {
        eventually("clients are blocked", || {
            admin.ask(&["INFO clients"]).contains(&format!("blocked_clients:{count}\r\n"))
        });
    };
    alice.send("XREADGROUP GROUP g alice BLOCK 0 STREAMS a >\r\n");
    blocked(1, &mut admin);
    admin.call("ACL SETUSER alice resetkeys", "+OK\r\n");
    admin.call("XADD a 1-1 f v", "$3\r\n1-1\r\n");
    alice.expect(DENIED);
    // The entry was not delivered to anybody.
    admin.call(
        "XREADGROUP GROUP g other STREAMS a >",
        "*1\r\n*2\r\n$1\r\na\r\n*1\r\n*2\r\n$3\r\n1-1\r\n*2\r\n$1\r\nf\r\n$1\r\nv\r\n",
    );
    // A pop from a list loses nothing either.
    admin.call("ACL SETUSER alice ~l", "+OK\r\n");
    alice.send("BLPOP l 0\r\n");
    blocked(1, &mut admin);
    admin.call("ACL SETUSER alice -blpop", "+OK\r\n");
    admin.call("LPUSH l x", ":1\r\n");
    alice.expect("-NOPERM User alice has no permissions to run the 'blpop' command\r\n");
    admin.call("LLEN l", ":1\r\n");
    // If the user is removed, the connection is closed, and the next reader gets the entry.
    admin.call("ACL SETUSER alice ~a +@all", "+OK\r\n");
    alice.send("XREADGROUP GROUP g alice BLOCK 0 STREAMS a >\r\n");
    blocked(1, &mut admin);
    let mut other = server.connect();
    other.send("XREADGROUP GROUP g other BLOCK 0 STREAMS a >\r\n");
    blocked(2, &mut admin);
    admin.send("ACL DELUSER alice\r\nXADD a 2-1 f v\r\n");
    admin.expect(":1\r\n$3\r\n2-1\r\n");
    alice.expect_closed();
    other.expect("*1\r\n*2\r\n$1\r\na\r\n*1\r\n*2\r\n$3\r\n2-1\r\n*2\r\n$1\r\nf\r\n$1\r\nv\r\n");
}

/// A removed user gets nothing from the requests that it has already sent.
#[test]
fn requests_of_a_removed_user_do_not_run() {
    let server = Server::start(&[]);
    let mut admin = server.connect();
    admin.call("ACL SETUSER alice on >pw ~* +@all", "+OK\r\n");
    let mut alice = client_of(&server, "alice", "pw");
    alice.send("ACL DELUSER alice\r\nSET k 1\r\n");
    alice.expect(":1\r\n");
    alice.expect_closed();
    admin.call("EXISTS k", ":0\r\n");
    admin.call("ACL SETUSER alice on >pw ~* +@all", "+OK\r\n");
    let mut alice = client_of(&server, "alice", "pw");
    alice.call("MULTI", "+OK\r\n");
    alice.call("ACL DELUSER alice", "+QUEUED\r\n");
    alice.call("SET k 1", "+QUEUED\r\n");
    alice.send("EXEC\r\n");
    assert_eq!((alice.line(), alice.line()), ("*2".to_owned(), ":1".to_owned()));
    assert!(alice.line().starts_with("-NOPERM"));
    alice.expect_closed();
    admin.call("EXISTS k", ":0\r\n");
}

#[test]
fn a_client_that_removes_its_own_user_is_disconnected_even_if_it_then_fails_to_log_in() {
    let server = Server::start(&[]);
    server.connect().call("ACL SETUSER ops on >pw +@all", "+OK\r\n");
    let mut ops = client_of(&server, "ops", "pw");
    ops.call("MULTI", "+OK\r\n");
    ops.call("ACL DELUSER ops", "+QUEUED\r\n");
    ops.call("AUTH ops pw", "+QUEUED\r\n");
    ops.call("EXEC", &format!("*2\r\n:1\r\n{WRONGPASS}"));
    ops.expect_closed();
}

#[test]
fn hello_with_an_invalid_client_name_logs_nobody_in() {
    let server = Server::start(&[]);
    let mut client = server.connect();
    client.call("ACL SETUSER alice on >pw +@all", "+OK\r\n");
    client.send(request(&["HELLO", "2", "AUTH", "alice", "pw", "SETNAME", "two words"]));
    client.expect("-ERR Client names cannot contain spaces, newlines or special characters.\r\n");
    client.call("ACL WHOAMI", "$7\r\ndefault\r\n");
}

#[test]
fn changes_apply_to_connections_at_once() {
    let server = Server::start(&[]);
    let mut admin = server.connect();
    admin.call("ACL SETUSER alice on >pw ~* +@all", "+OK\r\n");
    let mut alice = client_of(&server, "alice", "pw");
    alice.call("SET k 1", "+OK\r\n");
    admin.call("ACL SETUSER alice -set", "+OK\r\n");
    alice.call("SET k 1", "-NOPERM User alice has no permissions to run the 'set' command\r\n");
    admin.call("ACL SETUSER alice +set", "+OK\r\n");
    alice.call("SET k 1", "+OK\r\n");
    // A user restricts itself in the middle of a batch.
    alice.send("SET k 2\r\nACL SETUSER alice -set\r\nSET k 3\r\nGET k\r\n");
    alice.expect(
        "+OK\r\n+OK\r\n-NOPERM User alice has no permissions to run the 'set' command\r\n$1\r\n2\r\n",
    );
    let list = admin.ask(&["CLIENT LIST"]);
    assert!(list.contains(" user=alice ") && list.contains(" user=default "), "{list}");
    let stats = admin.ask(&["INFO stats"]);
    for line in ["acl_access_denied_cmd:2", "acl_access_denied_key:0", "acl_access_denied_channel:0"] {
        assert!(stats.contains(&format!("{line}\r\n")), "{stats}");
    }
    // A client that connected while `default` needed a password is `default` when it needs none. Like a client that
    // connects only then, it stays in.
    admin.call("CONFIG SET requirepass secret", "+OK\r\n");
    let mut stranger = server.connect();
    stranger.call("PING", NOAUTH);
    admin.call("ACL SETUSER default nopass resetkeys ~k", "+OK\r\n");
    stranger.call("GET k", "$1\r\n2\r\n");
    stranger.call("GET other", DENIED);
    admin.call("GET other", DENIED);
    admin.call("ACL SETUSER default off", "+OK\r\n");
    stranger.call("GET k", "$1\r\n2\r\n");
    server.connect().call("PING", NOAUTH);
    admin.call("GET k", "$1\r\n2\r\n");
}

#[test]
fn protected_mode_depends_on_the_password_of_default() {
    let Some(address) = address_of_this_machine() else { return };
    let server = Server::start(&["--bind", "*", "--requirepass", "secret"]);
    let outside = SocketAddr::new(address, server.port);
    Client::connect(outside).call("PING", NOAUTH);
    let mut admin = client_of(&server, "default", "secret");
    admin.call("ACL SETUSER default nopass", "+OK\r\n");
    assert!(Client::connect(outside).line().starts_with("-DENIED "));
    admin.call("ACL SETUSER default resetpass >other", "+OK\r\n");
    Client::connect(outside).call("AUTH other", "+OK\r\n");
}

#[test]
fn logs_contain_no_passwords() {
    let server = Server::start(&["--slowlog-log-slower-than", "0"]);
    let mut admin = server.connect();
    admin.call("ACL SETUSER alice on >hunter2 ~* +@all", "+OK\r\n");
    admin.call("AUTH alice hunter3", WRONGPASS);
    admin.call("AUTH hunter2 alice", WRONGPASS);
    admin.call("AUTH alice hunter2", "+OK\r\n");
    admin.call("ACL SETUSER bob on >hunter4", "+OK\r\n");
    let log = admin.ask(&["SLOWLOG GET 100"]);
    assert!(log.contains("(redacted)") && !log.contains("hunter"), "{log}");
    admin.call("ACL DELUSER bob", ":1\r\n");
    admin.call("SHUTDOWN", "");
    let log = server.wait().0;
    let events: Vec<&str> = log.lines().filter(|line| !line.contains("event=connected")).collect();
    let has = |text: &str| events.iter().any(|line| line.contains(text));
    assert!(has("user=\"default\" what=\"ACL SETUSER alice\""), "{log}");
    assert!(has("event=failed-login ") && has("event=logged-in "), "{log}");
    assert!(has("user=\"alice\" what=\"ACL SETUSER bob\""), "{log}");
    assert!(has("user=\"alice\" what=\"ACL DELUSER bob\""), "{log}");
    assert!(!log.contains("hunter"), "{log}");
}

/// The page that lists users for the first start.
const PAGE: &str = include_str!("../../../../docs/users.md");

#[test]
fn a_worker_needs_no_more_than_the_page_grants() {
    let dir = TempDir::new();
    let users = PAGE.split("```text\n").nth(1).and_then(|rest| rest.split("```").next()).expect("a block");
    let server = start_with_file(&dir, users);
    let mut admin = client_of(&server, "admin", "long-random-secret");
    for (id, item) in [("1-1", "good"), ("1-2", "flaky"), ("1-3", "bad")] {
        admin.call(&format!("XADD orders {id} item {item}"), &format!("$3\r\n{id}\r\n"));
    }
    // A bad order always fails, a flaky one only once.
    let handler = "read -r order; case $order in *bad*) exit 1;; *flaky*) test -e seen || { touch seen; exit 1; };; esac";
    let mut command = millstream(&dir);
    command.args([
        "work",
        "--stream",
        "orders",
        "--group",
        "billing",
        "--exec",
        handler,
        "--max-attempts",
        "2",
    ]);
    command.args(["--backoff", "10ms..10ms", "--lease", "1s"]);
    command.env("MILLSTREAM_URL", format!("redis://orders-worker:another-secret@127.0.0.1:{}", server.port));
    let worker = command.spawn().unwrap();
    eventually("the bad order is a dead letter", || admin.ask(&["XLEN {orders}:dlq"]) == ":1\r\n");
    eventually("the others are done", || admin.ask(&["XPENDING orders billing"]).starts_with("*4\r\n:0\r\n"));
    eventually("there is a heartbeat", || admin.ask(&["HLEN {orders}:workers:billing"]) == ":1\r\n");
    // A drain: the worker ends and removes its heartbeat.
    let sent = std::process::Command::new("kill").args(["-TERM", &worker.id().to_string()]).status().unwrap();
    assert!(sent.success());
    let output = worker.wait_with_output().unwrap();
    let log = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && !log.contains("NOPERM"), "{log}");
    admin.call("HLEN {orders}:workers:billing", ":0\r\n");
    // The same for the tools that look.
    for tool in [&["metrics", "--once"][..], &["lag"]] {
        let url = format!("redis://exporter:third-secret@127.0.0.1:{}", server.port);
        let output = millstream(&dir).args(tool).env("MILLSTREAM_URL", url).output().unwrap();
        assert!(!String::from_utf8_lossy(&output.stderr).contains("NOPERM"), "{tool:?}: {output:?}");
    }
    let denied = admin.ask(&["ACL LOG"]);
    assert_eq!(denied, "*0\r\n");
}
