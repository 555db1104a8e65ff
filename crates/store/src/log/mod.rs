//! The log: records with positions, in segments, made durable in groups. The bytes are those of `docs/format.md`.
//!
//! How to drive it:
//!
//! 1. [`Recovery::begin`] locks the folder and reads the manifest: which snapshot is in force.
//! 2. [`Recovery::open`] walks through the records, hands each to a visitor, decides what the end of the log is, and only
//!    then repairs and opens it.
//! 3. [`Log::append`] gives a record its position; it is in memory. [`Log::commit`] writes and syncs everything appended
//!    so far. What is covered by [`Log::durable`] survives a power cut; nothing else may be told to anybody.
//! 4. [`Log::release_before`] brings a snapshot into force and removes the segments it covers; [`Log::close`] ends it.
//!
//! The log knows bytes and positions. It does not know streams, keys or what a payload means.

mod flush;
mod frame;
mod gap;
mod manifest;
mod order;
mod recover;
mod salvage;
mod scan;
mod segment;
mod stats;
#[cfg(test)]
pub(crate) mod tests;
mod writer;

use std::fmt;
use std::path::Path;

use crate::disk::{Disk, DiskError};

pub use gap::Gap;
pub use manifest::Manifest;
pub(crate) use manifest::NEW_NAME as NEW_MANIFEST;
pub use order::Astray;
pub use recover::{OpenReport, Opened, Recovery};
pub(crate) use salvage::segment_owners;
pub use salvage::{Loss, Salvage, Wanted, salvage};
pub use scan::{Scan, Torn};
pub use stats::LogStats;
pub use writer::Log;

/// Whether a file of this name in a folder means that there is a store: its manifest or a segment of its log.
pub(crate) fn holds_data(name: &str) -> bool {
    name == manifest::NAME || segment::first_of(name).is_some()
}

/// How a log is to behave.
pub struct LogOptions {
    /// A segment that has reached this size is followed by a new one.
    pub segment_bytes: u64,
    /// When records are synced.
    pub policy: Policy,
    /// Writes are refused when less than this would be free.
    pub reserve_bytes: u64,
    /// Where the store id and the salts come from. Must be unpredictable in production.
    pub random: Box<dyn FnMut() -> u64 + Send>,
}

impl LogOptions {
    /// 64 MiB segments, `always`, 8 MiB kept free.
    pub fn new(random: impl FnMut() -> u64 + Send + 'static) -> LogOptions {
        LogOptions {
            segment_bytes: 64 << 20,
            policy: Policy::Always,
            reserve_bytes: 8 << 20,
            random: Box::new(random),
        }
    }
}

/// When records are synced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// Before anything that depends on them is told.
    Always,
    /// Once a second.
    EverySecond,
    /// When the system likes; at the end of a segment at the latest.
    Never,
}

/// Takes a record's position and payload; an error ends the walk.
pub type Visit<'v> = dyn FnMut(u64, &[u8]) -> Result<(), String> + 'v;

/// Sixteen random bytes that tell one store's files from another's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreId(pub [u8; 16]);

/// Why the log did not take or keep something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogError {
    /// An earlier write or sync failed. Final: this process cannot know what is on the disk.
    Failed(DiskError),
    /// There is no room. Nothing is lost; it may work later.
    Full(String),
    /// No file could be opened, for want of descriptors. Nothing is lost; it may work later.
    Exhausted(String),
    /// The payload is longer than a record can be.
    TooLarge(usize),
    /// [`Log::close`] was called.
    Closed,
}

impl fmt::Display for LogError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LogError::Failed(error) => write!(
                f,
                "{error}; what is on the disk is no longer known, so nothing is acknowledged until a restart"
            ),
            LogError::Full(what) => write!(f, "no space left: {what}; free some and writes will go on"),
            LogError::Exhausted(what) => write!(f, "{what}; it is tried again"),
            LogError::TooLarge(bytes) => write!(f, "a change of {bytes} bytes is too large for one record"),
            LogError::Closed => write!(f, "the log is closed"),
        }
    }
}

impl std::error::Error for LogError {}

/// Why a folder was not opened. Nothing in it was changed, except where a repair itself failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OpenError {
    /// The disk would not.
    Disk(DiskError),
    /// The contents are not what was once written.
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

/// Where something is not what was written, and what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// The path of the file; of that behind them if records are missing.
    pub file: String,
    /// Where in the file.
    pub offset: u64,
    /// The first position that cannot be read.
    pub position: u64,
    /// What is wrong.
    pub what: DamageKind,
}

