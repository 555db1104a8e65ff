//! The banner that a server prints at start: its addresses, its data folder, and a command to try. If the log is JSON,
//! one line of the log replaces it.

use std::fmt::Write as _;
use std::io::Write as _;
use std::net::SocketAddr;

use anstyle::{AnsiColor, Style};
use millstream_server::Running;
use millstream_server::memory::{Available, Source, human};
use millstream_server::settings::Id;

/// Prints the banner to standard error, or writes its facts to the log if that is JSON.
pub(crate) fn print(running: &Running, dashboard: Option<SocketAddr>) {
    let banner = Banner {
        addresses: running.addresses(),
        tls_addresses: running.tls_addresses(),
        unix_socket: running.settings().text(Id::UnixSocket),
        dashboard: dashboard.map_or(String::new(), |address| format!("http://{address}/")),
        data: data(running),
        memory: memory(running.settings().number(Id::MaxMemory).unsigned_abs(), Available::read()),
        removed: running.recovered().map_or(String::new(), |recovered| removed(recovered.removed())),
        io_threads: running.settings().number(Id::IoThreads),
        has_password: running.server().requires_login(),
    };
    if running.settings().text(Id::LogFormat) == "json" {
        return running.log_notice(&banner.sentence());
    }
    // If standard error is closed, the server runs without a banner.
    let _ = anstream::stderr().write_all(banner.render().as_bytes());
}

const TITLE: Style = AnsiColor::Cyan.on_default().bold();
const LABEL: Style = Style::new().dimmed();
const COMMAND: Style = AnsiColor::Green.on_default();

/// Maximum number of removed files that are listed by name. The rest is only counted.
const NAMES_MAX: usize = 5;

struct Banner<'a> {
    addresses: &'a [SocketAddr],
    /// Addresses for connections with TLS.
    tls_addresses: &'a [SocketAddr],
    /// Path of the Unix socket. Empty if there is none.
    unix_socket: String,
    /// URL of the dashboard. Empty if there is none.
    dashboard: String,
    data: String,
    memory: String,
    /// Files that recovery removed. Empty if it removed none.
    removed: String,
    io_threads: i64,
    has_password: bool,
}

/// Describes the data folder, when the log is synced, and what recovery found.
fn data(running: &Running) -> String {
    let settings = running.settings();
    let Some(recovered) = running.recovered() else {
        return "in memory only, lost when the server stops (appendonly no)".to_owned();
    };
    let sync = match &*settings.text(Id::AppendFsync) {
        "everysec" => "synced every second",
        "no" => "synced by the operating system",
        _ => "synced before every reply",
    };
    let found = match (recovered.log.created, recovered.snapshot_keys, recovered.replayed) {
        (true, ..) => "new".to_owned(),
        (_, 0, records) => format!("{records} records replayed"),
        (_, keys, records) => format!("{keys} keys and {records} records loaded"),
    };
    let cut = recovered.log.cut.as_ref().map_or(String::new(), |cut| {
        format!("; removed {} bytes of an unfinished write from {}", cut.bytes, cut.file)
    });
    format!("{}, {sync} ({found}{cut})", settings.text(Id::Dir))
}

/// Describes the memory limit, and what share of the memory it is. A limit of 0 is no limit.
fn memory(limit: u64, available: Option<Available>) -> String {
    let limited = match limit {
        0 => "not limited (maxmemory 0)".to_owned(),
        limit => format!("at most {} (maxmemory)", human(limit)),
    };
    let Some(available) = available.filter(|available| available.bytes > 0) else { return limited };
    let of = match available.source {
        Source::ControlGroup => "the control group",
        Source::Machine => "the machine",
    };
    let percent = limit.saturating_mul(100).div_ceil(available.bytes);
    match (limit, human(available.bytes)) {
        (0, total) => format!("{limited}; {of} has {total}"),
        (_, total) => format!("{limited}, {percent} % of the {total} of {of}"),
    }
}

/// Lists the names of removed files, at most [`NAMES_MAX`] of them.
fn removed<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let names: Vec<&str> = names.collect();
    let (listed, more) = names.split_at(names.len().min(NAMES_MAX));
    let listed = listed.join(", ");
    match (names.len(), more.len()) {
        (0, _) => listed,
        (_, 0) => format!("{listed} (no longer needed)"),
        (_, more) => format!("{listed} and {more} more (no longer needed)"),
    }
}

