//! Commands on lists.

use millstream_engine::ListEnd;
use millstream_protocol::args::Args;
use millstream_protocol::commands::{ArgList, BlockingPop, Pop};
use millstream_protocol::errors::CommandError;
use millstream_protocol::resp::Writer;
use millstream_store::{Interest, Txn};

use crate::command::{BlockOn, DONE, Outcome, Reply};

/// LPUSH and RPUSH.
pub(crate) fn push(txn: &mut Txn<'_>, out: &mut Writer, argv: ArgList<'_>, end: ListEnd) -> Reply {
    let mut args = Args::of_command(argv);
    let key = args.next()?;
    out.uint(txn.list_push(key, end, args.rest())?);
    DONE
}

pub(crate) fn lpop(txn: &mut Txn<'_>, out: &mut Writer, argv: ArgList<'_>) -> Reply {
    pop(txn, out, &Pop::parse(argv, "lpop")?, ListEnd::Head)
}

pub(crate) fn rpop(txn: &mut Txn<'_>, out: &mut Writer, argv: ArgList<'_>) -> Reply {
    pop(txn, out, &Pop::parse(argv, "rpop")?, ListEnd::Tail)
}

fn pop(txn: &mut Txn<'_>, out: &mut Writer, pop: &Pop<'_>, end: ListEnd) -> Reply {
    let Some(count) = pop.count else {
        pop_one(txn, out, pop.key, end)?;
        return DONE;
    };
    let popped = txn.list_pop(pop.key, end, count, |list, count| {
        out.array(count);
        list.from_end(end, count).for_each(|value| out.bulk(value));
    })?;
    if popped.is_none() {
        out.null_array();
    }
    DONE
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

/// BLPOP and BRPOP: pops a value from the first list that exists and replies with its key and the value. If no list
/// exists, blocks on all of them.
pub(crate) fn blocking_pop(txn: &mut Txn<'_>, out: &mut Writer, argv: ArgList<'_>, end: ListEnd) -> Reply {
    let BlockingPop { keys, timeout_ms } = BlockingPop::parse(argv)?;
    for &key in keys {
        if txn.list(key)?.is_some() {
            out.array(2);
            out.bulk(key);
            pop_one(txn, out, key, end)?;
            return DONE;
        }
    }
    let interests = keys.iter().map(|&key| (key.into(), Interest::List)).collect();
    Ok(Outcome::Block(BlockOn { interests, timeout_ms, last_args: Vec::new() }))
}

pub(crate) fn llen(txn: &mut Txn<'_>, out: &mut Writer, argv: ArgList<'_>) -> Reply {
    let [key] = Args::of_command(argv).exactly()?;
    out.uint(txn.list_len(key)?);
    DONE
}

pub(crate) fn lrange(txn: &mut Txn<'_>, out: &mut Writer, argv: ArgList<'_>) -> Reply {
    let mut args = Args::of_command(argv);
    let (key, first, last) = (args.next()?, args.next_i64()?, args.next_i64()?);
    args.finish()?;
    match txn.list_range(key, first, last)? {
        Some((list, positions)) => {
            out.array(positions.len());
            list.range(positions).for_each(|value| out.bulk(value));
        }
        None => out.array(0),
    }
    DONE
}
