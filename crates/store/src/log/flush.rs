//! The one place that writes: batches into segments, syncs, the turn to a new segment, and what a failure means.
//!
//! All syncs of segments and of the folder happen under `syncing`: the kernel tells a failure to one caller only, and that one must
//! have ended the log before another believes its own success.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use super::frame::{self, Placing, Salt};
use super::manifest::{self, Manifest};
use super::segment::{self, Segment, SegmentHeader};
use super::writer::{Batch, Writer};
use super::{Log, LogError, Policy};
use crate::disk::{DiskError, write_full};

/// A batch buffer larger than this is given back after use.
const KEEP_BUFFER_BYTES: usize = 4 << 20;
/// So much room is made at a time.
pub(super) const ROOM_BYTES: u64 = if cfg!(test) { 400 } else { 1 << 20 };

impl Writer {
    /// Cuts the segment behind its records. If that is not done, or not durably, whoever reads it passes over zeros.
    pub(super) fn give_room_back(&mut self) {
        if self.zeros_until > self.file_bytes {
            let _ = self.file.truncate(self.file_bytes);
            self.zeros_until = self.file_bytes;
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

    /// Ends the log: from here on nothing succeeds.
    fn fail(&self, error: DiskError) -> LogError {
        self.ended.get_or_init(|| LogError::Failed(error)).clone()
    }

    /// Ends the log if its folder is not where it was: what is written now would be found by nobody.
    pub(crate) fn check_place(&self) {
        if let Err(error) = self.disk.check_place() {
            self.fail(error);
        }
    }

    /// A batch that could not be written for lack of space waits. Until it is written no more is taken, whatever the system says is
    /// free: it may know nothing of a quota.
    fn put_off_batch(&self, writer: &Writer, error: &DiskError) -> LogError {
        // A turn to a new segment without records behind it is nothing that anybody would write again.
        let has_records = writer.done < writer.batch.bytes.len();
        self.batch_waits.store(has_records && error.is_full(), Ordering::Relaxed);
        self.put_off(error)
    }

    /// To be tried again: nothing has happened yet.
    fn put_off(&self, error: &DiskError) -> LogError {
        if error.is_exhausted() {
            return LogError::Exhausted(error.to_string());
        }
        self.counters.full.fetch_add(1, Ordering::Relaxed);
        self.room_until_bytes.store(0, Ordering::Relaxed);
        LogError::Full(error.to_string())
    }

    /// Takes what was appended, leaving empty buffers of the size that was needed last.
    pub(super) fn take_batch(&self, writer: &mut Writer) {
        debug_assert_eq!(writer.done, writer.batch.bytes.len());
        let Batch { mut bytes, mut frames, turns, .. } = std::mem::take(&mut writer.batch);
        if bytes.capacity() > KEEP_BUFFER_BYTES {
            (bytes, frames) = (Vec::new(), Vec::new());
        }
        bytes.clear();
        frames.clear();
        debug_assert!(turns.is_empty());
        let fresh = Batch { bytes, frames, frame_until: 0, turns, last: 0 };
        let mut tail = self.tail.lock();
        writer.batch = std::mem::replace(&mut tail.batch, fresh);
        writer.batch.last = tail.last;
        writer.done = 0;
    }

    /// Gives the frames of a batch their headers: each continues the one before, over the turns between segments.
    pub(super) fn seal_batch(&self, writer: &mut Writer) {
        let Writer { batch: Batch { bytes, frames, turns, last, .. }, last_checksum, salt, .. } = writer;
        let durable = self.durable();
        let mut turns = turns.iter_mut().peekable();
        for (index, begin) in frames.iter().enumerate() {
            if let Some(turn) = turns.next_if(|turn| turn.at <= begin.at) {
                turn.header.previous = *last_checksum;
                *salt = Salt::new(turn.header.salt);
            }
            let (end, next) = frames.get(index + 1).map_or((bytes.len(), *last + 1), |f| (f.at, f.first));
            let count = u32::try_from(next - begin.first).expect("a frame has fewer records than bytes");
            let durable = durable.min(begin.first - 1);
            let placing = Placing { position: begin.first, count, durable, previous: *last_checksum };
            *last_checksum = frame::seal(&mut bytes[begin.at..end], *salt, placing);
        }
        for turn in turns {
            turn.header.previous = *last_checksum;
            *salt = Salt::new(turn.header.salt);
        }
    }

    /// Writes the rest of the batch, turning to new segments where it says.
    pub(super) fn write_batch(&self, writer: &mut Writer) -> Result<(), LogError> {
        if writer.done == writer.batch.bytes.len() && writer.batch.turns.is_empty() {
            return Ok(());
        }
        while let Some(turn) = writer.batch.turns.first() {
            let (at, header) = (turn.at, turn.header);
            self.write_up_to(writer, at)?;
            self.begin_segment(writer, header)?;
            writer.batch.turns.remove(0);
        }
        self.write_up_to(writer, writer.batch.bytes.len())?;
        if writer.file_bytes > writer.zeros_until && self.policy() == Policy::Always {
            self.make_room(writer)?;
        }
        self.batch_waits.store(false, Ordering::Relaxed);
        self.counters.writes.fetch_add(1, Ordering::Relaxed);
        self.publish_written(writer.batch.last);
        Ok(())
    }

    fn write_up_to(&self, writer: &mut Writer, end: usize) -> Result<(), LogError> {
        if writer.done == end {
            return Ok(());
        }
        let bytes = &writer.batch.bytes[writer.done..end];
        if let Err(error) = write_full(&*writer.file, writer.file_bytes, bytes) {
            // Without space, and with the file as it was, nothing has happened yet.
            if error.is_full() && writer.file.truncate(writer.file_bytes).is_ok() {
                writer.zeros_until = writer.file_bytes;
                return Err(self.put_off_batch(writer, &error));
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

    /// Puts zeros where the next records will be. A sync of records that make the file no longer takes about half the time: the
    /// file system has nothing of its own to write. Not for long batches, and not worth the last of the disk.
    fn make_room(&self, writer: &mut Writer) -> Result<(), LogError> {
        let until = (writer.file_bytes + ROOM_BYTES).min(self.segment_bytes);
        let is_long = writer.batch.bytes.len() as u64 > ROOM_BYTES / 4;
        let appended_bytes = self.counters.appended_bytes.load(Ordering::Relaxed);
        let is_scarce = appended_bytes + 2 * ROOM_BYTES > self.room_until_bytes.load(Ordering::Relaxed);
        if is_long || is_scarce || until <= writer.file_bytes {
            return Ok(());
        }
        let zeros = vec![0; (until - writer.file_bytes) as usize];
        match write_full(&*writer.file, writer.file_bytes, &zeros) {
            Ok(()) => writer.zeros_until = until,
            Err(error) if error.is_full() => {
                writer.zeros_until = until;
                writer.give_room_back();
                // No more before the free space was measured again.
                self.room_until_bytes.store(0, Ordering::Relaxed);
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

    /// Syncs the segment so far, then makes the next one, durably, before any record goes there.
    fn begin_segment(&self, writer: &mut Writer, header: SegmentHeader) -> Result<(), LogError> {
        writer.give_room_back();
        self.publish_written(header.first - 1);
        // Whatever was durable before: the file may have been cut since then.
        self.sync_current(None)?;
        let name = segment::name(header.first);
        let file = match self.disk.create(&name) {
            Ok(file) => file,
            Err(error) if error.may_pass() => return Err(self.put_off_batch(writer, &error)),
            Err(error) => return Err(self.fail(error)),
        };
        if let Err(error) = write_full(&*file, 0, &header.encode()) {
            if error.is_full() && self.disk.remove(&name).is_ok() {
                return Err(self.put_off_batch(writer, &error));
            }
            return Err(self.fail(error));
        }
        let guard = self.syncing.lock();
        self.check_alive()?;
        file.sync().map_err(|error| self.fail(error))?;
        drop(guard);
        self.sync_folder()?;
        writer.segments.last_mut().expect("there was one").bytes = writer.file_bytes;
        let bytes = segment::HEADER_BYTES as u64;
        writer.segments.push(Segment { name, header, bytes });
        self.current.lock().0 = Arc::clone(&file);
        (writer.file, writer.file_bytes, writer.zeros_until) = (file, bytes, bytes);
        self.counters.segments.fetch_add(1, Ordering::Relaxed);
        self.counters.bytes.fetch_add(bytes, Ordering::Relaxed);
        Ok(())
    }

    /// Makes names in the folder durable. A failure may be that of a segment's name, so it ends the log as well.
    pub(crate) fn sync_folder(&self) -> Result<(), LogError> {
        let _guard = self.syncing.lock();
        self.check_alive()?;
        self.disk.sync_dir().map_err(|error| self.fail(error))
    }

    /// Makes `target`, which is written, durable, and whatever else is written by then.
    pub(super) fn sync_written(&self, target: u64) -> Result<(), LogError> {
        self.sync_current(Some(target))
    }

    /// Syncs the last segment, unless only `target` is asked for and durable.
    fn sync_current(&self, target: Option<u64>) -> Result<(), LogError> {
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
    }

    /// Asks how much is free, less what waits in memory. A disk that does not say is taken to have room: a write will tell.
    pub(super) fn measure_room(&self) -> u64 {
        let free = self.disk.free_bytes().unwrap_or(u64::MAX);
        let appended_bytes = self.counters.appended_bytes.load(Ordering::Relaxed);
        let room = free.saturating_sub(self.pending_bytes());
        // With no more than the reserve left it is asked for every time.
        let beyond =
            if room < self.reserve_bytes { 0 } else { (room - self.reserve_bytes).saturating_add(1) };
        let is_refusing = beyond == 0 || self.batch_waits.load(Ordering::Relaxed);
        let until = if is_refusing { 0 } else { appended_bytes.saturating_add(beyond) };
        self.room_until_bytes.store(until, Ordering::Relaxed);
        self.unmeasured_bytes.store(0, Ordering::Relaxed);
        room
    }

    /// What waits in memory.
    pub(super) fn pending_bytes(&self) -> u64 {
        let written = self.counters.written_bytes.load(Ordering::Relaxed);
        self.counters.appended_bytes.load(Ordering::Relaxed).saturating_sub(written)
    }

    pub(super) fn replace_manifest(&self, next: &Manifest) -> Result<(), LogError> {
        next.put(&*self.disk).map_err(|error| {
            // Listing, making and writing come before the rename: without descriptors or space for them the old one is in force.
            if error.may_pass() && matches!(error.operation, "list" | "create" | "write") {
                // What is left of it goes with the next try, too.
                let _ = self.disk.remove(manifest::NEW_NAME);
                return self.put_off(&error);
            }
            self.fail(error)
        })?;
        self.sync_folder()
    }

    /// Removes the segments whose successor begins at or before `first`.
    pub(super) fn remove_covered(&self, first: u64) -> Vec<String> {
        let segments: Vec<Segment> = self.writer.lock().segments.clone();
        let covered = segments.windows(2).take_while(|pair| pair[1].header.first <= first);
        let mut removed = Vec::new();
        for pair in covered {
            if self.disk.remove(&pair[0].name).is_err() {
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
