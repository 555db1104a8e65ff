//! The command line of `scripts/bench`.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser, value_parser};

use crate::topics::{self, Case};

/// A server and its name in tables.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Program {
    pub(crate) name: String,
    pub(crate) place: Place,
}

/// Where a server is.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Place {
    /// A program to start.
    Path(PathBuf),
    /// A running server, as `host:port`.
    Address(String),
}

/// Measure Millstream and other servers under the same load.
#[derive(Debug, Parser)]
#[command(bin_name = "scripts/bench", disable_version_flag = true, max_term_width = 120)]
pub(crate) struct Options {
    /// Use small sizes and fewer repetitions; takes about two minutes
    #[arg(long)]
    pub(crate) quick: bool,
    /// Measure only rows whose name contains PATTERN; * matches any text. Repeatable; --list prints all names
    #[arg(long, value_name = "PATTERN", value_parser = known_pattern)]
    only: Vec<String>,
    /// Run each workload N times on each server [default: 5, with --quick 2]
    #[arg(long, value_name = "N", value_parser = value_parser!(u16).range(1..))]
    repetitions: Option<u16>,
    /// Print the name and title of every row, then exit
    #[arg(long)]
    pub(crate) list: bool,

    /// Millstream binary to measure [default: the release build of this repository]. A debug build only shows that the
    /// benchmark works
    #[arg(long, value_name = "PATH")]
    subject: Option<PathBuf>,
    /// Compare with redis-6.2, redis-8.2 or valkey-9.1, which scripts/peers installs, with another server program
    /// (NAME=PATH), or with a running server (NAME=HOST:PORT), whose keys that begin with bench: the benchmark writes
    /// and deletes. Repeatable. The redis-server on the PATH (7.0.15 on Debian 12) always takes part, under the name
    /// redis; redis=PATH replaces it, and --peer redis compares with it alone
    /// [default: redis-8.2 and valkey-9.1, with --quick neither]
    #[arg(long = "peer", value_name = "NAME", value_parser = parse_peer)]
    peers: Vec<Program>,
    /// Program for the rows latency/worker-*: the example latency of the worker crate, which scripts/bench builds
    /// [default: target/release/examples/latency]
    #[arg(long, value_name = "PATH")]
    worker: Option<PathBuf>,

    /// Folder for results.json, table.md and the servers' data
    #[arg(long, value_name = "DIR", default_value = "target/bench", overrides_with = "out")]
    pub(crate) out: PathBuf,
    /// Also write the results to FILE
    #[arg(long, value_name = "FILE", value_parser = in_a_folder)]
    pub(crate) json: Option<PathBuf>,
    /// Also update docs/benchmarks-tables.md. A table stays unchanged if one of its rows was not measured
    #[arg(long, conflicts_with = "quick")]
    pub(crate) doc: bool,
    /// Also replace the table between the bench marks in FILE: six rows, compared with the best of Redis 8.2 and Valkey
    /// 9.1. Needs both of them as peers
    #[arg(long, value_name = "FILE", conflicts_with = "quick")]
    pub(crate) readme: Option<PathBuf>,

    /// Count instructions per operation with callgrind and compare them with bench/instructions.txt. Builds a server
    /// for it, unless --subject names one
    #[arg(long, conflicts_with = "only")]
    pub(crate) instructions: bool,
    /// With --instructions: save the new counts instead of comparing
    #[arg(long, requires = "instructions")]
    pub(crate) bless: bool,

    /// Check the other options, print which of nats-server and worker (the program of --worker) the selected rows need,
    /// then exit
    #[arg(long)]
    pub(crate) check: bool,
}

impl Options {
    /// Parses and checks the arguments; the first is the name of the program.
    pub(crate) fn from_args(
        args: impl IntoIterator<Item = impl Into<OsString> + Clone>,
    ) -> Result<Options, clap::Error> {
        let mut options = Options::try_parse_from(args)?;
        if !options.peers.iter().any(|peer| peer.name == "redis") {
            options
                .peers
                .insert(0, Program { name: "redis".into(), place: Place::Path("redis-server".into()) });
        }
        options
            .mistake()
            .map_or(Ok(options), |text| Err(Options::command().error(ErrorKind::ValueValidation, text)))
    }

    fn mistake(&self) -> Option<String> {
        let servers = self.servers();
        let is_named_twice =
            |(at, server): (usize, &Program)| servers[..at].iter().any(|s| s.name == server.name);
        if let Some(at) = servers.iter().enumerate().position(is_named_twice) {
            return Some(format!("--peer {}: another server has this name", servers[at].name));
        }
        let publishes = self.doc || self.readme.is_some();
        if self.is_debug_build() && publishes {
            return Some("--doc and --readme need a release build, and --subject names a debug build".into());
        }
        let missing =
            topics::README_PEERS.iter().find(|name| !self.peers.iter().any(|peer| peer.name == **name));
        let name = missing.filter(|_| self.readme.is_some())?;
        Some(format!("--readme compares with {name}: add --peer {name}"))
    }

