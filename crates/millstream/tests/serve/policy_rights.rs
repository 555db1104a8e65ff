//! Policies act with the rights of the users who own them.

use crate::process::{Client, Server, TempDir, eventually, millstream};

const USERS: &str = "\
user admin on >pw ~* +@all
user ann on >pw ~orders ~{orders}:* ~dead +@all -@admin
user mallory on >pw ~src ~mine ~{mine}:* +echo +xadd +xreadgroup +xnack +copy +rename +renamenx +move +select +xpolicy|get
";

fn start(dir: &TempDir) -> Server {
    let path = dir.path.join("users.acl");
    if !path.exists() {
        std::fs::write(path, USERS).unwrap();
    }
    Server::start_in(dir, &["--aclfile", "users.acl", "--enable-debug-command", "yes"])
}

fn client_of(server: &Server, user: &str) -> Client {
    let mut client = server.connect();
    client.call(&format!("AUTH {user} pw"), "+OK\r\n");
    client
}

/// Adds an entry and rejects it, so that it must become a dead letter.
fn reject(client: &mut Client, stream: &str, id: &str) {
    for command in [
        format!("XADD {stream} {id} secret payload"),
        format!("XREADGROUP GROUP g c STREAMS {stream} >"),
        format!("XNACK {stream} g FATAL IDS 1 {id}"),
    ] {
        let reply = client.ask(&[&command]);
        assert!(!reply.contains("NOPERM") && !reply.contains("ERR"), "{command}: {reply}");
    }
}

/// Waits until an entry of the group could not be dead-lettered, because this user may not.
fn expect_denied(client: &mut Client, stream: &str, owner: &str, dead_letters: &str) {
    let get = format!("XPOLICY GET {stream} GROUP g");
    let error = format!("{dead_letters}: user {owner}, who owns the policy, may not add entries to it");
    eventually("the attempt fails", || client.ask(&[&get]).contains(&error));
    let shown = client.ask(&[&get]);
    assert!(
        shown.contains(&format!("dlq-denied\r\n:1\r\n$5\r\nowner\r\n${}\r\n{owner}\r\n", owner.len())),
        "{shown}"
    );
}

#[test]
fn who_places_a_policy_owns_it() {
    // Commands with which mallory gets the policy of the admin to a stream to which mallory can write.
    for (place, database, stream) in [
        ("COPY src mine", 0, "mine"),
        ("COPY src mine DB 1", 1, "mine"),
        ("RENAME src mine", 0, "mine"),
        ("RENAMENX src mine", 0, "mine"),
        ("MOVE src 1", 1, "src"),
    ] {
        // The policy of the group, or the default of the stream.
        for group in ["GROUP g ", ""] {
            let dir = TempDir::new();
            let mut server = start(&dir);
            let (mut admin, mut mallory) = (client_of(&server, "admin"), client_of(&server, "mallory"));
            let set = |key: &str| format!("XPOLICY SET {key} {group}LEASE 60000 MAXDELIVER 5 DLQ secretdlq");
            admin.call("XGROUP CREATE src g 0 MKSTREAM", "+OK\r\n");
            admin.call(&set("src"), "+OK\r\n");
            mallory.ask(&[place]);
            mallory.ask(&[&format!("SELECT {database}")]);
            admin.ask(&[&format!("SELECT {database}")]);
            reject(&mut mallory, stream, "1-1");
            expect_denied(&mut mallory, stream, "mallory", "secretdlq");
            admin.call("EXISTS secretdlq", ":0\r\n");
            let line = server.line_with("event=policy-denied");
            assert!(
                line.contains(&format!(
                    "user=\"mallory\" what=\"{stream}: may not add dead letters to secretdlq\""
                )),
                "{line}"
            );
            // Who changes something else does not lend rights.
            admin.call(&format!("XPOLICY SET {stream} {group}LEASE 70000"), "+OK\r\n");
            expect_denied(&mut mallory, stream, "mallory", "secretdlq");
            admin.call(&set(stream), "+OK\r\n");
            eventually("the dead letter is added", || admin.ask(&["XLEN secretdlq"]) == ":1\r\n");
        }
    }
}

