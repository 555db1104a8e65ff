//! The live view in a real terminal, on a real server.

use std::net::TcpListener;
use std::process::{Child, Command, Stdio};

use crate::terminal::Terminal;
use crate::test_store::{FIRST, TestStore};

const FAST: &str = "top --interval 200ms";

#[test]
fn top_shows_filters_sorts_and_opens_streams() {
    let store = TestStore::millstream();
    store.call(&["XCLAIM", "orders", "billing", "worker-1", "0", FIRST, "RETRYCOUNT", "9"]);
    let Some(terminal) = Terminal::run(&store, "", FAST) else { return };
    terminal.shows_all(&["lag of orders / billing", &store.url, "critical", "q quit"]);

    store.call(&["XADD", "orders", "*", "item", "pen"]);
    terminal.shows("lag 2");

    terminal.press(&["Enter"]);
    let dead_letters = "2 dead letters in {orders}:dlq";
    terminal.shows_all(&["STUCK-MESSAGE", "worker-2", FIRST, dead_letters]);
    terminal.press(&["Escape"]);
    terminal.wait("the overview", |screen| !screen.contains("STUCK-MESSAGE"));

    terminal.press(&["/", "d", "l", "q"]);
    terminal.shows("filter \"dlq\": 1 row");
    terminal.press(&["Enter"]);
    terminal.shows("Enter open");
    terminal.press(&["?"]);
    terminal.shows("Esc closes this");
    terminal.press(&["j"]);
    terminal.wait("no help", |screen| !screen.contains("Esc closes this"));
    terminal.press(&["Escape"]);
    terminal.wait("no filter", |screen| !screen.contains("filter \""));

    terminal.press(&["s"]);
    terminal.shows("LAG▼");
    terminal.press(&["p"]);
    terminal.shows("paused");
    terminal.press(&["p", "+"]);
    terminal.shows("every 250ms");
    terminal.press(&["?"]);
    terminal.shows("Esc closes this");
    terminal.press(&["q"]);
    terminal.ended(0);
}

/// Workers remove their consumers when they end, so a group without consumers may have been read.
#[test]
fn top_does_not_call_a_group_unread_because_its_workers_have_left() {
    let store = TestStore::empty(&[]);
    store.run(&["add", "orders", "n={i}", "--count", "20"]).ok();
    store.run(&["work", "--stream", "orders", "--group", "billing", "--exec", "true", "--until-empty"]).ok();
    store.run(&["group", "create", "orders", "mail"]).ok();
    let Some(terminal) = Terminal::run(&store, "", FAST) else { return };
    // The group that needs attention is first.
    terminal.shows("lag of orders / mail");
    terminal.press(&["j"]);
    terminal.shows("lag of orders / billing");
    terminal.press(&["Enter"]);
    terminal
        .shows_all(&["20 read of 20 ever added", "no consumers: those that read from this group have left"]);
    terminal.press(&["h", "k", "Enter"]);
    terminal.shows_all(&["orders / mail", "no consumers: no consumer has read from this group yet"]);
    terminal.press(&["q"]);
    terminal.ended(0);
}

#[test]
fn top_shows_the_workers_of_a_group() {
    let store = TestStore::millstream();
    let work =
        ["work", "--stream", "orders", "--group", "billing", "--exec", "sleep 600", "--consumer", "mine"];
    let _running = store.follow(&[&work[..], &["--concurrency", "1", "--quiet"]].concat());
    let Some(terminal) = Terminal::run(&store, "", FAST) else { return };
    terminal.shows("lag of orders / billing");
    terminal.press(&["Enter"]);
    terminal.shows_all(&["HEARTBEAT", "mine", "1 of 1", "working"]);
    terminal.press(&["q"]);
    terminal.ended(0);
}

#[test]
fn signals_and_ctrl_c_restore_the_terminal() {
    let store = TestStore::millstream();
    for (signal, code) in [("TERM", 143), ("INT", 130), ("HUP", 129)] {
        let Some(terminal) = Terminal::run(&store, "", FAST) else { return };
        terminal.shows("q quit");
        let sent = Command::new("kill").args([&format!("-{signal}"), &terminal.pid()]).status();
        assert!(sent.expect("send a signal").success());
        terminal.ended(code);
    }
    for before in [None, Some("?")] {
        let Some(terminal) = Terminal::run(&store, "", FAST) else { return };
        terminal.shows("q quit");
        if let Some(help) = before {
            terminal.press(&[help]);
            terminal.shows("Esc closes this");
        }
        terminal.press(&["C-c"]);
        terminal.ended(130);
    }
}

#[test]
fn top_reconnects_to_a_restarted_server() {
    let mut store = TestStore::embedded();
    let port = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a port").port();
    store.url = format!("redis://127.0.0.1:{port}");
    let Some(terminal) = Terminal::run(&store, "", FAST) else { return };
    terminal.shows_all(&["retrying: ", &store.url]);

    let server = ServerOnPort::start(&store, port);
    terminal
        .wait("a working connection", |screen| screen.contains(&store.url) && !screen.contains("retrying"));
    terminal.shows("no streams; create one");
    drop(server);
    terminal.shows("retrying: ");

    let _again = ServerOnPort::start(&store, port);
    terminal.wait("a working connection again", |screen| !screen.contains("retrying"));
    store.run(&["add", "orders", "item=book"]).ok();
    terminal.shows("orders");
    terminal.press(&["q"]);
    terminal.ended(0);
}

#[test]
fn top_uses_colours_unless_no_color_is_set() {
    let store = TestStore::millstream();
    let Some(terminal) = Terminal::run(&store, "NO_COLOR=1", FAST) else { return };
    terminal.shows("critical");
    assert_eq!(colours(&terminal.styled_screen()), 0);
    let Some(terminal) = Terminal::run(&store, "env -u NO_COLOR", FAST) else { return };
    terminal.shows("critical");
    assert!(colours(&terminal.styled_screen()) > 0, "{:?}", terminal.styled_screen());
}

/// Number of escape sequences in this text that set a colour.
fn colours(text: &str) -> usize {
    let sequences = text.split("\u{1b}[").skip(1).filter_map(|rest| rest.split_once('m'));
    let numbers =
        sequences.flat_map(|(numbers, _)| numbers.split(';').filter_map(|number| number.parse().ok()));
    numbers.filter(|number: &u32| matches!(number, 30..=38 | 40..=48 | 90..=97 | 100..=107)).count()
}

/// A server on a given port, killed on drop.
struct ServerOnPort(Child);

impl ServerOnPort {
    fn start(store: &TestStore, port: u16) -> ServerOnPort {
        let mut command = store.command(&["serve", "--appendonly", "no", "--port", &port.to_string()]);
        command.arg("--dir").arg(&store.folder);
        ServerOnPort(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("start a server"))
    }
}

impl Drop for ServerOnPort {
    fn drop(&mut self) {
        // Both fail only if the process has already ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
