//! Commands on strings.

use millstream_engine::value::Float80;
use millstream_protocol::args::Args;
use millstream_protocol::commands::{ArgList, GetEx, Set, SetCondition, SetExpiry as Expiry, TimeUnit};
use millstream_protocol::errors;
use millstream_protocol::resp::Writer;
use millstream_store::{ExpireIf, SetExpiry, SetIf, Txn};

use crate::command::{DONE, Reply, reply_ok};

pub(crate) fn get(txn: &mut Txn<'_>, out: &mut Writer, argv: ArgList<'_>) -> Reply {
    let [key] = Args::of_command(argv).exactly()?;
    optional(out, txn.string(key)?);
    DONE
}

pub(crate) fn set(txn: &mut Txn<'_>, out: &mut Writer, argv: ArgList<'_>) -> Reply {
    set_string(txn, out, &Set::parse(argv)?)
}

pub(crate) fn setex(txn: &mut Txn<'_>, out: &mut Writer, argv: ArgList<'_>) -> Reply {
    set_string(txn, out, &Set::parse_with_time(argv, TimeUnit::Seconds, "setex")?)
}

pub(crate) fn psetex(txn: &mut Txn<'_>, out: &mut Writer, argv: ArgList<'_>) -> Reply {
    set_string(txn, out, &Set::parse_with_time(argv, TimeUnit::Milliseconds, "psetex")?)
}

fn set_string(txn: &mut Txn<'_>, out: &mut Writer, set: &Set<'_>) -> Reply {
    let expiry = match set.expiry {
        Expiry::Never => SetExpiry::Never,
        Expiry::Keep => SetExpiry::Keep,
        Expiry::Until(deadline) => SetExpiry::At(deadline.at_ms(txn.now_ms())?.unsigned_abs()),
    };
    let only_if = match set.condition {
        SetCondition::Always => SetIf::Always,
        SetCondition::IfMissing => SetIf::Absent,
        SetCondition::IfExists => SetIf::Present,
    };
    if set.get {
        optional(out, txn.string(set.key)?);
    }
    let done = txn.set(set.key, set.value, only_if, expiry);
    match (set.get, done) {
        (true, _) => {}
        (false, true) => out.ok(),
        (false, false) => out.null_bulk(),
    }
    DONE
}

pub(crate) fn setnx(txn: &mut Txn<'_>, out: &mut Writer, argv: ArgList<'_>) -> Reply {
    let [key, value] = Args::of_command(argv).exactly()?;
    out.int(txn.set(key, value, SetIf::Absent, SetExpiry::Never).into());
    DONE
}

pub(crate) fn getset(txn: &mut Txn<'_>, out: &mut Writer, argv: ArgList<'_>) -> Reply {
    let [key, value] = Args::of_command(argv).exactly()?;
    optional(out, txn.string(key)?);
    txn.set(key, value, SetIf::Always, SetExpiry::Never);
    DONE
}

pub(crate) fn getdel(txn: &mut Txn<'_>, out: &mut Writer, argv: ArgList<'_>) -> Reply {
    let [key] = Args::of_command(argv).exactly()?;
    optional(out, txn.string(key)?);
    txn.delete(key);
    DONE
}

pub(crate) fn getex(txn: &mut Txn<'_>, out: &mut Writer, argv: ArgList<'_>) -> Reply {
    let get = GetEx::parse(argv)?;
    let Some(bytes) = txn.string(get.key)? else {
        out.null_bulk();
        return DONE;
    };
    out.bulk(bytes);
    match get.new_expiry()? {
        None | Some(Expiry::Keep) => {}
        Some(Expiry::Never) => {
            txn.persist(get.key);
        }
        Some(Expiry::Until(deadline)) => {
            txn.expire_at(get.key, deadline.at_ms(txn.now_ms())?, ExpireIf::Always);
        }
    }
    DONE
}

pub(crate) fn mget(txn: &mut Txn<'_>, out: &mut Writer, argv: ArgList<'_>) -> Reply {
    let keys = Args::of_command(argv).rest();
    out.array(keys.len());
    // Keys that are not strings count as missing.
    keys.iter().for_each(|key| optional(out, txn.string(key).unwrap_or(None)));
    DONE
}

pub(crate) fn mset(txn: &mut Txn<'_>, out: &mut Writer, argv: ArgList<'_>) -> Reply {
    txn.set_many(Args::of_command(argv).pairs("mset")?);
    reply_ok(out)
}

pub(crate) fn msetnx(txn: &mut Txn<'_>, out: &mut Writer, argv: ArgList<'_>) -> Reply {
    out.int(txn.set_many_if_absent(Args::of_command(argv).pairs("msetnx")?).into());
    DONE
}

/// INCR and DECR.
pub(crate) fn increment(txn: &mut Txn<'_>, out: &mut Writer, argv: ArgList<'_>, by: i64) -> Reply {
    let [key] = Args::of_command(argv).exactly()?;
    out.int(txn.increment(key, by)?);
    DONE
}

pub(crate) fn incrby(txn: &mut Txn<'_>, out: &mut Writer, argv: ArgList<'_>) -> Reply {
    let mut args = Args::of_command(argv);
    let (key, increment) = (args.next()?, args.next_i64()?);
    args.finish()?;
    out.int(txn.increment(key, increment)?);
    DONE
}

pub(crate) fn decrby(txn: &mut Txn<'_>, out: &mut Writer, argv: ArgList<'_>) -> Reply {
    let mut args = Args::of_command(argv);
    let (key, decrement) = (args.next()?, args.next_i64()?);
    args.finish()?;
    let increment = decrement.checked_neg().ok_or(errors::DECREMENT_OVERFLOW)?;
    out.int(txn.increment(key, increment)?);
    DONE
}

pub(crate) fn incrbyfloat(txn: &mut Txn<'_>, out: &mut Writer, argv: ArgList<'_>) -> Reply {
    let [key, increment] = Args::of_command(argv).exactly()?;
    // A wrong type is reported before an invalid number.
    txn.string(key)?;
    let increment = Float80::parse(increment).ok_or(errors::NOT_A_FLOAT)?;
    out.bulk(txn.increment_float(key, increment)?);
    DONE
}

pub(crate) fn append(txn: &mut Txn<'_>, out: &mut Writer, argv: ArgList<'_>) -> Reply {
    let [key, tail] = Args::of_command(argv).exactly()?;
    out.uint(txn.append(key, tail)?);
    DONE
}

pub(crate) fn strlen(txn: &mut Txn<'_>, out: &mut Writer, argv: ArgList<'_>) -> Reply {
    let [key] = Args::of_command(argv).exactly()?;
    out.count(txn.string(key)?.map_or(0, <[u8]>::len));
    DONE
}

pub(super) fn optional(out: &mut Writer, bytes: Option<&[u8]>) {
    match bytes {
        Some(bytes) => out.bulk(bytes),
        None => out.null_bulk(),
    }
}
