//! Operations: what an operator does with a store, as values that can be planned and applied.
//!
//! An [`Operate`] says what it would do ([`plan`](Operate::plan)), and does it ([`execute`](Operate::execute)).
//! Programs show the plan, ask for confirmation and call [`apply`] with its digest: if the store has changed in
//! between, nothing is done. The [`Effect`] of an operation is its answer before and after. [`OnParts`] runs an
//! operation on all partitions of a stream.

use std::fmt::Debug;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use super::plan::{Executed, Plan};
use crate::backend::{Admin, Error, ErrorKind};

/// A connection to a store that several parts of a program use.
pub type Admins = Arc<dyn Admin>;

/// A plan, or why there is none.
pub type Planned<E> = Result<Plan<E>, Error>;

/// What was done. `None` if the store could not do it any more.
pub type Done<E> = Result<Option<E>, Error>;

/// Called with the progress of an operation.
pub type OnProgress<'r, E> = &'r mut (dyn FnMut(&E) + Send);

/// Something that an operator does with a store.
pub trait Operate: Clone + Send + Sync + 'static {
    /// What it would do, or has done.
    type Effect: Effect;

    /// Finds out what would be done.
    ///
    /// `planned` is the digest of an earlier plan. Entries that were added since then are no part of this plan.
    fn plan(
        &self,
        backend: &Admins,
        planned: Option<&str>,
    ) -> impl Future<Output = Planned<Self::Effect>> + Send;

    /// Does what the plan says, and returns what was done. Calls `report` with what is done so far, if that takes
    /// long. To stop, drop the future.
    ///
    /// Returns `None`, without any change, if the store cannot do it any more.
    fn execute(
        &self,
        backend: &Admins,
        plan: Plan<Self::Effect>,
        report: OnProgress<'_, Self::Effect>,
    ) -> impl Future<Output = Done<Self::Effect>> + Send;

    /// Leaves out what the same operation did to other partitions, if it has a limit.
    fn after(&mut self, _earlier: &Self::Effect) {}
}

/// What an operation would do, or has done.
pub trait Effect: Clone + Debug + Send + Sync + Serialize + JsonSchema + 'static {
    /// Returns the number of things that the operation is about.
    fn matched(&self) -> u64 {
        1
    }

    /// Returns how many of these would be changed.
    fn expected(&self) -> u64 {
        self.matched()
    }

    /// Returns the number of things that are done, or would be.
    fn done(&self) -> u64 {
        self.matched()
    }

    /// Returns the consumers that are at work. The operation must be forced if there are any.
    fn active_consumers(&self) -> Vec<String> {
        Vec::new()
    }

    /// Whether the operation takes so long that it must report its progress.
    fn takes_long(&self) -> bool {
        false
    }

    /// Returns further members for the record of actions.
    fn record(&self) -> Vec<(&'static str, Value)> {
        Vec::new()
    }

    /// Returns the name of the stream that the operation is about.
    fn name(&mut self) -> Option<&mut String> {
        None
    }

    /// Adds what the operation does to another partition.
    fn add(&mut self, _other: Self) {}
}

/// What an operation would do, or has done.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(rename = "{E}Answer")]
pub struct EffectAnswer<E> {
    #[serde(flatten)]
    effect: E,
    matched: u64,
    dry_run: bool,
    /// Identifies a plan. Send it to do what the plan says.
    #[serde(skip_serializing_if = "Option::is_none")]
    preview: Option<String>,
}

impl<E: Effect> EffectAnswer<E> {
    /// Shows a plan.
    pub fn planned(plan: &Plan<E>) -> EffectAnswer<E> {
        let preview = Some(plan.digest.clone());
        EffectAnswer { matched: plan.effect.matched(), effect: plan.effect.clone(), dry_run: true, preview }
    }

    /// Shows what was done.
    pub fn done(effect: E) -> EffectAnswer<E> {
        EffectAnswer::without_preview(effect, false)
    }

    /// Shows what would be done, or was, to somebody who cannot send a preview.
    pub fn without_preview(effect: E, dry_run: bool) -> EffectAnswer<E> {
        EffectAnswer { matched: effect.matched(), effect, dry_run, preview: None }
    }
}

