//! Runs every file of `conformance/` against Millstream and the real servers (`support/peers.rs`), in both protocols.
//!
//! Each run prints the number of cases that passed. `docs/conformance.md` lists which server confirms which case.
//! `MILLSTREAM_CASES=xadd,blocking` runs only the files whose names contain one of these words.
//! `MILLSTREAM_BLESS=1` fills in blank replies (`?`) and rewrites `docs/conformance.md`.

mod case;
mod listing;
mod pattern;
mod record;
mod run;
#[expect(dead_code, reason = "other suites use the rest")]
#[path = "../support/mod.rs"]
mod support;
mod text;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use case::CaseFile;
use pattern::Protocol;
use run::Runner;
use support::peers::{Peer, REDIS_6_2, REDIS_7_0, REDIS_8_2, VALKEY_9_1};
use support::process::Server;

#[test]
fn millstream_passes_every_case() {
    in_parallel(&[&|| run_all(Server::millstream(&[]), Protocol::Resp2), &|| {
        run_all(Server::millstream(&[]), Protocol::Resp3)
    }]);
}

#[test]
fn redis_6_2_passes_its_cases() {
    confirm(&REDIS_6_2);
}

#[test]
fn redis_7_0_passes_its_cases() {
    confirm(&REDIS_7_0);
}

#[test]
fn redis_8_2_passes_its_cases() {
    confirm(&REDIS_8_2);
}

#[test]
fn valkey_9_1_passes_its_cases() {
    confirm(&VALKEY_9_1);
}

#[test]
fn no_case_has_a_blank_reply() {
    for file in files() {
        let blanks = record::blanks(&file);
        if blanks.is_empty() {
            continue;
        }
        assert!(blesses(), "{}:{} has a blank reply", file.path.display(), blanks[0]);
        let runner = |protocol| Runner::new(Server::peer(&REDIS_8_2), protocol);
        record::fill(&file, &mut runner(Protocol::Resp2), &mut runner(Protocol::Resp3));
    }
}

#[test]
fn conformance_page_is_up_to_date() {
    let path = repository().join("docs/conformance.md");
    let page = listing::page(&case::read_all(&folder()));
    if blesses() {
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("create docs/");
        std::fs::write(&path, &page).expect("write the page");
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(written == page, "docs/conformance.md is out of date: run this test with MILLSTREAM_BLESS=1");
}

/// Runs all cases that apply to a real server, and checks that it fails those that exclude it.
fn confirm(peer: &'static Peer) {
    if Server::compares_with_real_servers() {
        in_parallel(&[
            &|| run_all(Server::peer(peer), Protocol::Resp2),
            &|| run_all(Server::peer(peer), Protocol::Resp3),
            &|| check_exclusions(peer),
        ]);
    }
}

/// Runs each function on a thread of its own, because cases spend most of their time waiting.
fn in_parallel(runs: &[&(dyn Fn() + Sync)]) {
    std::thread::scope(|scope| {
        let threads: Vec<_> = runs.iter().map(|run| scope.spawn(run)).collect();
        let failed = threads.into_iter().filter_map(|thread| thread.join().err()).count();
        assert!(failed == 0, "{failed} of {} runs failed, see above", runs.len());
    });
}

/// Runs the cases that apply to this server and prints every failure, not only the first.
fn run_all(server: Server, protocol: Protocol) {
    let mut runner = Runner::new(server, protocol);
    let (mut passed, mut failed, mut skipped) = (0, 0, 0);
    for file in files() {
        for case in &file.cases {
            if !runner.runs(case) {
                skipped += 1;
                continue;
            }
            match runner.run(case) {
                Ok(()) => passed += 1,
                Err(failure) => {
                    failed += 1;
                    let file = file.path.file_name().unwrap_or_default().to_string_lossy();
                    eprintln!("{file}:{}: {}{}", failure.line, case.name, failure.message);
                }
            }
        }
    }
    // Written to stderr directly, so that the test harness does not capture the counts.
    let _ = writeln!(
        std::io::stderr(),
        "{} in {protocol:?}: {passed} cases passed, {failed} failed, {skipped} skipped",
        runner.title()
    );
    assert!(failed == 0, "{failed} of {} cases failed", passed + failed);
    assert!(passed > 0, "no case ran");
}

/// An exclusion is wrong if the excluded server passes the case this many times in a row.
const TRIES_PER_EXCLUSION: u32 = 6;

/// Asserts that a server fails every case that it skips. Otherwise the directive is wrong, and the page lists too few
/// confirmations.
fn check_exclusions(peer: &'static Peer) {
    let mut runners = [Protocol::Resp2, Protocol::Resp3].map(|protocol| {
        let mut runner = Runner::new(Server::peer(peer), protocol);
        runner.reply_timeout = Duration::from_millis(300);
        runner
    });
    let mut needless = Vec::new();
    for file in files() {
        for case in file.cases.iter().filter(|case| !case.runs_on(peer)) {
            let runner = &mut runners[usize::from(case.resp == Some(3))];
            // A server can pass by chance: Redis 6.2 passes one case if it happens to expire a key in time.
            if (0..TRIES_PER_EXCLUSION).all(|_| runner.run(case).is_ok()) {
                needless.push(format!("{}:{}: {}", file.path.display(), case.line, case.name));
            }
        }
    }
    assert!(
        needless.is_empty(),
        "{} passes these cases, although they exclude it:\n{}",
        peer.title,
        needless.join("\n")
    );
}

fn files() -> Vec<CaseFile> {
    let wanted = std::env::var("MILLSTREAM_CASES").unwrap_or_default();
    let is_wanted = |file: &CaseFile| {
        let path = file.path.to_string_lossy();
        wanted.is_empty() || wanted.split(',').any(|word| path.contains(word))
    };
    case::read_all(&folder()).into_iter().filter(is_wanted).collect()
}

fn blesses() -> bool {
    std::env::var_os("MILLSTREAM_BLESS").is_some()
}

fn folder() -> PathBuf {
    repository().join("conformance")
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}
