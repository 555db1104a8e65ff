//! Setting and describing the policies of streams and groups (XPOLICY).

use std::iter;
use std::sync::atomic::{AtomicU64, Ordering};

use millstream_engine::policy::{GroupRules, Policy, PolicyField};
use millstream_engine::stream::{EXAMINATION_BYTES, Group, PolicyCounters};
use millstream_engine::{Refusal, Stream, StreamEffect};

use super::Verb;
use crate::dead_letter::default_stream;
use crate::store::MemoryPurpose;
use crate::txn::Txn;

/// Changes the policy of a stream, or of a group.
#[derive(Clone, Debug)]
pub struct SetPolicy<B = Vec<u8>> {
    pub key: B,
    /// The group; `None`: the stream, whose policy is the default of its groups.
    pub group: Option<B>,
    /// The fields to change.
    pub change: Policy,
    /// The fields to forget.
    pub unset: Vec<PolicyField>,
    /// The user who sets the policy; `None`: the policy acts with all rights. This user becomes the owner, unless the
    /// change leaves alone what the rights are needed for (see `keeps_owner`).
    pub owner: Option<B>,
}

impl<B> SetPolicy<B> {
    /// Creates a verb that changes the fields that are set in `change`.
    pub fn new(key: B, group: Option<B>, change: Policy) -> SetPolicy<B> {
        SetPolicy { key, group, change, unset: Vec::new(), owner: None }
    }

    /// Returns whether the owner of the policy stays: the change names neither its dead-letter stream nor, if it has
    /// none, its delivery limit. Otherwise somebody who changes another field would lend rights to a dead-letter stream
    /// that the owner has chosen.
    fn keeps_owner(&self, before: &Policy) -> bool {
        let names = |field| self.change.get(field).is_some() || self.unset.contains(&field);
        let has = |field| before.get(field).is_some();
        !names(PolicyField::DeadLetters)
            && (has(PolicyField::DeadLetters)
                || has(PolicyField::MaxDeliver) && !names(PolicyField::MaxDeliver))
    }
}

impl<B: AsRef<[u8]>> Verb for SetPolicy<B> {
    type Output = ();

    fn keys(&self) -> impl Iterator<Item = &[u8]> {
        let dead_letters = self.change.dead_letters.as_deref().filter(|key| !key.is_empty());
        iter::once(self.key.as_ref()).chain(dead_letters)
    }

    fn run(&mut self, txn: &mut Txn<'_>) -> Result<(), Refusal> {
        let (key, group) = (self.key.as_ref(), self.group.as_ref().map(AsRef::as_ref));
        let stream = txn.stream(key)?.ok_or(Refusal::NoSuchKey)?;
        let mut policy = stream.decide_policy(group, &self.change)?;
        if !self.unset.is_empty() {
            self.unset.iter().for_each(|field| policy.unset(*field));
            stream.check_policy(group, &policy)?;
        }
        // Each group has a copy of the rules. A policy of a stream applies to all of them.
        let groups = group.map_or(stream.groups().len(), |_| 1) as u64;
        let bytes = self.change.rules_bytes() * groups + examination_bytes(stream, group, &policy);
        if bytes > 0 {
            txn.store().check_memory(MemoryPurpose::Policies, bytes)?;
        }
        if let Some(dead_letters) = self.change.dead_letters.as_deref().filter(|key| !key.is_empty()) {
            if dead_letters == key {
                return Err(Refusal::DeadLettersToItself);
            }
            txn.stream(dead_letters)?;
        }
        let stream = txn.stream(key)?.ok_or(Refusal::NoSuchKey)?;
        let kept = match current(stream, group)? {
            Some(before) if self.keeps_owner(before) => Some(owner(stream, group)?.map(<[u8]>::to_vec)),
            _ => None,
        };
        let owner = match &kept {
            Some(owner) => owner.as_deref(),
            None => self.owner.as_ref().map(AsRef::as_ref),
        };
        apply(txn, key, group, &policy, owner);
        Ok(())
    }
}

/// Forgets the policy of a stream, or of a group.
#[derive(Clone, Copy, Debug)]
pub struct ResetPolicy<B = Vec<u8>> {
    pub key: B,
    /// The group; `None`: the stream.
    pub group: Option<B>,
}

