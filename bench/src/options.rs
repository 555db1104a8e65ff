//! What the command line asks for.

use std::path::{Path, PathBuf};

use crate::Failure;
use crate::topics::{self, Topic};

const HELP: &str = "\
Millstream beside redis-server and others, under the same load.

usage: scripts/bench [options]

  --quick               small sizes and fewer repetitions: under two minutes
  --only PATTERN        only what has this in its name, * for anything (may be repeated; --list names all)
  --repetitions N       how often each workload runs on each server (5; with --quick 2)
  --subject PATH        the server to judge (the release build of this repository); a debug build shows only that all of this works
  --peer NAME           a server to compare with, beside redis, the redis-server of this machine (7.0.15 on Debian 12): redis-6.2, redis-8.2
                        or valkey-9.1, which scripts/peers installs (may be repeated). Without this option redis-8.2 and valkey-9.1,
                        with --quick none of them; --peer redis: redis alone
  --peer NAME=PATH      any other program (redis=PATH is another redis-server)
  --peer NAME=HOST:PORT the same, running already: keys that begin with bench: are used and removed
  --out DIR             where results.json, table.md and the servers' data go (target/bench)
  --json FILE           also write the results here
  --doc                 also write docs/benchmarks.md and its plots; a table of which any row was not measured stays as it is there
  --readme FILE         also replace the table between the bench marks of this file, when all of its rows were measured
  --instructions        instead: count the instructions of the hottest operations, compare with bench/instructions.txt (--subject:
                        of this server, not of one built for it)
  --bless               with --instructions: keep these counts
  --check               see whether the other options make sense and stop
  --list                print the names and stop
  --help                print this and stop
";

/// A server and what the tables call it.
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

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Task {
    Measure,
    /// Count instructions and compare; `bless` keeps the counts instead. Of the subject, which is built first unless it was given.
    CountInstructions {
        bless: bool,
        build: bool,
    },
}

/// The command line, understood.
#[derive(Debug, PartialEq)]
pub(crate) struct Options {
    pub(crate) task: Task,
    pub(crate) quick: bool,
    pub(crate) repetitions: usize,
    pub(crate) subject: Program,
    pub(crate) peers: Vec<Program>,
    pub(crate) out: PathBuf,
    pub(crate) json: Option<PathBuf>,
    pub(crate) readme: Option<PathBuf>,
    pub(crate) doc: bool,
    only: Vec<String>,
}

impl Options {
    /// `None`: the question is answered (`--help`, `--list`) and there is nothing to run.
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
                "--out" => options.out = value()?.into(),
                "--json" => options.json = Some(value()?.into()),
                "--readme" => options.readme = Some(value()?.into()),
                "--doc" => options.doc = true,
                "--instructions" => instructions = true,
                "--bless" => bless = true,
                "--check" => check = true,
                "--list" => return print_and_stop(&list()),
                "--help" | "-h" => return print_and_stop(HELP),
                _ => return Err(format!("unknown option {flag}; --help lists them").into()),
            }
        }
        if !options.peers.iter().any(|peer| peer.name == "redis") {
            options.peers.insert(0, parse_peer("redis")?);
        }
        check_names(&options.servers())?;
        check_folder(options.json.as_deref())?;
        if bless && !instructions {
            return Err("--bless goes with --instructions".into());
        }
        if instructions && !options.only.is_empty() {
            return Err("--only chooses what is measured; --instructions counts all operations".into());
        }
        if instructions {
            options.task = Task::CountInstructions { bless, build: subject.is_none() };
            subject = subject.or_else(|| Some(counted_server()));
        }
        if let Some(path) = subject {
            options.subject.place = Place::Path(path);
        }
        if options.is_debug_build() && (options.doc || options.readme.is_some()) {
            return Err(
                "figures of a debug build are no figures to publish: --doc and --readme need a release build"
                    .into(),
            );
        }
        if options.quick && (options.doc || options.readme.is_some()) {
            return Err(
                "--quick measures small sizes, which is nothing to publish: leave out --doc and --readme"
                    .into(),
            );
        }
        options.repetitions = repetitions.unwrap_or(if options.quick { 2 } else { 5 });
        Ok((!check).then_some(options))
    }

    /// Whether this row was asked for; without `--only` all are.
    pub(crate) fn wants(&self, topic: &str, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|pattern| matches(pattern, &full_name(topic, name)))
    }

    /// Whether nothing was left out by `--only`.
    pub(crate) fn wants_all(&self) -> bool {
        self.only.is_empty()
    }

    /// Whether any row of the topic was asked for.
    pub(crate) fn wants_any_of(&self, topic: &Topic) -> bool {
        topic.rows().iter().any(|(name, _)| self.wants(topic.name, name))
    }

    /// Whether the subject was built without optimisation: cargo's folder says so.
    pub(crate) fn is_debug_build(&self) -> bool {
        match &self.subject.place {
            Place::Path(path) => path.iter().any(|part| part == "debug"),
            Place::Address(_) => false,
        }
    }

    /// The subject first, then its peers.
    pub(crate) fn servers(&self) -> Vec<Program> {
        std::iter::once(&self.subject).chain(&self.peers).cloned().collect()
    }

    /// Those that can be started, for what needs a server of its own.
    pub(crate) fn startable(&self) -> Vec<Program> {
        self.servers().into_iter().filter(|server| matches!(server.place, Place::Path(_))).collect()
    }

    /// How often to repeat what needs minutes of preparation.
    pub(crate) fn heavy_repetitions(&self) -> usize {
        self.repetitions.div_ceil(3)
    }

    /// The first in a full run, the second with `--quick`.
    pub(crate) fn sized<T>(&self, full: T, quick: T) -> T {
        if self.quick { quick } else { full }
    }
}

