//! The dashboard of a server: who may start it, who may log in, what each user sees and does, and how it ends.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use serde_json::{Value, json};

use crate::process::{Client, Server, TIMEOUT, TempDir, eventually, millstream};

/// A browser without pages: it sends requests of the API, and keeps the cookie of its session.
struct Visitor {
    address: SocketAddr,
    cookie: String,
}

impl Visitor {
    fn of(server: &Server) -> Visitor {
        let url = server.greeting.split("http://").nth(1).expect("the banner shows the dashboard");
        let address = url.split('/').next().unwrap().parse().unwrap();
        Visitor { address, cookie: String::new() }
    }

    /// Sends a request. Returns the status and the body.
    fn send(&mut self, method: &str, path: &str, body: Option<&Value>) -> (u16, Value) {
        let mut stream = TcpStream::connect(self.address).expect("the dashboard listens");
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        let body = body.map(Value::to_string).unwrap_or_default();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nCookie: {}\r\nX-Millstream: 1\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
            self.address,
            self.cookie,
            body.len()
        );
        stream.write_all(head.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer: {answer}"));
        for line in head.lines().filter_map(|line| line.strip_prefix("set-cookie: ")) {
            self.cookie = line.split(';').next().unwrap().to_owned();
        }
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        (status, serde_json::from_str(body).unwrap_or_else(|_| body.into()))
    }

    fn get(&mut self, path: &str) -> (u16, Value) {
        self.send("GET", &format!("/api/v1/{path}"), None)
    }

    fn post(&mut self, path: &str, body: &Value) -> (u16, Value) {
        self.send("POST", &format!("/api/v1/{path}"), Some(body))
    }

    fn log_in(&mut self, user: &str, password: &str) -> u16 {
        self.post("session", &json!({ "user": user, "password": password })).0
    }

    fn is_logged_in(&mut self) -> bool {
        self.get("status").1["logged_in"] == true
    }
}

/// Starts a server with a dashboard, and with these users.
fn start_with_users(dir: &TempDir, users: &str) -> Server {
    fs::write(dir.path.join("users.acl"), users).unwrap();
    Server::start_in(dir, &["--aclfile", "users.acl", "--http", "127.0.0.1:0"])
}

const USERS: &str = "user default on >admin ~* &* +@all\n\
                     user alice on >pw resetchannels ~orders:* +@stream +@read +ping +hello\n";

fn admin_of(server: &Server) -> Client {
    let mut admin = server.connect();
    admin.call("AUTH admin", "+OK\r\n");
    admin
}

#[test]
fn visitors_on_this_machine_are_the_user_default_if_it_needs_no_password() {
    let server = Server::start(&["--http", "127.0.0.1:0", "--appendonly", "no"]);
    let mut visitor = Visitor::of(&server);
    let (status, about) = visitor.get("status");
    assert_eq!(
        (status, &about["login"], &about["user"]),
        (200, &json!("none"), &json!("default")),
        "{about}"
    );
    assert_eq!(about["place"], format!("redis://127.0.0.1:{}", server.port));
    // A password that is set later applies at once.
    server.connect().call("CONFIG SET requirepass secret", "+OK\r\n");
    assert!(!visitor.is_logged_in());
    assert_eq!(visitor.get("status").1["login"], "user");
    assert_eq!(visitor.log_in("default", "secret"), 200);
    assert!(visitor.is_logged_in());
}

/// Each of them kept its place for ten seconds, so `/livez` was not answered for a minute.
#[test]
fn clients_that_send_no_request_do_not_keep_out_probes() {
    let server = Server::start(&["--http", "127.0.0.1:0", "--appendonly", "no"]);
    let mut visitor = Visitor::of(&server);
    let silent: Vec<TcpStream> = (0..500)
        .map(|n| {
            let mut client = TcpStream::connect(visitor.address).unwrap();
            let start: &[u8] = if n % 2 == 0 { b"" } else { b"GET /livez HTTP/1.1\r\nHost: loc" };
            client.write_all(start).unwrap();
            client
        })
        .collect();
    assert_eq!(visitor.send("GET", "/livez", None), (200, json!("ok\n")));
    drop(silent);
}

