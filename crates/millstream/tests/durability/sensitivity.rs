//! Tests of the checker itself, on servers without a fault. It finds nothing in a correct state, and it finds every
//! kind of damage that the ledger does not explain.

use std::time::Duration;

use crate::campaign::{Campaign, Place};
use crate::check::Violation;
use crate::ledger::{GROUP, Op, PAIR, RING, WORK};
use crate::reply;
use crate::state::State;
use crate::subject::{Policy, Subject};
use crate::support::peers::REDIS_7_0;
use crate::support::process;
use crate::support::wire::Client;

/// One kind of damage, and the finding that it must cause.
struct Damage {
    description: &'static str,
    expected: Violation,
    inflict: fn(&mut Client, &State),
}

const DAMAGES: [Damage; 11] = [
    Damage {
        description: "an entry is deleted",
        expected: Violation::Lost,
        inflict: |client, state| {
            let id = state.streams[WORK[0]].entries.keys().last().expect("an entry").to_string();
            client.call(&["XDEL", WORK[0], &id]);
        },
    },
    Damage {
        description: "an entry that no client wrote",
        expected: Violation::Invented,
        inflict: |client, _| {
            client.call(&["XADD", WORK[0], "*", "producer", "0", "number", "1", "sum", "0", "body", "x"]);
        },
    },
    Damage {
        description: "a key that no client wrote",
        expected: Violation::Invented,
        inflict: |client, _| {
            client.call(&["SET", "foreign", "1"]);
        },
    },
    Damage {
        description: "half a transaction",
        expected: Violation::Torn,
        inflict: |client, state| {
            let id = state.streams[PAIR[1]].entries.keys().last().expect("an entry").to_string();
            client.call(&["XDEL", PAIR[1], &id]);
        },
    },
    Damage {
        description: "an XADD without its trim",
        expected: Violation::Torn,
        inflict: |client, state| {
            let id = state.streams[RING].entries.keys().next().expect("an entry").to_string();
            client.call(&["XDEL", RING, &id]);
        },
    },
    Damage {
        description: "a pending entry is lost",
        expected: Violation::Lost,
        inflict: |client, state| {
            let (id, _) = pending(state).expect("a pending entry");
            client.call(&["XACK", WORK[0], GROUP, &id]);
        },
    },
    Damage {
        description: "an acknowledged entry is pending again",
        expected: Violation::CameBack,
        inflict: |client, state| {
            let id = acknowledged(state).expect("an acknowledged entry");
            client.call(&["XCLAIM", WORK[0], GROUP, "alice", "0", &id, "FORCE", "JUSTID"]);
        },
    },
    Damage {
        description: "a pending entry of an unknown consumer",
        expected: Violation::Owner,
        inflict: |client, state| {
            let (id, _) = pending(state).expect("a pending entry");
            client.call(&["XCLAIM", WORK[0], GROUP, "mallory", "0", &id, "JUSTID"]);
        },
    },
    Damage {
        description: "a delivery that was not counted",
        expected: Violation::Count,
        inflict: |client, state| {
            let (id, owner) = pending(state).expect("a pending entry");
            client.call(&["XCLAIM", WORK[0], GROUP, &owner, "0", &id, "RETRYCOUNT", "0", "JUSTID"]);
        },
    },
    Damage {
        description: "a delivery time before the time of the entry",
        expected: Violation::Count,
        inflict: |client, state| {
            let (id, owner) = pending(state).expect("a pending entry");
            client.call(&["XCLAIM", WORK[0], GROUP, &owner, "0", &id, "TIME", "1", "JUSTID"]);
        },
    },
    Damage {
        description: "the group's position moved back",
        expected: Violation::WentBack,
        inflict: |client, _| {
            client.call(&["XGROUP", "SETID", WORK[0], GROUP, "0"]);
        },
    },
];

/// Returns a pending entry and its consumer.
fn pending(state: &State) -> Option<(String, String)> {
    let group = state.streams[WORK[0]].group.as_ref()?;
    // A claim may drop the pending row of a deleted entry, so such rows are not used.
    let entries = &state.streams[WORK[0]].entries;
    let (id, row) = group.pending.iter().find(|(id, _)| entries.contains_key(id))?;
    Some((id.to_string(), row.consumer.clone()))
}

/// Returns an entry that was delivered and acknowledged.
fn acknowledged(state: &State) -> Option<String> {
    let group = state.streams[WORK[0]].group.as_ref()?;
    let mut delivered = state.streams[WORK[0]].entries.keys().take_while(|id| **id <= group.last_delivered);
    delivered.find(|id| !group.pending.contains_key(id)).map(ToString::to_string)
}

/// Whether the state has data for every kind of damage.
fn has_enough_data(state: &State) -> bool {
    let has_two = |key: &str| state.streams[key].entries.len() > 1;
    pending(state).is_some() && acknowledged(state).is_some() && has_two(RING) && has_two(PAIR[1])
}

#[test]
fn checker_finds_every_kind_of_damage_on_redis() {
    let Some(_turn) = crate::redis_turn() else { return };
    check_damages(process::ServerKind::Peer(&REDIS_7_0));
}

#[test]
fn checker_finds_every_kind_of_damage_on_millstream() {
    let Some(_turn) = crate::millstream_turn() else { return };
    check_damages(process::ServerKind::Millstream);
}

fn check_damages(kind: process::ServerKind) {
    let subject = Subject { kind, policy: Policy::No };
    for (number, damage) in DAMAGES.iter().enumerate() {
        let (mut campaign, ops, sound) = loaded_campaign(subject, crate::seed() + number as u64);
        let mut client = campaign.running.client();
        let fault = campaign.no_fault();
        let before = campaign.findings(&ops, fault, &sound);
        assert_eq!(before, [], "{subject} before any damage");
        (damage.inflict)(&mut client, &sound);
        assert_eq!(reply::text(&client.call(&["PING"])), Some(&b"PONG"[..]));
        let found = State::read(&mut client);
        let fault = campaign.no_fault();
        let findings = campaign.findings(&ops, fault, &found);
        assert!(
            findings.iter().any(|finding| finding.kind == damage.expected),
            "{subject}, {}: expected {:?}, found {findings:?}",
            damage.description,
            damage.expected
        );
    }
}

/// Runs a campaign until its state has enough data, which takes longer on a busy machine.
fn loaded_campaign(subject: Subject, seed: u64) -> (Campaign, Vec<Op>, State) {
    let mut time = Duration::from_millis(200);
    loop {
        let mut campaign = Campaign::new(subject, seed, Place::Folder);
        let ops = load_for(&mut campaign, time);
        let state = State::read(&mut campaign.running.client());
        if has_enough_data(&state) {
            return (campaign, ops, state);
        }
        time *= 2;
        assert!(time < Duration::from_secs(60), "{subject}: the clients write too little: {state:?}");
    }
}

/// Runs the load for a time and stops it, so that every command gets a reply.
fn load_for(campaign: &mut Campaign, time: Duration) -> Vec<Op> {
    let load = campaign.load();
    std::thread::sleep(time);
    load.stop();
    load.join()
}
