//! The open log: its state, appending to memory, and its public methods. `flush` writes to the disk.
//!
//! The locks are taken in this order: `readers`, `writer` (while writing), `syncing` (while syncing), then `tail` or
//! `current` (briefly). Appending takes only `tail`, so a thread that appends never waits for the disk. The writer
//! computes the checksums of frames later; appending only copies bytes.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::{Mutex, MutexGuard};

use super::frame::{self, Salt};
use super::manifest::Manifest;
use super::reader::{Readers, RecentRecords};
use super::recover::FolderLock;
use super::scan::Scan;
use super::segment::{self, Segment, SegmentHeader};
use super::stats::{Counters, LogStats};
use super::{FolderLoss, LogError, LogOptions, Policy, StoreId};
use crate::codec::put_number;
use crate::disk::{Disk, File};

/// While less than this many reserves are free, every change measures the free space first: other programs use the disk
/// too. Otherwise the syncing thread measures it ten times a second.
pub(super) const MEASURE_ALWAYS_BELOW_RESERVES: u64 = 128;
/// Bytes written after which the free space is measured again.
const MEASURE_EVERY_BYTES: u64 = 1 << 20;
const SYNC_EVERY_MS: u64 = 1000;
/// Maximum size of a payload. Any value fits, and the length field of a frame cannot overflow.
const PAYLOAD_BYTES_MAX: usize = 3 << 30;
/// Size at which a frame is full and the next one begins. Kept small, because damage loses a whole frame.
const FRAME_BYTES: usize = 4 << 10;

/// An open log. All methods take `&self`, so that threads can share it.
pub struct Log {
    pub(super) disk: Arc<dyn Disk>,
    pub(super) segment_bytes: u64,
    pub(crate) change_bytes_max: u64,
    pub(crate) reserve_bytes: u64,
    pub(super) policy: AtomicU8,
    pub(super) writer: Mutex<Writer>,
    pub(super) syncing: Mutex<()>,
    pub(super) tail: Mutex<TailState>,
    /// The segment being written, and the last position written to it.
    pub(super) current: Mutex<(Arc<dyn File>, u64)>,
    pub(super) readers: Mutex<Readers>,
    /// Locked while the manifest is replaced, which waits for the disk several times.
    pub(super) manifest: Mutex<Manifest>,
    /// The manifest's first position, readable without its lock.
    pub(super) first: AtomicU64,
    /// Last position assigned; changed under `tail`. `durable <= written <= appended`.
    pub(super) appended: AtomicU64,
    pub(super) written: AtomicU64,
    pub(super) durable: AtomicU64,
    /// Why the log failed or was closed.
    pub(super) ended: OnceLock<LogError>,
    /// While fewer bytes than this have been appended, a change needs no measurement of the free space. 0 if every
    /// change needs one, because little is free.
    pub(super) space_until_bytes: AtomicU64,
    /// While fewer bytes than this have been appended, the last measured free space suffices without the reserve.
    pub(super) spare_until_bytes: AtomicU64,
    /// Bytes written since the free space was last measured.
    pub(super) unmeasured_bytes: AtomicU64,
    /// What was missing in the folder when it was last checked, and whether anything was.
    pub(super) folder_loss: Mutex<Option<FolderLoss>>,
    pub(super) is_folder_lost: AtomicBool,
    /// True while a write buffer waits because the disk had no space for it.
    pub(super) buffer_awaits_space: AtomicBool,
    pub(super) last_sync_ms: AtomicU64,
    pub(super) counters: Counters,
    pub(super) lock: Mutex<Option<FolderLock>>,
}

/// Everything that a log starts from.
pub(crate) struct Start {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) lock: FolderLock,
    pub(crate) manifest: Manifest,
    pub(crate) scan: Scan,
    /// The last segment.
    pub(crate) file: Arc<dyn File>,
    pub(crate) options: LogOptions,
}

