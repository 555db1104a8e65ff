//! The checker itself, on servers that run without any fault: it finds nothing in what they hold, and it finds each
//! kind of damage that is done behind the ledger's back.

use std::time::Duration;

use crate::campaign::{Campaign, Place};
use crate::check::Kind;
use crate::ledger::{GROUP, Op, PAIR, RING, WORK};
use crate::reply;
use crate::state::State;
use crate::subject::{Policy, Subject};
use crate::support::peers::REDIS_7_0;
use crate::support::process;
use crate::support::wire::Client;

/// One kind of damage, and how it must be called.
struct Damage {
    what: &'static str,
    expected: Kind,
    work: fn(&mut Client, &State),
}

const DAMAGES: [Damage; 11] = [
    Damage {
        what: "an entry is gone",
        expected: Kind::Lost,
        work: |client, state| {
            let id = state.streams[WORK[0]].entries.keys().last().expect("an entry").to_string();
            client.call(&["XDEL", WORK[0], &id]);
        },
    },
    Damage {
        what: "an entry nobody wrote",
        expected: Kind::Invented,
        work: |client, _| {
            client.call(&["XADD", WORK[0], "*", "producer", "0", "number", "1", "sum", "0", "body", "x"]);
        },
    },
    Damage {
        what: "a key nobody wrote",
        expected: Kind::Invented,
        work: |client, _| {
            client.call(&["SET", "stranger", "1"]);
        },
    },
    Damage {
        what: "half a transaction",
        expected: Kind::Torn,
        work: |client, state| {
            let id = state.streams[PAIR[1]].entries.keys().last().expect("an entry").to_string();
            client.call(&["XDEL", PAIR[1], &id]);
        },
    },
    Damage {
        what: "an XADD without its trimming",
        expected: Kind::Torn,
        work: |client, state| {
            let id = state.streams[RING].entries.keys().next().expect("an entry").to_string();
            client.call(&["XDEL", RING, &id]);
        },
    },
    Damage {
        what: "a delivery is forgotten",
        expected: Kind::Lost,
        work: |client, state| {
            let (id, _) = pending(state).expect("a pending entry");
            client.call(&["XACK", WORK[0], GROUP, &id]);
        },
    },
    Damage {
        what: "an acknowledged entry is pending again",
        expected: Kind::CameBack,
        work: |client, state| {
            let id = settled(state).expect("an acknowledged entry");
            client.call(&["XCLAIM", WORK[0], GROUP, "alice", "0", &id, "FORCE", "JUSTID"]);
        },
    },
    Damage {
        what: "a pending entry in a stranger's hands",
        expected: Kind::Owner,
        work: |client, state| {
            let (id, _) = pending(state).expect("a pending entry");
            client.call(&["XCLAIM", WORK[0], GROUP, "mallory", "0", &id, "JUSTID"]);
        },
    },
    Damage {
        what: "a delivery that was not counted",
        expected: Kind::Count,
        work: |client, state| {
            let (id, owner) = pending(state).expect("a pending entry");
            client.call(&["XCLAIM", WORK[0], GROUP, &owner, "0", &id, "RETRYCOUNT", "0", "JUSTID"]);
        },
    },
    Damage {
        what: "a delivery from before its entry was written",
        expected: Kind::Count,
        work: |client, state| {
            let (id, owner) = pending(state).expect("a pending entry");
            client.call(&["XCLAIM", WORK[0], GROUP, &owner, "0", &id, "TIME", "1", "JUSTID"]);
        },
    },
    Damage {
        what: "the group fell back",
        expected: Kind::WentBack,
        work: |client, _| {
            client.call(&["XGROUP", "SETID", WORK[0], GROUP, "0"]);
        },
    },
];

/// An entry that is pending, and with whom.
fn pending(state: &State) -> Option<(String, String)> {
    let group = state.streams[WORK[0]].group.as_ref()?;
    // A claim may drop a pending entry that is deleted, so those prove nothing.
    let entries = &state.streams[WORK[0]].entries;
    let (id, row) = group.pending.iter().find(|(id, _)| entries.contains_key(id))?;
    Some((id.to_string(), row.consumer.clone()))
}

/// An entry that was delivered and acknowledged.
fn settled(state: &State) -> Option<String> {
    let group = state.streams[WORK[0]].group.as_ref()?;
    let mut delivered = state.streams[WORK[0]].entries.keys().take_while(|id| **id <= group.last_delivered);
    delivered.find(|id| !group.pending.contains_key(id)).map(ToString::to_string)
}

/// Whether there is something for every damage to be done to.
fn is_rich(state: &State) -> bool {
    let has_two = |key: &str| state.streams[key].entries.len() > 1;
    pending(state).is_some() && settled(state).is_some() && has_two(RING) && has_two(PAIR[1])
}

#[test]
fn damage_behind_the_ledgers_back_is_found_on_redis() {
    let Some(_turn) = crate::redis_turn() else { return };
    damage_is_found(process::Kind::Peer(&REDIS_7_0));
}

#[test]
fn damage_behind_the_ledgers_back_is_found_on_millstream() {
    let Some(_turn) = crate::millstream_turn() else { return };
    damage_is_found(process::Kind::Millstream);
}

fn damage_is_found(kind: process::Kind) {
    let subject = Subject { kind, policy: Policy::No };
    for (number, damage) in DAMAGES.iter().enumerate() {
        let (mut campaign, ops, sound) = loaded(subject, crate::seed() + number as u64);
        let mut client = campaign.running.client();
        let fault = campaign.no_fault();
        let before = campaign.findings(&ops, fault, &sound);
        assert_eq!(before, [], "{subject} before any damage");
        (damage.work)(&mut client, &sound);
        assert_eq!(reply::text(&client.call(&["PING"])), Some(&b"PONG"[..]));
        let found = State::read(&mut client);
        let fault = campaign.no_fault();
        let findings = campaign.findings(&ops, fault, &found);
        assert!(
            findings.iter().any(|finding| finding.kind == damage.expected),
            "{subject}, {}: expected {:?}, found {findings:?}",
            damage.what,
            damage.expected
        );
    }
}

/// A campaign whose clients came far enough, which takes longer on a busy machine.
fn loaded(subject: Subject, seed: u64) -> (Campaign, Vec<Op>, State) {
    let mut time = Duration::from_millis(200);
    loop {
        let mut campaign = Campaign::new(subject, seed, Place::Folder);
        let ops = load_for(&mut campaign, time);
        let state = State::read(&mut campaign.running.client());
        if is_rich(&state) {
            return (campaign, ops, state);
        }
        time *= 2;
        assert!(time < Duration::from_secs(60), "{subject}: the clients get nowhere: {state:?}");
    }
}

/// Runs the clients and lets them end in peace: every command is answered.
fn load_for(campaign: &mut Campaign, time: Duration) -> Vec<Op> {
    let load = campaign.load();
    std::thread::sleep(time);
    load.stop();
    load.join()
}
