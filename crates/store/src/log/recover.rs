//! Opens a folder as a log: reads everything, decides what it means, and only then changes anything.
//!
//! Reading ([`Recovery::read`]) never writes. Opening ([`Recovery::open`]) reads first and then repairs. The order of
//! the repairs is such that after a crash at any point, the next start draws the same conclusions. The [`OpenReport`]
//! lists the repairs.

use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::Arc;

use super::manifest::{self, Manifest};
use super::scan::{
    EndFacts, EndVerdict, HeaderFacts, HeaderVerdict, Scan, TornTail, decide_end, decide_header,
};
use super::segment::{self, Segment, SegmentHeader, SegmentReader, Step};
use super::writer::{Log, Start};
use super::{Damage, DamageKind, Gap, LogOptions, OpenError, StoreId, Visit};
use crate::disk::{Access, Disk, DiskError, File, Listed, read_full, write_full};

/// Prefix of snapshot file names. The log does not read snapshots, but a folder that has one is not new.
const SNAPSHOT_PREFIX: &str = "snapshot-";
/// Returns the name of the snapshot at a position.
pub(super) fn snapshot_name(position: u64) -> String {
    format!("{SNAPSHOT_PREFIX}{position:020}")
}

/// Maximum number of bytes held in memory while an unproven tail is written again.
const REWRITE_BYTES: usize = 1 << 20;
/// Minimum distance between two frames whose offsets are remembered.
const MARK_BYTES: u64 = 64 << 10;

/// A folder whose manifest was read. The log itself was not read yet.
pub struct Recovery {
    disk: Arc<dyn Disk>,
    lock: Option<FolderLock>,
    /// `None` if the folder is new.
    manifest: Option<Manifest>,
    listed: Vec<Listed>,
    bytes_read: Cell<u64>,
}

/// An open log, and a report of what opening found.
pub struct Opened {
    /// The log.
    pub log: Log,
    /// What opening found and repaired.
    pub report: OpenReport,
}

/// What opening found and repaired.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OpenReport {
    /// True if the folder was new.
    pub created: bool,
    /// Number of segments read.
    pub segments: usize,
    /// Number of bytes in these segments.
    pub bytes: u64,
    /// Number of records read.
    pub records: u64,
    /// Position of the last record.
    pub last: u64,
    /// The torn tail that was cut.
    pub cut: Option<TornTail>,
    /// Number of bytes that were written again because no later frame proves them durable.
    pub rewritten_bytes: u64,
    /// Files that were removed: leftovers of a crash, and segments that are no longer needed.
    pub removed: Vec<String>,
}

/// Lock on the folder; released when dropped.
pub(crate) struct FolderLock(Arc<dyn Disk>);

impl Drop for FolderLock {
    fn drop(&mut self) {
        self.0.unlock();
    }
}

impl Recovery {
    /// Locks the folder for this process and reads its manifest.
    pub fn begin(disk: Arc<dyn Disk>) -> Result<Recovery, OpenError> {
        disk.lock()?;
        let lock = FolderLock(Arc::clone(&disk));
        let recovery = Recovery::inspect(disk)?;
        Ok(Recovery { lock: Some(lock), ..recovery })
    }

    /// Reads the manifest without locking the folder, for read-only use. Do not call [`Recovery::open`] on the result.
    pub fn inspect(disk: Arc<dyn Disk>) -> Result<Recovery, OpenError> {
        let listed = disk.list()?;
        let manifest = if listed.iter().any(|file| file.name == manifest::NAME) {
            let read = Manifest::read(&*disk, manifest::NAME)?;
            Some(read.map_err(|what| Damage::of_manifest(&*disk, what))?)
        } else if is_new(&listed) {
            None
        } else {
            let what = DamageKind::ManifestMissing;
            return Err(Damage { position: 1, ..Damage::of_manifest(&*disk, what) }.into());
        };
        Ok(Recovery { disk, lock: None, manifest, listed, bytes_read: Cell::new(0) })
    }

    /// Returns the manifest; `None` if the folder is new.
    pub fn manifest(&self) -> Option<&Manifest> {
        self.manifest.as_ref()
    }

    /// Reads the log and passes every record that is still needed to `visit`. Changes nothing. Stops if `visit` fails.
    pub fn read(&self, visit: &mut Visit<'_>) -> Result<Option<Scan>, OpenError> {
        match &self.manifest {
            None => Ok(None),
            Some(manifest) => {
                let scanner = LogScanner::new(&*self.disk, manifest, &self.bytes_read);
                scanner.run(&self.listed, visit).map(Some)
            }
        }
    }

