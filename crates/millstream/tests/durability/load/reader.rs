//! A second pair of eyes: clients that only look. What they were shown must never vanish, even where the writer was
//! never told that its write succeeded.

use std::sync::atomic::Ordering;

use super::{Actor, Over};
use crate::entry::Id;
use crate::ledger::{Act, WORK};
use crate::reply;

/// Looks at the end and at the counters of a shared stream now and then.
pub(super) fn observe(actor: &mut Actor) -> Over {
    loop {
        let key = WORK[actor.random.below(2) as usize];
        if let Err(over) = actor.pause(3000).and_then(|()| look(actor, key)) {
            return over;
        }
    }
}

fn look(actor: &mut Actor, key: &'static str) -> Result<(), Over> {
    let act = || Act::Observe { got: Vec::new(), key, last_id: Id::default(), added: 0 };
    if actor.random.percent(70) {
        let (value, at) = actor.call(&["XREVRANGE", key, "+", "-", "COUNT", "10"], act())?;
        if let Act::Observe { got, .. } = &mut actor.ops[at].act {
            *got = reply::seen(key, &value);
        }
        return Ok(());
    }
    let (value, at) = actor.call(&["XINFO", "STREAM", key], act())?;
    if let Act::Observe { last_id, added, .. } = &mut actor.ops[at].act {
        *last_id = reply::field(&value, "last-generated-id").and_then(reply::id).unwrap_or_default();
        *added = reply::field(&value, "entries-added").and_then(reply::int).unwrap_or_default();
    }
    Ok(())
}

/// Waits at the end of the shared streams and is shown each new entry as soon as the server lets anybody see it.
pub(super) fn follow(actor: &mut Actor) -> Over {
    let mut from = ["$".to_owned(), "$".to_owned()];
    loop {
        if let Err(over) = actor.pause(0).and_then(|()| follow_once(actor, &mut from)) {
            return over;
        }
    }
}

fn follow_once(actor: &mut Actor, from: &mut [String; 2]) -> Result<(), Over> {
    let command = ["XREAD", "BLOCK", "50", "STREAMS", WORK[0], WORK[1], &from[0], &from[1]];
    let act = Act::Observe { got: Vec::new(), key: WORK[0], last_id: Id::default(), added: 0 };
    let (value, at) = actor.call(&command, act)?;
    let entries = reply::seen_in_streams(&WORK, &value);
    if !entries.is_empty() {
        actor.shared.observations.fetch_add(1, Ordering::Relaxed);
    }
    for seen in &entries {
        let stream = usize::from(seen.key == WORK[1]);
        from[stream] = seen.id.to_string();
    }
    if let Act::Observe { got, .. } = &mut actor.ops[at].act {
        *got = entries;
    }
    Ok(())
}
