//! One record: its 28-byte header, its two checksums, and its encoding into a batch.
//!
//! ```text
//! 0        4        8                16         20         24         28
//! | length | behind | position       | previous | checksum | header   | payload |
//! ```
//!
//! Knows bytes only: neither files nor what the payload means.

use crc32fast::Hasher;

/// The length of a record's header.
pub(crate) const HEADER_BYTES: usize = 28;

/// A `behind` that claims nothing, for records too far ahead of the durable position to say how far.
const CLAIMS_NOTHING: u32 = u32::MAX;

/// A segment's salt, ready to begin a checksum with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Salt(u32);

impl Salt {
    pub(crate) fn new(salt: u64) -> Salt {
        Salt(crc32fast::hash(&salt.to_le_bytes()))
    }

    fn hasher(self) -> Hasher {
        Hasher::new_with_initial(self.0)
    }
}

/// A header whose own checksum is right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RecordHeader {
    pub(crate) length: u32,
    pub(crate) position: u64,
    /// The checksum of the record before.
    pub(crate) previous: u32,
    /// Of this record, payload included.
    pub(crate) checksum: u32,
    /// All positions up to here were durable when the record was appended.
    pub(crate) claim: u64,
}

impl RecordHeader {
    /// The header in these bytes, or `None` when they are not one of this segment.
    pub(crate) fn decode(bytes: &[u8], salt: Salt) -> Option<RecordHeader> {
        let bytes: &[u8; HEADER_BYTES] = bytes.first_chunk()?;
        let mut hasher = salt.hasher();
        hasher.update(&bytes[..24]);
        if hasher.finalize() != u32_at(bytes, 24) {
            return None;
        }
        let (position, behind) = (position_at(bytes), u32_at(bytes, 4));
        let claim = if behind == CLAIMS_NOTHING { 0 } else { position.checked_sub(u64::from(behind))? };
        let header = RecordHeader {
            length: u32_at(bytes, 0),
            position,
            previous: u32_at(bytes, 16),
            checksum: u32_at(bytes, 20),
            claim,
        };
        (claim < position).then_some(header)
    }
}

/// The position that a header starting here would have. For looking before checking.
pub(crate) fn position_at(header: &[u8]) -> u64 {
    u64::from_le_bytes(header[8..16].try_into().expect("eight bytes"))
}

/// Whether a whole record (header and payload) has the checksum it says.
pub(crate) fn is_intact(record: &[u8], salt: Salt) -> bool {
    let mut hasher = salt.hasher();
    hasher.update(&record[..20]);
    hasher.update(&record[HEADER_BYTES..]);
    hasher.finalize() == u32_at(record, 20)
}

/// What a record says besides its payload.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Placing {
    pub(crate) position: u64,
    /// The durable position to claim; less than `position`.
    pub(crate) durable: u64,
    /// The checksum of the record before.
    pub(crate) previous: u32,
}

/// Appends the record to `into` and returns its checksum. The payload is at most `u32::MAX` bytes.
pub(crate) fn encode(into: &mut Vec<u8>, salt: Salt, placing: Placing, payload: &[u8]) -> u32 {
    debug_assert!(placing.durable < placing.position);
    let length = u32::try_from(payload.len()).expect("the caller limits payloads");
    let behind = u32::try_from(placing.position - placing.durable).unwrap_or(CLAIMS_NOTHING);
    let mut header = [0; HEADER_BYTES];
    header[..4].copy_from_slice(&length.to_le_bytes());
    header[4..8].copy_from_slice(&behind.to_le_bytes());
    header[8..16].copy_from_slice(&placing.position.to_le_bytes());
    header[16..20].copy_from_slice(&placing.previous.to_le_bytes());

    let mut hasher = salt.hasher();
    hasher.update(&header[..20]);
    let mut of_header = hasher.clone();
    hasher.update(payload);
    let checksum = hasher.finalize();
    header[20..24].copy_from_slice(&checksum.to_le_bytes());
    of_header.update(&header[20..24]);
    header[24..].copy_from_slice(&of_header.finalize().to_le_bytes());

    into.reserve(HEADER_BYTES + payload.len());
    into.extend_from_slice(&header);
    into.extend_from_slice(payload);
    checksum
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(payload: &[u8], position: u64, durable: u64) -> (Vec<u8>, u32) {
        let mut bytes = Vec::new();
        let placing = Placing { position, durable, previous: 77 };
        let checksum = encode(&mut bytes, Salt::new(5), placing, payload);
        (bytes, checksum)
    }

    #[test]
    fn what_is_encoded_is_decoded() {
        let (bytes, checksum) = record(b"hello", 9, 4);
        let header = RecordHeader::decode(&bytes, Salt::new(5)).unwrap();
        assert_eq!(header, RecordHeader { length: 5, position: 9, previous: 77, checksum, claim: 4 });
        assert!(is_intact(&bytes, Salt::new(5)));
        assert_eq!(bytes.len(), HEADER_BYTES + 5);
    }

    #[test]
    fn every_flipped_bit_and_another_salt_are_noticed() {
        let (bytes, _) = record(b"hello", 9, 4);
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            let header = RecordHeader::decode(&damaged, Salt::new(5));
            assert_eq!(header.is_none(), bit < HEADER_BYTES * 8, "bit {bit}");
            assert!(header.is_none() || !is_intact(&damaged, Salt::new(5)), "bit {bit}");
        }
        assert_eq!(RecordHeader::decode(&bytes, Salt::new(6)), None);
        assert!(!is_intact(&bytes, Salt::new(6)));
    }

    #[test]
    fn a_claim_too_far_back_claims_nothing() {
        let (bytes, _) = record(b"", u64::from(u32::MAX) + 10, 3);
        assert_eq!(RecordHeader::decode(&bytes, Salt::new(5)).unwrap().claim, 0);
    }
}
