//! The open log: what it keeps, appending to memory, and the calls its users make.
//!
//! Three locks, taken in this order: `writer` (who writes), `syncing` (who syncs), `tail` and `current` (short). Appending
//! takes `tail` alone, so nobody who appends waits for the disk. Records gather in frames that the writer seals: whoever
//! appends pays for a copy, not for a checksum. How batches reach the disk is in `flush`.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::{Mutex, MutexGuard};

use super::frame::{self, Salt};
use super::manifest::Manifest;
use super::recover::FolderLock;
use super::scan::Scan;
use super::segment::{self, Segment, SegmentHeader};
use super::stats::{Counters, LogStats};
use super::{LogError, LogOptions, Policy, StoreId};
use crate::codec::put_number;
use crate::disk::{Disk, File};

/// The free space is asked for again after so much was written.
const MEASURE_EVERY_BYTES: u64 = 1 << 20;
const SYNC_EVERY_MS: u64 = 1000;
/// The largest payload: room for any value there may be, and a length that cannot overflow.
const PAYLOAD_BYTES_MAX: usize = 3 << 30;
/// A frame that has reached this size is followed by another: damage takes a frame, so it should not be great.
const FRAME_BYTES: usize = 4 << 10;

/// An open log. Shared by reference; every method takes `&self`.
pub struct Log {
    pub(super) disk: Arc<dyn Disk>,
    pub(super) segment_bytes: u64,
    pub(crate) reserve_bytes: u64,
    pub(super) policy: AtomicU8,
    pub(super) writer: Mutex<Writer>,
    pub(super) syncing: Mutex<()>,
    pub(super) tail: Mutex<TailState>,
    /// The file being written and the last position in it.
    pub(super) current: Mutex<(Arc<dyn File>, u64)>,
    /// Held while it is replaced, which takes several waits for the disk.
    pub(super) manifest: Mutex<Manifest>,
    /// Its first position, for those who only look.
    first: AtomicU64,
    /// The last position given out; changed under `tail`. `durable <= written <= appended`.
    pub(super) appended: AtomicU64,
    pub(super) written: AtomicU64,
    pub(super) durable: AtomicU64,
    /// Why the log ended.
    pub(super) ended: OnceLock<LogError>,
    /// Up to so many appended bytes there was room at the last measurement, the reserve left free.
    pub(super) room_until_bytes: AtomicU64,
    pub(super) unmeasured_bytes: AtomicU64,
    /// Whether there was no space for the batch that is to be written next.
    pub(super) batch_waits: AtomicBool,
    pub(super) last_sync_ms: AtomicU64,
    pub(super) counters: Counters,
    pub(super) lock: Mutex<Option<FolderLock>>,
}

/// What a log begins with.
pub(crate) struct Start {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) lock: FolderLock,
    pub(crate) manifest: Manifest,
    pub(crate) scan: Scan,
    /// The last segment.
    pub(crate) file: Arc<dyn File>,
    pub(crate) options: LogOptions,
}

/// What is appended but not handed to the writer.
pub(super) struct TailState {
    pub(super) batch: Batch,
    pub(super) last: u64,
    /// The bytes of the segment being appended to, written or not.
    pub(super) segment_filled: u64,
    pub(super) store_id: StoreId,
    pub(super) random: Box<dyn FnMut() -> u64 + Send>,
}

/// Records in frames that are not sealed yet, and the places where a new segment begins.
#[derive(Default)]
pub(super) struct Batch {
    pub(super) bytes: Vec<u8>,
    /// In order, without gaps.
    pub(super) frames: Vec<Frame>,
    /// The frame being filled takes another record until the batch has so many bytes.
    pub(super) frame_until: usize,
    pub(super) turns: Vec<Turn>,
    pub(super) last: u64,
}

/// A frame begins here, with this position.
#[derive(Clone, Copy)]
pub(super) struct Frame {
    pub(super) at: usize,
    pub(super) first: u64,
}

/// From `at` on, the bytes of a batch belong to a new segment.
pub(super) struct Turn {
    pub(super) at: usize,
    /// Its `previous` is known when the frames before it are sealed.
    pub(super) header: SegmentHeader,
}

/// The one who writes.
pub(super) struct Writer {
    pub(super) file: Arc<dyn File>,
    pub(super) file_bytes: u64,
    /// From `file_bytes` up to here the file has zeros, if this is greater.
    pub(super) zeros_until: u64,
    pub(super) segments: Vec<Segment>,
    /// The batch being written, and how much of it is.
    pub(super) batch: Batch,
    pub(super) done: usize,
    /// Of the last sealed frame.
    pub(super) last_checksum: u32,
    /// Of the segment it belongs to.
    pub(super) salt: Salt,
}

