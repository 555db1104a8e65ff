//! Commands on keys of any type.

use std::hash::{BuildHasher, RandomState};

use millstream_engine::value::Kind;
use millstream_protocol::commands::{CopyKey, Expire, ExpireCondition, KeyCommand, Rename, Scan, TimeToLive};
use millstream_protocol::errors::CommandError;
use millstream_protocol::glob;
use millstream_protocol::resp::Writer;
use millstream_store::{ExpireIf, Txn};

pub(crate) fn run(txn: &mut Txn<'_>, out: &mut Writer, command: &KeyCommand<'_>) -> Result<(), CommandError> {
    match *command {
        KeyCommand::Del(keys) | KeyCommand::Unlink(keys) => count(out, keys, |key| txn.delete(key)),
        KeyCommand::Exists(keys) => count(out, keys, |key| txn.exists(key)),
        KeyCommand::Touch(keys) => count(out, keys, |key| txn.touch(key)),
        KeyCommand::Type(key) => out.simple(type_name(txn.kind(key))),
        KeyCommand::Persist(key) => out.int(txn.persist(key).into()),
        KeyCommand::Expire(ref expire) => run_expire(txn, out, expire)?,
        KeyCommand::TimeToLive(ref question) => time_to_live(txn, out, question),
        KeyCommand::Rename(Rename { from, to, keep_existing }) => {
            let renamed = txn.rename(from, to, keep_existing)?;
            if keep_existing { out.int(renamed.into()) } else { out.ok() }
        }
        KeyCommand::Copy(CopyKey { from, to, db, replace }) => {
            out.int(txn.copy(from, to, db.unwrap_or(txn.db()), replace)?.into());
        }
        KeyCommand::Move(key, db) => out.int(txn.move_to(key, db)?.into()),
        KeyCommand::Keys(pattern) => keys(txn, out, pattern),
        KeyCommand::Scan(ref step) => scan(txn, out, step),
        KeyCommand::RandomKey => match txn.random_key(random()) {
            Some(key) => out.bulk(key),
            None => out.null_bulk(),
        },
        KeyCommand::DbSize => out.uint(txn.key_count()),
        // However it is asked for, memory is given back beside: nobody else is to wait for it.
        KeyCommand::FlushDb(_) => {
            txn.flush_database();
            out.ok();
        }
        KeyCommand::FlushAll(_) => {
            txn.flush_all();
            out.ok();
        }
        KeyCommand::SwapDb(a, b) => {
            txn.swap_databases(a, b)?;
            out.ok();
        }
    }
    Ok(())
}

/// How many of these keys the test holds for; a key named twice is asked twice.
fn count(out: &mut Writer, keys: &[&[u8]], mut test: impl FnMut(&[u8]) -> bool) {
    out.count(keys.iter().filter(|key| test(key)).count());
}

fn run_expire(txn: &mut Txn<'_>, out: &mut Writer, expire: &Expire<'_>) -> Result<(), CommandError> {
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
    Ok(())
}

fn time_to_live(txn: &Txn<'_>, out: &mut Writer, question: &TimeToLive<'_>) {
    const NO_KEY: i64 = -2;
    const NO_EXPIRY: i64 = -1;
    let at_ms = match txn.expires_at_ms(question.key) {
        None => return out.int(NO_KEY),
        Some(None) => return out.int(NO_EXPIRY),
        Some(Some(at_ms)) => at_ms,
    };
    let ms = if question.absolute { at_ms } else { at_ms.saturating_sub(txn.now_ms()) };
    out.uint(if question.milliseconds { ms } else { ms.saturating_add(500) / 1000 });
}

fn keys(txn: &Txn<'_>, out: &mut Writer, pattern: &[u8]) {
    let list = out.array_deferred(txn.key_count() as usize);
    let mut matching = 0;
    txn.visit_keys(|key| {
        if glob::matches(pattern, key) {
            out.bulk(key);
            matching += 1;
        }
    });
    out.finish(list, matching);
}

/// The next cursor comes before the keys but is known after them, so the keys are written aside.
fn scan(txn: &Txn<'_>, out: &mut Writer, step: &Scan<'_>) {
    let wanted = |key: &[u8], kind: Kind| {
        step.type_name.is_none_or(|name| name.eq_ignore_ascii_case(type_name(Some(kind)).as_bytes()))
            && step.pattern.is_none_or(|pattern| glob::matches(pattern, key))
    };
    let (mut keys, mut matching) = (Writer::new(out.resp3), 0);
    let cursor = txn.scan(step.cursor, step.count as usize, |key, kind| {
        if wanted(key, kind) {
            keys.bulk(key);
            matching += 1;
        }
    });
    out.array(2);
    out.bulk_display(cursor);
    out.array(matching);
    out.raw(&keys.buf);
}

/// A type as TYPE answers it.
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

/// Another number every time: each state of the standard library's hasher is keyed anew.
fn random() -> u64 {
    RandomState::new().hash_one(())
}

#[cfg(test)]
#[path = "data_tests.rs"]
mod tests;
