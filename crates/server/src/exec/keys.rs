//! Commands on keys of any type.

use std::hash::{BuildHasher, RandomState};

use millstream_engine::value::Kind;
use millstream_protocol::args::Args;
use millstream_protocol::commands::{
    ArgList, CopyKey, Expire, ExpireCondition, Scan, TimeBase, TimeUnit, check_flush_mode, parse_db,
    parse_swapdb,
};
use millstream_protocol::errors::{self, CommandError};
use millstream_protocol::glob::{self, Glob};
use millstream_protocol::resp::Writer;
use millstream_store::{ExpireIf, Txn};

use crate::command::{Call, DONE, Reply, reply_ok};

/// DEL and UNLINK. Both free large values on another thread, so no client waits for it.
pub(crate) fn del(txn: &mut Txn<'_>, out: &mut Writer, argv: ArgList<'_>) -> Reply {
    count(out, argv, |key| txn.delete(key))
}

pub(crate) fn exists(txn: &mut Txn<'_>, out: &mut Writer, argv: ArgList<'_>) -> Reply {
    count(out, argv, |key| txn.exists(key))
}

pub(crate) fn touch(txn: &mut Txn<'_>, out: &mut Writer, argv: ArgList<'_>) -> Reply {
    count(out, argv, |key| txn.touch(key))
}

/// Replies with the number of keys for which `test` returns true. A key that is given twice is tested twice.
fn count(out: &mut Writer, argv: ArgList<'_>, mut test: impl FnMut(&[u8]) -> bool) -> Reply {
    out.count(Args::of_command(argv).rest().iter().filter(|key| test(key)).count());
    DONE
}

pub(crate) fn type_of(txn: &mut Txn<'_>, out: &mut Writer, argv: ArgList<'_>) -> Reply {
    let [key] = Args::of_command(argv).exactly()?;
    out.simple(type_name(txn.kind(key)));
    DONE
}

pub(crate) fn persist(txn: &mut Txn<'_>, out: &mut Writer, argv: ArgList<'_>) -> Reply {
    let [key] = Args::of_command(argv).exactly()?;
    out.int(txn.persist(key).into());
    DONE
}

pub(crate) fn expire(txn: &mut Txn<'_>, out: &mut Writer, argv: ArgList<'_>) -> Reply {
    expire_at(txn, out, &Expire::parse(argv, TimeBase::Now, TimeUnit::Seconds, "expire")?)
}

pub(crate) fn pexpire(txn: &mut Txn<'_>, out: &mut Writer, argv: ArgList<'_>) -> Reply {
    expire_at(txn, out, &Expire::parse(argv, TimeBase::Now, TimeUnit::Milliseconds, "pexpire")?)
}

pub(crate) fn expireat(txn: &mut Txn<'_>, out: &mut Writer, argv: ArgList<'_>) -> Reply {
    expire_at(txn, out, &Expire::parse(argv, TimeBase::Epoch, TimeUnit::Seconds, "expireat")?)
}

pub(crate) fn pexpireat(txn: &mut Txn<'_>, out: &mut Writer, argv: ArgList<'_>) -> Reply {
    expire_at(txn, out, &Expire::parse(argv, TimeBase::Epoch, TimeUnit::Milliseconds, "pexpireat")?)
}

fn expire_at(txn: &mut Txn<'_>, out: &mut Writer, expire: &Expire<'_>) -> Reply {
    let at_ms = expire.deadline.at_ms(txn.now_ms())?;
    let only_if = match expire.condition {
        ExpireCondition::Always => ExpireIf::Always,
        ExpireCondition::IfNone => ExpireIf::Persistent,
        ExpireCondition::IfAny => ExpireIf::Expiring,
        ExpireCondition::IfLater => ExpireIf::Later,
        ExpireCondition::IfEarlier => ExpireIf::Earlier,
        ExpireCondition::IfAnyAndEarlier => ExpireIf::ExpiringAndEarlier,
    };
    out.int(txn.expire_at(expire.key, at_ms, only_if).into());
    DONE
}

