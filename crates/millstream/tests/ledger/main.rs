//! Crash tests of workers: whatever happens to workers, connections and servers, no message is lost, and none is
//! handled twice without a cause.
//!
//! Producers and pools of real worker processes run on a store. Worker processes kill themselves at every step of a
//! message. The supervisor kills, stops and drains processes, kills the server, and cuts, stalls and half-opens
//! connections. Some messages fail, panic, hang, or kill their handler's process. All processes record what happens
//! in one [journal]. At the end it is compared with the content of the store, and the [account] must be balanced.
//!
//! ```text
//! campaign ── managed: worker and producer processes ── proxy ── store
//!     │              │ recording, steps                         │
//!     └── journal <──┘                       snapshot <─────────┘
//!            └──> runs, cause ──> account <──────┘
//! ```
//!
//! One campaign has no workers, but plain clients that only read and acknowledge: see [plain]. Other campaigns have
//! workers that own their streams and handle messages in order: see [order]. `MILLSTREAM_ORDER_SECONDS` sets their
//! length, and includes those that take minutes. `MILLSTREAM_ORDER_MISTAKES` includes campaigns of workers with
//! mistakes, which the account must find.
//!
//! `MILLSTREAM_LEDGER_PEER=valkey-9.1` uses this server instead of Redis 7.0 (`support/peers.rs` has the names).
//! `MILLSTREAM_LEDGER_MESSAGES` and `MILLSTREAM_LEDGER_SECONDS` set the length, `MILLSTREAM_SEED` the seed, and
//! `MILLSTREAM_LEDGER_OUT` a file to which the accounts are appended. `scripts/ledger` publishes a long run, one
//! campaign at a time. Short campaigns mostly wait, so they can run at the same time.

mod account;
mod campaign;
mod cause;
mod cluster;
mod faults;
mod journal;
mod kind;
mod managed;
mod order;
mod plain;
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
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use account::Account;
use campaign::{Campaign, Size};
use managed::Program;
use order::account::OrderAccount;
use order::{OrderPlan, Ownership};
use recording::Mistake;
use role::Role;
use store::StoreKind;
use support::peers::{PEERS, REDIS_7_0, VALKEY_9_1};
use support::process::Server;

/// Number of messages of an ordinary run.
const MESSAGES: u64 = 200;
/// Approximate sending time of an ordinary run.
const SECONDS: u64 = 8;
/// The same of an ordinary run with plain clients.
const PLAIN_MESSAGES: u64 = 120;
const PLAIN_SECONDS: u64 = 3;
/// Time in which an ordinary run of workers that own their streams injects faults.
const ORDER_TIME: Duration = Duration::from_secs(11);
/// Number of messages per second for them.
const ORDER_RATE: u64 = 400;
/// Seed of an ordinary run.
const SEED: u64 = 1;

/// Handler for `millstream work --exec`: does the same as [`process`], in a shell.
const SCRIPT: &str = r#"
record() { printf '\n%s %s:exec %s %s %s .\n' "$(date +%s%3N)" "$WORKER" "$1" "$MILLSTREAM_ID" "$MILLSTREAM_ATTEMPT" >> "$JOURNAL"; }
record begin
[ ! -e "$OUTAGE" ] || { record failed; exit 75; }
case $MILLSTREAM_FIELD_KIND in
    slow) sleep 2 ;;
    stuck) [ "$MILLSTREAM_ATTEMPT" != 1 ] || { kill -STOP "$WORKER"; sleep 2; kill -CONT "$WORKER"; } ;;
    flaky) [ "$MILLSTREAM_ATTEMPT" != 1 ] || { record failed; exit 75; } ;;
    failing) record failed; exit 75 ;;
    panicking) record failed; kill -ABRT $$ ;;
    rejected) record failed; exit 65 ;;
    killing | exiting) kill -KILL "$WORKER"; exit 75 ;;
    *) sleep 0.0$((MILLSTREAM_FIELD_N % 10)) ;;
esac
record done
"#;

#[test]
fn no_message_is_lost_on_millstream() {
    check("millstream", StoreKind::Millstream, Program::Crate);
}

#[test]
fn no_message_is_lost_on_redis() {
    if Server::compares_with_real_servers() {
        let name = std::env::var("MILLSTREAM_LEDGER_PEER").unwrap_or(REDIS_7_0.name.to_owned());
        let peer = PEERS.into_iter().find(|peer| peer.name == name);
        let peer = peer.unwrap_or_else(|| panic!("MILLSTREAM_LEDGER_PEER: unknown server {name}"));
        check(peer.title, StoreKind::Peer(peer), Program::Crate);
    }
}

#[test]
fn no_message_is_lost_on_a_cluster() {
    if Server::compares_with_real_servers() {
        check("cluster", StoreKind::Cluster(&REDIS_7_0), Program::Crate);
    }
}

#[test]
fn no_message_is_lost_in_an_embedded_store() {
    check("embedded", StoreKind::Embedded, Program::Crate);
}

