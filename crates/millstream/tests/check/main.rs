//! `millstream check` on folders that are sound, torn, damaged or in use: what it says, how it exits, and that what it saves
//! opens again.

mod folder;

use crate::folder::{Files, Folder, Told};

/// Where in this segment its last frame begins.
fn last_record(bytes: &[u8]) -> usize {
    let (mut at, mut last) = (64, 64);
    while at < bytes.len() {
        last = at;
        at += 32 + u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
    }
    last
}

fn segments(files: &Files) -> Vec<String> {
    files.keys().filter(|name| name.starts_with("log-")).cloned().collect()
}

fn snapshot(files: &Files) -> String {
    files.keys().find(|name| name.starts_with("snapshot-")).unwrap().clone()
}

/// Checks a folder, which changes nothing and ends with this code.
fn check(folder: &Folder, code: i32) -> Told {
    let before = folder.files();
    let told = folder.run(&[], code);
    assert_eq!(folder.files(), before, "checking changed something");
    told
}

/// Salvages a folder: that ends with this code, changes nothing, and what it wrote is sound.
fn salvage(folder: &Folder, code: i32) -> (Told, Folder) {
    let (before, out) = (folder.files(), Folder::new());
    let told = folder.run(&["--salvage", out.path()], code);
    assert_eq!(folder.files(), before, "salvaging changed something");
    check(&out, 0).has("verdict     sound");
    (told, out)
}

#[test]
fn a_sound_folder() {
    let folder = Folder::of(&folder::worked(70, true));
    let told = check(&folder, 0);
    told.has("verdict     sound")
        .has("last position 70")
        .has("3 keys; 1 stream with 70 entries, 1 group, 70 pending");
    told.has("snapshot-00000000000000000030: 3 of 3 keys intact");
    let (told, out) = salvage(&folder, 0);
    told.has("nothing was lost");
    assert_eq!(out.entries(), 70);
}

#[test]
fn a_folder_without_a_store() {
    let out = Folder::new();
    let foreign = Files::from([("passwd".to_owned(), b"root".to_vec())]);
    for folder in [Folder::of(&Files::new()), Folder::of(&foreign)] {
        check(&folder, 4).has("there is no store in").has("nothing was ever written").lacks("sound");
        folder.run(&["--salvage", out.path()], 4).has("there is no store in");
    }
    Folder::new().run(&[], 4).has("there is no such folder");
    Folder::new().run(&["--salvage", out.path()], 4).has("there is no such folder");
    assert!(!std::path::Path::new(out.path()).exists(), "nothing was saved, and yet there is a folder");
}

#[test]
fn a_torn_tail_is_sound() {
    let mut files = folder::worked(70, false);
    let name = segments(&files).pop().unwrap();
    let bytes = files.get_mut(&name).unwrap();
    let last = last_record(bytes);
    bytes.truncate(last + 30);
    let folder = Folder::of(&files);
    check(&folder, 0)
        .has(&format!("torn tail   30 bytes at offset {last} of "))
        .has("last position 69")
        .has("sound");
    let (told, out) = salvage(&folder, 0);
    told.has("nothing was lost");
    assert_eq!(out.entries(), 69);
}

#[test]
fn a_flipped_bit_in_the_log() {
    let mut files = folder::worked(70, true);
    let name = segments(&files).pop().unwrap();
    let bytes = files.get_mut(&name).unwrap();
    let last = last_record(bytes);
    bytes[last + 40] ^= 4;
    let folder = Folder::of(&files);
    let told = check(&folder, 5);
    told.has("damaged in 1 place").has(&format!("{name}, offset {last}, position 70")).has("--salvage OUT");
    let (told, out) = salvage(&folder, 5);
    told.has("lost: positions from 70 on");
    assert_eq!(out.entries(), 69);
}

