//! `millstream check` on folders that are sound, torn, damaged or in use: its output, its exit codes, and that
//! salvaged folders can be opened.

mod folder;

use crate::folder::{Files, Folder, Output};

/// Offset of the last frame in a segment.
fn last_frame(bytes: &[u8]) -> usize {
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

/// Checks a folder: asserts the exit code, and that the folder does not change.
fn check(folder: &Folder, code: i32) -> Output {
    let before = folder.files();
    let output = folder.run(&[], code);
    assert_eq!(folder.files(), before, "checking changed something");
    output
}

/// Salvages a folder: asserts the exit code, that the folder does not change, and that the salvaged folder is sound.
fn salvage(folder: &Folder, code: i32) -> (Output, Folder) {
    let (before, out) = (folder.files(), Folder::new());
    let output = folder.run(&["--salvage", out.path()], code);
    assert_eq!(folder.files(), before, "salvaging changed something");
    check(&out, 0).contains("verdict     sound");
    (output, out)
}

#[test]
fn check_passes_a_sound_folder() {
    let folder = Folder::of(&folder::filled(70, true));
    let output = check(&folder, 0);
    output
        .contains("verdict     sound")
        .contains("last position 70")
        .contains("3 keys; 1 stream with 70 entries, 1 group, 70 pending");
    output.contains("snapshot-00000000000000000030: 3 of 3 keys intact");
    let (output, out) = salvage(&folder, 0);
    output.contains("nothing was lost");
    assert_eq!(out.entries(), 70);
}

#[test]
fn check_reports_a_folder_without_a_store() {
    let out = Folder::new();
    let foreign = Files::from([("passwd".to_owned(), b"root".to_vec())]);
    for folder in [Folder::of(&Files::new()), Folder::of(&foreign)] {
        check(&folder, 4)
            .contains("there is no store in")
            .contains("it contains no files of a store")
            .lacks("sound");
        folder.run(&["--salvage", out.path()], 4).contains("there is no store in");
    }
    Folder::new().run(&[], 4).contains("there is no such folder");
    Folder::new().run(&["--salvage", out.path()], 4).contains("there is no such folder");
    assert!(
        !std::path::Path::new(out.path()).exists(),
        "the output folder exists although nothing was salvaged"
    );
}

/// redis-check-aof copied the path into a buffer of fixed size.
#[test]
fn check_accepts_long_paths() {
    let parent = Folder::of(&Files::new());
    // The longest path that the system accepts has 4,095 bytes, including the name of a file in the folder.
    let mut path = parent.path().to_owned();
    while path.len() < 3_900 {
        path.push('/');
        path.push_str(&"x".repeat((3_900 - path.len()).clamp(1, 200)));
    }
    let folder = Folder::at(&path, &folder::filled(70, true));
    check(&folder, 0).contains("verdict     sound");
    let too_long =
        Folder::unused(&format!("{}{}", parent.path(), format!("/{}", "y".repeat(200)).repeat(21)));
    too_long.run(&[], 1).contains("File name too long");
    folder.run(&["--salvage", too_long.path()], 1).contains("File name too long");
}

#[test]
fn check_accepts_a_torn_tail() {
    let mut files = folder::filled(70, false);
    let name = segments(&files).pop().unwrap();
    let bytes = files.get_mut(&name).unwrap();
    let last = last_frame(bytes);
    bytes.truncate(last + 30);
    let folder = Folder::of(&files);
    check(&folder, 0)
        .contains(&format!("torn tail   30 bytes at offset {last} of "))
        .contains("last position 69")
        .contains("sound");
    let (output, out) = salvage(&folder, 0);
    output.contains("nothing was lost up to position 69").contains("does not tell whether records followed");
    assert_eq!(out.entries(), 69);
}

#[test]
fn check_finds_a_flipped_bit_in_the_log() {
    let mut files = folder::filled(70, true);
    let name = segments(&files).pop().unwrap();
    let bytes = files.get_mut(&name).unwrap();
    let last = last_frame(bytes);
    bytes[last + 40] ^= 4;
    let folder = Folder::of(&files);
    let output = check(&folder, 5);
    output
        .contains("damaged in 1 place")
        .contains(&format!("{name}, offset {last}, position 70"))
        .contains("--salvage OUT");
    let (output, out) = salvage(&folder, 5);
    output.contains("lost: positions from 70 on");
    assert_eq!(out.entries(), 69);
}

#[test]
fn check_finds_a_flipped_bit_in_the_snapshot() {
    let mut files = folder::filled(70, true);
    let name = snapshot(&files);
    let bytes = files.get_mut(&name).unwrap();
    let at = bytes.windows(6).position(|bytes| bytes == b"string").unwrap();
    bytes[at] ^= 4;
    let folder = Folder::of(&files);
    check(&folder, 5)
        .contains("2 of 3 keys intact")
        .contains(&format!("{name}, offset "))
        .contains("checksum does not match");
    let (output, out) = salvage(&folder, 5);
    output.contains("lost: 1 key of the snapshot");
    assert_eq!(out.entries(), 70);
}

#[test]
fn check_finds_a_flipped_bit_in_the_manifest() {
    let mut files = folder::filled(70, true);
    files.get_mut("manifest").unwrap()[40] ^= 4;
    let folder = Folder::of(&files);
    check(&folder, 5).contains("manifest, offset 0").contains("manifest's checksum");
    // The copy of the manifest proves the end of the log. Without it, only records up to the end that was found are.
    let (output, out) = salvage(&folder, 0);
    output.contains("nothing was lost\n");
    assert_eq!(out.entries(), 70);
    files.remove("manifest.closed");
    let (output, out) = salvage(&Folder::of(&files), 0);
    output.contains("nothing was lost up to position 70\n");
    assert_eq!(out.entries(), 70);
}

/// Salvaged data begins with a snapshot at position 0, so its log from position 1 on is not everything.
#[test]
fn salvage_of_salvaged_data_does_not_take_the_log_for_everything() {
    let (_, saved) = salvage(&Folder::of(&folder::filled(20, true)), 0);
    let files = saved.files();
    let damaged = |change: &dyn Fn(&mut Files)| {
        let mut files = files.clone();
        change(&mut files);
        Folder::of(&files)
    };
    let flipped = damaged(&|files| {
        let bytes = files.get_mut(&snapshot(files)).unwrap();
        let at = bytes.windows(6).position(|bytes| bytes == b"string").unwrap();
        bytes[at] ^= 1;
    });
    check(&flipped, 5).contains("2 of 3 keys intact");
    let (output, out) = salvage(&flipped, 5);
    output.contains("data was lost").contains("lost: 1 key of the snapshot");
    assert_eq!(out.entries(), 20);
    let without = damaged(&|files| drop(files.remove(&snapshot(files))));
    salvage(&without, 5)
        .0
        .contains("data may be lost")
        .contains("the snapshot is missing")
        .lacks("nothing was");
    for names in [&["manifest"][..], &["manifest", "manifest.closed"]] {
        let without = damaged(&|files| files.retain(|name, _| !names.contains(&name.as_str())));
        let (output, out) = salvage(&without, 0);
        output.contains("nothing was lost");
        assert_eq!(out.entries(), 20, "without {names:?}");
    }
    let store = saved.open();
    folder::work(&store, 21);
    store.close().unwrap();
    let mut files = saved.files();
    files.retain(|name, _| name.starts_with("log-"));
    salvage(&Folder::of(&files), 5).0.contains("a snapshot at position 0").lacks("nothing was lost");
}

#[test]
fn check_finds_a_missing_segment() {
    let mut files = folder::filled(70, true);
    let [.., before, missing, after] = &segments(&files)[..] else { panic!("too few segments") };
    let first = |name: &str| name.rsplit('-').next().unwrap().parse::<u64>().unwrap();
    files.remove(missing);
    let folder = Folder::of(&files);
    let positions = format!("positions {} to {}", first(missing), first(after) - 1);
    check(&folder, 5)
        .contains(&format!("{}/, position {}", folder.path(), first(missing)))
        .contains(&format!("{positions} of the log are missing, between {before} and {after}"))
        .contains("damaged in 1 place")
        .lacks("offset");
    folder
        .fail_to_serve()
        .contains(&format!(": {positions} of the log are missing, between {before} and {after}."))
        .contains(&format!("`millstream check {} --salvage OUT`", folder.path()))
        .contains_once("The folder was not changed")
        .lacks("is damaged");
    let (output, out) = salvage(&folder, 5);
    output.contains(&format!("lost: {positions} ({}/: {positions}", folder.path()));
    assert_eq!(out.entries(), 70 - (first(after) - first(missing)));
}

#[test]
fn check_finds_a_segment_of_another_store() {
    let mut files = folder::filled(70, true);
    let foreign = folder::filled(70, true);
    let name = segments(&files)[2].clone();
    files.insert(name.clone(), foreign[&name].clone());
    let folder = Folder::of(&files);
    check(&folder, 5).contains(&format!("{name}, offset 0")).contains("belongs to another store");
    let (output, out) = salvage(&folder, 5);
    output.contains("lost: positions ");
    assert!(out.entries() < 70 && out.entries() > 40);
}

#[test]
fn check_reads_a_folder_in_use() {
    let folder = Folder::of(&folder::filled(70, true));
    let store = folder.open();
    let output = folder.run(&[], 0);
    output.contains(&format!("in use      by pid {}", std::process::id())).contains("sound");
    drop(store);
    check(&folder, 0).lacks("in use");
}

#[test]
fn check_json_reports_damage() {
    let mut files = folder::filled(70, true);
    files.get_mut("manifest").unwrap()[40] ^= 4;
    let folder = Folder::of(&files);
    let output = folder.run(&["--json"], 5);
    output
        .contains("\"sound\":false")
        .contains("\"manifest\":null")
        .contains("\"entries\":70")
        .contains("\"way_out\":\"");
    let sound = Folder::of(&folder::filled(70, true));
    sound.run(&["--json"], 0).contains("\"sound\":true").contains("\"damage\":[]").contains("\"last\":70");
}

#[test]
fn salvage_refuses_an_unsuitable_target() {
    let folder = Folder::of(&folder::filled(70, true));
    folder.run(&["--salvage", folder.path()], 1).contains("it is not empty");
    folder.run(&["--salvage", &format!("{}/out", folder.path())], 1).contains("name one elsewhere");
    folder.run(&["--no-such-flag"], 2);
}