#[test]
fn a_policy_acts_only_while_its_owner_may() {
    let dir = TempDir::new();
    let mut server = start(&dir);
    let (mut admin, mut ann) = (client_of(&server, "admin"), client_of(&server, "ann"));
    ann.call("XGROUP CREATE orders g 0 MKSTREAM", "+OK\r\n");
    ann.call("XPOLICY SET orders GROUP g LEASE 60000 MAXDELIVER 5", "+OK\r\n");
    reject(&mut ann, "orders", "1-1");
    eventually("the dead letter is added", || admin.ask(&["XLEN {orders}:dlq"]) == ":1\r\n");
    // The right to the default dead-letter stream is gone, then it is back.
    admin.call("ACL SETUSER ann resetkeys ~orders", "+OK\r\n");
    reject(&mut ann, "orders", "1-2");
    expect_denied(&mut ann, "orders", "ann", "{orders}:dlq");
    admin.call("ACL SETUSER ann ~{orders}:*", "+OK\r\n");
    eventually("the dead letter is added", || admin.ask(&["XLEN {orders}:dlq"]) == ":2\r\n");
    // The user is deleted. Neither the log, nor DEBUG RELOAD, nor a snapshot forgets whose policy it is.
    admin.call("ACL DELUSER ann", ":1\r\n");
    admin.call("ACL SAVE", "+OK\r\n");
    reject(&mut admin, "orders", "1-3");
    expect_denied(&mut admin, "orders", "ann", "{orders}:dlq");
    admin.call("DEBUG RELOAD", "+OK\r\n");
    expect_denied(&mut admin, "orders", "ann", "{orders}:dlq");
    // From the log, then from a snapshot.
    for command in ["SAVE", "PING"] {
        let found = doctor(&dir, &server);
        assert!(
            found.contains("user ann, who owns the policy, may not add entries to {orders}:dlq"),
            "{found}"
        );
        drop(server);
        server = start(&dir);
        admin = client_of(&server, "admin");
        expect_denied(&mut admin, "orders", "ann", "{orders}:dlq");
        admin.ask(&[command]);
    }
    admin.call("XLEN {orders}:dlq", ":2\r\n");
    admin.call("XPENDING orders g", "*4\r\n:1\r\n$3\r\n1-3\r\n$3\r\n1-3\r\n*0\r\n");
}

#[test]
fn nobody_reads_a_stream_through_its_dead_letters() {
    let dir = TempDir::new();
    let server = start(&dir);
    let mut admin = client_of(&server, "admin");
    // Eve may write to orders, but not read it.
    admin.call("ACL SETUSER eve on >pw %W~orders ~{orders}:* ~mine +@all -@admin", "+OK\r\n");
    admin.call("XGROUP CREATE orders g 0 MKSTREAM", "+OK\r\n");
    let mut eve = client_of(&server, "eve");
    let denied = "-NOPERM No permissions to access a key\r\n";
    eve.call("XPOLICY SET orders LEASE 60000 MAXDELIVER 5 DLQ mine", denied);
    // Eve could read it when the policy was set.
    admin.call("ACL SETUSER eve ~orders", "+OK\r\n");
    eve.call("XPOLICY SET orders LEASE 60000 MAXDELIVER 5 DLQ mine", "+OK\r\n");
    admin.call("ACL SETUSER eve resetkeys ~mine", "+OK\r\n");
    reject(&mut admin, "orders", "1-1");
    expect_denied(&mut admin, "orders", "eve", "mine");
}

#[test]
fn doctor_lists_policies_without_an_owner_if_there_are_users() {
    let dir = TempDir::new();
    // An embedded store has no users.
    for arguments in [
        "add orders item=book",
        "group create orders g",
        "group policy orders g --lease 30s --max-deliveries 5",
    ] {
        let mut command = millstream(&dir);
        command.args(arguments.split(' ')).args(["--url", "embedded:data"]);
        assert!(command.status().unwrap().success(), "{arguments}");
    }
    let server = Server::start_in(&dir, &["--dir", "data"]);
    let mut admin = server.connect();
    admin.call("ACL SETUSER admin on >pw ~* +@all", "+OK\r\n");
    let found = doctor(&dir, &server);
    assert!(found.contains("dead-letters messages to {orders}:dlq with all rights"), "{found}");
    // What it advises makes the finding go away.
    let advice = "group policy orders g --dlq {orders}:dlq";
    assert!(
        found.contains(&format!("millstream {}", advice.replace("{orders}:dlq", "'{orders}:dlq'"))),
        "{found}"
    );
    let mut command = as_admin(&dir, &server);
    assert!(command.args(advice.split(' ')).status().unwrap().success());
    assert!(!doctor(&dir, &server).contains("all rights"));
}

fn as_admin(dir: &TempDir, server: &Server) -> std::process::Command {
    let mut command = millstream(dir);
    command.env("MILLSTREAM_URL", format!("redis://admin:pw@127.0.0.1:{}", server.port));
    command
}

/// Runs `millstream doctor` as the admin.
fn doctor(dir: &TempDir, server: &Server) -> String {
    let output = as_admin(dir, server).arg("doctor").output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}
