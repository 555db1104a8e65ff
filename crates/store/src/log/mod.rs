//! The log: records with positions, stored in segments and made durable in groups.
//!
//! `docs/format.md` describes the bytes. How to use the log:
//!
//! 1. [`Recovery::begin`] locks the folder and reads the manifest, which names the current snapshot.
//! 2. [`Recovery::open`] reads all records, passes each to a visitor and finds the end of the log. Only then does it
//!    repair the last segment and open the log for appending.
//! 3. [`Log::append`] assigns a position to a record and keeps the record in memory. [`Log::commit`] writes and syncs
//!    everything appended so far. Records up to [`Log::durable`] survive a power cut. With [`Policy::Always`], the
//!    server must not acknowledge later records yet.
//! 4. [`Log::read_from`] reads records of the open log, those not yet on disk included.
//! 5. [`Log::release_before`] makes a snapshot current and removes the segments that it covers and that no reader
//!    needs. [`Log::close`] closes the log.
//!
//! The log knows bytes and positions. It does not know streams, keys or the meaning of a payload.

mod flush;
mod frame;
mod gap;
mod manifest;
mod order;
mod presence;
mod reader;
mod recover;
mod salvage;
mod scan;
mod segment;
mod stats;
/// What the fuzzer needs to make checksums right.
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing {
    pub(crate) use super::frame::{HEADER_BYTES as FRAME_HEADER_BYTES, Salt};
    pub(crate) use super::manifest::NAME as MANIFEST;
    pub(crate) use super::segment::HEADER_BYTES as SEGMENT_HEADER_BYTES;

    pub(crate) fn is_segment(name: &str) -> bool {
        super::segment::first_of(name).is_some()
    }
}
#[cfg(test)]
pub(crate) mod tests;
mod writer;

use std::fmt;
use std::path::Path;

use crate::disk::{Disk, DiskError};

pub use gap::Gap;
pub use manifest::Manifest;
pub(crate) use manifest::{CLOSED_NAME as CLOSED_MANIFEST, NEW_NAME as NEW_MANIFEST};
pub use order::MisnamedSegment;
pub use presence::FolderLoss;
pub use reader::{LogReader, PositionedRecord, ReadError};
pub use recover::{OpenReport, Opened, Recovery};
pub(crate) use salvage::segment_headers;
pub use salvage::{Loss, Salvage, SalvageTarget, salvage};
pub use scan::{Scan, TornTail};
pub use stats::{LogStats, SYNC_BOUNDS_US};
pub use writer::Log;

/// Returns true if this is the name of a manifest, of its copy or of a segment. Their presence shows that a folder
/// contains a store.
pub(crate) fn is_store_file(name: &str) -> bool {
    [manifest::NAME, manifest::CLOSED_NAME].contains(&name) || segment::first_of(name).is_some()
}

/// Highest position that a file of the folder may state. A higher one is damage.
///
/// A log that appends a thousand million records per second gets there after 146 years. The limit keeps arithmetic on
/// positions from overflowing.
pub(crate) const POSITION_MAX: u64 = 1 << 62;

/// Default of [`LogOptions::change_bytes_max`]. Any stream entry fits.
///
/// A record can be larger than what was checked: encoding adds to it, a record can begin with other changes, and some
/// changes contain ids that are not arguments of a command. So the limit is less than half of what a record can have.
pub const CHANGE_BYTES_MAX: u64 = 5 << 28;

/// Settings of a log.
pub struct LogOptions {
    /// Size at which a segment is full and the next one begins.
    pub segment_bytes: u64,
    /// When the log syncs records.
    pub policy: Policy,
    /// Maximum bytes of one change: [`Log::check_space`] refuses larger ones. At least 1 MiB.
    pub change_bytes_max: u64,
    /// Free disk space that the log leaves untouched: it refuses writes that would leave less.
    pub reserve_bytes: u64,
    /// Whether the store of a new folder is empty when its log begins. The folder records it.
    pub begins_empty: bool,
    /// Source of the store id and of the salts. Must be unpredictable in production.
    pub random: Box<dyn FnMut() -> u64 + Send>,
}

