//! Setting and describing the policies of streams and groups (XPOLICY).

use std::iter;

use millstream_engine::policy::{Policy, PolicyField};
use millstream_engine::{Refusal, Stream, StreamEffect};

use super::Verb;
use crate::txn::Txn;

/// Changes the policy of a stream, or of a group.
#[derive(Clone, Debug)]
pub struct SetPolicy<B = Vec<u8>> {
    /// The stream.
    pub key: B,
    /// The group; `None`: the stream, whose policy is the default of its groups.
    pub group: Option<B>,
    /// The fields to change.
    pub change: Policy,
    /// The fields to forget.
    pub unset: Vec<PolicyField>,
}

impl<B> SetPolicy<B> {
    /// Creates a verb that changes the fields that are set in `change`.
    pub fn new(key: B, group: Option<B>, change: Policy) -> SetPolicy<B> {
        SetPolicy { key, group, change, unset: Vec::new() }
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
        if let Some(dead_letters) = self.change.dead_letters.as_deref().filter(|key| !key.is_empty()) {
            if dead_letters == key {
                return Err(Refusal::DeadLettersToItself);
            }
            txn.stream(dead_letters)?;
        }
        apply(txn, key, group, &policy);
        Ok(())
    }
}

/// Forgets the policy of a stream, or of a group.
#[derive(Clone, Copy, Debug)]
pub struct ResetPolicy<B = Vec<u8>> {
    /// The stream.
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
            apply(txn, key, group, &Policy::default());
        }
        Ok(())
    }
}

/// Returns the policy that was set on a stream or on a group.
#[derive(Clone, Copy, Debug)]
pub struct GetPolicy<B = Vec<u8>> {
    /// The stream.
    pub key: B,
    /// The group; `None`: the stream.
    pub group: Option<B>,
}

impl<B: AsRef<[u8]>> Verb for GetPolicy<B> {
    type Output = Policy;
    const CHANGES: bool = false;

    fn keys(&self) -> impl Iterator<Item = &[u8]> {
        iter::once(self.key.as_ref())
    }

    fn run(&mut self, txn: &mut Txn<'_>) -> Result<Policy, Refusal> {
        let stream = txn.stream(self.key.as_ref())?.ok_or(Refusal::NoSuchKey)?;
        Ok(current(stream, self.group.as_ref().map(AsRef::as_ref))?.cloned().unwrap_or_default())
    }
}

/// Returns the policy that was set on the stream or on a group.
fn current<'s>(stream: &'s Stream, group: Option<&[u8]>) -> Result<Option<&'s Policy>, Refusal> {
    match group {
        Some(name) => Ok(stream.group(name).ok_or(Refusal::NoGroup)?.own_policy()),
        None => Ok(stream.policy()),
    }
}

fn apply(txn: &mut Txn<'_>, key: &[u8], group: Option<&[u8]>, policy: &Policy) {
    txn.apply_stream(
        key,
        match group {
            Some(group) => StreamEffect::GroupSetPolicy { group, policy },
            None => StreamEffect::SetPolicy { policy },
        },
    );
}