/// The bodies of these requests never arrive. While 64 such requests are handled, further ones are refused, but not
/// probes.
#[test]
fn requests_that_are_never_complete_do_not_keep_out_probes() {
    let server = Server::start(&["--http", "127.0.0.1:0", "--appendonly", "no"]);
    let mut visitor = Visitor::of(&server);
    let head = format!(
        "POST /api/v1/session HTTP/1.1\r\nHost: {}\r\nX-Millstream: 1\r\nContent-Type: application/json\r\n\
         Content-Length: 100\r\n\r\n{{",
        visitor.address
    );
    let mut waiting: Vec<TcpStream> = (0..200)
        .map(|_| {
            let mut client = TcpStream::connect(visitor.address).unwrap();
            client.write_all(head.as_bytes()).unwrap();
            client
        })
        .collect();
    let mut refused = [0; 12];
    waiting[199].read_exact(&mut refused).unwrap();
    assert_eq!(&refused, b"HTTP/1.1 503");
    assert_eq!(visitor.get("streams").0, 503);
    for path in ["/livez", "/readyz", "/metrics"] {
        assert_eq!(visitor.send("GET", path, None).0, 200, "{path}");
    }
}

#[test]
fn other_machines_reach_the_dashboard_only_with_a_login() {
    let dir = TempDir::new();
    let output = millstream(&dir).args(["serve", "--port", "0", "--http", "0.0.0.0:0"]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && text.contains("the user default needs no password"), "{text}");
    assert!(!dir.path.join("millstream-data").exists(), "it ends before it creates a data folder");
    let server = Server::start_in(&dir, &["--http", "0.0.0.0:0", "--requirepass", "secret"]);
    let mut visitor = Visitor::of(&server);
    visitor.address.set_ip([127, 0, 0, 1].into());
    assert!(!visitor.is_logged_in());
    // Without a password, nobody can use it any more: the server cannot refuse to start now.
    let mut admin = server.connect();
    admin.call("AUTH secret", "+OK\r\n");
    admin.call("CONFIG SET requirepass \"\"", "+OK\r\n");
    assert!(!visitor.is_logged_in());
    assert_eq!(visitor.get("status").1["login"], "user");
    assert_eq!(visitor.log_in("default", "anything"), 401);
}

#[test]
fn a_login_is_a_user_of_the_server_and_failures_are_audited() {
    let dir = TempDir::new();
    let mut server = start_with_users(&dir, USERS);
    let mut visitor = Visitor::of(&server);
    assert_eq!(visitor.log_in("alice", "wrong"), 401);
    let line = server.line_with("event=failed-login");
    assert!(line.contains("address=\"127.0.0.1:0\" user=\"alice\" what=\"dashboard\""), "{line}");
    assert_eq!(visitor.log_in("nobody", "pw"), 401);
    assert!(!server.line_with("event=failed-login").contains("nobody"));
    assert_eq!(visitor.log_in("alice", "pw"), 200);
    let line = server.line_with("event=logged-in");
    assert!(line.contains("address=\"127.0.0.1:0\" user=\"alice\" what=\"dashboard\""), "{line}");
    assert_eq!(visitor.get("status").1["user"], "alice");
    let mut admin = admin_of(&server);
    let log = admin.ask(&["ACL LOG"]);
    assert!(log.contains("nobody") && log.contains("addr=127.0.0.1:0 name=dashboard"), "{log}");
    assert!(admin.ask(&["INFO stats"]).contains("acl_access_denied_auth:2\r\n"));
    // Without a name, the user is `default`.
    let mut other = Visitor::of(&server);
    assert_eq!(other.post("session", &json!({ "password": "admin" })).1["user"], "default");
}

