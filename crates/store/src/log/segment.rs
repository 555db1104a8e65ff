//! One segment: its name, its 64-byte header, and walking through its records with bounded memory.
//!
//! ```text
//! 0       8        12    16         32     40    48        52    60   64
//! | magic | version| zero| store id | first| salt| previous| zero| crc | frames …
//! ```
//!
//! The walk stops at the first frame that is not what it should be and says so; what that means is decided in
//! `scan`. Of a frame that is not whole, no record is told.

use super::frame::{self, FrameHeader, Salt};
use super::{DamageKind, StoreId};
use crate::codec::Reader;
use crate::disk::{Access, Disk, DiskError, File, Listed, read_full};

/// The length of a segment's header.
pub(crate) const HEADER_BYTES: usize = 64;

const MAGIC: [u8; 8] = *b"MILLSLOG";
const VERSION: u32 = 2;
const PREFIX: &str = "log-";
/// How much is read at a time; also what a reader holds when frames are small.
const CHUNK_BYTES: usize = 1 << 20;

/// The name of the segment that begins at this position.
pub(crate) fn name(first: u64) -> String {
    format!("{PREFIX}{first:020}")
}

/// The position at which the segment with this name begins; `None` for other files.
pub(crate) fn first_of(name: &str) -> Option<u64> {
    let digits = name.strip_prefix(PREFIX)?;
    let plain = digits.len() == 20 && digits.bytes().all(|byte| byte.is_ascii_digit());
    plain.then(|| digits.parse().ok()).flatten()
}

/// The segments among these files, with the position at which each begins by its name.
pub(crate) fn by_name(listed: &[Listed]) -> impl Iterator<Item = (u64, &Listed)> {
    listed.iter().filter_map(|file| Some((first_of(&file.name)?, file)))
}

/// Which of these segments has the first position that is needed; `None` if all begin behind it.
pub(crate) fn first_needed(
    disk: &dyn Disk,
    segments: &[(u64, &Listed)],
    first: u64,
) -> Result<Option<usize>, DiskError> {
    let Some(index) = segments.iter().rposition(|&(begins, _)| begins <= first) else { return Ok(None) };
    // A last segment that may turn out unfinished leaves the one before as the last.
    let file = segments[index].1;
    let may_be_unfinished = index > 0 && index + 1 == segments.len() && file.bytes <= HEADER_BYTES as u64;
    let is_unfinished = may_be_unfinished && SegmentHeader::open(disk, file)?.is_err();
    Ok(Some(index - usize::from(is_unfinished)))
}

/// A segment that exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    pub(super) name: String,
    pub(super) header: SegmentHeader,
    /// The bytes that hold its header and records; of the segment being written, as of the last rotation.
    pub(super) bytes: u64,
}

/// What a segment says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SegmentHeader {
    pub(crate) store_id: StoreId,
    /// The position of the first record.
    pub(crate) first: u64,
    pub(crate) salt: u64,
    /// The checksum of the last frame of the segment before.
    pub(crate) previous: u32,
}

impl SegmentHeader {
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
        let store_id = StoreId(bytes[16..32].try_into().expect("sixteen bytes"));
        Ok(SegmentHeader { store_id, first: long(32), salt: long(40), previous: word(48) })
    }

    /// Reads the header of a segment of the folder. The inner error is one of its contents.
    pub(crate) fn open(
        disk: &dyn Disk,
        file: &Listed,
    ) -> Result<Result<SegmentHeader, DamageKind>, DiskError> {
        SegmentHeader::read(&*disk.open(&file.name, Access::Read)?)
    }

    /// The header at the beginning of `file`; the inner error is one of its contents.
    pub(crate) fn read(file: &dyn File) -> Result<Result<SegmentHeader, DamageKind>, DiskError> {
        let mut bytes = [0; HEADER_BYTES];
        let count = read_full(file, 0, &mut bytes)?;
        Ok(SegmentHeader::decode(&bytes[..count]))
    }
}

/// A walk through the records of one segment.
pub(crate) struct Records<'a> {
    file: &'a dyn File,
    file_bytes: u64,
    salt: Salt,
    /// Where the frame after this one begins.
    offset: u64,
    expected: u64,
    previous: u32,
    /// The bytes of the file from `window_offset` on.
    window: Vec<u8>,
    window_offset: u64,
    inside: Inside,
}

/// The records of the frame at hand that were not told yet.
#[derive(Clone, Copy, Default)]
struct Inside {
    /// Where the frame begins in the file.
    offset: u64,
    claim: u64,
    left: u32,
    /// Where in the window the next one begins, and where the frame ends.
    at: usize,
    end: usize,
}

/// What stands at a record's place.
pub(crate) enum Step<'w> {
    /// A record of an intact frame that continues the one before. The offset is that of the frame.
    Record { offset: u64, position: u64, claim: u64, payload: &'w [u8] },
    /// The end of the file, or zeros up to there: room for the next.
    End,
    /// Something else.
    Bad(DamageKind),
}

impl<'a> Records<'a> {
    /// Starts at the first record of `file` and reads up to `file_bytes`.
    ///
    /// `file_bytes` can be smaller than the header: a running server may have begun the segment after the folder was listed.
    pub(crate) fn new(file: &'a dyn File, file_bytes: u64, header: &SegmentHeader) -> Records<'a> {
        Records {
            file,
            file_bytes: file_bytes.max(HEADER_BYTES as u64),
            salt: Salt::new(header.salt),
            offset: HEADER_BYTES as u64,
            expected: header.first,
            previous: header.previous,
            window: Vec::new(),
            window_offset: HEADER_BYTES as u64,
            inside: Inside::default(),
        }
    }

    /// Where the next frame begins, or would.
    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }

