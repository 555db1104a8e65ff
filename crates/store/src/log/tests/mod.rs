//! Tests of the whole log on the simulated disk, and one in a real folder.
//!
//! `basics` tests the public API, `damage` damages files, `crash` cuts the power, `preallocation` tests the zeros after
//! the last record, `reader` reads the open log.

mod basics;
pub(crate) mod crash;
mod damage;
mod preallocation;
mod reader;

use std::sync::Arc;

use super::{LogOptions, OpenError, Opened, Recovery};
use crate::clock::ManualClock;
use crate::disk::SimDisk;
use crate::sim_tests::planted::{Bug, MistakenDisk};
pub(super) use crate::sim_tests::random::WorkloadRandom;

// For the tests that plant bugs in files.
pub(crate) use super::frame::{
    FrameFields, FrameHeader, HEADER_BYTES as FRAME_HEADER_BYTES, Salt, is_intact, seal,
};
pub(crate) use super::manifest::{Manifest, NEW_NAME as MANIFEST_NEW};
pub(crate) use super::segment::{
    HEADER_BYTES as SEGMENT_HEADER_BYTES, SegmentHeader, first_of as segment_first,
};

/// Returns options with small segments, and salts generated from `seed`.
pub(super) fn options(segment_bytes: u64, seed: u64) -> LogOptions {
    let mut random = WorkloadRandom::new(seed ^ 0x5A17);
    LogOptions { segment_bytes, reserve_bytes: 0, ..LogOptions::new(move || random.next()) }
}

/// Positions and payloads of records.
pub(super) type PositionedRecords = Vec<(u64, Vec<u8>)>;

/// Opens the folder and returns its records.
pub(super) fn open(disk: &SimDisk, options: LogOptions) -> Result<(Opened, PositionedRecords), OpenError> {
    open_with(disk, options, None)
}

/// Like [`open`], for a log with a planted bug.
pub(super) fn open_with(
    disk: &SimDisk,
    options: LogOptions,
    bug: Option<Bug>,
) -> Result<(Opened, PositionedRecords), OpenError> {
    let mut records = Vec::new();
    let disk = MistakenDisk::over(disk, bug, Arc::new(ManualClock::new(0)));
    let opened = Recovery::begin(disk)?.open(options, |position, payload| {
        records.push((position, payload.to_vec()));
        Ok(())
    })?;
    Ok((opened, records))
}
