//! Durability of a server: data survives stops, crashes and snapshots. Also: messages about folders that cannot be
//! used.

use std::path::PathBuf;
use std::process::Output;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::process::{Client, Server, TempDir, eventually, millstream};

const POLICIES: [&str; 3] = ["always", "everysec", "no"];

/// Flags of a server that runs DEBUG.
const WITH_DEBUG: &[&str] = &["--enable-debug-command", "local"];

/// Commands that create some data of every type.
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

/// Commands that return everything a client can see of that data.
const QUERIES: &[&str] = &[
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
    client.ask(QUERIES)
}

fn state(server: &Server) -> String {
    server.connect().ask(QUERIES)
}

fn end(server: Server, signal: &str) {
    // A server that replies has installed its signal handlers.
    server.connect().call("PING", "+PONG\r\n");
    server.signal(signal);
    let (stderr, status) = server.wait();
    assert_eq!(status.success(), signal == "-TERM", "{stderr}");
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

/// Returns a field of INFO persistence.
#[track_caller]
fn persistence_field(client: &mut Client, field: &str) -> String {
    let info = client.ask(&["INFO persistence"]);
    let found = info.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    found.unwrap_or_else(|| panic!("no {field}: {info}")).to_owned()
}

fn number(client: &mut Client, field: &str) -> u64 {
    persistence_field(client, field).parse().expect("a number")
}

#[test]
fn restarts_keep_all_data_under_every_sync_policy() {
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
            // Restart again: the recovered server must log new writes too.
            server.connect().call("XADD orders 9-9 item last", "$3\r\n9-9\r\n");
            let before = state(&server);
            end(server, signal);
            assert_eq!(state(&Server::start_in(&dir, &flags)), before, "{policy} {signal}, again");
        }
    }
}

#[test]
fn a_restart_loads_the_snapshot_and_the_later_log() {
    let dir = TempDir::new();
    let server = Server::start_in(&dir, &[]);
    work(&server);
    let mut client = server.connect();
    client.call("SAVE", "+OK\r\n");
    let position = number(&mut client, "snapshot_position");
    assert_eq!(position, number(&mut client, "log_durable_position"));
    assert_eq!(persistence_field(&mut client, "rdb_changes_since_last_save"), "0");
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
    assert!(server.greeting.contains("11 keys and 3 records loaded"), "{}", server.greeting);
    assert_eq!(number(&mut server.connect(), "snapshot_position"), position);
}

#[test]
fn every_save_command_takes_a_snapshot() {
    let dir = TempDir::new();
    let server = Server::start_in(&dir, WITH_DEBUG);
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
            persistence_field(&mut client, "rdb_bgsave_in_progress") == "0"
                && persistence_field(&mut client, "aof_rewrite_in_progress") == "0"
        });
    }
    let snapshots = files(&dir).iter().filter(|name| name.starts_with("snapshot-")).count();
    assert_eq!(snapshots, 1, "{:?}", files(&dir));
    assert_eq!(persistence_field(&mut client, "rdb_last_bgsave_status"), "ok");
    assert_eq!(persistence_field(&mut client, "snapshot_error"), "");
    assert!(client.ask(&["LASTSAVE"]) >= started);
    client.call("BGSAVE NOW", "-ERR syntax error\r\n");
    client.call("MULTI", "+OK\r\n");
    client.call("SAVE", "-ERR Command not allowed inside a transaction\r\n");
    client.call("DISCARD", "+OK\r\n");
}

#[test]
fn snapshots_during_writes_lose_no_data() {
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
            eventually("the client writes more entries", || {
                acknowledged.load(Ordering::Relaxed) >= round * 50
            });
            client.call("SAVE", "+OK\r\n");
        }
        done.store(true, Ordering::Relaxed);
    });
    let queries = [
        "XLEN s",
        "XRANGE s - +",
        "XPENDING s g - + 100000 c",
        "MGET key:1 key:2 key:7 key:8 key:49",
        "DBSIZE",
    ];
    let ask = |server: &Server| {
        server.connect().ask(&queries[..2])
            + &without_idle(&server.connect().ask(&queries[2..3]))
            + &server.connect().ask(&queries[3..])
    };
    let before = ask(&server);
    assert!(number(&mut server.connect(), "snapshot_position") > 0);
    end(server, "-KILL");
    let server = Server::start_in(&dir, &[]);
    assert!(server.greeting.contains("loaded"), "{}", server.greeting);
    assert_eq!(ask(&server), before);
}