    /// The position of the next record.
    pub(crate) fn expected(&self) -> u64 {
        self.expected
    }

    /// The checksum of the last frame.
    pub(crate) fn previous(&self) -> u32 {
        self.previous
    }

    /// The next record. After anything else than a record the walk stands still.
    pub(crate) fn step(&mut self) -> Result<Step<'_>, DiskError> {
        if self.inside.left == 0
            && let Some(otherwise) = self.next_frame()?
        {
            return Ok(otherwise);
        }
        let Inside { offset, claim, at, end, .. } = self.inside;
        let mut reader = Reader::new(&self.window[at..end]);
        let payload = reader.text().expect("a frame was looked through before its first record");
        self.inside.at = end - reader.left();
        self.inside.left -= 1;
        let position = self.expected;
        self.expected += 1;
        Ok(Step::Record { offset, position, claim, payload })
    }

    /// Turns to the next frame, or says what else there is.
    fn next_frame(&mut self) -> Result<Option<Step<'static>>, DiskError> {
        let left = self.file_bytes - self.offset;
        if left < frame::HEADER_BYTES as u64 {
            return self.end_or(DamageKind::RecordCutShort);
        }
        let salt = self.salt;
        let mut header = FrameHeader::decode(self.bytes(frame::HEADER_BYTES)?, salt);
        if header.is_none() {
            // Whoever writes there may have begun only since this was read.
            self.window.clear();
            self.window_offset = self.offset;
            header = FrameHeader::decode(self.bytes(frame::HEADER_BYTES)?, salt);
        }
        let Some(header) = header else {
            return self.end_or(DamageKind::RecordHeaderDamaged);
        };
        if let Some(what) = self.judge(&header, left) {
            return Ok(Some(Step::Bad(what)));
        }
        let whole_bytes = frame::HEADER_BYTES + header.length as usize;
        let whole = self.bytes(whole_bytes)?;
        if !frame::is_intact(whole, salt) {
            return Ok(Some(Step::Bad(DamageKind::RecordDamaged)));
        }
        if !frame::holds(&whole[frame::HEADER_BYTES..], header.count) {
            return Ok(Some(Step::Bad(DamageKind::Payload(
                "the records do not fill their frame".to_owned(),
            ))));
        }
        let at = (self.offset - self.window_offset) as usize;
        self.inside = Inside {
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

    /// Whether this is the end: nothing follows, or nothing but room.
    #[cold]
    fn end_or(&self, otherwise: DamageKind) -> Result<Option<Step<'static>>, DiskError> {
        let mut chunk = vec![0; CHUNK_BYTES.min((self.file_bytes - self.offset) as usize)];
        let mut at = self.offset;
        while at < self.file_bytes {
            let count = chunk.len().min((self.file_bytes - at) as usize);
            let count = read_full(self.file, at, &mut chunk[..count])?;
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

    /// What is wrong with a sound header at this place, if anything.
    fn judge(&self, header: &FrameHeader, left: u64) -> Option<DamageKind> {
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

    /// The next `count` bytes from `offset` on; the file is known to have them.
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
        // A file that shrinks under the reader leaves zeros here, which no checksum accepts; at the end they are taken for room.
        read_full(self.file, self.window_offset + have as u64, &mut self.window[have..])?;
        Ok(())
    }

    /// Looks behind the place where the walk stopped for a sound frame header that claims `expected` was durable, and
    /// gives that header's offset.
    pub(crate) fn find_claim(&self) -> Result<Option<u64>, DiskError> {
        self.find_header(self.offset, |header| header.claim >= self.expected)
    }

    /// Goes on at the next intact frame behind the damage, wherever it is. For saving what can be saved.
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

    /// A walk through the same file from another offset on.
    fn at(&self, offset: u64) -> Records<'a> {
        Records { offset, window: Vec::new(), window_offset: offset, inside: Inside::default(), ..*self }
    }

    /// The first sound header from an offset on that has a possible position and is `wanted`. One pass, one chunk at a time, no
    /// length is trusted.
    fn find_header(
        &self,
        from: u64,
        wanted: impl Fn(&FrameHeader) -> bool,
    ) -> Result<Option<u64>, DiskError> {
        let left = self.file_bytes.saturating_sub(from);
        // A record takes a byte at least.
        let most = self.expected.saturating_add(left);
        let mut chunk = vec![0; CHUNK_BYTES.min(left as usize)];
        let mut at = from;
        loop {
            let count = read_full(self.file, at, &mut chunk)?;
            for (index, bytes) in chunk[..count].windows(frame::HEADER_BYTES).enumerate() {
                let possible = (self.expected..=most).contains(&frame::position_at(bytes));
                if possible && FrameHeader::decode(bytes, self.salt).is_some_and(|header| wanted(&header)) {
                    return Ok(Some(at + index as u64));
                }
            }
            if count < CHUNK_BYTES {
                return Ok(None);
            }
            // The last bytes may begin a header that ends in the next chunk.
            at += (count - frame::HEADER_BYTES + 1) as u64;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip_and_others_are_not_segments() {
        assert_eq!(first_of(&name(42)), Some(42));
        assert_eq!(first_of(&name(u64::MAX)), Some(u64::MAX));
        for other in ["log-", "log-1", "log-+0000000000000000001", "log-99999999999999999999", "manifest"] {
            assert_eq!(first_of(other), None, "{other}");
        }
    }

    #[test]
    fn every_cut_and_every_flipped_bit_of_a_header_is_noticed() {
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
