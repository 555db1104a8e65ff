//! Parses the command line of `scripts/bench`.

use std::path::{Path, PathBuf};

use crate::Failure;
use crate::readme;
use crate::topics::{self, Topic, messages, workers};

const HELP: &str = "\
Measure Millstream and other servers under the same load.

Usage: scripts/bench [OPTIONS]

What to measure:
  --quick                Use small sizes and fewer repetitions; takes about two minutes
  --only PATTERN         Measure only rows whose name contains PATTERN; * matches any text.
                         Repeatable; --list prints all names
  --repetitions N        Run each workload N times on each server [default: 5, with --quick 2]
  --list                 Print the name and title of every row, then exit

Servers:
  --subject PATH         Millstream binary to measure [default: the release build of this repository].
                         A debug build only shows that the benchmark works
  --peer NAME            Compare with redis-6.2, redis-8.2 or valkey-9.1, which scripts/peers installs. Repeatable
                         [default: redis-8.2 and valkey-9.1, with --quick neither]. The redis-server on the
                         PATH (7.0.15 on Debian 12) always takes part, under the name redis;
                         --peer redis compares with it alone
  --peer NAME=PATH       Also compare with another server program; redis=PATH replaces the one on the PATH
  --peer NAME=HOST:PORT  Also compare with a running server. The benchmark writes and deletes its keys
                         that begin with bench:

  --worker PATH          Program for the rows latency/worker-*: the example latency of the worker crate, which
                         scripts/bench builds [default: target/release/examples/latency]

Output:
  --out DIR              Folder for results.json, table.md and the servers' data [default: target/bench]
  --json FILE            Also write the results to FILE
  --doc                  Also update docs/benchmarks.md and its plots. A table stays unchanged if one of its
                         rows was not measured
  --readme FILE          Also replace the table between the bench marks in FILE: six rows, compared with the
                         best of Redis 8.2 and Valkey 9.1. Needs both of them as peers

Counting instructions instead of time:
  --instructions         Count instructions per operation with callgrind and compare them with bench/instructions.txt.
                         Builds a server for it, unless --subject names one
  --bless                With --instructions: save the new counts instead of comparing

  --check                Check the other options, print which of nats-server and worker (the program of --worker)
                         the selected rows need, then exit
  --help                 Print this help, then exit
";

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

/// The kind of run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Task {
    Measure,
    /// Count the subject's instructions and compare them with the saved counts; with `bless`, save them instead.
    /// `build` is set unless `--subject` was given.
    CountInstructions {
        bless: bool,
        build: bool,
    },
}

/// The parsed command line.
#[derive(Debug, PartialEq)]
pub(crate) struct Options {
    pub(crate) task: Task,
    pub(crate) quick: bool,
    pub(crate) repetitions: usize,
    pub(crate) subject: Program,
    pub(crate) peers: Vec<Program>,
    /// The program that measures latencies through the worker runtime.
    pub(crate) worker: PathBuf,
    pub(crate) out: PathBuf,
    pub(crate) json: Option<PathBuf>,
    pub(crate) readme: Option<PathBuf>,
    pub(crate) doc: bool,
    only: Vec<String>,
}

