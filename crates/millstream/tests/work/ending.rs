//! How a worker ends, and what it tells while it runs.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;

use crate::place::{Place, Running, is_alive, wait_until};

/// Says that it runs, and waits for leave to end.
const PATIENT: &str = "echo $$ >> pids; while [ ! -e go ]; do sleep 0.05; done";
/// Never ends by itself, and does not listen.
const STUBBORN: &str = "trap '' TERM; echo $$ >> pids; while :; do sleep 0.1; done";

#[test]
fn a_signal_drains_what_runs_finishes_and_the_rest_is_given_back() {
    for place in Place::both() {
        for signal in ["TERM", "INT"] {
            let _ = std::fs::remove_file(place.folder.join("go"));
            let _ = std::fs::remove_file(place.folder.join("pids"));
            place.add(3);
            let worker = place.start(&["--exec", PATIENT, "--concurrency", "1", "--json"]);
            place.wait_for("pids", 1);
            worker.signal(signal);
            wait_until("the worker to drain", || worker.err().contains("draining"));
            place.write("go", "");
            let run = worker.ended().ok();
            assert_eq!(run.report(["acknowledged", "unsettled"]), [1, 0]);
            let (unread, pending) = place.left();
            assert_eq!(unread + pending, 2);
            // What was given back is there for the next at once, and counts as never tried.
            let next = place.work(&["--exec", "test $MILLSTREAM_ATTEMPT = 1", "--lease", "10m"]).ok();
            assert_eq!(next.report(["acknowledged", "retried"]), [2, 0]);
        }
    }
}

#[test]
fn what_does_not_end_in_time_is_stopped_and_given_back() {
    let place = Place::server();
    place.add(1);
    let worker = place.start(&["--exec", STUBBORN, "--drain", "300ms", "--json"]);
    let pid = place.wait_for("pids", 1).remove(0);
    worker.signal("TERM");
    let run = worker.ended().ok();
    assert_eq!(run.report(["acknowledged", "released"]), [0, 1]);
    wait_until("the process to be killed", || !is_alive(&pid));
    // It was tried, and that counts.
    let next = place.work(&["--exec", "test $MILLSTREAM_ATTEMPT = 2", "--lease", "10m"]).ok();
    assert_eq!(next.report(["acknowledged", "retried"]), [1, 0]);
}

#[test]
fn a_second_signal_ends_at_once() {
    for (signal, code) in [("TERM", 143), ("INT", 130)] {
        let place = Place::server();
        place.add(1);
        let worker = place.start(&["--exec", STUBBORN, "--drain", "1h"]);
        let pid = place.wait_for("pids", 1).remove(0);
        worker.signal(signal);
        wait_until("the worker to drain", || worker.err().contains("draining"));
        worker.signal(signal);
        worker.ended().exits(code).complains("ending at once");
        wait_until("the process to be killed", || !is_alive(&pid));
        let rows = place.run(&["pending", "ls", "orders", "billing", "--json"]).ok().json();
        assert_eq!((&rows[0]["consumer"], &rows[0]["deliveries"]), (&serde_json::Value::Null, &1.into()));
    }
}

#[test]
fn a_worker_that_is_killed_takes_its_commands_along() {
    let place = Place::server();
    for how in ["--exec", "--child"] {
        place.add(2);
        // The pids of a command and of what it has started.
        let command = "trap '' TERM; sleep 1000 & echo $! >> pids; echo $$ >> pids; wait; sleep 1000";
        let worker = place.start(&[how, command, "--concurrency", "2"]);
        let pids = place.wait_for("pids", 4);
        assert!(pids.iter().all(|pid| is_alive(pid)), "{pids:?}");
        worker.signal("KILL");
        wait_until("the commands to be killed", || !pids.iter().any(|pid| is_alive(pid)));
        std::fs::remove_file(place.folder.join("pids")).expect("remove a file");
    }
}