impl Damage {
    /// Of the manifest as a whole.
    pub(crate) fn of_manifest(disk: &dyn Disk, what: DamageKind) -> Damage {
        Damage { file: disk.path_of(manifest::NAME), offset: 0, position: 0, what }
    }
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Damage { file, offset, position, what } = self;
        match what {
            // What is there is not to blame for what is not.
            DamageKind::SegmentMissing(_) => write!(f, "{what}")?,
            _ => write!(f, "{file} is damaged at offset {offset} (position {position}): {what}")?,
        }
        let folder = Path::new(file).parent().filter(|folder| *folder != Path::new(""));
        let folder = folder.unwrap_or(Path::new(".")).display();
        write!(f, ". `millstream check {folder} --salvage OUT` saves what can be saved")
    }
}

/// What is wrong with a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DamageKind {
    /// There are segments or snapshots, and no manifest.
    ManifestMissing,
    /// Wrong size, magic, checksum or contents.
    ManifestDamaged,
    /// The manifest is of another store than all segments and snapshots.
    ManifestForeign,
    /// Written by a program that knows more than this one.
    UnknownVersion(u32),
    /// No segment has some positions that are needed.
    SegmentMissing(Box<Gap>),
    /// Wrong magic or checksum.
    SegmentHeaderDamaged,
    /// The segment is of another store.
    SegmentForeign,
    /// The segment begins before the one before ends.
    SegmentMisplaced {
        /// Where it begins.
        found: u64,
    },
    /// The segment does not begin where its name says.
    SegmentMisnamed {
        /// Where it begins.
        found: u64,
    },
    /// The segment is there under another name, too.
    SegmentRepeated {
        /// That name.
        of: String,
    },
    /// The segment follows other records than those before it.
    SegmentNotContinuing,
    /// The file ends within a record that was durable.
    RecordCutShort,
    /// A header with a wrong checksum, of a record that was durable.
    RecordHeaderDamaged,
    /// A record with a wrong checksum that was durable.
    RecordDamaged,
    /// A record stands where another belongs.
    RecordMisplaced {
        /// Its position.
        found: u64,
    },
    /// The record follows another one than that before it.
    RecordNotContinuing,
    /// The log ends before a position that was durable.
    RolledBack {
        /// That position.
        durable: u64,
    },
    /// The payload of an intact record makes no sense to the reader.
    Payload(String),
}

impl fmt::Display for DamageKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DamageKind::ManifestMissing => write!(f, "the manifest is missing beside other files of a store"),
            DamageKind::ManifestDamaged => write!(f, "the manifest's checksum or contents are wrong"),
            DamageKind::ManifestForeign => {
                write!(f, "the manifest belongs to another store than the segments and snapshots beside it")
            }
            DamageKind::UnknownVersion(version) => {
                write!(f, "format version {version} is not known here; use the program that wrote it")
            }
            DamageKind::SegmentMissing(gap) => gap.fmt(f),
            DamageKind::SegmentHeaderDamaged => write!(f, "the segment's header is damaged"),
            DamageKind::SegmentForeign => write!(f, "the segment belongs to another store"),
            DamageKind::SegmentMisplaced { found } => {
                write!(f, "the segment begins at position {found}, which the one before has, too")
            }
            DamageKind::SegmentMisnamed { found } => {
                write!(f, "the segment begins at position {found}, not where its name says")
            }
            DamageKind::SegmentRepeated { of } => write!(f, "the segment is a copy of {of}"),
            DamageKind::SegmentNotContinuing => {
                write!(f, "the segment continues a different log than this one")
            }
            DamageKind::RecordCutShort => write!(f, "the file ends within a record that was durable"),
            DamageKind::RecordHeaderDamaged => write!(f, "the header of a durable record is damaged"),
            DamageKind::RecordDamaged => write!(f, "a durable record's checksum is wrong"),
            DamageKind::RecordMisplaced { found } => write!(f, "the record of position {found} stands here"),
            DamageKind::RecordNotContinuing => {
                write!(f, "the record continues a different log than this one")
            }
            DamageKind::RolledBack { durable } => {
                write!(f, "the log ends here, but was durable up to position {durable}")
            }
            DamageKind::Payload(why) => {
                write!(f, "the record is intact, but its contents make no sense: {why}")
            }
        }
    }
}
