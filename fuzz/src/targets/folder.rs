//! Damaged data folders: checking, opening and salvaging them ends in an error or in sound data.

use std::collections::BTreeMap;
use std::sync::Arc;

use millstream_server::fuzzing::Choices;
use millstream_store::fuzzing::{Folder, check_store, contents, repair_checksums};
use millstream_store::{ManualClock, SetExpiry, SetIf};

use super::commands::run_commands;

/// Maximum number of places that are damaged.
const DAMAGES_MAX: usize = 4;

pub(crate) fn run(input: &[u8]) -> usize {
    // The first part of the input chooses the damage, the rest the commands.
    let (damage, commands) = input.split_at(input.len().min(24));
    let mut choices = Choices::of_input(damage);
    let folder = Folder::of(&BTreeMap::new());
    let (store, bytes) = run_commands(&folder, &mut Choices::of_input(commands));
    if choices.below(2) == 1 {
        store.take_snapshot().expect("the disk works");
        let mut txn = store.lock_all(0, store.now_ms());
        txn.set(b"later", b"1", SetIf::Always, SetExpiry::Never);
    }
    store.close().expect("the disk works");
    let before = contents(&store);
    drop(store);
    let mut files = folder.files();
    let count = choices.below(DAMAGES_MAX + 1);
    (0..count).for_each(|_| damage_files(&mut files, &mut choices));

    let report = Folder::of(&files).check();
    let opened = Folder::of(&files).open(Arc::new(ManualClock::new(1)));
    if let Ok(store) = &opened {
        check_store(store).expect("a folder that can be opened has sound data");
    }
    if count == 0 {
        let store = opened.as_ref().expect("an undamaged folder can be opened");
        assert_eq!(contents(store), before, "an undamaged folder has other data");
    }
    if report.as_ref().is_ok_and(|report| report.is_sound()) {
        let is_other_store =
            || opened.as_ref().err().is_some_and(|error| error.contains("databases is set to"));
        assert!(opened.is_ok() || is_other_store(), "check finds no damage, but: {:?}", opened.err());
    }
    if let Ok(salvaged) = Folder::of(&files).salvage() {
        let store = salvaged.open(Arc::new(ManualClock::new(1)));
        if let Ok(store) = store {
            check_store(&store).expect("salvaged data is sound");
        }
    }
    bytes + files.values().map(Vec::len).sum::<usize>()
}

/// Damages one file, or removes or exchanges files.
fn damage_files(files: &mut BTreeMap<String, Vec<u8>>, choices: &mut Choices<'_>) {
    let names: Vec<String> = files.keys().cloned().collect();
    if names.is_empty() {
        return;
    }
    let name = choices.pick(&names).clone();
    let kind = choices.below(16);
    if kind == 0 {
        files.remove(&name);
        return;
    }
    if kind == 1 {
        let other = choices.pick(&names);
        let content = files[other].clone();
        files.insert(name, content);
        return;
    }
    let Some(bytes) = files.get_mut(&name) else { return };
    let at = match choices.below(2) {
        // Headers are near the beginning.
        0 => choices.below(128).min(bytes.len()),
        _ => choices.below(bytes.len() + 1),
    };
    match kind {
        2 => bytes.truncate(at),
        3 => bytes.insert(at, choices.below(256) as u8),
        4 => bytes.extend([0; 40]),
        5 | 6 => {
            let number: u64 =
                *choices.pick(&[0, 1, 2, u64::MAX, 1 << 62, (1 << 62) + 1, 1 << 32, 0xffff_ffff]);
            let end = (at & !7) + 8;
            if end <= bytes.len() {
                bytes[at & !7..end].copy_from_slice(&number.to_le_bytes());
            }
        }
        7 if at < bytes.len() => {
            let end = (at + 1 + choices.below(64)).min(bytes.len());
            bytes.drain(at..end);
        }
        8..12 if at < bytes.len() => bytes[at] ^= 1 << choices.below(8),
        _ if at < bytes.len() => bytes[at] = choices.below(256) as u8,
        _ => {}
    }
    match choices.below(4) {
        0 => {}
        1 => repair_checksums(&name, bytes, false),
        _ => repair_checksums(&name, bytes, true),
    }
}
