//! Ownership of a stream in a group: a lease that expires, and a fence that grows with each owner.
//!
//! Both are strings with the same value, `FENCE OWNER`. The lease says who owns the stream now. The fence stays when
//! the lease has expired, so a read of an earlier owner is refused.

use std::iter;

use millstream_engine::Refusal;

use super::Verb;
use crate::strings::{SetExpiry, SetIf};
use crate::txn::Txn;

/// The value of a lease or a fence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnerMark {
    /// The number of the owner: greater than that of every earlier one.
    pub fence: u64,
    /// The name of the owner.
    pub owner: Vec<u8>,
}

impl OwnerMark {
    /// Parses a value. `None` if it has another form.
    pub fn parse(value: &[u8]) -> Option<OwnerMark> {
        let at = value.iter().position(|byte| *byte == b' ')?;
        let fence = std::str::from_utf8(&value[..at]).ok()?.parse().ok()?;
        Some(OwnerMark { fence, owner: value[at + 1..].to_vec() })
    }

    /// Returns the value.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut value = self.fence.to_string().into_bytes();
        value.push(b' ');
        value.extend_from_slice(&self.owner);
        value
    }
}

/// Who owns a stream, or owned it last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// The fence and the name.
    pub mark: OwnerMark,
    /// Time until the lease expires, in milliseconds. 0 if it has expired.
    pub lease_left_ms: u64,
}

/// Acquires ownership, if nobody owns the stream or this owner does. Returns the owner after the call.
///
/// The fence grows even if this owner owns the stream already: it has begun anew, and reads that it sent before are
/// refused.
#[derive(Clone, Debug)]
pub struct Acquire<B = Vec<u8>> {
    pub lease: B,
    pub fence: B,
    /// The name of the new owner.
    pub owner: B,
    /// Time until the lease expires, in milliseconds.
    pub lease_ms: u64,
}

impl<B: AsRef<[u8]>> Verb for Acquire<B> {
    type Output = Owner;

    fn keys(&self) -> impl Iterator<Item = &[u8]> {
        [self.lease.as_ref(), self.fence.as_ref()].into_iter()
    }

    fn run(&mut self, txn: &mut Txn<'_>) -> Result<Owner, Refusal> {
        let (lease, name) = (self.lease.as_ref(), self.owner.as_ref());
        let last = mark_at(txn, self.fence.as_ref())?;
        if let Some(held) = mark_at(txn, lease)?
            && held.owner != name
        {
            return Ok(Owner { mark: held, lease_left_ms: left_ms(txn, lease) });
        }
        // The time as a minimum: the fence grows even if the store has lost the last one.
        let fence = last.map_or(0, |last| last.fence).saturating_add(1).max(txn.now_ms());
        let mark = OwnerMark { fence, owner: name.to_vec() };
        txn.set(self.fence.as_ref(), &mark.to_bytes(), SetIf::Always, SetExpiry::Never);
        set_lease(txn, lease, &mark, self.lease_ms);
        Ok(Owner { mark, lease_left_ms: self.lease_ms })
    }
}

/// Renews a lease. Returns false if it has expired or has another owner.
#[derive(Clone, Debug)]
pub struct Renew<B = Vec<u8>> {
    pub lease: B,
    pub mark: OwnerMark,
    /// Time until the lease expires, in milliseconds.
    pub lease_ms: u64,
}

impl<B: AsRef<[u8]>> Verb for Renew<B> {
    type Output = bool;

    fn keys(&self) -> impl Iterator<Item = &[u8]> {
        iter::once(self.lease.as_ref())
    }

    fn run(&mut self, txn: &mut Txn<'_>) -> Result<bool, Refusal> {
        let is_ours = mark_at(txn, self.lease.as_ref())?.as_ref() == Some(&self.mark);
        if is_ours {
            set_lease(txn, self.lease.as_ref(), &self.mark, self.lease_ms);
        }
        Ok(is_ours)
    }
}

/// Gives ownership up. Returns false if the lease has expired or has another owner.
#[derive(Clone, Debug)]
pub struct GiveUp<B = Vec<u8>> {
    pub lease: B,
    pub mark: OwnerMark,
}

impl<B: AsRef<[u8]>> Verb for GiveUp<B> {
    type Output = bool;

    fn keys(&self) -> impl Iterator<Item = &[u8]> {
        iter::once(self.lease.as_ref())
    }

    fn run(&mut self, txn: &mut Txn<'_>) -> Result<bool, Refusal> {
        let is_ours = mark_at(txn, self.lease.as_ref())?.as_ref() == Some(&self.mark);
        Ok(is_ours && txn.delete(self.lease.as_ref()))
    }
}

/// Returns who owns a stream, or owned it last. `None` if nobody ever did.
#[derive(Clone, Debug)]
pub struct FindOwner<B = Vec<u8>> {
    pub lease: B,
    pub fence: B,
}

impl<B: AsRef<[u8]>> Verb for FindOwner<B> {
    type Output = Option<Owner>;
    const CHANGES: bool = false;

    fn keys(&self) -> impl Iterator<Item = &[u8]> {
        [self.lease.as_ref(), self.fence.as_ref()].into_iter()
    }

    fn run(&mut self, txn: &mut Txn<'_>) -> Result<Self::Output, Refusal> {
        let lease = self.lease.as_ref();
        if let Some(mark) = mark_at(txn, lease)? {
            return Ok(Some(Owner { mark, lease_left_ms: left_ms(txn, lease) }));
        }
        Ok(mark_at(txn, self.fence.as_ref())?.map(|mark| Owner { mark, lease_left_ms: 0 }))
    }
}

/// Runs a verb if the fence has this owner, in the same transaction. Otherwise returns `None`.
#[derive(Clone, Debug)]
pub struct Fenced<V, B = Vec<u8>> {
    pub fence: B,
    pub mark: OwnerMark,
    /// What the owner does.
    pub verb: V,
}

impl<V: Verb, B: AsRef<[u8]>> Verb for Fenced<V, B> {
    type Output = Option<V::Output>;
    const CHANGES: bool = V::CHANGES;

    fn keys(&self) -> impl Iterator<Item = &[u8]> {
        iter::once(self.fence.as_ref()).chain(self.verb.keys())
    }

    fn bytes(&self) -> u64 {
        self.verb.bytes()
    }

    fn run(&mut self, txn: &mut Txn<'_>) -> Result<Self::Output, Refusal> {
        if mark_at(txn, self.fence.as_ref())?.as_ref() != Some(&self.mark) {
            return Ok(None);
        }
        self.verb.run(txn).map(Some)
    }

    fn refused_key<'v>(&'v self, txn: &Txn<'_>) -> &'v [u8] {
        self.verb.refused_key(txn)
    }
}

fn mark_at(txn: &Txn<'_>, key: &[u8]) -> Result<Option<OwnerMark>, Refusal> {
    Ok(txn.string(key)?.and_then(OwnerMark::parse))
}

fn set_lease(txn: &mut Txn<'_>, lease: &[u8], mark: &OwnerMark, lease_ms: u64) {
    let until = SetExpiry::At(txn.now_ms().saturating_add(lease_ms));
    txn.set(lease, &mark.to_bytes(), SetIf::Always, until);
}

fn left_ms(txn: &Txn<'_>, key: &[u8]) -> u64 {
    match txn.expires_at_ms(key).flatten() {
        Some(at_ms) => at_ms.saturating_sub(txn.now_ms()),
        None => u64::MAX,
    }
}
