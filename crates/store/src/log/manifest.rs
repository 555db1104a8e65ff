//! The manifest: 64 bytes that name the current snapshot and the start of the log. Always replaced as a whole.
//!
//! ```text
//! 0       8        12     16         32        40     48       56    60   64
//! | magic | version| flags| store id | snapshot| first| durable| span| crc |
//! ```

use super::{DamageKind, POSITION_MAX, StoreId};
use crate::disk::{Access, Disk, DiskError, read_full, write_full};

/// Name of the manifest.
pub(crate) const NAME: &str = "manifest";
/// Name of a copy of the manifest that exists only while the store is closed. It proves that the log ends at its
/// durable position, and replaces a manifest that is damaged or missing.
pub(crate) const CLOSED_NAME: &str = "manifest.closed";
/// Name of a manifest that is being written.
pub(crate) const NEW_NAME: &str = "manifest.new";

const BYTES: usize = 64;
const MAGIC: [u8; 8] = *b"MILLSMAN";
const VERSION: u32 = 2;
const HAS_SNAPSHOT: u32 = 1;

/// Contents of the manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    /// Random id of the store, generated when the folder was created.
    pub store_id: StoreId,
    /// Position of the current snapshot.
    pub snapshot: Option<u64>,
    /// First record that is still needed; at least 1.
    pub first: u64,
    /// All records up to this position were durable when this manifest was written.
    pub durable: u64,
    /// Upper bound on the number of records appended while the snapshot was taken. `u32::MAX` means that there is none.
    pub span: u32,
}

impl Manifest {
    /// Returns the manifest for this snapshot (or for none) when all records up to `durable` are durable.
    pub(crate) fn new(store_id: StoreId, snapshot: Option<u64>, first: u64, durable: u64) -> Manifest {
        let span = snapshot.map_or(0, |position| durable.saturating_sub(position));
        Manifest { store_id, snapshot, first, durable, span: u32::try_from(span).unwrap_or(u32::MAX) }
    }

    /// Returns the highest stamp that a key of the snapshot can have; 0 without a snapshot.
    ///
    /// A record up to this position can change a key that had been removed when the snapshot captured its slot.
    pub(crate) fn captured_until(&self) -> u64 {
        match (self.snapshot, self.span) {
            (None, _) => 0,
            (Some(_), u32::MAX) => u64::MAX,
            (Some(position), span) => position.saturating_add(u64::from(span)),
        }
    }

