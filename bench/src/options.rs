//! What the command line asks for.

use std::path::PathBuf;

use crate::{Failure, memory, workload};

const HELP: &str = "\
Millstream beside redis-server, under the same load.

usage: scripts/bench [options]

  --quick               fewer operations and repetitions: under two minutes
  --workload NAME       only this one (may be repeated; --list names them)
  --repetitions N       how often each workload runs on each server (7; with --quick 3)
  --subject PATH        the server to judge (the release build of this repository)
  --peer NAME=PATH      a server to compare with (redis=redis-server; may be repeated)
  --out DIR             where results.json and table.md go (target/bench)
  --readme FILE         also replace the table between the bench marks of this file
  --list                print the workloads and stop
  --help                print this and stop
";

/// A server program and what the tables call it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Program {
    pub(crate) name: String,
    pub(crate) path: String,
}

/// The command line, understood.
#[derive(Debug, PartialEq)]
pub(crate) struct Options {
    pub(crate) quick: bool,
    pub(crate) repetitions: usize,
    pub(crate) subject: Program,
    pub(crate) peers: Vec<Program>,
    pub(crate) out: PathBuf,
    pub(crate) readme: Option<PathBuf>,
    workloads: Vec<String>,
}

impl Options {
    /// `None`: the question is answered (`--help`, `--list`) and there is nothing to run.
    pub(crate) fn from_args(args: impl Iterator<Item = String>) -> Result<Option<Options>, Failure> {
        let mut args = args;
        let (mut quick, mut repetitions, mut readme) = (false, None, None);
        let (mut peers, mut workloads) = (Vec::new(), Vec::new());
        let mut subject = "target/release/millstream".to_owned();
        let mut out = PathBuf::from("target/bench");
        while let Some(flag) = args.next() {
            let mut value = || args.next().ok_or_else(|| format!("{flag} needs a value"));
            match flag.as_str() {
                "--quick" => quick = true,
                "--workload" => workloads.push(known_workload(value()?)?),
                "--repetitions" => repetitions = Some(parse_repetitions(&value()?)?),
                "--subject" => subject = value()?,
                "--peer" => peers.push(parse_peer(&value()?)?),
                "--out" => out = value()?.into(),
                "--readme" => readme = Some(value()?.into()),
                "--list" => return print_and_stop(&list()),
                "--help" | "-h" => return print_and_stop(HELP),
                _ => return Err(format!("unknown option {flag}; --help lists them").into()),
            }
        }
        if peers.is_empty() {
            peers.push(Program { name: "redis".into(), path: "redis-server".into() });
        }
        let subject = Program { name: "millstream".into(), path: subject };
        let repetitions = repetitions.unwrap_or(if quick { 3 } else { 7 });
        Ok(Some(Options { quick, repetitions, subject, peers, out, readme, workloads }))
    }

    /// Whether this workload was asked for; without `--workload` all are.
    pub(crate) fn wants(&self, name: &str) -> bool {
        self.workloads.is_empty() || self.workloads.iter().any(|w| w == name)
    }

    /// The subject first, then its peers.
    pub(crate) fn servers(&self) -> Vec<Program> {
        std::iter::once(&self.subject).chain(&self.peers).cloned().collect()
    }
}

fn print_and_stop(text: &str) -> Result<Option<Options>, Failure> {
    print!("{text}");
    Ok(None)
}

fn names() -> impl Iterator<Item = (&'static str, &'static str)> {
    let speed = workload::WORKLOADS.iter().map(|w| (w.name, w.title));
    speed.chain(memory::MEASURES.iter().map(|m| (m.name, m.title)))
}

fn list() -> String {
    names().map(|(name, title)| format!("{name:<22} {title}\n")).collect()
}

fn known_workload(name: String) -> Result<String, Failure> {
    match names().any(|(known, _)| known == name) {
        true => Ok(name),
        false => Err(format!("no workload is called {name}; --list names them").into()),
    }
}

fn parse_repetitions(text: &str) -> Result<usize, Failure> {
    text.parse()
        .ok()
        .filter(|&n| n > 0)
        .ok_or_else(|| format!("--repetitions {text}: not a number above 0").into())
}

fn parse_peer(text: &str) -> Result<Program, Failure> {
    match text.split_once('=') {
        Some((name, path)) if !name.is_empty() && !path.is_empty() => {
            Ok(Program { name: name.into(), path: path.into() })
        }
        _ => Err(format!("--peer {text}: write it as NAME=PATH").into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Option<Options>, Failure> {
        Options::from_args(line.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn redis_is_the_peer_unless_others_are_named() {
        let plain = parse("").unwrap().unwrap();
        assert_eq!(plain.peers, [Program { name: "redis".into(), path: "redis-server".into() }]);
        assert_eq!(plain.repetitions, 7);
        let named = parse("--quick --peer valkey=/opt/valkey-server").unwrap().unwrap();
        assert_eq!(named.peers, [Program { name: "valkey".into(), path: "/opt/valkey-server".into() }]);
        assert_eq!(named.repetitions, 3);
    }

    #[test]
    fn a_chosen_workload_excludes_the_others() {
        let options = parse("--workload xadd-p16").unwrap().unwrap();
        assert!(options.wants("xadd-p16"));
        assert!(!options.wants("xadd-p1"));
    }

    #[test]
    fn mistakes_are_named() {
        for (line, part) in [
            ("--workload nonsense", "nonsense"),
            ("--peer valkey", "NAME=PATH"),
            ("--repetitions 0", "above 0"),
            ("--subject", "needs a value"),
            ("--fast", "--fast"),
        ] {
            let text = parse(line).unwrap_err().to_string();
            assert!(text.contains(part), "{line}: {text}");
        }
    }
}
