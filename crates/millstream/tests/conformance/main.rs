//! Every file of `conformance/` against Millstream and against the real servers (`support/peers.rs`), in both protocols.
//!
//! Each run tells how many cases hold; `docs/conformance.md` tells which server confirms which.
//! `MILLSTREAM_CASES=xadd,blocking` runs only the files whose names hold one of these words.
//! `MILLSTREAM_BLESS=1` fills in replies left blank (`?`) and rewrites `docs/conformance.md`.

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
use run::Stage;
use support::peers::{Peer, REDIS_6_2, REDIS_7_0, REDIS_8_2, VALKEY_9_1};
use support::process::Server;

#[test]
fn millstream_answers() {
    all_at_once(&[&|| run_all(Server::millstream(&[]), Protocol::Resp2), &|| {
        run_all(Server::millstream(&[]), Protocol::Resp3)
    }]);
}

#[test]
fn redis_6_2_confirms() {
    confirm(&REDIS_6_2);
}

#[test]
fn redis_7_0_confirms() {
    confirm(&REDIS_7_0);
}

#[test]
fn redis_8_2_confirms() {
    confirm(&REDIS_8_2);
}

#[test]
fn valkey_9_1_confirms() {
    confirm(&VALKEY_9_1);
}

#[test]
fn no_reply_is_left_blank() {
    for file in files() {
        let blanks = record::blanks(&file);
        if blanks.is_empty() {
            continue;
        }
        assert!(blessing(), "{}:{} has no reply yet", file.path.display(), blanks[0]);
        let stage = |protocol| Stage::new(Server::peer(&REDIS_8_2), protocol);
        record::fill(&file, &mut stage(Protocol::Resp2), &mut stage(Protocol::Resp3));
    }
}

#[test]
fn the_page_of_differences_is_up_to_date() {
    let path = repository().join("docs/conformance.md");
    let page = listing::page(&case::read_all(&folder()));
    if blessing() {
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("create docs/");
        std::fs::write(&path, &page).expect("write the page");
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(written == page, "docs/conformance.md is old: run this test with MILLSTREAM_BLESS=1");
}

/// Asks a real server all that concerns it, and sees that it fails the rest.
fn confirm(peer: &'static Peer) {
    if Server::reference_is_wanted() {
        all_at_once(&[
            &|| run_all(Server::peer(peer), Protocol::Resp2),
            &|| run_all(Server::peer(peer), Protocol::Resp3),
            &|| check_marks(peer),
        ]);
    }
}

/// Each on a thread of its own: most of the time cases wait.
fn all_at_once(runs: &[&(dyn Fn() + Sync)]) {
    std::thread::scope(|scope| {
        let threads: Vec<_> = runs.iter().map(|run| scope.spawn(run)).collect();
        let failed = threads.into_iter().filter_map(|thread| thread.join().err()).count();
        assert!(failed == 0, "{failed} of {} runs failed, see above", runs.len());
    });
}

/// Runs what concerns this server and tells every case that failed, not only the first.
fn run_all(server: Server, protocol: Protocol) {
    let mut stage = Stage::new(server, protocol);
    let (mut passed, mut failed, mut not_asked) = (0, 0, 0);
    for file in files() {
        for case in &file.cases {
            if !stage.concerns(case) {
                not_asked += 1;
                continue;
            }
            match stage.run(case) {
                Ok(()) => passed += 1,
                Err(failure) => {
                    failed += 1;
                    let file = file.path.file_name().unwrap_or_default().to_string_lossy();
                    eprintln!("{file}:{}: {}{}", failure.line, case.name, failure.message);
                }
            }
        }
    }
    // Past the capture of the test harness: the figures are for people.
    let _ = writeln!(
        std::io::stderr(),
        "{} in {protocol:?}: {passed} cases hold, {failed} fail, {not_asked} are not asked",
        stage.title()
    );
    assert!(failed == 0, "{failed} of {} cases failed", passed + failed);
    assert!(passed > 0, "no case ran");
}

/// A mark is needless if a server that is not asked passes the case this many times in a row.
const TRIES_OF_A_MARK: u32 = 6;

/// A server that is not asked because it is older, or answers in another way, must fail the case. Otherwise the mark is wrong,
/// and the page lists fewer confirmations than there are.
fn check_marks(peer: &'static Peer) {
    let mut stages = [Protocol::Resp2, Protocol::Resp3].map(|protocol| {
        let mut stage = Stage::new(Server::peer(peer), protocol);
        stage.patience = Duration::from_millis(300);
        stage
    });
    let mut needless = Vec::new();
    for file in files() {
        for case in file.cases.iter().filter(|case| !case.asks(peer)) {
            let stage = &mut stages[usize::from(case.resp == Some(3))];
            // Once may be by chance: Redis 6.2 answers one case this way if it happens to expire a key in time.
            if (0..TRIES_OF_A_MARK).all(|_| stage.run(case).is_ok()) {
                needless.push(format!("{}:{}: {}", file.path.display(), case.line, case.name));
            }
        }
    }
    assert!(needless.is_empty(), "{} answers as these cases say:\n{}", peer.title, needless.join("\n"));
}

fn files() -> Vec<CaseFile> {
    let wanted = std::env::var("MILLSTREAM_CASES").unwrap_or_default();
    let is_wanted = |file: &CaseFile| {
        let path = file.path.to_string_lossy();
        wanted.is_empty() || wanted.split(',').any(|word| path.contains(word))
    };
    case::read_all(&folder()).into_iter().filter(is_wanted).collect()
}

fn blessing() -> bool {
    std::env::var_os("MILLSTREAM_BLESS").is_some()
}

fn folder() -> PathBuf {
    repository().join("conformance")
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}