/// Checks whether the plan with this digest is still right. If so, it is [`Executed::Done`], and can be
/// [executed](Operate::execute).
pub async fn check<O: Operate>(
    operation: &O,
    backend: &Arc<dyn Admin>,
    digest: &str,
    is_forced: bool,
) -> Result<Executed<O::Effect, Plan<O::Effect>>, Error> {
    let plan = operation.plan(backend, Some(digest)).await?;
    if plan.digest != digest {
        return Ok(Executed::Outdated(operation.plan(backend, None).await?));
    }
    match is_forced || plan.effect.active_consumers().is_empty() {
        true => Ok(Executed::Done(plan)),
        false => Ok(Executed::InUse(plan)),
    }
}

/// Does what the plan with this digest says, if the plan is still right.
pub async fn apply<O: Operate>(
    operation: &O,
    backend: &Arc<dyn Admin>,
    digest: &str,
    is_forced: bool,
) -> Result<Executed<O::Effect, O::Effect>, Error> {
    let plan = match check(operation, backend, digest, is_forced).await? {
        Executed::Done(plan) => plan,
        Executed::Outdated(plan) => return Ok(Executed::Outdated(plan)),
        Executed::InUse(plan) => return Ok(Executed::InUse(plan)),
    };
    match operation.execute(backend, plan, &mut |_| {}).await? {
        Some(done) => Ok(Executed::Done(done)),
        None => Ok(Executed::Outdated(operation.plan(backend, None).await?)),
    }
}

/// An operation on each partition of a stream, or on a single stream.
#[derive(Clone, Debug)]
pub struct OnParts<O> {
    /// What the answer says that the operation is about: the name that the operator gave.
    pub name: String,
    /// The operation on each of them. At least one.
    pub parts: Vec<O>,
}

impl<O: Operate> OnParts<O> {
    /// Creates an operation on all of these streams.
    pub fn new(
        name: impl Into<String>,
        streams: impl IntoIterator<Item = String>,
        operation: impl FnMut(String) -> O,
    ) -> OnParts<O> {
        OnParts { name: name.into(), parts: streams.into_iter().map(operation).collect() }
    }

    fn named(&self, mut whole: O::Effect) -> O::Effect {
        if let Some(name) = whole.name() {
            name.clone_from(&self.name);
        }
        whole
    }
}

/// The effect is the sum of the effects on the partitions.
impl<O: Operate> Operate for OnParts<O> {
    type Effect = O::Effect;

    async fn plan(&self, backend: &Admins, planned: Option<&str>) -> Planned<Self::Effect> {
        let mut digests = planned.map(|planned| planned.split(','));
        let mut parts: Vec<Plan<O::Effect>> = Vec::with_capacity(self.parts.len());
        let mut whole: Option<O::Effect> = None;
        for operation in &self.parts {
            let mut operation = operation.clone();
            whole.iter().for_each(|earlier| operation.after(earlier));
            let digest = digests.as_mut().map(|digests| digests.next().unwrap_or_default());
            let plan = operation.plan(backend, digest).await?;
            match &mut whole {
                Some(whole) => whole.add(plan.effect.clone()),
                None => whole = Some(plan.effect.clone()),
            }
            parts.push(plan);
        }
        let whole = whole.ok_or_else(|| Error::new(ErrorKind::Refused, "there is no stream to act on"))?;
        let digests: Vec<&str> = parts.iter().map(|part| &*part.digest).collect();
        Ok(Plan { digest: digests.join(","), effect: self.named(whole), parts })
    }

    async fn execute(
        &self,
        backend: &Admins,
        plan: Plan<Self::Effect>,
        report: OnProgress<'_, Self::Effect>,
    ) -> Done<Self::Effect> {
        let mut done: Option<O::Effect> = None;
        for (operation, part) in self.parts.iter().zip(plan.parts) {
            let mut operation = operation.clone();
            done.iter().for_each(|earlier| operation.after(earlier));
            let sum = |here: O::Effect| match &done {
                None => here,
                Some(done) => {
                    let mut sum = done.clone();
                    sum.add(here);
                    sum
                }
            };
            let mut report_sum = |effect: &O::Effect| report(&self.named(sum(effect.clone())));
            let executed = operation.execute(backend, part, &mut report_sum).await?;
            match (executed, &done) {
                (Some(effect), _) => done = Some(sum(effect)),
                (None, None) => return Ok(None),
                (None, Some(_)) => {
                    let message = "the store has changed; only some of the partitions were changed";
                    return Err(Error::new(ErrorKind::Refused, message));
                }
            }
        }
        Ok(done.map(|whole| self.named(whole)))
    }
}
