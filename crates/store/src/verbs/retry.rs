//! Releases and dead letters of workers, together with the records that a hash has about the entries.

use std::iter;

use millstream_engine::stream::OwnRelease;
use millstream_engine::{Refusal, StreamId};

use super::{ConsumerPath, DeadLetters, Release, Verb};
use crate::txn::Txn;

/// Releases deliveries as [`Release`] does, and sets a field of a hash for each. The field is the id of the entry.
/// Returns the number of released entries.
#[derive(Clone, Debug)]
pub struct ReleaseRecorded<B = Vec<u8>> {
    /// The consumer that releases.
    pub consumer: ConsumerPath<B>,
    /// The hash.
    pub hash: B,
    /// The deliveries to release, each with the value of its field; `None` does not change the hash.
    pub rows: Vec<(OwnRelease, Option<Vec<u8>>)>,
}

impl<B: AsRef<[u8]>> Verb for ReleaseRecorded<B> {
    type Output = u64;

    fn keys(&self) -> impl Iterator<Item = &[u8]> {
        [self.consumer.key.as_ref(), self.hash.as_ref()].into_iter()
    }

    fn bytes(&self) -> u64 {
        self.rows.iter().flat_map(|(_, record)| record).map(|record| record.len() as u64).sum()
    }

    fn run(&mut self, txn: &mut Txn<'_>) -> Result<u64, Refusal> {
        let hash = self.hash.as_ref();
        // Refuse before the first change.
        txn.hash(hash)?;
        let mut released = 0;
        for (row, record) in &self.rows {
            let count = Release { consumer: self.consumer.borrowed(), rows: vec![*row] }.run(txn)?;
            if let (1, Some(record)) = (count, record) {
                txn.hash_set(hash, &[row.id.to_string().as_bytes(), record])?;
            }
            released += count;
        }
        Ok(released)
    }
}

/// Adds dead letters as [`DeadLetters`] does, and removes from a hash the fields of the acknowledged entries. The
/// fields are the ids of the entries. Returns these ids.
#[derive(Clone, Debug)]
pub struct DeadLettersRecorded<B = Vec<u8>> {
    /// The dead letters to add.
    pub dead_letters: DeadLetters<B>,
    /// The hash.
    pub hash: B,
}

impl<B: AsRef<[u8]>> Verb for DeadLettersRecorded<B> {
    type Output = Vec<StreamId>;

    fn keys(&self) -> impl Iterator<Item = &[u8]> {
        self.dead_letters.keys().chain(iter::once(self.hash.as_ref()))
    }

    fn bytes(&self) -> u64 {
        self.dead_letters.bytes()
    }

    fn run(&mut self, txn: &mut Txn<'_>) -> Result<Vec<StreamId>, Refusal> {
        // Refuse before the first change.
        txn.hash(self.hash.as_ref())?;
        let moved = self.dead_letters.run(txn)?;
        for id in &moved {
            txn.hash_delete(self.hash.as_ref(), &[id.to_string().as_bytes()])?;
        }
        Ok(moved)
    }
}
