//! Cancels delayed entries, or adds them to their stream now.

use schemars::JsonSchema;
use serde::Serialize;

use super::operation::{Admins, Done, Effect, OnProgress, Operate, Planned};
use super::plan::Plan;
use crate::backend::{Admin, Error, StreamId};

/// Number of delayed entries per call.
const PAGE: usize = 1000;

/// What to do with delayed entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DelayedChange {
    /// Remove them.
    Cancel,
    /// Add them to their stream now.
    Promote,
}

/// Changes delayed entries.
#[derive(Clone, Debug)]
pub struct ChangeDelayed {
    /// The name of the stream.
    pub stream: String,
    /// The tickets of the entries. `None` stands for all.
    pub tickets: Option<Vec<StreamId>>,
    /// What to do with them.
    pub change: DelayedChange,
}

/// A change of delayed entries.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct DelayedEffect {
    /// The name of the stream.
    pub stream: String,
    /// Number of tickets that were given.
    pub asked: u64,
    /// Number of those that are still delayed.
    #[serde(skip)]
    pub matched: u64,
    /// Their tickets, until they are changed.
    #[serde(skip)]
    pub tickets: Vec<StreamId>,
    /// Number of entries that were changed.
    pub done: u64,
}

/// A ticket identifies an entry: the only change there can be is that it is no longer delayed.
impl Operate for ChangeDelayed {
    type Effect = DelayedEffect;

    async fn plan(&self, backend: &Admins, _: Option<&str>) -> Planned<DelayedEffect> {
        let stream = &self.stream;
        let tickets = match &self.tickets {
            Some(tickets) => still_delayed(&**backend, stream, tickets).await?,
            None => all(&**backend, stream).await?,
        };
        let asked = self.tickets.as_ref().map_or(tickets.len(), Vec::len) as u64;
        let matched = tickets.len() as u64;
        let effect = DelayedEffect { stream: stream.clone(), asked, matched, tickets, done: 0 };
        let seen = (stream, self.change, effect.tickets.clone());
        Ok(Plan::new(effect, StreamId::MIN, &seen))
    }

    async fn execute(
        &self,
        backend: &Admins,
        plan: Plan<DelayedEffect>,
        _: OnProgress<'_, DelayedEffect>,
    ) -> Done<DelayedEffect> {
        let mut effect = plan.effect;
        for page in std::mem::take(&mut effect.tickets).chunks(PAGE) {
            effect.done += match self.change {
                DelayedChange::Cancel => backend.cancel_delayed(&self.stream, page).await?,
                DelayedChange::Promote => backend.promote_delayed(&self.stream, page).await?,
            };
        }
        Ok(Some(effect))
    }
}

impl Effect for DelayedEffect {
    fn matched(&self) -> u64 {
        self.matched
    }

    fn done(&self) -> u64 {
        self.done
    }

    fn name(&mut self) -> Option<&mut String> {
        Some(&mut self.stream)
    }

    fn add(&mut self, other: DelayedEffect) {
        self.asked += other.asked;
        self.matched += other.matched;
        self.done += other.done;
    }
}

async fn all(backend: &dyn Admin, stream: &str) -> Result<Vec<StreamId>, Error> {
    let (mut tickets, mut next) = (Vec::new(), Some(StreamId::MIN));
    while let Some(first) = next {
        let page = backend.delayed(stream, first, PAGE).await?;
        next = page.last().and_then(|entry| entry.id.next());
        tickets.extend(page.iter().map(|entry| entry.id));
    }
    Ok(tickets)
}

/// Returns those of the tickets whose entries are still delayed.
pub async fn still_delayed(
    backend: &dyn Admin,
    stream: &str,
    tickets: &[StreamId],
) -> Result<Vec<StreamId>, Error> {
    let mut found = Vec::new();
    for ticket in tickets {
        let first = backend.delayed(stream, *ticket, 1).await?;
        found.extend(first.first().map(|entry| entry.id).filter(|id| id == ticket));
    }
    Ok(found)
}
