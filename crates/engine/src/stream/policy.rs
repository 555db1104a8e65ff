//! Sets the policies of a stream and its groups, and computes the rules that are in force in a group.

use std::ops::Bound;
use std::sync::Arc;

use super::entries::Entries;
use super::owner::OwnedPolicy;
use super::{Group, Stream};
use crate::policy::{GroupRules, Policy, PolicyField};
use crate::{Refusal, StreamId};

/// How long a stream waits before it tries again what it could not do.
const RETRY_MS: u64 = 1000;

/// Maximum number of pending entries that one step examines. One that the step adds to a set or sorts counts more.
pub(super) const EXAMINATION_BUDGET: u64 = 20_000;

/// Memory that a step can take: that of 1000 rows, each of which can be in two sets.
pub const EXAMINATION_BYTES: u64 = 100_000;

/// The policy of a stream, and what it has done since the stream was loaded.
#[derive(Clone, Debug)]
pub(super) struct StreamPolicy {
    pub(super) owned: OwnedPolicy,
    /// Number of entries that retention has removed. No effect sets it, so it begins with 0 after a restart.
    trimmed: u64,
}

impl From<OwnedPolicy> for StreamPolicy {
    fn from(owned: OwnedPolicy) -> StreamPolicy {
        StreamPolicy { owned, trimmed: 0 }
    }
}

impl StreamPolicy {
    pub(super) fn get(&self) -> &Policy {
        &self.owned.policy
    }

    pub(super) fn set_owner(&mut self, owner: &[u8]) {
        self.owned.set_owner(Some(owner));
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.owned.memory_bytes() + size_of::<u64>()
    }
}

impl Stream {
    /// Returns the policy of the stream; `None` if none is set.
    #[inline]
    pub fn policy(&self) -> Option<&Policy> {
        self.policy.as_ref().map(|policy| policy.get())
    }

    /// Returns how many entries retention has removed since the stream was loaded or its policy was first set.
    pub fn trimmed(&self) -> u64 {
        self.policy.as_ref().map_or(0, |policy| policy.trimmed)
    }

    pub(crate) fn count_trimmed(&mut self, count: u64) {
        if let Some(policy) = &mut self.policy {
            policy.trimmed += count;
        }
    }

    /// Decides a change of the policy of the stream, or of a group: the fields that are set in `change` replace those
    /// of the current policy. Returns the new policy.
    pub fn decide_policy(&self, group: Option<&[u8]>, change: &Policy) -> Result<Policy, Refusal> {
        let mut policy = match group {
            Some(name) => self.group(name).ok_or(Refusal::NoGroup)?.own_policy().cloned().unwrap_or_default(),
            None => self.policy().cloned().unwrap_or_default(),
        };
        for (field, value) in change.fields() {
            // A stream has no defaults of its own, so a field that is off need not be stored.
            match group.is_none() && field != PolicyField::AckedAge && value.is_off() {
                true => policy.unset(field),
                false => policy.set(field, value),
            }
        }
        self.check_policy(group, &policy)?;
        Ok(policy)
    }

    /// Checks a new policy of the stream, or of a group: fields that need a lease have one.
    pub fn check_policy(&self, group: Option<&[u8]>, policy: &Policy) -> Result<(), Refusal> {
        let none = Policy::default();
        let refused = |own: &Policy, of_stream: &Policy, refusal: fn(PolicyField) -> Refusal| {
            without_lease(own, of_stream).map_or(Ok(()), |field| Err(refusal(field)))
        };
        if group.is_some() {
            return refused(policy, self.policy().unwrap_or(&none), Refusal::PolicyNeedsLease);
        }
        refused(policy, &none, Refusal::PolicyNeedsLease)?;
        let mut of_groups = self.groups.values().filter_map(Group::own_policy);
        of_groups.try_for_each(|own| refused(own, policy, Refusal::GroupNeedsLeaseOfStream))
    }

    /// Returns the name of the first group that needs the lease of the stream, because it has none of its own.
    pub fn group_needing_lease(&self) -> Option<&[u8]> {
        let none = Policy::default();
        let needs = |group: &Group| group.own_policy().is_some_and(|own| without_lease(own, &none).is_some());
        self.groups.iter().find(|(_, group)| needs(group)).map(|(name, _)| &**name)
    }

