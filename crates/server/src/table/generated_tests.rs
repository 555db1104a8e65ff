//! Runs every command with random requests that are generated from its syntax line, some of them invalid.
//!
//! Every supported command must accept some of its requests. A failure prints its seed. The fuzzer (fuzz/) runs the
//! same requests in sequences, and checks that no command panics.

use std::sync::Arc;

use millstream_protocol::commands::{Xread, Xreadgroup};
use millstream_protocol::errors;
use millstream_protocol::resp::Writer;
use millstream_store::Txn;

use super::generate::{Choices, NAMES, request};
use super::tests::{NOW_MS, empty_store, run};
use super::*;
use crate::command::{self, Group, Reply, Run, only_stream};
use crate::fuzzing::CommandRunner;

const SEEDS: u64 = 400;
/// Number of requests after which the test data is created again.
const FILL_EVERY: u64 = 50;

#[test]
fn every_command_accepts_some_generated_requests() {
    for spec in COMMANDS.iter().filter(|spec| matches!(spec.run, Run::Data(_)) && !is_container(spec)) {
        let store = empty_store();
        let mut txn = store.lock_all(0, NOW_MS);
        let mut accepted = 0;
        for seed in 0..SEEDS {
            if seed.is_multiple_of(FILL_EVERY) {
                fill(&mut txn, spec.group);
            }
            let argv = request(&mut Choices::seeded(seed), spec);
            let argv: Vec<&[u8]> = argv.iter().map(Vec::as_slice).collect();
            match run(&mut txn, &mut Writer::new(false), &argv) {
                Ok(_) => accepted += 1,
                Err(error) => assert!(!error.as_bytes().contains(&b'\n'), "{}: seed {seed}", spec.name),
            }
        }
        assert_eq!(accepted > 0, !is_unsupported(spec), "{}: {accepted} requests accepted", spec.name);
    }
}

/// The fuzzer runs many more, checks the replies, and guides the requests by coverage.
#[test]
fn sequences_of_generated_requests_do_not_panic() {
    for seed in 0..200 {
        let mut runner = CommandRunner::new(Arc::new(empty_store()), 2);
        let mut choices = Choices::seeded(seed);
        for round in 0..20 {
            let requests: Vec<_> = (0..3).map(|_| CommandRunner::request(&mut choices)).collect();
            let replies = runner.run(round % 2, &requests);
            assert!(replies.is_empty() || replies.ends_with(b"\r\n"), "seed {seed}: {requests:?}");
        }
    }
}

/// To lock the keys of XREAD and XREADGROUP, the server finds them without parsing the request. Both ways must find the
/// same keys.
#[test]
fn locked_keys_of_a_read_are_the_keys_it_reads() {
    let (mut compared, mut with_one_stream) = (0, 0);
    for spec in COMMANDS.iter().filter(|spec| matches!(spec.name, "xread" | "xreadgroup")) {
        for seed in 0..SEEDS * 5 {
            let argv = request(&mut Choices::seeded(seed), spec);
            let argv: Vec<&[u8]> = argv.iter().map(Vec::as_slice).collect();
            let read = match spec.name {
                "xread" => Xread::parse(&argv).map(|read| read.streams.keys),
                _ => Xreadgroup::parse(&argv).map(|read| read.streams.keys),
            };
            let Ok(read) = read else { continue };
            let found = command::keys(spec, &argv).unwrap_or_else(|error| panic!("seed {seed}: {error:?}"));
            let found: Vec<&[u8]> = found.iter().map(|(key, _)| *key).collect();
            assert_eq!(found, read, "seed {seed}");
            if let Some(key) = only_stream(&argv) {
                assert_eq!(read, [key], "seed {seed}");
                with_one_stream += 1;
            }
            compared += 1;
        }
    }
    assert!(compared > 200 && with_one_stream > 50, "{compared} compared, {with_one_stream} with one stream");
}

fn is_container(spec: &CommandSpec) -> bool {
    !subcommands(spec).is_empty() && spec.name != "command"
}

/// Creates every key that the requests use, with a value of the type that the commands of `group` expect.
fn fill(txn: &mut Txn<'_>, group: Group) {
    fn ask(txn: &mut Txn<'_>, words: &[&[u8]]) -> Reply {
        run(txn, &mut Writer::new(false), words)
    }
    txn.flush_all();
    for key in NAMES {
        match group {
            Group::Stream => {
                ask(txn, &[b"XADD", key, b"1-1", b"f", b"v"]).unwrap();
                ask(txn, &[b"XADD", key, b"5-0", b"f", b"v"]).unwrap();
                for group in NAMES {
                    ask(txn, &[b"XGROUP", b"CREATE", key, group, b"0"]).unwrap();
                    for consumer in &NAMES[..2] {
                        ask(txn, &[b"XGROUP", b"CREATECONSUMER", key, group, consumer]).unwrap();
                    }
                }
            }
            Group::Hash => drop(ask(txn, &[b"HSET", key, b"s", b"5", b"t", b"5"]).unwrap()),
            Group::List => drop(ask(txn, &[b"RPUSH", key, b"a", b"b"]).unwrap()),
            Group::Set => drop(ask(txn, &[b"SADD", key, b"s"]).unwrap()),
            _ => drop(ask(txn, &[b"SET", key, b"5"]).unwrap()),
        }
    }
}

/// Returns whether a command always fails because the server does not support it.
fn is_unsupported(spec: &CommandSpec) -> bool {
    let unsupported = [
        errors::NO_SCRIPTING,
        errors::NO_SCRIPT,
        errors::NO_FUNCTION,
        errors::NO_FUNCTIONS,
        errors::NO_LIBRARY,
        errors::NOT_BUSY,
        errors::NO_CLUSTER,
        errors::CONFIG_REWRITE,
    ];
    let Run::Data(run) = spec.run else { return false };
    let store = empty_store();
    let mut txn = store.lock_all(0, NOW_MS);
    run(&mut txn, &mut Writer::new(false), &[]).is_err_and(|error| unsupported.contains(&error))
}
