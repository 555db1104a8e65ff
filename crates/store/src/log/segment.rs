//! Segments: their file names, their 64-byte headers, and a reader of their records with bounded memory.
//!
//! ```text
//! 0       8        12    16         32     40    48        52    60   64
//! | magic | version| zero| store id | first| salt| previous| zero| crc | frames …
//! ```
//!
//! The reader stops at the first frame that is not as expected, and reports it. `scan` decides what that means. The
//! reader returns no record of an incomplete frame.

use std::sync::Arc;

use super::frame::{self, FrameHeader, Salt};
use super::{DamageKind, POSITION_MAX, StoreId};
use crate::codec::ByteReader;
use crate::disk::{Access, Disk, DiskError, File, Listed, read_full};

/// Length of a segment's header.
pub(crate) const HEADER_BYTES: usize = 64;

const MAGIC: [u8; 8] = *b"MILLSLOG";
const VERSION: u32 = 2;
const PREFIX: &str = "log-";
/// `previous` in the first segment of a store that was empty when its log began. Other first segments have 0: those of
/// salvaged data, whose log continues a snapshot at position 0, and those of versions before this mark.
const BEGINS_EMPTY: u32 = u32::from_le_bytes(*b"NONE");
/// Number of bytes read at a time, and the memory that a reader uses while frames are small.
const CHUNK_BYTES: usize = 1 << 20;

/// Returns the name of the segment that begins at this position.
pub(crate) fn name(first: u64) -> String {
    format!("{PREFIX}{first:020}")
}

/// Returns the first position in a segment's file name; `None` for other files.
pub(crate) fn first_of(name: &str) -> Option<u64> {
    let digits = name.strip_prefix(PREFIX)?;
    let plain = digits.len() == 20 && digits.bytes().all(|byte| byte.is_ascii_digit());
    plain.then(|| digits.parse().ok()).flatten()
}

/// Returns the segments among these files, with the first position in each name.
pub(crate) fn by_name(listed: &[Listed]) -> impl Iterator<Item = (u64, &Listed)> {
    listed.iter().filter_map(|file| Some((first_of(&file.name)?, file)))
}

/// Returns the index of the segment that contains `first`; `None` if all segments begin after it.
pub(crate) fn first_needed(
    disk: &dyn Disk,
    segments: &[(u64, &Listed)],
    first: u64,
) -> Result<Option<usize>, DiskError> {
    let Some(index) = segments.iter().rposition(|&(begins, _)| begins <= first) else { return Ok(None) };
    // If the creation of the last segment was interrupted, the segment before it is the last one.
    let file = segments[index].1;
    let may_be_unfinished = index > 0 && index + 1 == segments.len() && file.bytes <= HEADER_BYTES as u64;
    let is_unfinished = may_be_unfinished && SegmentHeader::open(disk, file)?.is_err();
    Ok(Some(index - usize::from(is_unfinished)))
}

/// A segment of the folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    pub(super) name: String,
    pub(super) header: SegmentHeader,
    /// Bytes of its header and records. For the segment that is being written: the value when the log created or opened
    /// it.
    pub(super) bytes: u64,
}

/// The header of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SegmentHeader {
    pub(crate) store_id: StoreId,
    /// Position of the first record.
    pub(crate) first: u64,
    pub(crate) salt: u64,
    /// Checksum of the last frame of the previous segment. In the first segment of a store: see `BEGINS_EMPTY`.
    pub(crate) previous: u32,
}

impl SegmentHeader {
    /// Returns the header of the first segment of a store. `begins_empty`: the store has no data before position 1.
    pub(super) fn first(store_id: StoreId, salt: u64, begins_empty: bool) -> SegmentHeader {
        let previous = if begins_empty { BEGINS_EMPTY } else { 0 };
        SegmentHeader { store_id, first: 1, salt, previous }
    }

    /// Returns true if the store was certainly empty before this segment. Then the log alone gives all of its data.
    pub(crate) fn begins_empty(&self) -> bool {
        self.first == 1 && self.previous == BEGINS_EMPTY
    }

