//! Corrects the checksums of a damaged file, so that readers do not stop at a wrong checksum.

use crc32fast::{Hasher, hash};

use crate::log::fuzzing::{FRAME_HEADER_BYTES, MANIFEST, SEGMENT_HEADER_BYTES, Salt, is_segment};
use crate::snapshot::{FOOTER_BYTES, HEADER_BYTES, PREFIX, RECORD, RECORD_HEAD_BYTES, record_checksum};

/// Corrects all checksums of a file of the data folder, as far as its structure is intact. With `chain`,
/// each frame of a segment also names the checksum of the frame before it.
pub fn repair_checksums(name: &str, bytes: &mut [u8], chain: bool) {
    if name == MANIFEST {
        repair_block(bytes);
    } else if name.starts_with(PREFIX) {
        repair_snapshot(bytes);
    } else if is_segment(name) {
        repair_segment(bytes, chain);
    }
}

/// Repairs 64 bytes that end in the checksum of the others: a manifest, or the header of a segment.
fn repair_block(bytes: &mut [u8]) {
    if let Some(block) = bytes.first_chunk_mut::<SEGMENT_HEADER_BYTES>() {
        let checksum = hash(&block[..60]);
        block[60..].copy_from_slice(&checksum.to_le_bytes());
    }
}

fn repair_segment(bytes: &mut [u8], chain: bool) {
    repair_block(bytes);
    let Some((header, mut frames)) = bytes.split_at_mut_checked(SEGMENT_HEADER_BYTES) else { return };
    let salt = Salt::new(u64::from_le_bytes(header[40..48].try_into().expect("eight bytes")));
    let mut previous: Option<u32> = None;
    while frames.len() >= FRAME_HEADER_BYTES {
        let length = u32::from_le_bytes(frames[..4].try_into().expect("four bytes")) as usize;
        if length == 0 || length > frames.len() - FRAME_HEADER_BYTES {
            return;
        }
        let (frame, rest) = frames.split_at_mut(FRAME_HEADER_BYTES + length);
        if let (true, Some(previous)) = (chain, previous) {
            frame[20..24].copy_from_slice(&previous.to_le_bytes());
        }
        let mut sum = salt.hasher();
        sum.update(&frame[..24]);
        let mut header_sum = sum.clone();
        sum.update(&frame[FRAME_HEADER_BYTES..]);
        let checksum = sum.finalize();
        frame[24..28].copy_from_slice(&checksum.to_le_bytes());
        header_sum.update(&frame[24..28]);
        frame[28..32].copy_from_slice(&header_sum.finalize().to_le_bytes());
        previous = Some(checksum);
        frames = rest;
    }
}

fn repair_snapshot(bytes: &mut [u8]) {
    let Some((header, mut rest)) = bytes.split_at_mut_checked(HEADER_BYTES) else { return };
    let checksum = hash(&header[..HEADER_BYTES - 4]).to_le_bytes();
    header[HEADER_BYTES - 4..].copy_from_slice(&checksum);
    let mut sums = Hasher::new();
    sums.update(&checksum);
    while rest.first() == Some(&RECORD) && rest.len() > RECORD_HEAD_BYTES {
        let length = u64::from_le_bytes(rest[1..9].try_into().expect("eight bytes"));
        let end = usize::try_from(length).ok().and_then(|length| length.checked_add(RECORD_HEAD_BYTES));
        let Some((record, following)) = end.and_then(|end| rest.split_at_mut_checked(end)) else { return };
        let checksum = record_checksum(length, &record[RECORD_HEAD_BYTES..]).to_le_bytes();
        record[9..13].copy_from_slice(&checksum);
        sums.update(&checksum);
        rest = following;
    }
    if let Some(footer) = rest.first_chunk_mut::<FOOTER_BYTES>() {
        footer[9..13].copy_from_slice(&sums.finalize().to_le_bytes());
        let checksum = hash(&footer[..FOOTER_BYTES - 4]);
        footer[FOOTER_BYTES - 4..].copy_from_slice(&checksum.to_le_bytes());
    }
}
