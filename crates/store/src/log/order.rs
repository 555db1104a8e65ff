//! The segments of a folder, ordered by the positions in their headers: people may have renamed or copied files.
//!
//! Salvage uses this order. Opening a folder uses the file names, and refuses a segment whose header contradicts its
//! name.

use std::mem;

use super::segment::{self, SegmentHeader, SegmentReader, Step};
use super::{DamageKind, StoreId};
use crate::disk::{Access, Disk, DiskError, Listed};

/// A segment file that has the wrong name or repeats another segment. No records are lost because of this.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MisnamedSegment {
    /// Path of the file.
    pub file: String,
    /// Position at which it begins.
    pub first: u64,
    /// Whether the name is wrong or the file repeats another segment.
    pub what: DamageKind,
}

/// The segments of a log, in order.
#[derive(Default)]
pub(super) struct SegmentOrder<'a> {
    /// Every segment once, ordered by first position.
    pub(super) segments: Vec<PlacedSegment<'a>>,
    /// Files that repeat one of these segments.
    pub(super) copies: Vec<PlacedSegment<'a>>,
}

/// A segment file and its place in the log.
#[derive(Clone, Copy)]
pub(super) struct PlacedSegment<'a> {
    /// First position: from the header if it is intact and of the expected store, otherwise from the file name.
    pub(super) first: u64,
    /// First position according to the file name.
    pub(super) named: u64,
    pub(super) file: &'a Listed,
    header: Option<SegmentHeader>,
}

impl<'a> SegmentOrder<'a> {
    /// Orders the segments among these files.
    pub(super) fn find(
        disk: &dyn Disk,
        listed: &'a [Listed],
        store_id: Option<StoreId>,
    ) -> Result<SegmentOrder<'a>, DiskError> {
        let mut found = Vec::new();
        for (named, file) in segment::by_name(listed) {
            let header = SegmentHeader::open(disk, file)?.ok();
            let header = header.filter(|header| store_id.is_none_or(|wanted| header.store_id == wanted));
            let first = header.map_or(named, |header| header.first);
            found.push(PlacedSegment { first, named, file, header });
        }
        found.sort_by_key(|placed| (placed.first, placed.is_misnamed()));
        let mut order = SegmentOrder::default();
        for placed in found {
            order.add(disk, placed)?;
        }
        Ok(order)
    }

    fn add(&mut self, disk: &dyn Disk, mut placed: PlacedSegment<'a>) -> Result<(), DiskError> {
        let mut beside = self.segments.iter_mut().rev().take_while(|other| other.first == placed.first);
        match beside.find(|other| other.is_same(&placed)) {
            None => self.segments.push(placed),
            Some(other) => {
                // One of the copies may be damaged: keep the copy with more intact records.
                if placed.intact_records(disk)? > other.intact_records(disk)? {
                    mem::swap(other, &mut placed);
                }
                self.copies.push(placed);
            }
        }
        Ok(())
    }

    /// Returns the damage that describes a copy: it repeats another segment.
    pub(super) fn repetition(&self, copy: &PlacedSegment<'_>) -> DamageKind {
        let of = self.segments.iter().find(|segment| segment.is_same(copy));
        DamageKind::SegmentRepeated { of: of.expect("one of the copies was kept").file.name.clone() }
    }
}

impl PlacedSegment<'_> {
    pub(super) fn is_misnamed(&self) -> bool {
        self.first != self.named
    }

    /// Returns true if both files are the same segment. Every segment has its own salt, so equal headers prove it.
    fn is_same(&self, other: &PlacedSegment<'_>) -> bool {
        self.header.is_some() && self.header == other.header
    }

    /// Counts the records before the first damage.
    fn intact_records(&self, disk: &dyn Disk) -> Result<u64, DiskError> {
        let Some(header) = &self.header else { return Ok(0) };
        let file = disk.open(&self.file.name, Access::Read)?;
        let mut records = SegmentReader::new(file, self.file.bytes, header);
        while let Step::Record { .. } = records.step()? {}
        Ok(records.expected - header.first)
    }
}
