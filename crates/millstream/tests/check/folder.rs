//! Data folders for tests, made by the library, and the binary run on them.

use std::collections::BTreeMap;
use std::fs;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use millstream_engine::stream::EntryRef;
use millstream_engine::{GroupStart, IdSpec, StreamId};
use millstream_store::verbs::{GroupCreate, Reader, Verb, add, read_new};
use millstream_store::{Addition, FolderOptions, Store, StoreOptions};

/// Names and contents.
pub(crate) type Files = BTreeMap<String, Vec<u8>>;

/// A folder of its own, gone afterwards.
pub(crate) struct Folder(PathBuf);

/// What the binary wrote.
pub(crate) struct Told(String);

impl Told {
    /// # Panics
    /// When it does not say this.
    pub(crate) fn has(&self, what: &str) -> &Told {
        assert!(self.0.contains(what), "no {what:?} in:\n{}", self.0);
        self
    }

    /// # Panics
    /// When it says this never or more than once.
    pub(crate) fn has_once(&self, what: &str) -> &Told {
        assert_eq!(self.0.matches(what).count(), 1, "{what:?} in:\n{}", self.0);
        self
    }

    /// # Panics
    /// When it does say this.
    pub(crate) fn lacks(&self, what: &str) -> &Told {
        assert!(!self.0.contains(what), "{what:?} in:\n{}", self.0);
        self
    }
}

impl Folder {
    /// The name of a folder that is not there.
    pub(crate) fn new() -> Folder {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("millstream-check-cli-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        // A run that was killed may have left one behind.
        let _ = fs::remove_dir_all(&path);
        Folder(path)
    }

    /// A folder with these files.
    pub(crate) fn of(files: &Files) -> Folder {
        let folder = Folder::new();
        fs::create_dir_all(&folder.0).unwrap();
        for (name, bytes) in files {
            fs::write(folder.0.join(name), bytes).unwrap();
        }
        folder
    }

    pub(crate) fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }

    /// Every file but the lock.
    pub(crate) fn files(&self) -> Files {
        let Ok(entries) = fs::read_dir(&self.0) else { return Files::new() };
        let entries = entries.map(|entry| entry.unwrap());
        let read =
            entries.map(|entry| (entry.file_name().into_string().unwrap(), fs::read(entry.path()).unwrap()));
        read.filter(|(name, _)| name != "LOCK").collect()
    }

    /// Opens it as a server would, with small segments.
    pub(crate) fn open(&self) -> Store {
        let folder = FolderOptions { segment_bytes: 1024, ..FolderOptions::default() };
        let options = StoreOptions { shards: 2, ..StoreOptions::default() };
        Store::open(&self.0, options, folder).unwrap().0
    }

    /// How many entries the stream has.
    pub(crate) fn entries(&self) -> u64 {
        let store = self.open();
        let txn = store.lock_all(0, store.now_ms());
        txn.stream(b"stream").unwrap().unwrap().len()
    }

    /// Runs `millstream check` on it, which must end with this code.
    pub(crate) fn run(&self, arguments: &[&str], code: i32) -> Told {
        let mut command = Command::new(env!("CARGO_BIN_EXE_millstream"));
        told(command.arg("check").arg(&self.0).args(arguments), code)
    }

    /// Begins to serve it, which must be refused.
    pub(crate) fn refuse(&self) -> Told {
        let mut command = Command::new(env!("CARGO_BIN_EXE_millstream"));
        told(command.args(["serve", "--port", "0", "--dir"]).arg(&self.0), 1)
    }
}

/// What a command says, which must end with this code.
fn told(command: &mut Command, code: i32) -> Told {
    let output = command.output().unwrap();
    let told = [output.stdout, output.stderr].concat();
    let told = String::from_utf8(told).unwrap();
    assert_eq!(output.status.code(), Some(code), "{told}");
    Told(told)
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The files of a folder with a snapshot at 30 and records up to `count`, each adding an entry that a group reads;
/// closed, or as a crash leaves them.
pub(crate) fn worked(count: u64, close: bool) -> Files {
    let folder = Folder::new();
    let store = folder.open();
    for number in 1..=count {
        work(&store, number);
        // Written one by one, each is a frame of its own.
        store.make_durable().unwrap();
        if number == 30 {
            store.take_snapshot().unwrap().unwrap();
        }
    }
    if close {
        store.close().unwrap();
    } else {
        while !store.is_settled(store.seen()) {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    }
    folder.files()
}

/// One record.
fn work(store: &Store, number: u64) {
    let mut txn = store.lock_all(0, store.now_ms());
    let value = number.to_string();
    let id = IdSpec::Explicit(StreamId::new(number, 0));
    add(&mut txn, b"stream", &Addition { id, ..Addition::new(&[b"number", value.as_bytes()]) }).unwrap();
    if number == 1 {
        let (key, group, start) = ("stream", "group", GroupStart::After(StreamId::MIN));
        let mut create = GroupCreate { key, group, start, make_stream: false, entries_read: None };
        create.run(&mut txn).unwrap();
        txn.hash_set(b"string", &[b"field", b"value"]).unwrap();
    }
    let reader: Reader<&[u8]> = Reader { key: b"stream", group: b"group", consumer: b"consumer" };
    let mut all = |_: &EntryRef<'_>| ControlFlow::Continue(());
    read_new(&mut txn, reader, None, true, &mut all).unwrap();
    txn.hash_set(b"hash", &[b"field", value.as_bytes()]).unwrap();
}
