//! The owners of policies: the users with whose rights policies act.
//!
//! The owner of a policy is the user who set it. A user who moves or copies a stream to a key *places* it there, and
//! owns all of its policies from then on. So nobody gets rights by moving or copying a policy of somebody else. A
//! policy without an owner acts with all rights.
//!
//! A stream can have many groups with policies of their own, so placing a stream does not visit them: each policy
//! remembers the last placement before it was set. Only policies that were set later have an owner of their own.
//!
//! This module knows only the names of users, not their rights.

use super::{Group, Stream};
use crate::policy::{Policy, PolicyField};

#[derive(Clone, Debug)]
pub(super) struct OwnedPolicy {
    pub(super) policy: Policy,
    owner: Option<Box<[u8]>>,
    /// The number of the last placement of the stream before the policy was set.
    placement: u64,
}

impl OwnedPolicy {
    pub(super) fn new(policy: &Policy, owner: Option<&[u8]>, placement: Option<&Placement>) -> OwnedPolicy {
        let placement = placement.map_or(0, |placement| placement.number);
        OwnedPolicy { policy: policy.clone(), owner: owner.map(Into::into), placement }
    }

    pub(super) fn set_owner(&mut self, owner: Option<&[u8]>) {
        self.owner = owner.map(Into::into);
    }

    pub(super) fn memory_bytes(&self) -> usize {
        let owner_bytes = self.owner.as_ref().map_or(0, |owner| owner.len());
        self.policy.memory_bytes() + size_of::<OwnedPolicy>() - size_of::<Policy>() + owner_bytes
    }
}

/// The last time that a user moved or copied a stream to a key.
#[derive(Clone, Debug)]
pub(super) struct Placement {
    by: Box<[u8]>,
    /// The first placement of a stream has the number 1.
    number: u64,
}

impl Placement {
    pub(super) fn memory_bytes(&self) -> usize {
        size_of::<Placement>() + self.by.len()
    }
}

impl Stream {
    /// Returns whether the stream or one of its groups can have a policy. Does not visit the groups.
    pub fn may_have_policies(&self) -> bool {
        self.policy.is_some() || !self.groups.is_empty()
    }

    /// Returns the owner of the policy of the stream; `None` if it has none.
    pub fn policy_owner(&self) -> Option<&[u8]> {
        self.owner_of(&self.policy.as_ref()?.owned)
    }

    /// Returns the owner of the policy that was set on a group of this stream; `None` if it has none.
    pub fn group_policy_owner<'s>(&'s self, group: &'s Group) -> Option<&'s [u8]> {
        self.owner_of(group.own_policy.as_ref()?)
    }

    /// Returns the user with whose rights entries of a group of this stream are dead-lettered: the owner of the policy
    /// that names the dead-letter stream. If none names one, the owner of the policy that limits deliveries.
    pub fn dead_letter_owner<'s>(&'s self, group: &'s Group) -> Option<&'s [u8]> {
        let sets = |policy: Option<&Policy>, field| policy.is_some_and(|policy| policy.get(field).is_some());
        let is_named = sets(group.own_policy(), PolicyField::DeadLetters)
            || sets(self.policy(), PolicyField::DeadLetters);
        let decisive = if is_named { PolicyField::DeadLetters } else { PolicyField::MaxDeliver };
        match sets(group.own_policy(), decisive) {
            true => self.group_policy_owner(group),
            false => self.policy_owner(),
        }
    }

    fn owner_of<'s>(&'s self, owned: &'s OwnedPolicy) -> Option<&'s [u8]> {
        match self.placement.as_deref() {
            Some(placement) if owned.placement < placement.number => Some(&placement.by),
            _ => owned.owner.as_deref(),
        }
    }

    pub(super) fn own_policies(&mut self, owner: &[u8]) {
        let number = self.placement.as_ref().map_or(0, |placement| placement.number) + 1;
        self.placement = Some(Box::new(Placement { by: owner.into(), number }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BlockLimits, StreamEffect, StreamId};

    const GROUP: &[u8] = b"g";

    fn apply(stream: &mut Stream, effect: StreamEffect<'_>) {
        stream.apply(&effect, BlockLimits::default());
    }

    fn limit() -> Policy {
        Policy { lease_ms: Some(1000), max_deliveries: Some(1), ..Policy::default() }
    }

    fn stream_with_group() -> Stream {
        let mut stream = Stream::new();
        apply(
            &mut stream,
            StreamEffect::GroupCreate { group: GROUP, last_id: StreamId::MIN, entries_read: None },
        );
        stream
    }

    fn dead_letter_owner(stream: &Stream) -> Option<&[u8]> {
        stream.dead_letter_owner(stream.group(GROUP).unwrap())
    }

    #[test]
    fn the_policy_that_names_the_dead_letter_stream_decides() {
        let (mut stream, limit) = (stream_with_group(), limit());
        apply(&mut stream, StreamEffect::SetPolicy { policy: &limit, owner: Some(b"ann") });
        assert_eq!(dead_letter_owner(&stream), Some(&b"ann"[..]));
        let lease = Policy { lease_ms: Some(2000), ..Policy::default() };
        let of_group = |policy| StreamEffect::GroupSetPolicy { group: GROUP, policy, owner: Some(b"bob") };
        apply(&mut stream, of_group(&lease));
        assert_eq!(dead_letter_owner(&stream), Some(&b"ann"[..]), "the policy of the group limits nothing");
        apply(&mut stream, of_group(&limit));
        assert_eq!(dead_letter_owner(&stream), Some(&b"bob"[..]));
        let named = Policy { dead_letters: Some((*b"dead").into()), ..limit.clone() };
        apply(&mut stream, StreamEffect::SetPolicy { policy: &named, owner: None });
        assert_eq!(dead_letter_owner(&stream), None, "the policy of the stream names the dead-letter stream");
        // An empty name overrides the default of the stream, too.
        let default = Policy { dead_letters: Some((*b"").into()), ..Policy::default() };
        apply(&mut stream, of_group(&default));
        assert_eq!(dead_letter_owner(&stream), Some(&b"bob"[..]));
    }

    #[test]
    fn who_places_a_stream_owns_its_policies_until_they_are_set_again() {
        let (mut stream, limit) = (stream_with_group(), limit());
        let set = |owner| StreamEffect::GroupSetPolicy { group: GROUP, policy: &limit, owner };
        apply(&mut stream, StreamEffect::SetPolicy { policy: &limit, owner: None });
        apply(&mut stream, set(Some(b"ann")));
        for by in [&b"bob"[..], b"cleo"] {
            apply(&mut stream, StreamEffect::OwnPolicies { owner: by });
            assert_eq!((dead_letter_owner(&stream), stream.policy_owner()), (Some(by), Some(by)));
        }
        apply(&mut stream, set(None));
        assert_eq!((dead_letter_owner(&stream), stream.policy_owner()), (None, Some(&b"cleo"[..])));
    }
}
