//! Commands on hashes.

use millstream_engine::value::{Float80, Hash};
use millstream_protocol::args::Args;
use millstream_protocol::commands::ArgList;
use millstream_protocol::errors;
use millstream_protocol::resp::Writer;
use millstream_store::Txn;

use super::strings::optional;
use crate::command::{DONE, Reply, reply_ok};

pub(crate) fn hset(txn: &mut Txn<'_>, out: &mut Writer, argv: ArgList<'_>) -> Reply {
    let mut args = Args::of_command(argv);
    let key = args.next()?;
    out.uint(txn.hash_set(key, args.pairs("hset")?)?);
    DONE
}

pub(crate) fn hmset(txn: &mut Txn<'_>, out: &mut Writer, argv: ArgList<'_>) -> Reply {
    let mut args = Args::of_command(argv);
    let key = args.next()?;
    txn.hash_set(key, args.pairs("hmset")?)?;
    reply_ok(out)
}

pub(crate) fn hsetnx(txn: &mut Txn<'_>, out: &mut Writer, argv: ArgList<'_>) -> Reply {
    let [key, field, value] = Args::of_command(argv).exactly()?;
    out.int(txn.hash_set_if_absent(key, field, value)?.into());
    DONE
}

pub(crate) fn hget(txn: &mut Txn<'_>, out: &mut Writer, argv: ArgList<'_>) -> Reply {
    let [key, field] = Args::of_command(argv).exactly()?;
    optional(out, txn.hash_get(key, field)?);
    DONE
}

pub(crate) fn hmget(txn: &mut Txn<'_>, out: &mut Writer, argv: ArgList<'_>) -> Reply {
    let mut args = Args::of_command(argv);
    let (key, fields) = (args.next()?, args.rest());
    let hash = txn.hash(key)?;
    out.array(fields.len());
    fields.iter().for_each(|field| optional(out, hash.and_then(|hash| hash.get(field))));
    DONE
}

pub(crate) fn hgetall(txn: &mut Txn<'_>, out: &mut Writer, argv: ArgList<'_>) -> Reply {
    let [key] = Args::of_command(argv).exactly()?;
    let hash = txn.hash(key)?;
    out.map(hash.map_or(0, Hash::len));
    visit(hash, |field, value| {
        out.bulk(field);
        out.bulk(value);
    });
    DONE
}

pub(crate) fn hdel(txn: &mut Txn<'_>, out: &mut Writer, argv: ArgList<'_>) -> Reply {
    let mut args = Args::of_command(argv);
    let key = args.next()?;
    out.uint(txn.hash_delete(key, args.rest())?);
    DONE
}

pub(crate) fn hexists(txn: &mut Txn<'_>, out: &mut Writer, argv: ArgList<'_>) -> Reply {
    let [key, field] = Args::of_command(argv).exactly()?;
    out.int(txn.hash_get(key, field)?.is_some().into());
    DONE
}

pub(crate) fn hlen(txn: &mut Txn<'_>, out: &mut Writer, argv: ArgList<'_>) -> Reply {
    let [key] = Args::of_command(argv).exactly()?;
    out.uint(txn.hash_len(key)?);
    DONE
}

pub(crate) fn hkeys(txn: &mut Txn<'_>, out: &mut Writer, argv: ArgList<'_>) -> Reply {
    let [key] = Args::of_command(argv).exactly()?;
    let hash = txn.hash(key)?;
    out.array(hash.map_or(0, Hash::len));
    visit(hash, |field, _| out.bulk(field));
    DONE
}

pub(crate) fn hvals(txn: &mut Txn<'_>, out: &mut Writer, argv: ArgList<'_>) -> Reply {
    let [key] = Args::of_command(argv).exactly()?;
    let hash = txn.hash(key)?;
    out.array(hash.map_or(0, Hash::len));
    visit(hash, |_, value| out.bulk(value));
    DONE
}

pub(crate) fn hincrby(txn: &mut Txn<'_>, out: &mut Writer, argv: ArgList<'_>) -> Reply {
    let mut args = Args::of_command(argv);
    let (key, field, increment) = (args.next()?, args.next()?, args.next_i64()?);
    args.finish()?;
    out.int(txn.hash_increment(key, field, increment)?);
    DONE
}

pub(crate) fn hincrbyfloat(txn: &mut Txn<'_>, out: &mut Writer, argv: ArgList<'_>) -> Reply {
    let [key, field, increment] = Args::of_command(argv).exactly()?;
    let increment = Float80::parse(increment).ok_or(errors::NOT_A_FLOAT)?;
    if !increment.is_finite() {
        return Err(errors::NOT_FINITE);
    }
    out.bulk(txn.hash_increment_float(key, field, increment)?);
    DONE
}

fn visit<'a>(hash: Option<&'a Hash>, each: impl FnMut(&'a [u8], &'a [u8])) {
    if let Some(hash) = hash {
        hash.visit(each);
    }
}
