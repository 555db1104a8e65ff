//! Commands about delayed entries: XDELAY. XADD delays entries.

use millstream_protocol::commands::{ArgList, XdelayRange, XdelayTickets};
use millstream_protocol::resp::Writer;
use millstream_store::Txn;
use millstream_store::verbs::{CancelDelayed, DelayedRange, PromoteDelayed, Verb};

use super::{MANY_ENTRIES, write_entries};
use crate::command::{DONE, Outcome, Reply};

pub(crate) fn xdelay_range(txn: &mut Txn<'_>, out: &mut Writer, argv: ArgList<'_>) -> Reply {
    let cmd = XdelayRange::parse(argv)?;
    let range = DelayedRange { key: cmd.key, tickets: Some(cmd.tickets), count: cmd.count };
    let Some(found) = range.find(txn)? else {
        out.array(0);
        return DONE;
    };
    if let Some(entries) = found.freeze_if_more_than(MANY_ENTRIES) {
        out.array(entries.left() as usize);
        return Ok(Outcome::Long(vec![(out.len(), entries)]));
    }
    write_entries(out, found.count(), |sink| found.visit(sink));
    DONE
}

pub(crate) fn xdelay_del(txn: &mut Txn<'_>, out: &mut Writer, argv: ArgList<'_>) -> Reply {
    let cmd = XdelayTickets::parse(argv)?;
    out.uint(CancelDelayed { key: cmd.key, tickets: cmd.tickets }.run(txn)?);
    DONE
}

pub(crate) fn xdelay_now(txn: &mut Txn<'_>, out: &mut Writer, argv: ArgList<'_>) -> Reply {
    let cmd = XdelayTickets::parse(argv)?;
    out.uint(PromoteDelayed { key: cmd.key, tickets: cmd.tickets }.run(txn)?);
    DONE
}
