//! The entries that load clients write: ids, and payloads that name their writer and number and have a checksum.

use std::fmt;

use crate::random::Random;

/// The id of a stream entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Id {
    pub ms: u64,
    sequence: u64,
}

impl Id {
    /// Parses `ms-sequence`.
    pub(crate) fn parse(text: &[u8]) -> Option<Id> {
        let (ms, sequence) = std::str::from_utf8(text).ok()?.split_once('-')?;
        Some(Id { ms: ms.parse().ok()?, sequence: sequence.parse().ok()? })
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.ms, self.sequence)
    }
}

/// Identifies one write of a campaign: its producer, and the producer's number for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Mark {
    /// The producer.
    pub producer: u32,
    /// Counted by the producer, across restarts of the server.
    pub number: u64,
}

impl fmt::Display for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "write {} of producer {}", self.number, self.producer)
    }
}

/// Names and values of an entry, in the order of XADD and XRANGE.
pub(crate) type Fields = Vec<Vec<u8>>;

/// Returns the fields of this write. They depend only on the mark, so a reader can verify every byte.
pub(crate) fn payload(mark: Mark) -> Fields {
    let mut random = Random::new(u64::from(mark.producer) << 40 ^ mark.number);
    let length = if random.percent(2) { 4000 } else { random.below(120) };
    let body: Vec<u8> = (0..length).map(|_| random.next() as u8).collect();
    vec![
        b"producer".to_vec(),
        mark.producer.to_string().into_bytes(),
        b"number".to_vec(),
        mark.number.to_string().into_bytes(),
        b"sum".to_vec(),
        format!("{:016x}", checksum(&body)).into_bytes(),
        b"body".to_vec(),
        body,
    ]
}

/// Returns the mark of these fields if every byte equals what [`payload`] returns for it.
pub(crate) fn recognise(fields: &[Vec<u8>]) -> Option<Mark> {
    let number = |at: usize| std::str::from_utf8(fields.get(at)?).ok()?.parse::<u64>().ok();
    let mark = Mark { producer: u32::try_from(number(1)?).ok()?, number: number(3)? };
    (payload(mark) == fields).then_some(mark)
}

/// FNV-1a, 64 bits.
fn checksum(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xCBF2_9CE4_8422_2325, |sum, &byte| (sum ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01B3))
}
