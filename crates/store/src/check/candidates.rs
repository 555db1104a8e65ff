//! Finds the states from which the data of a folder can be rebuilt, and what the folder proves about each of them.
//!
//! - A snapshot: its data is complete if every key of it is intact, and every record after its position. The footer
//!   proves it: only a finished snapshot has one.
//! - An empty store: its data is complete if every record from position 1 on is intact. A manifest without a snapshot
//!   proves it, or the mark in the first segment.
//!
//! Without that proof, a log from position 1 can follow a snapshot at position 0: salvaged data begins like this.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::disk::{Access, Disk, DiskError, Listed};
use crate::log::{self, Damage, DamageKind, Manifest, OpenError, Recovery, SalvageTarget, StoreId};
use crate::snapshot::{self, snapshot_header};

#[derive(Clone, Copy, Debug)]
pub(super) struct Base {
    /// Position in the name of the snapshot; `None` starts with an empty store.
    pub(super) snapshot: Option<u64>,
    pub(super) wanted: SalvageTarget,
    /// Whether the manifest, or its copy, names this base.
    pub(super) is_named: bool,
    /// For an empty store: whether the folder proves that it was empty.
    pub(super) is_proved_empty: bool,
}

pub(super) struct Candidates {
    /// `Ok(None)` in a new folder. An error if the manifest is damaged, or if it belongs to a different store than all
    /// other files.
    pub(super) manifest: Result<Option<Manifest>, Damage>,
    /// The manifest, or its copy if the manifest is unusable.
    pub(super) named: Option<Manifest>,
    /// Position at which the log ended when the store was closed, if the copy of the manifest states it.
    pub(super) closed_at: Option<u64>,
    /// Possible bases, best first; never empty.
    pub(super) bases: Vec<Base>,
    /// True if the manifests are unusable and the other files belong to several stores.
    pub(super) is_mixed: bool,
}

struct SnapshotFile {
    named: u64,
    /// Store id and position in its header, if the header is intact.
    header: Option<([u8; 16], u64)>,
}

impl Candidates {
    pub(super) fn find(disk: &Arc<dyn Disk>) -> Result<Candidates, DiskError> {
        let mut manifest = match Recovery::inspect(Arc::clone(disk)) {
            Ok(recovery) => Ok(recovery.manifest().cloned()),
            Err(OpenError::Damage(damage)) => Err(damage),
            Err(OpenError::Disk(error)) => return Err(error),
        };
        let listed = disk.list()?;
        let segments = log::segment_headers(&**disk)?;
        let snapshots = snapshots_of(&**disk, &listed);
        let in_segments = segments.iter().filter_map(|(_, header)| Some(header.as_ref()?.store_id));
        let in_snapshots = snapshots.iter().filter_map(|file| Some(StoreId(file.header?.0)));
        let ids: Vec<StoreId> = in_segments.chain(in_snapshots).collect();
        // A manifest of another store does not describe this folder. But if no other file has a store id, the
        // manifest is trusted.
        let is_foreign = |manifest: &Manifest| !ids.is_empty() && !ids.contains(&manifest.store_id);
        if manifest.as_ref().is_ok_and(|found| found.as_ref().is_some_and(is_foreign)) {
            manifest = Err(Damage::of_manifest(&**disk, DamageKind::ManifestForeign));
        }
        let intact = manifest.as_ref().ok().and_then(Option::as_ref);
        // A version that did not know the copy left it behind when it replaced the manifest.
        let closed = closed_of(&**disk, &listed)?
            .filter(|copy| !is_foreign(copy) && intact.is_none_or(|manifest| manifest == copy));
        let named = intact.or(closed.as_ref());
        let store_id = named.map_or_else(|| most_frequent(&ids), |manifest| Some(manifest.store_id));
        let of_this_store = |id: StoreId| store_id.is_none_or(|wanted| id == wanted);
        // Without a manifest, the latest snapshot shows how far the log reached at least.
        let headers = snapshots.iter().filter_map(|file| file.header);
        let taken = headers.filter(|(id, _)| of_this_store(StoreId(*id))).map(|(_, position)| position);
        let durable = match named {
            Some(manifest) => manifest.durable,
            None => taken.filter(|position| *position <= log::POSITION_MAX).max().unwrap_or(0),
        };
        let begins_empty = named.is_some_and(|manifest| manifest.snapshot.is_none())
            || segments.iter().any(|(_, header)| {
                header.as_ref().is_some_and(|header| header.begins_empty() && of_this_store(header.store_id))
            });
        let base = |snapshot: Option<u64>, first: u64| Base {
            snapshot,
            wanted: SalvageTarget { store_id, first, durable },
            is_named: false,
            is_proved_empty: snapshot.is_none() && begins_empty,
        };
        let empty = base(None, 1);
        // All complete bases lead to the same state. Without a manifest, prefer the oldest snapshot, because it
        // certainly was current once.
        let begin = segments.iter().map(|(first, _)| *first).min();
        let is_continued = |base: &&Base| begin.is_some_and(|begin| begin <= base.wanted.first);
        let of_snapshots: Vec<Base> = snapshots
            .iter()
            .map(|file| {
                let position = file.header.map_or(file.named, |(_, position)| position);
                base(Some(file.named), position.saturating_add(1))
            })
            .collect();
        let mut bases: Vec<Base> = named.map(named_base).into_iter().collect();
        bases.extend(begins_empty.then_some(&empty).into_iter().filter(is_continued));
        bases.extend(of_snapshots.iter().filter(is_continued));
        bases.extend(of_snapshots.iter().rev().filter(|base| !is_continued(base)));
        bases.push(empty);
        let is_mixed = named.is_none() && ids.iter().any(|id| !of_this_store(*id));
        let (named, closed_at) = (named.cloned(), closed.map(|copy| copy.durable));
        Ok(Candidates { manifest, named, closed_at, bases, is_mixed })
    }
}

fn named_base(manifest: &Manifest) -> Base {
    let Manifest { store_id, snapshot, first, durable, .. } = *manifest;
    let wanted = SalvageTarget { store_id: Some(store_id), first, durable };
    Base { snapshot, wanted, is_named: true, is_proved_empty: snapshot.is_none() }
}

fn closed_of(disk: &dyn Disk, listed: &[Listed]) -> Result<Option<Manifest>, DiskError> {
    match listed.iter().any(|file| file.name == log::CLOSED_MANIFEST) {
        true => Ok(Manifest::read(disk, log::CLOSED_MANIFEST)?.ok()),
        false => Ok(None),
    }
}

fn snapshots_of(disk: &dyn Disk, listed: &[Listed]) -> Vec<SnapshotFile> {
    let digits = listed.iter().filter_map(|file| file.name.strip_prefix(snapshot::PREFIX));
    let named = digits.filter(|digits| digits.len() == 20).filter_map(|digits| digits.parse().ok());
    named
        .map(|named| {
            let file = disk.open(&snapshot::name(named), Access::Read).ok();
            SnapshotFile { named, header: file.and_then(snapshot_header) }
        })
        .collect()
}

fn most_frequent(ids: &[StoreId]) -> Option<StoreId> {
    let mut counts: BTreeMap<[u8; 16], usize> = BTreeMap::new();
    ids.iter().for_each(|id| *counts.entry(id.0).or_default() += 1);
    counts.into_iter().max_by_key(|(_, count)| *count).map(|(id, _)| StoreId(id))
}
