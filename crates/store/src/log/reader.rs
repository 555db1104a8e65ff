//! Reads the records of an open log in order, from any position that the folder still has to the newest one.
//!
//! ```text
//! segments, read like recovery reads them | recent records in memory
//! ----------------------------------------+-------------------------
//!               all are written           | written or not
//! ```
//!
//! The log keeps recent records in memory only while it has readers. A reader never waits for the disk of a thread that
//! writes or syncs, except when it begins.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use super::segment::{self, SegmentHeader, SegmentReader, Step};
use super::{Damage, DamageKind, Log, LogError, OpenError};
use crate::disk::{Access, DiskError, Listed};

/// While the log has readers, it keeps records of this many bytes in memory, and all that are not written yet.
const RECENT_BYTES_MAX: usize = if cfg!(test) { 400 } else { 1 << 20 };

/// The next position of each reader.
#[derive(Default)]
pub(super) struct Readers(Vec<Weak<AtomicU64>>);

impl Readers {
    /// Returns the oldest position that a reader needs.
    pub(super) fn oldest(&mut self) -> Option<u64> {
        self.0.retain(|reader| reader.strong_count() > 0);
        self.0.iter().filter_map(Weak::upgrade).map(|next| next.load(Ordering::Relaxed)).min()
    }
}

/// The newest records of a log.
pub(super) struct RecentRecords {
    /// Position of the first one.
    first: u64,
    payloads: VecDeque<Arc<[u8]>>,
    bytes: usize,
}

impl RecentRecords {
    fn after(last: u64) -> RecentRecords {
        RecentRecords { first: last + 1, payloads: VecDeque::new(), bytes: 0 }
    }

    /// Adds the next record. Removes the oldest ones that are written if there are too many.
    #[inline(never)]
    pub(super) fn push(&mut self, payload: &[u8], written: u64) {
        self.payloads.push_back(payload.into());
        self.bytes += payload.len();
        while self.bytes > RECENT_BYTES_MAX && self.first <= written {
            let Some(oldest) = self.payloads.pop_front() else { break };
            self.bytes -= oldest.len();
            self.first += 1;
        }
    }
}

/// Where the record at a position is.
enum RecordPlace {
    Memory(Arc<[u8]>),
    Segments,
    NotAppended,
}

/// A position and the payload of its record.
pub type PositionedRecord = (u64, Arc<[u8]>);

/// Reads the records of an open log, one after the other. Segments that it still needs are not removed.
pub struct LogReader<'l> {
    log: &'l Log,
    next: Arc<AtomicU64>,
    segment: Option<CurrentSegment>,
}

/// The segment that is being read.
struct CurrentSegment {
    name: String,
    records: SegmentReader,
    /// The reader can trust what it has read ahead up to this position. Later records were not written yet.
    written: u64,
}

impl Log {
    /// Returns a reader whose first record is the one at `position`, at least 1. The record need not exist yet.
    ///
    /// Writes the buffered records first. Fails if the record was removed, because a snapshot covers it.
    pub fn read_from(&self, position: u64) -> Result<LogReader<'_>, ReadError> {
        let next = Arc::new(AtomicU64::new(position));
        let mut readers = self.readers.lock();
        readers.0.push(Arc::downgrade(&next));
        let mut tail = self.tail.lock();
        let last = tail.last;
        tail.recent.get_or_insert_with(|| RecentRecords::after(last));
        drop(tail);
        drop(readers);
        let mut reader = LogReader { log: self, next, segment: None };
        // Records from here on are kept in memory, so earlier ones must be in the file.
        self.write().map_err(ReadError::Log)?;
        if position <= last {
            reader.segment = Some(reader.segment_with(position)?);
        }
        Ok(reader)
    }
}