/// Removes idle times from rows of XPENDING. An idle time is an integer before the delivery count, and changes with
/// time.
fn without_idle(pending: &str) -> String {
    let lines: Vec<&str> = pending.lines().collect();
    let is_idle =
        |at: usize| lines[at].starts_with(':') && lines.get(at + 1).is_some_and(|next| next.starts_with(':'));
    lines.iter().enumerate().filter(|(at, _)| !is_idle(*at)).map(|(_, line)| format!("{line}\n")).collect()
}

#[test]
fn a_server_without_appendonly_keeps_no_data_and_creates_no_files() {
    let dir = TempDir::new();
    let flags = ["--appendonly", "no", "--enable-debug-command", "local"];
    let server = Server::start_in(&dir, &flags);
    assert!(server.greeting.contains("in memory only, lost when the server stops"), "{}", server.greeting);
    let before = work(&server);
    let mut client = server.connect();
    let why = "-ERR cannot save: this server keeps its data in memory only (appendonly no)\r\n";
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
    assert_eq!(persistence_field(&mut client, "aof_enabled"), "0");
    end(server, "-TERM");
    assert_eq!(std::fs::read_dir(&dir.path).expect("readable").count(), 0);
    Server::start_in(&dir, &flags).connect().call("DBSIZE", ":0\r\n");
}

#[test]
fn debug_reload_keeps_data_and_blocked_clients() {
    let dir = TempDir::new();
    let server = Server::start_in(&dir, WITH_DEBUG);
    let before = work(&server);
    let mut blocked = server.connect();
    blocked.send("XREAD BLOCK 0 STREAMS orders $\r\n");
    let mut client = server.connect();
    eventually("the client is blocked", || client.ask(&["INFO clients"]).contains("blocked_clients:1"));
    for command in ["DEBUG LOADAOF", "DEBUG RELOAD", "DEBUG RELOAD NOSAVE"] {
        client.call(command, "+OK\r\n");
        assert_eq!(state(&server), before, "{command}");
    }
    client.call("MULTI", "+OK\r\n");
    client.call("DEBUG RELOAD", "+QUEUED\r\n");
    client.call("EXEC", "*1\r\n-ERR Command not allowed inside a transaction\r\n");
    client.call("XADD orders 8-8 a b", "$3\r\n8-8\r\n");
    blocked.expect("*1\r\n*2\r\n$6\r\norders\r\n*1\r\n*2\r\n$3\r\n8-8\r\n*2\r\n$1\r\na\r\n$1\r\nb\r\n");
    let before = state(&server);
    end(server, "-KILL");
    assert_eq!(state(&Server::start_in(&dir, &[])), before);
}

/// The time of an empty read is kept in memory and in snapshots, but not in the log. So this time shows whether the
/// state comes from memory or from the folder.
#[test]
fn debug_reload_loads_the_state_from_the_folder() {
    let server = Server::start(WITH_DEBUG);
    let mut client = server.connect();
    let poll = "XREADGROUP GROUP g c STREAMS s >";
    client.ask(&["XGROUP CREATE s g $ MKSTREAM", poll]);
    let logged = client.ask(&["XINFO STREAM s FULL"]);
    let mut polled = logged.clone();
    eventually("the seen-time changes", || {
        polled = client.ask(&[poll, "XINFO STREAM s FULL"]).replacen("*-1\r\n", "", 1);
        polled != logged
    });
    client.call("DEBUG RELOAD", "+OK\r\n");
    assert_eq!(client.ask(&["XINFO STREAM s FULL"]), polled, "the snapshot lacks the time of the empty read");
    eventually("the seen-time changes again", || {
        client.ask(&[poll, "XINFO STREAM s FULL"]).replacen("*-1\r\n", "", 1) != polled
    });
    client.call("DEBUG LOADAOF", "+OK\r\n");
    assert_eq!(client.ask(&["XINFO STREAM s FULL"]), polled, "the log contains the time of the empty read");
}

/// A command that blocks after a write in the same packet counts as blocked before that write is synced.
#[test]
fn a_client_blocked_after_an_unsynced_write_can_be_unblocked() {
    let dir = TempDir::new();
    // With one thread, the admin client cannot run between the start of the command and its block.
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
        // The replies arrive in order, and only after the write is durable.
        client.expect("+OK\r\n*-1\r\n");
    }
}

