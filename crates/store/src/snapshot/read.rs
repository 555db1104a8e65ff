//! Reads a snapshot and verifies all its checksums.

use std::fmt;
use std::io::{self, Read};

use millstream_engine::keyspace::ValueWithExpiry;
use millstream_engine::value::Hashing;

use super::{
    FOOTER, FOOTER_BYTES, HEADER_BYTES, MAGIC, OLDEST_VERSION, RECORD, RECORD_HEAD_BYTES, SnapshotTaken,
    VERSION, record_checksum,
};
use crate::codec::{ByteReader, CodecError, read_value};

#[derive(Debug)]
pub(crate) struct SnapshotError {
    /// Offset of the header, record or footer with the fault.
    pub(crate) offset: u64,
    pub(crate) what: SnapshotFault,
}

#[derive(Debug)]
pub(crate) enum SnapshotFault {
    Io(io::Error),
    NotASnapshot,
    Version(u32),
    ForeignStore,
    Short,
    Checksum,
    /// The checksum of a record is correct, but its content is invalid.
    Content(CodecError),
    Records,
    Excess,
}

impl fmt::Display for SnapshotError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, at offset {}", self.what, self.offset)
    }
}

impl fmt::Display for SnapshotFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SnapshotFault::Io(error) => write!(f, "cannot read the snapshot: {error}"),
            SnapshotFault::NotASnapshot => write!(f, "the file is not a snapshot"),
            SnapshotFault::Version(version) => {
                write!(
                    f,
                    "the snapshot has format version {version}; this program reads {OLDEST_VERSION} to {VERSION}"
                )
            }
            SnapshotFault::ForeignStore => write!(f, "the snapshot belongs to another store"),
            SnapshotFault::Short => write!(f, "the snapshot ends too early"),
            SnapshotFault::Checksum => write!(f, "the snapshot is damaged: a checksum does not match"),
            SnapshotFault::Content(error) => write!(f, "the snapshot contains an invalid key: {error}"),
            SnapshotFault::Records => {
                write!(f, "keys of the snapshot are missing, duplicated or out of order")
            }
            SnapshotFault::Excess => write!(f, "bytes follow the end of the snapshot"),
        }
    }
}

pub(crate) struct SnapshotKey<'a> {
    pub(crate) db: u32,
    pub(crate) key: &'a [u8],
    /// Position of the last record whose changes the value contains.
    pub(crate) stamp: u64,
    pub(crate) entry: ValueWithExpiry,
}