impl Options {
    /// Parses and checks the arguments. Returns `None` if there is nothing to run: after `--help`, `--list` and
    /// `--check`.
    pub(crate) fn from_args(args: impl Iterator<Item = String>) -> Result<Option<Options>, Failure> {
        let mut args = args;
        let (mut instructions, mut bless, mut check) = (false, false, false);
        let (mut repetitions, mut subject) = (None, None);
        let mut options = Options {
            task: Task::Measure,
            quick: false,
            repetitions: 0,
            subject: Program {
                name: "millstream".into(),
                place: Place::Path("target/release/millstream".into()),
            },
            peers: Vec::new(),
            worker: target().join("release/examples/latency"),
            out: "target/bench".into(),
            json: None,
            readme: None,
            doc: false,
            only: Vec::new(),
        };
        while let Some(flag) = args.next() {
            let mut value = || args.next().ok_or_else(|| format!("{flag} needs a value"));
            match flag.as_str() {
                "--quick" => options.quick = true,
                "--only" => options.only.push(known_pattern(value()?)?),
                "--repetitions" => repetitions = Some(parse_repetitions(&value()?)?),
                "--subject" => subject = Some(value()?.into()),
                "--peer" => options.peers.push(parse_peer(&value()?)?),
                "--worker" => options.worker = value()?.into(),
                "--out" => options.out = value()?.into(),
                "--json" => options.json = Some(value()?.into()),
                "--readme" => options.readme = Some(value()?.into()),
                "--doc" => options.doc = true,
                "--instructions" => instructions = true,
                "--bless" => bless = true,
                "--check" => check = true,
                "--list" => return print_and_stop(&list()),
                "--help" | "-h" => return print_and_stop(HELP),
                _ => return Err(format!("unknown option {flag}; --help lists all options").into()),
            }
        }
        if !options.peers.iter().any(|peer| peer.name == "redis") {
            options.peers.insert(0, parse_peer("redis")?);
        }
        check_names(&options.servers())?;
        check_folder(options.json.as_deref())?;
        if bless && !instructions {
            return Err("--bless needs --instructions".into());
        }
        if instructions && !options.only.is_empty() {
            return Err("--only does not work with --instructions, which counts all operations".into());
        }
        if instructions {
            options.task = Task::CountInstructions { bless, build: subject.is_none() };
            subject = subject.or_else(|| Some(counted_server()));
        }
        if let Some(path) = subject {
            options.subject.place = Place::Path(path);
        }
        if options.is_debug_build() && (options.doc || options.readme.is_some()) {
            return Err("--doc and --readme need a release build, and --subject names a debug build".into());
        }
        if options.quick && (options.doc || options.readme.is_some()) {
            return Err("--doc and --readme publish figures of full size: leave out --quick".into());
        }
        if options.readme.is_some() {
            check_readme_peers(&options.peers)?;
        }
        options.repetitions = repetitions.unwrap_or(if options.quick { 2 } else { 5 });
        match check {
            true => print_and_stop(&options.needs()),
            false => Ok(Some(options)),
        }
    }

    /// Returns the names of the programs that only some rows need, if they are selected, one per line.
    fn needs(&self) -> String {
        let counts = self.task != Task::Measure;
        let nats = (!counts && messages::use_nats(self)).then_some("nats-server\n");
        let worker = (!counts && workers::are_wanted(self)).then_some("worker\n");
        nats.into_iter().chain(worker).collect()
    }

    /// Whether `--only` selects this row. Without `--only` every row is selected.
    pub(crate) fn wants(&self, topic: &str, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|pattern| matches(pattern, &full_name(topic, name)))
    }

    /// Whether every row is selected.
    pub(crate) fn wants_all(&self) -> bool {
        self.only.is_empty()
    }

    /// Whether any row of the topic is selected.
    pub(crate) fn wants_any_of(&self, topic: &Topic) -> bool {
        topic.rows().iter().any(|(name, _)| self.wants(topic.name, name))
    }

    /// Whether the subject was built without optimisation, judged by the folder that cargo put it in.
    pub(crate) fn is_debug_build(&self) -> bool {
        match &self.subject.place {
            Place::Path(path) => path.iter().any(|part| part == "debug"),
            Place::Address(_) => false,
        }
    }

    /// Returns the subject, then its peers.
    pub(crate) fn servers(&self) -> Vec<Program> {
        std::iter::once(&self.subject).chain(&self.peers).cloned().collect()
    }

    /// Returns the servers that this program can start, for topics that need a fresh server.
    pub(crate) fn startable(&self) -> Vec<Program> {
        self.servers().into_iter().filter(|server| matches!(server.place, Place::Path(_))).collect()
    }

    /// Number of repetitions for workloads with minutes of preparation.
    pub(crate) fn heavy_repetitions(&self) -> usize {
        self.repetitions.div_ceil(3)
    }

    /// Returns `full` in a full run and `quick` with `--quick`.
    pub(crate) fn sized<T>(&self, full: T, quick: T) -> T {
        if self.quick { quick } else { full }
    }
}

/// Path of an example program of the server crate. It is as optimised as the whole binary and builds much faster.
fn counted_server() -> PathBuf {
    target().join("counted/examples/server")
}

fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or("target".into(), PathBuf::from)
}

fn print_and_stop(text: &str) -> Result<Option<Options>, Failure> {
    print!("{text}");
    Ok(None)
}

fn full_name(topic: &str, name: &str) -> String {
    format!("{topic}/{name}")
}

fn names() -> impl Iterator<Item = (String, String)> {
    topics::TOPICS
        .iter()
        .flat_map(|topic| topic.rows().into_iter().map(|(name, title)| (full_name(topic.name, &name), title)))
}

fn list() -> String {
    names().map(|(name, title)| format!("{name:<36} {title}\n")).collect()
}

