//! Clients that only read. An entry that they have read must never disappear, even if its writer got no
//! acknowledgement.

use std::sync::atomic::Ordering;

use super::{Actor, Stopped};
use crate::entry::Id;
use crate::ledger::{Action, WORK};
use crate::reply;

/// Reads the last entries or the counters of a shared stream from time to time.
pub(super) fn observe(actor: &mut Actor) -> Stopped {
    loop {
        let key = WORK[actor.random.below(2) as usize];
        if let Err(stopped) = actor.pause(3000).and_then(|()| look(actor, key)) {
            return stopped;
        }
    }
}

fn look(actor: &mut Actor, key: &'static str) -> Result<(), Stopped> {
    let action = || Action::Observe { got: Vec::new(), key, last_id: Id::default(), added: 0 };
    if actor.random.percent(70) {
        let (value, at) = actor.call(&["XREVRANGE", key, "+", "-", "COUNT", "10"], action())?;
        if let Action::Observe { got, .. } = &mut actor.ops[at].action {
            *got = reply::seen(key, &value);
        }
        return Ok(());
    }
    let (value, at) = actor.call(&["XINFO", "STREAM", key], action())?;
    if let Action::Observe { last_id, added, .. } = &mut actor.ops[at].action {
        *last_id = reply::field(&value, "last-generated-id").and_then(reply::id).unwrap_or_default();
        *added = reply::field(&value, "entries-added").and_then(reply::int).unwrap_or_default();
    }
    Ok(())
}

/// Blocks at the end of the shared streams and gets each new entry as soon as the server returns it to any client.
pub(super) fn follow(actor: &mut Actor) -> Stopped {
    let mut from = ["$".to_owned(), "$".to_owned()];
    loop {
        if let Err(stopped) = actor.pause(0).and_then(|()| follow_once(actor, &mut from)) {
            return stopped;
        }
    }
}

fn follow_once(actor: &mut Actor, from: &mut [String; 2]) -> Result<(), Stopped> {
    let command = ["XREAD", "BLOCK", "50", "STREAMS", WORK[0], WORK[1], &from[0], &from[1]];
    let action = Action::Observe { got: Vec::new(), key: WORK[0], last_id: Id::default(), added: 0 };
    let (value, at) = actor.call(&command, action)?;
    let entries = reply::seen_in_streams(&WORK, &value);
    if !entries.is_empty() {
        actor.shared.observations.fetch_add(1, Ordering::Relaxed);
    }
    for seen in &entries {
        let stream = usize::from(seen.key == WORK[1]);
        from[stream] = seen.id.to_string();
    }
    if let Action::Observe { got, .. } = &mut actor.ops[at].action {
        *got = entries;
    }
    Ok(())
}