/// Returns the streams of the overview, once the dashboard has looked at the server.
fn streams_of(visitor: &mut Visitor) -> Vec<String> {
    let rows = visitor.get("overview").1["rows"].as_array().cloned().unwrap_or_default();
    let mut streams: Vec<_> = rows.iter().map(|row| row["stream"].as_str().unwrap().to_owned()).collect();
    streams.sort_unstable();
    streams.dedup();
    streams
}

#[test]
fn a_visitor_sees_and_does_what_the_rules_of_its_user_allow() {
    let dir = TempDir::new();
    let mut server = start_with_users(&dir, USERS);
    let mut admin = admin_of(&server);
    admin.call("XADD orders:eu 1-1 item book", "$3\r\n1-1\r\n");
    admin.call("XADD mails 1-1 to secret@example", "$3\r\n1-1\r\n");
    let (mut root, mut alice) = (Visitor::of(&server), Visitor::of(&server));
    assert_eq!((root.log_in("default", "admin"), alice.log_in("alice", "pw")), (200, 200));
    eventually("the dashboard has looked", || streams_of(&mut root) == ["mails", "orders:eu"]);
    assert_eq!(streams_of(&mut alice), ["orders:eu"]);
    assert_eq!(alice.get("entries?stream=orders:eu").1["items"][0]["id"], "1-1");
    let entry = |stream: &str| json!({ "stream": stream, "fields": [["item", "pen"]] });
    assert_eq!(alice.post("entries", &entry("orders:eu")).0, 200);
    // The pages offer an action if the user may run its command on some key.
    let refused = |visitor: &mut Visitor| visitor.get("status").1["refused"].to_string();
    assert_eq!(refused(&mut root), "[]");
    assert!(refused(&mut alice).contains("/server/config"), "{}", refused(&mut alice));
    assert!(!refused(&mut alice).contains("\"/entries\""), "{}", refused(&mut alice));
    let line = server.line_with("event=command");
    assert!(line.contains("address=\"127.0.0.1:0\" user=\"alice\" what=\"dashboard "), "{line}");
    assert!(line.contains("stream=orders:eu"), "{line}");
    for path in ["entries?stream=mails", "stream?stream=mails", "entry?stream=mails&id=1-1"] {
        let (status, answer) = alice.get(path);
        assert!(status == 403 && !answer.to_string().contains("secret@example"), "{path}: {status} {answer}");
    }
    let (status, answer) = alice.post("entries", &entry("mails"));
    assert_eq!(status, 403, "{answer}");
    admin.call("XLEN mails", ":1\r\n");
    // Only those who may run INFO see the figures of the server itself.
    let metrics = |visitor: &mut Visitor| visitor.send("GET", "/metrics", None).1.to_string();
    let (all, own) = (metrics(&mut root), metrics(&mut alice));
    assert!(all.contains("millstream_server_log_sync_seconds_bucket") && all.contains("mails"), "{all}");
    assert!(
        own.contains("orders:eu") && !own.contains("mails") && !own.contains("millstream_server"),
        "{own}"
    );
    // A change of the rules applies to the next request.
    admin.call("ACL SETUSER alice ~mails", "+OK\r\n");
    assert_eq!(alice.get("entries?stream=mails").0, 200);
    // The connections of visitors are clients like others.
    let clients = admin.ask(&["CLIENT LIST"]);
    for user in ["alice", "(internal)"] {
        let is_shown =
            |line: &str| line.contains(" addr=dashboard:0 ") && line.contains(&format!(" user={user} "));
        assert!(clients.lines().any(is_shown), "{user}: {clients}");
    }
}