impl Log {
    pub(crate) fn start(start: Start) -> Log {
        let Start { disk, lock, manifest, scan, file, options } = start;
        let last_segment = scan.segments.last().expect("a log has a segment");
        let tail = TailState {
            batch: Batch::default(),
            last: scan.last,
            segment_filled: last_segment.bytes,
            store_id: manifest.store_id,
            random: options.random,
        };
        let counters = Counters::default();
        counters.segments.store(scan.segments.len() as u64, Ordering::Relaxed);
        counters.bytes.store(scan.segments.iter().map(|segment| segment.bytes).sum(), Ordering::Relaxed);
        let file_bytes = last_segment.bytes;
        let writer = Writer {
            file: Arc::clone(&file),
            file_bytes,
            zeros_until: file.bytes().unwrap_or(file_bytes),
            salt: Salt::new(last_segment.header.salt),
            segments: scan.segments,
            batch: Batch::default(),
            done: 0,
            last_checksum: scan.last_checksum,
        };
        Log {
            disk,
            segment_bytes: options.segment_bytes,
            reserve_bytes: options.reserve_bytes,
            policy: AtomicU8::new(options.policy as u8),
            writer: Mutex::new(writer),
            syncing: Mutex::new(()),
            tail: Mutex::new(tail),
            current: Mutex::new((file, scan.last)),
            first: AtomicU64::new(manifest.first),
            manifest: Mutex::new(manifest),
            appended: AtomicU64::new(scan.last),
            written: AtomicU64::new(scan.last),
            durable: AtomicU64::new(scan.last),
            ended: OnceLock::new(),
            room_until_bytes: AtomicU64::new(0),
            unmeasured_bytes: AtomicU64::new(0),
            batch_waits: AtomicBool::new(false),
            last_sync_ms: AtomicU64::new(0),
            counters,
            lock: Mutex::new(Some(lock)),
        }
    }

    /// Gives the payload the next position. It is in memory only until it is written and synced.
    pub fn append(&self, payload: &[u8]) -> Result<u64, LogError> {
        if payload.len() > PAYLOAD_BYTES_MAX {
            // What it would have recorded has been applied: nothing may be acknowledged any more.
            let _ = self.ended.set(LogError::TooLarge(payload.len()));
            return Err(LogError::TooLarge(payload.len()));
        }
        self.check_alive()?;
        let mut tail = self.tail.lock();
        if tail.segment_filled >= self.segment_bytes {
            tail.turn();
        }
        let position = tail.last + 1;
        let taken_bytes = tail.batch.push(position, payload) as u64;
        tail.last = position;
        tail.segment_filled += taken_bytes;
        self.appended.store(position, Ordering::Release);
        // Under the lock, so nothing is lost between the two.
        let appended_bytes = self.counters.appended_bytes.load(Ordering::Relaxed) + taken_bytes;
        self.counters.appended_bytes.store(appended_bytes, Ordering::Relaxed);
        Ok(position)
    }

    /// Lets a new segment begin, so that everything before can be released. Without effect on an empty one.
    pub fn rotate(&self) -> Result<(), LogError> {
        // What is synced now, others write meanwhile; what is left when the segment turns holds them up.
        self.commit()?;
        self.tail.lock().turn();
        self.write().map(|_| ())
    }

    /// Writes and syncs everything appended so far, and gives the durable position. Callers at the same time share syncs.
    pub fn commit(&self) -> Result<u64, LogError> {
        let target = self.appended();
        if self.durable() < target {
            self.write()?;
            self.sync_written(target)?;
        }
        self.check_alive()?;
        Ok(self.durable())
    }

    /// Hands everything appended so far to the file, without a sync. Gives the written position.
    pub fn write(&self) -> Result<u64, LogError> {
        self.write_as(self.writer.lock())
    }

    /// The same, unless somebody else is writing, who may be waiting for the disk: `None`.
    pub fn try_write(&self) -> Option<Result<u64, LogError>> {
        self.writer.try_lock().map(|writer| self.write_as(writer))
    }

    fn write_as(&self, mut writer: MutexGuard<'_, Writer>) -> Result<u64, LogError> {
        self.check_alive()?;
        // What an earlier call could not write for lack of space goes first.
        self.write_batch(&mut writer)?;
        self.take_batch(&mut writer);
        self.seal_batch(&mut writer);
        self.write_batch(&mut writer)?;
        drop(writer);
        if self.unmeasured_bytes.load(Ordering::Relaxed) >= MEASURE_EVERY_BYTES {
            self.measure_room();
        }
        Ok(self.written())
    }

    /// Does what the policy asks for at this time: commit, or only write.
    pub fn flush(&self, now_ms: u64) -> Result<(), LogError> {
        let due = || now_ms.saturating_sub(self.last_sync_ms.load(Ordering::Relaxed)) >= SYNC_EVERY_MS;
        let sync = match self.policy() {
            Policy::Always => true,
            Policy::EverySecond => due(),
            Policy::Never => false,
        };
        if sync {
            self.commit()?;
            self.last_sync_ms.store(now_ms, Ordering::Relaxed);
        } else {
            self.write()?;
        }
        Ok(())
    }

    /// When records are synced.
    pub fn policy(&self) -> Policy {
        match self.policy.load(Ordering::Relaxed) {
            0 => Policy::Always,
            1 => Policy::EverySecond,
            _ => Policy::Never,
        }
    }