impl Banner<'_> {
    fn render(&self) -> String {
        let mut text = String::new();
        let version = concat!("millstream ", env!("CARGO_PKG_VERSION"));
        let _ =
            write!(text, "\n  {}  Redis-compatible streams and consumer groups\n\n", painted(TITLE, version));
        let advice = [("try", painted(COMMAND, &self.example())), ("stop", "Ctrl-C".to_owned())];
        let rows = self.facts().into_iter().chain(advice);
        for (label, value) in rows.filter(|(_, value)| !value.is_empty()) {
            let _ = writeln!(text, "  {}  {value}", painted(LABEL, &format!("{label:<9}")));
        }
        text.push('\n');
        text
    }

    /// Returns the facts about the server, each with a label. A value can be empty.
    fn facts(&self) -> [(&'static str, String); 5] {
        let threads =
            if self.io_threads == 1 { "1 thread".to_owned() } else { format!("{} threads", self.io_threads) };
        [
            ("listening", format!("{} ({threads}, pid {})", self.listening(), std::process::id())),
            ("dashboard", self.dashboard.clone()),
            ("data", self.data.clone()),
            ("memory", self.memory.clone()),
            ("removed", self.removed.clone()),
        ]
    }

    fn sentence(&self) -> String {
        let facts = self.facts().into_iter().filter(|(_, value)| !value.is_empty());
        let facts: Vec<String> = facts.map(|(label, value)| format!("{label}: {value}")).collect();
        format!("millstream {} has started; {}", env!("CARGO_PKG_VERSION"), facts.join("; "))
    }

    fn listening(&self) -> String {
        let mut addresses: Vec<String> = self.addresses.iter().map(SocketAddr::to_string).collect();
        addresses.extend(self.tls_addresses.iter().map(|address| format!("rediss://{address}")));
        if !self.unix_socket.is_empty() {
            addresses.push(self.unix_socket.clone());
        }
        addresses.join(", ")
    }

    fn example(&self) -> String {
        let of_tcp = |address: &SocketAddr| match address.ip() {
            ip if ip.is_loopback() || ip.is_unspecified() => format!("-p {}", address.port()),
            ip => format!("-h {ip} -p {}", address.port()),
        };
        let target = match (self.addresses, self.tls_addresses) {
            ([first, ..], _) => of_tcp(first),
            ([], [first, ..]) => format!("--tls {}", of_tcp(first)),
            ([], []) => format!("-s {}", self.unix_socket),
        };
        let password = if self.has_password { " --askpass" } else { "" };
        format!("redis-cli {target}{password} XADD orders '*' item book")
    }
}

fn painted(style: Style, text: &str) -> String {
    format!("{style}{text}{style:#}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn banner<'a>(addresses: &'a [SocketAddr], unix_socket: &str) -> Banner<'a> {
        Banner {
            addresses,
            tls_addresses: &[],
            unix_socket: unix_socket.into(),
            dashboard: String::new(),
            data: "./d, synced before every reply (new)".into(),
            memory: "at most 1.00G (maxmemory)".into(),
            removed: String::new(),
            io_threads: 1,
            has_password: false,
        }
    }

    fn plain(banner: &Banner<'_>) -> String {
        anstream::adapter::strip_str(&banner.render()).to_string()
    }

    #[test]
    fn the_banner_shows_addresses_data_and_an_example() {
        let addresses = ["127.0.0.1:7000".parse().unwrap(), "[::1]:7000".parse().unwrap()];
        let text = plain(&banner(&addresses, ""));
        assert!(text.contains("listening  127.0.0.1:7000, [::1]:7000 (1 thread, pid "), "{text}");
        assert!(text.contains("try        redis-cli -p 7000 XADD orders '*' item book\n"), "{text}");
        assert!(
            text.contains("data       ./d, synced before every reply (new)\n") && !text.contains('\u{1b}'),
            "{text}"
        );
    }

    #[test]
    fn the_banner_shows_the_dashboard_if_there_is_one() {
        let with = Banner { dashboard: "http://127.0.0.1:8001/".into(), ..banner(&[], "/s") };
        assert!(plain(&with).contains("dashboard  http://127.0.0.1:8001/\n"));
        assert!(!plain(&banner(&[], "/s")).contains("dashboard"));
    }

    #[test]
    fn the_banner_shows_the_memory_limit_and_its_share() {
        let group = Available { bytes: 512 << 20, source: Source::ControlGroup };
        let machine = Some(Available { bytes: 2 << 30, source: Source::Machine });
        assert_eq!(
            memory(group.percent(80), Some(group)),
            "at most 409.60M (maxmemory), 80 % of the 512.00M of the control group"
        );
        assert_eq!(memory(0, machine), "not limited (maxmemory 0); the machine has 2.00G");
        assert_eq!(memory(1 << 30, None), "at most 1.00G (maxmemory)");
        assert!(plain(&banner(&[], "/s")).contains("memory     at most 1.00G (maxmemory)\n"));
    }

    #[test]
    fn removed_files_are_listed_if_there_are_any() {
        let row = |names: &[&str]| {
            let removed = removed(names.iter().copied());
            let text = plain(&Banner { removed, ..banner(&[], "/s") });
            text.lines().find_map(|line| line.strip_prefix("  removed    ")).map(str::to_owned)
        };
        assert_eq!(row(&[]), None);
        assert_eq!(row(&["log-1", "snapshot-2"]).unwrap(), "log-1, snapshot-2 (no longer needed)");
        let many = row(&["a", "b", "c", "d", "e", "f", "g"]).unwrap();
        assert_eq!(many, "a, b, c, d, e and 2 more (no longer needed)");
    }

    #[test]
    fn the_example_connects_to_the_first_address() {
        let remote = ["10.0.0.5:6379".parse().unwrap()];
        assert!(banner(&remote, "").example().starts_with("redis-cli -h 10.0.0.5 -p 6379 XADD"));
        assert!(banner(&[], "/tmp/m.sock").example().starts_with("redis-cli -s /tmp/m.sock XADD"));
    }

    #[test]
    fn addresses_with_tls_are_urls() {
        let (open, tls) = (["127.0.0.1:6379".parse().unwrap()], ["127.0.0.1:6380".parse().unwrap()]);
        let both = Banner { tls_addresses: &tls, ..banner(&open, "") };
        assert!(plain(&both).contains("listening  127.0.0.1:6379, rediss://127.0.0.1:6380 (1 thread"));
        assert!(both.example().starts_with("redis-cli -p 6379 XADD"));
        let only = Banner { tls_addresses: &tls, ..banner(&[], "") };
        assert!(plain(&only).contains("listening  rediss://127.0.0.1:6380 (1 thread"));
        assert!(only.example().starts_with("redis-cli --tls -p 6380 XADD"));
    }

    #[test]
    fn the_rendered_banner_has_colours() {
        assert!(banner(&[], "/s").render().contains("\u{1b}["));
    }
}