#[test]
fn a_flipped_bit_in_the_snapshot() {
    let mut files = folder::worked(70, true);
    let name = snapshot(&files);
    let bytes = files.get_mut(&name).unwrap();
    let at = bytes.windows(6).position(|bytes| bytes == b"string").unwrap();
    bytes[at] ^= 4;
    let folder = Folder::of(&files);
    check(&folder, 5)
        .has("2 of 3 keys intact")
        .has(&format!("{name}, offset "))
        .has("checksum does not match");
    let (told, out) = salvage(&folder, 5);
    told.has("lost: 1 key of the snapshot");
    assert_eq!(out.entries(), 70);
}

#[test]
fn a_flipped_bit_in_the_manifest() {
    let mut files = folder::worked(70, true);
    files.get_mut("manifest").unwrap()[40] ^= 4;
    let folder = Folder::of(&files);
    check(&folder, 5).has("manifest, offset 0").has("manifest's checksum");
    let (told, out) = salvage(&folder, 0);
    told.has("nothing was lost").has("without the manifest");
    assert_eq!(out.entries(), 70);
}

#[test]
fn a_missing_segment() {
    let mut files = folder::worked(70, true);
    let [.., before, missing, after] = &segments(&files)[..] else { panic!("too few segments") };
    let first = |name: &str| name.rsplit('-').next().unwrap().parse::<u64>().unwrap();
    files.remove(missing);
    let folder = Folder::of(&files);
    let positions = format!("positions {} to {}", first(missing), first(after) - 1);
    check(&folder, 5)
        .has(&format!("{}/, position {}", folder.path(), first(missing)))
        .has(&format!("{positions} of the log are missing, between {before} and {after}"))
        .has("damaged in 1 place")
        .lacks("offset");
    folder
        .refuse()
        .has(&format!(": {positions} of the log are missing, between {before} and {after}."))
        .has(&format!("`millstream check {} --salvage OUT`", folder.path()))
        .has_once("was changed")
        .lacks("is damaged");
    let (told, out) = salvage(&folder, 5);
    told.has(&format!("lost: {positions} ({}/: {positions}", folder.path()));
    assert_eq!(out.entries(), 70 - (first(after) - first(missing)));
}

#[test]
fn a_foreign_segment() {
    let mut files = folder::worked(70, true);
    let foreign = folder::worked(70, true);
    let name = segments(&files)[2].clone();
    files.insert(name.clone(), foreign[&name].clone());
    let folder = Folder::of(&files);
    check(&folder, 5).has(&format!("{name}, offset 0")).has("belongs to another store");
    let (told, out) = salvage(&folder, 5);
    told.has("lost: positions ");
    assert!(out.entries() < 70 && out.entries() > 40);
}

#[test]
fn a_folder_in_use_is_read_all_the_same() {
    let folder = Folder::of(&folder::worked(70, true));
    let store = folder.open();
    let told = folder.run(&[], 0);
    told.has(&format!("in use      by pid {}", std::process::id())).has("sound");
    drop(store);
    check(&folder, 0).lacks("in use");
}

#[test]
fn json_tells_the_same() {
    let mut files = folder::worked(70, true);
    files.get_mut("manifest").unwrap()[40] ^= 4;
    let folder = Folder::of(&files);
    let told = folder.run(&["--json"], 5);
    told.has("\"sound\":false").has("\"manifest\":null").has("\"entries\":70").has("\"way_out\":\"");
    let sound = Folder::of(&folder::worked(70, true));
    sound.run(&["--json"], 0).has("\"sound\":true").has("\"damage\":[]").has("\"last\":70");
}

#[test]
fn what_cannot_be_done_is_refused() {
    let folder = Folder::of(&folder::worked(70, true));
    folder.run(&["--salvage", folder.path()], 1).has("it is not empty");
    folder.run(&["--salvage", &format!("{}/out", folder.path())], 1).has("name one elsewhere");
    folder.run(&["--no-such-flag"], 2);
}
