//! Commands on lists.

use millstream_engine::ListEnd;
use millstream_protocol::commands::{BlockingPop, ListCommand};
use millstream_protocol::errors::CommandError;
use millstream_protocol::resp::Writer;
use millstream_store::{Interest, Txn};

use super::{Blocked, Outcome};

pub(crate) fn run(
    txn: &mut Txn<'_>,
    out: &mut Writer,
    command: &ListCommand<'_>,
) -> Result<Outcome, CommandError> {
    match *command {
        ListCommand::Push(end, key, values) => out.uint(txn.list_push(key, end, values)?),
        ListCommand::Pop(end, key, None) => pop_one(txn, out, key, end)?,
        ListCommand::Pop(end, key, Some(count)) => pop_many(txn, out, key, end, count)?,
        ListCommand::Len(key) => out.uint(txn.list_len(key)?),
        ListCommand::Range(key, first, last) => match txn.list_range(key, first, last)? {
            Some((list, positions)) => {
                out.array(positions.len());
                list.range(positions).for_each(|value| out.bulk(value));
            }
            None => out.array(0),
        },
        ListCommand::BlockingPop(ref pop) => return blocking_pop(txn, out, pop),
    }
    Ok(Outcome::Done)
}

fn pop_one(txn: &mut Txn<'_>, out: &mut Writer, key: &[u8], end: ListEnd) -> Result<(), CommandError> {
    let popped = txn.list_pop(key, end, 1, |list, count| {
        list.from_end(end, count).for_each(|value| out.bulk(value));
    })?;
    if popped.is_none() {
        out.null_bulk();
    }
    Ok(())
}

fn pop_many(
    txn: &mut Txn<'_>,
    out: &mut Writer,
    key: &[u8],
    end: ListEnd,
    count: u64,
) -> Result<(), CommandError> {
    let popped = txn.list_pop(key, end, count, |list, count| {
        out.array(count);
        list.from_end(end, count).for_each(|value| out.bulk(value));
    })?;
    if popped.is_none() {
        out.null_array();
    }
    Ok(())
}

/// One value from the first of the lists that is there, with its key; or a wait for any of them.
fn blocking_pop(txn: &mut Txn<'_>, out: &mut Writer, pop: &BlockingPop<'_>) -> Result<Outcome, CommandError> {
    for &key in pop.keys {
        if txn.list(key)?.is_some() {
            out.array(2);
            out.bulk(key);
            pop_one(txn, out, key, pop.end)?;
            return Ok(Outcome::Done);
        }
    }
    let interests = pop.keys.iter().map(|&key| (key.into(), Interest::List)).collect();
    Ok(Outcome::Block(Blocked { interests, timeout_ms: pop.timeout_ms, last_args: Vec::new() }))
}