pub(crate) fn ttl(txn: &mut Txn<'_>, out: &mut Writer, argv: ArgList<'_>) -> Reply {
    let left = |at_ms: u64, now_ms: u64| round_to_seconds(at_ms.saturating_sub(now_ms));
    time_to_live(txn, out, argv, left)
}

pub(crate) fn pttl(txn: &mut Txn<'_>, out: &mut Writer, argv: ArgList<'_>) -> Reply {
    time_to_live(txn, out, argv, u64::saturating_sub)
}

pub(crate) fn expiretime(txn: &mut Txn<'_>, out: &mut Writer, argv: ArgList<'_>) -> Reply {
    time_to_live(txn, out, argv, |at_ms, _| round_to_seconds(at_ms))
}

pub(crate) fn pexpiretime(txn: &mut Txn<'_>, out: &mut Writer, argv: ArgList<'_>) -> Reply {
    time_to_live(txn, out, argv, |at_ms, _| at_ms)
}

fn round_to_seconds(ms: u64) -> u64 {
    ms.saturating_add(500) / 1000
}

/// Replies with the remaining time or the expiry time of a key. `shown` computes it from the expiry time and the
/// current time, both in milliseconds.
fn time_to_live(
    txn: &Txn<'_>,
    out: &mut Writer,
    argv: ArgList<'_>,
    shown: impl FnOnce(u64, u64) -> u64,
) -> Reply {
    const NO_KEY: i64 = -2;
    const NO_EXPIRY: i64 = -1;
    let [key] = Args::of_command(argv).exactly()?;
    match txn.expires_at_ms(key) {
        None => out.int(NO_KEY),
        Some(None) => out.int(NO_EXPIRY),
        Some(Some(at_ms)) => out.uint(shown(at_ms, txn.now_ms())),
    }
    DONE
}

pub(crate) fn rename(call: &mut Call<'_, '_, '_>, argv: ArgList<'_>) -> Reply {
    rename_key(call, argv, false)?;
    reply_ok(call.out)
}

pub(crate) fn renamenx(call: &mut Call<'_, '_, '_>, argv: ArgList<'_>) -> Reply {
    let is_renamed = rename_key(call, argv, true)?;
    call.out.int(is_renamed.into());
    DONE
}

fn rename_key(
    call: &mut Call<'_, '_, '_>,
    argv: ArgList<'_>,
    only_if_free: bool,
) -> Result<bool, CommandError> {
    let [from, to] = Args::of_command(argv).exactly()?;
    // Renaming runs above the limit, but a longer name adds data.
    let longer_by = to.len().saturating_sub(from.len()) as u64;
    if longer_by > 0 && call.txn.exists(from) && !call.context.server.fits_into_maxmemory(longer_by) {
        return Err(errors::OUT_OF_MEMORY);
    }
    let is_renamed = call.txn.rename(from, to, only_if_free)?;
    if is_renamed && from != to {
        own_policies(call, call.txn.db(), to);
    }
    Ok(is_renamed)
}

/// Makes the client's user the owner of the policies of a stream that it has just placed at this key.
fn own_policies(call: &mut Call<'_, '_, '_>, db: u32, key: &[u8]) {
    if let Some(owner) = call.context.policy_owner() {
        call.txn.own_policies(db, key, owner);
    }
}

/// COPY. A short command that adds a whole value, and a transaction can have many: so the copy itself must fit into the
/// memory limit. The blocks that the copy of a stream shares count too, because a restart ends the sharing.
pub(crate) fn copy(call: &mut Call<'_, '_, '_>, argv: ArgList<'_>) -> Reply {
    let CopyKey { from, to, db, replace } = CopyKey::parse(argv)?;
    let Call { context, txn, .. } = call;
    if txn.memory_bytes(from).is_some_and(|bytes| !context.server.fits_into_maxmemory(bytes as u64)) {
        return Err(errors::OUT_OF_MEMORY);
    }
    let to_db = db.unwrap_or(txn.db());
    let is_copied = txn.copy(from, to, to_db, replace)?;
    if is_copied {
        own_policies(call, to_db, to);
    }
    call.out.int(is_copied.into());
    DONE
}