    pub(crate) fn encode(&self) -> [u8; BYTES] {
        let mut bytes = [0; BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.snapshot.map_or(0, |_| HAS_SNAPSHOT).to_le_bytes());
        bytes[16..32].copy_from_slice(&self.store_id.0);
        bytes[32..40].copy_from_slice(&self.snapshot.unwrap_or(0).to_le_bytes());
        bytes[40..48].copy_from_slice(&self.first.to_le_bytes());
        bytes[48..56].copy_from_slice(&self.durable.to_le_bytes());
        bytes[56..60].copy_from_slice(&self.span.to_le_bytes());
        let crc = crc32fast::hash(&bytes[..60]);
        bytes[60..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Manifest, DamageKind> {
        let bytes: &[u8; BYTES] = bytes.try_into().map_err(|_| DamageKind::ManifestDamaged)?;
        let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
        let long = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        if bytes[..8] != MAGIC || crc32fast::hash(&bytes[..60]) != word(60) {
            return Err(DamageKind::ManifestDamaged);
        }
        if word(8) != VERSION {
            return Err(DamageKind::UnknownVersion(word(8)));
        }
        let snapshot = match (word(12), long(32)) {
            (0, 0) => None,
            (HAS_SNAPSHOT, position) => Some(position),
            _ => return Err(DamageKind::ManifestDamaged),
        };
        let manifest = Manifest {
            store_id: StoreId(bytes[16..32].try_into().expect("sixteen bytes")),
            snapshot,
            first: long(40),
            durable: long(48),
            span: word(56),
        };
        if manifest.has_possible_positions() { Ok(manifest) } else { Err(DamageKind::ManifestDamaged) }
    }

    fn has_possible_positions(&self) -> bool {
        let highest = self.first.max(self.durable).max(self.snapshot.unwrap_or(0));
        self.first > 0 && highest <= POSITION_MAX
    }

    /// Reads the manifest of a folder, or its copy. The inner error means that its contents are damaged.
    pub(crate) fn read(disk: &dyn Disk, name: &str) -> Result<Result<Manifest, DamageKind>, DiskError> {
        let file = disk.open(name, Access::Read)?;
        // Reads one byte more than expected, to detect a longer file.
        let mut bytes = [0; BYTES + 1];
        let count = read_full(&*file, 0, &mut bytes)?;
        Ok(Manifest::decode(&bytes[..count]))
    }

    /// Makes this the manifest of the folder. It is durable once the folder is synced.
    ///
    /// Until then, a crash can leave the old or the new one. After an error the old manifest is still current, unless
    /// the rename failed.
    pub(crate) fn install(&self, disk: &dyn Disk) -> Result<(), DiskError> {
        self.write_as(disk, NEW_NAME)?;
        disk.rename(NEW_NAME, NAME)
    }

    /// Writes the copy that marks the store as closed. Nothing may be appended from then on.
    pub(crate) fn mark_closed(&self, disk: &dyn Disk) -> Result<(), DiskError> {
        self.write_as(disk, CLOSED_NAME)?;
        disk.sync_dir()
    }

    fn write_as(&self, disk: &dyn Disk, name: &str) -> Result<(), DiskError> {
        if disk.list()?.iter().any(|listed| listed.name == name) {
            disk.remove(name)?;
        }
        let file = disk.create(name)?;
        write_full(&*file, 0, &self.encode())?;
        file.sync()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest() -> Manifest {
        Manifest { store_id: StoreId([7; 16]), snapshot: Some(41), first: 42, durable: 50, span: 7 }
    }

    #[test]
    fn encoded_manifest_decodes_to_itself() {
        let none = Manifest { snapshot: None, first: 1, durable: 0, span: 0, ..manifest() };
        assert_eq!(Manifest::decode(&manifest().encode()), Ok(manifest()));
        assert_eq!(Manifest::decode(&none.encode()), Ok(none));
    }

    #[test]
    fn impossible_positions_are_damage() {
        let cases = |position| {
            [
                Manifest { first: position, ..manifest() },
                Manifest { durable: position, ..manifest() },
                Manifest { snapshot: Some(position), ..manifest() },
            ]
        };
        for possible in cases(POSITION_MAX) {
            assert_eq!(Manifest::decode(&possible.encode()), Ok(possible));
        }
        for impossible in [POSITION_MAX + 1, u64::MAX - 1, u64::MAX].into_iter().flat_map(cases) {
            assert_eq!(Manifest::decode(&impossible.encode()), Err(DamageKind::ManifestDamaged));
        }
    }

    #[test]
    fn captured_positions_end_at_the_durable_position() {
        let taken =
            |snapshot, durable| Manifest::new(StoreId([7; 16]), snapshot, 42, durable).captured_until();
        assert_eq!(taken(None, 50), 0);
        assert_eq!(taken(Some(41), 41), 41);
        assert_eq!(taken(Some(41), 50), 50);
        assert_eq!(taken(Some(41), 41 + u64::from(u32::MAX)), u64::MAX);
    }

    #[test]
    fn truncations_and_flipped_bits_are_detected() {
        let bytes = manifest().encode();
        for cut in 0..BYTES {
            assert_eq!(Manifest::decode(&bytes[..cut]), Err(DamageKind::ManifestDamaged), "cut at {cut}");
        }
        for bit in 0..BYTES * 8 {
            let mut damaged = bytes;
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Manifest::decode(&damaged), Err(DamageKind::ManifestDamaged), "bit {bit}");
        }
        assert_eq!(Manifest::decode(&[&bytes[..], b"x"].concat()), Err(DamageKind::ManifestDamaged));
    }

    #[test]
    fn newer_version_is_reported_as_unknown_not_as_damage() {
        let mut bytes = manifest().encode();
        bytes[8] = 9;
        let crc = crc32fast::hash(&bytes[..60]);
        bytes[60..].copy_from_slice(&crc.to_le_bytes());
        assert_eq!(Manifest::decode(&bytes), Err(DamageKind::UnknownVersion(9)));
    }
}
