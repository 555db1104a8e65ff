//! Tests of the log as a whole, over the simulated disk (and one over a real folder).
//!
//! `basics` drives it as its users do, `damage` breaks what was written in every way, `crash` cuts the power, `room` looks at what
//! is put behind the records beforehand.

mod basics;
pub(crate) mod crash;
mod damage;
mod room;

use std::sync::Arc;

use super::{LogOptions, OpenError, Opened, Recovery};
use crate::clock::ManualClock;
use crate::disk::SimDisk;
use crate::sim_tests::planted::{Bug, MistakenDisk};

// For those that make mistakes in files.
pub(crate) use super::frame::{
    FrameHeader, HEADER_BYTES as FRAME_HEADER_BYTES, Placing, Salt, is_intact, seal,
};
pub(crate) use super::manifest::{Manifest, NEW_NAME as MANIFEST_NEW};
pub(crate) use super::segment::{
    HEADER_BYTES as SEGMENT_HEADER_BYTES, SegmentHeader, first_of as segment_first,
};

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
pub(super) fn options(segment_bytes: u64, seed: u64) -> LogOptions {
    let mut random = Random::new(seed ^ 0x5A17);
    LogOptions { segment_bytes, reserve_bytes: 0, ..LogOptions::new(move || random.next()) }
}

/// Records with their positions.
pub(super) type Found = Vec<(u64, Vec<u8>)>;

/// Opens the folder and gives its records with their positions.
pub(super) fn open(disk: &SimDisk, options: LogOptions) -> Result<(Opened, Found), OpenError> {
    open_with(disk, options, None)
}

/// The same of a log that makes a mistake.
pub(super) fn open_with(
    disk: &SimDisk,
    options: LogOptions,
    bug: Option<Bug>,
) -> Result<(Opened, Found), OpenError> {
    let mut records = Vec::new();
    let disk = MistakenDisk::over(disk, bug, Arc::new(ManualClock::new(0)));
    let opened = Recovery::begin(disk)?.open(options, |position, payload| {
        records.push((position, payload.to_vec()));
        Ok(())
    })?;
    Ok((opened, records))
}