impl<B: AsRef<[u8]>> Verb for ResetPolicy<B> {
    type Output = ();

    fn keys(&self) -> impl Iterator<Item = &[u8]> {
        iter::once(self.key.as_ref())
    }

    fn run(&mut self, txn: &mut Txn<'_>) -> Result<(), Refusal> {
        let (key, group) = (self.key.as_ref(), self.group.as_ref().map(AsRef::as_ref));
        let stream = txn.stream(key)?.ok_or(Refusal::NoSuchKey)?;
        if current(stream, group)?.is_some() {
            stream.check_policy(group, &Policy::default())?;
            let bytes = examination_bytes(stream, group, &Policy::default());
            if bytes > 0 {
                txn.store().check_memory(MemoryPurpose::Policies, bytes)?;
            }
            apply(txn, key, group, &Policy::default(), None);
        }
        Ok(())
    }
}

/// The policy of a stream or of a group, its current state and its counters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PolicyInfo {
    /// The values in force. The policy of a stream is the default of its groups.
    pub in_force: Policy,
    /// The fields that were set on the group itself, or on the stream.
    pub own: Vec<PolicyField>,
    /// The state and the counters of the group; `None` for a stream.
    pub work: Option<GroupWork>,
    /// Number of entries that the policy of the stream has removed since the store was opened; 0 for a group.
    pub trimmed: u64,
    /// The groups of the stream whose policy in force names a dead-letter stream, each with that name; empty for a
    /// group.
    pub group_dead_letters: Vec<(Vec<u8>, Vec<u8>)>,
    /// The user with whose rights the policy acts; of a group, the one with whose rights dead letters are added.
    /// `None`: with all rights, or there is no policy.
    pub owner: Option<Vec<u8>>,
    /// Whether the owner may not add the dead letters of the group.
    pub is_owner_denied: bool,
}

/// The current state of a group with a policy, and counters of what the policy has done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupWork {
    /// Number of pending entries that belong to a consumer.
    pub in_hand: u64,
    /// Number of released entries that wait for their due time.
    pub waiting: u64,
    /// The next due time of an entry that waits, in Unix milliseconds.
    pub next_due_ms: Option<u64>,
    /// Number of pending entries that reads got again since the start.
    pub redelivered: u64,
    /// Number of entries that clients acknowledged too late, since the start or the last change of the lease.
    pub late_acks: u64,
    /// Number of entries that were dead-lettered since the start.
    pub dead_lettered: u64,
    /// Number of pending entries that were removed since the start because their entry no longer exists.
    pub gone: u64,
    /// Number of failed attempts to dead-letter an entry since the start.
    pub dead_letter_errors: u64,
    /// Why the last attempt failed; `None` if it succeeded.
    pub last_dead_letter_error: Option<Box<str>>,
}

impl GroupWork {
    fn counted(counters: Option<&PolicyCounters>) -> GroupWork {
        let Some(counters) = counters else { return GroupWork::default() };
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        GroupWork {
            redelivered: count(&counters.redelivered),
            late_acks: count(&counters.late_acks),
            dead_lettered: count(&counters.dead_lettered),
            gone: count(&counters.gone),
            dead_letter_errors: count(&counters.dead_letter_errors),
            last_dead_letter_error: counters.last_error(),
            ..GroupWork::default()
        }
    }
}

/// Describes the policy of a stream or of a group.
#[derive(Clone, Copy, Debug)]
pub struct DescribePolicy<B = Vec<u8>> {
    pub key: B,
    /// The group; `None`: the stream.
    pub group: Option<B>,
}

impl<B: AsRef<[u8]>> Verb for DescribePolicy<B> {
    type Output = PolicyInfo;
    const CHANGES: bool = false;

    fn keys(&self) -> impl Iterator<Item = &[u8]> {
        iter::once(self.key.as_ref())
    }

