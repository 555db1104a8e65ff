//! Writes the log to disk: buffered records, syncs, new segments, and the handling of failed writes and syncs.
//!
//! Every sync of a segment or of the folder holds the lock `syncing`. The kernel reports a failed sync to one caller
//! only. That caller must end the log before another thread sees its own sync succeed.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::frame::{self, FrameFields, Salt};
use super::manifest::{self, Manifest};
use super::segment::{self, Segment, SegmentHeader};
use super::stats::sync_class;
use super::writer::{MEASURE_ALWAYS_BELOW_RESERVES, WriteBuffer, Writer};
use super::{Log, LogError, Policy};
use crate::disk::{DiskError, File, write_full};

/// Capacity above which a write buffer is freed after use.
const KEEP_BUFFER_BYTES: usize = 4 << 20;
/// Number of bytes preallocated at a time.
///
/// The record before it waits meanwhile: 128 KiB take about 0.4 ms on a disk that syncs in 0.1 ms, and 1 MiB takes 2
/// ms.
pub(super) const PREALLOCATE_BYTES: u64 = if cfg!(test) { 400 } else { 128 << 10 };
/// Size of a page in the kernel's cache.
pub(super) const PAGE_BYTES: u64 = if cfg!(test) { 64 } else { 4096 };

/// Writes zeros page by page. If one write covered many pages, the kernel would cache them as one large folio and
/// search the whole folio for dirty blocks at every sync.
fn write_zeros(file: &dyn File, mut from: u64, until: u64) -> Result<(), DiskError> {
    const ZEROS: [u8; PAGE_BYTES as usize] = [0; PAGE_BYTES as usize];
    while from < until {
        let page_end = (from / PAGE_BYTES + 1) * PAGE_BYTES;
        let end = page_end.min(until);
        write_full(file, from, &ZEROS[..(end - from) as usize])?;
        from = end;
    }
    Ok(())
}

impl Writer {
    /// Cuts off the preallocated space after the last record. If this fails or is not durable, readers skip the zeros.
    pub(super) fn cut_preallocated(&mut self) {
        if self.preallocated_until > self.file_bytes {
            let _ = self.file.truncate(self.file_bytes);
            self.preallocated_until = self.file_bytes;
        }
    }
}

impl Log {
    #[inline]
    pub(crate) fn check_alive(&self) -> Result<(), LogError> {
        if self.ended.get().is_none() { Ok(()) } else { self.ended_with() }
    }

    #[cold]
    fn ended_with(&self) -> Result<(), LogError> {
        self.ended.get().cloned().map_or(Ok(()), Err)
    }

    /// Ends the log: every later operation fails with this error.
    fn fail(&self, error: DiskError) -> LogError {
        self.ended.get_or_init(|| LogError::Failed(error)).clone()
    }

    /// Keeps a write buffer that could not be written for lack of space or file descriptors.
    ///
    /// If space was lacking, the log refuses more writes until the buffer is written, even if the system reports free
    /// space. The reported number may not take a quota into account.
    fn retry_buffer_later(&self, writer: &Writer, error: &DiskError) -> LogError {
        // If only the creation of a segment failed, no records wait to be written. No later write would clear the flag.
        let has_records = writer.done < writer.buffer.bytes.len();
        self.buffer_awaits_space.store(has_records && error.is_full(), Ordering::Relaxed);
        self.retry_later(error)
    }

    /// Returns the error of an operation that changed nothing and can be retried.
    fn retry_later(&self, error: &DiskError) -> LogError {
        if error.is_exhausted() {
            return LogError::Exhausted(error.to_string());
        }
        self.counters.full.fetch_add(1, Ordering::Relaxed);
        self.space_until_bytes.store(0, Ordering::Relaxed);
        LogError::Full(error.to_string())
    }

