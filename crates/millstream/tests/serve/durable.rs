//! What a server remembers: after a stop, after a crash, after a snapshot; and what it says when it cannot.

use std::path::PathBuf;
use std::process::Output;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::process::{Client, Server, TempDir, eventually, millstream};

const POLICIES: [&str; 3] = ["always", "everysec", "no"];

/// Some of everything that must come back.
const WORK: &[&str] = &[
    "XADD orders 1-1 item book amount 2",
    "XADD orders 1-2 item pen amount 3",
    "XADD orders 2-1 item ink amount 1",
    "XADD orders 3-1 item cup amount 9",
    "XGROUP CREATE orders billing 0",
    "XGROUP CREATE orders audit 2-1 ENTRIESREAD 3",
    "XGROUP CREATECONSUMER orders audit silent",
    "XREADGROUP GROUP billing ann COUNT 3 STREAMS orders >",
    "XACK orders billing 1-1",
    "XCLAIM orders billing bob 0 1-2 RETRYCOUNT 7 TIME 1700000000000",
    "XDEL orders 2-1",
    "XADD emptied 5-5 a b",
    "XDEL emptied 5-5",
    "XGROUP CREATE made g $ MKSTREAM",
    "XADD cut 1-1 n 1",
    "XADD cut 1-2 n 2",
    "XADD cut MAXLEN 1 1-3 n 3",
    "XSETID cut 9-9 ENTRIESADDED 40 MAXDELETEDID 1-2",
    "SET greeting hello PX 100000000",
    "SET gone soon",
    "DEL gone",
    "HSET hash field value other 7",
    "HINCRBY hash other 5",
    "RPUSH list a b c",
    "LPOP list",
    "SADD set x y",
    "SREM set x",
    "MULTI",
    "INCRBY count 41",
    "INCR count",
    "XADD orders 4-1 item inside",
    "EXEC",
    "RENAME list row",
    "SELECT 3",
    "SET elsewhere here",
    "SELECT 0",
    "COPY hash twin",
    "EXPIREAT twin 99999999999",
];

/// Everything a client can see of it.
const QUESTIONS: &[&str] = &[
    "DBSIZE",
    "XRANGE orders - +",
    "XINFO STREAM orders FULL COUNT 0",
    "XINFO GROUPS orders",
    "XPENDING orders billing",
    "XINFO STREAM emptied FULL",
    "XINFO STREAM made FULL",
    "XINFO STREAM cut FULL",
    "GET greeting",
    "PEXPIRETIME greeting",
    "EXISTS gone list",
    "HGET hash field",
    "HGET hash other",
    "HLEN twin",
    "PEXPIRETIME twin",
    "PEXPIRETIME hash",
    "LRANGE row 0 -1",
    "SMEMBERS set",
    "GET count",
    "SELECT 3",
    "GET elsewhere",
    "SELECT 0",
];

fn work(server: &Server) -> String {
    let mut client = server.connect();
    let answers = client.ask(WORK);
    assert!(!answers.contains("-ERR"), "{answers}");
    client.ask(QUESTIONS)
}

fn state(server: &Server) -> String {
    server.connect().ask(QUESTIONS)
}

fn end(server: Server, signal: &str) {
    server.signal(signal);
    let (words, status) = server.wait();
    assert_eq!(status.success(), signal == "-TERM", "{words}");
}

