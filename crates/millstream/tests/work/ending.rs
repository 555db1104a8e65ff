//! How a worker ends, and its health and metrics endpoints.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::time::Duration;

use crate::test_store::{Running, TestStore, is_alive, wait_until};

/// Records its pid and runs until the file `go` exists.
const WAITS_FOR_GO: &str = "echo $$ >> pids; while [ ! -e go ]; do sleep 0.05; done";
/// Runs without end and ignores SIGTERM.
const STUBBORN: &str = "trap '' TERM; echo $$ >> pids; while :; do sleep 0.1; done";

#[test]
fn a_signal_finishes_running_messages_and_releases_the_rest() {
    for (store, signals) in [(TestStore::server(), &["TERM", "HUP"][..]), (TestStore::embedded(), &["INT"])] {
        for signal in signals {
            let _ = std::fs::remove_file(store.folder.join("go"));
            let _ = std::fs::remove_file(store.folder.join("pids"));
            store.add(3);
            let worker = store.start(&["--exec", WAITS_FOR_GO, "--concurrency", "1", "--json"]);
            store.wait_for("pids", 1);
            worker.signal(signal);
            wait_until("the worker to drain", || worker.err().contains("draining"));
            store.write("go", "");
            let run = worker.wait().ok();
            assert_eq!(run.report(["acknowledged", "unsettled"]), [1, 0]);
            let (unread, pending) = store.lag_and_pending();
            assert_eq!(unread + pending, 2);
            // The next worker gets the released messages immediately, and they count as never attempted.
            let next = store.work(&["--exec", "test $MILLSTREAM_ATTEMPT = 1", "--lease", "10m"]).ok();
            assert_eq!(next.report(["acknowledged", "retried"]), [2, 0]);
        }
    }
}

#[test]
fn a_command_that_outlives_the_drain_is_killed_and_its_message_released() {
    let store = TestStore::server();
    store.add(1);
    let worker = store.start(&["--exec", STUBBORN, "--drain", "300ms", "--json"]);
    let pid = store.wait_for("pids", 1).remove(0);
    worker.signal("TERM");
    let run = worker.wait().ok();
    assert_eq!(run.report(["acknowledged", "released"]), [0, 1]);
    wait_until("the process to be killed", || !is_alive(&pid));
    // The killed run does not count: the command had no time to answer.
    let next = store.work(&["--exec", "test $MILLSTREAM_ATTEMPT = 1", "--lease", "10m"]).ok();
    assert_eq!(next.report(["acknowledged", "retried"]), [1, 0]);
}

#[test]
fn a_signal_that_is_sent_twice_drains_like_one() {
    let store = TestStore::server();
    store.add(1);
    let worker = store.start(&["--exec", WAITS_FOR_GO, "--json"]);
    store.wait_for("pids", 1);
    // As `timeout` does. The pause lets the worker receive both signals.
    worker.signals(&["TERM", "TERM"], 0.01);
    wait_until("the worker to drain", || worker.err().contains("draining"));
    store.write("go", "");
    assert_eq!(worker.wait().ok().report(["acknowledged", "unsettled"]), [1, 0]);
}

#[test]
fn a_worker_started_by_nohup_ignores_sighup() {
    let store = TestStore::server();
    let work =
        store.command(&["work", "--stream", "orders", "--group", "billing", "--exec", "echo x >> done"]);
    let mut nohup = Command::new("nohup");
    nohup.arg(work.get_program()).args(work.get_args()).current_dir(&store.folder);
    let worker = Running::start(nohup.env("MILLSTREAM_URL", &store.url));
    store.add(1);
    store.wait_for("done", 1);
    worker.signal("HUP");
    store.add(1);
    store.wait_for("done", 2);
    worker.signal("TERM");
    let run = worker.wait().ok();
    assert!(!run.err.contains("SIGHUP"), "{}", run.err);
}

#[test]
fn a_second_signal_ends_the_worker_immediately() {
    let signals = [("TERM", 143), ("HUP", 129)];
    let workers = signals.map(|(signal, code)| {
        let store = TestStore::server();
        store.add(1);
        let worker = store.start(&["--exec", STUBBORN, "--drain", "1h"]);
        let pid = store.wait_for("pids", 1).remove(0);
        worker.signal(signal);
        wait_until("the worker to drain", || worker.err().contains("draining"));
        (store, worker, pid, signal, code)
    });
    // An earlier signal would be a repetition of the first one.
    std::thread::sleep(Duration::from_millis(1100));
    for (store, worker, pid, signal, code) in workers {
        worker.signal(signal);
        worker.wait().exits(code).stderr_contains("stopping immediately");
        wait_until("the process to be killed", || !is_alive(&pid));
        let rows = store.run(&["pending", "ls", "orders", "billing", "--json"]).ok().json();
        assert_eq!((&rows[0]["consumer"], &rows[0]["deliveries"]), (&serde_json::Value::Null, &0.into()));
    }
}

#[test]
fn commands_die_with_a_killed_worker() {
    let store = TestStore::server();
    for how in ["--exec", "--child"] {
        store.add(2);
        // Records the pids of the command and of its own child.
        let command = "trap '' TERM; sleep 1000 & echo $! >> pids; echo $$ >> pids; wait; sleep 1000";
        let worker = store.start(&[how, command, "--concurrency", "2"]);
        let pids = store.wait_for("pids", 4);
        assert!(pids.iter().all(|pid| is_alive(pid)), "{pids:?}");
        worker.signal("KILL");
        wait_until("the commands to be killed", || !pids.iter().any(|pid| is_alive(pid)));
        std::fs::remove_file(store.folder.join("pids")).expect("remove a file");
    }
}