    pub(crate) fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        bytes[16..32].copy_from_slice(&self.store_id.0);
        bytes[32..40].copy_from_slice(&self.first.to_le_bytes());
        bytes[40..48].copy_from_slice(&self.salt.to_le_bytes());
        bytes[48..52].copy_from_slice(&self.previous.to_le_bytes());
        let crc = crc32fast::hash(&bytes[..60]);
        bytes[60..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<SegmentHeader, DamageKind> {
        let bytes: &[u8; HEADER_BYTES] = bytes.try_into().map_err(|_| DamageKind::SegmentHeaderDamaged)?;
        let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
        let long = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        if bytes[..8] != MAGIC || crc32fast::hash(&bytes[..60]) != word(60) {
            return Err(DamageKind::SegmentHeaderDamaged);
        }
        if word(8) != VERSION {
            return Err(DamageKind::UnknownVersion(word(8)));
        }
        let first = long(32);
        if !(1..=POSITION_MAX).contains(&first) {
            return Err(DamageKind::SegmentHeaderDamaged);
        }
        let store_id = StoreId(bytes[16..32].try_into().expect("sixteen bytes"));
        Ok(SegmentHeader { store_id, first, salt: long(40), previous: word(48) })
    }

    /// Reads the header of a segment of the folder. The inner error means that it is damaged.
    pub(crate) fn open(
        disk: &dyn Disk,
        file: &Listed,
    ) -> Result<Result<SegmentHeader, DamageKind>, DiskError> {
        SegmentHeader::read(&*disk.open(&file.name, Access::Read)?)
    }

    /// Reads the header at the start of `file`. The inner error means that it is damaged.
    pub(crate) fn read(file: &dyn File) -> Result<Result<SegmentHeader, DamageKind>, DiskError> {
        let mut bytes = [0; HEADER_BYTES];
        let count = read_full(file, 0, &mut bytes)?;
        Ok(SegmentHeader::decode(&bytes[..count]))
    }
}

/// Reads the records of one segment.
pub(crate) struct SegmentReader {
    file: Arc<dyn File>,
    file_bytes: u64,
    salt: Salt,
    /// Offset at which the next frame begins or would begin.
    pub(super) offset: u64,
    /// The position expected next.
    pub(super) expected: u64,
    /// Checksum of the last frame.
    pub(super) previous: u32,
    /// Bytes of the file, starting at `window_offset`.
    window: Vec<u8>,
    window_offset: u64,
    current: CurrentFrame,
}

/// The current frame, and which of its records were not returned yet.
#[derive(Clone, Copy, Default)]
struct CurrentFrame {
    /// Offset of the frame in the file.
    offset: u64,
    claim: u64,
    left: u32,
    /// Indices in the window: of the next record, and of the end of the frame.
    at: usize,
    end: usize,
}

/// What the reader found at the place of the next record.
pub(crate) enum Step<'w> {
    /// A record of an intact frame that continues the frame before it. `offset` is the offset of the frame.
    Record { offset: u64, position: u64, claim: u64, payload: &'w [u8] },
    /// The end of the file, or preallocated zeros up to the end.
    End,
    /// Anything else.
    Bad(DamageKind),
}

impl SegmentReader {
    /// Starts at the first record of `file` and reads up to `file_bytes`.
    ///
    /// `file_bytes` can be smaller than the header: a running server may have written the header after the folder was
    /// listed.
    pub(crate) fn new(file: Arc<dyn File>, file_bytes: u64, header: &SegmentHeader) -> SegmentReader {
        SegmentReader {
            file,
            file_bytes: file_bytes.max(HEADER_BYTES as u64),
            salt: Salt::new(header.salt),
            offset: HEADER_BYTES as u64,
            expected: header.first,
            previous: header.previous,
            window: Vec::new(),
            window_offset: HEADER_BYTES as u64,
            current: CurrentFrame::default(),
        }
    }

    /// Returns the next record. After any other result, the reader does not advance.
    pub(crate) fn step(&mut self) -> Result<Step<'_>, DiskError> {
        if self.current.left == 0
            && let Some(otherwise) = self.next_frame()?
        {
            return Ok(otherwise);
        }
        let CurrentFrame { offset, claim, at, end, .. } = self.current;
        let mut reader = ByteReader::new(&self.window[at..end]);
        let payload = reader.text().expect("the frame's records were already checked");
        self.current.at = end - reader.left();
        self.current.left -= 1;
        let position = self.expected;
        self.expected += 1;
        Ok(Step::Record { offset, position, claim, payload })
    }