fn files(dir: &TempDir) -> Vec<String> {
    let Ok(listed) = std::fs::read_dir(data_of(dir)) else { return Vec::new() };
    let mut names: Vec<String> =
        listed.map(|file| file.expect("readable").file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

fn data_of(dir: &TempDir) -> PathBuf {
    dir.path.join("millstream-data")
}

/// A field of INFO persistence.
#[track_caller]
fn told(client: &mut Client, field: &str) -> String {
    let info = client.ask(&["INFO persistence"]);
    let found = info.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    found.unwrap_or_else(|| panic!("no {field}: {info}")).to_owned()
}

fn number(client: &mut Client, field: &str) -> u64 {
    told(client, field).parse().expect("a number")
}

#[test]
fn a_restart_keeps_everything_however_it_ended_and_whatever_the_policy() {
    for policy in POLICIES {
        for signal in ["-TERM", "-KILL"] {
            let dir = TempDir::new();
            let flags = ["--appendfsync", policy];
            let server = Server::start_in(&dir, &flags);
            let before = work(&server);
            end(server, signal);
            let server = Server::start_in(&dir, &flags);
            assert_eq!(state(&server), before, "{policy} {signal}");
            assert!(server.greeting.contains("records replayed"), "{}", server.greeting);
            // And once more: what was read back is written back.
            server.connect().call("XADD orders 9-9 item last", "$3\r\n9-9\r\n");
            let before = state(&server);
            end(server, signal);
            assert_eq!(state(&Server::start_in(&dir, &flags)), before, "{policy} {signal}, again");
        }
    }
}

#[test]
fn a_snapshot_and_the_log_behind_it_are_read_back() {
    let dir = TempDir::new();
    let server = Server::start_in(&dir, &[]);
    work(&server);
    let mut client = server.connect();
    client.call("SAVE", "+OK\r\n");
    let position = number(&mut client, "snapshot_position");
    assert_eq!(position, number(&mut client, "log_durable_position"));
    assert_eq!(told(&mut client, "rdb_changes_since_last_save"), "0");
    assert_eq!(number(&mut client, "snapshot_keys"), 11);
    let name = format!("snapshot-{position:020}");
    assert!(files(&dir).contains(&name), "{:?}", files(&dir));
    client.call("XACK orders billing 1-2", ":1\r\n");
    client.call("RENAME row queue", "+OK\r\n");
    client.call("LPUSH row new", ":1\r\n");
    let before = state(&server);
    end(server, "-KILL");
    let server = Server::start_in(&dir, &[]);
    assert_eq!(state(&server), before);
    assert!(server.greeting.contains("11 keys and 3 records read back"), "{}", server.greeting);
    assert_eq!(number(&mut server.connect(), "snapshot_position"), position);
}

#[test]
fn snapshots_are_taken_by_every_command_that_is_for_it() {
    let dir = TempDir::new();
    let server = Server::start_in(&dir, &[]);
    let mut client = server.connect();
    let started = client.ask(&["LASTSAVE"]);
    for (command, answer) in [
        ("BGSAVE", "+Background saving started\r\n"),
        ("BGSAVE SCHEDULE", "+Background saving started\r\n"),
        ("BGREWRITEAOF", "+Background append only file rewriting started\r\n"),
        ("SAVE", "+OK\r\n"),
        ("DEBUG RELOAD", "+OK\r\n"),
    ] {
        let before = number(&mut client, "rdb_saves");
        client.ask(&["INCR n"]);
        client.call(command, answer);
        eventually(command, || number(&mut client, "rdb_saves") == before + 1);
        eventually(command, || {
            number(&mut client, "snapshot_position") == number(&mut client, "log_appended_position")
        });
        eventually(command, || {
            told(&mut client, "rdb_bgsave_in_progress") == "0"
                && told(&mut client, "aof_rewrite_in_progress") == "0"
        });
    }
    let snapshots = files(&dir).iter().filter(|name| name.starts_with("snapshot-")).count();
    assert_eq!(snapshots, 1, "{:?}", files(&dir));
    assert_eq!(told(&mut client, "rdb_last_bgsave_status"), "ok");
    assert_eq!(told(&mut client, "snapshot_error"), "");
    assert!(client.ask(&["LASTSAVE"]) >= started);
    client.call("BGSAVE NOW", "-ERR syntax error\r\n");
    client.call("MULTI", "+OK\r\n");
    client.call("SAVE", "-ERR Command not allowed inside a transaction\r\n");
    client.call("DISCARD", "+OK\r\n");
}

#[test]
fn snapshots_while_clients_write_lose_nothing() {
    let dir = TempDir::new();
    let server = Server::start_in(&dir, &["--appendfsync", "no"]);
    let (done, acknowledged) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut client = server.connect();
            client.ask(&["XGROUP CREATE s g 0 MKSTREAM"]);
            for n in 1.. {
                if done.load(Ordering::Relaxed) {
                    return;
                }
                client.call(
                    &format!("XADD s {n}-0 n {n}"),
                    &format!("${}\r\n{n}-0\r\n", n.to_string().len() + 2),
                );
                client.ask(&[
                    "XREADGROUP GROUP g c COUNT 1 STREAMS s >",
                    &format!("SET key:{} {n}", n % 50),
                    "RENAME key:7 key:8",
                ]);
                acknowledged.store(n, Ordering::Relaxed);
            }
        });
        let mut client = server.connect();
        for round in 1..=5 {
            eventually("writes go on", || acknowledged.load(Ordering::Relaxed) >= round * 50);
            client.call("SAVE", "+OK\r\n");
        }
        done.store(true, Ordering::Relaxed);
    });
    let questions = [
        "XLEN s",
        "XRANGE s - +",
        "XPENDING s g - + 100000 c",
        "MGET key:1 key:2 key:7 key:8 key:49",
        "DBSIZE",
    ];
    let ask = |server: &Server| {
        server.connect().ask(&questions[..2])
            + &without_idle(&server.connect().ask(&questions[2..3]))
            + &server.connect().ask(&questions[3..])
    };
    let before = ask(&server);
    assert!(number(&mut server.connect(), "snapshot_position") > 0);
    end(server, "-KILL");
    let server = Server::start_in(&dir, &[]);
    assert!(server.greeting.contains("read back"), "{}", server.greeting);
    assert_eq!(ask(&server), before);
}