    /// Takes the records that were appended, and leaves empty buffers with the capacity of the previous ones.
    pub(super) fn take_buffer(&self, writer: &mut Writer) {
        debug_assert_eq!(writer.done, writer.buffer.bytes.len());
        let WriteBuffer { mut bytes, mut frames, segment_starts, .. } = std::mem::take(&mut writer.buffer);
        if bytes.capacity() > KEEP_BUFFER_BYTES {
            (bytes, frames) = (Vec::new(), Vec::new());
        }
        bytes.clear();
        frames.clear();
        debug_assert!(segment_starts.is_empty());
        let fresh = WriteBuffer { bytes, frames, frame_until: 0, segment_starts, last: 0 };
        let mut tail = self.tail.lock();
        writer.buffer = std::mem::replace(&mut tail.buffer, fresh);
        writer.buffer.last = tail.last;
        writer.done = 0;
    }

    /// Fills in the headers of all buffered frames. Each frame continues the one before it, even across segments.
    pub(super) fn seal_frames(&self, writer: &mut Writer) {
        let Writer {
            buffer: WriteBuffer { bytes, frames, segment_starts, last, .. },
            last_checksum,
            salt,
            ..
        } = writer;
        let durable = self.durable();
        let mut segment_starts = segment_starts.iter_mut().peekable();
        for (index, begin) in frames.iter().enumerate() {
            if let Some(start) = segment_starts.next_if(|start| start.at <= begin.at) {
                start.header.previous = *last_checksum;
                *salt = Salt::new(start.header.salt);
            }
            let (end, next) = frames.get(index + 1).map_or((bytes.len(), *last + 1), |f| (f.at, f.first));
            let count = u32::try_from(next - begin.first).expect("a frame has fewer records than bytes");
            let durable = durable.min(begin.first - 1);
            let fields = FrameFields { position: begin.first, count, durable, previous: *last_checksum };
            *last_checksum = frame::seal(&mut bytes[begin.at..end], *salt, fields);
        }
        for start in segment_starts {
            start.header.previous = *last_checksum;
            *salt = Salt::new(start.header.salt);
        }
    }

    /// Writes the rest of the buffer, and begins new segments where the buffer requires them.
    pub(super) fn write_buffer(&self, writer: &mut Writer) -> Result<(), LogError> {
        if writer.done == writer.buffer.bytes.len() && writer.buffer.segment_starts.is_empty() {
            return Ok(());
        }
        while let Some(start) = writer.buffer.segment_starts.first() {
            let (at, header) = (start.at, start.header);
            self.write_up_to(writer, at)?;
            self.begin_segment(writer, header)?;
            writer.buffer.segment_starts.remove(0);
        }
        self.write_up_to(writer, writer.buffer.bytes.len())?;
        if writer.file_bytes > writer.preallocated_until && self.policy() == Policy::Always {
            self.preallocate(writer)?;
        }
        self.buffer_awaits_space.store(false, Ordering::Relaxed);
        self.counters.writes.fetch_add(1, Ordering::Relaxed);
        self.publish_written(writer.buffer.last);
        Ok(())
    }

    fn write_up_to(&self, writer: &mut Writer, end: usize) -> Result<(), LogError> {
        if writer.done == end {
            return Ok(());
        }
        let bytes = &writer.buffer.bytes[writer.done..end];
        if let Err(error) = write_full(&*writer.file, writer.file_bytes, bytes) {
            // If the disk is full and the file could be truncated to its previous length, nothing has changed.
            if error.is_full() && writer.file.truncate(writer.file_bytes).is_ok() {
                writer.preallocated_until = writer.file_bytes;
                return Err(self.retry_buffer_later(writer, &error));
            }
            return Err(self.fail(error));
        }
        let count = bytes.len() as u64;
        writer.file_bytes += count;
        writer.done = end;
        self.counters.written_bytes.fetch_add(count, Ordering::Relaxed);
        self.counters.bytes.fetch_add(count, Ordering::Relaxed);
        self.unmeasured_bytes.fetch_add(count, Ordering::Relaxed);
        Ok(())
    }

