//! The actions on pending entries: claim, acknowledge, release, extend.

use std::sync::Arc;

use millstream_worker::Admin;
use millstream_worker::backend::{Consumer, PendingFilter, StreamId};
use millstream_worker::operate::operation::{Effect, OnParts, Operate};
use millstream_worker::operate::pending::{
    self, ChangePending, PendingChange, PendingEffect, PendingQuery, PendingSelection,
};
use millstream_worker::operate::plan::Plan;
use serde_json::{Value, json};

use super::{AckArgs, ClaimArgs, EntryArgs, RELEASED};
use crate::ops::apply::execute;
use crate::ops::connection::CommonOptions;
use crate::ops::failure::Failure;
use crate::ops::group_args::GroupArgs;
use crate::ops::output::{note, print, print_json, print_line};
use crate::ops::safe_text::printable;
use crate::ops::shell::suggest;
use crate::ops::table::row;
use crate::ops::target::{Part, Target};
use crate::ops::value::{count, counted};

pub(super) async fn claim(common: &CommonOptions, claim: &ClaimArgs) -> Result<(), Failure> {
    let ClaimArgs { group_args: GroupArgs { stream, group }, consumer, ids, min_idle, count: limit } = claim;
    let Some(min_idle) = min_idle else {
        if ids.is_empty() {
            return Err(no_entries("--min-idle for all that have been idle for so long", stream, group));
        }
        let to_consumer = PendingChange::Claim { consumer: consumer.clone() };
        return change(common, &claim.group_args, ids, to_consumer, "claimed").await;
    };
    let backend = common.connect().await?;
    let target = Target::with_group(&*backend, stream, group).await?;
    let mut found = Vec::new();
    for part in &target.parts {
        let mut from = StreamId::MIN;
        while found.len() < *limit {
            let claimant = Consumer::new(&part.stream, group, consumer);
            let page = backend.autoclaim(claimant, *min_idle, from, *limit - found.len()).await?;
            for delivery in page.deliveries {
                let owner = match delivery.fields {
                    Some(_) => Some(consumer.clone()),
                    None => owner(&*backend, &part.stream, group, delivery.id).await?,
                };
                found.push((part, delivery, owner));
            }
            from = page.next;
            if from == StreamId::MIN {
                break;
            }
        }
    }
    if common.json {
        let claimed: Value = found
            .iter()
            .map(|(part, delivery, owner)| {
                part.mark(json!({
                    "id": delivery.id.to_string(),
                    "consumer": owner,
                    "deliveries": delivery.deliveries,
                    "payload_gone": delivery.fields.is_none(),
                }))
            })
            .collect();
        return print_json(&claimed);
    }
    let rows = found.iter().map(|(part, delivery, owner)| {
        let cells = row![
            delivery.id.to_string(),
            owner.as_deref().unwrap_or(RELEASED),
            count(delivery.deliveries),
            if delivery.fields.is_some() { "present" } else { "gone" },
        ];
        (*part, cells)
    });
    print(target.table(&["ID", "CONSUMER", ">DELIVERIES", "PAYLOAD"], rows))?;
    let gone = found.iter().filter(|(_, delivery, _)| delivery.fields.is_none()).count();
    let claimed = counted((found.len() - gone) as u64, "entry", "entries");
    note(&format!("claimed {claimed} for {}", printable(consumer)));
    if gone > 0 {
        let entries = counted(gone as u64, "entry", "entries");
        note(&format!(
            "{entries} not claimed: deleted from the stream\nremove each from the pending list with: {}",
            suggest("pending ack", &[stream, group, "ID"], "")
        ));
    }
    Ok(())
}

/// Returns the error for a command line without entries.
fn no_entries(option: &str, stream: &str, group: &str) -> Failure {
    Failure::Usage(format!(
        "no entries given: pass their ids, or {option}\nlist them with: {}",
        suggest("pending ls", &[stream, group], "")
    ))
}

/// Returns the consumer of a pending entry. `None` if the entry was released.
async fn owner(
    backend: &dyn Admin,
    stream: &str,
    group: &str,
    id: StreamId,
) -> Result<Option<String>, Failure> {
    let rows = backend.pending(stream, group, &PendingFilter::single(id)).await?;
    Ok(rows.into_iter().find_map(|row| row.consumer))
}

