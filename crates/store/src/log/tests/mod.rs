//! Tests of the log as a whole, over the simulated disk (and one over a real folder).
//!
//! `basics` drives it as its users do, `damage` breaks what was written in every way, `crash` cuts the power, `room` looks at what
//! is put behind the records beforehand.

mod basics;
pub(crate) mod crash;
mod damage;
mod room;

use std::sync::Arc;

use super::{Bug, LogOptions, OpenError, Opened, Planted, Recovery};
use crate::disk::{Disk, SimDisk};

/// A small generator for workloads (xorshift*); unlike the disk's own, so that neither follows the other.
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    pub(super) fn below(&mut self, bound: u64) -> u64 {
        (self.next() >> 16) % bound
    }

    pub(super) fn bytes(&mut self, count: u64) -> Vec<u8> {
        (0..count).map(|_| self.next() as u8).collect()
    }
}

/// Options with small segments and salts from `seed`.
pub(super) fn options(segment_bytes: u64, seed: u64, bug: Option<Bug>) -> LogOptions {
    let mut random = Random::new(seed ^ 0x5A17);
    let planted = bug.map_or(Planted::default(), Planted::with);
    LogOptions { segment_bytes, reserve_bytes: 0, planted, ..LogOptions::new(move || random.next()) }
}

/// Records with their positions.
pub(super) type Found = Vec<(u64, Vec<u8>)>;

/// Opens the folder and gives its records with their positions.
pub(super) fn open(disk: &SimDisk, options: LogOptions) -> Result<(Opened, Found), OpenError> {
    let mut records = Vec::new();
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    let opened = Recovery::begin(disk)?.open(options, |position, payload| {
        records.push((position, payload.to_vec()));
        Ok(())
    })?;
    Ok((opened, records))
}
