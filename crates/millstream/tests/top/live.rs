//! The live view in a real terminal, on a real server.

use std::net::TcpListener;
use std::process::{Child, Command, Stdio};

use crate::terminal::Terminal;
use crate::world::{FIRST, World};

const FAST: &str = "top --interval 200ms";

#[test]
fn streams_and_groups_are_watched_opened_filtered_and_left() {
    let world = World::millstream();
    world.call(&["XCLAIM", "orders", "billing", "worker-1", "0", FIRST, "RETRYCOUNT", "9"]);
    let Some(terminal) = Terminal::run(&world, "", FAST) else { return };
    terminal.shows_all(&["lag of orders / billing", &world.url, "exact lag", "critical", "q quit"]);

    world.call(&["XADD", "orders", "*", "item", "pen"]);
    terminal.shows("lag 2");

    terminal.press(&["Enter"]);
    let letters = "2 dead letters of this stream in {orders}:dlq";
    terminal.shows_all(&["STUCK-MESSAGE", "worker-2", FIRST, letters]);
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

    terminal.press(&["s", "s"]);
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

#[test]
fn signals_give_the_terminal_back() {
    let world = World::millstream();
    for (signal, code) in [("TERM", 143), ("INT", 130), ("HUP", 129)] {
        let Some(terminal) = Terminal::run(&world, "", FAST) else { return };
        terminal.shows("q quit");
        let sent = Command::new("kill").args([&format!("-{signal}"), &terminal.pid()]).status();
        assert!(sent.expect("send a signal").success());
        terminal.ended(code);
    }
    for before in [None, Some("?")] {
        let Some(terminal) = Terminal::run(&world, "", FAST) else { return };
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
fn a_server_that_is_away_is_waited_for() {
    let mut world = World::embedded();
    let port = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a port").port();
    world.url = format!("redis://127.0.0.1:{port}");
    let Some(terminal) = Terminal::run(&world, "", FAST) else { return };
    terminal.shows_all(&["trying again: ", &world.url]);

    let server = Serving::start(&world, port);
    terminal
        .wait("that all is well", |screen| screen.contains(&world.url) && !screen.contains("trying again"));
    terminal.shows("there are no streams");
    drop(server);
    terminal.shows("trying again: ");

    let _again = Serving::start(&world, port);
    terminal.wait("that all is well again", |screen| !screen.contains("trying again"));
    world.run(&["add", "orders", "item=book"]).ok();
    terminal.shows("orders");
    terminal.press(&["q"]);
    terminal.ended(0);
}

#[test]
fn colours_are_there_unless_somebody_minds() {
    let world = World::millstream();
    let Some(terminal) = Terminal::run(&world, "NO_COLOR=1", FAST) else { return };
    terminal.shows("critical");
    assert_eq!(colours(&terminal.styled_screen()), 0);
    let Some(terminal) = Terminal::run(&world, "env -u NO_COLOR", FAST) else { return };
    terminal.shows("critical");
    assert!(colours(&terminal.styled_screen()) > 0, "{:?}", terminal.styled_screen());
}

/// How many sequences in this text set a colour.
fn colours(text: &str) -> usize {
    let sequences = text.split("\u{1b}[").skip(1).filter_map(|rest| rest.split_once('m'));
    let numbers =
        sequences.flat_map(|(numbers, _)| numbers.split(';').filter_map(|number| number.parse().ok()));
    numbers.filter(|number: &u32| matches!(number, 30..=38 | 40..=48 | 90..=97 | 100..=107)).count()
}

/// A server on a given port. Killed on drop.
struct Serving(Child);

impl Serving {
    fn start(world: &World, port: u16) -> Serving {
        let mut command = world.command(&["serve", "--appendonly", "no", "--port", &port.to_string()]);
        command.arg("--dir").arg(&world.folder);
        Serving(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("start a server"))
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        // Both may fail only because the process is already gone.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
