//! Which segments a folder has and how they follow each other, by what they say of themselves: somebody may have renamed or
//! copied a file. For saving what can be saved; opening goes by the names and refuses what contradicts them.

use std::mem;

use super::segment::{self, Records, SegmentHeader, Step};
use super::{DamageKind, StoreId};
use crate::disk::{Access, Disk, DiskError, Listed};

/// A segment whose name is not that of what it holds. Nothing is lost by that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Astray {
    /// The path of the file.
    pub file: String,
    /// The position it begins at.
    pub first: u64,
    /// What is wrong with its name.
    pub what: DamageKind,
}

/// The segments of a log.
#[derive(Default)]
pub(super) struct Order<'a> {
    /// Every segment once, in the order of their positions.
    pub(super) segments: Vec<Placed<'a>>,
    /// Further files with the same segments.
    pub(super) copies: Vec<Placed<'a>>,
}

/// A segment's file and its place in the log.
#[derive(Clone, Copy)]
pub(super) struct Placed<'a> {
    /// Where it begins: by its header, if that is sound and of the store that is looked for, else by its name.
    pub(super) first: u64,
    pub(super) named: u64,
    pub(super) file: &'a Listed,
    header: Option<SegmentHeader>,
}

impl<'a> Order<'a> {
    /// Of the segments among these files.
    pub(super) fn find(
        disk: &dyn Disk,
        listed: &'a [Listed],
        store_id: Option<StoreId>,
    ) -> Result<Order<'a>, DiskError> {
        let mut found = Vec::new();
        for (named, file) in segment::by_name(listed) {
            let header = SegmentHeader::open(disk, file)?.ok();
            let header = header.filter(|header| store_id.is_none_or(|wanted| header.store_id == wanted));
            let first = header.map_or(named, |header| header.first);
            found.push(Placed { first, named, file, header });
        }
        found.sort_by_key(|placed| (placed.first, placed.is_misnamed()));
        let mut order = Order::default();
        for placed in found {
            order.add(disk, placed)?;
        }
        Ok(order)
    }

    fn add(&mut self, disk: &dyn Disk, mut placed: Placed<'a>) -> Result<(), DiskError> {
        let mut beside = self.segments.iter_mut().rev().take_while(|other| other.first == placed.first);
        match beside.find(|other| other.is_same(&placed)) {
            None => self.segments.push(placed),
            Some(other) => {
                // One of them may be damaged.
                if placed.intact_records(disk)? > other.intact_records(disk)? {
                    mem::swap(other, &mut placed);
                }
                self.copies.push(placed);
            }
        }
        Ok(())
    }

    /// What is wrong with the name of a copy.
    pub(super) fn copied(&self, copy: &Placed<'_>) -> DamageKind {
        let of = self.segments.iter().find(|segment| segment.is_same(copy));
        DamageKind::SegmentRepeated { of: of.expect("one of them was kept").file.name.clone() }
    }
}

impl Placed<'_> {
    pub(super) fn is_misnamed(&self) -> bool {
        self.first != self.named
    }

    /// Every segment has a salt of its own, so the same header is that of the same segment.
    fn is_same(&self, other: &Placed<'_>) -> bool {
        self.header.is_some() && self.header == other.header
    }

    /// How many records there are up to the first damage.
    fn intact_records(&self, disk: &dyn Disk) -> Result<u64, DiskError> {
        let Some(header) = &self.header else { return Ok(0) };
        let file = disk.open(&self.file.name, Access::Read)?;
        let mut records = Records::new(&*file, self.file.bytes, header);
        while let Step::Record { .. } = records.step()? {}
        Ok(records.expected() - header.first)
    }
}
