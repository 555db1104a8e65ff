//! Reading in a group by a consumer that also takes over what others left.

use std::time::Duration;

use millstream_engine::Refusal;
use millstream_engine::stream::{Before, EntryRef};

use super::pending::millis;
use super::read::ReadGroup;
use super::{Call, ClaimingBatch, Command, Delivered, Entry, Error, Patience, StreamDeliveries};
use crate::queues::Interest;
use crate::streams::Reader;
use crate::txn::Txn;

impl Call<ReadGroup> {
    /// Also takes over what is pending: first what was given back, then what nobody has touched for `min_idle`, then comes what is
    /// new. Every entry says how it was pending. A call that waits ends when something has been idle for long enough, too. Give the
    /// other options first; history is not read.
    pub fn claim(self, min_idle: Duration) -> Call<ReadClaiming> {
        self.with(|read| ReadClaiming { read, min_idle_ms: millis(min_idle) })
    }
}

/// See [`Call::claim`].
#[derive(Clone, Debug)]
pub struct ReadClaiming {
    read: ReadGroup,
    min_idle_ms: u64,
}

impl ReadClaiming {
    fn read_one(&self, txn: &mut Txn<'_>, key: &[u8]) -> Result<Vec<Delivered>, Refusal> {
        let ReadGroup { group, consumer, count, acknowledge, .. } = &self.read;
        let mut entries = Vec::new();
        let mut take = |entry: &EntryRef<'_>, before: Option<Before>| {
            entries.push(Delivered {
                entry: Entry::from(entry),
                was_pending: before.is_some(),
                idle: before.and_then(|before| before.idle_ms).map(Duration::from_millis),
                deliveries: before.map_or(0, |before| before.deliveries),
            });
        };
        let reader = Reader { key, group, consumer };
        txn.xreadgroup_claim(reader, self.min_idle_ms, *count, *acknowledge, &mut take)?;
        Ok(entries)
    }
}

impl Command for ReadClaiming {
    type Output = ClaimingBatch;
    const CHANGES: bool = true;

    fn keys(&self) -> impl Iterator<Item = &[u8]> {
        self.read.keys()
    }

    fn run(&mut self, txn: &mut Txn<'_>) -> Result<ClaimingBatch, Error> {
        self.read.check_groups(txn)?;
        let mut batch = ClaimingBatch::default();
        for key in &self.read.keys {
            let entries = self.read_one(txn, key).map_err(Error::refused(key))?;
            if !entries.is_empty() {
                batch.streams.push(StreamDeliveries { key: key.clone(), entries });
            }
        }
        Ok(batch)
    }

    fn patience(&self, batch: &ClaimingBatch) -> Option<Patience> {
        let at_most = self.read.block.filter(|_| batch.streams.is_empty())?;
        let group: Box<[u8]> = self.read.group.as_slice().into();
        let interest = Interest::Claim { group, min_idle_ms: self.min_idle_ms };
        let interests = self.read.keys.iter().map(|key| (key.as_slice().into(), interest.clone()));
        Some(Patience { interests: interests.collect(), at_most })
    }
}