    /// Returns the number of bytes that [`Recovery::read`] has to read.
    pub(crate) fn log_bytes(&self) -> u64 {
        let first = self.manifest.as_ref().map_or(1, |manifest| manifest.first);
        let mut bytes = 0;
        for (begins, file) in segment::by_name(&self.listed) {
            // The last segment that begins at or before `first` is the first one needed.
            bytes = if begins <= first { file.bytes } else { bytes + file.bytes };
        }
        bytes
    }

    /// Returns the number of bytes that [`Recovery::read`] has read, up to the frame of the current record.
    pub(crate) fn bytes_read(&self) -> u64 {
        self.bytes_read.get()
    }

    /// Reads the log like [`Recovery::read`], then repairs it and opens it for appending.
    pub fn open(
        self,
        options: LogOptions,
        mut visit: impl FnMut(u64, &[u8]) -> Result<(), String>,
    ) -> Result<Opened, OpenError> {
        let scan = self.read(&mut visit)?;
        self.open_scanned(scan, options)
    }

    /// Does the rest of [`Recovery::open`], for a caller that has already read the log.
    pub(crate) fn open_scanned(
        mut self,
        scan: Option<Scan>,
        mut options: LogOptions,
    ) -> Result<Opened, OpenError> {
        let lock = self.lock.take().expect("only a locked folder is opened");
        let mut report = OpenReport::default();
        let (manifest, scan) = match (self.manifest.take(), scan) {
            (Some(manifest), Some(scan)) => (manifest, scan),
            _ => self.create(&mut options, &mut report)?,
        };
        let file = self.repair(&scan, &mut report)?;
        report.segments = scan.segments.len();
        report.bytes = scan.segments.iter().map(|segment| segment.bytes).sum();
        (report.records, report.last) = (scan.records, scan.last);
        let log = Log::start(Start { disk: self.disk, lock, manifest, scan, file, options });
        Ok(Opened { log, report })
    }

    /// Creates the first segment of a new folder, then the manifest: a manifest never refers to a missing segment.
    fn create(
        &self,
        options: &mut LogOptions,
        report: &mut OpenReport,
    ) -> Result<(Manifest, Scan), OpenError> {
        report.created = true;
        for listed in self.listed.iter().filter(|listed| segment::first_of(&listed.name).is_some()) {
            self.disk.remove(&listed.name)?;
            report.removed.push(listed.name.clone());
        }
        let mut store_id = [0; 16];
        store_id[..8].copy_from_slice(&(options.random)().to_le_bytes());
        store_id[8..].copy_from_slice(&(options.random)().to_le_bytes());
        let store_id = StoreId(store_id);
        let header = SegmentHeader::first(store_id, (options.random)(), options.begins_empty);
        let name = segment::name(1);
        let file = self.disk.create(&name)?;
        write_full(&*file, 0, &header.encode())?;
        file.sync()?;
        self.disk.sync_dir()?;
        let manifest = Manifest::new(store_id, None, 1, 0);
        manifest.install(&*self.disk)?;
        self.disk.sync_dir()?;
        let bytes = segment::HEADER_BYTES as u64;
        let scan = Scan {
            segments: vec![Segment { name, header, bytes }],
            last_checksum: header.previous,
            unproven_from: bytes,
            ..Scan::default()
        };
        Ok((manifest, scan))
    }

    /// Makes the repairs that the scan requires, and returns the last segment, intact and durable.
    fn repair(&self, scan: &Scan, report: &mut OpenReport) -> Result<Arc<dyn File>, OpenError> {
        if let Some(name) = &scan.unfinished {
            // The removal must be durable before the previous segment changes: a later segment proves that an earlier
            // one is final.
            self.disk.remove(name)?;
            self.disk.sync_dir()?;
            report.removed.push(name.clone());
        }
        let last = scan.segments.last().expect("a log has a segment");
        let file = self.disk.open(&last.name, Access::Write)?;
        if file.bytes()? > last.bytes {
            // Preallocated space is cut as well: after a failed sync, bytes that are zero in the page cache may
            // differ on disk.
            file.truncate(last.bytes)?;
            report.cut.clone_from(&scan.torn);
        }
        rewrite(&*file, scan.unproven_from, last.bytes)?;
        report.rewritten_bytes = last.bytes - scan.unproven_from;
        file.sync()?;
        // The manifest's new name may be in the cache only. It must be durable before unneeded segments are removed.
        self.disk.sync_dir()?;
        for name in &scan.covered {
            self.disk.remove(name)?;
            report.removed.push(name.clone());
        }
        let has = |name: &str| self.listed.iter().any(|listed| listed.name == name);
        if has(manifest::NEW_NAME) && !report.created {
            self.disk.remove(manifest::NEW_NAME)?;
            report.removed.push(manifest::NEW_NAME.to_owned());
        }
        if has(manifest::CLOSED_NAME) {
            // From now on, records may follow its durable position. The removal is durable before the first one is.
            self.disk.remove(manifest::CLOSED_NAME)?;
        }
        self.disk.sync_dir()?;
        Ok(file)
    }
}