fn known_pattern(pattern: String) -> Result<String, Failure> {
    match names().any(|(name, _)| matches(&pattern, &name)) {
        true => Ok(pattern),
        false => {
            Err(format!("--only {pattern}: no row has this in its name; --list prints all names").into())
        }
    }
}

/// Whether the name contains the parts of the pattern between its stars, in this order.
fn matches(pattern: &str, name: &str) -> bool {
    let mut rest = name;
    pattern.split('*').all(|part| match rest.find(part) {
        Some(at) => {
            rest = &rest[at + part.len()..];
            true
        }
        None => false,
    })
}

fn parse_repetitions(text: &str) -> Result<usize, Failure> {
    text.parse()
        .ok()
        .filter(|&n| n > 0)
        .ok_or_else(|| format!("--repetitions {text}: expected a number above 0").into())
}

/// The servers that `scripts/peers` installs, and the names of their programs.
const INSTALLED: [(&str, &str); 3] =
    [("redis-6.2", "redis-server"), ("redis-8.2", "redis-server"), ("valkey-9.1", "valkey-server")];

fn parse_peer(text: &str) -> Result<Program, Failure> {
    if text == "redis" {
        return Ok(Program { name: text.into(), place: Place::Path("redis-server".into()) });
    }
    if let Some((name, program)) = INSTALLED.into_iter().find(|(name, _)| *name == text) {
        let path = target().join("peers").join(name).join(program);
        return match path.is_file() {
            true => Ok(Program { name: name.into(), place: Place::Path(path) }),
            false => {
                Err(format!("--peer {name}: {} does not exist; scripts/peers installs it", path.display())
                    .into())
            }
        };
    }
    match text.split_once('=') {
        Some((name, place)) if !name.is_empty() && !place.is_empty() => {
            let place = parse_place(place);
            // A program name without a folder is looked up on the PATH when it is started.
            if let Place::Path(path) = &place
                && path.iter().count() > 1
                && !path.is_file()
            {
                return Err(format!("--peer {text}: no such program").into());
            }
            Ok(Program { name: name.into(), place })
        }
        _ => {
            let names = INSTALLED.map(|(name, _)| name).join(", ");
            Err(format!("--peer {text}: expected NAME=PATH, NAME=HOST:PORT or one of {names}").into())
        }
    }
}

/// Checks that no two servers share a name: tables identify servers by name.
fn check_names(servers: &[Program]) -> Result<(), Failure> {
    for (at, server) in servers.iter().enumerate() {
        if servers[..at].iter().any(|other| other.name == server.name) {
            return Err(format!("--peer {}: another server has this name", server.name).into());
        }
    }
    Ok(())
}

/// Checks that the peers of README's table take part.
fn check_readme_peers(peers: &[Program]) -> Result<(), Failure> {
    for wanted in readme::PEERS {
        if !peers.iter().any(|peer| peer.name == wanted) {
            return Err(format!("--readme compares with {wanted}: add --peer {wanted}").into());
        }
    }
    Ok(())
}

/// Checks that the folder of an output file exists, before minutes of measuring.
fn check_folder(file: Option<&Path>) -> Result<(), Failure> {
    let Some(folder) = file.and_then(Path::parent) else { return Ok(()) };
    match folder.as_os_str().is_empty() || folder.is_dir() {
        true => Ok(()),
        false => Err(format!("--json: the folder {} does not exist", folder.display()).into()),
    }
}