impl<'a> SnapshotKey<'a> {
    /// Decodes the payload of a record. The tables of its value use this hash function.
    pub(crate) fn decode(payload: &'a [u8], hashing: &Hashing) -> Result<SnapshotKey<'a>, CodecError> {
        let mut reader = ByteReader::new(payload);
        let (db, key, stamp) = (reader.small_number()?, reader.text()?, reader.number()?);
        let expires_at_ms = reader.optional()?;
        let value = read_value(&mut reader, hashing)?;
        reader.finish()?;
        Ok(SnapshotKey { db, key, stamp, entry: ValueWithExpiry { value, expires_at_ms } })
    }
}

/// Passes every key of a snapshot of this store to `visit`.
///
/// After an error, the caller must discard all keys: only the footer proves that the snapshot is complete.
pub(crate) fn read_snapshot(
    from: impl Read,
    store_id: &[u8; 16],
    hashing: &Hashing,
    visit: &mut impl FnMut(SnapshotKey<'_>),
) -> Result<SnapshotTaken, SnapshotError> {
    let mut reader = SnapshotReader::open(from)?;
    if reader.store_id != *store_id {
        return Err(SnapshotError { offset: 0, what: SnapshotFault::ForeignStore });
    }
    let mut payload = Vec::new();
    while reader.next(&mut payload)? {
        let content =
            |error| SnapshotError { offset: reader.part_offset, what: SnapshotFault::Content(error) };
        visit(SnapshotKey::decode(&payload, hashing).map_err(content)?);
    }
    Ok(reader.taken)
}

/// Reads records one by one without decoding them, so that other threads can decode them. Holds at most one record in
/// memory.
pub(crate) struct SnapshotReader<R> {
    from: R,
    /// Checksum over the checksums of the header and of every record.
    sums: crc32fast::Hasher,
    pub(crate) store_id: [u8; 16],
    /// `keys` and `bytes` count what was read so far.
    pub(crate) taken: SnapshotTaken,
    part_offset: u64,
}

impl<R: Read> SnapshotReader<R> {
    pub(crate) fn open(from: R) -> Result<SnapshotReader<R>, SnapshotError> {
        let (sums, taken) = (crc32fast::Hasher::new(), SnapshotTaken::default());
        let mut reader = SnapshotReader { from, sums, store_id: [0; 16], taken, part_offset: 0 };
        let header: [u8; HEADER_BYTES] = reader.read_array()?;
        let (content, checksum) = header.split_at(HEADER_BYTES - 4);
        if content[..8] != *MAGIC {
            return Err(reader.fault(SnapshotFault::NotASnapshot));
        }
        // Checked before the checksum, because another version may have another header.
        let version = u32::from_le_bytes(array_at(content, 8));
        if !(OLDEST_VERSION..=VERSION).contains(&version) {
            return Err(reader.fault(SnapshotFault::Version(version)));
        }
        if crc32fast::hash(content).to_le_bytes() != *checksum {
            return Err(reader.fault(SnapshotFault::Checksum));
        }
        reader.sums.update(checksum);
        reader.store_id = array_at(content, 12);
        reader.taken.position = u64::from_le_bytes(array_at(content, 28));
        Ok(reader)
    }

    /// Reads the next record's payload into `payload` and verifies its checksum.
    ///
    /// At the end, verifies the footer and returns false: the snapshot is complete.
    pub(crate) fn next(&mut self, payload: &mut Vec<u8>) -> Result<bool, SnapshotError> {
        payload.clear();
        self.part_offset = self.taken.bytes;
        match self.read_array()? {
            [RECORD] => self.read_record(payload).map(|()| true),
            [FOOTER] => self.read_footer().map(|()| false),
            _ => Err(self.fault(SnapshotFault::Checksum)),
        }
    }

    fn read_record(&mut self, payload: &mut Vec<u8>) -> Result<(), SnapshotError> {
        let head: [u8; RECORD_HEAD_BYTES - 1] = self.read_array()?;
        let length = u64::from_le_bytes(array_at(&head, 0));
        let checksum: [u8; 4] = array_at(&head, 8);
        // `payload` grows with the bytes that are read, so that a wrong length allocates no memory.
        let read = (&mut self.from).take(length).read_to_end(payload);
        let read = read.map_err(|error| self.fault(SnapshotFault::Io(error)))? as u64;
        self.taken.bytes += read;
        if read < length {
            return Err(self.fault(SnapshotFault::Short));
        }
        if record_checksum(length, payload).to_le_bytes() != checksum {
            return Err(self.fault(SnapshotFault::Checksum));
        }
        self.sums.update(&checksum);
        self.taken.keys += 1;
        Ok(())
    }

    fn read_footer(&mut self) -> Result<(), SnapshotError> {
        let rest: [u8; FOOTER_BYTES - 1] = self.read_array()?;
        let (content, checksum) = rest.split_at(FOOTER_BYTES - 5);
        let mut sum = crc32fast::Hasher::new();
        sum.update(&[FOOTER]);
        sum.update(content);
        if sum.finalize().to_le_bytes() != *checksum {
            return Err(self.fault(SnapshotFault::Checksum));
        }
        let sums = self.sums.clone().finalize();
        if content[..8] != self.taken.keys.to_le_bytes() || content[8..] != sums.to_le_bytes() {
            return Err(self.fault(SnapshotFault::Records));
        }
        let mut excess = Vec::new();
        let read = (&mut self.from).take(1).read_to_end(&mut excess);
        match read.map_err(|error| self.fault(SnapshotFault::Io(error)))? {
            0 => Ok(()),
            _ => Err(self.fault(SnapshotFault::Excess)),
        }
    }

    fn read_array<const N: usize>(&mut self) -> Result<[u8; N], SnapshotError> {
        let mut array = [0; N];
        match self.from.read_exact(&mut array) {
            Ok(()) => {
                self.taken.bytes += N as u64;
                Ok(array)
            }
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                Err(self.fault(SnapshotFault::Short))
            }
            Err(error) => Err(self.fault(SnapshotFault::Io(error))),
        }
    }

    #[cold]
    fn fault(&self, what: SnapshotFault) -> SnapshotError {
        SnapshotError { offset: self.part_offset, what }
    }
}

fn array_at<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    *bytes[at..].first_chunk().expect("the caller passes enough bytes")
}