pub(super) async fn acknowledge(common: &CommonOptions, ack: &AckArgs) -> Result<(), Failure> {
    let GroupArgs { stream, group } = &ack.group_args;
    if ack.ids.is_empty() && !ack.all {
        return Err(no_entries("--all for all pending entries", stream, group));
    }
    let backend = common.connect().await?;
    let target = Target::with_group(&*backend, stream, group).await?;
    let parts = match ack.all {
        true => {
            let all = || PendingSelection::Matching { query: PendingQuery::default(), scan: usize::MAX };
            target.parts.iter().map(|part| (part, all())).collect()
        }
        false => pending_by_part(&*backend, &target, group, &ack.ids).await?,
    };
    let operation = operation(&ack.group_args, parts, PendingChange::Acknowledge);
    let plan = planned(&backend, &operation).await?;
    let matched = plan.as_ref().map_or(0, |plan| plan.effect.matched());
    let asked = if ack.all { matched } else { ack.ids.len() as u64 };
    if ack.dry_run {
        if common.json {
            return print_json(
                &json!({ "acknowledged": 0, "matched": matched, "asked": asked, "dry_run": true }),
            );
        }
        return print_line(&format!("would acknowledge {}", counted(matched, "entry", "entries")));
    }
    if ack.all {
        let entries = counted(matched, "pending entry", "pending entries");
        ack.confirm
            .ask(&format!("acknowledge {entries} of group {} without processing them", printable(group)))
            .await?;
    }
    finish(common, &backend, &operation, plan, "acknowledged", asked, &ack.group_args).await
}

/// Distributes ids over the streams in which they are pending.
async fn pending_by_part<'t>(
    backend: &dyn Admin,
    target: &'t Target,
    group: &str,
    ids: &[StreamId],
) -> Result<Vec<(&'t Part, PendingSelection)>, Failure> {
    let find = async |part: &Part| {
        let rows = pending::rows_of(backend, &part.stream, group, ids).await?;
        Ok(rows.into_iter().map(|row| row.id).collect())
    };
    let found = target.by_part(ids, find).await?;
    Ok(found.into_iter().map(|(part, ids)| (part, PendingSelection::Ids(ids))).collect())
}

fn operation(
    GroupArgs { stream, group }: &GroupArgs,
    parts: Vec<(&Part, PendingSelection)>,
    change: PendingChange,
) -> OnParts<ChangePending> {
    let parts = parts.into_iter().map(|(part, selection)| ChangePending {
        stream: part.stream.clone(),
        group: group.clone(),
        selection,
        change: change.clone(),
    });
    OnParts { name: stream.clone(), parts: parts.collect() }
}

type PendingPlan = Plan<PendingEffect>;

/// Returns the plan. `None` if no partition has one of the entries.
async fn planned(
    backend: &Arc<dyn Admin>,
    operation: &OnParts<ChangePending>,
) -> Result<Option<PendingPlan>, Failure> {
    match operation.parts.is_empty() {
        true => Ok(None),
        false => Ok(Some(operation.plan(backend, None).await?)),
    }
}

pub(super) async fn release(common: &CommonOptions, entries: &EntryArgs) -> Result<(), Failure> {
    change(common, &entries.group_args, &entries.ids, PendingChange::Release, "released").await
}

pub(super) async fn extend(common: &CommonOptions, entries: &EntryArgs) -> Result<(), Failure> {
    change(common, &entries.group_args, &entries.ids, PendingChange::Extend, "extended").await
}

/// Changes those of the entries that are pending and can be changed so.
async fn change(
    common: &CommonOptions,
    group_args: &GroupArgs,
    ids: &[StreamId],
    change: PendingChange,
    verb: &str,
) -> Result<(), Failure> {
    let GroupArgs { stream, group } = group_args;
    let backend = common.connect().await?;
    let target = Target::with_group(&*backend, stream, group).await?;
    let parts = pending_by_part(&*backend, &target, group, ids).await?;
    let operation = operation(group_args, parts, change);
    let plan = planned(&backend, &operation).await?;
    finish(common, &backend, &operation, plan, verb, ids.len() as u64, group_args).await
}

/// Changes what was planned, and prints the number of changed entries. Entries that have changed hands since are left
/// alone. Returns an error if none of the entries was pending.
async fn finish(
    common: &CommonOptions,
    backend: &Arc<dyn Admin>,
    operation: &OnParts<ChangePending>,
    plan: Option<PendingPlan>,
    verb: &str,
    asked: u64,
    GroupArgs { stream, group }: &GroupArgs,
) -> Result<(), Failure> {
    let done = match plan {
        Some(plan) => execute(backend, operation, plan, |_| {}).await?.done(),
        None => 0,
    };
    if common.json {
        print_json(&json!({ verb: done, "asked": asked }))?;
    } else {
        print_line(&format!("{verb} {}", counted(done, "entry", "entries")))?;
    }
    if done == 0 && asked > 0 {
        return Err(Failure::NotFound(format!(
            "none of these entries is pending in group {} of {}\nlist pending entries with: {}",
            printable(group),
            printable(stream),
            suggest("pending ls", &[stream, group], "")
        )));
    }
    Ok(())
}