#[test]
fn a_read_only_dashboard_refuses_actions_of_every_user() {
    let server = Server::start(&["--http", "127.0.0.1:0", "--http-read-only", "yes", "--appendonly", "no"]);
    let mut visitor = Visitor::of(&server);
    let (status, answer) = visitor.post("entries", &json!({ "stream": "s", "fields": [["a", "b"]] }));
    assert_eq!((status, &answer["code"]), (403, &json!("read_only")), "{answer}");
    server.connect().call("XLEN s", ":0\r\n");
}

#[test]
fn user_that_is_deleted_or_disabled_loses_its_session() {
    let dir = TempDir::new();
    let server = start_with_users(&dir, USERS);
    let (mut visitor, mut admin) = (Visitor::of(&server), admin_of(&server));
    assert_eq!(visitor.log_in("alice", "pw"), 200);
    assert!(visitor.is_logged_in());
    admin.call("ACL SETUSER alice off", "+OK\r\n");
    assert!(!visitor.is_logged_in());
    admin.call("ACL SETUSER alice on", "+OK\r\n");
    assert_eq!(visitor.log_in("alice", "pw"), 200);
    admin.call("ACL DELUSER alice", ":1\r\n");
    assert!(!visitor.is_logged_in());
    assert_eq!(visitor.log_in("alice", "pw"), 401);
}

#[test]
fn the_dashboard_ends_with_the_server() {
    let server = Server::start(&["--http", "127.0.0.1:0", "--appendonly", "no"]);
    let mut visitor = Visitor::of(&server);
    assert!(visitor.is_logged_in());
    let idle = TcpStream::connect(visitor.address).unwrap();
    server.signal("-TERM");
    let (rest, status) = server.wait();
    assert!(status.success(), "{rest}");
    assert!(!rest.contains("dashboard has ended"), "{rest}");
    drop(idle);
    eventually("the port is closed", || TcpStream::connect(visitor.address).is_err());
}

#[test]
fn the_rules_of_a_user_apply_to_pending_entries_dead_letters_jobs_and_actions() {
    let dir = TempDir::new();
    let server = start_with_users(&dir, USERS);
    let mut admin = admin_of(&server);
    for stream in ["orders:eu", "mails"] {
        admin.call(&format!("XADD {stream} 1-1 to secret@example"), "$3\r\n1-1\r\n");
        admin.call(&format!("XGROUP CREATE {stream} g 0"), "+OK\r\n");
        admin.ask(&[&format!("XREADGROUP GROUP g c STREAMS {stream} >")]);
        let letter = "dlq.id 1-1 dlq.group g dlq.reason timeout dlq.error secret@example";
        admin.call(&format!("XADD {{{stream}}}:dlq 2-1 dlq.stream {stream} {letter}"), "$3\r\n2-1\r\n");
    }
    let (mut root, mut alice) = (Visitor::of(&server), Visitor::of(&server));
    assert_eq!((root.log_in("default", "admin"), alice.log_in("alice", "pw")), (200, 200));
    for path in [
        "pending?stream=mails&group=g",
        "dlq/letters?stream=mails",
        "dlq/letters?stream=orders:eu&dlq={mails}:dlq",
        "group?stream=mails&group=g",
        "entry/raw?stream=mails&id=1-1&field=to",
        "delayed?stream=mails",
        "search?stream=mails&contains=secret",
        "slowlog",
        "clients",
    ] {
        let (status, answer) = alice.get(path);
        assert!(!answer.to_string().contains("secret@example"), "{path}: {status} {answer}");
        assert!(status == 403 || path.starts_with("search") && status == 200, "{path}: {status} {answer}");
    }
    let of_group = |more: Value| {
        let mut body = json!({ "group": "g" });
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        body
    };
    let mails = json!({ "stream": "mails", "dry_run": true });
    for (path, more) in [
        ("group/reset", of_group(json!({ "to": { "earliest": true } }))),
        ("group/remove", of_group(json!({}))),
        ("consumer/remove", of_group(json!({ "consumer": "c", "heir": "d" }))),
        ("pending/ack", of_group(json!({ "ids": ["1-1"] }))),
        ("pending/nack", of_group(json!({ "ids": ["1-1"] }))),
        ("pending/claim", of_group(json!({ "ids": ["1-1"], "consumer": "d" }))),
        ("dlq/redrive", json!({})),
        ("dlq/purge", json!({})),
        ("stream/trim", json!({ "max_length": 0 })),
        ("entries/delete", json!({ "ids": ["1-1"] })),
    ] {
        let mut body = mails.clone();
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let (status, answer) = alice.post(path, &body);
        assert_eq!(status, 403, "{path}: {answer}");
        let (status, answer) = root.post(path, &body);
        assert_eq!(status, 200, "{path}: {answer}");
    }
    // Without the right, the value is not in the plan, and the plan cannot be executed.
    let mut set = json!({ "name": "appendfsync", "value": "no", "dry_run": true });
    let (_, plan) = alice.post("server/config", &set);
    assert_eq!(plan["before"], Value::Null);
    set["dry_run"] = json!(false);
    set["preview"] = plan["preview"].clone();
    assert_eq!(alice.post("server/config", &set).0, 403);
    // A plan of somebody else is of no use without the right.
    let (_, plan) = root.post("dlq/purge", &json!({ "stream": "mails", "dry_run": true }));
    let purge = json!({ "stream": "mails", "preview": plan["preview"] });
    assert_eq!(alice.post("dlq/purge", &purge).0, 403);
    let (status, job) = root.post("dlq/purge", &purge);
    assert_eq!(status, 202, "{job}");
    let job = format!("job?id={}", job["job"].as_str().unwrap());
    assert_eq!((alice.get(&job).0, alice.get("jobs").1), (404, json!([])));
    eventually("the job ends", || root.get(&job).1["state"] == "done");
    assert!(!alice.get("audit").1.to_string().contains("mails"));
    admin.call("XLEN {mails}:dlq", ":0\r\n");
    admin.call("XLEN mails", ":1\r\n");
}

