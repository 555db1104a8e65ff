//! The first words of a server: where it listens, where the data is, what to type next.

use std::fmt::Write as _;
use std::io::Write as _;
use std::net::SocketAddr;

use anstyle::{AnsiColor, Style};
use millstream_server::Running;
use millstream_server::settings::Id;

/// Prints it, on the error output: the standard output is for what was asked for.
pub(crate) fn print(running: &Running) {
    let greeting = Greeting {
        addresses: running.addresses(),
        unix_socket: running.settings().text(Id::UnixSocket),
        data: data(running),
        removed: running.recovered().map_or(String::new(), |recovered| removed(recovered.removed())),
        io_threads: running.settings().number(Id::IoThreads),
        has_password: !running.settings().is_empty(Id::RequirePass),
    };
    // Nobody to read it is no reason not to serve.
    let _ = anstream::stderr().write_all(greeting.render().as_bytes());
}

const TITLE: Style = AnsiColor::Cyan.on_default().bold();
const LABEL: Style = Style::new().dimmed();
const COMMAND: Style = AnsiColor::Green.on_default();

/// More removed files than this are counted, not named.
const NAMES_MAX: usize = 5;

struct Greeting<'a> {
    addresses: &'a [SocketAddr],
    unix_socket: String,
    data: String,
    /// Files that are gone; empty if there are none.
    removed: String,
    io_threads: i64,
    has_password: bool,
}

/// Where the data is, how safe, and what was found there.
fn data(running: &Running) -> String {
    let settings = running.settings();
    let Some(recovered) = running.recovered() else {
        return "in memory, gone when the server stops (appendonly no)".to_owned();
    };
    let safety = match &*settings.text(Id::AppendFsync) {
        "everysec" => "synced every second",
        "no" => "synced when the system likes",
        _ => "synced before every answer",
    };
    let found = match (recovered.log.created, recovered.snapshot_keys, recovered.replayed) {
        (true, ..) => "new".to_owned(),
        (_, 0, records) => format!("{records} records replayed"),
        (_, keys, records) => format!("{keys} keys and {records} records read back"),
    };
    let cut = recovered.log.cut.as_ref().map_or(String::new(), |cut| {
        format!("; {} bytes of a write that a crash cut short were removed from {}", cut.bytes, cut.file)
    });
    format!("{}, {safety} ({found}{cut})", settings.text(Id::Dir))
}

/// The names of removed files, in as many words as fit.
fn removed<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let names: Vec<&str> = names.collect();
    let (told, more) = names.split_at(names.len().min(NAMES_MAX));
    let told = told.join(", ");
    match (names.len(), more.len()) {
        (0, _) => told,
        (_, 0) => format!("{told} (leftovers, not needed)"),
        (_, more) => format!("{told} and {more} more (leftovers, not needed)"),
    }
}

impl Greeting<'_> {
    fn render(&self) -> String {
        let mut text = String::new();
        let version = concat!("millstream ", env!("CARGO_PKG_VERSION"));
        let _ = write!(text, "\n  {}  Redis streams, consumer groups included\n\n", painted(TITLE, version));
        let threads =
            if self.io_threads == 1 { "1 thread".to_owned() } else { format!("{} threads", self.io_threads) };
        let rows = [
            ("listening", format!("{} ({threads}, pid {})", self.listening(), std::process::id())),
            ("data", self.data.clone()),
            ("removed", self.removed.clone()),
            ("try", painted(COMMAND, &self.example())),
            ("stop", "Ctrl-C".to_owned()),
        ];
        for (label, value) in rows.iter().filter(|(_, value)| !value.is_empty()) {
            let _ = writeln!(text, "  {}  {value}", painted(LABEL, &format!("{label:<9}")));
        }
        text.push('\n');
        text
    }

    fn listening(&self) -> String {
        let mut places: Vec<String> = self.addresses.iter().map(SocketAddr::to_string).collect();
        if !self.unix_socket.is_empty() {
            places.push(self.unix_socket.clone());
        }
        places.join(", ")
    }

    fn example(&self) -> String {
        let whither = match self.addresses.first() {
            None => format!("-s {}", self.unix_socket),
            Some(address) if address.ip().is_loopback() || address.ip().is_unspecified() => {
                format!("-p {}", address.port())
            }
            Some(address) => format!("-h {} -p {}", address.ip(), address.port()),
        };
        let password = if self.has_password { " --askpass" } else { "" };
        format!("redis-cli {whither}{password} XADD orders '*' item book")
    }
}

fn painted(style: Style, text: &str) -> String {
    format!("{style}{text}{style:#}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn greeting<'a>(addresses: &'a [SocketAddr], unix_socket: &str) -> Greeting<'a> {
        Greeting {
            addresses,
            unix_socket: unix_socket.into(),
            data: "./d, synced before every answer (new)".into(),
            removed: String::new(),
            io_threads: 1,
            has_password: false,
        }
    }

    fn plain(greeting: &Greeting<'_>) -> String {
        anstream::adapter::strip_str(&greeting.render()).to_string()
    }

    #[test]
    fn it_says_where_and_what_next() {
        let addresses = ["127.0.0.1:7000".parse().unwrap(), "[::1]:7000".parse().unwrap()];
        let text = plain(&greeting(&addresses, ""));
        assert!(text.contains("listening  127.0.0.1:7000, [::1]:7000 (1 thread, pid "), "{text}");
        assert!(text.contains("try        redis-cli -p 7000 XADD orders '*' item book\n"), "{text}");
        assert!(
            text.contains("data       ./d, synced before every answer (new)\n") && !text.contains('\u{1b}'),
            "{text}"
        );
    }

    #[test]
    fn it_names_what_was_removed_if_anything_was() {
        let row = |names: &[&str]| {
            let removed = removed(names.iter().copied());
            let text = plain(&Greeting { removed, ..greeting(&[], "/s") });
            text.lines().find_map(|line| line.strip_prefix("  removed    ")).map(str::to_owned)
        };
        assert_eq!(row(&[]), None);
        assert_eq!(row(&["log-1", "snapshot-2"]).unwrap(), "log-1, snapshot-2 (leftovers, not needed)");
        let many = row(&["a", "b", "c", "d", "e", "f", "g"]).unwrap();
        assert_eq!(many, "a, b, c, d, e and 2 more (leftovers, not needed)");
    }

    #[test]
    fn the_example_reaches_the_server_wherever_it_listens() {
        let remote = ["10.0.0.5:6379".parse().unwrap()];
        assert!(greeting(&remote, "").example().starts_with("redis-cli -h 10.0.0.5 -p 6379 XADD"));
        assert!(greeting(&[], "/tmp/m.sock").example().starts_with("redis-cli -s /tmp/m.sock XADD"));
    }

    #[test]
    fn colours_are_for_terminals() {
        assert!(greeting(&[], "/s").render().contains("\u{1b}["));
    }
}