fn parse_place(text: &str) -> Place {
    let is_address =
        text.rsplit_once(':').is_some_and(|(host, port)| !host.contains('/') && port.parse::<u16>().is_ok());
    if is_address { Place::Address(text.into()) } else { Place::Path(text.into()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Option<Options>, Failure> {
        Options::from_args(line.split_whitespace().map(str::to_owned))
    }

    fn parsed(line: &str) -> Options {
        parse(line).unwrap().unwrap()
    }

    #[test]
    fn redis_is_always_a_peer() {
        let plain = parsed("");
        assert_eq!(
            plain.peers,
            [Program { name: "redis".into(), place: Place::Path("redis-server".into()) }]
        );
        assert_eq!(plain.repetitions, 5);
        let named = parsed("--quick --peer valkey=valkey-server --peer far=db.example:6390");
        assert_eq!(named.peers[0], plain.peers[0]);
        assert_eq!(named.peers[1].place, Place::Path("valkey-server".into()));
        assert_eq!(named.peers[2].place, Place::Address("db.example:6390".into()));
        assert_eq!(named.repetitions, 2);
        assert_eq!(named.servers().len(), 4);
        assert_eq!(named.startable().len(), 3);
        let other = parsed("--peer redis=/bin/sh");
        assert_eq!(other.peers, [Program { name: "redis".into(), place: Place::Path("/bin/sh".into()) }]);
        assert_eq!(parsed("--peer redis").peers, plain.peers);
    }

    /// If a server is not installed on this machine, the error must name the script that installs it.
    #[test]
    fn servers_of_scripts_peers_are_known_by_name() {
        for (name, program) in INSTALLED {
            match parse(&format!("--peer {name}")) {
                Ok(options) => {
                    let path = target().join("peers").join(name).join(program);
                    let named = Program { name: name.into(), place: Place::Path(path) };
                    assert_eq!(options.unwrap().peers[1], named);
                }
                Err(problem) => assert!(problem.to_string().contains("scripts/peers"), "{problem}"),
            }
        }
    }

    #[test]
    fn only_selects_rows_by_parts_of_their_names() {
        let options = parsed("--only xadd*p16 --only memory/");
        assert!(options.wants("speed", "xadd-short-p16"));
        assert!(!options.wants("speed", "xadd-short-p1"));
        assert!(options.wants("memory", "short"));
        assert!(parsed("").wants("anything", "at all"));
    }

    #[test]
    fn instructions_selects_another_task() {
        assert_eq!(parsed("").task, Task::Measure);
        let plain = parsed("--instructions");
        assert_eq!(plain.task, Task::CountInstructions { bless: false, build: true });
        assert_eq!(plain.subject.place, Place::Path(counted_server()));
        let given = parsed("--bless --instructions --subject here");
        assert_eq!(given.task, Task::CountInstructions { bless: true, build: false });
        assert_eq!(given.subject.place, Place::Path("here".into()));
    }

    #[test]
    fn figures_of_a_debug_build_are_never_published() {
        assert!(parsed("--subject target/debug/millstream").is_debug_build());
        assert!(!parsed("--subject target/release/millstream").is_debug_build());
        let readme = format!("--readme README.md {README_PEERS}");
        for publish in ["--doc", readme.as_str()] {
            assert!(parse(&format!("--subject target/release/millstream {publish}")).is_ok());
            let problem =
                parse(&format!("{publish} --subject target/debug/millstream")).unwrap_err().to_string();
            assert!(problem.contains("release build"), "{problem}");
        }
    }

    #[test]
    fn only_some_rows_need_nats_or_a_worker() {
        assert_eq!(parsed("").needs(), "nats-server\nworker\n");
        assert_eq!(parsed("--only speed/").needs(), "");
        assert_eq!(parsed("--only latency/off").needs(), "");
        assert_eq!(parsed("--only latency/everysec-1x1-500").needs(), "nats-server\n");
        assert_eq!(parsed("--only latency/worker-off").needs(), "worker\n");
        assert_eq!(parsed("--quick").needs(), "nats-server\n");
        assert_eq!(parsed("--instructions").needs(), "");
    }

    #[test]
    fn check_runs_nothing() {
        assert_eq!(parse("--check --only speed/").unwrap(), None);
    }

    /// The peers of README's table, as programs that need not be installed.
    const README_PEERS: &str = "--peer redis-8.2=redis-server --peer valkey-9.1=valkey-server";

    #[test]
    fn readme_needs_its_peers() {
        assert!(parse(&format!("--readme README.md {README_PEERS}")).is_ok());
        let problem = parse("--readme README.md --peer redis-8.2=redis-server").unwrap_err().to_string();
        assert_eq!(problem, "--readme compares with valkey-9.1: add --peer valkey-9.1");
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
            ("--peer valkey", "NAME=PATH"),
            ("--peer valkey", "redis-8.2"),
            ("--repetitions 0", "above 0"),
            ("--subject", "needs a value"),
            ("--bless", "--instructions"),
            ("--fast", "--fast"),
            ("--check --repetitions none", "above 0"),
            ("--quick --doc", "leave out --quick"),
            ("--readme README.md", "--peer redis-8.2"),
            ("--peer a=/no/such/server", "no such program"),
            ("--peer a=b --peer a=c", "another server has this name"),
            ("--peer millstream=b", "another server has this name"),
            ("--json /no/such/folder/x.json", "folder /no/such/folder does not exist"),
            ("--instructions --only speed/", "counts all"),
        ] {
            let text = parse(line).unwrap_err().to_string();
            assert!(text.contains(part), "{line}: {text}");
        }
    }
}