    pub(super) fn set_policy(&mut self, policy: &Policy, owner: Option<&[u8]>) {
        let (trimmed, placement) = (self.trimmed(), self.placement.as_deref());
        let policy = (!policy.is_empty())
            .then(|| StreamPolicy { owned: OwnedPolicy::new(policy, owner, placement), trimmed });
        self.policy = policy.map(Box::new);
        // If the last examination is not over, it may wait for memory.
        let may_grow = self.unexamined_from.is_none();
        self.refresh_all_rules();
        self.examine_step(&mut { EXAMINATION_BUDGET }, may_grow);
    }

    pub(super) fn refresh_all_rules(&mut self) {
        let none = Policy::default();
        let policy = self.policy.as_ref().map_or(&none, |policy| policy.get());
        let shared = GroupRules::new(&none, policy).map(Arc::new);
        for group in self.groups.values_mut() {
            let rules = match group.own_policy() {
                Some(_) => group.find_rules(Some(policy)),
                None => shared.clone(),
            };
            group.set_rules(rules, &self.entries);
        }
        self.unexamined_from = Some(Box::default());
    }

    pub(super) fn set_group_policy(&mut self, name: &[u8], policy: &Policy, owner: Option<&[u8]>) {
        if let Some(group) = self.groups.get_mut(name) {
            let owned = || Box::new(OwnedPolicy::new(policy, owner, self.placement.as_deref()));
            group.own_policy = (!policy.is_empty()).then(owned);
            group.refresh_rules(self.policy.as_ref().map(|policy| policy.get()), &self.entries);
            let may_grow = self.unexamined_from.is_none();
            if !group.is_examined() && self.unexamined_from.as_deref().is_none_or(|from| name < from) {
                self.unexamined_from = Some(name.into());
            }
            self.examine_step(&mut { EXAMINATION_BUDGET }, may_grow);
        }
    }

    pub(super) fn create_group(&mut self, name: &[u8], last_id: StreamId, entries_read: Option<u64>) {
        let mut group = Group::new(last_id, entries_read);
        group.refresh_rules(self.policy(), &self.entries);
        self.trimmed_entries.note_position(&group);
        self.groups.insert(name.into(), group);
    }

    /// Returns whether pending entries are left to [examine](Stream::examine).
    pub fn has_unexamined(&self) -> bool {
        self.unexamined_from.is_some() || !self.unmarked.is_empty()
    }

    /// Returns when pending entries are to be [examined](Stream::examine), in Unix milliseconds; `None` if none are
    /// left.
    pub fn examination_ms(&self) -> Option<u64> {
        self.has_unexamined().then_some(self.examine_at_ms)
    }

    /// Examines some pending entries, after a change of the policy of the stream or of a group. It finds those that are
    /// to be dead-lettered, and makes released ones available to readers: then it returns true. After a removal of many
    /// entries, it marks some of those that are pending. Takes about 100 µs and up to [`EXAMINATION_BYTES`]. This is
    /// not a change of data.
    pub fn examine(&mut self) -> bool {
        let (has_unexamined, mut budget) = (self.unexamined_from.is_some(), EXAMINATION_BUDGET);
        self.examine_step(&mut budget, true);
        self.examine_at_ms = 0;
        self.mark_more_gone(&mut budget);
        has_unexamined
    }

    /// Like [`examine`](Stream::examine), without memory: does what can free some. Then the rest waits for a second.
    pub fn examine_without_memory(&mut self, now_ms: u64) -> bool {
        let (has_unexamined, mut budget) = (self.unexamined_from.is_some(), EXAMINATION_BUDGET);
        let is_stopped = self.examine_step(&mut budget, false);
        let only_marks_are_left = self.unexamined_from.is_none() && !self.unmarked.is_empty();
        let waits = is_stopped || only_marks_are_left;
        self.examine_at_ms = if waits { now_ms.saturating_add(RETRY_MS) } else { 0 };
        has_unexamined
    }

    /// Does a step. Returns whether it could not go on because it may not grow.
    fn examine_step(&mut self, budget: &mut u64, may_grow: bool) -> bool {
        let Some(from) = self.unexamined_from.take() else { return false };
        for (name, group) in self.groups.range_mut::<[u8], _>((Bound::Included(&*from), Bound::Unbounded)) {
            // A step that may not grow passes groups that wait for memory, because later ones can free some.
            *budget = budget.saturating_sub(may_grow.into());
            group.examine(&self.entries, budget, may_grow);
            if !group.is_examined() || *budget == 0 {
                self.unexamined_from.get_or_insert_with(|| name.clone());
                if may_grow || *budget == 0 {
                    break;
                }
            }
        }
        self.unexamined_from.is_some() && *budget > 0
    }