/// Records that were appended but not passed to the writer.
pub(super) struct TailState {
    pub(super) buffer: WriteBuffer,
    pub(super) last: u64,
    /// `None` while the log has no readers.
    pub(super) recent: Option<RecentRecords>,
    /// Bytes of the segment that is being appended to, written or not.
    pub(super) segment_filled: u64,
    pub(super) store_id: StoreId,
    pub(super) random: Box<dyn FnMut() -> u64 + Send>,
}

/// Records in frames without headers, and the places where a new segment begins.
#[derive(Default)]
pub(super) struct WriteBuffer {
    pub(super) bytes: Vec<u8>,
    /// In order, without gaps.
    pub(super) frames: Vec<BufferedFrame>,
    /// The last frame accepts records until the buffer has this number of bytes.
    pub(super) frame_until: usize,
    pub(super) segment_starts: Vec<SegmentStart>,
    pub(super) last: u64,
}

/// The start of a frame in a buffer, and the position of its first record.
#[derive(Clone, Copy)]
pub(super) struct BufferedFrame {
    pub(super) at: usize,
    pub(super) first: u64,
}

/// The bytes of a buffer from `at` on belong to a new segment.
pub(super) struct SegmentStart {
    pub(super) at: usize,
    /// Its `previous` is filled in when the frames before it are sealed.
    pub(super) header: SegmentHeader,
}

/// The state of the thread that writes.
pub(super) struct Writer {
    pub(super) file: Arc<dyn File>,
    pub(super) file_bytes: u64,
    /// End of the preallocated zeros after `file_bytes`; not larger than `file_bytes` if there are none.
    pub(super) preallocated_until: u64,
    pub(super) segments: Vec<Segment>,
    /// The buffer being written, and how many of its bytes are written.
    pub(super) buffer: WriteBuffer,
    pub(super) done: usize,
    /// Checksum of the last sealed frame.
    pub(super) last_checksum: u32,
    /// Salt of the segment that contains the last sealed frame.
    pub(super) salt: Salt,
}

impl Log {
    pub(crate) fn start(start: Start) -> Log {
        let Start { disk, lock, manifest, scan, file, options } = start;
        let last_segment = scan.segments.last().expect("a log has a segment");
        let tail = TailState {
            buffer: WriteBuffer::default(),
            last: scan.last,
            recent: None,
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
            preallocated_until: file.bytes().unwrap_or(file_bytes),
            salt: Salt::new(last_segment.header.salt),
            segments: scan.segments,
            buffer: WriteBuffer::default(),
            done: 0,
            last_checksum: scan.last_checksum,
        };
        Log {
            disk,
            segment_bytes: options.segment_bytes,
            change_bytes_max: options.change_bytes_max,
            reserve_bytes: options.reserve_bytes,
            policy: AtomicU8::new(options.policy as u8),
            writer: Mutex::new(writer),
            syncing: Mutex::new(()),
            tail: Mutex::new(tail),
            current: Mutex::new((file, scan.last)),
            readers: Mutex::default(),
            first: AtomicU64::new(manifest.first),
            manifest: Mutex::new(manifest),
            appended: AtomicU64::new(scan.last),
            written: AtomicU64::new(scan.last),
            durable: AtomicU64::new(scan.last),
            ended: OnceLock::new(),
            space_until_bytes: AtomicU64::new(0),
            spare_until_bytes: AtomicU64::new(0),
            unmeasured_bytes: AtomicU64::new(0),
            folder_loss: Mutex::default(),
            is_folder_lost: AtomicBool::new(false),
            buffer_awaits_space: AtomicBool::new(false),
            last_sync_ms: AtomicU64::new(0),
            counters,
            lock: Mutex::new(Some(lock)),
        }
    }