    /// Returns the names of the programs that only some rows need, if they are selected, one per line.
    pub(crate) fn needs(&self) -> String {
        let groups: Vec<_> = topics::TOPICS.iter().flat_map(|(_, groups)| groups()).collect();
        let is_needed = |name: &&str| {
            groups.iter().any(|group| {
                group.needs == Some(*name)
                    && !self.instructions
                    && group.cases.iter().any(|case| self.wants_case(case))
            })
        };
        ["nats-server", "worker"]
            .iter()
            .filter(|name| is_needed(name))
            .map(|name| format!("{name}\n"))
            .collect()
    }

    /// Whether `--only` selects this row. Without `--only` every row is selected.
    pub(crate) fn wants(&self, topic: &str, name: &str) -> bool {
        let name = format!("{topic}/{name}");
        self.only.is_empty() || self.only.iter().any(|pattern| matches(pattern, &name))
    }

    /// Whether any row of the case is selected.
    pub(crate) fn wants_case(&self, case: &Case) -> bool {
        (case.in_quick || !self.quick) && case.rows.iter().any(|row| self.wants(row.table.topic, &row.name))
    }

    /// Whether every row is selected.
    pub(crate) fn wants_all(&self) -> bool {
        self.only.is_empty()
    }

    /// Whether the caller named the server whose instructions are counted.
    pub(crate) fn names_subject(&self) -> bool {
        self.subject.is_some()
    }

    pub(crate) fn subject(&self) -> Program {
        let path = self.subject.clone().unwrap_or_else(|| match self.instructions {
            // As optimised as the whole binary, and builds much faster.
            true => target().join("counted/examples/server"),
            false => "target/release/millstream".into(),
        });
        Program { name: "millstream".into(), place: Place::Path(path) }
    }

    /// Whether the subject was built without optimisation, judged by the folder that cargo put it in.
    pub(crate) fn is_debug_build(&self) -> bool {
        self.subject.as_ref().is_some_and(|path| path.iter().any(|part| part == "debug"))
    }

    /// Returns the subject, then its peers.
    pub(crate) fn servers(&self) -> Vec<Program> {
        std::iter::once(self.subject()).chain(self.peers.iter().cloned()).collect()
    }

    /// Returns the servers that this program can start, for cases that need a fresh server.
    pub(crate) fn startable(&self) -> Vec<Program> {
        self.servers().into_iter().filter(|server| matches!(server.place, Place::Path(_))).collect()
    }

    /// Returns the program that measures latencies through the worker runtime.
    pub(crate) fn worker(&self) -> PathBuf {
        self.worker.clone().unwrap_or_else(|| target().join("release/examples/latency"))
    }

    pub(crate) fn repetitions(&self) -> usize {
        self.repetitions.map_or(self.sized(5, 2), usize::from)
    }

    /// Number of repetitions for workloads with minutes of preparation.
    pub(crate) fn heavy_repetitions(&self) -> usize {
        self.repetitions().div_ceil(3)
    }

    /// Returns `full` in a full run and `quick` with `--quick`.
    pub(crate) fn sized<T>(&self, full: T, quick: T) -> T {
        if self.quick { quick } else { full }
    }
}

fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or("target".into(), PathBuf::from)
}

fn names() -> impl Iterator<Item = (String, String)> {
    let groups = topics::TOPICS.iter().flat_map(|(_, groups)| groups());
    let rows = groups.flat_map(|group| group.cases).flat_map(|case| case.rows);
    rows.map(|row| (format!("{}/{}", row.table.topic, row.name), row.title))
}

/// Returns the name and title of every row.
pub(crate) fn list() -> String {
    names().map(|(name, title)| format!("{name:<36} {title}\n")).collect()
}

fn known_pattern(pattern: &str) -> Result<String, String> {
    match names().any(|(name, _)| matches(pattern, &name)) {
        true => Ok(pattern.into()),
        false => Err("no row has this in its name; --list prints all names".into()),
    }
}

/// Whether the name contains the parts of the pattern between its stars, in this order.
fn matches(pattern: &str, name: &str) -> bool {
    let after = |rest: &str, part: &str| Some(rest.find(part)? + part.len());
    pattern.split('*').try_fold(name, |rest, part| Some(&rest[after(rest, part)?..])).is_some()
}