/// Returns true if the folder is new: no record in it was ever acknowledged.
fn is_new(listed: &[Listed]) -> bool {
    listed.iter().all(|file| match segment::first_of(&file.name) {
        Some(first) => first == 1 && file.bytes <= segment::HEADER_BYTES as u64,
        None => !file.name.starts_with(SNAPSHOT_PREFIX) && file.name != manifest::CLOSED_NAME,
    })
}

/// Writes the bytes over themselves. After a failed sync of an earlier process they may be in the page cache only,
/// marked as clean, so that no later sync would write them.
fn rewrite(file: &dyn File, from: u64, to: u64) -> Result<(), DiskError> {
    let mut chunk = vec![0; REWRITE_BYTES.min((to - from) as usize)];
    let mut at = from;
    while at < to {
        let count = chunk.len().min((to - at) as usize);
        let count = read_full(file, at, &mut chunk[..count])?;
        write_full(file, at, &chunk[..count])?;
        at += count as u64;
    }
    Ok(())
}

/// Reads all segments that are needed.
struct LogScanner<'a> {
    disk: &'a dyn Disk,
    manifest: &'a Manifest,
    scan: Scan,
    claims: ClaimTracker,
    bytes_read: &'a Cell<u64>,
}

impl<'a> LogScanner<'a> {
    fn new(disk: &'a dyn Disk, manifest: &'a Manifest, bytes_read: &'a Cell<u64>) -> LogScanner<'a> {
        let claims = ClaimTracker { claim: manifest.durable, marks: VecDeque::new() };
        bytes_read.set(0);
        LogScanner { disk, manifest, scan: Scan::default(), claims, bytes_read }
    }

    fn run(mut self, listed: &[Listed], visit: &mut Visit<'_>) -> Result<Scan, OpenError> {
        let found: Vec<(u64, &Listed)> = segment::by_name(listed).collect();
        let first = self.manifest.first;
        let begin = segment::first_needed(self.disk, &found, first)?
            .ok_or_else(|| self.gap(Gap::at_start(first, found.first().copied())))?;
        self.scan.covered = found[..begin].iter().map(|(_, file)| file.name.clone()).collect();
        for index in begin..found.len() {
            self.segment(&found, index, visit)?;
        }
        self.check_end()?;
        found[..begin].iter().try_for_each(|(named, file)| self.check_covered(*named, file))?;
        Ok(self.scan)
    }

    /// Refuses a segment with needed records whose name makes it look as if a snapshot covered it. Opening would remove
    /// it.
    fn check_covered(&self, named: u64, file: &Listed) -> Result<(), OpenError> {
        let Ok(header) = SegmentHeader::open(self.disk, file)? else { return Ok(()) };
        let is_ours = header.store_id == self.manifest.store_id && header.first >= self.manifest.first;
        let is_copy = self.scan.segments.iter().any(|segment| segment.header == header);
        match is_ours && !is_copy && header.first != named {
            true => {
                let what = DamageKind::SegmentMisnamed { found: header.first };
                Err(self.damage(&file.name, 0, header.first, what))
            }
            false => Ok(()),
        }
    }

    fn gap(&self, gap: Gap) -> OpenError {
        self.damage(&gap.reported_file(), 0, gap.first, DamageKind::SegmentMissing(Box::new(gap)))
    }

    fn damage(&self, name: &str, offset: u64, position: u64, what: DamageKind) -> OpenError {
        Damage { file: self.disk.path_of(name), offset, position, what }.into()
    }

    fn segment(
        &mut self,
        found: &[(u64, &Listed)],
        index: usize,
        visit: &mut Visit<'_>,
    ) -> Result<(), OpenError> {
        let (named, listed) = found[index];
        let is_last = index + 1 == found.len();
        let header = SegmentHeader::open(self.disk, listed)?;
        let facts = HeaderFacts {
            header: header.as_ref(),
            named,
            file_bytes: listed.bytes,
            is_last,
            before: self.scan.segments.last().map(|_| (self.scan.last, self.scan.last_checksum)),
            is_of_this_store: header.as_ref().is_ok_and(|header| header.store_id == self.manifest.store_id),
        };
        let position = facts.before.map_or(named, |(last, _)| last + 1);
        match (decide_header(&facts), header) {
            (HeaderVerdict::Gap, _) => {
                Err(self.gap(Gap::between(position, found[index - 1].1, found[index])))
            }
            (HeaderVerdict::Refuse(what), _) => Err(self.damage(&listed.name, 0, position, what)),
            (HeaderVerdict::Read, Ok(header)) => self.records(listed, &header, is_last, visit),
            (HeaderVerdict::Unfinished | HeaderVerdict::Read, _) => {
                self.scan.unfinished = Some(listed.name.clone());
                Ok(())
            }
        }
    }

    fn records(
        &mut self,
        listed: &Listed,
        header: &SegmentHeader,
        is_last: bool,
        visit: &mut Visit<'_>,
    ) -> Result<(), OpenError> {
        let file = self.disk.open(&listed.name, Access::Read)?;
        let mut records = SegmentReader::new(file, listed.bytes, header);
        self.claims.marks.clear();
        let bytes_before = self.bytes_read.get();
        let found = loop {
            match records.step()? {
                Step::End => break None,
                Step::Bad(what) => break Some(what),
                Step::Record { offset, position, claim, payload } => {
                    self.scan.records += 1;
                    self.bytes_read.set(bytes_before + offset);
                    self.claims.note(position, offset, claim);
                    if position >= self.manifest.first {
                        visit(position, payload).map_err(|why| {
                            self.damage(&listed.name, offset, position, DamageKind::Payload(why))
                        })?;
                    }
                }
            }
        };
        self.bytes_read.set(bytes_before + listed.bytes);
        let facts = EndFacts {
            claimed: found.is_some() && records.find_claim()?.is_some(),
            found,
            later_segment: !is_last,
            expected: records.expected,
            durable: self.manifest.durable,
        };
        let (offset, expected) = (records.offset, records.expected);
        self.scan.torn = match decide_end(facts) {
            EndVerdict::Clean => None,
            EndVerdict::Torn => Some(TornTail {
                file: self.disk.path_of(&listed.name),
                at: offset,
                bytes: listed.bytes - offset,
            }),
            EndVerdict::Refuse(what) => return Err(self.damage(&listed.name, offset, expected, what)),
        };
        self.scan.last = expected - 1;
        self.scan.last_checksum = records.previous;
        self.scan.unproven_from = self.claims.unproven_offset(header.first).min(offset);
        self.scan.segments.push(Segment { name: listed.name.clone(), header: *header, bytes: offset });
        Ok(())
    }

    /// Checks that the log reaches the manifest's durable position, and that its next record is not before the first
    /// needed position.
    fn check_end(&self) -> Result<(), OpenError> {
        let durable = self.manifest.durable.max(self.manifest.first - 1);
        if self.scan.last >= durable {
            return Ok(());
        }
        let last = self.scan.segments.last().expect("a scan reads a segment");
        let what = DamageKind::RolledBack { durable };
        Err(self.damage(&last.name, last.bytes, self.scan.last + 1, what))
    }
}

/// Tracks how far the claims of frames prove a segment durable. Remembers only some offsets.
struct ClaimTracker {
    /// All records up to this position are durable.
    claim: u64,
    /// Position and offset of some frames, ascending. The first is at or before the first unproven record.
    marks: VecDeque<(u64, u64)>,
}

impl ClaimTracker {
    fn note(&mut self, position: u64, offset: u64, claim: u64) {
        self.claim = self.claim.max(claim);
        if self.marks.back().is_none_or(|&(_, last)| offset >= last + MARK_BYTES) {
            self.marks.push_back((position, offset));
        }
        while self.marks.get(1).is_some_and(|&(position, _)| position <= self.claim + 1) {
            self.marks.pop_front();
        }
    }

    /// Returns an offset before which everything is proven durable; 0 if not even the segment header is.
    fn unproven_offset(&self, first: u64) -> u64 {
        match self.marks.front() {
            Some(&(_, offset)) if self.claim >= first => offset,
            _ => 0,
        }
    }
}
