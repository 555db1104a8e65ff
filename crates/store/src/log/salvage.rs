//! Reads a log to its end despite damage: passes on every intact record, and lists what is lost.
//!
//! Changes nothing. It distinguishes damage from a torn tail by the same table as opening. In contrast to opening, it
//! continues after damage, at the next intact frame.

use super::order::{MisnamedSegment, PlacedSegment, SegmentOrder};
use super::scan::{EndFacts, EndVerdict, HeaderFacts, HeaderVerdict, TornTail, decide_end, decide_header};
use super::segment::{self, SegmentHeader, SegmentReader, Step};
use super::{DamageKind, Gap, StoreId, Visit};
use crate::disk::{Access, Disk, DiskError, Listed};

/// Which log to salvage.
#[derive(Clone, Copy, Debug)]
pub struct SalvageTarget {
    /// Id of the store whose segments are read. `None` accepts segments of any store.
    pub store_id: Option<StoreId>,
    /// First position that is needed.
    pub first: u64,
    /// The log is known to have been durable up to this position.
    pub durable: u64,
}

/// Result of [`salvage`], apart from the records.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Salvage {
    /// Number of intact records.
    pub records: u64,
    /// Last position that was found, needed or not.
    pub last: u64,
    /// Number of segments read, including damaged ones.
    pub segments: usize,
    /// Number of bytes in these segments.
    pub bytes: u64,
    /// Ranges that are missing or unreadable, in order.
    pub losses: Vec<Loss>,
    /// Bytes after the last record: an unfinished write that a crash left, or a damaged last record.
    pub torn: Option<TornTail>,
    /// Name of the last segment if a crash interrupted its creation.
    pub unfinished: Option<String>,
    /// Names of segments that are no longer needed.
    pub covered: Vec<String>,
    /// Segments with a wrong file name. Salvage read them according to their headers, and read only one of
    /// several copies.
    pub misnamed: Vec<MisnamedSegment>,
}

/// A range of positions that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loss {
    /// Path of the file, or of the folder if a segment is missing.
    pub file: String,
    /// Offset in the file at which the range begins.
    pub offset: u64,
    /// First missing position.
    pub first: u64,
    /// First position after the range; equals `first` if no position is missing, `None` if the end is unknown.
    pub next: Option<u64>,
    /// The damage that was found.
    pub what: DamageKind,
    /// Whether the folder proves that the range had records. Otherwise it may have been empty.
    pub is_proved: bool,
}

/// Passes every intact record that is wanted to `visit`, in ascending order, and skips damage.
///
/// A segment without an intact header cannot be read, because its salt is lost. If `visit` returns an error, the record
/// counts as lost.
pub fn salvage(disk: &dyn Disk, wanted: &SalvageTarget, visit: &mut Visit<'_>) -> Result<Salvage, DiskError> {
    let listed = disk.list()?;
    let order = SegmentOrder::find(disk, &listed, wanted.store_id)?;
    let segments: Vec<(u64, &Listed)> =
        order.segments.iter().map(|placed| (placed.first, placed.file)).collect();
    let mut scanner = SalvageScanner { disk, wanted, found: Salvage::default(), before: None };
    let begin = segment::first_needed(disk, &segments, wanted.first)?.unwrap_or_else(|| {
        scanner.lose_gap(Gap::at_start(wanted.first, segments.first().copied()));
        0
    });
    scanner.classify_names(&listed, &order, begin)?;
    for index in begin..segments.len() {
        scanner.segment(&segments, index, visit)?;
    }
    scanner.check_end(&segments);
    Ok(scanner.found)
}

/// Returns the first position of every segment, and its header if that is intact. Otherwise the position is the one in
/// the file's name.
pub(crate) fn segment_headers(disk: &dyn Disk) -> Result<Vec<(u64, Option<SegmentHeader>)>, DiskError> {
    let mut headers = Vec::new();
    for (named, file) in segment::by_name(&disk.list()?) {
        let header = SegmentHeader::open(disk, file)?.ok();
        headers.push((header.map_or(named, |header| header.first), header));
    }
    Ok(headers)
}

/// Reads all segments that are needed, and collects what it finds.
struct SalvageScanner<'a> {
    disk: &'a dyn Disk,
    wanted: &'a SalvageTarget,
    found: Salvage,
    /// Last position and last checksum of the previous segment, if that segment was read to its end.
    before: Option<(u64, u32)>,
}