    /// Advances to the next frame. Returns what is there if it is not an intact frame.
    fn next_frame(&mut self) -> Result<Option<Step<'static>>, DiskError> {
        let left = self.file_bytes - self.offset;
        if left < frame::HEADER_BYTES as u64 {
            return self.end_or(DamageKind::RecordCutShort);
        }
        let salt = self.salt;
        let mut header = FrameHeader::decode(self.bytes(frame::HEADER_BYTES)?, salt);
        if header.is_none() {
            // The window may be outdated: the server may have written the frame after the window was read. So read the
            // header again.
            self.window.clear();
            self.window_offset = self.offset;
            header = FrameHeader::decode(self.bytes(frame::HEADER_BYTES)?, salt);
        }
        let Some(header) = header else {
            return self.end_or(DamageKind::RecordHeaderDamaged);
        };
        if let Some(what) = self.header_damage(&header, left) {
            return Ok(Some(Step::Bad(what)));
        }
        let whole_bytes = frame::HEADER_BYTES + header.length as usize;
        let whole = self.bytes(whole_bytes)?;
        if !frame::is_intact(whole, salt) {
            return Ok(Some(Step::Bad(DamageKind::RecordDamaged)));
        }
        if !frame::are_records(&whole[frame::HEADER_BYTES..], header.count) {
            return Ok(Some(Step::Bad(DamageKind::Payload(
                "the records do not fill their frame exactly".to_owned(),
            ))));
        }
        let at = (self.offset - self.window_offset) as usize;
        self.current = CurrentFrame {
            offset: self.offset,
            claim: header.claim,
            left: header.count,
            at: at + frame::HEADER_BYTES,
            end: at + whole_bytes,
        };
        self.offset += whole_bytes as u64;
        self.previous = header.checksum;
        Ok(None)
    }

    /// Returns the end of the segment if only zeros or no bytes follow; otherwise the given damage.
    #[cold]
    fn end_or(&self, otherwise: DamageKind) -> Result<Option<Step<'static>>, DiskError> {
        let mut chunk = vec![0; CHUNK_BYTES.min((self.file_bytes - self.offset) as usize)];
        let mut at = self.offset;
        while at < self.file_bytes {
            let count = chunk.len().min((self.file_bytes - at) as usize);
            let count = read_full(&*self.file, at, &mut chunk[..count])?;
            if count == 0 {
                break;
            }
            if chunk[..count].iter().any(|byte| *byte != 0) {
                return Ok(Some(Step::Bad(otherwise)));
            }
            at += count as u64;
        }
        Ok(Some(Step::End))
    }

    /// Returns the damage if an intact header does not belong at this place.
    fn header_damage(&self, header: &FrameHeader, left: u64) -> Option<DamageKind> {
        if header.position != self.expected {
            Some(DamageKind::RecordMisplaced { found: header.position })
        } else if header.previous != self.previous {
            Some(DamageKind::RecordNotContinuing)
        } else if u64::from(header.length) > left - frame::HEADER_BYTES as u64 {
            Some(DamageKind::RecordCutShort)
        } else {
            None
        }
    }

    /// Returns the next `count` bytes from `offset` on. The caller knows that the file has them.
    fn bytes(&mut self, count: usize) -> Result<&[u8], DiskError> {
        let mut at = (self.offset - self.window_offset) as usize;
        if self.window.len() < at + count {
            self.window.drain(..at);
            self.window_offset = self.offset;
            at = 0;
            self.fill(count)?;
        }
        Ok(&self.window[at..at + count])
    }

    fn fill(&mut self, count: usize) -> Result<(), DiskError> {
        let have = self.window.len();
        let left = (self.file_bytes - self.window_offset) as usize;
        self.window.resize(count.max(CHUNK_BYTES).min(left), 0);
        // If the file shrinks meanwhile, zeros remain here. No checksum accepts them; at the end of the log they look
        // like preallocated space.
        read_full(&*self.file, self.window_offset + have as u64, &mut self.window[have..])?;
        Ok(())
    }

    /// Searches after the current offset for an intact frame header that claims that `expected` was durable. Returns
    /// the offset of that header.
    pub(crate) fn find_claim(&self) -> Result<Option<u64>, DiskError> {
        self.find_header(self.offset, |header| header.claim >= self.expected)
    }

    /// Continues at the next intact frame after damage. Returns false if there is none. Used by salvage.
    pub(crate) fn skip_damage(&mut self) -> Result<bool, DiskError> {
        let mut from = self.offset + 1;
        while let Some(offset) = self.find_header(from, |header| header.position >= self.expected)? {
            let mut beyond = self.at(offset);
            let header = FrameHeader::decode(beyond.bytes(frame::HEADER_BYTES)?, self.salt);
            let Some(header) = header else { break };
            (beyond.expected, beyond.previous) = (header.position, header.previous);
            if matches!(beyond.step()?, Step::Record { .. }) {
                (self.expected, self.previous) = (header.position, header.previous);
                (self.offset, self.window_offset) = (offset, offset);
                self.window.clear();
                return Ok(true);
            }
            from = offset + 1;
        }
        Ok(false)
    }

    /// Returns a reader of the same file that starts at another offset.
    fn at(&self, offset: u64) -> SegmentReader {
        SegmentReader {
            file: Arc::clone(&self.file),
            offset,
            window: Vec::new(),
            window_offset: offset,
            current: CurrentFrame::default(),
            ..*self
        }
    }

    /// Continues after the current frame in a file that may have grown. What was read ahead is outdated.
    pub(super) fn refresh(&mut self) -> Result<(), DiskError> {
        debug_assert_eq!(self.current.left, 0, "a frame is written before its first record is read");
        self.file_bytes = self.file.bytes()?.max(self.offset);
        self.window.clear();
        self.window_offset = self.offset;
        Ok(())
    }

    /// Returns the offset of the first intact header at or after `from` that has a possible position and that `wanted`
    /// accepts.
    ///
    /// Makes one pass, a chunk at a time, and trusts no length.
    fn find_header(
        &self,
        from: u64,
        wanted: impl Fn(&FrameHeader) -> bool,
    ) -> Result<Option<u64>, DiskError> {
        let left = self.file_bytes.saturating_sub(from);
        // A record takes at least one byte, so positions cannot be larger than this.
        let most = self.expected.saturating_add(left);
        let mut chunk = vec![0; CHUNK_BYTES.min(left as usize)];
        let mut at = from;
        loop {
            let count = read_full(&*self.file, at, &mut chunk)?;
            for (index, bytes) in chunk[..count].windows(frame::HEADER_BYTES).enumerate() {
                let possible = (self.expected..=most).contains(&frame::position_at(bytes));
                if possible && FrameHeader::decode(bytes, self.salt).is_some_and(|header| wanted(&header)) {
                    return Ok(Some(at + index as u64));
                }
            }
            if count < CHUNK_BYTES {
                return Ok(None);
            }
            // A header may begin in the last bytes of this chunk and end in the next one.
            at += (count - frame::HEADER_BYTES + 1) as u64;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segment_names_round_trip_and_other_names_are_rejected() {
        assert_eq!(first_of(&name(42)), Some(42));
        assert_eq!(first_of(&name(u64::MAX)), Some(u64::MAX));
        for other in ["log-", "log-1", "log-+0000000000000000001", "log-99999999999999999999", "manifest"] {
            assert_eq!(first_of(other), None, "{other}");
        }
    }

    #[test]
    fn truncations_and_flipped_bits_of_a_header_are_detected() {
        let header = SegmentHeader { store_id: StoreId([3; 16]), first: 8, salt: 99, previous: 5 };
        let bytes = header.encode();
        assert_eq!(SegmentHeader::decode(&bytes), Ok(header));
        for cut in 0..HEADER_BYTES {
            assert_eq!(SegmentHeader::decode(&bytes[..cut]), Err(DamageKind::SegmentHeaderDamaged));
        }
        for bit in 0..HEADER_BYTES * 8 {
            let mut damaged = bytes;
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(SegmentHeader::decode(&damaged), Err(DamageKind::SegmentHeaderDamaged), "bit {bit}");
        }
    }
}
