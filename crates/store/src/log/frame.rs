//! Frames: a header of 32 bytes with two checksums, followed by records.
//!
//! ```text
//! 0        4       8                16       20         24         28           32
//! | length | count | first position | behind | previous | checksum | header crc | records … |
//!
//! record := length:number  payload
//! ```
//!
//! A frame contains consecutive records that were appended between two writes. Once a frame has reached 4 KiB, the next
//! record begins another frame. The records of a frame share a header and one checksum pass.
//!
//! This module does not access files, and it does not interpret payloads.

use crc32fast::Hasher;

use crate::codec::ByteReader;

/// Length of a frame's header.
pub(crate) const HEADER_BYTES: usize = 32;

/// Value of `behind` in a frame that claims no durable position, because the distance does not fit the field.
const CLAIMS_NOTHING: u32 = u32::MAX;

/// The CRC of a segment's salt. Every checksum in the segment starts from it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Salt(u32);

impl Salt {
    pub(crate) fn new(salt: u64) -> Salt {
        Salt(crc32fast::hash(&salt.to_le_bytes()))
    }

    pub(crate) fn hasher(self) -> Hasher {
        Hasher::new_with_initial(self.0)
    }
}

/// A frame header whose checksum is correct.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FrameHeader {
    /// Number of bytes after the header.
    pub(crate) length: u32,
    /// Number of records; at least 1.
    pub(crate) count: u32,
    /// Position of the first record.
    pub(crate) position: u64,
    /// Checksum of the frame before this one.
    pub(crate) previous: u32,
    /// Checksum of this frame, including its records.
    pub(crate) checksum: u32,
    /// All records up to this position were durable when the frame was sealed.
    pub(crate) claim: u64,
}

impl FrameHeader {
    /// Decodes a header. Returns `None` if the bytes are not a frame header of the segment with this salt.
    pub(crate) fn decode(bytes: &[u8], salt: Salt) -> Option<FrameHeader> {
        let bytes: &[u8; HEADER_BYTES] = bytes.first_chunk()?;
        let mut hasher = salt.hasher();
        hasher.update(&bytes[..28]);
        if hasher.finalize() != u32_at(bytes, 28) {
            return None;
        }
        let (position, behind) = (position_at(bytes), u32_at(bytes, 16));
        let claim = if behind == CLAIMS_NOTHING { 0 } else { position.checked_sub(u64::from(behind))? };
        let header = FrameHeader {
            length: u32_at(bytes, 0),
            count: u32_at(bytes, 4),
            position,
            previous: u32_at(bytes, 20),
            checksum: u32_at(bytes, 24),
            claim,
        };
        (claim < position && header.count > 0).then_some(header)
    }
}

/// Returns the position field of a header without checking the header.
pub(crate) fn position_at(header: &[u8]) -> u64 {
    u64::from_le_bytes(header[8..16].try_into().expect("eight bytes"))
}

/// Returns true if the checksum of a whole frame (header and records) is correct.
pub(crate) fn is_intact(frame: &[u8], salt: Salt) -> bool {
    let mut hasher = salt.hasher();
    hasher.update(&frame[..24]);
    hasher.update(&frame[HEADER_BYTES..]);
    hasher.finalize() == u32_at(frame, 24)
}

/// Returns true if the bytes are exactly `count` records.
pub(crate) fn are_records(records: &[u8], count: u32) -> bool {
    let mut reader = ByteReader::new(records);
    (0..count).all(|_| reader.text().is_ok()) && reader.left() == 0
}

/// The fields of a frame header that do not depend on the records' bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FrameFields {
    /// Position of the first record.
    pub(crate) position: u64,
    /// Number of records.
    pub(crate) count: u32,
    /// Durable position to claim; less than `position`.
    pub(crate) durable: u64,
    /// Checksum of the frame before this one.
    pub(crate) previous: u32,
}

/// Fills in the header of a frame that already contains its records, and returns its checksum.
///
/// The frame has at most `u32::MAX` bytes.
pub(crate) fn seal(frame: &mut [u8], salt: Salt, fields: FrameFields) -> u32 {
    debug_assert!(fields.durable < fields.position && fields.count > 0);
    let (header, records) = frame.split_at_mut(HEADER_BYTES);
    let length = u32::try_from(records.len()).expect("the log limits the size of payloads and frames");
    let behind = u32::try_from(fields.position - fields.durable).unwrap_or(CLAIMS_NOTHING);
    header[..4].copy_from_slice(&length.to_le_bytes());
    header[4..8].copy_from_slice(&fields.count.to_le_bytes());
    header[8..16].copy_from_slice(&fields.position.to_le_bytes());
    header[16..20].copy_from_slice(&behind.to_le_bytes());
    header[20..24].copy_from_slice(&fields.previous.to_le_bytes());

    let mut hasher = salt.hasher();
    hasher.update(&header[..24]);
    let mut header_hasher = hasher.clone();
    hasher.update(records);
    let checksum = hasher.finalize();
    header[24..28].copy_from_slice(&checksum.to_le_bytes());
    header_hasher.update(&header[24..28]);
    header[28..].copy_from_slice(&header_hasher.finalize().to_le_bytes());
    checksum
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::put_text;

    fn frame(records: &[&[u8]], position: u64, durable: u64) -> (Vec<u8>, u32) {
        let mut bytes = vec![0; HEADER_BYTES];
        records.iter().for_each(|record| put_text(&mut bytes, record));
        let fields = FrameFields { position, count: records.len() as u32, durable, previous: 77 };
        let checksum = seal(&mut bytes, Salt::new(5), fields);
        (bytes, checksum)
    }

    #[test]
    fn sealed_frame_decodes_to_its_fields() {
        let (bytes, checksum) = frame(&[b"hello", b"", b"you"], 9, 4);
        let header = FrameHeader::decode(&bytes, Salt::new(5)).unwrap();
        let expected = FrameHeader { length: 11, count: 3, position: 9, previous: 77, checksum, claim: 4 };
        assert_eq!(header, expected);
        assert!(is_intact(&bytes, Salt::new(5)));
        assert_eq!(bytes.len(), HEADER_BYTES + 11);
    }

    #[test]
    fn flipped_bits_and_another_salt_are_detected() {
        let (bytes, _) = frame(&[b"hello", b"you"], 9, 4);
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            let header = FrameHeader::decode(&damaged, Salt::new(5));
            assert_eq!(header.is_none(), bit < HEADER_BYTES * 8, "bit {bit}");
            assert!(header.is_none() || !is_intact(&damaged, Salt::new(5)), "bit {bit}");
        }
        assert_eq!(FrameHeader::decode(&bytes, Salt::new(6)), None);
        assert!(!is_intact(&bytes, Salt::new(6)));
    }

    #[test]
    fn claim_that_is_too_far_behind_decodes_as_no_claim() {
        let (bytes, _) = frame(&[b""], u64::from(u32::MAX) + 10, 3);
        assert_eq!(FrameHeader::decode(&bytes, Salt::new(5)).unwrap().claim, 0);
    }

    #[test]
    fn records_must_fill_their_frame_exactly() {
        let (bytes, _) = frame(&[b"hello", b"", b"you"], 9, 4);
        let records = &bytes[HEADER_BYTES..];
        for count in 0..6 {
            assert_eq!(are_records(records, count), count == 3, "{count}");
        }
        assert!(!are_records(&records[..10], 3) && !are_records(&[records, &[0]].concat(), 3));
    }
}