#[test]
fn idle_children_exit_with_the_worker() {
    let store = TestStore::server();
    store.add(1);
    let program =
        "while read -r line; do echo '{\"outcome\":\"ack\"}'; echo $$ >> pids; done; echo bye >> ended";
    let worker = store.start(&["--child", program]);
    let pid = store.wait_for("pids", 1).remove(0);
    worker.signal("TERM");
    worker.wait().ok().stderr_contains("1 received, 1 acknowledged");
    assert_eq!(store.lines("ended"), ["bye"]);
    assert!(!is_alive(&pid));
}

#[test]
fn the_worker_serves_probes_and_metrics() {
    let store = TestStore::server();
    store.add(3);
    let worker = store.start(&["--exec", "echo done >> done", "--listen", "127.0.0.1:0"]);
    store.wait_for("done", 3);
    wait_until("all messages to be acknowledged", || store.lag_and_pending() == (0, 0));
    let address = address_of(&worker);
    assert!(get(&address, "/livez").starts_with("HTTP/1.1 200"));
    assert!(get(&address, "/readyz").starts_with("HTTP/1.1 200"));
    let metrics = get(&address, "/metrics");
    let done = metrics.lines().find(|line| {
        line.starts_with("millstream_messages_processed_total") && line.contains("outcome=\"ack\"")
    });
    let done = done.unwrap_or_else(|| panic!("no count of acknowledged messages in:\n{metrics}"));
    assert!(done.contains("handler=\"exec\"") && done.ends_with(" 3"), "{done}");
    assert!(metrics.contains("millstream_group_lag{"), "{metrics}");
    // A draining worker is not ready.
    drop(worker);
    let worker = store.start(&["--exec", WAITS_FOR_GO, "--listen", "127.0.0.1:0"]);
    store.add(1);
    store.wait_for("pids", 1);
    let address = address_of(&worker);
    worker.signal("TERM");
    wait_until("/readyz to report draining", || get(&address, "/readyz").contains("draining"));
    assert!(get(&address, "/livez").starts_with("HTTP/1.1 200"));
    store.write("go", "");
    worker.wait().ok();
}

#[test]
fn command_output_and_status_do_not_share_lines_on_a_terminal() {
    let store = TestStore::server();
    store.add(5);
    let worker = store.command(&[
        "work",
        "--stream",
        "orders",
        "--group",
        "billing",
        "--until-empty",
        "--exec",
        "sleep 0.7; echo \"printed $MILLSTREAM_FIELD_N\"; echo; printf 'no end'",
        "--concurrency",
        "1",
    ]);
    let run = Running::start(&mut on_terminal(&worker)).wait().ok();
    // Lines end with CR or LF, or begin after the code that clears a line.
    let lines: Vec<&str> =
        run.out.split(['\n', '\r']).map(|line| line.trim_start_matches(CLEARING)).collect();
    for n in 1..=5 {
        assert!(lines.contains(&format!("printed {n}").as_str()), "{n} shares its line: {:?}", run.out);
    }
    assert_eq!(lines.iter().filter(|line| **line == "no end").count(), 5, "{:?}", run.out);
    assert!(run.out.contains(" of 1 busy"), "no complete status line: {:?}", run.out);
    assert!(run.out.contains("millstream: 5 received, 5 acknowledged"), "{:?}", run.out);
}

/// Terminal code that clears a line.
const CLEARING: &str = "\u{1b}[2K";

/// Wraps a command so that it runs on a terminal of 120 columns. What the terminal shows becomes its standard output.
fn on_terminal(command: &Command) -> Command {
    let mut python = Command::new("python3");
    python.args([
        "-c",
        "import fcntl, os, pty, struct, sys, termios\n\
        pid, terminal = pty.fork()\n\
        if pid == 0:\n    \
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack('HHHH', 40, 120, 0, 0))\n    \
            os.execv(sys.argv[1], sys.argv[1:])\n\
        while True:\n    \
            try:\n        data = os.read(terminal, 4096)\n    \
            except OSError:\n        break\n    \
            os.write(1, data)\n\
        sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))",
    ]);
    python.arg(command.get_program()).args(command.get_args()).env("TERM", "xterm");
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => python.env(name, value),
            None => python.env_remove(name),
        };
    }
    python.current_dir(command.get_current_dir().expect("a folder"));
    python
}

/// Returns the address that a worker listens on, from its log.
pub(crate) fn address_of(worker: &Running) -> String {
    wait_until("an address in the log", || worker.err().contains("at=127.0.0.1:"));
    let err = worker.err();
    let (_, rest) = err.split_once("at=").expect("an address");
    rest.split_whitespace().next().expect("an address").to_owned()
}

/// Returns the answer of a worker to a GET request.
pub(crate) fn get(address: &str, path: &str) -> String {
    let mut connection = TcpStream::connect(address).expect("connect to the worker");
    write!(connection, "GET {path} HTTP/1.1\r\nhost: worker\r\n\r\n").expect("send the request");
    let mut answer = String::new();
    connection.read_to_string(&mut answer).expect("an answer");
    answer
}

/// Whenever the worker is killed, it is starting a command.
#[test]
fn a_worker_that_is_killed_while_it_starts_commands_leaves_none_behind() {
    let store = TestStore::server();
    store.add(1000);
    for running in [1, 4, 16, 32, 48] {
        let worker = store.start(&["--exec", "exec sleep 1000", "--concurrency", "64", "--lease", "1s"]);
        wait_until("some commands to start", || store.processes().len() > running);
        worker.signal("KILL");
        wait_until("all processes to end", || store.processes().is_empty());
    }
}