#[test]
fn idle_programs_end_with_the_worker() {
    let place = Place::server();
    place.add(1);
    let program =
        "while read -r line; do echo '{\"outcome\":\"ack\"}'; echo $$ >> pids; done; echo bye >> ended";
    let worker = place.start(&["--child", program]);
    let pid = place.wait_for("pids", 1).remove(0);
    worker.signal("TERM");
    worker.ended().ok().complains("1 received, 1 acknowledged");
    assert_eq!(place.lines("ended"), ["bye"]);
    assert!(!is_alive(&pid));
}

#[test]
fn probes_and_metrics_are_served() {
    let place = Place::server();
    place.add(3);
    let worker = place.start(&["--exec", "echo done >> done", "--listen", "127.0.0.1:0"]);
    place.wait_for("done", 3);
    wait_until("everything to be acknowledged", || place.left() == (0, 0));
    let address = address_of(&worker);
    assert!(get(&address, "/livez").starts_with("HTTP/1.1 200"));
    assert!(get(&address, "/readyz").starts_with("HTTP/1.1 200"));
    let metrics = get(&address, "/metrics");
    let done = metrics.lines().find(|line| {
        line.starts_with("millstream_messages_processed_total") && line.contains("outcome=\"ack\"")
    });
    let done = done.unwrap_or_else(|| panic!("no count of what is done in:\n{metrics}"));
    assert!(done.contains("handler=\"exec\"") && done.ends_with(" 3"), "{done}");
    assert!(metrics.contains("millstream_group_lag{"), "{metrics}");
    // While it drains it is not ready.
    drop(worker);
    let worker = place.start(&["--exec", PATIENT, "--listen", "127.0.0.1:0"]);
    place.add(1);
    place.wait_for("pids", 1);
    let address = address_of(&worker);
    worker.signal("TERM");
    wait_until("it to say that it drains", || get(&address, "/readyz").contains("draining"));
    assert!(get(&address, "/livez").starts_with("HTTP/1.1 200"));
    place.write("go", "");
    worker.ended().ok();
}

#[test]
fn on_a_terminal_output_and_status_are_on_lines_of_their_own() {
    let place = Place::server();
    place.add(5);
    let worker = place.command(&[
        "work",
        "--stream",
        "orders",
        "--group",
        "billing",
        "--until-empty",
        "--exec",
        "sleep 0.7; echo \"said $MILLSTREAM_FIELD_N\"; echo; printf 'no end'",
        "--concurrency",
        "1",
    ]);
    let run = Running::start(&mut on_terminal(&worker)).ended().ok();
    // What is between two ends of a line, or begins where a line was cleared.
    let lines: Vec<&str> =
        run.out.split(['\n', '\r']).map(|line| line.trim_start_matches(CLEARING)).collect();
    for n in 1..=5 {
        assert!(lines.contains(&format!("said {n}").as_str()), "{n} is glued to something: {:?}", run.out);
    }
    assert_eq!(lines.iter().filter(|line| **line == "no end").count(), 5, "{:?}", run.out);
    assert!(run.out.contains(" of 1 busy"), "there is a whole status: {:?}", run.out);
    assert!(run.out.contains("millstream: 5 received, 5 acknowledged"), "{:?}", run.out);
}

/// What clears a line.
const CLEARING: &str = "\u{1b}[2K";

/// The same command on a terminal of 120 columns, whose picture is its standard output.
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

/// Where a worker listens, from its log.
fn address_of(worker: &Running) -> String {
    wait_until("an address in the log", || worker.err().contains("at=127.0.0.1:"));
    let err = worker.err();
    let (_, rest) = err.split_once("at=").expect("an address");
    rest.split_whitespace().next().expect("an address").to_owned()
}

fn get(address: &str, path: &str) -> String {
    let mut connection = TcpStream::connect(address).expect("connect to the worker");
    write!(connection, "GET {path} HTTP/1.1\r\nhost: worker\r\n\r\n").expect("ask");
    let mut answer = String::new();
    connection.read_to_string(&mut answer).expect("an answer");
    answer
}
