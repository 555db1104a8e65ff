//! The ledger: whatever happens to workers, connections and servers, no message is lost, and none is done twice without
//! a cause.
//!
//! Producers and pools of real worker processes run on a store. Workers end themselves at every step of a message's way;
//! the supervisor kills, stops and drains processes, kills the server, and cuts, holds up and half-opens connections. Some
//! messages fail, panic, hang, or kill whoever handles them. Everybody writes what happens into one [journal]; in the end it
//! is held against what the store says, and the [account] must come out.
//!
//! ```text
//! campaign ── crew: worker and producer processes ── proxy ── store
//!     │              │ recording, steps                         │
//!     └── journal <──┘                       snapshot <─────────┘
//!            └──> runs, cause ──> account <──────┘
//! ```
//!
//! `MILLSTREAM_LEDGER_PEER=valkey-9.1` takes this server instead of Redis 7.0 (`support/peers.rs` has the names).
//! `MILLSTREAM_LEDGER_MESSAGES` and `MILLSTREAM_LEDGER_SECONDS` make it longer, `MILLSTREAM_SEED` is the seed, and
//! `MILLSTREAM_LEDGER_OUT` a file to which the accounts are appended. `scripts/ledger` publishes a long one.

mod account;
mod campaign;
mod cause;
mod crew;
mod faults;
mod journal;
mod kind;
mod process;
mod proxy;
#[expect(dead_code, reason = "other suites use the rest")]
#[path = "../differential/random.rs"]
mod random;
mod recording;
mod role;
mod runs;
mod sensitivity;
mod snapshot;
mod steps;
mod store;
#[expect(dead_code, reason = "other suites use the rest")]
#[path = "../support/mod.rs"]
mod support;

use std::fs::OpenOptions;
use std::io::Write;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use account::Account;
use campaign::{Campaign, Size};
use crew::Program;
use role::Role;
use support::peers::{PEERS, REDIS_7_0};
use support::process::Server;

/// An ordinary run.
const MESSAGES: u64 = 240;
const SECONDS: u64 = 10;
const SEED: u64 = 1;

/// A message for `millstream work --exec`: as [`process`] handles it, in a shell.
const SCRIPT: &str = r#"
say() { printf '\n%s %s:exec %s %s %s .\n' "$(date +%s%3N)" "$WORKER" "$1" "$MILLSTREAM_ID" "$MILLSTREAM_ATTEMPT" >> "$JOURNAL"; }
say begin
case $MILLSTREAM_FIELD_KIND in
    slow) sleep 2 ;;
    stuck) [ "$MILLSTREAM_ATTEMPT" != 1 ] || { kill -STOP "$WORKER"; sleep 2; kill -CONT "$WORKER"; } ;;
    flaky) [ "$MILLSTREAM_ATTEMPT" != 1 ] || exit 75 ;;
    failing) exit 75 ;;
    panicking) kill -ABRT $$ ;;
    rejected) exit 65 ;;
    killing | exiting) kill -KILL "$WORKER"; exit 75 ;;
    *) sleep 0.0$((MILLSTREAM_FIELD_N % 10)) ;;
esac
say done
"#;

#[test]
fn nothing_is_lost_on_millstreams_server() {
    check("millstream", store::Kind::Millstream, Program::Crate);
}

#[test]
fn nothing_is_lost_on_a_redis_server() {
    if Server::reference_is_wanted() {
        let name = std::env::var("MILLSTREAM_LEDGER_PEER").unwrap_or(REDIS_7_0.name.to_owned());
        let peer = PEERS.into_iter().find(|peer| peer.name == name);
        let peer = peer.unwrap_or_else(|| panic!("MILLSTREAM_LEDGER_PEER: there is no server {name}"));
        check(peer.title, store::Kind::Peer(peer), Program::Crate);
    }
}

#[test]
fn nothing_is_lost_in_an_embedded_store() {
    check("embedded", store::Kind::Embedded, Program::Crate);
}

/// The same with workers in a shell.
#[test]
fn nothing_is_lost_by_commands() {
    let script = std::env::temp_dir().join(format!("millstream-ledger-{}.sh", std::process::id()));
    std::fs::write(&script, SCRIPT).expect("write the script");
    check("work --exec", store::Kind::Millstream, Program::Command(script.clone()));
    // If it stays, nobody minds.
    let _ = std::fs::remove_file(script);
}

/// The ledger can see losses: workers that acknowledge too early have some.
#[test]
fn acknowledging_too_early_is_found() {
    let size = Size { messages: 120, time: Duration::from_secs(4) };
    let (account, _, folder) = run("hasty", store::Kind::Millstream, Program::Hasty, size);
    assert!(account.lost > 0, "{account}see {}", folder.display());
    // Only a folder that nobody needs to look at goes.
    let _ = std::fs::remove_dir_all(&folder);
}

/// Not a test: what the processes of the others run.
#[test]
#[ignore = "a process of the other tests"]
fn process_of_a_campaign() {
    if let Some(role) = Role::of_this_process() {
        process::play(&role);
    }
}

fn check(title: &str, kind: store::Kind, program: Program) {
    let size = Size {
        messages: setting("MILLSTREAM_LEDGER_MESSAGES", MESSAGES),
        time: Duration::from_secs(setting("MILLSTREAM_LEDGER_SECONDS", SECONDS)),
    };
    let (account, took, folder) = run(title, kind, program, size);
    let told = format!("{title}, seed {}, {took:.0?}: {account}", seed());
    // Past the capture of the test harness: the figures are for people.
    let _ = writeln!(std::io::stderr(), "{told}");
    publish(title, took, &account);
    assert!(account.violations.is_empty(), "{told}see {}", folder.display());
    assert_eq!(account.lost, 0, "{told}see {}", folder.display());
    assert!(account.kills > 0 && account.done > 0 && account.dead > 0, "nothing happened: {told}");
    // Only a folder that nobody needs to look at goes.
    let _ = std::fs::remove_dir_all(&folder);
}

fn run(title: &str, kind: store::Kind, program: Program, size: Size) -> (Account, Duration, PathBuf) {
    // One campaign at a time: each fills the machine.
    static TURN: Mutex<()> = Mutex::new(());
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = new_folder(title);
    let began = Instant::now();
    let account = Campaign::run(kind, program, seed(), size, &folder);
    (account, began.elapsed(), folder)
}

fn seed() -> u64 {
    setting("MILLSTREAM_SEED", SEED)
}

fn publish(title: &str, took: Duration, account: &Account) {
    let Ok(path) = std::env::var("MILLSTREAM_LEDGER_OUT") else { return };
    let mut row: Value = account.to_json();
    row["store"] = json!(title);
    row["seed"] = json!(seed());
    row["seconds"] = json!(took.as_secs());
    let mut file =
        OpenOptions::new().create(true).append(true).open(&path).expect("open the table of accounts");
    writeln!(file, "{row}").expect("write the account");
}

fn setting(name: &str, otherwise: u64) -> u64 {
    match std::env::var(name) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{name} is no number: {text}")),
        Err(_) => otherwise,
    }
}

fn new_folder(title: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!(
        "millstream-ledger-{}-{}",
        title.replace(' ', "-"),
        std::process::id()
    ));
    // One of an earlier process with our number is of no use to anyone.
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).expect("make a folder for the campaign");
    folder
}
