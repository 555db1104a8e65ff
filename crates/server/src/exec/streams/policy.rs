//! XPOLICY: sets, forgets and shows the policies of streams and groups.

use millstream_engine::Refusal;
use millstream_engine::policy::{Backoff, GroupRules, Policy, PolicyField, PolicyValue};
use millstream_engine::stream::Group;
use millstream_protocol::commands::{ArgList, PolicyOwner, XpolicySet};
use millstream_protocol::errors::{self, CommandError};
use millstream_protocol::resp::Writer;
use millstream_store::Txn;
use millstream_store::verbs::{ResetPolicy, SetPolicy, Verb};

use crate::command::{DONE, Reply, reply_ok};

pub(crate) fn xpolicy_set(txn: &mut Txn<'_>, out: &mut Writer, argv: ArgList<'_>) -> Reply {
    let XpolicySet { owner, change, unsets_acked_age } = XpolicySet::parse(argv)?;
    let mut set = SetPolicy::new(owner.key, owner.group, change);
    set.unset.extend(unsets_acked_age.then_some(PolicyField::AckedAge));
    set.run(txn).map_err(|refusal| no_group(refusal, owner))?;
    reply_ok(out)
}

pub(crate) fn xpolicy_reset(txn: &mut Txn<'_>, out: &mut Writer, argv: ArgList<'_>) -> Reply {
    let owner = PolicyOwner::parse(argv)?;
    let reset = ResetPolicy { key: owner.key, group: owner.group }.run(txn);
    reset.map_err(|refusal| no_group(refusal, owner))?;
    reply_ok(out)
}

/// A stream shows what was set on it; a group shows the values in force.
pub(crate) fn xpolicy_get(txn: &mut Txn<'_>, out: &mut Writer, argv: ArgList<'_>) -> Reply {
    let owner = PolicyOwner::parse(argv)?;
    let stream = txn.stream(owner.key)?.ok_or(Refusal::NoSuchKey)?;
    let none = Policy::default();
    match owner.group {
        None => {
            out.map(PolicyField::ALL.len());
            write_fields(out, stream.policy().unwrap_or(&none), |_| true);
        }
        Some(name) => {
            let group = stream.group(name).ok_or_else(|| no_group(Refusal::NoGroup, owner))?;
            let of_group = |field: PolicyField| !field.is_of_stream();
            out.map(PolicyField::ALL.into_iter().filter(|field| of_group(*field)).count() + 4);
            write_fields(out, &in_force(group), of_group);
            write_state(out, group, txn.now_ms());
        }
    }
    DONE
}

/// Returns the rules of a group as a policy.
fn in_force(group: &Group) -> Policy {
    let Some(rules) = group.rules() else { return Policy::default() };
    let GroupRules { lease_ms, max_deliveries, dead_letters, backoff, max_pending, consumer_ttl_ms } = rules;
    let limited = |limit: u64| (limit < u64::MAX).then_some(limit);
    Policy {
        lease_ms: Some(*lease_ms),
        max_deliveries: limited(*max_deliveries),
        dead_letters: dead_letters.clone(),
        backoff: (*backoff != Backoff::default()).then_some(*backoff),
        max_pending: limited(*max_pending),
        consumer_ttl_ms: *consumer_ttl_ms,
        ..Policy::default()
    }
}

fn write_fields(out: &mut Writer, policy: &Policy, is_shown: impl Fn(PolicyField) -> bool) {
    for field in PolicyField::ALL.into_iter().filter(|field| is_shown(*field)) {
        out.bulk(field.name().to_ascii_lowercase().as_str());
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
}

/// Writes the fields that were set on the group itself, and what its policy is at work on.
fn write_state(out: &mut Writer, group: &Group, now_ms: u64) {
    let own: Vec<PolicyField> =
        group.own_policy().into_iter().flat_map(Policy::fields).map(|(field, _)| field).collect();
    out.bulk("own");
    out.array(own.len());
    own.iter().for_each(|field| out.bulk(field.name().to_ascii_lowercase().as_str()));
    let pending = group.pending();
    out.bulk("in-hand");
    out.uint(pending.len() - pending.released_len());
    out.bulk("waiting");
    out.uint(pending.waiting().filter(|(due_ms, _)| *due_ms > now_ms).count() as u64);
    out.bulk("next-due-ms");
    out.int(pending.next_due_ms(now_ms).map_or(-1, |due_ms| due_ms as i64));
}

fn no_group(refusal: Refusal, owner: PolicyOwner<'_>) -> CommandError {
    match (refusal, owner.group) {
        (Refusal::NoGroup, Some(group)) => errors::no_group_for_key(group, owner.key),
        (refusal, _) => refusal.into(),
    }
}
