//! Data folders for tests, created with the library, and runs of the binary on them.

use std::collections::BTreeMap;
use std::fs;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use millstream_engine::stream::EntryRef;
use millstream_engine::{GroupStart, IdSpec, StreamId};
use millstream_store::verbs::{ConsumerPath, GroupCreate, Verb, add, read_new};
use millstream_store::{Addition, FolderOptions, Store, StoreOptions};

/// File names and contents.
pub(crate) type Files = BTreeMap<String, Vec<u8>>;

/// A folder of its own for each test, removed on drop.
pub(crate) struct Folder(PathBuf);

/// Standard output and standard error of the binary.
pub(crate) struct Output(String);

impl Output {
    /// # Panics
    /// If the output does not contain `text`.
    pub(crate) fn contains(&self, text: &str) -> &Output {
        assert!(self.0.contains(text), "no {text:?} in:\n{}", self.0);
        self
    }

    /// # Panics
    /// If the output does not contain `text` exactly once.
    pub(crate) fn contains_once(&self, text: &str) -> &Output {
        assert_eq!(self.0.matches(text).count(), 1, "{text:?} in:\n{}", self.0);
        self
    }

    /// # Panics
    /// If the output contains `text`.
    pub(crate) fn lacks(&self, text: &str) -> &Output {
        assert!(!self.0.contains(text), "{text:?} in:\n{}", self.0);
        self
    }
}

impl Folder {
    /// Returns an unused path. The folder does not exist yet.
    pub(crate) fn new() -> Folder {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("millstream-check-cli-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        // A killed run with the same process id may have left its folder behind.
        let _ = fs::remove_dir_all(&path);
        Folder(path)
    }

    /// Creates a folder with these files.
    pub(crate) fn of(files: &Files) -> Folder {
        let folder = Folder::new();
        folder.fill(files);
        folder
    }

    /// Creates a folder at this path.
    pub(crate) fn at(path: &str, files: &Files) -> Folder {
        let folder = Folder::unused(path);
        folder.fill(files);
        folder
    }

    fn fill(&self, files: &Files) {
        fs::create_dir_all(&self.0).unwrap();
        for (name, bytes) in files {
            fs::write(self.0.join(name), bytes).unwrap();
        }
    }

    /// Returns a path where nothing exists.
    pub(crate) fn unused(path: &str) -> Folder {
        Folder(path.into())
    }

    pub(crate) fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }

    /// Reads every file except the lock.
    pub(crate) fn files(&self) -> Files {
        let Ok(entries) = fs::read_dir(&self.0) else { return Files::new() };
        let entries = entries.map(|entry| entry.unwrap());
        let read =
            entries.map(|entry| (entry.file_name().into_string().unwrap(), fs::read(entry.path()).unwrap()));
        read.filter(|(name, _)| name != "LOCK").collect()
    }

    /// Opens the folder as a server does, with small segments.
    pub(crate) fn open(&self) -> Store {
        let folder = FolderOptions { segment_bytes: 1024, ..FolderOptions::default() };
        let options = StoreOptions { shards: 2, ..StoreOptions::default() };
        Store::open(&self.0, options, folder).unwrap().0
    }

    /// Number of entries of the stream.
    pub(crate) fn entries(&self) -> u64 {
        let store = self.open();
        let txn = store.lock_all(0, store.now_ms());
        txn.stream(b"stream").unwrap().unwrap().len()
    }

    /// Runs `millstream check` on the folder and asserts its exit code.
    pub(crate) fn run(&self, arguments: &[&str], code: i32) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_millstream"));
        output_of(command.arg("check").arg(&self.0).args(arguments), code)
    }

    /// Starts a server on the folder and asserts that it refuses to start.
    pub(crate) fn fail_to_serve(&self) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_millstream"));
        output_of(command.args(["serve", "--port", "0", "--dir"]).arg(&self.0), 1)
    }
}

/// Runs a command, asserts its exit code, and returns its output.
fn output_of(command: &mut Command, code: i32) -> Output {
    let output = command.output().unwrap();
    let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    assert_eq!(output.status.code(), Some(code), "{text}");
    Output(text)
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Returns the files of a folder with a snapshot at position 30 and `count` records.
///
/// Each record adds an entry that a group reads. Without `close`, the files are as a crash would leave them.
pub(crate) fn filled(count: u64, close: bool) -> Files {
    let folder = Folder::new();
    let store = folder.open();
    for number in 1..=count {
        work(&store, number);
        // Each record becomes durable alone, so each is a frame of its own.
        store.make_durable().unwrap();
        if number == 30 {
            store.take_snapshot().unwrap().unwrap();
        }
    }
    if close {
        store.close().unwrap();
    } else {
        while !store.is_durable_enough(store.appended_position()) {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    }
    folder.files()
}

/// Writes one record.
pub(crate) fn work(store: &Store, number: u64) {
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
    let reader: ConsumerPath<&[u8]> = ConsumerPath { key: b"stream", group: b"group", consumer: b"consumer" };
    let mut all = |_: &EntryRef<'_>| ControlFlow::Continue(());
    read_new(&mut txn, reader, None, true, &mut all).unwrap();
    txn.hash_set(b"hash", &[b"field", value.as_bytes()]).unwrap();
}
