//! A store in a folder: closing, reopening, reloading and snapshots preserve its data.

use std::path::PathBuf;
use std::sync::Arc;

use millstream_engine::stream::{ClaimOptions, EntryRef, NackOptions};
use millstream_engine::{GroupStart, IdSpec, NackMode, StreamId};
use millstream_store::verbs::{
    Acknowledge, Claim, ConsumerPath, Delete, GroupCreate, Nack, Verb, add, read_new,
};
use millstream_store::{Addition, FolderOptions, ManualClock, Recovered, Store, StoreOptions};
use std::ops::ControlFlow;

/// A folder of its own for each test, removed on drop.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("millstream-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        Folder(path)
    }

    fn open(&self) -> (Store, Recovered) {
        let clock = Arc::new(ManualClock::new(1_000));
        let options = StoreOptions { clock, ..StoreOptions::default() };
        let folder = FolderOptions { segment_bytes: 4096, ..FolderOptions::default() };
        Store::open(&self.0, options, folder).unwrap()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

const READER: ConsumerPath<&'static [u8]> = ConsumerPath { key: b"s", group: b"g", consumer: b"c" };

/// Writes some data of every type.
fn work(store: &Store, from: u64) {
    let mut txn = store.lock_all(0, store.now_ms());
    for n in from..from + 50 {
        let value = n.to_string();
        add(
            &mut txn,
            b"s",
            &Addition {
                id: IdSpec::Explicit(StreamId::new(n + 1, 0)),
                ..Addition::new(&[b"n", value.as_bytes()])
            },
        )
        .unwrap();
    }
    let start = GroupStart::After(StreamId::MIN);
    let _ = GroupCreate { key: "s", group: "g", start, make_stream: false, entries_read: None }.run(&mut txn);
    let mut all = |_: &EntryRef<'_>| ControlFlow::Continue(());
    read_new(&mut txn, READER, Some(30), true, &mut all).unwrap();
    let ids = [StreamId::new(from + 1, 0), StreamId::new(from + 2, 0)];
    Acknowledge { key: "s", group: "g", ids }.run(&mut txn).unwrap();
    Delete { key: "s", ids: [StreamId::new(from + 5, 0)] }.run(&mut txn).unwrap();
    let other = ConsumerPath { consumer: &b"other"[..], ..READER };
    let (ids, options) = ([StreamId::new(from + 3, 0)], ClaimOptions::default());
    Claim { consumer: other, ids, options, idle_ms: None, last_id: None }.claim(&mut txn).unwrap();
    let nack = |id, delay_ms| {
        let options =
            NackOptions { mode: NackMode::Fail, deliveries: None, force: false, delay_ms: Some(delay_ms) };
        Nack { key: READER.key, group: READER.group, ids: [StreamId::new(from + id, 0)], options }
    };
    nack(4, 5_000).run(&mut txn).unwrap();
    nack(5, 0).run(&mut txn).unwrap();
    txn.hash_set(b"h", &[b"field", b"value"]).unwrap();
    txn.list_push(b"l", millstream_engine::ListEnd::Tail, &[b"a", b"b"]).unwrap();
    txn.rename(b"l", b"renamed", false).unwrap();
}

/// Describes everything that a client can see of the data.
fn describe(store: &Store) -> String {
    let txn = store.lock_all(0, store.now_ms());
    let stream = txn.stream(b"s").unwrap().unwrap();
    stream.check().unwrap();
    let mut text = format!("{} {} {}", stream.len(), stream.last_id(), stream.max_deleted_id());
    for (name, group) in stream.groups() {
        text += &format!(
            "\n{name:?} {} {:?} {}",
            group.last_id(),
            group.entries_read(),
            stream.query_lag_exact(group)
        );
        group.pending().walk(StreamId::MIN, Default::default(), |row| {
            text += &format!("\n{row:?}");
            ControlFlow::Continue(())
        });
        let released: Vec<StreamId> = group.pending().released().map(|row| row.id).collect();
        text += &format!("\n{released:?} {:?}", group.pending().waiting().collect::<Vec<_>>());
        for (name, _, consumer) in group.consumers() {
            text += &format!("\n{name:?} {consumer:?}");
        }
    }
    text + &format!(
        "\n{:?} {:?}",
        txn.hash_get(b"h", b"field").unwrap().map(|value| value.to_vec()),
        txn.list_len(b"renamed")
    )
}

#[test]
fn reopening_restores_the_data() {
    let folder = Folder::new("reopen");
    let (store, recovered) = folder.open();
    assert!(recovered.log.created);
    work(&store, 0);
    let before = describe(&store);
    store.close().unwrap();
    drop(store);
    let (store, recovered) = folder.open();
    assert_eq!(describe(&store), before);
    assert_eq!(recovered.log.records, 1);
}

#[test]
fn snapshot_and_later_log_restore_the_data() {
    let folder = Folder::new("snapshot");
    let (store, _) = folder.open();
    (0..10).for_each(|round| work(&store, round * 50));
    let taken = store.take_snapshot().unwrap().unwrap();
    assert_eq!((taken.position, taken.keys), (10, 3));
    assert_eq!(store.take_snapshot().unwrap(), None);
    work(&store, 500);
    let before = describe(&store);
    drop(store);
    let (store, recovered) = folder.open();
    assert_eq!(describe(&store), before);
    assert_eq!((recovered.snapshot_keys, recovered.replayed), (3, 1));
}

#[test]
fn a_folder_can_be_open_in_one_store_only() {
    let folder = Folder::new("lock");
    let (store, _) = folder.open();
    let again = Store::open(&folder.0, StoreOptions::default(), FolderOptions::default());
    let refused = again.err().expect("the folder is in use").to_string();
    assert!(refused.contains("in use"), "{refused}");
    drop(store);
}

#[test]
fn reload_restores_the_data() {
    let folder = Folder::new("reload");
    let (store, _) = folder.open();
    work(&store, 0);
    for round in 1..4 {
        let before = describe(&store);
        store.reload().unwrap();
        assert_eq!(describe(&store), before, "from the log, round {round}");
        store.take_snapshot().unwrap();
        work(&store, round * 50);
    }
    let before = describe(&store);
    drop(store);
    assert_eq!(describe(&folder.open().0), before);

    let in_memory =
        Store::new(StoreOptions { clock: Arc::new(ManualClock::new(1_000)), ..StoreOptions::default() });
    work(&in_memory, 0);
    let before = describe(&in_memory);
    in_memory.reload().unwrap();
    assert_eq!(describe(&in_memory), before);
}

#[test]
fn a_failed_reload_keeps_the_data_in_memory() {
    let folder = Folder::new("reload-damaged");
    let (store, _) = folder.open();
    work(&store, 0);
    store.take_snapshot().unwrap();
    let before = describe(&store);
    let snapshot = folder.0.join(format!("snapshot-{:020}", 1));
    let mut bytes = std::fs::read(&snapshot).unwrap();
    bytes[100] ^= 1;
    std::fs::write(&snapshot, bytes).unwrap();
    let refused = store.reload().unwrap_err().to_string();
    assert!(refused.contains("snapshot-"), "{refused}");
    assert_eq!(describe(&store), before);
}

#[test]
fn opening_removes_an_unfinished_snapshot() {
    let folder = Folder::new("leftover");
    let (store, _) = folder.open();
    work(&store, 0);
    drop(store);
    let leftover = folder.0.join(format!("snapshot-{:020}", 1));
    std::fs::write(&leftover, "half").unwrap();
    let (store, _) = folder.open();
    assert!(!leftover.exists());
    // An unfinished snapshot file of the same process does not prevent the next snapshot.
    std::fs::write(&leftover, "half").unwrap();
    assert_eq!(store.take_snapshot().unwrap().unwrap().position, 1);
    assert!(leftover.metadata().unwrap().len() > 4);
}

#[test]
fn transactions_under_one_lock_share_a_record_up_to_a_size() {
    let folder = Folder::new("shared-record");
    let (store, _) = folder.open();
    let long = vec![b'x'; 10 << 10];
    for (shares, records) in [(true, 1), (false, 3)] {
        let before = store.appended_position();
        let mut txn = store.lock_key(0, b"s", store.now_ms());
        for _ in 0..3 {
            add(&mut txn, b"s", &Addition::new(&[b"n", b"v"])).unwrap();
            txn.end();
            if shares {
                assert!(txn.begin_next(0, b"s"));
            } else {
                drop(txn);
                txn = store.lock_key(0, b"s", store.now_ms());
            }
        }
        drop(txn);
        assert_eq!(store.appended_position() - before, records);
    }
    let before = store.appended_position();
    let mut txn = store.lock_key(0, b"s", store.now_ms());
    for records in [0, 1, 1] {
        add(&mut txn, b"s", &Addition::new(&[b"n", &long])).unwrap();
        txn.end();
        assert_eq!(store.appended_position() - before, records);
    }
    drop(txn);
    assert_eq!(store.appended_position() - before, 2);
    store.close().unwrap();
    let (reopened, _) = folder.open();
    assert_eq!(reopened.lock_key(0, b"s", 0).stream(b"s").unwrap().unwrap().len(), 9);
}

fn entries(store: &Store) -> u64 {
    store.lock_key(0, b"s", 0).stream(b"s").unwrap().unwrap().len()
}

/// Waits until the store refuses changes with this text, or accepts them.
fn wait_for_refusal(store: &Store, expected: Option<&str>) {
    let began = std::time::Instant::now();
    loop {
        let found = store.check_writable(0).err().map(|error| error.to_string());
        match (&found, expected) {
            (None, None) => return,
            (Some(found), Some(expected)) if found.contains(expected) => return,
            _ => {}
        }
        assert!(began.elapsed().as_secs() < 60, "{found:?} instead of {expected:?}");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

#[test]
fn changes_are_refused_while_the_folder_is_moved_away() {
    let (folder, moved) = (Folder::new("gone"), Folder::new("gone-moved"));
    let (store, _) = folder.open();
    work(&store, 0);
    store.make_durable().unwrap();
    std::fs::rename(&folder.0, &moved.0).unwrap();
    wait_for_refusal(&store, Some("was moved or removed"));
    // Another folder at this path is not touched.
    std::fs::create_dir(&folder.0).unwrap();
    assert!(store.take_snapshot().unwrap_err().to_string().contains("was moved or removed"));
    assert_eq!(std::fs::read_dir(&folder.0).unwrap().count(), 0);
    std::fs::remove_dir(&folder.0).unwrap();
    std::fs::rename(&moved.0, &folder.0).unwrap();
    wait_for_refusal(&store, None);
    work(&store, 50);
    let expected = entries(&store);
    store.close().unwrap();
    assert_eq!(entries(&folder.open().0), expected);
}

#[test]
fn changes_are_refused_while_a_file_is_missing_until_a_snapshot_writes_everything_again() {
    let named = |folder: &Folder, prefix: &str| -> Vec<PathBuf> {
        let found = std::fs::read_dir(&folder.0).unwrap().map(|file| file.unwrap().path());
        let mut found: Vec<_> =
            found.filter(|path| path.file_name().unwrap().to_string_lossy().starts_with(prefix)).collect();
        found.sort();
        found
    };
    // What is removed, and the number of changes after the snapshot.
    let cases = [("manifest", 1), ("snapshot-", 1), ("log-", 1), ("log-", 0), ("", 1), ("", 0)];
    for (index, (prefix, changes)) in cases.into_iter().enumerate() {
        let folder = Folder::new(&format!("missing-{index}"));
        let (store, _) = folder.open();
        work(&store, 0);
        store.take_snapshot().unwrap().unwrap();
        (0..changes).for_each(|n| work(&store, 50 * (n + 1)));
        store.make_durable().unwrap();
        wait_for_refusal(&store, None);
        named(&folder, prefix).iter().for_each(|path| std::fs::remove_file(path).unwrap());
        wait_for_refusal(&store, Some("was removed or cut off"));
        assert!(store.durability().unwrap().refusal.is_some());
        store.take_snapshot().unwrap().unwrap();
        wait_for_refusal(&store, None);
        work(&store, 500);
        store.make_durable().unwrap();
        let expected = entries(&store);
        drop(store);
        assert_eq!(entries(&folder.open().0), expected, "{prefix:?}, {changes} changes");
    }
    let folder = Folder::new("replaced");
    let (store, _) = folder.open();
    work(&store, 0);
    store.make_durable().unwrap();
    for prefix in ["log-", "manifest"] {
        let path = named(&folder, prefix).remove(0);
        let (kept, mut bytes) = (folder.0.join("kept"), std::fs::read(&path).unwrap());
        std::fs::rename(&path, &kept).unwrap();
        bytes[40] ^= 1;
        std::fs::write(&path, &bytes).unwrap();
        wait_for_refusal(&store, Some("was replaced"));
        assert!(store.take_snapshot().unwrap_err().to_string().contains("was replaced"));
        assert_eq!(std::fs::read(&path).unwrap(), bytes, "the other file was overwritten");
        std::fs::rename(&kept, &path).unwrap();
        wait_for_refusal(&store, None);
    }
    let log = std::fs::OpenOptions::new().write(true).open(named(&folder, "log-").remove(0)).unwrap();
    log.set_len(70).unwrap();
    wait_for_refusal(&store, Some("was removed or cut off"));
}