/// The same with `millstream work --exec` as the worker.
#[test]
fn no_message_is_lost_with_exec_commands() {
    let script = std::env::temp_dir().join(format!("millstream-ledger-{}.sh", std::process::id()));
    std::fs::write(&script, SCRIPT).expect("write the script");
    check("work --exec", StoreKind::Millstream, Program::Command(script.clone()));
    // An error is ignored: the file is in the temporary folder.
    let _ = std::fs::remove_file(script);
}

/// Clients that only read and acknowledge, in a group with a policy.
#[test]
fn no_message_is_lost_with_plain_clients() {
    let size = Size {
        messages: setting("MILLSTREAM_LEDGER_MESSAGES", PLAIN_MESSAGES),
        time: Duration::from_secs(setting("MILLSTREAM_LEDGER_SECONDS", PLAIN_SECONDS)),
    };
    let folder = new_folder("plain clients");
    let began = Instant::now();
    let account = plain::run(seed(), size, &folder);
    let took = began.elapsed();
    let result = format!("plain clients, seed {}, {took:.0?}: {account}", seed());
    // Written to stderr directly, so that the test harness does not capture the numbers.
    let _ = writeln!(std::io::stderr(), "{result}");
    publish("plain clients", took, account.to_json());
    assert!(account.violations.is_empty(), "{result}see {}", folder.display());
    assert!(
        account.kills > 0 && account.done > 0 && account.dead > 0 && account.promoted > 0,
        "the campaign did too little: {result}"
    );
    // A failed test keeps its folder for the investigation.
    let _ = std::fs::remove_dir_all(&folder);
}

/// Workers share the partitions of a stream on a cluster, while workers are killed, frozen and drained.
#[test]
fn order_holds_on_a_cluster() {
    if Server::compares_with_real_servers() {
        let plan = order_plan(StoreKind::Cluster(&REDIS_7_0), Ownership::Partitions);
        check_order("cluster", OrderPlan { time: long_order().unwrap_or(ORDER_TIME), ..plan });
    }
}

/// The same while slots move, replicas take over, and primaries die.
#[test]
fn order_holds_on_a_cluster_that_changes() {
    check_long_order(
        "Redis 7.0.15, cluster that changes",
        StoreKind::Replicated(&REDIS_7_0),
        Ownership::Partitions,
    );
}

#[test]
fn order_holds_on_a_valkey_cluster_that_changes() {
    check_long_order(
        "Valkey 9.1.2, cluster that changes",
        StoreKind::Replicated(&VALKEY_9_1),
        Ownership::Partitions,
    );
}

/// One worker owns a plain stream, and the others stand by.
#[test]
fn order_holds_with_one_owner_on_redis() {
    check_long_order("Redis 7.0.15, one stream", StoreKind::Peer(&REDIS_7_0), Ownership::ByKey);
}

#[test]
fn order_holds_with_one_owner_on_valkey() {
    check_long_order("Valkey 9.1.2, one stream", StoreKind::Peer(&VALKEY_9_1), Ownership::ByKey);
}

#[test]
fn order_holds_with_one_owner_on_millstream() {
    check_long_order("millstream, one stream", StoreKind::Millstream, Ownership::ByKey);
}

#[test]
fn order_holds_with_one_owner_without_keys() {
    check_long_order("millstream, one stream without keys", StoreKind::Millstream, Ownership::Exclusive);
}

/// Shows that the account detects owners that do not learn that they have lost their stream.
#[test]
fn the_ledger_detects_reads_without_a_fence() {
    detect(Mistake::ReadsWithoutFence, |account| account.too_early + account.twice > 0);
}

/// Shows that the account detects owners that do not wait for messages which back off since before their time.
#[test]
fn the_ledger_detects_messages_left_behind_at_a_take_over() {
    detect(Mistake::LeavesBackOffsBehind, |account| account.too_early > 0);
}

/// Shows that the ledger detects losses: workers that acknowledge too early lose messages.
#[test]
fn the_ledger_detects_early_acknowledgements() {
    let size = Size { messages: 120, time: Duration::from_secs(4) };
    let (account, _, folder) = run(
        "early acknowledgements",
        StoreKind::Millstream,
        Program::Mistaken(Mistake::AcknowledgesEarly),
        size,
    );
    assert!(account.lost > 0, "{account}see {}", folder.display());
    // A failed test keeps its folder for the investigation.
    let _ = std::fs::remove_dir_all(&folder);
}

/// Not a test: the code that the processes of the other tests run.
#[test]
#[ignore = "a process of the other tests"]
fn run_role_of_a_campaign() {
    if let Some(role) = Role::of_this_process() {
        process::run(&role);
    }
}

/// How long campaigns inject faults that take minutes. `None` if they are left out.
fn long_order() -> Option<Duration> {
    let seconds = setting("MILLSTREAM_ORDER_SECONDS", 0);
    (seconds > 0).then(|| Duration::from_secs(seconds))
}