impl SalvageScanner<'_> {
    /// Separates segments that are no longer needed from segments with wrong names.
    ///
    /// Opening trusts the names. A segment that opening would skip is no problem if it is really no longer needed, or
    /// if another copy of it is read.
    fn classify_names(
        &mut self,
        listed: &[Listed],
        order: &SegmentOrder<'_>,
        begin: usize,
    ) -> Result<(), DiskError> {
        let named: Vec<(u64, &Listed)> = segment::by_name(listed).collect();
        let needed = segment::first_needed(self.disk, &named, self.wanted.first)?;
        let skipped_to = needed.map_or(0, |index| named[index].0);
        let is_skipped = |placed: &PlacedSegment<'_>| placed.named < skipped_to;
        for (index, placed) in order.segments.iter().enumerate() {
            let is_covered = index < begin;
            if placed.is_misnamed() && !(is_covered && is_skipped(placed)) {
                self.add_misnamed(placed, DamageKind::SegmentMisnamed { found: placed.first });
            } else if is_covered {
                self.found.covered.push(placed.file.name.clone());
            }
        }
        for copy in &order.copies {
            match is_skipped(copy) {
                true => self.found.covered.push(copy.file.name.clone()),
                false => self.add_misnamed(copy, order.repetition(copy)),
            }
        }
        Ok(())
    }

    fn add_misnamed(&mut self, placed: &PlacedSegment<'_>, what: DamageKind) {
        let file = self.disk.path_of(&placed.file.name);
        self.found.misnamed.push(MisnamedSegment { file, first: placed.first, what });
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
            // The segment after a gap cannot continue a known checksum.
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
                // The segment is readable but misplaced. Only the positions before it are missing.
                let first = self.expected(header.first);
                self.lose(&listed.name, 0, (first, Some(header.first.max(first))), what);
                self.records(listed, SegmentReader::new(file, listed.bytes, &header), later, visit)
            }
            (HeaderVerdict::Refuse(what), _) => {
                self.lose(&listed.name, 0, (self.expected(named).max(named), later), what);
                self.before = None;
                Ok(())
            }
            (_, Ok(header)) => {
                self.records(listed, SegmentReader::new(file, listed.bytes, &header), later, visit)
            }
            (_, Err(_)) => Ok(()),
        }
    }

    /// Returns the position expected next, or `named` if no record was read yet.
    fn expected(&self, named: u64) -> u64 {
        if self.before.is_some() || self.found.records > 0 { self.found.last + 1 } else { named }
    }

    fn records(
        &mut self,
        listed: &Listed,
        mut records: SegmentReader,
        later: Option<u64>,
        visit: &mut Visit<'_>,
    ) -> Result<(), DiskError> {
        loop {
            let expected = records.expected;
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
                    // Segments of a damaged log can overlap.
                    self.found.records += u64::from(position > self.found.last);
                    self.found.last = self.found.last.max(position);
                }
                Step::Bad(what) => {
                    if !self.damage(listed, &mut records, later, what)? {
                        self.found.last = self.found.last.max(expected - 1);
                        // If the next segment begins right here, its header shows whether it continues this one.
                        let is_whole = later == Some(expected);
                        self.before = is_whole.then_some((expected - 1, records.previous));
                        return Ok(());
                    }
                }
            }
        }
        self.found.last = self.found.last.max(records.expected - 1);
        self.before = Some((records.expected - 1, records.previous));
        Ok(())
    }

    /// Handles a place where the next frame is not intact.
    ///
    /// If it is damage, moves `records` to the next intact frame and returns true. Returns false if there is no such
    /// frame, or if the rest of the segment is a torn tail.
    fn damage(
        &mut self,
        listed: &Listed,
        records: &mut SegmentReader,
        later: Option<u64>,
        what: DamageKind,
    ) -> Result<bool, DiskError> {
        let (offset, first) = (records.offset, records.expected);
        let facts = EndFacts {
            found: Some(what),
            later_segment: later.is_some(),
            expected: first,
            durable: self.wanted.durable,
            claimed: records.find_claim()?.is_some(),
        };
        let EndVerdict::Refuse(what) = decide_end(facts) else {
            let file = self.disk.path_of(&listed.name);
            self.found.torn = Some(TornTail { file, at: offset, bytes: listed.bytes - offset });
            return Ok(false);
        };
        let goes_on = records.skip_damage()?;
        let next = if goes_on { Some(records.expected) } else { later };
        self.lose(&listed.name, offset, (first, next), what);
        if let Some(loss) = self.found.losses.last_mut() {
            // Without a later record, a claim proves the loss, or the checksum of the damaged frame.
            loss.is_proved |= next.is_none();
        }
        Ok(goes_on)
    }

    /// Records a loss if the log ends before the position that is known to have been durable.
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
        // An empty name refers to the folder, because no file is damaged.
        self.lose("", 0, (gap.first, gap.next), DamageKind::SegmentMissing(Box::new(gap)));
    }

    fn lose(&mut self, name: &str, offset: u64, (first, next): (u64, Option<u64>), what: DamageKind) {
        let file = self.disk.path_of(name);
        let is_proved = next.map_or(first <= self.wanted.durable, |next| next > first);
        self.found.losses.push(Loss { file, offset, first, next, what, is_proved });
    }
}