/// Idle times are the only integers of XPENDING's rows that time changes; each stands before the count.
fn without_idle(pending: &str) -> String {
    let lines: Vec<&str> = pending.lines().collect();
    let is_idle =
        |at: usize| lines[at].starts_with(':') && lines.get(at + 1).is_some_and(|next| next.starts_with(':'));
    lines.iter().enumerate().filter(|(at, _)| !is_idle(*at)).map(|(_, line)| format!("{line}\n")).collect()
}

#[test]
fn in_memory_nothing_is_kept_and_no_file_is_made() {
    let dir = TempDir::new();
    let flags = ["--appendonly", "no"];
    let server = Server::start_in(&dir, &flags);
    assert!(server.greeting.contains("in memory, gone when the server stops"), "{}", server.greeting);
    let before = work(&server);
    let mut client = server.connect();
    let why = "-ERR nothing can be saved: this server keeps its data in memory only (appendonly no)\r\n";
    for command in ["SAVE", "BGSAVE", "BGSAVE SCHEDULE", "BGREWRITEAOF", "DEBUG LOADAOF", "SHUTDOWN SAVE"] {
        client.call(command, why);
    }
    client.call(
        "WAITAOF 1 0 0",
        "-ERR WAITAOF cannot be used when numlocal is set but appendonly is disabled.\r\n",
    );
    client.call("WAITAOF 0 0 0", "*2\r\n:0\r\n:0\r\n");
    client.call("DEBUG RELOAD", "+OK\r\n");
    assert_eq!(state(&server), before);
    assert_eq!(told(&mut client, "aof_enabled"), "0");
    end(server, "-TERM");
    assert_eq!(std::fs::read_dir(&dir.path).expect("readable").count(), 0);
    Server::start_in(&dir, &flags).connect().call("DBSIZE", ":0\r\n");
}

#[test]
fn what_is_in_memory_can_be_read_back_while_clients_wait() {
    let dir = TempDir::new();
    let server = Server::start_in(&dir, &[]);
    let before = work(&server);
    let mut waiting = server.connect();
    waiting.send("XREAD BLOCK 0 STREAMS orders $\r\n");
    let mut client = server.connect();
    eventually("it waits", || client.ask(&["INFO clients"]).contains("blocked_clients:1"));
    for command in ["DEBUG LOADAOF", "DEBUG RELOAD", "DEBUG RELOAD NOSAVE"] {
        client.call(command, "+OK\r\n");
        assert_eq!(state(&server), before, "{command}");
    }
    client.call("MULTI", "+OK\r\n");
    client.call("DEBUG RELOAD", "+QUEUED\r\n");
    client.call("EXEC", "*1\r\n-ERR Command not allowed inside a transaction\r\n");
    client.call("XADD orders 8-8 a b", "$3\r\n8-8\r\n");
    waiting.expect("*1\r\n*2\r\n$6\r\norders\r\n*1\r\n*2\r\n$3\r\n8-8\r\n*2\r\n$1\r\na\r\n$1\r\nb\r\n");
    let before = state(&server);
    end(server, "-KILL");
    assert_eq!(state(&Server::start_in(&dir, &[])), before);
}

