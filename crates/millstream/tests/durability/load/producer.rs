//! Clients that write: XADD alone and in pipelines, XADD that trims, transactions over two streams, XDEL and
//! XTRIM.

use super::{Actor, Stopped, share, with_payload};
use crate::entry::{Id, Mark};
use crate::ledger::{Action, PAIR, PAIR_LENGTH, RING, RING_LENGTH, WORK, pair_key};
use crate::reply;
use crate::support::resp::{self, Value};

/// A shared stream longer than this is trimmed to about half.
const WORK_LENGTH_MAX: u64 = 600;

/// Writes to the shared streams, with pipelines of up to eight commands.
pub(super) fn produce(actor: &mut Actor, producer: u32, first: u64) -> Stopped {
    let mut number = first;
    loop {
        if let Err(stopped) = actor.pause(1500) {
            return stopped;
        }
        let depth = if actor.random.percent(70) { 1 } else { actor.random.between(2, 8) };
        let marks: Vec<Mark> = (number..number + depth).map(|number| Mark { producer, number }).collect();
        number += depth;
        if let Err(stopped) = add_all(actor, &marks) {
            return stopped;
        }
    }
}

fn add_all(actor: &mut Actor, marks: &[Mark]) -> Result<(), Stopped> {
    let mut bytes = Vec::new();
    let mut indexes = Vec::new();
    for &mark in marks {
        let key = WORK[actor.random.below(2) as usize];
        bytes.extend(resp::encode(&with_payload(&["XADD", key, "*"], mark)));
        indexes.push((key, actor.record_command(Action::Add { key, mark, id: None })));
    }
    actor.client.send_raw(&bytes);
    for (key, at) in indexes {
        let value = actor.wait()?;
        actor.record_reply(at, &value);
        if let (Some(acknowledged), Action::Add { id, .. }) = (reply::id(&value), &mut actor.ops[at].action) {
            *id = Some(acknowledged);
            share(&actor.shared.added, [(key, acknowledged)]);
        }
    }
    Ok(())
}

/// Writes to the ring, one command at a time.
pub(super) fn produce_ring(actor: &mut Actor, producer: u32, first: u64) -> Stopped {
    let length = RING_LENGTH.to_string();
    let mut number = first;
    loop {
        let mark = Mark { producer, number };
        number += 1;
        let command = with_payload(&["XADD", RING, "MAXLEN", "=", &length, "*"], mark);
        let reply =
            actor.pause(2000).and_then(|()| actor.call(&command, Action::Add { key: RING, mark, id: None }));
        match reply {
            Err(stopped) => return stopped,
            Ok((value, at)) => {
                if let Action::Add { id, .. } = &mut actor.ops[at].action {
                    *id = reply::id(&value);
                }
            }
        }
    }
}

/// Writes to both streams of the pair with transactions.
pub(super) fn transact(actor: &mut Actor, producer: u32, first: u64) -> Stopped {
    let mut number = first;
    loop {
        let mark = Mark { producer, number };
        number += 1;
        if let Err(stopped) = actor.pause(3000).and_then(|()| transact_once(actor, mark)) {
            return stopped;
        }
    }
}

fn transact_once(actor: &mut Actor, mark: Mark) -> Result<(), Stopped> {
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
    let at = actor.record_command(Action::Transact { mark, id: None });
    let bytes: Vec<u8> = commands.iter().flat_map(|argv| resp::encode(argv)).collect();
    actor.client.send_raw(&bytes);
    let mut last = Value::Null;
    for _ in &commands {
        last = actor.wait()?;
    }
    actor.record_reply(at, &last);
    if let Action::Transact { id, .. } = &mut actor.ops[at].action {
        *id = reply::list(&last).first().and_then(reply::id);
    }
    Ok(())
}

/// Deletes random entries, and trims streams that have grown long.
pub(super) fn delete(actor: &mut Actor) -> Stopped {
    loop {
        let done = actor
            .pause(4000)
            .and_then(|()| if actor.random.percent(85) { delete_some(actor) } else { trim(actor) });
        if let Err(stopped) = done {
            return stopped;
        }
    }
}

fn delete_some(actor: &mut Actor) -> Result<(), Stopped> {
    let Some((key, ids)) = actor.some_of(|shared| &shared.added, true) else { return Ok(()) };
    let texts: Vec<String> = ids.iter().map(Id::to_string).collect();
    let command: Vec<&str> = ["XDEL", key].into_iter().chain(texts.iter().map(String::as_str)).collect();
    let (value, at) = actor.call(&command, Action::Delete { key, ids, deleted: 0 })?;
    if let (Some(count), Action::Delete { deleted, .. }) = (reply::int(&value), &mut actor.ops[at].action) {
        *deleted = count as usize;
    }
    Ok(())
}

fn trim(actor: &mut Actor) -> Result<(), Stopped> {
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
    actor.call(&["XTRIM", key, "MINID", "=", &below.to_string()], Action::Trim { key, below })?;
    Ok(())
}