/// An example of the server crate: as optimised as the whole binary, and built in a fraction of its time.
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
        false => Err(format!("nothing has {pattern} in its name; --list names all").into()),
    }
}

/// Whether the parts of the pattern between its stars stand in the name, in their order.
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
        .ok_or_else(|| format!("--repetitions {text}: not a number above 0").into())
}

/// The servers that `scripts/peers` installs, and their programs.
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
                Err(format!("--peer {name}: there is no {}; scripts/peers installs it", path.display())
                    .into())
            }
        };
    }
    match text.split_once('=') {
        Some((name, place)) if !name.is_empty() && !place.is_empty() => {
            let place = parse_place(place);
            // A name without a folder is looked for when it is started.
            if let Place::Path(path) = &place
                && path.iter().count() > 1
                && !path.is_file()
            {
                return Err(format!("--peer {text}: there is no such program").into());
            }
            Ok(Program { name: name.into(), place })
        }
        _ => {
            let names = INSTALLED.map(|(name, _)| name).join(", ");
            Err(format!("--peer {text}: write it as NAME=PATH or NAME=HOST:PORT, or name one of {names}")
                .into())
        }
    }
}

/// The tables tell servers apart by their names.
fn check_names(servers: &[Program]) -> Result<(), Failure> {
    for (at, server) in servers.iter().enumerate() {
        if servers[..at].iter().any(|other| other.name == server.name) {
            return Err(format!("--peer {}=…: there is another server of this name", server.name).into());
        }
    }
    Ok(())
}

/// Before anything is measured: afterwards it would be too late to say so.
fn check_folder(file: Option<&Path>) -> Result<(), Failure> {
    let Some(folder) = file.and_then(Path::parent) else { return Ok(()) };
    match folder.as_os_str().is_empty() || folder.is_dir() {
        true => Ok(()),
        false => Err(format!("--json: there is no folder {}", folder.display()).into()),
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
    fn redis_is_a_peer_and_others_join_it() {
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

    /// They need not be installed where the tests run; then the message says how they are.
    #[test]
    fn servers_that_a_script_installs_are_known_by_name() {
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
    fn a_pattern_chooses_by_parts_of_names() {
        let options = parsed("--only xadd*p16 --only memory/");
        assert!(options.wants("speed", "xadd-short-p16"));
        assert!(!options.wants("speed", "xadd-short-p1"));
        assert!(options.wants("memory", "short"));
        assert!(parsed("").wants("anything", "at all"));
    }

    #[test]
    fn counting_instructions_is_another_task() {
        assert_eq!(parsed("").task, Task::Measure);
        let plain = parsed("--instructions");
        assert_eq!(plain.task, Task::CountInstructions { bless: false, build: true });
        assert_eq!(plain.subject.place, Place::Path(counted_server()));
        let given = parsed("--bless --instructions --subject here");
        assert_eq!(given.task, Task::CountInstructions { bless: true, build: false });
        assert_eq!(given.subject.place, Place::Path("here".into()));
    }

    #[test]
    fn a_debug_build_is_known_by_its_folder_and_never_published() {
        assert!(parsed("--subject target/debug/millstream").is_debug_build());
        assert!(!parsed("--subject target/release/millstream").is_debug_build());
        for publish in ["--doc", "--readme README.md"] {
            assert!(parse(&format!("--subject target/release/millstream {publish}")).is_ok());
            let problem =
                parse(&format!("{publish} --subject target/debug/millstream")).unwrap_err().to_string();
            assert!(problem.contains("release build"), "{problem}");
        }
    }

    #[test]
    fn options_can_be_checked_before_anything_is_built() {
        assert_eq!(parse("--check --only speed/").unwrap(), None);
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
    fn mistakes_are_named() {
        for (line, part) in [
            ("--only nonsense", "nonsense"),
            ("--peer valkey", "NAME=PATH"),
            ("--peer valkey", "redis-8.2"),
            ("--repetitions 0", "above 0"),
            ("--subject", "needs a value"),
            ("--bless", "--instructions"),
            ("--fast", "--fast"),
            ("--check --repetitions none", "above 0"),
            ("--quick --doc", "publish"),
            ("--peer a=/no/such/server", "no such program"),
            ("--peer a=b --peer a=c", "another server of this name"),
            ("--peer millstream=b", "another server of this name"),
            ("--json /no/such/folder/x.json", "no folder /no/such/folder"),
            ("--instructions --only speed/", "counts all"),
        ] {
            let text = parse(line).unwrap_err().to_string();
            assert!(text.contains(part), "{line}: {text}");
        }
    }
}