/// A poll in vain is in memory and not in the log, so it shows where the state came from.
#[test]
fn what_is_read_back_is_what_the_folder_holds() {
    let server = Server::start(&[]);
    let mut client = server.connect();
    let poll = "XREADGROUP GROUP g c STREAMS s >";
    client.ask(&["XGROUP CREATE s g $ MKSTREAM", poll]);
    let logged = client.ask(&["XINFO STREAM s FULL"]);
    let mut polled = logged.clone();
    eventually("the consumer is seen later", || {
        polled = client.ask(&[poll, "XINFO STREAM s FULL"]).replacen("*-1\r\n", "", 1);
        polled != logged
    });
    client.call("DEBUG RELOAD", "+OK\r\n");
    assert_eq!(client.ask(&["XINFO STREAM s FULL"]), polled, "a snapshot has it");
    eventually("the consumer is seen later still", || {
        client.ask(&[poll, "XINFO STREAM s FULL"]).replacen("*-1\r\n", "", 1) != polled
    });
    client.call("DEBUG LOADAOF", "+OK\r\n");
    assert_eq!(client.ask(&["XINFO STREAM s FULL"]), polled, "the log has not");
}

/// A command that blocks behind a write in the same packet counts as blocked before that write is synced.
#[test]
fn who_blocks_behind_a_write_can_be_unblocked_at_once() {
    let dir = TempDir::new();
    // One thread, so that nobody looks between the beginning of the command and its block.
    let server = Server::start_in(&dir, &["--appendfsync", "always", "--io-threads", "1"]);
    let mut admin = server.connect();
    admin.call("XGROUP CREATE s g $ MKSTREAM", "+OK\r\n");
    for _ in 0..30 {
        let mut client = server.connect();
        client.send("CLIENT ID\r\n");
        let id = client.line()[1..].to_owned();
        client.send("SET k v\r\nXREADGROUP GROUP g c BLOCK 0 STREAMS s >\r\n");
        let listed = format!("CLIENT LIST ID {id}");
        while !admin.ask(&[&listed]).contains("cmd=xreadgroup") {}
        admin.call(&format!("CLIENT UNBLOCK {id}"), ":1\r\n");
        // In this order, and only once the write is safe.
        client.expect("+OK\r\n*-1\r\n");
    }
}

#[test]
fn reading_ones_own_pending_entries_again_is_no_change_since_the_last_save() {
    let dir = TempDir::new();
    let server = Server::start_in(&dir, &[]);
    let mut client = server.connect();
    client.ask(&["XADD s 1-1 f v", "XGROUP CREATE s g 0", "XREADGROUP GROUP g c STREAMS s >", "SAVE"]);
    let changes = |client: &mut Client| number(client, "rdb_changes_since_last_save");
    assert_eq!(changes(&mut client), 0);
    let history = "XREADGROUP GROUP g c STREAMS s 0";
    client.ask(&[history, history]);
    assert_eq!(changes(&mut client), 0);
    client.ask(&["XREADGROUP GROUP g another STREAMS s 0"]);
    assert_eq!(changes(&mut client), 1);
    client.ask(&[history, "SAVE", history, "SET k v"]);
    assert_eq!(changes(&mut client), 1);
}

#[test]
fn waitaof_makes_everything_durable_whatever_the_policy() {
    for policy in POLICIES {
        let server = Server::start(&["--appendfsync", policy]);
        let mut client = server.connect();
        client.call("SET a 1", "+OK\r\n");
        client.call("WAITAOF 1 0 0", "*2\r\n:1\r\n:0\r\n");
        let positions = ["log_appended_position", "log_written_position", "log_durable_position"]
            .map(|field| number(&mut client, field));
        assert_eq!(positions, [1; 3], "{policy}");
        assert_eq!(told(&mut client, "log_policy"), policy);
        assert!(number(&mut client, "log_last_sync_time") > 1_700_000_000, "{policy}");
        client.call("WAITAOF 2 0 0", "-ERR value is out of range, value must between 0 and 1\r\n");
    }
    let server = Server::start(&["--appendfsync", "no"]);
    let mut client = server.connect();
    assert_eq!(
        client.ask(&["MULTI", "SET a 1", "WAITAOF 1 0 0", "EXEC"]),
        "+OK\r\n+QUEUED\r\n+QUEUED\r\n*2\r\n+OK\r\n*2\r\n:1\r\n:0\r\n"
    );
}

#[test]
fn the_policy_changes_while_it_runs() {
    let server = Server::start(&["--appendfsync", "no"]);
    let mut client = server.connect();
    client.call("SET a 1", "+OK\r\n");
    assert_eq!(number(&mut client, "log_durable_position"), 0);
    client.call("CONFIG SET appendfsync always", "+OK\r\n");
    client.call("SET a 2", "+OK\r\n");
    assert_eq!(number(&mut client, "log_durable_position"), 2);
    assert_eq!(told(&mut client, "log_policy"), "always");
    client.call("CONFIG SET appendfsync everysec", "+OK\r\n");
    client.call("SET a 3", "+OK\r\n");
    eventually("it is synced within a second or so", || number(&mut client, "log_durable_position") == 3);
}

