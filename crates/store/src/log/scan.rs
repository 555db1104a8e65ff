//! What a found log means: the decision table of `docs/format.md` as pure functions, and the result of a walk.
//!
//! Facts come in, verdicts go out; nothing here reads or writes.

use super::DamageKind;
use super::segment::{self, Segment, SegmentHeader};

/// What was found by walking through a log. Returned, not acted upon.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scan {
    /// The segments that were read, in order.
    pub segments: Vec<Segment>,
    /// How many records they hold.
    pub records: u64,
    /// The position of the last record, or the one before the first segment's first.
    pub last: u64,
    /// The checksum of its frame.
    pub last_checksum: u32,
    /// What follows the last record, apart from room.
    pub torn: Option<Torn>,
    /// From this offset of the last segment on, no record proves that the bytes are durable.
    pub unproven_from: u64,
    /// A last segment whose making was cut short.
    pub unfinished: Option<String>,
    /// Segments that are no longer needed.
    pub covered: Vec<String>,
}

/// Bytes at the end of a log that never became durable as records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Torn {
    /// The path of the segment.
    pub file: String,
    /// Where they begin.
    pub at: u64,
    /// How many there are.
    pub bytes: u64,
}

/// What is known of a segment's header before its records are read.
pub(crate) struct HeaderFacts<'a> {
    pub(crate) header: Result<&'a SegmentHeader, &'a DamageKind>,
    /// The first position according to the name.
    pub(crate) named: u64,
    pub(crate) file_bytes: u64,
    pub(crate) is_last: bool,
    /// The last position of the segment before and the checksum of its last frame, when that was read.
    pub(crate) before: Option<(u64, u32)>,
    pub(crate) is_of_this_store: bool,
}

/// What to do with a segment.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum HeaderVerdict {
    Read,
    /// Its making was cut short: it counts as not there.
    Unfinished,
    /// Nothing is known against it, but records between the segment before and this one are missing.
    Gap,
    Refuse(DamageKind),
}

/// The table "a segment's header".
pub(crate) fn decide_header(facts: &HeaderFacts<'_>) -> HeaderVerdict {
    let expected = facts.before.map_or(facts.named, |(last, _)| last + 1);
    match facts.header {
        // Before its name is believed.
        Ok(header) if facts.is_of_this_store && header.first != facts.named => {
            HeaderVerdict::Refuse(DamageKind::SegmentMisnamed { found: header.first })
        }
        // A name out of sequence means lost records, even when the segment itself never came to be.
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

/// What is known of the place where the walk through a segment stopped.
pub(crate) struct EndFacts {
    /// What stands there; `None` at the end of the file, or if nothing but zeros is left of it.
    pub(crate) found: Option<DamageKind>,
    /// Whether there is another segment, finished or not.
    pub(crate) later_segment: bool,
    /// The position that should stand there.
    pub(crate) expected: u64,
    /// The manifest's durable position.
    pub(crate) durable: u64,
    /// Whether a record further on claims that `expected` was durable.
    pub(crate) claimed: bool,
}

/// What the end of a segment means.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum EndVerdict {
    Clean,
    Torn,
    Refuse(DamageKind),
}

/// The table "where its records end".
pub(crate) fn decide_end(facts: EndFacts) -> EndVerdict {
    let was_durable = facts.later_segment || facts.expected <= facts.durable || facts.claimed;
    match facts.found {
        None if !facts.later_segment && facts.expected <= facts.durable => {
            EndVerdict::Refuse(DamageKind::RolledBack { durable: facts.durable })
        }
        None => EndVerdict::Clean,
        // Its checksum is right, so it is as it was written: no crash makes such a frame.
        Some(what @ DamageKind::Payload(_)) => EndVerdict::Refuse(what),
        Some(what) if was_durable => EndVerdict::Refuse(what),
        Some(_) => EndVerdict::Torn,
    }
}

#[cfg(test)]
mod tests {
    use super::super::StoreId;
    use super::*;

    const SOUND: SegmentHeader =
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

    /// Every combination of header, length, place and predecessor.
    #[test]
    fn headers_enumerated() {
        let headers = [
            Ok(SOUND),
            Ok(SegmentHeader { store_id: StoreId([2; 16]), ..SOUND }),
            Ok(SegmentHeader { first: 11, ..SOUND }),
            Ok(SegmentHeader { previous: 8, ..SOUND }),
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
                        let sound =
                            header.as_ref().is_ok_and(|h| h.first == 10 && h.store_id == SOUND.store_id);
                        let short = *header == Err(DamageKind::SegmentHeaderDamaged) && file_bytes <= 64;
                        let expected_unfinished = short && is_last && before.is_some() && in_place;
                        assert_eq!(verdict == HeaderVerdict::Read, sound && in_place && continues);
                        assert_eq!(verdict == HeaderVerdict::Unfinished, expected_unfinished);
                        read += usize::from(verdict == HeaderVerdict::Read);
                        unfinished += usize::from(verdict == HeaderVerdict::Unfinished);
                    }
                }
            }
        }
        // Sound: 10 each alone and behind (9, 7); with previous 8: 10 alone. Unfinished: 3 lengths x 2 predecessors.
        assert_eq!((read, unfinished), (30, 6));
    }

    /// Every combination of end, later segment, manifest and claim, against the table written out.
    #[test]
    fn ends_enumerated() {
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