pub(crate) fn move_to(call: &mut Call<'_, '_, '_>, argv: ArgList<'_>) -> Reply {
    let [key, db] = Args::of_command(argv).exactly()?;
    let to_db = parse_db(db)?;
    let is_moved = call.txn.move_to(key, to_db)?;
    if is_moved {
        own_policies(call, to_db, key);
    }
    call.out.int(is_moved.into());
    DONE
}

pub(crate) fn randomkey(txn: &mut Txn<'_>, out: &mut Writer, _: ArgList<'_>) -> Reply {
    match txn.random_key(random()) {
        Some(key) => out.bulk(key),
        None => out.null_bulk(),
    }
    DONE
}

pub(crate) fn dbsize(txn: &mut Txn<'_>, out: &mut Writer, _: ArgList<'_>) -> Reply {
    out.uint(txn.key_count());
    DONE
}

pub(crate) fn flushdb(call: &mut Call<'_, '_, '_>, argv: ArgList<'_>) -> Reply {
    check_flush_mode(Args::of_command(argv))?;
    call.txn.flush_database();
    call.context.audit(&format!("FLUSHDB of database {}", call.txn.db()));
    reply_ok(call.out)
}

pub(crate) fn flushall(call: &mut Call<'_, '_, '_>, argv: ArgList<'_>) -> Reply {
    check_flush_mode(Args::of_command(argv))?;
    call.txn.flush_all();
    call.context.audit("FLUSHALL");
    reply_ok(call.out)
}

pub(crate) fn swapdb(call: &mut Call<'_, '_, '_>, argv: ArgList<'_>) -> Reply {
    let (one, other) = parse_swapdb(argv)?;
    call.txn.swap_databases(one, other)?;
    call.context.audit(&format!("SWAPDB {one} {other}"));
    reply_ok(call.out)
}

pub(crate) fn keys(txn: &mut Txn<'_>, out: &mut Writer, argv: ArgList<'_>) -> Reply {
    let [pattern] = Args::of_command(argv).exactly()?;
    let pattern = Glob::new(glob::check(pattern)?);
    let list = out.array_deferred(txn.key_count() as usize);
    let mut matching = 0;
    txn.visit_keys(|key| {
        if pattern.matches(key) {
            out.bulk(key);
            matching += 1;
        }
    });
    out.finish(list, matching);
    DONE
}

/// In the reply, the next cursor precedes the keys, but it is known only after the keys were visited. So it is inserted
/// before them.
pub(crate) fn scan(txn: &mut Txn<'_>, out: &mut Writer, argv: ArgList<'_>) -> Reply {
    let step = Scan::parse(argv)?;
    let pattern = step.pattern.map(Glob::new);
    let wanted = |key: &[u8], kind: Kind| {
        step.type_name.is_none_or(|name| name.eq_ignore_ascii_case(type_name(Some(kind)).as_bytes()))
            && pattern.as_ref().is_none_or(|pattern| pattern.matches(key))
    };
    out.array(2);
    let (begin, mut matching) = (out.len(), 0);
    let cursor = txn.scan(step.cursor, step.count as usize, |key, kind| {
        if wanted(key, kind) {
            out.bulk(key);
            matching += 1;
        }
    });
    out.insert(begin, |out| {
        out.bulk_display(cursor);
        out.array(matching);
    });
    DONE
}

fn type_name(kind: Option<Kind>) -> &'static str {
    match kind {
        None => "none",
        Some(Kind::String) => "string",
        Some(Kind::List) => "list",
        Some(Kind::Set) => "set",
        Some(Kind::Hash) => "hash",
        Some(Kind::Stream) => "stream",
    }
}

/// Returns a random number: the standard library gives each `RandomState` different keys.
fn random() -> u64 {
    RandomState::new().hash_one(())
}

#[cfg(test)]
#[path = "data_tests.rs"]
mod tests;
