//! Sends seeded random command sequences to Millstream and to a real server (Redis 7.0, Redis 8.2, Valkey 9.1) and
//! compares the replies byte for byte.
//!
//! `MILLSTREAM_DIFF_SEEDS=20000` sets the number of sequences, `MILLSTREAM_DIFF_FIRST=123` the first seed. A failure
//! prints the values that reproduce it, and the shortest sequence that still fails.

mod companions;
mod compare;
mod generate;
mod mutate;
mod play;
mod random;
mod script;
mod shrink;
mod streams;
#[expect(dead_code, reason = "other suites use the rest")]
#[path = "../support/mod.rs"]
mod support;

use compare::{Difference, difference};
use play::Target;
use script::{Script, Step, argv, listing};
use support::peers::{Peer, REDIS_7_0, REDIS_8_2, VALKEY_9_1};
use support::process::{Server, ServerKind};

/// Number of sequences in an ordinary run on Redis 7.0. The other servers get fewer.
const SEEDS: u64 = 1500;
/// Number of failing sequences after which a run stops.
const MAX_REPORTS: usize = 5;
/// Number of sequences that check the comparison itself, with the same server on both sides.
const SELF_TEST_SEEDS: u64 = 40;

#[test]
fn millstream_replies_like_redis_7_0() {
    compare_with(&REDIS_7_0, SEEDS);
}

#[test]
fn millstream_replies_like_redis_8_2() {
    compare_with(&REDIS_8_2, SEEDS / 3);
}

#[test]
fn millstream_replies_like_valkey_9_1() {
    compare_with(&VALKEY_9_1, SEEDS / 5);
}

fn compare_with(peer: &'static Peer, seeds: u64) {
    if !Server::compares_with_real_servers() {
        return;
    }
    let mut pair = Pair::new(peer, ServerKind::Millstream);
    let first = number("MILLSTREAM_DIFF_FIRST").unwrap_or(1);
    let count = number("MILLSTREAM_DIFF_SEEDS").unwrap_or(seeds);
    let reports: Vec<String> =
        (first..first + count).filter_map(|seed| pair.report(seed)).take(MAX_REPORTS).collect();
    assert!(reports.is_empty(), "{}", reports.join("\n\n"));
}

#[test]
fn each_server_replies_like_itself() {
    if !Server::compares_with_real_servers() {
        return;
    }
    for peer in [&REDIS_7_0, &REDIS_8_2, &VALKEY_9_1] {
        let mut pair = Pair::new(peer, ServerKind::Peer(peer));
        for seed in 1..=number("MILLSTREAM_DIFF_SELF_SEEDS").unwrap_or(SELF_TEST_SEEDS) {
            if let Some(report) = pair.report(seed) {
                panic!("{report}");
            }
        }
    }
}

/// One of two equal servers gets a smaller block size. The comparison must find the difference, and shrink the
/// sequence.
#[test]
fn a_planted_difference_is_found_and_shrunk() {
    if !Server::compares_with_real_servers() {
        return;
    }
    let mut pair = Pair::new(&REDIS_7_0, ServerKind::Peer(&REDIS_7_0));
    pair.changed_setting = Some(("stream-node-max-bytes", "60"));
    let script = |seed| generate::script(seed, &REDIS_7_0);
    let seed = (1..200).find(|&seed| pair.differ(&script(seed)).is_some()).expect("a difference");
    let shortest = pair.shortest(&script(seed));
    assert!(pair.differ(&shortest).is_some(), "the shortest sequence does not differ any more");
    assert!(shortest.steps.len() <= 25, "{} steps remain:\n{}", shortest.steps.len(), listing(&shortest));
    pair.changed_setting = None;
    assert!(pair.differ(&shortest).is_none(), "the sequence differs without the changed setting");
}

#[test]
fn shrinking_keeps_only_the_necessary_steps() {
    let step = |word: &str| Step { connection: 0, commands: vec![argv(&[word])], flush: true };
    let words: Vec<String> = (0..100).map(|number| number.to_string()).collect();
    let steps = words.iter().map(|word| step(word)).collect();
    let script = Script { resp3: false, lag_is_comparable: false, knows_activity: false, steps };
    let needed = [step("17"), step("60"), step("61")];
    let shortest = shrink::shrink(&script, |script| needed.iter().all(|step| script.steps.contains(step)));
    assert_eq!(shortest.steps, needed);
}

#[test]
fn a_seed_always_generates_the_same_sequence() {
    assert_eq!(generate::script(7, &REDIS_7_0), generate::script(7, &REDIS_7_0));
    assert_ne!(generate::script(7, &REDIS_7_0), generate::script(8, &REDIS_7_0));
}

#[test]
fn sequences_use_only_commands_of_the_server() {
    let is_named = |script: &Script, name| {
        let mut commands = script.steps.iter().flat_map(|step| &step.commands);
        commands.any(|command| script::is_named(command, name))
    };
    for name in ["XDELEX", "XACKDEL"] {
        let any = |peer| (1..50).any(|seed| is_named(&generate::script(seed, peer), name));
        assert!(any(&REDIS_8_2) && !any(&REDIS_7_0) && !any(&VALKEY_9_1), "{name}");
    }
}

/// Two servers that run the same sequences.
struct Pair {
    /// The server on the left, which determines the commands.
    peer: &'static Peer,
    left: Target,
    right: Target,
    /// A setting that is changed on the right only.
    changed_setting: Option<(&'static str, &'static str)>,
}

impl Pair {
    fn new(peer: &'static Peer, right: ServerKind) -> Pair {
        Pair {
            peer,
            left: Target::new(ServerKind::Peer(peer)),
            right: Target::new(right),
            changed_setting: None,
        }
    }

    fn differ(&mut self, script: &Script) -> Option<Difference> {
        self.left.reset();
        self.right.reset();
        if let Some((name, value)) = self.changed_setting {
            self.right.set(name, value);
        }
        let (left, right) = (self.left.play(script), self.right.play(script));
        let (left_survived, right_survived) = (self.left.survived(), self.right.survived());
        if !left_survived {
            // Random commands sometimes crash Redis itself. That is not a fault of Millstream.
            eprintln!("the reference crashed on a sequence of {} steps", script.steps.len());
            return None;
        }
        if !right_survived {
            return Some(Difference::crash());
        }
        difference(&left, &right, script)
    }

    fn shortest(&mut self, script: &Script) -> Script {
        shrink::shrink(script, |shorter| self.differ(shorter).is_some())
    }

    /// Describes the difference that a seed finds, with the shortest sequence that shows it.
    fn report(&mut self, seed: u64) -> Option<String> {
        let script = generate::script(seed, self.peer);
        self.differ(&script)?;
        let shortest = self.shortest(&script);
        let difference = self.differ(&shortest).or_else(|| self.differ(&script))?;
        Some(format!(
            "seed {seed} differs (MILLSTREAM_DIFF_FIRST={seed} MILLSTREAM_DIFF_SEEDS=1), RESP{}\n{}\n\
             differs at  {}\n  {:<14} {}\n  tested         {}",
            if script.resp3 { 3 } else { 2 },
            listing(&shortest),
            difference.command,
            self.peer.title,
            difference.left,
            difference.right,
        ))
    }
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|value| value.parse().unwrap_or_else(|_| panic!("{name} must be a number")))
}
