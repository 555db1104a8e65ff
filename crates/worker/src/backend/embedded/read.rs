//! Reading what is new, or left by others, and waiting for it.

use std::iter;
use std::ops::ControlFlow;
use std::time::Duration;

use millstream_engine::stream::{Before, EntryRef};
use millstream_store::embedded::{Command, Error, Patience, Refusal};
use millstream_store::{Interest, Reader, Txn};

use super::super::{Delivery, Read};
use super::values::{fields_of, millis};

/// Entries for a consumer.
#[derive(Clone)]
pub(super) struct ReadGroup {
    key: Vec<u8>,
    group: Vec<u8>,
    consumer: Vec<u8>,
    count: u64,
    block: Option<Duration>,
    claim_idle_ms: Option<u64>,
}

impl ReadGroup {
    pub(super) fn new(read: &Read<'_>) -> ReadGroup {
        ReadGroup {
            key: read.stream.into(),
            group: read.group.into(),
            consumer: read.consumer.into(),
            count: read.count as u64,
            block: read.block,
            claim_idle_ms: read.claim_idle.map(millis),
        }
    }

    fn read(&self, txn: &mut Txn<'_>) -> Result<Vec<Delivery>, Refusal> {
        let reader = Reader { key: &self.key, group: &self.group, consumer: &self.consumer };
        let mut read = Vec::new();
        let mut take = |entry: &EntryRef<'_>, before: u64| {
            let deliveries = before.saturating_add(1);
            read.push(Delivery { id: entry.id(), fields: Some(fields_of(entry)), deliveries });
        };
        match self.claim_idle_ms {
            Some(min_idle_ms) => {
                let mut take = |entry: &EntryRef<'_>, before: Option<Before>| {
                    take(entry, before.map_or(0, |before| before.deliveries));
                };
                txn.xreadgroup_claim(reader, min_idle_ms, Some(self.count), true, &mut take)?;
            }
            None => {
                let mut take = |entry: &EntryRef<'_>| {
                    take(entry, 0);
                    ControlFlow::Continue(())
                };
                txn.xreadgroup_new(reader, Some(self.count), true, &mut take)?;
            }
        }
        Ok(read)
    }
}

impl Command for ReadGroup {
    type Output = Vec<Delivery>;
    const CHANGES: bool = true;

    fn keys(&self) -> impl Iterator<Item = &[u8]> {
        iter::once(&*self.key)
    }

    fn run(&mut self, txn: &mut Txn<'_>) -> Result<Vec<Delivery>, Error> {
        self.read(txn).map_err(|refusal| Error::Refused { key: self.key.clone(), refusal })
    }

    fn patience(&self, read: &Vec<Delivery>) -> Option<Patience> {
        let at_most = self.block.filter(|_| read.is_empty())?;
        let group = self.group.as_slice().into();
        let interest = match self.claim_idle_ms {
            Some(min_idle_ms) => Interest::Claim { group, min_idle_ms },
            None => Interest::Group(group),
        };
        Some(Patience { interests: vec![(self.key.as_slice().into(), interest)], at_most })
    }
}