fn order_plan(kind: StoreKind, ownership: Ownership) -> OrderPlan {
    OrderPlan {
        kind,
        ownership,
        mistake: None,
        seed: seed(),
        time: ORDER_TIME,
        // Without keys, one handler runs at a time.
        rate: if ownership == Ownership::Exclusive { ORDER_RATE / 4 } else { ORDER_RATE },
        // While a cluster changes, its pauses are measured.
        has_step_deaths: !matches!(kind, StoreKind::Replicated(_)),
    }
}

fn check_long_order(title: &str, kind: StoreKind, ownership: Ownership) {
    if let Some(time) = long_order() {
        check_order(title, OrderPlan { time, ..order_plan(kind, ownership) });
    }
}

fn check_order(title: &str, plan: OrderPlan) {
    let (account, folder) = run_order(title, plan);
    let folder = folder.display();
    assert!(account.violations.is_empty(), "{account}see {folder}");
    assert!(account.warnings.is_empty(), "{account}see {folder}");
    assert_eq!((account.lost, account.good_dead), (0, 0), "{account}see {folder}");
    let figures = &account.figures;
    assert!(
        account.done > 0 && account.dead > 0 && figures.crash.count() > 0 && figures.drain.count() > 0,
        "the campaign did too little: {account}see {folder}"
    );
    // A failed test keeps its folder for the investigation.
    let _ = std::fs::remove_dir_all(folder.to_string());
}

fn run_order(title: &str, plan: OrderPlan) -> (OrderAccount, PathBuf) {
    let folder = new_folder(&format!("order {title}"));
    let began = Instant::now();
    let account = order::run(plan, &folder);
    let took = began.elapsed();
    // Written to stderr directly, so that the test harness does not capture the numbers.
    let _ = writeln!(std::io::stderr(), "order, {title}, seed {}, {took:.0?}: {account}", plan.seed);
    publish(&format!("order: {title}"), took, account.to_json());
    (account, folder)
}

/// Runs workers with a mistake until the account finds it.
fn detect(mistake: Mistake, is_found: impl Fn(&OrderAccount) -> bool) {
    if std::env::var_os("MILLSTREAM_ORDER_MISTAKES").is_none() {
        return;
    }
    let plan = order_plan(StoreKind::Millstream, Ownership::ByKey);
    let found = (1..=10).any(|seed| {
        let time = Duration::from_secs(30);
        let plan = OrderPlan { mistake: Some(mistake), seed, time, ..plan };
        let (account, folder) = run_order(mistake.name(), plan);
        let _ = std::fs::remove_dir_all(folder);
        is_found(&account)
    });
    assert!(found, "{mistake:?} was not found");
}

fn check(title: &str, kind: StoreKind, program: Program) {
    let size = Size {
        messages: setting("MILLSTREAM_LEDGER_MESSAGES", MESSAGES),
        time: Duration::from_secs(setting("MILLSTREAM_LEDGER_SECONDS", SECONDS)),
    };
    let (account, took, folder) = run(title, kind, program, size);
    let result = format!("{title}, seed {}, {took:.0?}: {account}", seed());
    // Written to stderr directly, so that the test harness does not capture the numbers.
    let _ = writeln!(std::io::stderr(), "{result}");
    publish(title, took, account.to_json());
    assert!(account.violations.is_empty(), "{result}see {}", folder.display());
    assert_eq!((account.lost, account.good_dead), (0, 0), "{result}see {}", folder.display());
    assert!(
        account.kills > 0 && account.done > 0 && account.dead > 0,
        "the campaign did too little: {result}"
    );
    // A failed test keeps its folder for the investigation.
    let _ = std::fs::remove_dir_all(&folder);
}

fn run(title: &str, kind: StoreKind, program: Program, size: Size) -> (Account, Duration, PathBuf) {
    let folder = new_folder(title);
    let began = Instant::now();
    let account = Campaign::run(kind, program, seed(), size, &folder);
    (account, began.elapsed(), folder)
}

fn seed() -> u64 {
    setting("MILLSTREAM_SEED", SEED)
}

fn publish(title: &str, took: Duration, mut row: Value) {
    let Ok(path) = std::env::var("MILLSTREAM_LEDGER_OUT") else { return };
    row["store"] = json!(title);
    row["seed"] = json!(seed());
    row["seconds"] = json!(took.as_secs());
    let mut file = OpenOptions::new().create(true).append(true).open(&path).expect("open the results");
    writeln!(file, "{row}").expect("write the account");
}

fn setting(name: &str, default: u64) -> u64 {
    match std::env::var(name) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{name} is not a number: {text}")),
        Err(_) => default,
    }
}

fn new_folder(title: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!(
        "millstream-ledger-{}-{}",
        title.replace(' ', "-"),
        std::process::id()
    ));
    // An earlier process with the same id may have left its folder behind.
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).expect("create a folder for the campaign");
    folder
}