#[test]
fn shutdown_saves_if_asked() {
    for (command, found) in [
        ("SHUTDOWN SAVE", "11 keys and 0 records read back"),
        ("SHUTDOWN NOSAVE", "records replayed"),
        ("SHUTDOWN", "records replayed"),
    ] {
        let dir = TempDir::new();
        let server = Server::start_in(&dir, &[]);
        let before = work(&server);
        server.connect().send(format!("{command}\r\n"));
        let (words, status) = server.wait();
        assert!(status.success(), "{command}: {words}");
        let server = Server::start_in(&dir, &[]);
        assert_eq!(state(&server), before, "{command}");
        assert!(server.greeting.contains(found), "{command}: {}", server.greeting);
    }
}

fn refused(dir: &TempDir, flags: &[&str]) -> String {
    let run = millstream(dir).args(["serve", "--port", "0"]).args(flags).output();
    let Output { status, stderr, .. } = run.expect("the binary is built");
    let words = String::from_utf8_lossy(&stderr).into_owned();
    assert_eq!(status.code(), Some(1), "{words}");
    words
}

#[test]
fn a_folder_belongs_to_one_process() {
    let dir = TempDir::new();
    let server = Server::start_in(&dir, &[]);
    let before = work(&server);
    let words = refused(&dir, &[]);
    assert!(
        words.contains("millstream-data") && words.contains("in use") && words.contains("--dir"),
        "{words}"
    );
    assert_eq!(state(&server), before);
    end(server, "-KILL");
    assert_eq!(state(&Server::start_in(&dir, &[])), before);
}

#[test]
fn too_few_databases_are_no_damage() {
    let dir = TempDir::new();
    let before = work(&Server::start_in(&dir, &[]));
    for (command, reply) in [("PING", "+PONG"), ("SAVE", "+OK")] {
        let server = Server::start_in(&dir, &[]);
        server.connect().call(command, reply);
        end(server, "-TERM");
        let words = refused(&dir, &["--databases", "2"]);
        assert!(words.contains("database 3") && words.contains("set it to 4 or more"), "{words}");
        assert!(!words.contains("salvage") && !words.contains("millstream check"), "{words}");
        assert_eq!(state(&Server::start_in(&dir, &["--databases", "4"])), before);
    }
}

#[test]
fn a_folder_that_cannot_be_written_is_named() {
    use std::os::unix::fs::PermissionsExt;
    let dir = TempDir::new();
    let words = refused(&dir, &["--dir", "/sys"]);
    assert!(words.contains("/sys") && words.contains("--dir"), "{words}");

    let file = dir.write("file", "");
    let words = refused(&dir, &["--dir", &file]);
    assert!(words.contains(&file) && words.contains("--dir"), "{words}");
    assert!(words.contains("there is a file of this name"), "{words}");
    assert!(!words.contains("millstream check"), "a file is not to be looked into: {words}");

    let locked = dir.path.join("locked");
    std::fs::create_dir(&locked).expect("a folder");
    std::fs::set_permissions(&locked, std::fs::Permissions::from_mode(0o555)).expect("ours");
    // Root may write anywhere.
    if std::fs::write(locked.join("try"), "").is_err() {
        let words = refused(&dir, &["--dir", locked.to_str().expect("text")]);
        assert!(words.contains("locked") && words.contains("ermission"), "{words}");
    }
}

#[test]
fn a_torn_end_is_cut_and_told() {
    let dir = TempDir::new();
    let server = Server::start_in(&dir, &["--appendfsync", "no"]);
    let before = work(&server);
    end(server, "-KILL");
    let log = files(&dir).into_iter().find(|name| name.starts_with("log-")).expect("a log");
    let path = data_of(&dir).join(log);
    let mut bytes = std::fs::read(&path).expect("readable");
    bytes.extend_from_slice(b"half a record");
    std::fs::write(&path, bytes).expect("writable");
    let server = Server::start_in(&dir, &[]);
    assert!(
        server.greeting.contains("13 bytes of a write that a crash cut short were removed"),
        "{}",
        server.greeting
    );
    assert_eq!(state(&server), before);
}
