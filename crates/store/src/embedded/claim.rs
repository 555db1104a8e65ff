//! Pending entries that change hands: by id, or whatever has been idle for long.

use std::iter;
use std::time::Duration;

use millstream_engine::StreamId;
use millstream_engine::stream::{ClaimOptions, Claimed};

use super::groups::Member;
use super::pending::millis;
use super::{AutoClaimed, Call, Command, Entry, Error, Millstream};
use crate::txn::Txn;

/// How many entries a sweep claims if nothing is said.
const AUTO_CLAIM_COUNT: u64 = 100;

impl Millstream {
    /// Gives the consumer those of these pending entries that were delivered at least `min_idle` ago, and answers with
    /// them. Those that were deleted from the stream are pending no more, and not among them.
    pub fn claim(
        &self,
        key: impl AsRef<[u8]>,
        group: impl AsRef<[u8]>,
        consumer: impl AsRef<[u8]>,
        min_idle: Duration,
        ids: impl IntoIterator<Item = StreamId>,
    ) -> Call<Claim> {
        let options = ClaimOptions { min_idle_ms: millis(min_idle), ..ClaimOptions::default() };
        let (to, ids) = (Member::new(key, group, consumer), ids.into_iter().collect());
        self.call(Claim { to, ids, options, idle: None, last_id: None })
    }

    /// Gives the consumer pending entries that were delivered at least `min_idle` ago, from the first on.
    pub fn auto_claim(
        &self,
        key: impl AsRef<[u8]>,
        group: impl AsRef<[u8]>,
        consumer: impl AsRef<[u8]>,
        min_idle: Duration,
    ) -> Call<AutoClaim> {
        let options = ClaimOptions { min_idle_ms: millis(min_idle), ..ClaimOptions::default() };
        let to = Member::new(key, group, consumer);
        self.call(AutoClaim { to, start: StreamId::MIN, count: AUTO_CLAIM_COUNT, options })
    }
}

/// See [`Millstream::claim`].
#[derive(Clone, Debug)]
pub struct Claim {
    to: Member,
    ids: Vec<StreamId>,
    options: ClaimOptions,
    idle: Option<Duration>,
    last_id: Option<StreamId>,
}

impl Call<Claim> {
    /// They count as delivered this long ago, instead of now.
    pub fn idle(mut self, idle: Duration) -> Self {
        self.command.idle = Some(idle);
        self
    }

    /// They count as delivered so often, instead of once more.
    pub fn deliveries(mut self, count: u64) -> Self {
        self.command.options.deliveries = Some(count);
        self
    }

    /// Also entries that are not pending, if they are in the stream.
    pub fn force(mut self) -> Self {
        self.command.options.force = true;
        self
    }

    /// The group has delivered at least up to this id.
    pub fn last_id(mut self, id: StreamId) -> Self {
        self.command.last_id = Some(id);
        self
    }

    /// Answers with ids only. This is no delivery, and does not count as one.
    pub fn just_ids(mut self) -> Call<JustIds<Claim>> {
        self.command.options.just_ids = true;
        self.with(JustIds)
    }
}

impl Claim {
    fn claim(&self, txn: &mut Txn<'_>) -> Result<Claimed, Error> {
        let delivered_at_ms = self.idle.map(|idle| txn.now_ms().saturating_sub(millis(idle)));
        let options = ClaimOptions { delivered_at_ms, ..self.options };
        txn.xclaim(self.to.reader(), &self.ids, &options, self.last_id).map_err(Error::refused(&self.to.key))
    }
}

impl Command for Claim {
    type Output = Vec<Entry>;
    const CHANGES: bool = true;

    fn keys(&self) -> impl Iterator<Item = &[u8]> {
        iter::once(&*self.to.key)
    }

    fn run(&mut self, txn: &mut Txn<'_>) -> Result<Vec<Entry>, Error> {
        let claimed = self.claim(txn)?;
        entries_of(txn, &self.to.key, &claimed)
    }
}

/// See [`Millstream::auto_claim`].
#[derive(Clone, Debug)]
pub struct AutoClaim {
    to: Member,
    start: StreamId,
    count: u64,
    options: ClaimOptions,
}

impl Call<AutoClaim> {
    /// From this id on: [`AutoClaimed::next`] of the sweep before.
    pub fn from(mut self, id: StreamId) -> Self {
        self.command.start = id;
        self
    }

    /// At most so many; 100 if nothing is said.
    pub fn count(mut self, count: u64) -> Self {
        self.command.count = count;
        self
    }

    /// Answers with ids only. This is no delivery, and does not count as one.
    pub fn just_ids(mut self) -> Call<JustIds<AutoClaim>> {
        self.command.options.just_ids = true;
        self.with(JustIds)
    }
}

impl AutoClaim {
    /// Claims, and shows what was claimed as `show` has it.
    fn sweep<T>(
        &self,
        txn: &mut Txn<'_>,
        show: impl FnOnce(&Txn<'_>, &Claimed) -> Result<Vec<T>, Error>,
    ) -> Result<AutoClaimed<T>, Error> {
        let found = txn.xautoclaim(self.to.reader(), self.start, self.count, &self.options);
        let found = found.map_err(Error::refused(&self.to.key))?;
        let claimed = show(txn, &found.claimed)?;
        Ok(AutoClaimed { claimed, gone: found.claimed.gone, next: found.next })
    }
}

impl Command for AutoClaim {
    type Output = AutoClaimed;
    const CHANGES: bool = true;

    fn keys(&self) -> impl Iterator<Item = &[u8]> {
        iter::once(&*self.to.key)
    }

    fn run(&mut self, txn: &mut Txn<'_>) -> Result<AutoClaimed, Error> {
        self.sweep(txn, |txn, claimed| entries_of(txn, &self.to.key, claimed))
    }
}

/// A claim that answers with ids only.
#[derive(Clone, Debug)]
pub struct JustIds<C>(C);

impl Command for JustIds<Claim> {
    type Output = Vec<StreamId>;
    const CHANGES: bool = true;

    fn keys(&self) -> impl Iterator<Item = &[u8]> {
        self.0.keys()
    }

    fn run(&mut self, txn: &mut Txn<'_>) -> Result<Vec<StreamId>, Error> {
        self.0.claim(txn).map(|claimed| ids_of(&claimed))
    }
}

impl Command for JustIds<AutoClaim> {
    type Output = AutoClaimed<StreamId>;
    const CHANGES: bool = true;

    fn keys(&self) -> impl Iterator<Item = &[u8]> {
        self.0.keys()
    }

    fn run(&mut self, txn: &mut Txn<'_>) -> Result<AutoClaimed<StreamId>, Error> {
        self.0.sweep(txn, |_, claimed| Ok(ids_of(claimed)))
    }
}

fn ids_of(claimed: &Claimed) -> Vec<StreamId> {
    claimed.rows.iter().map(|row| row.id).collect()
}

fn entries_of(txn: &Txn<'_>, key: &[u8], claimed: &Claimed) -> Result<Vec<Entry>, Error> {
    let mut entries = Vec::with_capacity(claimed.rows.len());
    if let Some(stream) = txn.stream(key).map_err(Error::refused(key))? {
        stream.visit_ids(&ids_of(claimed), |_, entry| entries.extend(entry.map(Entry::from)));
    }
    Ok(entries)
}
