//! Commands about entries: XADD XTRIM XDEL XDELEX XLEN XRANGE XREVRANGE XSETID.

use millstream_engine::stream::{Deletion, IdRange};
use millstream_protocol::args::Args;
use millstream_protocol::commands::{ArgList, Direction, Xadd, Xdel, Xdelex, Xrange, Xsetid, Xtrim};
use millstream_protocol::errors::CommandError;
use millstream_protocol::resp::Writer;
use millstream_store::Txn;
use millstream_store::verbs::{
    self, Delete, DeleteEx, Length, Range, SetCounters, StreamCounters, TrimStream, Verb,
};

use super::{MANY_ENTRIES, write_deletions, write_entries};
use crate::command::{Call, DONE, Outcome, Reply, SlowWork, WorkFn, reply_ok};
use crate::state::Server;

pub(crate) fn xadd(txn: &mut Txn<'_>, out: &mut Writer, argv: ArgList<'_>) -> Reply {
    let cmd = Xadd::parse(argv)?;
    append(txn, out, &cmd)?;
    let is_brief = cmd.entry.trim.is_none() && cmd.entry.idempotence.is_none();
    Ok(if is_brief { Outcome::Brief } else { Outcome::Done })
}

#[inline(never)]
fn append(txn: &mut Txn<'_>, out: &mut Writer, cmd: &Xadd<'_>) -> Result<(), CommandError> {
    match verbs::add(txn, cmd.key, &cmd.entry)? {
        Some(id) => out.id(id),
        None => out.null_bulk(),
    }
    Ok(())
}

pub(crate) fn xtrim(call: &mut Call<'_, '_, '_>, argv: ArgList<'_>) -> Reply {
    let Xtrim { key, trim, references } = Xtrim::parse(argv)?;
    let mut verb = TrimStream { key, trim, references };
    if call.context.in_exec {
        call.out.uint(verb.run(call.txn)?);
        return DONE;
    }
    let (removed, rest) = verb.step(call.txn, None)?;
    let Some(rest) = rest else {
        call.out.uint(removed);
        return DONE;
    };
    let (db, verb) = (call.txn.db(), TrimStream { key: key.to_vec(), trim, references });
    let work: WorkFn = Box::new(move |server, out| trim_in_steps(server, out, db, &verb, (removed, rest)));
    Ok(Outcome::SlowWork(SlowWork { work, timeout_ms: 0, fallback_reply: None }))
}

/// Continues a trim that asks groups about many entries. Other clients run between two steps. If the work ends early,
/// because the disk is full for example, the other entries stay.
fn trim_in_steps(
    server: &Server,
    out: &mut Writer,
    db: u32,
    &TrimStream { ref key, trim, references }: &TrimStream<Vec<u8>>,
    (mut removed, rest): (u64, IdRange),
) -> Result<(), CommandError> {
    let (mut verb, mut next) = (TrimStream { key, trim, references }, Some(rest));
    while let Some(rest) = next {
        server.check_writable(0)?;
        let mut txn = server.store.lock_key(db, key, server.store.now_ms());
        let (count, then) = verb.step(&mut txn, Some(rest))?;
        (removed, next) = (removed + count, then);
        txn.finish_fairly();
    }
    out.uint(removed);
    Ok(())
}

pub(crate) fn xdel(txn: &mut Txn<'_>, out: &mut Writer, argv: ArgList<'_>) -> Reply {
    let cmd = Xdel::parse(argv)?;
    // As in Redis, a missing stream decides the reply before the ids are parsed.
    let deleted = match txn.stream(cmd.key)? {
        None => 0,
        Some(_) => Delete { key: cmd.key, ids: cmd.parse_ids()? }.run(txn)?,
    };
    out.uint(deleted);
    DONE
}

pub(crate) fn xdelex(txn: &mut Txn<'_>, out: &mut Writer, argv: ArgList<'_>) -> Reply {
    let cmd = Xdelex::parse(argv)?;
    let missing = txn.stream(cmd.key)?.is_none();
    let request = cmd.request()?;
    // As in Redis, a missing stream decides the reply before the ids are parsed.
    let deletions = match missing {
        true => vec![Deletion::NotFound; request.ids.len()],
        false => {
            let (ids, references) = (request.parse_ids()?, request.references);
            DeleteEx { key: cmd.key, ids, references }.run(txn)?
        }
    };
    write_deletions(out, &deletions);
    DONE
}

pub(crate) fn xlen(txn: &mut Txn<'_>, out: &mut Writer, argv: ArgList<'_>) -> Reply {
    let [key] = Args::of_command(argv).exactly()?;
    out.uint(Length { key }.run(txn)?);
    DONE
}

pub(crate) fn xrange(txn: &mut Txn<'_>, out: &mut Writer, argv: ArgList<'_>) -> Reply {
    range(txn, out, &Xrange::parse(argv, Direction::Forward)?)
}

pub(crate) fn xrevrange(txn: &mut Txn<'_>, out: &mut Writer, argv: ArgList<'_>) -> Reply {
    range(txn, out, &Xrange::parse(argv, Direction::Backward)?)
}

fn range(txn: &Txn<'_>, out: &mut Writer, cmd: &Xrange<'_>) -> Reply {
    let range = Range {
        key: cmd.key,
        ids: Some(IdRange { first: cmd.start, last: cmd.end }),
        count: cmd.count,
        reversed: cmd.direction == Direction::Backward,
    };
    let Some(found) = range.find(txn)? else {
        out.array(0);
        return DONE;
    };
    if cmd.count == Some(0) {
        out.null_array();
        return DONE;
    }
    if let Some(entries) = found.freeze_if_more_than(MANY_ENTRIES) {
        out.array(entries.left() as usize);
        return Ok(Outcome::Long(vec![(out.len(), entries)]));
    }
    write_entries(out, found.count_max(), |sink| found.visit(sink));
    DONE
}

pub(crate) fn xsetid(txn: &mut Txn<'_>, out: &mut Writer, argv: ArgList<'_>) -> Reply {
    let cmd = Xsetid::parse(argv)?;
    let counters = StreamCounters {
        last_id: cmd.last_id,
        entries_added: cmd.entries_added,
        max_deleted_id: cmd.max_deleted_id,
    };
    SetCounters { key: cmd.key, counters }.run(txn)?;
    reply_ok(out)
}
