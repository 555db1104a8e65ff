//! Commands about pending entries: XACK XACKDEL XPENDING XCLAIM XAUTOCLAIM.

use millstream_engine::stream::{ClaimOptions, Deletion, Group, IdRange, PendingQuery};
use millstream_engine::{ClaimedRow, Refusal, StreamId};
use millstream_protocol::commands::{PendingRows, Xack, Xackdel, Xautoclaim, Xclaim, Xpending};
use millstream_protocol::errors::{self, CommandError};
use millstream_protocol::ids::Ids;
use millstream_protocol::resp::Writer;
use millstream_store::{Reader, Txn};

use super::{write_deletions, write_entries};

pub(crate) fn xack(txn: &mut Txn<'_>, out: &mut Writer, cmd: &Xack<'_>) -> Result<(), CommandError> {
    let mut ids = Ids::new();
    let acknowledged = match cmd.read_ids(&mut ids) {
        Ok(()) => txn.xack(cmd.key, cmd.group, &ids)?,
        // A missing stream or group answers before the ids are looked at.
        Err(error) => match txn.group(cmd.key, cmd.group)? {
            None => 0,
            Some(_) => return Err(error),
        },
    };
    out.uint(acknowledged);
    Ok(())
}

pub(crate) fn xackdel(txn: &mut Txn<'_>, out: &mut Writer, cmd: &Xackdel<'_>) -> Result<(), CommandError> {
    let missing = txn.group(cmd.key, cmd.group)?.is_none();
    let request = cmd.request()?;
    // A missing stream or group answers before the ids are looked at.
    let deletions = match missing {
        true => vec![Deletion::NotFound; request.ids.len()],
        false => txn.xackdel(cmd.key, cmd.group, &request.parse_ids()?, request.references)?,
    };
    write_deletions(out, &deletions);
    Ok(())
}

pub(crate) fn xpending(txn: &mut Txn<'_>, out: &mut Writer, cmd: &Xpending<'_>) -> Result<(), CommandError> {
    let no_group = || errors::no_key_or_group(cmd.key, cmd.group);
    let group = txn.group(cmd.key, cmd.group)?.ok_or_else(no_group)?;
    match &cmd.rows {
        None => write_summary(out, group),
        Some(rows) => write_rows(out, group, rows, txn.now_ms()),
    }
    Ok(())
}

fn write_summary(out: &mut Writer, group: &Group) {
    out.array(4);
    out.uint(group.pending().len());
    let (Some(first), Some(last)) = (group.pending().first(), group.pending().last()) else {
        out.null_bulk();
        out.null_bulk();
        out.null_array();
        return;
    };
    out.id(first.id);
    out.id(last.id);
    let owners = || group.consumers().filter(|(_, _, consumer)| consumer.pending > 0);
    out.array(owners().count());
    for (name, _, consumer) in owners() {
        out.array(2);
        out.bulk(name);
        out.bulk_int(consumer.pending as i64);
    }
}

fn write_rows(out: &mut Writer, group: &Group, asked: &PendingRows<'_>, now_ms: u64) {
    let query = PendingQuery {
        ids: IdRange { first: asked.start, last: asked.end },
        consumer: asked.consumer,
        min_idle_ms: asked.idle_ms_min,
        count: asked.count,
    };
    let mark = out.array_deferred(0);
    let rows = group.visit_pending(&query, now_ms, |row| {
        out.array(4);
        out.id(row.id);
        out.bulk(row.consumer.unwrap_or_default());
        out.int(row.idle_ms.map_or(-1, |idle_ms| idle_ms as i64));
        out.uint(row.deliveries);
    });
    out.finish(mark, rows as usize);
}

pub(crate) fn xclaim(txn: &mut Txn<'_>, out: &mut Writer, cmd: &Xclaim<'_>) -> Result<(), CommandError> {
    let no_group = || errors::no_key_or_group(cmd.key, cmd.group);
    txn.group(cmd.key, cmd.group)?.ok_or_else(no_group)?;
    let request = cmd.request()?;
    let options = ClaimOptions {
        min_idle_ms: request.idle_ms_min,
        delivered_at_ms: Some(request.delivered.at_ms(txn.now_ms())),
        deliveries: request.retrycount,
        force: request.force,
        just_ids: request.justid,
    };
    let reader = Reader { key: cmd.key, group: cmd.group, consumer: cmd.consumer };
    let claimed = txn.xclaim(reader, &request.ids, &options, request.last_id)?;
    write_claimed(txn, out, cmd.key, &claimed.rows, request.justid)
}

pub(crate) fn xautoclaim(
    txn: &mut Txn<'_>,
    out: &mut Writer,
    cmd: &Xautoclaim<'_>,
) -> Result<(), CommandError> {
    let options =
        ClaimOptions { min_idle_ms: cmd.idle_ms_min, just_ids: cmd.justid, ..ClaimOptions::default() };
    let reader = Reader { key: cmd.key, group: cmd.group, consumer: cmd.consumer };
    let found = txn.xautoclaim(reader, cmd.start, cmd.count, &options).map_err(|refusal| match refusal {
        Refusal::NoGroup => errors::no_key_or_group(cmd.key, cmd.group),
        refusal => refusal.into(),
    })?;
    out.array(3);
    out.id(found.next.unwrap_or(StreamId::MIN));
    write_claimed(txn, out, cmd.key, &found.claimed.rows, cmd.justid)?;
    out.array(found.claimed.gone.len());
    found.claimed.gone.iter().for_each(|id| out.id(*id));
    Ok(())
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
    let ids: Vec<StreamId> = rows.iter().map(|row| row.id).collect();
    let stream = txn.stream(key)?;
    write_entries(out, ids.len() as u64, |run| {
        let mut count = 0;
        if let Some(stream) = stream {
            stream.visit_ids(&ids, |_, entry| {
                if let Some(entry) = entry {
                    run.write(entry);
                    count += 1;
                }
            });
        }
        count
    });
    Ok(())
}
