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
use crate::command::{DONE, Outcome, Reply, reply_ok};

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

pub(crate) fn xtrim(txn: &mut Txn<'_>, out: &mut Writer, argv: ArgList<'_>) -> Reply {
    let cmd = Xtrim::parse(argv)?;
    out.uint(TrimStream { key: cmd.key, trim: cmd.trim, references: cmd.references }.run(txn)?);
    DONE
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
