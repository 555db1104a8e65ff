//! XPOLICY: sets, forgets and shows the policies of streams and groups.

use millstream_engine::policy::{Backoff, Policy, PolicyField, PolicyValue};
use millstream_engine::stream::DelayedSet;
use millstream_engine::{Refusal, Stream};
use millstream_protocol::commands::{ArgList, PolicyOwner, XpolicySet};
use millstream_protocol::errors::{self, CommandError};
use millstream_protocol::resp::Writer;
use millstream_store::Txn;
use millstream_store::verbs::{DescribePolicy, GroupWork, PolicyInfo, ResetPolicy, SetPolicy, Verb};

use crate::command::{Call, DONE, Reply, reply_ok};

pub(crate) fn xpolicy_set(call: &mut Call<'_, '_, '_>, argv: ArgList<'_>) -> Reply {
    let XpolicySet { owner, change, unsets_acked_age } = XpolicySet::parse(argv)?;
    let mut set = SetPolicy::new(owner.key, owner.group, change);
    set.unset.extend(unsets_acked_age.then_some(PolicyField::AckedAge));
    set.owner = call.context.policy_owner();
    set.run(call.txn).map_err(|refusal| refused(refusal, owner, call.txn))?;
    reply_ok(call.out)
}

pub(crate) fn xpolicy_reset(txn: &mut Txn<'_>, out: &mut Writer, argv: ArgList<'_>) -> Reply {
    let owner = PolicyOwner::parse(argv)?;
    let reset = ResetPolicy { key: owner.key, group: owner.group }.run(txn);
    reset.map_err(|refusal| refused(refusal, owner, txn))?;
    reply_ok(out)
}

/// A stream shows what was set on it; a group shows the values in force.
pub(crate) fn xpolicy_get(txn: &mut Txn<'_>, out: &mut Writer, argv: ArgList<'_>) -> Reply {
    let owner = PolicyOwner::parse(argv)?;
    let described = DescribePolicy { key: owner.key, group: owner.group }.run(txn);
    let PolicyInfo { in_force, own, work, trimmed, group_dead_letters, owner: user, is_owner_denied } =
        described.map_err(|refusal| refused(refusal, owner, txn))?;
    let is_shown = |field: &PolicyField| work.is_none() || !field.is_of_stream();
    let shown: Vec<PolicyField> = PolicyField::ALL.into_iter().filter(is_shown).collect();
    out.map(shown.len() + if work.is_some() { 12 } else { 6 });
    shown.into_iter().for_each(|field| write_field(out, field, &in_force));
    match work {
        Some(work) => {
            out.bulk("own");
            out.array(own.len());
            own.iter().for_each(|field| out.bulk(lowercase(*field).as_str()));
            write_work(out, &work);
            out.bulk("dlq-denied");
            out.uint(is_owner_denied.into());
        }
        None => {
            out.bulk("trimmed");
            out.uint(trimmed);
            write_dead_letters(out, &group_dead_letters);
            write_delayed(out, txn.stream(owner.key)?.and_then(Stream::delayed));
        }
    }
    out.bulk("owner");
    match user {
        Some(user) => out.bulk(&user),
        None => out.null_bulk(),
    }
    DONE
}

fn write_dead_letters(out: &mut Writer, groups: &[(Vec<u8>, Vec<u8>)]) {
    out.bulk("group-dlqs");
    out.array(groups.len());
    for (group, dead_letters) in groups {
        out.array(2);
        out.bulk(group);
        out.bulk(dead_letters);
    }
}

fn write_delayed(out: &mut Writer, delayed: Option<&DelayedSet>) {
    out.bulk("delayed");
    out.uint(delayed.map_or(0, DelayedSet::len));
    out.bulk("delayed-first");
    match delayed.and_then(DelayedSet::first) {
        Some(ticket) => out.id(ticket),
        None => out.null_bulk(),
    }
    out.bulk("delayed-bytes");
    out.uint(delayed.map_or(0, DelayedSet::text_bytes));
}

fn write_field(out: &mut Writer, field: PolicyField, policy: &Policy) {
    out.bulk(lowercase(field).as_str());
    match policy.get(field) {
        None => out.null_bulk(),
        Some(PolicyValue::Number(number)) => out.uint(number),
        Some(PolicyValue::Key(key)) => out.bulk(key),
        Some(PolicyValue::Backoff(Backoff { first_ms, longest_ms })) => {
            out.array(2);
            out.uint(first_ms);
            out.uint(longest_ms);
        }
    }
}

fn write_work(out: &mut Writer, work: &GroupWork) {
    out.bulk("in-hand");
    out.uint(work.in_hand);
    out.bulk("waiting");
    out.uint(work.waiting);
    out.bulk("next-due-ms");
    out.int(work.next_due_ms.map_or(-1, |due_ms| due_ms as i64));
    for (name, count) in [
        ("redelivered", work.redelivered),
        ("late-acks", work.late_acks),
        ("dead-lettered", work.dead_lettered),
        ("gone", work.gone),
        ("dlq-errors", work.dead_letter_errors),
    ] {
        out.bulk(name);
        out.uint(count);
    }
    out.bulk("last-dlq-error");
    match &work.last_dead_letter_error {
        Some(error) => out.bulk(&**error),
        None => out.null_bulk(),
    }
}

fn lowercase(field: PolicyField) -> String {
    field.name().to_ascii_lowercase()
}

/// Returns the error for a refusal. Names the group, if the refusal is about one.
fn refused(refusal: Refusal, owner: PolicyOwner<'_>, txn: &Txn<'_>) -> CommandError {
    match (refusal, owner.group) {
        (Refusal::NoGroup, Some(group)) => errors::no_group_for_key(group, owner.key),
        (Refusal::GroupNeedsLeaseOfStream(field), _) => {
            let stream = txn.stream(owner.key).ok().flatten();
            errors::group_needs_lease(field, stream.and_then(Stream::group_needing_lease))
        }
        (refusal, _) => refusal.into(),
    }
}
