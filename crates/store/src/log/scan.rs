//! The decision table of `docs/format.md` as pure functions, and the result of reading a log.
//!
//! These functions turn facts into verdicts. They do no I/O.

use super::DamageKind;
use super::segment::{self, Segment, SegmentHeader};

/// Result of reading a log. Describes the necessary repairs without making them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scan {
    /// Segments that were read, in order.
    pub segments: Vec<Segment>,
    /// Number of records in these segments.
    pub records: u64,
    /// Position of the last record. If there is none, the position before the first one that the log can have.
    pub last: u64,
    /// Checksum of the last frame.
    pub last_checksum: u32,
    /// The torn tail: bytes after the last record that are not preallocated space.
    pub torn: Option<TornTail>,
    /// Offset in the last segment. All bytes before it are proven durable. Bytes after it may not be.
    pub unproven_from: u64,
    /// Name of the last segment if a crash interrupted its creation.
    pub unfinished: Option<String>,
    /// Names of segments that are no longer needed, because the snapshot contains their changes.
    pub covered: Vec<String>,
}

/// A torn tail: bytes at the end of a log that never became durable records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TornTail {
    /// Path of the segment.
    pub file: String,
    /// Offset at which the tail begins.
    pub at: u64,
    /// Length of the tail.
    pub bytes: u64,
}

/// What is known about a segment's header before its records are read.
pub(crate) struct HeaderFacts<'a> {
    pub(crate) header: Result<&'a SegmentHeader, &'a DamageKind>,
    /// First position according to the file name.
    pub(crate) named: u64,
    pub(crate) file_bytes: u64,
    pub(crate) is_last: bool,
    /// Last position and last checksum of the previous segment, if that was read.
    pub(crate) before: Option<(u64, u32)>,
    pub(crate) is_of_this_store: bool,
}

/// What to do with a segment.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum HeaderVerdict {
    Read,
    /// A crash interrupted its creation: ignore it.
    Unfinished,
    /// The segment itself may be intact, but records between the previous segment and this one are missing.
    Gap,
    Refuse(DamageKind),
}

/// Decides as in the table "A segment's header".
pub(crate) fn decide_header(facts: &HeaderFacts<'_>) -> HeaderVerdict {
    let expected = facts.before.map_or(facts.named, |(last, _)| last + 1);
    match facts.header {
        // Checked first: the cases below rely on the file name.
        Ok(header) if facts.is_of_this_store && header.first != facts.named => {
            HeaderVerdict::Refuse(DamageKind::SegmentMisnamed { found: header.first })
        }
        // A gap in the names means lost records, even if the creation of this segment was interrupted.
        _ if expected < facts.named => HeaderVerdict::Gap,
        _ if expected > facts.named => {
            HeaderVerdict::Refuse(DamageKind::SegmentMisplaced { found: facts.named })
        }
        Err(DamageKind::SegmentHeaderDamaged)
            if facts.is_last
                && facts.before.is_some()
                && facts.file_bytes <= segment::HEADER_BYTES as u64 =>
        {
            HeaderVerdict::Unfinished
        }
        Err(what) => HeaderVerdict::Refuse(what.clone()),
        Ok(_) if !facts.is_of_this_store => HeaderVerdict::Refuse(DamageKind::SegmentForeign),
        Ok(header) if facts.before.is_some_and(|(_, checksum)| checksum != header.previous) => {
            HeaderVerdict::Refuse(DamageKind::SegmentNotContinuing)
        }
        Ok(_) => HeaderVerdict::Read,
    }
}

/// What is known about the place where the frames of a segment end.
pub(crate) struct EndFacts {
    /// What is wrong with the next frame; `None` at the end of the file, or if only zeros follow.
    pub(crate) found: Option<DamageKind>,
    /// True if another segment follows, finished or not.
    pub(crate) later_segment: bool,
    /// The position that the next record must have.
    pub(crate) expected: u64,
    /// The manifest's durable position.
    pub(crate) durable: u64,
    /// True if a later frame claims that `expected` was durable.
    pub(crate) claimed: bool,
}

/// What the end of a segment means.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum EndVerdict {
    Clean,
    Torn,
    Refuse(DamageKind),
}

/// Decides as in the table "End of the frames".
pub(crate) fn decide_end(facts: EndFacts) -> EndVerdict {
    let was_durable = facts.later_segment || facts.expected <= facts.durable || facts.claimed;
    match facts.found {
        None if !facts.later_segment && facts.expected <= facts.durable => {
            EndVerdict::Refuse(DamageKind::RolledBack { durable: facts.durable })
        }
        None => EndVerdict::Clean,
        // The checksum is correct, so the frame is as it was written. No crash produces such a frame.
        Some(what @ DamageKind::Payload(_)) => EndVerdict::Refuse(what),
        Some(what) if was_durable => EndVerdict::Refuse(what),
        Some(_) => EndVerdict::Torn,
    }
}

