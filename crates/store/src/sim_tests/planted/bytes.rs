//! Changes segments, manifests and snapshots to what a program with a bug would write or read.

use std::collections::{BTreeMap, HashMap};
use std::ops::{ControlFlow, Range};

use millstream_engine::policy::Policy;
use millstream_engine::stream::{EntryRef, HistoryCounters, IdRange};
use millstream_engine::value::Hashing;
use millstream_engine::{BlockLimits, ReleasedRow, Stream, StreamEffect, StreamId, Value};

use super::Bug;
use crate::codec::{put_value, take_value};
use crate::log::tests::{
    FRAME_HEADER_BYTES, FrameFields, FrameHeader, Manifest, SEGMENT_HEADER_BYTES, Salt, SegmentHeader,
    is_intact, seal,
};
use crate::snapshot::{SnapshotKey, SnapshotReader, SnapshotWriter};

/// Original checksums of frames, with their checksums after they were sealed again.
pub(super) type Resealed = HashMap<u32, u32>;

/// One frame of a segment, and its place.
struct SegmentFrame {
    header: FrameHeader,
    at: Range<usize>,
    is_intact: bool,
}

/// Returns the frames of a segment up to the first invalid or incomplete one.
fn frames(segment: &[u8], salt: Salt) -> Vec<SegmentFrame> {
    let (mut frames, mut begin) = (Vec::new(), SEGMENT_HEADER_BYTES);
    while let Some(header) = segment.get(begin..).and_then(|bytes| FrameHeader::decode(bytes, salt)) {
        let at = begin..begin + FRAME_HEADER_BYTES + header.length as usize;
        let Some(bytes) = segment.get(at.clone()) else { break };
        begin = at.end;
        frames.push(SegmentFrame { header, is_intact: is_intact(bytes, salt), at });
    }
    frames
}

fn header_of(segment: &[u8]) -> Option<SegmentHeader> {
    SegmentHeader::decode(segment.get(..SEGMENT_HEADER_BYTES)?).ok()
}

/// Returns a segment as a reader with this bug would see it. Returns `None` if the bug changes nothing.
pub(super) fn misread(bug: Bug, segments: &BTreeMap<String, Vec<u8>>, name: &str) -> Option<Vec<u8>> {
    match bug {
        Bug::CutOnAnyDamage => {
            let (last, bytes) = segments.last_key_value()?;
            let header = header_of(bytes).filter(|_| last == name)?;
            let (mut end, mut previous) = (SEGMENT_HEADER_BYTES, header.previous);
            for frame in frames(bytes, Salt::new(header.salt)) {
                if !frame.is_intact || frame.header.previous != previous {
                    break;
                }
                (end, previous) = (frame.at.end, frame.header.checksum);
            }
            Some(bytes[..end].to_vec())
        }
        Bug::ChecksumUnchecked | Bug::ChainUnchecked => {
            let mut resealed = Resealed::new();
            let mut last = None;
            for (found, bytes) in segments {
                let mut bytes = bytes.clone();
                last = Some(misread_segment(bug, &mut bytes, last, &mut resealed)).flatten().or(last);
                if found == name {
                    return Some(bytes);
                }
            }
            None
        }
        _ => None,
    }
}

/// Seals the frames of a segment again if the bug ignores that they are damaged or do not continue the ones before
/// them. Takes and returns the checksum of the last frame.
fn misread_segment(bug: Bug, segment: &mut [u8], last: Option<u32>, resealed: &mut Resealed) -> Option<u32> {
    let mut header = header_of(segment)?;
    let continues = |previous: u32, last: Option<u32>, resealed: &Resealed| match (bug, last) {
        (Bug::ChainUnchecked, Some(last)) => last,
        _ => resealed.get(&previous).copied().unwrap_or(previous),
    };
    header.previous = continues(header.previous, last, resealed);
    segment[..SEGMENT_HEADER_BYTES].copy_from_slice(&header.encode());
    let (salt, mut last) = (Salt::new(header.salt), header.previous);
    for SegmentFrame { header, at, is_intact } in frames(segment, salt) {
        if !is_intact && bug != Bug::ChecksumUnchecked {
            break;
        }
        let FrameHeader { position, count, claim, previous, checksum, .. } = header;
        let previous = continues(previous, Some(last), resealed);
        let fields = FrameFields { position, count, durable: claim, previous };
        last = seal(&mut segment[at], salt, fields);
        resealed.insert(checksum, last);
    }
    Some(last)
}

/// Makes every new frame of a segment claim one position more.
pub(super) fn claim_more(segment: &mut [u8], resealed: &mut Resealed) {
    let Some(mut header) = header_of(segment) else { return };
    header.previous = resealed.get(&header.previous).copied().unwrap_or(header.previous);
    segment[..SEGMENT_HEADER_BYTES].copy_from_slice(&header.encode());
    let salt = Salt::new(header.salt);
    for SegmentFrame { header, at, is_intact } in frames(segment, salt) {
        if is_intact && !resealed.values().any(|now| *now == header.checksum) {
            let FrameHeader { position, count, claim, previous, checksum, .. } = header;
            let previous = resealed.get(&previous).copied().unwrap_or(previous);
            let fields = FrameFields { position, count, durable: (claim + 1).min(position - 1), previous };
            resealed.insert(checksum, seal(&mut segment[at], salt, fields));
        }
    }
}

/// Returns the manifest that a program with this bug would write.
pub(super) fn manifest_with_bug(bug: Bug, bytes: &[u8]) -> Option<Vec<u8>> {
    let mut manifest = Manifest::decode(bytes).ok()?;
    let position = manifest.snapshot.filter(|_| bug == Bug::FirstRecordSkipped)?;
    manifest.first = manifest.first.max((position + 2).min(manifest.durable + 1));
    Some(manifest.encode().to_vec())
}