impl LogOptions {
    /// Returns the defaults: segments of 64 MiB, sync policy `always`, 8 MiB of disk space kept free.
    pub fn new(random: impl FnMut() -> u64 + Send + 'static) -> LogOptions {
        LogOptions {
            segment_bytes: 64 << 20,
            policy: Policy::Always,
            change_bytes_max: CHANGE_BYTES_MAX,
            reserve_bytes: 8 << 20,
            begins_empty: true,
            random: Box::new(random),
        }
    }
}

/// When the log syncs records (`appendfsync`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// Before the server acknowledges them.
    Always,
    /// Once a second.
    EverySecond,
    /// When the operating system decides, and always at the end of a segment.
    Never,
}

/// Callback that receives the position and the payload of each record. If it returns an error, reading stops.
pub type Visit<'v> = dyn FnMut(u64, &[u8]) -> Result<(), String> + 'v;

/// Sixteen random bytes that identify a store. Its manifest, segments and snapshots contain them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreId(pub [u8; 16]);

/// Why the log did not accept a record, or did not make it durable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogError {
    /// A disk operation failed. This is final, because the process cannot know what reached the disk.
    Failed(DiskError),
    /// The disk has too little free space. No data is lost, and the operation can succeed later.
    Full(String),
    /// A file of the folder is missing, so a restart would not find the data. The operation can succeed once it is
    /// back.
    FolderLost(FolderLoss),
    /// The process has no file descriptor left to open a file. No data is lost, and the operation can succeed later.
    Exhausted(String),
    /// The payload is longer than a record can be. This is final, because the change is applied already.
    TooLarge(usize),
    /// A change was refused before it was applied, because its record could become too large.
    ChangeTooLarge {
        /// The size of the change.
        bytes: u64,
        /// The maximum size of a change.
        max: u64,
    },
    /// [`Log::close`] was called.
    Closed,
}

impl fmt::Display for LogError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LogError::Failed(error) => write!(
                f,
                "{error}; it is unknown what reached the disk, so nothing more is acknowledged until a restart"
            ),
            LogError::Full(what) => write!(f, "no space left: {what}; free disk space to allow writes again"),
            LogError::FolderLost(loss) => loss.fmt(f),
            LogError::Exhausted(what) => write!(f, "{what}; the log tries again later"),
            LogError::TooLarge(bytes) => {
                write!(f, "a transaction of {bytes} bytes is too large for one record of the log")
            }
            LogError::ChangeTooLarge { bytes, max } => write!(
                f,
                "a command or transaction can change at most {max} bytes, and this one changes {bytes}; split it"
            ),
            LogError::Closed => write!(f, "the log is closed"),
        }
    }
}

impl std::error::Error for LogError {}

/// Why a folder was not opened. Opening changed nothing in it, unless creating or repairing the log failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OpenError {
    /// An operation of the disk failed.
    Disk(DiskError),
    /// The content of a file is not what the store wrote.
    Damage(Damage),
}

impl From<DiskError> for OpenError {
    fn from(error: DiskError) -> OpenError {
        OpenError::Disk(error)
    }
}

impl From<Damage> for OpenError {
    fn from(damage: Damage) -> OpenError {
        OpenError::Damage(damage)
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OpenError::Disk(error) => error.fmt(f),
            OpenError::Damage(damage) => damage.fmt(f),
        }
    }
}

impl std::error::Error for OpenError {}

/// A place where the content of a file is not what the store wrote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// Path of the damaged file. If a segment is missing: path of the segment after it, or its own if none follows.
    pub file: String,
    /// Offset in the file.
    pub offset: u64,
    /// First position that cannot be read.
    pub position: u64,
    /// The kind of damage.
    pub what: DamageKind,
}

impl Damage {
    /// Returns damage to the manifest as a whole.
    pub(crate) fn of_manifest(disk: &dyn Disk, what: DamageKind) -> Damage {
        Damage { file: disk.path_of(manifest::NAME), offset: 0, position: 0, what }
    }
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Damage { file, offset, position, what } = self;
        match what {
            // A missing segment is not damage to the file that follows it.
            DamageKind::SegmentMissing(_) => write!(f, "{what}")?,
            _ => write!(f, "{file} is damaged at offset {offset} (position {position}): {what}")?,
        }
        let folder = Path::new(file).parent().filter(|folder| *folder != Path::new(""));
        let folder = folder.unwrap_or(Path::new(".")).display();
        write!(
            f,
            ". `millstream check {folder} --salvage OUT` copies everything that is intact to a new folder OUT"
        )
    }
}

