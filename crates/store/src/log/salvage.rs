//! Reading a log to its very end, however damaged: every intact record that belongs to it, and a list of what is not there.
//!
//! Nothing is changed. Whether a place is damaged or merely torn is decided by the same table as when opening; what is
//! different is that the walk goes on behind damage, at the next intact frame.

use super::order::{Astray, Order, Placed};
use super::scan::{EndFacts, EndVerdict, HeaderFacts, HeaderVerdict, Torn, decide_end, decide_header};
use super::segment::{self, Records, SegmentHeader, Step};
use super::{DamageKind, Gap, StoreId, Visit};
use crate::disk::{Access, Disk, DiskError, Listed};

/// Which log is looked for.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    /// Segments of other stores are passed over. `None`: any store's will do.
    pub store_id: Option<StoreId>,
    /// The first position that is needed.
    pub first: u64,
    /// The log is known to have been durable up to here.
    pub durable: u64,
}

impl Default for Wanted {
    fn default() -> Self {
        Wanted { store_id: None, first: 1, durable: 0 }
    }
}

/// What was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Salvage {
    /// How many intact records there are.
    pub records: u64,
    /// The last position that was found, needed or not.
    pub last: u64,
    /// How many segments were read, damaged ones included.
    pub segments: usize,
    /// How many bytes they have.
    pub bytes: u64,
    /// Where something is missing or unreadable, in order.
    pub losses: Vec<Loss>,
    /// What a crash left of records that nobody was told about.
    pub torn: Option<Torn>,
    /// The name of a last segment whose making was cut short.
    pub unfinished: Option<String>,
    /// The names of segments that are no longer needed.
    pub covered: Vec<String>,
    /// Segments under a wrong name. They were read as what they are, copies once.
    pub astray: Vec<Astray>,
}

/// A stretch that could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loss {
    /// The path of the file, or of the folder when a segment is missing.
    pub file: String,
    /// Where it begins in the file.
    pub offset: u64,
    /// The first position that is missing.
    pub first: u64,
    /// The position found next, `first` when none is missing; `None` when it is not known how many there were.
    pub next: Option<u64>,
    /// What was found there.
    pub what: DamageKind,
}

/// Hands every intact record that is wanted to `visit`, in ascending positions, passing over damage. A segment without a
/// sound header cannot be read at all, because its salt is lost. An error of `visit` counts as a loss of that record.
pub fn salvage(disk: &dyn Disk, wanted: &Wanted, visit: &mut Visit<'_>) -> Result<Salvage, DiskError> {
    let listed = disk.list()?;
    let order = Order::find(disk, &listed, wanted.store_id)?;
    let segments: Vec<(u64, &Listed)> =
        order.segments.iter().map(|placed| (placed.first, placed.file)).collect();
    let mut walk = Walk { disk, wanted, found: Salvage::default(), before: None };
    let begin = segment::first_needed(disk, &segments, wanted.first)?.unwrap_or_else(|| {
        walk.lose_gap(Gap::at_begin(wanted.first, segments.first().copied()));
        0
    });
    walk.judge_names(&listed, &order, begin)?;
    for index in begin..segments.len() {
        walk.segment(&segments, index, visit)?;
    }
    walk.check_end(&segments);
    Ok(walk.found)
}

/// Where every segment begins and of which store it is by its header; only the name tells if that is damaged.
pub(crate) fn segment_owners(disk: &dyn Disk) -> Result<Vec<(u64, Option<StoreId>)>, DiskError> {
    let mut owners = Vec::new();
    for (named, file) in segment::by_name(&disk.list()?) {
        let header = SegmentHeader::open(disk, file)?;
        owners.push(match header {
            Ok(header) => (header.first, Some(header.store_id)),
            Err(_) => (named, None),
        });
    }
    Ok(owners)
}

/// A walk through all segments that are needed.
struct Walk<'a> {
    disk: &'a dyn Disk,
    wanted: &'a Wanted,
    found: Salvage,
    /// Position and checksum of the last record of the segment before, when that was read to its end.
    before: Option<(u64, u32)>,
}