#[cfg(test)]
mod tests {
    use super::super::StoreId;
    use super::*;

    const INTACT: SegmentHeader =
        SegmentHeader { store_id: StoreId([1; 16]), first: 10, salt: 3, previous: 7 };

    fn header_verdict(
        header: Result<SegmentHeader, DamageKind>,
        file_bytes: u64,
        is_last: bool,
        before: Option<(u64, u32)>,
    ) -> HeaderVerdict {
        let is_of_this_store = header.as_ref().is_ok_and(|header| header.store_id == StoreId([1; 16]));
        let facts =
            HeaderFacts { header: header.as_ref(), named: 10, file_bytes, is_last, before, is_of_this_store };
        decide_header(&facts)
    }

    /// Checks the verdict for every combination of header, length, place and previous segment.
    #[test]
    fn header_verdicts_follow_the_table() {
        let headers = [
            Ok(INTACT),
            Ok(SegmentHeader { store_id: StoreId([2; 16]), ..INTACT }),
            Ok(SegmentHeader { first: 11, ..INTACT }),
            Ok(SegmentHeader { previous: 8, ..INTACT }),
            Err(DamageKind::SegmentHeaderDamaged),
            Err(DamageKind::UnknownVersion(2)),
        ];
        let (mut read, mut unfinished) = (0, 0);
        for header in &headers {
            for file_bytes in [0, 63, 64, 65, 1000] {
                for is_last in [false, true] {
                    for before in [None, Some((9, 7)), Some((9, 6)), Some((8, 7)), Some((10, 7))] {
                        let verdict = header_verdict(header.clone(), file_bytes, is_last, before);
                        let in_place = before.is_none_or(|(last, _)| last == 9);
                        let continues =
                            before.is_none_or(|(_, sum)| header.as_ref().is_ok_and(|h| h.previous == sum));
                        let matches =
                            header.as_ref().is_ok_and(|h| h.first == 10 && h.store_id == INTACT.store_id);
                        let short = *header == Err(DamageKind::SegmentHeaderDamaged) && file_bytes <= 64;
                        let expected_unfinished = short && is_last && before.is_some() && in_place;
                        assert_eq!(verdict == HeaderVerdict::Read, matches && in_place && continues);
                        assert_eq!(verdict == HeaderVerdict::Unfinished, expected_unfinished);
                        read += usize::from(verdict == HeaderVerdict::Read);
                        unfinished += usize::from(verdict == HeaderVerdict::Unfinished);
                    }
                }
            }
        }
        // Read: 10 times `INTACT` without a previous segment, 10 times `INTACT` after (9, 7), and 10 times
        // `previous: 8` without a previous segment.
        // Unfinished: 3 lengths x 2 previous segments.
        assert_eq!((read, unfinished), (30, 6));
    }

    /// Checks the verdict for every combination of end, later segment, manifest and claim.
    #[test]
    fn end_verdicts_follow_the_table() {
        let bad = || Some(DamageKind::RecordDamaged);
        let refuse = || EndVerdict::Refuse(DamageKind::RecordDamaged);
        let rolled = || EndVerdict::Refuse(DamageKind::RolledBack { durable: 5 });
        let table = [
            // found, later segment, expected <= durable, claimed
            (None, false, false, false, EndVerdict::Clean),
            (None, false, false, true, EndVerdict::Clean),
            (None, false, true, false, rolled()),
            (None, false, true, true, rolled()),
            (None, true, false, false, EndVerdict::Clean),
            (None, true, false, true, EndVerdict::Clean),
            (None, true, true, false, EndVerdict::Clean),
            (None, true, true, true, EndVerdict::Clean),
            (bad(), false, false, false, EndVerdict::Torn),
            (bad(), false, false, true, refuse()),
            (bad(), false, true, false, refuse()),
            (bad(), false, true, true, refuse()),
            (bad(), true, false, false, refuse()),
            (bad(), true, false, true, refuse()),
            (bad(), true, true, false, refuse()),
            (bad(), true, true, true, refuse()),
        ];
        for (found, later_segment, behind, claimed, verdict) in table {
            let expected = if behind { 5 } else { 6 };
            let text = format!("{found:?} {later_segment} {behind} {claimed}");
            let facts = EndFacts { found, later_segment, expected, durable: 5, claimed };
            assert_eq!(decide_end(facts), verdict, "{text}");
            let nonsense = || DamageKind::Payload("nonsense".to_owned());
            let facts = EndFacts { found: Some(nonsense()), later_segment, expected, durable: 5, claimed };
            assert_eq!(decide_end(facts), EndVerdict::Refuse(nonsense()), "{text}");
        }
    }
}
