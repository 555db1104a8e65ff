//! Commands about pending entries: XACK XACKDEL XPENDING XCLAIM XAUTOCLAIM.

use millstream_engine::stream::{ClaimOptions, Deletion, IdRange};
use millstream_engine::{ClaimedRow, Refusal, StreamId};
use millstream_protocol::commands::{ArgList, Xack, Xackdel, Xautoclaim, Xclaim, Xpending};
use millstream_protocol::errors::{self, CommandError};
use millstream_protocol::ids::Ids;
use millstream_protocol::resp::Writer;
use millstream_store::Txn;
use millstream_store::verbs::{
    AckDelete, Acknowledge, AutoClaim, Claim, ConsumerPath, Pending, PendingRows, PendingSummary, Verb,
    visit_claimed,
};

use super::{no_key_or_group, write_deletions, write_entries};
use crate::command::{DONE, Outcome, Reply};

pub(crate) fn xack(txn: &mut Txn<'_>, out: &mut Writer, argv: ArgList<'_>) -> Reply {
    let cmd = Xack::parse(argv)?;
    let mut ids = Ids::new();
    let acknowledged = match cmd.read_ids(&mut ids) {
        Ok(()) => Acknowledge { key: cmd.key, group: cmd.group, ids: &ids[..] }.run(txn)?,
        // As in Redis, a missing stream or group decides the reply before the ids are parsed.
        Err(error) => match txn.group(cmd.key, cmd.group)? {
            None => 0,
            Some(_) => return Err(error),
        },
    };
    out.uint(acknowledged);
    Ok(Outcome::Brief)
}

pub(crate) fn xackdel(txn: &mut Txn<'_>, out: &mut Writer, argv: ArgList<'_>) -> Reply {
    let cmd = Xackdel::parse(argv)?;
    let (key, group) = (cmd.key, cmd.group);
    let missing = txn.group(key, group)?.is_none();
    let request = cmd.request()?;
    // As in Redis, a missing stream or group decides the reply before the ids are parsed.
    let deletions = match missing {
        true => vec![Deletion::NotFound; request.ids.len()],
        false => {
            let (ids, references) = (request.parse_ids()?, request.references);
            AckDelete { key, group, ids, references }.run(txn)?
        }
    };
    write_deletions(out, &deletions);
    DONE
}

pub(crate) fn xpending(txn: &mut Txn<'_>, out: &mut Writer, argv: ArgList<'_>) -> Reply {
    let cmd = Xpending::parse(argv)?;
    let listed = match &cmd.range {
        None => {
            Pending { key: cmd.key, group: cmd.group }.run(txn).map(|summary| write_summary(out, &summary))
        }
        Some(range) => {
            let asked = PendingRows {
                key: cmd.key,
                group: cmd.group,
                ids: Some(IdRange { first: range.start, last: range.end }),
                consumer: range.consumer,
                min_idle_ms: range.idle_ms_min,
                count: range.count,
            };
            write_rows(txn, out, &asked)
        }
    };
    listed.map_err(|refusal| no_key_or_group(refusal, cmd.key, cmd.group))?;
    DONE
}

fn write_summary(out: &mut Writer, summary: &PendingSummary) {
    out.array(4);
    out.uint(summary.count);
    let Some((first, last)) = summary.ids else {
        out.null_bulk();
        out.null_bulk();
        out.null_array();
        return;
    };
    out.id(first);
    out.id(last);
    out.array(summary.consumers.len());
    for (name, pending) in &summary.consumers {
        out.array(2);
        out.bulk(name);
        out.bulk_int(*pending as i64);
    }
}

fn write_rows(txn: &Txn<'_>, out: &mut Writer, asked: &PendingRows<&[u8]>) -> Result<(), Refusal> {
    let mark = out.array_deferred(0);
    let rows = asked.visit(txn, |row| {
        out.array(4);
        out.id(row.id);
        out.bulk(row.consumer.unwrap_or_default());
        out.int(row.idle_ms.map_or(-1, |idle_ms| idle_ms as i64));
        out.uint(row.deliveries);
    })?;
    out.finish(mark, rows as usize);
    Ok(())
}

pub(crate) fn xclaim(txn: &mut Txn<'_>, out: &mut Writer, argv: ArgList<'_>) -> Reply {
    let cmd = Xclaim::parse(argv)?;
    txn.group(cmd.key, cmd.group)?.ok_or_else(|| errors::no_key_or_group(cmd.key, cmd.group))?;
    let request = cmd.request()?;
    let claim = Claim {
        consumer: ConsumerPath { key: cmd.key, group: cmd.group, consumer: cmd.consumer },
        ids: &request.ids[..],
        options: ClaimOptions {
            min_idle_ms: request.idle_ms_min,
            delivered_at_ms: Some(request.delivered.at_ms(txn.now_ms())),
            deliveries: request.retrycount,
            force: request.force,
            just_ids: request.justid,
        },
        idle_ms: None,
        last_id: request.last_id,
    };
    let claimed = claim.claim(txn)?;
    write_claimed(txn, out, cmd.key, &claimed.rows, request.justid)?;
    DONE
}

pub(crate) fn xautoclaim(txn: &mut Txn<'_>, out: &mut Writer, argv: ArgList<'_>) -> Reply {
    let cmd = Xautoclaim::parse(argv)?;
    let options =
        ClaimOptions { min_idle_ms: cmd.idle_ms_min, just_ids: cmd.justid, ..ClaimOptions::default() };
    let consumer = ConsumerPath { key: cmd.key, group: cmd.group, consumer: cmd.consumer };
    let claim = AutoClaim { consumer, start: cmd.start, count: cmd.count, options };
    let found = claim.claim(txn).map_err(|refusal| no_key_or_group(refusal, cmd.key, cmd.group))?;
    out.array(3);
    out.id(found.next.unwrap_or(StreamId::MIN));
    write_claimed(txn, out, cmd.key, &found.claimed.rows, cmd.justid)?;
    out.array(found.claimed.gone.len());
    found.claimed.gone.iter().for_each(|id| out.id(*id));
    DONE
}

fn write_claimed(
    txn: &Txn<'_>,
    out: &mut Writer,
    key: &[u8],
    rows: &[ClaimedRow],
    just_ids: bool,
) -> Result<(), CommandError> {
    if just_ids {
        out.array(rows.len());
        rows.iter().for_each(|row| out.id(row.id));
        return Ok(());
    }
    let mut shown = Ok(());
    write_entries(out, rows.len() as u64, |run| {
        let mut count = 0;
        shown = visit_claimed(txn, key, rows, |entry| {
            if !run.is_full() {
                run.write(entry);
            }
            count += 1;
        });
        count
    });
    Ok(shown?)
}