    /// Assigns the next position to the payload. The record is only in memory until it is written and synced.
    pub fn append(&self, payload: &[u8]) -> Result<u64, LogError> {
        if payload.len() > PAYLOAD_BYTES_MAX {
            // The change is already applied but cannot be logged, so nothing may be acknowledged from now on.
            let _ = self.ended.set(LogError::TooLarge(payload.len()));
            return Err(LogError::TooLarge(payload.len()));
        }
        self.check_alive()?;
        let mut tail = self.tail.lock();
        if tail.segment_filled >= self.segment_bytes {
            tail.plan_segment();
        }
        let position = tail.last + 1;
        let taken_bytes = tail.buffer.push(position, payload) as u64;
        tail.last = position;
        if let Some(recent) = &mut tail.recent {
            recent.push(payload, self.written());
        }
        tail.segment_filled += taken_bytes;
        self.appended.store(position, Ordering::Release);
        // No atomic addition is needed, because `tail` is locked.
        let appended_bytes = self.counters.appended_bytes.load(Ordering::Relaxed) + taken_bytes;
        self.counters.appended_bytes.store(appended_bytes, Ordering::Relaxed);
        Ok(position)
    }

    /// Begins a new segment, so that all earlier ones can be removed later. Does nothing if the last one is empty.
    pub fn rotate(&self) -> Result<(), LogError> {
        // This sync does not block other writers. The one at the end of the segment does, and now has little to do.
        self.commit()?;
        self.tail.lock().plan_segment();
        self.write().map(|_| ())
    }

    /// Writes and syncs everything appended so far, and returns the durable position. Concurrent callers share syncs.
    pub fn commit(&self) -> Result<u64, LogError> {
        let target = self.appended();
        if self.durable() < target {
            self.write()?;
            self.sync_current(Some(target))?;
        }
        self.check_alive()?;
        Ok(self.durable())
    }

    /// Writes everything appended so far to the file without a sync. Returns the written position.
    pub fn write(&self) -> Result<u64, LogError> {
        self.write_as(self.writer.lock())
    }

    /// Like [`Log::write`], but returns `None` if another thread is writing, which may take long.
    pub fn try_write(&self) -> Option<Result<u64, LogError>> {
        self.writer.try_lock().map(|writer| self.write_as(writer))
    }

    fn write_as(&self, mut writer: MutexGuard<'_, Writer>) -> Result<u64, LogError> {
        self.check_alive()?;
        // An earlier call may have failed to write its last bytes for lack of space. They are written first.
        self.write_buffer(&mut writer)?;
        self.take_buffer(&mut writer);
        self.seal_frames(&mut writer);
        self.write_buffer(&mut writer)?;
        drop(writer);
        if self.unmeasured_bytes.load(Ordering::Relaxed) >= MEASURE_EVERY_BYTES {
            self.measure_free_space();
        }
        Ok(self.written())
    }

    /// Does what the sync policy requires at this time: commits, or only writes.
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

    /// Returns the sync policy.
    pub fn policy(&self) -> Policy {
        match self.policy.load(Ordering::Relaxed) {
            0 => Policy::Always,
            1 => Policy::EverySecond,
            _ => Policy::Never,
        }
    }

    /// Changes the sync policy.
    pub fn set_policy(&self, policy: Policy) {
        self.policy.store(policy as u8, Ordering::Relaxed);
    }

    /// Returns the last position assigned.
    pub fn appended(&self) -> u64 {
        self.appended.load(Ordering::Acquire)
    }

    /// Returns the last position written to the file.
    pub fn written(&self) -> u64 {
        self.written.load(Ordering::Acquire)
    }

    /// Returns the last position that survives a power cut.
    pub fn durable(&self) -> u64 {
        self.durable.load(Ordering::Acquire)
    }

    /// Returns why the log failed or was closed, if so.
    pub fn error(&self) -> Option<&LogError> {
        self.ended.get()
    }

    /// Returns an error if the disk is nearly full, or would be after a write of this many bytes, or if they are too
    /// many for one record.
    ///
    /// Call it before applying a change.
    #[inline]
    pub fn check_space(&self, bytes: u64) -> Result<(), LogError> {
        let appended_bytes = self.counters.appended_bytes.load(Ordering::Relaxed);
        if appended_bytes.saturating_add(bytes) < self.space_until_bytes.load(Ordering::Relaxed)
            && bytes < MEASURE_EVERY_BYTES
        {
            return Ok(());
        }
        self.measure_and_check_space(bytes)
    }

