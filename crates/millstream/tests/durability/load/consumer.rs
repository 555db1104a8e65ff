//! Clients that read through the group: new entries, and their own pending entries again. They also
//! claim entries of other consumers, and acknowledge some entries.

use super::{Actor, Stopped, share};
use crate::entry::Id;
use crate::ledger::{Action, GROUP, Seen, WORK};
use crate::reply;

/// Reads, acknowledges and claims until the client stops.
pub(super) fn consume(actor: &mut Actor, name: &'static str) -> Stopped {
    loop {
        let done = actor.pause(2500).and_then(|()| match actor.random.below(100) {
            0..55 => read_new(actor, name),
            55..62 => read_again(actor, name),
            62..74 => claim(actor, name),
            74..78 => claim_any(actor, name),
            _ => acknowledge(actor),
        });
        if let Err(stopped) = done {
            return stopped;
        }
    }
}

fn read_new(actor: &mut Actor, name: &'static str) -> Result<(), Stopped> {
    let count = actor.random.between(1, 8).to_string();
    let command = [
        "XREADGROUP",
        "GROUP",
        GROUP,
        name,
        "COUNT",
        &count,
        "BLOCK",
        "20",
        "STREAMS",
        WORK[0],
        WORK[1],
        ">",
        ">",
    ];
    let (value, at) = actor.call(&command, Action::Deliver { consumer: name, got: Vec::new() })?;
    let entries = reply::seen_in_streams(&WORK, &value);
    share(&actor.shared.delivered, entries.iter().map(|seen| (seen.key, seen.id)));
    if let Action::Deliver { got, .. } = &mut actor.ops[at].action {
        *got = entries;
    }
    Ok(())
}

fn read_again(actor: &mut Actor, name: &'static str) -> Result<(), Stopped> {
    let key = WORK[actor.random.below(2) as usize];
    let command = ["XREADGROUP", "GROUP", GROUP, name, "COUNT", "4", "STREAMS", key, "0"];
    let (value, at) = actor.call(&command, Action::History { key, got: Vec::new() })?;
    let entries: Vec<Seen> = reply::seen_in_streams(&[key], &value);
    if let Action::History { got, .. } = &mut actor.ops[at].action {
        *got = entries;
    }
    Ok(())
}

fn claim(actor: &mut Actor, name: &'static str) -> Result<(), Stopped> {
    let Some((key, ids)) = actor.some_of(|shared| &shared.delivered, false) else { return Ok(()) };
    let counts = actor.random.percent(70);
    let texts: Vec<String> = ids.iter().map(Id::to_string).collect();
    let mut command = vec!["XCLAIM", key, GROUP, name, "0"];
    command.extend(texts.iter().map(String::as_str));
    if !counts {
        command.push("JUSTID");
    }
    let action = Action::Claim { key, consumer: name, requested: Some(ids), counts, got: Vec::new() };
    let (value, at) = actor.call(&command, action)?;
    let claimed = if counts {
        entry_ids(key, &value)
    } else {
        reply::list(&value).iter().filter_map(reply::id).collect()
    };
    record_claim(actor, at, claimed);
    Ok(())
}

fn claim_any(actor: &mut Actor, name: &'static str) -> Result<(), Stopped> {
    let key = WORK[actor.random.below(2) as usize];
    let action = Action::Claim { key, consumer: name, requested: None, counts: true, got: Vec::new() };
    let (value, at) = actor.call(&["XAUTOCLAIM", key, GROUP, name, "0", "0", "COUNT", "4"], action)?;
    let claimed = reply::list(&value).get(1).map(|entries| entry_ids(key, entries)).unwrap_or_default();
    record_claim(actor, at, claimed);
    Ok(())
}

fn entry_ids(key: &'static str, entries: &crate::support::resp::Value) -> Vec<Id> {
    reply::seen(key, entries).iter().map(|seen| seen.id).collect()
}

fn record_claim(actor: &mut Actor, at: usize, claimed: Vec<Id>) {
    if let Action::Claim { got, .. } = &mut actor.ops[at].action {
        *got = claimed;
    }
}

fn acknowledge(actor: &mut Actor) -> Result<(), Stopped> {
    let Some((key, ids)) = actor.some_of(|shared| &shared.delivered, true) else { return Ok(()) };
    let texts: Vec<String> = ids.iter().map(Id::to_string).collect();
    let command: Vec<&str> =
        ["XACK", key, GROUP].into_iter().chain(texts.iter().map(String::as_str)).collect();
    actor.call(&command, Action::Ack { key, ids })?;
    Ok(())
}