    /// Changes when records are synced.
    pub fn set_policy(&self, policy: Policy) {
        self.policy.store(policy as u8, Ordering::Relaxed);
    }

    /// The last position given out.
    pub fn appended(&self) -> u64 {
        self.appended.load(Ordering::Acquire)
    }

    /// The last position handed to the file.
    pub fn written(&self) -> u64 {
        self.written.load(Ordering::Acquire)
    }

    /// The last position that survives a power cut.
    pub fn durable(&self) -> u64 {
        self.durable.load(Ordering::Acquire)
    }

    /// Why nothing goes any more, if so.
    pub fn error(&self) -> Option<&LogError> {
        self.ended.get()
    }

    /// Refuses when the disk is nearly full, or will be with so many bytes more. To be asked before a change is applied.
    #[inline]
    pub fn check_space(&self, bytes: u64) -> Result<(), LogError> {
        let appended_bytes = self.counters.appended_bytes.load(Ordering::Relaxed);
        if appended_bytes.saturating_add(bytes) < self.room_until_bytes.load(Ordering::Relaxed)
            && bytes < MEASURE_EVERY_BYTES
        {
            return Ok(());
        }
        self.check_space_anew(bytes)
    }

    #[cold]
    fn check_space_anew(&self, bytes: u64) -> Result<(), LogError> {
        let (room, reserve) = (self.measure_room(), self.reserve_bytes);
        if self.batch_waits.load(Ordering::Relaxed) {
            return Err(LogError::Full(format!(
                "there was no space for what is to be written next, though {room} bytes are said to be free"
            )));
        }
        if room >= reserve.saturating_add(bytes) {
            return Ok(());
        }
        Err(LogError::Full(match bytes {
            0 => format!("{room} bytes are free, {reserve} are kept in reserve"),
            _ => format!("{room} bytes are free, {reserve} are kept in reserve, and this takes {bytes}"),
        }))
    }

    /// Brings a snapshot into force (or none), from which on only records from `first` on are needed, and removes the segments
    /// wholly before it. Everything appended so far is made durable first, so that the snapshot is never ahead of the log.
    /// Gives the removed files' names; one that cannot be removed stays until the next time.
    pub fn release_before(&self, first: u64, snapshot: Option<u64>) -> Result<Vec<String>, LogError> {
        let durable = self.commit()?;
        assert!(first <= durable + 1, "records not yet durable cannot be done without");
        let mut manifest = self.manifest.lock();
        let next = Manifest::new(manifest.store_id, snapshot, first.max(manifest.first), durable);
        self.replace_manifest(&next)?;
        *manifest = next;
        let first = manifest.first;
        self.first.store(first, Ordering::Relaxed);
        drop(manifest);
        Ok(self.remove_covered(first))
    }

    /// Makes everything durable, notes in the manifest how far the log reaches, and gives the folder back.
    pub fn close(&self) -> Result<(), LogError> {
        let durable = self.commit()?;
        self.writer.lock().give_room_back();
        let mut manifest = self.manifest.lock();
        manifest.durable = durable;
        self.replace_manifest(&manifest)?;
        let _ = self.ended.set(LogError::Closed);
        self.lock.lock().take();
        Ok(())
    }

    /// What is in force.
    pub fn manifest(&self) -> Manifest {
        self.manifest.lock().clone()
    }

    /// Sizes and counts.
    pub fn stats(&self) -> LogStats {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        LogStats {
            durable: self.durable(),
            written: self.written(),
            appended: self.appended(),
            first: count(&self.first),
            segments: count(&self.counters.segments),
            bytes: count(&self.counters.bytes),
            pending_bytes: self.pending_bytes(),
            writes: count(&self.counters.writes),
            syncs: count(&self.counters.syncs),
            sync_ns: count(&self.counters.sync_ns),
            last_sync_ns: count(&self.counters.last_sync_ns),
            full: count(&self.counters.full),
        }
    }
}

impl TailState {
    /// Lets a new segment begin with the next record, if this one has any.
    fn turn(&mut self) {
        if self.segment_filled <= segment::HEADER_BYTES as u64 {
            return;
        }
        let header = SegmentHeader {
            store_id: self.store_id,
            first: self.last + 1,
            salt: (self.random)(),
            previous: 0,
        };
        self.batch.turns.push(Turn { at: self.batch.bytes.len(), header });
        self.batch.frame_until = 0;
        self.segment_filled = segment::HEADER_BYTES as u64;
    }
}

impl Batch {
    /// Adds a record to the frame being filled or to a new one. Gives the bytes that took.
    fn push(&mut self, position: u64, payload: &[u8]) -> usize {
        let before = self.bytes.len();
        if before >= self.frame_until {
            self.frames.push(Frame { at: before, first: position });
            self.frame_until = before + FRAME_BYTES;
            self.bytes.extend_from_slice(&[0; frame::HEADER_BYTES]);
        }
        put_number(&mut self.bytes, payload.len() as u64);
        self.bytes.extend_from_slice(payload);
        self.bytes.len() - before
    }
}