/// Removes what changes from one moment to the next.
fn without_ages(mut json: Value) -> Value {
    fn walk(json: &mut Value) {
        match json {
            Value::Object(object) => {
                object.retain(|name, _| !name.ends_with("_ms") && name != "age");
                object.values_mut().for_each(walk);
            }
            Value::Array(array) => array.iter_mut().for_each(walk),
            _ => {}
        }
    }
    walk(&mut json);
    json
}

/// Asserts that an answer has at least what the command line prints.
fn assert_has(path: &str, answer: &Value, printed: &Value) {
    match (answer, printed) {
        (Value::Object(answer), Value::Object(printed)) => {
            for (name, printed) in printed {
                let found = answer.get(name).unwrap_or_else(|| panic!("{path} lacks {name}: {answer:?}"));
                assert_has(&format!("{path}.{name}"), found, printed);
            }
        }
        (Value::Array(answer), Value::Array(printed)) => {
            assert_eq!(answer.len(), printed.len(), "{path}");
            answer.iter().zip(printed).for_each(|(answer, printed)| assert_has(path, answer, printed));
        }
        _ => assert_eq!(answer, printed, "{path}"),
    }
}

#[test]
fn shapes_are_those_of_the_command_line() {
    let dir = TempDir::new();
    let server = Server::start_in(&dir, &["--http", "127.0.0.1:0", "--appendonly", "no"]);
    let mut client = server.connect();
    client.call("XADD orders 1-1 item book", "$3\r\n1-1\r\n");
    client.call("XADD orders 1-2 item pen", "$3\r\n1-2\r\n");
    client.call("XGROUP CREATE orders billing 0", "+OK\r\n");
    client.ask(&["XREADGROUP GROUP billing c COUNT 1 STREAMS orders >"]);
    client.call("XPOLICY SET orders GROUP billing LEASE 60000 MAXDELIVER 5", "+OK\r\n");
    let url = format!("redis://127.0.0.1:{}", server.port);
    let run = |arguments: &[&str]| {
        let output = millstream(&dir).args(arguments).args(["--url", &url, "--json"]).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let parsed = serde_json::from_str(&text);
        without_ages(
            parsed.unwrap_or_else(|error| panic!("{arguments:?}: {error}: {text} {:?}", output.stderr)),
        )
    };
    let mut visitor = Visitor::of(&server);
    eventually("the dashboard has looked", || streams_of(&mut visitor) == ["orders"]);
    let mut get = |path: &str| {
        let (status, answer) = visitor.get(path);
        assert_eq!(status, 200, "{path}: {answer}");
        without_ages(answer)
    };
    let printed = run(&["consumer", "ls", "orders", "billing"]);
    assert_has("consumers", &get("group?stream=orders&group=billing")["consumers"], &printed);
    let printed = run(&["pending", "ls", "orders", "billing"]);
    assert_has("pending", &get("pending?stream=orders&group=billing")["rows"], &printed);
    let printed = run(&["group", "policy", "orders", "billing"]);
    assert_has("policy", &get("policy?stream=orders&group=billing"), &printed);
    let printed = run(&["doctor"]);
    let answer = get("doctor");
    assert_has("doctor", &answer["findings"], &printed["findings"]);
    let printed = run(&["group", "reset", "orders", "billing", "--to-id", "1-2"]);
    let reset = json!({ "stream": "orders", "group": "billing", "to": { "id": "1-2" }, "dry_run": true });
    let answer = without_ages(visitor.post("group/reset", &reset).1);
    assert_has("reset", &answer, &printed);
    let printed = run(&["consumer", "rm", "orders", "billing", "c", "--heir", "d", "--dry-run"]);
    let remove =
        json!({ "stream": "orders", "group": "billing", "consumer": "c", "heir": "d", "dry_run": true });
    let answer = without_ages(visitor.post("consumer/remove", &remove).1);
    assert_has("remove", &answer, &printed);
    let printed = run(&["pending", "ack", "orders", "billing", "1-1", "--dry-run"]);
    let acknowledge = json!({ "stream": "orders", "group": "billing", "ids": ["1-1"], "dry_run": true });
    let answer = without_ages(visitor.post("pending/ack", &acknowledge).1);
    assert_eq!(answer["matched"], printed["matched"]);
}