#[test]
fn rereading_own_pending_entries_does_not_count_as_a_change() {
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
fn waitaof_makes_writes_durable_under_every_sync_policy() {
    for policy in POLICIES {
        let server = Server::start(&["--appendfsync", policy]);
        let mut client = server.connect();
        client.call("SET a 1", "+OK\r\n");
        client.call("WAITAOF 1 0 0", "*2\r\n:1\r\n:0\r\n");
        let positions = ["log_appended_position", "log_written_position", "log_durable_position"]
            .map(|field| number(&mut client, field));
        assert_eq!(positions, [1; 3], "{policy}");
        assert_eq!(persistence_field(&mut client, "log_policy"), policy);
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
fn config_set_changes_the_sync_policy_at_runtime() {
    let server = Server::start(&["--appendfsync", "no"]);
    let mut client = server.connect();
    client.call("SET a 1", "+OK\r\n");
    assert_eq!(number(&mut client, "log_durable_position"), 0);
    client.call("CONFIG SET appendfsync always", "+OK\r\n");
    client.call("SET a 2", "+OK\r\n");
    assert_eq!(number(&mut client, "log_durable_position"), 2);
    assert_eq!(persistence_field(&mut client, "log_policy"), "always");
    client.call("CONFIG SET appendfsync everysec", "+OK\r\n");
    client.call("SET a 3", "+OK\r\n");
    eventually("the write is synced by everysec", || number(&mut client, "log_durable_position") == 3);
}

#[test]
fn shutdown_save_takes_a_snapshot() {
    for (command, found) in [
        ("SHUTDOWN SAVE", "11 keys and 0 records loaded"),
        ("SHUTDOWN NOSAVE", "records replayed"),
        ("SHUTDOWN", "records replayed"),
    ] {
        let dir = TempDir::new();
        let server = Server::start_in(&dir, &[]);
        let before = work(&server);
        server.connect().send(format!("{command}\r\n"));
        let (stderr, status) = server.wait();
        assert!(status.success(), "{command}: {stderr}");
        let server = Server::start_in(&dir, &[]);
        assert_eq!(state(&server), before, "{command}");
        assert!(server.greeting.contains(found), "{command}: {}", server.greeting);
    }
}

/// Starts a server that must refuse to start, and returns its standard error.
fn refused(dir: &TempDir, flags: &[&str]) -> String {
    let run = millstream(dir).args(["serve", "--port", "0"]).args(flags).output();
    let Output { status, stderr, .. } = run.expect("the binary is built");
    let stderr = String::from_utf8_lossy(&stderr).into_owned();
    assert_eq!(status.code(), Some(1), "{stderr}");
    stderr
}

#[test]
fn a_second_server_cannot_open_the_folder() {
    let dir = TempDir::new();
    let server = Server::start_in(&dir, &[]);
    let before = work(&server);
    let stderr = refused(&dir, &[]);
    assert!(
        stderr.contains("millstream-data") && stderr.contains("in use") && stderr.contains("--dir"),
        "{stderr}"
    );
    assert_eq!(state(&server), before);
    end(server, "-KILL");
    assert_eq!(state(&Server::start_in(&dir, &[])), before);
}

#[test]
fn too_few_databases_are_reported_as_a_setting_not_as_damage() {
    let dir = TempDir::new();
    let before = work(&Server::start_in(&dir, &[]));
    for (command, reply) in [("PING", "+PONG"), ("SAVE", "+OK")] {
        let server = Server::start_in(&dir, &[]);
        server.connect().call(command, reply);
        end(server, "-TERM");
        let stderr = refused(&dir, &["--databases", "2"]);
        assert!(stderr.contains("database 3") && stderr.contains("set it to 4 or more"), "{stderr}");
        assert!(!stderr.contains("salvage") && !stderr.contains("millstream check"), "{stderr}");
        assert_eq!(state(&Server::start_in(&dir, &["--databases", "4"])), before);
    }
}

#[test]
fn a_folder_that_cannot_be_written_is_reported() {
    use std::os::unix::fs::PermissionsExt;
    let dir = TempDir::new();
    let stderr = refused(&dir, &["--dir", "/sys"]);
    assert!(stderr.contains("/sys") && stderr.contains("--dir"), "{stderr}");

    let file = dir.write("file", "");
    let stderr = refused(&dir, &["--dir", &file]);
    assert!(stderr.contains(&file) && stderr.contains("--dir"), "{stderr}");
    assert!(stderr.contains("a file with this name exists"), "{stderr}");
    assert!(!stderr.contains("millstream check"), "`millstream check` was suggested for a file: {stderr}");

    let locked = dir.path.join("locked");
    std::fs::create_dir(&locked).expect("a folder");
    std::fs::set_permissions(&locked, std::fs::Permissions::from_mode(0o555)).expect("set the permissions");
    // Skipped for root, who can write anywhere.
    if std::fs::write(locked.join("try"), "").is_err() {
        let stderr = refused(&dir, &["--dir", locked.to_str().expect("text")]);
        assert!(stderr.contains("locked") && stderr.contains("ermission"), "{stderr}");
    }
}

#[test]
fn a_folder_with_other_files_and_no_store_is_refused() {
    let dir = TempDir::new();
    let data = data_of(&dir);
    std::fs::create_dir(&data).expect("a folder");
    std::fs::write(data.join("thesis.txt"), "mine").expect("writable");
    let stderr = refused(&dir, &[]);
    assert!(stderr.contains("it contains no store, but other files, for example \"thesis.txt\""), "{stderr}");
    assert!(stderr.contains("empty or does not exist yet with --dir"), "{stderr}");
    assert_eq!(files(&dir), ["thesis.txt"], "a refused start wrote files");
    // Without a log the server writes nothing, so it needs no folder of its own.
    end(Server::start_in(&dir, &["--appendonly", "no"]), "-TERM");

    // A mount point has this folder, and the settings name files that can be here.
    std::fs::remove_file(data.join("thesis.txt")).expect("removable");
    std::fs::create_dir(data.join("lost+found")).expect("a folder");
    let users = data.join("users.acl");
    std::fs::write(&users, "user alice on nopass ~* +@all\n").expect("writable");
    let socket = data.join("socket");
    let flags = ["--aclfile", users.to_str().expect("text"), "--unixsocket", socket.to_str().expect("text")];
    let before = work(&Server::start_in(&dir, &flags));
    // Files beside an existing store do not matter.
    std::fs::write(data.join("thesis.txt"), "mine").expect("writable");
    assert_eq!(state(&Server::start_in(&dir, &[])), before);
}

#[test]
fn a_torn_tail_is_removed_and_reported() {
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
    assert!(server.greeting.contains("removed 13 bytes of an unfinished write"), "{}", server.greeting);
    assert_eq!(state(&server), before);
}

/// The files are removed while the server runs. Memory then has the only copy, so the server goes on and says so.
#[test]
fn writes_are_refused_when_the_data_folder_is_removed() {
    for only_files in [true, false] {
        let dir = TempDir::new();
        let server = Server::start_in(&dir, &[]);
        let before = work(&server);
        let mut client = server.connect();
        let data = data_of(&dir);
        match only_files {
            true => {
                files(&dir).iter().for_each(|name| std::fs::remove_file(data.join(name)).expect("removable"))
            }
            false => std::fs::remove_dir_all(&data).expect("removable"),
        }
        let removed_at = std::time::Instant::now();
        while !client.ask(&["SET probe 1"]).starts_with("-MISCONF") {
            assert!(
                removed_at.elapsed().as_secs() < 60,
                "the server did not notice that its folder was removed"
            );
        }
        let refused = client.ask(&["XADD orders * a b"]);
        assert!(refused.contains("A restart would not find the data, so changes are refused"), "{refused}");
        assert_eq!(persistence_field(&mut client, "aof_last_write_status"), "err");
        assert!(persistence_field(&mut client, "log_error").contains("was "), "no reason in INFO");
        assert!(client.ask(&["XRANGE orders - +"]).contains("book"), "reads do not work");
        if only_files {
            client.call("SAVE", "+OK\r\n");
            client.call("DEL probe", ":1\r\n");
            assert_eq!(state(&server), before);
            end(server, "-KILL");
            assert_eq!(state(&Server::start_in(&dir, &[])), before, "SAVE did not write everything again");
        } else {
            assert!(client.ask(&["SAVE"]).contains("was moved or removed"));
        }
    }
}
