//! Commands on strings.

use millstream_protocol::commands::{GetEx, Set, SetCondition, SetExpiry as Expiry, StringCommand};
use millstream_protocol::errors::CommandError;
use millstream_protocol::resp::Writer;
use millstream_store::{ExpireIf, SetExpiry, SetIf, Txn};

pub(crate) fn run(
    txn: &mut Txn<'_>,
    out: &mut Writer,
    command: &StringCommand<'_>,
) -> Result<(), CommandError> {
    match *command {
        StringCommand::Get(key) => optional(out, txn.string(key)?),
        StringCommand::Set(ref set) => run_set(txn, out, set)?,
        StringCommand::SetNx(key, value) => {
            out.int(txn.set(key, value, SetIf::Absent, SetExpiry::Never).into());
        }
        StringCommand::GetSet(key, value) => {
            optional(out, txn.string(key)?);
            txn.set(key, value, SetIf::Always, SetExpiry::Never);
        }
        StringCommand::GetDel(key) => {
            optional(out, txn.string(key)?);
            txn.delete(key);
        }
        StringCommand::GetEx(ref get) => get_and_expire(txn, out, get)?,
        StringCommand::MGet(keys) => {
            out.array(keys.len());
            // What is no string counts as missing here.
            keys.iter().for_each(|key| optional(out, txn.string(key).unwrap_or(None)));
        }
        StringCommand::MSet(pairs) => {
            txn.set_many(pairs);
            out.ok();
        }
        StringCommand::MSetNx(pairs) => out.int(txn.set_many_if_absent(pairs).into()),
        StringCommand::IncrBy(key, by) => out.int(txn.increment(key, by)?),
        StringCommand::IncrByFloat(ref increment) => {
            // The type is refused before the number.
            txn.string(increment.key)?;
            out.bulk(txn.increment_float(increment.key, increment.increment()?)?);
        }
        StringCommand::Append(key, tail) => out.uint(txn.append(key, tail)?),
        StringCommand::StrLen(key) => out.count(txn.string(key)?.map_or(0, <[u8]>::len)),
    }
    Ok(())
}

/// A string that may not be there.
pub(super) fn optional(out: &mut Writer, bytes: Option<&[u8]>) {
    match bytes {
        Some(bytes) => out.bulk(bytes),
        None => out.null_bulk(),
    }
}

fn run_set(txn: &mut Txn<'_>, out: &mut Writer, set: &Set<'_>) -> Result<(), CommandError> {
    let expiry = match set.expiry {
        Expiry::Forever => SetExpiry::Never,
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
    Ok(())
}

fn get_and_expire(txn: &mut Txn<'_>, out: &mut Writer, get: &GetEx<'_>) -> Result<(), CommandError> {
    let Some(bytes) = txn.string(get.key)? else {
        out.null_bulk();
        return Ok(());
    };
    out.bulk(bytes);
    match get.new_expiry()? {
        None | Some(Expiry::Keep) => {}
        Some(Expiry::Forever) => {
            txn.persist(get.key);
        }
        Some(Expiry::Until(deadline)) => {
            txn.expire_at(get.key, deadline.at_ms(txn.now_ms())?, ExpireIf::Always);
        }
    }
    Ok(())
}