#[test]
fn delayed_entries_are_added_listed_cancelled_and_added_now() {
    let server = Server::start(&["--http", "127.0.0.1:0", "--appendonly", "no"]);
    let mut visitor = Visitor::of(&server);
    let add = |item: &str| json!({ "stream": "orders", "fields": [["item", item], ["password", "hunter22"]], "delay_ms": 3_600_000 });
    let tickets = ["book", "pen"].map(|item| {
        let (status, answer) = visitor.post("entries", &add(item));
        assert_eq!(status, 200, "{answer}");
        answer["id"].as_str().unwrap().to_owned()
    });
    let listed = visitor.get("delayed?stream=orders&count=1").1;
    assert_eq!((listed["items"].as_array().unwrap().len(), &listed["next"]), (1, &json!(tickets[0])));
    assert!(!listed.to_string().contains("hunter22"), "{listed}");
    for (action, ticket) in [("delayed/now", &tickets[0]), ("delayed/cancel", &tickets[1])] {
        let mut body = json!({ "stream": "orders", "tickets": [ticket], "dry_run": true });
        let (status, plan) = visitor.post(action, &body);
        assert_eq!((status, &plan["matched"]), (200, &json!(1)), "{plan}");
        body["dry_run"] = json!(false);
        body["preview"] = plan["preview"].clone();
        let (status, answer) = visitor.post(action, &body);
        assert_eq!(status, 200, "{action}: {answer}");
    }
    assert_eq!(visitor.get("delayed?stream=orders").1["items"], json!([]));
    server.connect().call("XLEN orders", ":1\r\n");
}