    /// Preallocates space: writes zeros where the next records will be.
    ///
    /// A sync takes about half as long if the records before it did not make the file longer, because the file system
    /// has no metadata to write. Large buffers gain little from this, so the log does not preallocate after them. Nor
    /// does it preallocate the last free space of the disk.
    fn preallocate(&self, writer: &mut Writer) -> Result<(), LogError> {
        let until = (writer.file_bytes + PREALLOCATE_BYTES).min(self.segment_bytes);
        let is_long = writer.buffer.bytes.len() as u64 > PREALLOCATE_BYTES / 4;
        let appended_bytes = self.counters.appended_bytes.load(Ordering::Relaxed);
        let is_scarce =
            appended_bytes + 2 * PREALLOCATE_BYTES > self.spare_until_bytes.load(Ordering::Relaxed);
        if is_long || is_scarce || until <= writer.file_bytes {
            return Ok(());
        }
        match write_zeros(&*writer.file, writer.file_bytes, until) {
            Ok(()) => writer.preallocated_until = until,
            Err(error) if error.is_full() => {
                writer.preallocated_until = until;
                writer.cut_preallocated();
                // No more preallocation until the free space is measured again.
                self.space_until_bytes.store(0, Ordering::Relaxed);
                self.spare_until_bytes.store(0, Ordering::Relaxed);
            }
            Err(error) => return Err(self.fail(error)),
        }
        Ok(())
    }

    fn publish_written(&self, position: u64) {
        let mut current = self.current.lock();
        current.1 = position;
        self.written.store(position, Ordering::Release);
    }

    /// Syncs the last segment, then creates the next one and makes it durable before any record is written to it.
    fn begin_segment(&self, writer: &mut Writer, header: SegmentHeader) -> Result<(), LogError> {
        writer.cut_preallocated();
        self.publish_written(header.first - 1);
        // Syncs even if all records are durable, because `cut_preallocated` may have truncated the file.
        self.sync_current(None)?;
        let name = segment::name(header.first);
        let file = match self.disk.create(&name) {
            Ok(file) => file,
            Err(error) if error.is_transient() => return Err(self.retry_buffer_later(writer, &error)),
            Err(error) => return Err(self.fail(error)),
        };
        if let Err(error) = write_full(&*file, 0, &header.encode()) {
            if error.is_full() && self.disk.remove(&name).is_ok() {
                return Err(self.retry_buffer_later(writer, &error));
            }
            return Err(self.fail(error));
        }
        let guard = self.syncing.lock();
        self.check_alive()?;
        file.sync().map_err(|error| self.fail(error))?;
        drop(guard);
        self.sync_folder()?;
        writer.segments.last_mut().expect("the log has a segment").bytes = writer.file_bytes;
        let bytes = segment::HEADER_BYTES as u64;
        writer.segments.push(Segment { name, header, bytes });
        self.current.lock().0 = Arc::clone(&file);
        (writer.file, writer.file_bytes, writer.preallocated_until) = (file, bytes, bytes);
        self.counters.segments.fetch_add(1, Ordering::Relaxed);
        self.counters.bytes.fetch_add(bytes, Ordering::Relaxed);
        Ok(())
    }

    /// Makes created, renamed and removed files durable. A failure ends the log, because the name of a segment may not
    /// be durable.
    pub(crate) fn sync_folder(&self) -> Result<(), LogError> {
        let _guard = self.syncing.lock();
        self.check_alive()?;
        self.disk.sync_dir().map_err(|error| self.fail(error))
    }

    /// Syncs the last segment, and so everything written so far, unless `target` is given and already durable. `target`
    /// must have been written.
    pub(super) fn sync_current(&self, target: Option<u64>) -> Result<(), LogError> {
        let _guard = self.syncing.lock();
        self.check_alive()?;
        if target.is_some_and(|target| self.durable() >= target) {
            return Ok(());
        }
        let (file, position) = self.current.lock().clone();
        let began = Instant::now();
        file.sync().map_err(|error| self.fail(error))?;
        self.count_sync(began);
        self.publish_durable(position);
        Ok(())
    }

    fn publish_durable(&self, position: u64) {
        assert!(position <= self.written(), "durable is never ahead of written");
        self.durable.fetch_max(position, Ordering::AcqRel);
    }

