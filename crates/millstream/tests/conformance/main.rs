//! Every file of `conformance/` against Millstream and against a real `redis-server`, in both protocols.
//!
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

use std::path::{Path, PathBuf};

use case::CaseFile;
use pattern::Protocol;
use run::Stage;
use support::process::Server;

#[test]
fn millstream_answers_in_resp2() {
    run_all(Server::millstream(&[]), Protocol::Resp2);
}

#[test]
fn millstream_answers_in_resp3() {
    run_all(Server::millstream(&[]), Protocol::Resp3);
}

#[test]
fn the_reference_answers_in_resp2() {
    if let Some(server) = Server::redis(&[]) {
        run_all(server, Protocol::Resp2);
    }
}

#[test]
fn the_reference_answers_in_resp3() {
    if let Some(server) = Server::redis(&[]) {
        run_all(server, Protocol::Resp3);
    }
}

#[test]
fn no_reply_is_left_blank() {
    for file in files() {
        let blanks = record::blanks(&file);
        if blanks.is_empty() {
            continue;
        }
        assert!(blessing(), "{}:{} has no reply yet", file.path.display(), blanks[0]);
        let stage =
            |protocol| Stage::new(Server::redis(&[]).expect("a reference to fill in blanks"), protocol);
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

/// Runs what concerns this server and tells every case that failed, not only the first.
fn run_all(server: Server, protocol: Protocol) {
    let mut stage = Stage::new(server, protocol);
    let (mut passed, mut failed) = (0, 0);
    for file in files() {
        for case in &file.cases {
            if !stage.concerns(case) {
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
    assert!(failed == 0, "{failed} of {} cases failed", passed + failed);
    assert!(passed > 0, "no case ran");
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
