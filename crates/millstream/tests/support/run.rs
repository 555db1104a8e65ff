//! A finished run of the binary with assertions on it, and temporary folders for runs.

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::Value;

/// A finished run of the binary.
#[derive(Debug)]
pub(crate) struct Run {
    /// Its command line, for assertion messages.
    pub command: String,
    /// Exit code. `None` if a signal ended it.
    pub code: Option<i32>,
    /// Its standard output.
    pub out: String,
    /// Its standard error.
    pub err: String,
}

impl Run {
    /// Asserts that it exited with 0.
    pub(crate) fn ok(self) -> Run {
        self.exits(0)
    }

    /// Asserts the exit code.
    pub(crate) fn exits(self, code: i32) -> Run {
        assert_eq!(self.code, Some(code), "{}\n{}\n{}", self.command, self.out, self.err);
        self
    }

    /// Asserts that standard error contains this text.
    pub(crate) fn stderr_contains(self, text: &str) -> Run {
        assert!(self.err.contains(text), "{}\nstderr lacks {text:?}:\n{}", self.command, self.err);
        self
    }

    /// Asserts that standard output contains this text.
    pub(crate) fn stdout_contains(self, text: &str) -> Run {
        assert!(self.out.contains(text), "{}\nstdout lacks {text:?}:\n{}", self.command, self.out);
        self
    }

    /// Parses standard output as JSON.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.out)
            .unwrap_or_else(|error| panic!("{}: {error}\n{}", self.command, self.out))
    }

    /// Returns the cells of the printed table, headings first.
    pub(crate) fn cells(&self) -> Vec<Vec<String>> {
        let cells = |line: &str| {
            line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).map(str::to_owned).collect()
        };
        self.out.lines().map(cells).collect()
    }

    /// Returns these counters of the JSON report, which is the last line of standard output.
    pub(crate) fn report<const N: usize>(&self, names: [&str; N]) -> [u64; N] {
        let last = self.out.lines().last().unwrap_or_default();
        let report: Value = serde_json::from_str(last).unwrap_or_else(|error| panic!("{error}: {self:?}"));
        names.map(|name| report[name].as_u64().unwrap_or_else(|| panic!("no {name} in {report}")))
    }
}

/// Creates a temporary folder that no other test uses.
pub(crate) fn new_folder() -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let folder = std::env::temp_dir().join(format!("millstream-test-{}-{number}", std::process::id()));
    // A killed run with the same process id may have left its folder behind.
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).expect("create a folder");
    folder
}
