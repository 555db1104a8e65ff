//! Clients that write: XADD alone and in pipelines, XADD that trims, transactions over two streams, XDEL and XTRIM.

use super::{Actor, Over, share, with_payload};
use crate::entry::{Id, Mark};
use crate::ledger::{Act, PAIR, PAIR_LENGTH, RING, RING_LENGTH, WORK, pair_key};
use crate::reply;
use crate::support::resp::{self, Value};

/// A shared stream longer than this is cut to about half.
const WORK_LENGTH_MAX: u64 = 600;

/// Writes to the shared streams, up to eight commands in flight.
pub(super) fn produce(actor: &mut Actor, producer: u32, first: u64) -> Over {
    let mut number = first;
    loop {
        if let Err(over) = actor.pause(1500) {
            return over;
        }
        let depth = if actor.random.percent(70) { 1 } else { actor.random.between(2, 8) };
        let marks: Vec<Mark> = (number..number + depth).map(|number| Mark { producer, number }).collect();
        number += depth;
        if let Err(over) = add_all(actor, &marks) {
            return over;
        }
    }
}

fn add_all(actor: &mut Actor, marks: &[Mark]) -> Result<(), Over> {
    let mut bytes = Vec::new();
    let mut places = Vec::new();
    for &mark in marks {
        let key = WORK[actor.random.below(2) as usize];
        bytes.extend(resp::encode(&with_payload(&["XADD", key, "*"], mark)));
        places.push((key, actor.invoke(Act::Add { key, mark, id: None })));
    }
    actor.client.send_raw(&bytes);
    for (key, at) in places {
        let value = actor.wait()?;
        actor.settle(at, &value);
        if let (Some(told), Act::Add { id, .. }) = (reply::id(&value), &mut actor.ops[at].act) {
            *id = Some(told);
            share(&actor.shared.added, [(key, told)]);
        }
    }
    Ok(())
}

/// Writes to the ring, one command in flight.
pub(super) fn produce_ring(actor: &mut Actor, producer: u32, first: u64) -> Over {
    let length = RING_LENGTH.to_string();
    let mut number = first;
    loop {
        let mark = Mark { producer, number };
        number += 1;
        let command = with_payload(&["XADD", RING, "MAXLEN", "=", &length, "*"], mark);
        let told =
            actor.pause(2000).and_then(|()| actor.call(&command, Act::Add { key: RING, mark, id: None }));
        match told {
            Err(over) => return over,
            Ok((value, at)) => {
                if let Act::Add { id, .. } = &mut actor.ops[at].act {
                    *id = reply::id(&value);
                }
            }
        }
    }
}

/// Writes to both streams of the pair by transactions.
pub(super) fn transact(actor: &mut Actor, producer: u32, first: u64) -> Over {
    let mut number = first;
    loop {
        let mark = Mark { producer, number };
        number += 1;
        if let Err(over) = actor.pause(3000).and_then(|()| transact_once(actor, mark)) {
            return over;
        }
    }
}

fn transact_once(actor: &mut Actor, mark: Mark) -> Result<(), Over> {
    let length = PAIR_LENGTH.to_string();
    let number = mark.number.to_string();
    let plain = |argv: &[&str]| argv.iter().map(|part| part.as_bytes().to_vec()).collect::<Vec<_>>();
    let commands = [
        plain(&["MULTI"]),
        with_payload(&["XADD", PAIR[0], "*"], mark),
        with_payload(&["XADD", PAIR[1], "*"], mark),
        plain(&["XTRIM", PAIR[0], "MAXLEN", "=", &length]),
        plain(&["XTRIM", PAIR[1], "MAXLEN", "=", &length]),
        plain(&["SET", &pair_key(mark.producer), &number]),
        plain(&["EXEC"]),
    ];
    let at = actor.invoke(Act::Transact { mark, id: None });
    let bytes: Vec<u8> = commands.iter().flat_map(|argv| resp::encode(argv)).collect();
    actor.client.send_raw(&bytes);
    let mut last = Value::Null;
    for _ in &commands {
        last = actor.wait()?;
    }
    actor.settle(at, &last);
    if let Act::Transact { id, .. } = &mut actor.ops[at].act {
        *id = reply::list(&last).first().and_then(reply::id);
    }
    Ok(())
}

/// Deletes entries here and there, and cuts streams that have grown long.
pub(super) fn delete(actor: &mut Actor) -> Over {
    loop {
        let done = actor
            .pause(4000)
            .and_then(|()| if actor.random.percent(85) { delete_some(actor) } else { trim(actor) });
        if let Err(over) = done {
            return over;
        }
    }
}

fn delete_some(actor: &mut Actor) -> Result<(), Over> {
    let Some((key, ids)) = actor.some_of(|shared| &shared.added, true) else { return Ok(()) };
    let texts: Vec<String> = ids.iter().map(Id::to_string).collect();
    let command: Vec<&str> = ["XDEL", key].into_iter().chain(texts.iter().map(String::as_str)).collect();
    let (value, at) = actor.call(&command, Act::Delete { key, ids, deleted: 0 })?;
    if let (Some(count), Act::Delete { deleted, .. }) = (reply::int(&value), &mut actor.ops[at].act) {
        *deleted = count as usize;
    }
    Ok(())
}

fn trim(actor: &mut Actor) -> Result<(), Over> {
    let key = WORK[actor.random.below(2) as usize];
    actor.client.send(&["XLEN", key]);
    let length = reply::int(&actor.wait()?).unwrap_or(0);
    if length < WORK_LENGTH_MAX && !actor.random.percent(10) {
        return Ok(());
    }
    let keep = (length / 2).to_string();
    actor.client.send(&["XRANGE", key, "-", "+", "COUNT", &keep]);
    let oldest = actor.wait()?;
    let Some((below, _)) = reply::list(&oldest).last().and_then(reply::entry) else { return Ok(()) };
    actor.call(&["XTRIM", key, "MINID", "=", &below.to_string()], Act::Trim { key, below })?;
    Ok(())
}