impl Walk<'_> {
    /// Tells files that are no longer needed from those whose names are wrong. What opening, which goes by the names, takes
    /// for no longer needed is no trouble if it is that, or if there is another of it.
    fn judge_names(&mut self, listed: &[Listed], order: &Order<'_>, begin: usize) -> Result<(), DiskError> {
        let named: Vec<(u64, &Listed)> = segment::by_name(listed).collect();
        let needed = segment::first_needed(self.disk, &named, self.wanted.first)?;
        let skipped_to = needed.map_or(0, |index| named[index].0);
        let is_skipped = |placed: &Placed<'_>| placed.named < skipped_to;
        for (index, placed) in order.segments.iter().enumerate() {
            let is_covered = index < begin;
            if placed.is_misnamed() && !(is_covered && is_skipped(placed)) {
                self.stray(placed, DamageKind::SegmentMisnamed { found: placed.first });
            } else if is_covered {
                self.found.covered.push(placed.file.name.clone());
            }
        }
        for copy in &order.copies {
            match is_skipped(copy) {
                true => self.found.covered.push(copy.file.name.clone()),
                false => self.stray(copy, order.copied(copy)),
            }
        }
        Ok(())
    }

    fn stray(&mut self, placed: &Placed<'_>, what: DamageKind) {
        let file = self.disk.path_of(&placed.file.name);
        self.found.astray.push(Astray { file, first: placed.first, what });
    }

    fn segment(
        &mut self,
        segments: &[(u64, &Listed)],
        index: usize,
        visit: &mut Visit<'_>,
    ) -> Result<(), DiskError> {
        let (named, listed) = segments[index];
        let later = segments.get(index + 1).map(|&(begins, _)| begins);
        let file = self.disk.open(&listed.name, Access::Read)?;
        let header = SegmentHeader::read(&*file)?;
        let mut facts = HeaderFacts {
            header: header.as_ref(),
            named,
            file_bytes: listed.bytes,
            is_last: later.is_none(),
            before: self.before,
            is_of_this_store: header
                .as_ref()
                .is_ok_and(|header| self.wanted.store_id.is_none_or(|wanted| header.store_id == wanted)),
        };
        let is_ours = facts.is_of_this_store;
        let mut verdict = decide_header(&facts);
        if verdict == HeaderVerdict::Gap {
            self.lose_gap(Gap::between(self.found.last + 1, segments[index - 1].1, segments[index]));
            // What follows a gap continues nothing that is known.
            (self.before, facts.before) = (None, None);
            verdict = decide_header(&facts);
        }
        if verdict == HeaderVerdict::Unfinished {
            self.found.unfinished = Some(listed.name.clone());
            return Ok(());
        }
        self.found.segments += 1;
        self.found.bytes += listed.bytes;
        match (verdict, header) {
            (HeaderVerdict::Refuse(what), Ok(header)) if is_ours => {
                // Readable, though not where it belongs: what is missing is what lies between.
                let first = self.expected(header.first);
                self.lose(&listed.name, 0, (first, Some(header.first.max(first))), what);
                self.records(listed, Records::new(&*file, listed.bytes, &header), later, visit)
            }
            (HeaderVerdict::Refuse(what), _) => {
                self.lose(&listed.name, 0, (self.expected(named).max(named), later), what);
                self.before = None;
                Ok(())
            }
            (_, Ok(header)) => {
                self.records(listed, Records::new(&*file, listed.bytes, &header), later, visit)
            }
            (_, Err(_)) => Ok(()),
        }
    }

    /// The position that should come next, where something was read before; else `named`.
    fn expected(&self, named: u64) -> u64 {
        if self.before.is_some() || self.found.records > 0 { self.found.last + 1 } else { named }
    }

    fn records(
        &mut self,
        listed: &Listed,
        mut records: Records<'_>,
        later: Option<u64>,
        visit: &mut Visit<'_>,
    ) -> Result<(), DiskError> {
        loop {
            let expected = records.expected();
            match records.step()? {
                Step::End => break,
                Step::Record { offset, position, payload, .. } => {
                    if position > self.found.last
                        && position >= self.wanted.first
                        && let Err(why) = visit(position, payload)
                    {
                        let what = DamageKind::Payload(why);
                        self.lose(&listed.name, offset, (expected, Some(expected + 1)), what);
                    }
                    // Segments may overlap where something went wrong.
                    self.found.records += u64::from(position > self.found.last);
                    self.found.last = self.found.last.max(position);
                }
                Step::Bad(what) => {
                    if !self.damage(listed, &mut records, later, what)? {
                        self.found.last = self.found.last.max(expected - 1);
                        self.before = None;
                        return Ok(());
                    }
                }
            }
        }
        self.found.last = self.found.last.max(records.expected() - 1);
        self.before = Some((records.expected() - 1, records.previous()));
        Ok(())
    }

    /// Judges the place where the records end, and goes on behind it if there is something. False at the end.
    fn damage(
        &mut self,
        listed: &Listed,
        records: &mut Records<'_>,
        later: Option<u64>,
        what: DamageKind,
    ) -> Result<bool, DiskError> {
        let (offset, first) = (records.offset(), records.expected());
        let facts = EndFacts {
            found: Some(what),
            later_segment: later.is_some(),
            expected: first,
            durable: self.wanted.durable,
            claimed: records.find_claim()?.is_some(),
        };
        let EndVerdict::Refuse(what) = decide_end(facts) else {
            let file = self.disk.path_of(&listed.name);
            self.found.torn = Some(Torn { file, at: offset, bytes: listed.bytes - offset });
            return Ok(false);
        };
        let goes_on = records.skip_damage()?;
        let next = if goes_on { Some(records.expected()) } else { later };
        self.lose(&listed.name, offset, (first, next), what);
        Ok(goes_on)
    }

    /// The log must reach what is known to have been durable.
    fn check_end(&mut self, segments: &[(u64, &Listed)]) {
        let durable = self.wanted.durable.max(self.wanted.first - 1);
        let is_known = self.found.losses.last().is_some_and(|loss| loss.next.is_none());
        let Some((_, listed)) = segments.last().filter(|_| self.found.last < durable && !is_known) else {
            return;
        };
        let first = self.found.last + 1;
        let what = DamageKind::RolledBack { durable };
        self.lose(&listed.name, listed.bytes, (first, Some(durable + 1)), what);
    }

    fn lose_gap(&mut self, gap: Gap) {
        // The name of the folder: no file is to blame.
        self.lose("", 0, (gap.first, gap.next), DamageKind::SegmentMissing(Box::new(gap)));
    }

    fn lose(&mut self, name: &str, offset: u64, (first, next): (u64, Option<u64>), what: DamageKind) {
        let file = self.disk.path_of(name);
        self.found.losses.push(Loss { file, offset, first, next, what });
    }
}