impl LogReader<'_> {
    /// Returns the position of the next record.
    pub fn position(&self) -> u64 {
        self.next.load(Ordering::Relaxed)
    }

    /// Returns the next record; `None` if it was not appended yet.
    pub fn read(&mut self) -> Result<Option<PositionedRecord>, ReadError> {
        let position = self.position();
        let payload = match self.place_of(position) {
            RecordPlace::NotAppended => return Ok(None),
            RecordPlace::Memory(payload) => {
                self.segment = None;
                payload
            }
            RecordPlace::Segments => self.read_segments(position)?,
        };
        self.next.store(position + 1, Ordering::Relaxed);
        Ok(Some((position, payload)))
    }

    fn place_of(&self, position: u64) -> RecordPlace {
        let tail = self.log.tail.lock();
        if position > tail.last {
            return RecordPlace::NotAppended;
        }
        let recent = tail.recent.as_ref().expect("the log has a reader");
        let index = position.checked_sub(recent.first).map(|index| index as usize);
        index.map_or(RecordPlace::Segments, |index| RecordPlace::Memory(Arc::clone(&recent.payloads[index])))
    }

    fn read_segments(&mut self, position: u64) -> Result<Arc<[u8]>, ReadError> {
        let mut segment = match self.segment.take() {
            Some(segment) => segment,
            None => self.segment_with(position)?,
        };
        loop {
            if segment.written < segment.records.expected {
                segment.written = self.log.written();
                segment.records.refresh()?;
            }
            let damage = match segment.records.step()? {
                Step::Record { position: found, payload, .. } if found == position => {
                    let payload = Arc::from(payload);
                    self.segment = Some(segment);
                    return Ok(payload);
                }
                Step::Record { .. } => continue,
                Step::End => {
                    let ended = segment.records;
                    segment = self.segment_with(ended.expected)?;
                    let records = &segment.records;
                    if (records.expected, records.previous) == (ended.expected, ended.previous) {
                        continue;
                    }
                    DamageKind::SegmentNotContinuing
                }
                Step::Bad(what) => what,
            };
            let (file, offset) = (self.log.disk.path_of(&segment.name), segment.records.offset);
            return Err(OpenError::from(Damage { file, offset, position, what: damage }).into());
        }
    }

    /// Opens the segment that has the record at `position`, which is written.
    fn segment_with(&self, position: u64) -> Result<CurrentSegment, ReadError> {
        let written = self.log.written();
        let listed = self.log.disk.list()?;
        let mut segments: Vec<(u64, &Listed)> = segment::by_name(&listed).collect();
        let oldest = segments.first().map_or(0, |(first, _)| *first);
        segments.retain(|(first, _)| *first <= position);
        let (_, Listed { name, .. }) = segments.pop().ok_or(ReadError::Removed { oldest })?;
        let file = self.log.disk.open(name, Access::Read)?;
        let damage = |what| Damage { file: self.log.disk.path_of(name), offset: 0, position, what };
        let header = SegmentHeader::read(&*file)?.map_err(|what| OpenError::from(damage(what)))?;
        let file_bytes = file.bytes()?;
        let records = SegmentReader::new(file, file_bytes, &header);
        Ok(CurrentSegment { name: name.clone(), records, written })
    }
}

impl Drop for LogReader<'_> {
    fn drop(&mut self) {
        let mut readers = self.log.readers.lock();
        readers.0.retain(|next| !std::ptr::eq(next.as_ptr(), Arc::as_ptr(&self.next)));
        if readers.0.is_empty() {
            self.log.tail.lock().recent = None;
        }
    }
}

/// Why a record of an open log could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReadError {
    /// The record was removed, because a snapshot covers it.
    Removed {
        /// The oldest position that can still be read.
        oldest: u64,
    },
    /// The buffered records could not be written.
    Log(LogError),
    /// A segment could not be read.
    Segment(OpenError),
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReadError::Removed { oldest } => write!(
                f,
                "the record was removed from the log; the oldest one is at position {oldest}, earlier ones are in the snapshot"
            ),
            ReadError::Log(error) => error.fmt(f),
            ReadError::Segment(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for ReadError {}

impl From<OpenError> for ReadError {
    fn from(error: OpenError) -> ReadError {
        ReadError::Segment(error)
    }
}

impl From<DiskError> for ReadError {
    fn from(error: DiskError) -> ReadError {
        ReadError::Segment(error.into())
    }
}