/// Returns the snapshot that a program with this bug would write.
pub(super) fn snapshot_with_bug(bug: Bug, file: &[u8], now_ms: u64) -> Option<Vec<u8>> {
    const MISTAKES: [Bug; 11] = [
        Bug::DelayedNotInSnapshot,
        Bug::TicketNumberNotInSnapshot,
        Bug::PolicyNotInSnapshot,
        Bug::PendingNotInSnapshot,
        Bug::ReleasedNotInSnapshot,
        Bug::DueTimesNotInSnapshot,
        Bug::ProducerHistoryNotInSnapshot,
        Bug::ExpiredNotInSnapshot,
        Bug::StampTooHigh,
        Bug::StampTooLow,
        Bug::StampsIgnored,
    ];
    if !MISTAKES.contains(&bug) {
        return None;
    }
    let mut reader = SnapshotReader::open(file).ok()?;
    let (mut out, mut payload) = (Vec::new(), Vec::new());
    let mut writer = SnapshotWriter::begin(&mut out, reader.store_id, reader.taken.position);
    while reader.next(&mut payload).ok()? {
        let SnapshotKey { db, key, stamp, mut entry } =
            SnapshotKey::decode(&payload, &Hashing::new(1)).ok()?;
        let is_expired = entry.expires_at_ms.is_some_and(|at_ms| at_ms <= now_ms);
        if bug == Bug::ExpiredNotInSnapshot && is_expired {
            continue;
        }
        let stamp = match bug {
            Bug::StampTooHigh => stamp + 1,
            Bug::StampTooLow => stamp.saturating_sub(1),
            Bug::StampsIgnored => 0,
            _ => stamp,
        };
        leave_out(bug, &mut entry.value);
        writer.put(db, key, stamp, entry.expires_at_ms, &entry.value).ok()?;
    }
    writer.finish().ok()?;
    Some(out)
}

/// Removes the parts of a value that the bug omits.
fn leave_out(bug: Bug, value: &mut Value) {
    if bug == Bug::TicketNumberNotInSnapshot {
        return forget_ticket_number(value);
    }
    let Value::Stream(stream) = value else { return };
    match bug {
        Bug::DelayedNotInSnapshot => {
            let mut tickets = Vec::new();
            if let Some(delayed) = stream.delayed() {
                delayed.visit_range(IdRange::ALL, None, &mut |entry: &EntryRef<'_>| {
                    tickets.push(entry.id());
                    ControlFlow::Continue(())
                });
            }
            stream.apply(&StreamEffect::Undelay { tickets: &tickets }, BlockLimits::default());
        }
        Bug::PolicyNotInSnapshot => {
            let names: Vec<Vec<u8>> = stream.groups().map(|(name, _)| name.to_vec()).collect();
            let policy = &Policy::default();
            for group in &names {
                stream.apply(
                    &StreamEffect::GroupSetPolicy { group, policy, owner: None },
                    BlockLimits::default(),
                );
            }
            stream.apply(&StreamEffect::SetPolicy { policy, owner: None }, BlockLimits::default());
        }
        Bug::PendingNotInSnapshot => forget_pending(stream, false),
        Bug::ReleasedNotInSnapshot => forget_pending(stream, true),
        Bug::DueTimesNotInSnapshot => forget_due_times(stream),
        Bug::ProducerHistoryNotInSnapshot => {
            let Some(HistoryCounters { limits, .. }) = stream.history_counters() else { return };
            // Changing the limits clears the history; the second change restores the limits.
            for duration_s in [limits.duration_s + 1, limits.duration_s] {
                let effect = StreamEffect::IdempotenceConfigure { duration_s, max_size: limits.max_size };
                stream.apply(&effect, BlockLimits::default());
            }
        }
        _ => {}
    }
}

/// Leaves out the last setting of a stream, which is the last part of its encoding, if this setting is an empty set of
/// delayed entries and the only one.
fn forget_ticket_number(value: &mut Value) {
    let mut bytes = Vec::new();
    put_value(&mut bytes, value);
    if let Value::Stream(stream) = value
        && stream.policy().is_none()
        && stream.delayed().is_some_and(|delayed| delayed.is_empty())
        && let [.., 4, 2, 2, _, 0] = bytes[..]
    {
        bytes.truncate(bytes.len() - 5);
        bytes.push(0);
        *value = take_value(&bytes, &Hashing::new(1)).expect("a stream without settings");
    }
}

fn forget_due_times(stream: &mut Stream) {
    let waiting: Vec<(Vec<u8>, Vec<ReleasedRow>)> = stream
        .groups()
        .map(|(name, group)| {
            let row = |(_, id)| {
                let deliveries = group.pending().get(id).map_or(0, |row| row.deliveries);
                ReleasedRow { id, deliveries, not_before_ms: 0 }
            };
            (name.to_vec(), group.pending().waiting().map(row).collect())
        })
        .collect();
    for (group, rows) in waiting {
        stream.apply(&StreamEffect::Release { group: &group, rows: &rows }, BlockLimits::default());
    }
}

fn forget_pending(stream: &mut Stream, only_released: bool) {
    let mut pending: Vec<(Vec<u8>, Vec<StreamId>)> = Vec::new();
    for (name, group) in stream.groups() {
        let mut ids = Vec::new();
        group.pending().walk(StreamId::MIN, Default::default(), |row| {
            if !only_released || row.consumer.is_none() {
                ids.push(row.id);
            }
            ControlFlow::Continue(())
        });
        pending.push((name.to_vec(), ids));
    }
    for (group, ids) in pending {
        stream.apply(&StreamEffect::Ack { group: &group, ids: &ids }, BlockLimits::default());
    }
}