    /// Returns whether a read of the group would get new entries: there are some, and MAXPENDING is not reached.
    pub fn has_new(&self, group: &Group) -> bool {
        self.has_undelivered(group) && group.room() > 0
    }

    /// Returns the earliest time after `now_ms` at which the stream may have something to do without a request, in Unix
    /// milliseconds; `None` if it never has. If something must be done already, the time can be earlier. Until then,
    /// only a change that [schedules](crate::StreamEffect) the stream again makes this time earlier. `phase` is that of
    /// the stream's [looks](super::Look).
    pub fn next_duty_ms(&self, now_ms: u64, phase: u64) -> Option<u64> {
        let promotion_ms = self.next_promotion_duty_ms(now_ms);
        let since_ms = now_ms.saturating_add(1);
        let looks = [self.next_retention_ms(since_ms, phase), self.next_consumer_look_ms(since_ms, phase)];
        let next_final_ms = |group: &Group| self.next_final_ms(group, group.rules()?, now_ms);
        let finals = self.groups.values().filter_map(next_final_ms);
        let examination_ms = self.examination_ms();
        finals.chain(promotion_ms).chain(examination_ms).chain(looks.into_iter().flatten()).min()
    }

    /// Like [`next_duty_ms`](Stream::next_duty_ms), but only for delayed entries.
    pub fn next_promotion_duty_ms(&self, now_ms: u64) -> Option<u64> {
        self.next_promotion_ms().map(|due_ms| match self.last_id() {
            // There are no ids left: XSETID may change that.
            StreamId::MAX => due_ms.max(now_ms.saturating_add(RETRY_MS)),
            _ => due_ms,
        })
    }

    /// Like [`next_duty_ms`](Stream::next_duty_ms), but only for what there is to do because this group was created.
    pub fn next_duty_of_new_group_ms(&self, name: &[u8], now_ms: u64, phase: u64) -> Option<u64> {
        let group = self.group(name)?;
        let since_ms = now_ms.saturating_add(1);
        // ACKEDAGE begins to apply with the first group.
        let retention_ms =
            (self.groups.len() == 1).then(|| self.next_retention_ms(since_ms, phase)).flatten();
        let final_ms = group.rules().and_then(|rules| self.next_final_ms(group, rules, now_ms));
        [retention_ms, final_ms, group.next_consumer_look_ms(since_ms, phase)].into_iter().flatten().min()
    }

    /// Like [`next_duty_ms`](Stream::next_duty_ms), but only for the pending entries of this group.
    pub fn next_duty_of_group_ms(&self, name: &[u8], now_ms: u64) -> Option<u64> {
        let group = self.group(name)?;
        self.next_final_ms(group, group.rules()?, now_ms)
    }
}

impl Stream {
    pub(super) fn check_rules(&self, group: &Group) -> Result<(), String> {
        let expected = group.find_rules(self.policy());
        match expected == group.rules {
            true => Ok(()),
            false => Err(format!("the rules in force are {:?}, not {expected:?}", group.rules)),
        }
    }
}

impl Group {
    /// Returns the policy that was set on this group; `None` if none was.
    pub fn own_policy(&self) -> Option<&Policy> {
        self.own_policy.as_ref().map(|owned| &owned.policy)
    }

    /// Returns the rules in force; `None` if the group has no lease.
    #[inline]
    pub fn rules(&self) -> Option<&GroupRules> {
        self.rules.as_deref()
    }

    /// Returns the number of pending entries that belong to a consumer.
    pub fn in_hand(&self) -> u64 {
        self.pending.len() - self.pending.released_len()
    }

    /// Returns how many new entries may become pending until MAXPENDING of the group is reached.
    pub fn room(&self) -> u64 {
        self.rules().map_or(u64::MAX, |rules| rules.max_pending.saturating_sub(self.in_hand()))
    }

    pub(super) fn refresh_rules(&mut self, of_stream: Option<&Policy>, entries: &Entries) {
        let rules = self.find_rules(of_stream);
        self.set_rules(rules, entries);
    }

    fn find_rules(&self, of_stream: Option<&Policy>) -> Option<Arc<GroupRules>> {
        let none = Policy::default();
        let own = self.own_policy().unwrap_or(&none);
        GroupRules::new(own, of_stream.unwrap_or(&none)).map(Arc::new)
    }
}

/// Returns the first field of a group's own policy that does nothing, because no lease is in force.
fn without_lease(own: &Policy, of_stream: &Policy) -> Option<PolicyField> {
    match GroupRules::new(own, of_stream) {
        Some(_) => None,
        None => own.needs_lease(),
    }
}
