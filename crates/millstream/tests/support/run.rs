//! A run of the binary that has ended, with what a suite may say of it; and folders for runs.

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::Value;

/// The binary when it has ended.
#[derive(Debug)]
pub(crate) struct Run {
    /// What it was asked to do, for the messages of failures.
    pub asked: String,
    /// Its exit code; `None` if a signal ended it.
    pub code: Option<i32>,
    /// Its standard output.
    pub out: String,
    /// Its standard error.
    pub err: String,
}

impl Run {
    /// It ended well.
    pub(crate) fn ok(self) -> Run {
        self.exits(0)
    }

    /// It ended with this code.
    pub(crate) fn exits(self, code: i32) -> Run {
        assert_eq!(self.code, Some(code), "{}\n{}\n{}", self.asked, self.out, self.err);
        self
    }

    /// It complained in these words.
    pub(crate) fn complains(self, words: &str) -> Run {
        assert!(self.err.contains(words), "{}\nsays not {words:?} but:\n{}", self.asked, self.err);
        self
    }

    /// Its output holds these words.
    pub(crate) fn has(self, words: &str) -> Run {
        assert!(self.out.contains(words), "{}\nhas not {words:?} but:\n{}", self.asked, self.out);
        self
    }

    /// Its output as JSON.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.out)
            .unwrap_or_else(|error| panic!("{}: {error}\n{}", self.asked, self.out))
    }

    /// The cells of its table, the headings first.
    pub(crate) fn cells(&self) -> Vec<Vec<String>> {
        let cells = |line: &str| {
            line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).map(str::to_owned).collect()
        };
        self.out.lines().map(cells).collect()
    }

    /// These figures of its report, which is the last line of its output.
    pub(crate) fn report<const N: usize>(&self, names: [&str; N]) -> [u64; N] {
        let last = self.out.lines().last().unwrap_or_default();
        let report: Value = serde_json::from_str(last).unwrap_or_else(|error| panic!("{error}: {self:?}"));
        names.map(|name| report[name].as_u64().unwrap_or_else(|| panic!("no {name} in {report}")))
    }
}

/// A new folder that no other test has.
pub(crate) fn new_folder() -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let folder = std::env::temp_dir().join(format!("millstream-test-{}-{number}", std::process::id()));
    // A run that was killed may have left one behind.
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).expect("create a folder");
    folder
}