/// The servers that `scripts/peers` installs, and the names of their programs.
const INSTALLED: [(&str, &str); 3] =
    [("redis-6.2", "redis-server"), ("redis-8.2", "redis-server"), ("valkey-9.1", "valkey-server")];

fn parse_peer(text: &str) -> Result<Program, String> {
    if text == "redis" {
        return Ok(Program { name: text.into(), place: Place::Path("redis-server".into()) });
    }
    if let Some((name, program)) = INSTALLED.into_iter().find(|(name, _)| *name == text) {
        let path = target().join("peers").join(name).join(program);
        return match path.is_file() {
            true => Ok(Program { name: name.into(), place: Place::Path(path) }),
            false => Err(format!("{} does not exist; scripts/peers installs it", path.display())),
        };
    }
    let named = text.split_once('=').filter(|(name, place)| !name.is_empty() && !place.is_empty());
    let (name, place) = named.ok_or_else(|| {
        let names = INSTALLED.map(|(name, _)| name).join(", ");
        format!("expected NAME=PATH, NAME=HOST:PORT or one of {names}")
    })?;
    let is_address =
        place.rsplit_once(':').is_some_and(|(host, port)| !host.contains('/') && port.parse::<u16>().is_ok());
    let place = if is_address { Place::Address(place.into()) } else { Place::Path(place.into()) };
    // A program name without a folder is looked up on the PATH when it is started.
    match &place {
        Place::Path(path) if path.iter().count() > 1 && !path.is_file() => Err("no such program".into()),
        _ => Ok(Program { name: name.into(), place }),
    }
}

/// Checks that the folder of an output file exists, before minutes of measuring.
fn in_a_folder(file: &str) -> Result<PathBuf, String> {
    let folder = Path::new(file).parent().unwrap_or(Path::new(""));
    match folder.as_os_str().is_empty() || folder.is_dir() {
        true => Ok(file.into()),
        false => Err(format!("the folder {} does not exist", folder.display())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Options, clap::Error> {
        Options::from_args(std::iter::once("bench").chain(line.split_whitespace()))
    }

    fn parsed(line: &str) -> Options {
        parse(line).unwrap()
    }

    #[test]
    fn redis_is_always_a_peer() {
        let plain = parsed("");
        assert_eq!(plain.peers, [parse_peer("redis").unwrap()]);
        let named = parsed("--quick --peer valkey=valkey-server --peer far=db.example:6390");
        assert_eq!(named.peers[1].place, Place::Path("valkey-server".into()));
        assert_eq!(named.peers[2].place, Place::Address("db.example:6390".into()));
        assert_eq!((named.servers().len(), named.startable().len(), named.repetitions()), (4, 3, 2));
        assert_eq!(parsed("--peer redis=/bin/sh").peers.len(), 1);
    }

    #[test]
    fn only_selects_rows_by_parts_of_their_names() {
        let options = parsed("--only xadd*p16 --only memory/");
        assert!(options.wants("speed", "xadd-short-p16") && options.wants("memory", "short"));
        assert!(!options.wants("speed", "xadd-short-p1"));
        assert!(parsed("").wants("anything", "at all"));
    }

    #[test]
    fn only_some_rows_need_nats_or_a_worker() {
        for (line, needs) in [
            ("", "nats-server\nworker\n"),
            ("--only speed/", ""),
            ("--only latency/off", ""),
            ("--only latency/everysec-1x1-500", "nats-server\n"),
            ("--only latency/worker-off", "worker\n"),
            ("--quick", "nats-server\n"),
            ("--instructions", ""),
        ] {
            assert_eq!(parsed(line).needs(), needs, "{line}");
        }
    }

    #[test]
    fn no_two_rows_share_a_name() {
        let mut all: Vec<_> = names().map(|(name, _)| name).collect();
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), count);
    }

    #[test]
    fn errors_name_the_mistake() {
        for (line, part) in [
            ("--only nonsense", "nonsense"),
            ("--peer valkey", "redis-8.2"),
            ("--peer a=/no/such/server", "no such program"),
            ("--repetitions 0", "not in 1.."),
            ("--bless", "--instructions"),
            ("--quick --doc", "--quick"),
            ("--doc --subject target/debug/millstream", "release build"),
            ("--readme README.md --peer redis-8.2=redis-server", "add --peer valkey-9.1"),
            ("--peer a=b --peer a=c", "another server has this name"),
            ("--json /no/such/folder/x.json", "folder /no/such/folder does not exist"),
            ("--instructions --only speed/", "--only"),
        ] {
            let text = parse(line).unwrap_err().to_string();
            assert!(text.contains(part), "{line}: {text}");
        }
    }
}