    fn run(&mut self, txn: &mut Txn<'_>) -> Result<PolicyInfo, Refusal> {
        let stream = txn.stream(self.key.as_ref())?.ok_or(Refusal::NoSuchKey)?;
        let name = self.group.as_ref().map(AsRef::as_ref);
        let set = current(stream, name)?.cloned().unwrap_or_default();
        let own = set.fields().map(|(field, _)| field).collect();
        let Some(group) = name.and_then(|name| stream.group(name)) else {
            let named = stream.groups().filter_map(|(name, group)| {
                let dead_letters = group.rules()?.dead_letters.clone()?;
                Some((name.to_vec(), dead_letters.into_vec()))
            });
            let owner = stream.policy_owner().map(<[u8]>::to_vec);
            let (trimmed, group_dead_letters) = (stream.trimmed(), named.collect());
            return Ok(PolicyInfo {
                in_force: set,
                own,
                trimmed,
                group_dead_letters,
                owner,
                ..PolicyInfo::default()
            });
        };
        let in_force = group.rules().map_or_else(Policy::default, GroupRules::to_policy);
        let (pending, now_ms) = (group.pending(), txn.now_ms());
        let work = GroupWork {
            in_hand: group.in_hand(),
            waiting: pending.waiting().filter(|(due_ms, _)| *due_ms > now_ms).count() as u64,
            next_due_ms: pending.next_due_ms(now_ms),
            ..GroupWork::counted(group.policy_counters())
        };
        let key = self.key.as_ref();
        let dead_letters = dead_letters_of(key, group);
        let owner = dead_letters.as_ref().and_then(|_| stream.dead_letter_owner(group)).map(<[u8]>::to_vec);
        let is_denied = |dead_letters: &Vec<u8>| denied_owner(txn, key, group, dead_letters).is_some();
        let is_owner_denied = dead_letters.as_ref().is_some_and(is_denied);
        Ok(PolicyInfo { in_force, own, work: Some(work), owner, is_owner_denied, ..PolicyInfo::default() })
    }
}

/// Returns the stream to which the entries of a group are dead-lettered; `None` if it has no delivery limit.
pub(crate) fn dead_letters_of(key: &[u8], group: &Group) -> Option<Vec<u8>> {
    let rules = group.rules().filter(|rules| rules.has_limit())?;
    Some(rules.dead_letters.as_ref().map_or_else(|| default_stream(key), |named| named.to_vec()))
}

/// Returns the user with whose rights entries of a group are dead-lettered, if this user may not add them.
pub(crate) fn denied_owner<'t>(
    txn: &'t Txn<'_>,
    key: &[u8],
    group: &'t Group,
    dead_letters: &[u8],
) -> Option<&'t [u8]> {
    let rights = txn.store().policy_rights()?;
    let owner = txn.stream(key).ok().flatten()?.dead_letter_owner(group)?;
    (!rights.allow_dead_letters(owner, key, dead_letters)).then_some(owner)
}

/// Returns the memory that a new policy takes at once to find entries at the delivery limit. The timekeeper asks for
/// that of later steps.
fn examination_bytes(stream: &Stream, group: Option<&[u8]>, policy: &Policy) -> u64 {
    type Field = fn(&Policy) -> Option<u64>;
    let (lease, limit): (Field, Field) = (|policy| policy.lease_ms, |policy| policy.max_deliveries);
    let (before, of_stream) = (current(stream, group).ok().flatten(), group.and(stream.policy()));
    let changes = |field: Field| before.and_then(field) != field(policy);
    let is_on = |field: Field| field(policy).or(of_stream.and_then(field)).is_some_and(|value| value > 0);
    let examines = is_on(lease) && (changes(lease) || (changes(limit) && is_on(limit)));
    if examines { EXAMINATION_BYTES } else { 0 }
}

fn current<'s>(stream: &'s Stream, group: Option<&[u8]>) -> Result<Option<&'s Policy>, Refusal> {
    match group {
        Some(name) => Ok(stream.group(name).ok_or(Refusal::NoGroup)?.own_policy()),
        None => Ok(stream.policy()),
    }
}

fn owner<'s>(stream: &'s Stream, group: Option<&[u8]>) -> Result<Option<&'s [u8]>, Refusal> {
    match group {
        Some(name) => Ok(stream.group_policy_owner(stream.group(name).ok_or(Refusal::NoGroup)?)),
        None => Ok(stream.policy_owner()),
    }
}

fn apply(txn: &mut Txn<'_>, key: &[u8], group: Option<&[u8]>, policy: &Policy, owner: Option<&[u8]>) {
    txn.apply_stream(
        key,
        match group {
            Some(group) => StreamEffect::GroupSetPolicy { group, policy, owner },
            None => StreamEffect::SetPolicy { policy, owner },
        },
    );
}