    #[cold]
    fn measure_and_check_space(&self, bytes: u64) -> Result<(), LogError> {
        self.check_size(bytes)?;
        self.check_folder()?;
        let (free_bytes, reserve) = (self.measure_free_space(), self.reserve_bytes);
        if self.buffer_awaits_space.load(Ordering::Relaxed) {
            return Err(LogError::Full(format!(
                "the log could not be written, although the system reports {free_bytes} bytes of free space"
            )));
        }
        if free_bytes >= reserve.saturating_add(bytes) {
            return Ok(());
        }
        Err(LogError::Full(match bytes {
            0 => format!("{free_bytes} bytes are free, {reserve} are kept in reserve"),
            _ => format!(
                "{free_bytes} bytes are free, {reserve} are kept in reserve, and this write needs {bytes}"
            ),
        }))
    }

    /// Returns an error if a change of this many bytes is too large for one record.
    #[inline]
    pub(crate) fn check_size(&self, bytes: u64) -> Result<(), LogError> {
        let max = self.change_bytes_max;
        if bytes > max { Err(LogError::ChangeTooLarge { bytes, max }) } else { Ok(()) }
    }

    /// Makes a snapshot (or none) current. Recovery needs only records from `first` on then. Earlier segments are
    /// removed, except those that a [`LogReader`](super::LogReader) still needs: they are removed by a later call.
    ///
    /// Everything appended so far is made durable first, so that the snapshot is never ahead of the log. Returns the
    /// names of the removed files. A file that cannot be removed stays until the next call.
    pub fn release_before(&self, first: u64, snapshot: Option<u64>) -> Result<Vec<String>, LogError> {
        let durable = self.commit()?;
        assert!(first <= durable + 1, "records that are not durable yet are still needed");
        let mut manifest = self.manifest.lock();
        let next = Manifest::new(manifest.store_id, snapshot, first.max(manifest.first), durable);
        self.replace_manifest(&next)?;
        *manifest = next;
        let first = manifest.first;
        self.first.store(first, Ordering::Relaxed);
        drop(manifest);
        Ok(self.remove_covered(first))
    }

    /// Makes everything durable, stores the durable position in the manifest, marks the store as closed and unlocks the
    /// folder.
    pub fn close(&self) -> Result<(), LogError> {
        let durable = self.commit()?;
        self.writer.lock().cut_preallocated();
        let mut manifest = self.manifest.lock();
        manifest.durable = durable;
        self.replace_manifest(&manifest)?;
        let _ = self.ended.set(LogError::Closed);
        if self.appended() == durable {
            // Nothing depends on the mark, except how much salvage can prove.
            let _ = manifest.mark_closed(&*self.disk);
        }
        self.lock.lock().take();
        Ok(())
    }

    /// Returns the current manifest.
    pub fn manifest(&self) -> Manifest {
        self.manifest.lock().clone()
    }

    /// Returns sizes and counters.
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
            sync_times: self.counters.sync_times.each_ref().map(count),
            full: count(&self.counters.full),
        }
    }
}

impl TailState {
    /// Begins a new segment with the next record, unless the last segment has no records.
    fn plan_segment(&mut self) {
        if self.segment_filled <= segment::HEADER_BYTES as u64 {
            return;
        }
        let header = SegmentHeader {
            store_id: self.store_id,
            first: self.last + 1,
            salt: (self.random)(),
            previous: 0,
        };
        self.buffer.segment_starts.push(SegmentStart { at: self.buffer.bytes.len(), header });
        self.buffer.frame_until = 0;
        self.segment_filled = segment::HEADER_BYTES as u64;
    }
}

impl WriteBuffer {
    /// Adds a record to the last frame, or to a new one. Returns the number of bytes added.
    fn push(&mut self, position: u64, payload: &[u8]) -> usize {
        let before = self.bytes.len();
        if before >= self.frame_until {
            self.frames.push(BufferedFrame { at: before, first: position });
            self.frame_until = before + FRAME_BYTES;
            self.bytes.extend_from_slice(&[0; frame::HEADER_BYTES]);
        }
        put_number(&mut self.bytes, payload.len() as u64);
        self.bytes.extend_from_slice(payload);
        self.bytes.len() - before
    }
}
