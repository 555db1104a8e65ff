//! What can be done with pending entries: claim, acknowledge, give back, extend.

use std::collections::BTreeMap;

use millstream_worker::Admin;
use millstream_worker::backend::{Acknowledgement, Consumer, PendingFilter, PendingRow, Release, StreamId};
use serde_json::{Value, json};

use super::{Ack, Claim, RELEASED, Rows};
use crate::ops::connection::Common;
use crate::ops::failure::Failure;
use crate::ops::known;
use crate::ops::named::NamedGroup;
use crate::ops::output::{note, print, print_json, print_line};
use crate::ops::table::{Table, row};
use crate::ops::value::{count, counted};

pub(super) async fn claim(common: &Common, claim: &Claim) -> Result<(), Failure> {
    let Claim { of: NamedGroup { stream, group }, consumer, min_idle, count: most } = claim;
    let backend = common.connect().await?;
    known::group(&*backend, stream, group).await?;
    let (mut found, mut from) = (Vec::new(), StreamId::MIN);
    while found.len() < *most {
        let claimant = Consumer::new(stream, group, consumer);
        let page = backend.autoclaim(claimant, *min_idle, from, *most - found.len()).await?;
        for delivery in page.deliveries {
            let owner = match delivery.fields {
                Some(_) => Some(consumer.clone()),
                None => owner(&*backend, &claim.of, delivery.id).await?,
            };
            found.push((delivery, owner));
        }
        from = page.next;
        if from == StreamId::MIN {
            break;
        }
    }
    if common.json {
        let told: Value = found
            .iter()
            .map(|(delivery, owner)| {
                json!({
                    "id": delivery.id.to_string(),
                    "consumer": owner,
                    "deliveries": delivery.deliveries,
                    "payload_gone": delivery.fields.is_none(),
                })
            })
            .collect();
        return print_json(&told);
    }
    let rows = found.iter().map(|(delivery, owner)| {
        row![
            delivery.id.to_string(),
            owner.as_deref().unwrap_or(RELEASED),
            count(delivery.deliveries),
            if delivery.fields.is_some() { "there" } else { "gone" },
        ]
    });
    print(Table::new(&["ID", "CONSUMER", ">DELIVERIES", "PAYLOAD"], rows))?;
    let gone = found.iter().filter(|(delivery, _)| delivery.fields.is_none()).count();
    note(&format!("{consumer} has {} more", counted((found.len() - gone) as u64, "entry", "entries")));
    if gone > 0 {
        let entries = counted(gone as u64, "entry", "entries");
        note(&format!(
            "{entries} could not be claimed: gone from the stream\nend them with: millstream pending ack {stream} {group} ID"
        ));
    }
    Ok(())
}

/// Who has a pending entry; `None` if it was released.
async fn owner(
    backend: &dyn Admin,
    NamedGroup { stream, group }: &NamedGroup,
    id: StreamId,
) -> Result<Option<String>, Failure> {
    let rows = backend.pending(stream, group, &PendingFilter::one(id)).await?;
    Ok(rows.into_iter().find_map(|row| row.consumer))
}

pub(super) async fn acknowledge(common: &Common, ack: &Ack) -> Result<(), Failure> {
    let NamedGroup { stream, group } = &ack.of;
    if ack.ids.is_empty() && !ack.all {
        return Err(Failure::Usage(format!(
            "name the entries that are done with, or say --all for everything that is pending\nsee them with: millstream pending ls {stream} {group}"
        )));
    }
    let backend = common.connect().await?;
    let info = known::group(&*backend, stream, group).await?;
    if ack.dry_run {
        return tell_dry(common, &*backend, ack, info.pending).await;
    }
    let ids = if ack.all {
        let are = if info.pending == 1 { "is" } else { "are" };
        let rows = counted(info.pending, "pending entry", "pending entries");
        ack.confirm.ask(&format!("{rows} of group {group} {are} done with, unprocessed")).await?;
        backend.all_pending(stream, group).await?.into_iter().map(|row| row.id).collect()
    } else {
        ack.ids.clone()
    };
    let done = Acknowledgement { ids: ids.clone(), remember: Vec::new() };
    let acknowledged = backend.acknowledge(stream, group, &done).await?;
    tell(common, "acknowledged", acknowledged, ids.len() as u64, &ack.of)
}

/// How many would be acknowledged: those that are pending.
async fn tell_dry(common: &Common, backend: &dyn Admin, ack: &Ack, pending: u64) -> Result<(), Failure> {
    let (mut found, mut asked) = (pending, pending);
    if !ack.all {
        (found, asked) = (0, ack.ids.len() as u64);
        for id in &ack.ids {
            let rows = backend.pending(&ack.of.stream, &ack.of.group, &PendingFilter::one(*id)).await?;
            found += rows.len() as u64;
        }
    }
    if common.json {
        return print_json(&json!({ "acknowledged": 0, "matched": found, "asked": asked, "dry_run": true }));
    }
    print_line(&format!("would acknowledge {}", counted(found, "entry", "entries")))
}

pub(super) async fn give_back(common: &Common, rows: &Rows) -> Result<(), Failure> {
    let backend = common.connect().await?;
    let mut released = 0;
    for (owner, rows_of_owner) in owned(&*backend, rows).await? {
        let back: Vec<Release> =
            rows_of_owner.iter().map(|row| Release::counted(row.id, row.deliveries)).collect();
        released += backend.release(Consumer::new(&rows.of.stream, &rows.of.group, &owner), &back).await?;
    }
    tell(common, "released", released, rows.ids.len() as u64, &rows.of)
}

pub(super) async fn extend(common: &Common, rows: &Rows) -> Result<(), Failure> {
    let backend = common.connect().await?;
    let mut extended = 0;
    for (owner, rows_of_owner) in owned(&*backend, rows).await? {
        let ids: Vec<StreamId> = rows_of_owner.iter().map(|row| row.id).collect();
        extended +=
            backend.extend(Consumer::new(&rows.of.stream, &rows.of.group, &owner), &ids).await?.len() as u64;
    }
    tell(common, "extended", extended, rows.ids.len() as u64, &rows.of)
}

/// The rows that are somebody's, by owner: only the owner can give back or extend.
async fn owned(backend: &dyn Admin, rows: &Rows) -> Result<BTreeMap<String, Vec<PendingRow>>, Failure> {
    let NamedGroup { stream, group } = &rows.of;
    known::group(backend, stream, group).await?;
    let mut by_owner: BTreeMap<String, Vec<PendingRow>> = BTreeMap::new();
    for id in &rows.ids {
        for row in backend.pending(stream, group, &PendingFilter::one(*id)).await? {
            if let Some(owner) = row.consumer.clone() {
                by_owner.entry(owner).or_default().push(row);
            }
        }
    }
    Ok(by_owner)
}

fn tell(
    common: &Common,
    what: &str,
    done: u64,
    asked: u64,
    NamedGroup { stream, group }: &NamedGroup,
) -> Result<(), Failure> {
    if common.json {
        print_json(&json!({ what: done, "asked": asked }))?;
    } else {
        print_line(&format!("{what} {}", counted(done, "entry", "entries")))?;
    }
    if done == 0 && asked > 0 {
        return Err(Failure::NotFound(format!(
            "none of these is pending with a consumer\nsee what is with: millstream pending ls {stream} {group}"
        )));
    }
    Ok(())
}
