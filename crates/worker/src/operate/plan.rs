//! Plans: what an action would do, and a digest of what it was based on.
//!
//! A program shows a plan and asks for confirmation. To execute it, it passes the digest back. The action then plans
//! again: if the digest is the same, it does what the plan says; if not, it changes nothing and returns the new plan.
//! The digest also holds the bound of the plan, such as the last dead letter that it is about. So entries that are
//! added in the meantime do not make it out of date, and are not part of it.

use std::fmt::Debug;

use xxhash_rust::xxh3::xxh3_64;

use crate::backend::StreamId;

/// What an action would do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan<T> {
    /// What would be done.
    pub effect: T,
    /// Identifies the action and what it was based on. Opaque to programs.
    pub digest: String,
    /// The plan for each partition, if the action is about the partitions of a stream.
    pub parts: Vec<Plan<T>>,
}

/// The result of applying a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Executed<T, R> {
    /// The plan was executed.
    Done(R),
    /// The store has changed since the plan was made. Nothing was done. This is the plan now.
    Outdated(Plan<T>),
    /// Consumers are at work, and the caller did not force the action. Nothing was done.
    InUse(Plan<T>),
}

impl<T> Plan<T> {
    pub(super) fn with_digest(effect: T, digest: String) -> Plan<T> {
        Plan { effect, digest, parts: Vec::new() }
    }

    /// Makes a plan. `seen` is what the plan depends on, including what was asked for.
    pub(super) fn new(effect: T, bound: StreamId, seen: &impl Debug) -> Plan<T> {
        let digest = format!("{bound}.{:016x}", xxh3_64(format!("{bound} {seen:?}").as_bytes()));
        Plan::with_digest(effect, digest)
    }
}

/// Returns the bound in a digest. An invalid digest has none: then no plan has this digest.
pub(super) fn bound_of(digest: &str) -> StreamId {
    let bound = digest.split_once('.').and_then(|(bound, _)| bound.split_once('-'));
    let id = bound.and_then(|(ms, seq)| Some(StreamId::new(ms.parse().ok()?, seq.parse().ok()?)));
    id.unwrap_or(StreamId::MIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_holds_its_bound_and_depends_on_what_was_seen() {
        let plan = |bound, seen: &str| Plan::new((), bound, &seen).digest;
        let (first, second) = (StreamId::new(5, 1), StreamId::new(5, 2));
        assert_eq!(bound_of(&plan(first, "a")), first);
        assert_eq!(plan(first, "a"), plan(first, "a"));
        assert_ne!(plan(first, "a"), plan(first, "b"));
        assert_ne!(plan(first, "a").split_once('.').unwrap().1, plan(second, "a").split_once('.').unwrap().1);
        for invalid in ["", "x", "1-1", "1-x.00", "1.2.3"] {
            assert_eq!(bound_of(invalid), StreamId::MIN, "{invalid}");
        }
    }
}