    fn count_sync(&self, began: Instant) {
        let took_ns = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.counters.syncs.fetch_add(1, Ordering::Relaxed);
        self.counters.sync_ns.fetch_add(took_ns, Ordering::Relaxed);
        self.counters.last_sync_ns.store(took_ns, Ordering::Relaxed);
        self.counters.sync_times[sync_class(took_ns)].fetch_add(1, Ordering::Relaxed);
        let recent_ns = match self.counters.recent_sync_ns.load(Ordering::Relaxed) {
            0 => took_ns,
            recent_ns => (recent_ns.saturating_mul(7).saturating_add(took_ns)) / 8,
        };
        self.counters.recent_sync_ns.store(recent_ns, Ordering::Relaxed);
    }

    /// Returns how long a sync takes, as a moving average; zero before the first sync.
    pub(crate) fn sync_time(&self) -> Duration {
        Duration::from_nanos(self.counters.recent_sync_ns.load(Ordering::Relaxed))
    }

    /// Acts as if recent syncs had taken this long.
    #[cfg(test)]
    pub(crate) fn assume_sync_time(&self, sync_time: Duration) {
        self.counters.recent_sync_ns.store(sync_time.as_nanos() as u64, Ordering::Relaxed);
    }

    /// Measures the free space of the disk. Returns it, minus the bytes that are not written yet.
    ///
    /// If the disk does not report its free space, it counts as unlimited. A write to a full disk will then fail.
    pub(crate) fn measure_free_space(&self) -> u64 {
        let free = self.disk.free_bytes().unwrap_or(u64::MAX);
        let appended_bytes = self.counters.appended_bytes.load(Ordering::Relaxed);
        let free_bytes = free.saturating_sub(self.pending_bytes());
        let beyond = free_bytes.checked_sub(self.reserve_bytes).map_or(0, |over| over.saturating_add(1));
        let is_refusing = beyond == 0
            || self.buffer_awaits_space.load(Ordering::Relaxed)
            || self.is_folder_lost.load(Ordering::Relaxed);
        let is_low = free_bytes < MEASURE_ALWAYS_BELOW_RESERVES * self.reserve_bytes;
        let spare_until = if is_refusing { 0 } else { appended_bytes.saturating_add(beyond) };
        self.spare_until_bytes.store(spare_until, Ordering::Relaxed);
        self.space_until_bytes.store(if is_low { 0 } else { spare_until }, Ordering::Relaxed);
        self.unmeasured_bytes.store(0, Ordering::Relaxed);
        free_bytes
    }

    /// Returns the number of appended bytes that are not written yet.
    pub(super) fn pending_bytes(&self) -> u64 {
        let written = self.counters.written_bytes.load(Ordering::Relaxed);
        self.counters.appended_bytes.load(Ordering::Relaxed).saturating_sub(written)
    }

    pub(super) fn replace_manifest(&self, next: &Manifest) -> Result<(), LogError> {
        next.install(&*self.disk).map_err(|error| {
            // The steps before the rename can fail for lack of space or file descriptors. The old manifest then stays
            // current.
            if error.is_transient() && matches!(error.operation, "list" | "create" | "write") {
                // If this fails too, the next attempt removes the file.
                let _ = self.disk.remove(manifest::NEW_NAME);
                return self.retry_later(&error);
            }
            self.fail(error)
        })?;
        self.sync_folder()
    }

    /// Removes every segment whose records are all before position `first` and before what readers need. Returns the
    /// names of the removed segments.
    pub(super) fn remove_covered(&self, first: u64) -> Vec<String> {
        // Locked to the end, so that no reader begins at a position that is being removed.
        let mut readers = self.readers.lock();
        let first = readers.oldest().map_or(first, |oldest| oldest.min(first));
        let segments: Vec<Segment> = self.writer.lock().segments.clone();
        let covered = segments.windows(2).take_while(|pair| pair[1].header.first <= first);
        let mut removed = Vec::new();
        for pair in covered {
            let removed_it = self.disk.remove(&pair[0].name);
            if removed_it.is_err_and(|error| error.kind != io::ErrorKind::NotFound) {
                break;
            }
            removed.push(pair[0].name.clone());
            self.counters.segments.fetch_sub(1, Ordering::Relaxed);
            self.counters.bytes.fetch_sub(pair[0].bytes, Ordering::Relaxed);
        }
        self.writer.lock().segments.retain(|segment| !removed.contains(&segment.name));
        removed
    }
}