/// The kinds of damage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DamageKind {
    /// The folder has segments or snapshots, but no manifest.
    ManifestMissing,
    /// The manifest has a wrong size, magic or checksum, or invalid contents.
    ManifestDamaged,
    /// The manifest belongs to another store than all segments and snapshots of the folder.
    ManifestForeign,
    /// A newer version of Millstream wrote the file.
    UnknownVersion(u32),
    /// Some of the positions that are needed are in no segment.
    SegmentMissing(Box<Gap>),
    /// The segment header has a wrong magic or checksum.
    SegmentHeaderDamaged,
    /// The segment belongs to another store.
    SegmentForeign,
    /// The segment begins before the previous segment ends.
    SegmentMisplaced {
        /// The position at which it begins.
        found: u64,
    },
    /// The segment does not begin at the position in its file name.
    SegmentMisnamed {
        /// The position at which it begins.
        found: u64,
    },
    /// The segment also exists under another name.
    SegmentRepeated {
        /// The other name.
        of: String,
    },
    /// The segment does not continue the records before it.
    SegmentNotContinuing,
    /// The file ends inside a record that was durable.
    RecordCutShort,
    /// The header of a frame that was durable has a wrong checksum.
    RecordHeaderDamaged,
    /// A frame that was durable has a wrong checksum.
    RecordDamaged,
    /// A frame has another position than expected.
    RecordMisplaced {
        /// Its position.
        found: u64,
    },
    /// The frame does not continue the frame before it.
    RecordNotContinuing,
    /// The log ends before a position that was durable.
    RolledBack {
        /// The position that was durable.
        durable: u64,
    },
    /// The checksum of a record is correct, but its payload cannot be read or applied.
    Payload(String),
}

impl fmt::Display for DamageKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DamageKind::ManifestMissing => {
                write!(f, "the manifest is missing, although the folder has other files of a store")
            }
            DamageKind::ManifestDamaged => write!(f, "the manifest's checksum or contents are wrong"),
            DamageKind::ManifestForeign => f.write_str(
                "the manifest belongs to another store than the segments and snapshots of this folder",
            ),
            DamageKind::UnknownVersion(version) => {
                write!(
                    f,
                    "unknown format version {version}; use the version of Millstream that wrote the file"
                )
            }
            DamageKind::SegmentMissing(gap) => gap.fmt(f),
            DamageKind::SegmentHeaderDamaged => write!(f, "the segment's header is damaged"),
            DamageKind::SegmentForeign => write!(f, "the segment belongs to another store"),
            DamageKind::SegmentMisplaced { found } => {
                write!(f, "the segment begins at position {found}, which the segment before it also contains")
            }
            DamageKind::SegmentMisnamed { found } => {
                write!(f, "the segment begins at position {found}, but its file name states another position")
            }
            DamageKind::SegmentRepeated { of } => write!(f, "the segment is a copy of {of}"),
            DamageKind::SegmentNotContinuing => {
                write!(f, "the segment does not continue the segment before it; two histories are mixed")
            }
            DamageKind::RecordCutShort => write!(f, "the file ends inside a record that was durable"),
            DamageKind::RecordHeaderDamaged => write!(f, "the header of a durable record is damaged"),
            DamageKind::RecordDamaged => write!(f, "a durable record's checksum is wrong"),
            DamageKind::RecordMisplaced { found } => write!(f, "the record here has position {found}"),
            DamageKind::RecordNotContinuing => {
                write!(f, "the record does not continue the record before it; two histories are mixed")
            }
            DamageKind::RolledBack { durable } => {
                write!(f, "the log ends here, but it was durable up to position {durable}")
            }
            DamageKind::Payload(why) => {
                write!(f, "the record's checksum is correct, but its contents are not valid: {why}")
            }
        }
    }
}
