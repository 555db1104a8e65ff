//! The journal of a campaign: one file to which every process appends what it is about to do and what it has done.
//!
//! Each line is one `write` to a file opened for appending. It is stored, in order, even if its writer is killed with
//! `kill -9` right afterwards:
//!
//! ```text
//! 1731670000123 4711:worker-2 begin 1731670000100-0 1 .
//! milliseconds  writer        event words             end
//! ```
//!
//! A process that is killed while it writes can leave an incomplete line. Such a line lacks its end and is ignored.
//! Each line begins with a line feed, so the next one is complete.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use millstream_worker::backend::StreamId;

/// Milliseconds since 1970.
pub(crate) fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as u64
}

/// Appends lines to the journal for one writer.
pub(crate) struct Journal {
    file: File,
    writer: String,
}

impl Journal {
    /// Opens the journal for a writer in this process.
    pub(crate) fn open(path: &Path, name: &str) -> Journal {
        let file = OpenOptions::new().create(true).append(true).open(path).expect("open the journal");
        Journal { file, writer: format!("{}:{name}", std::process::id()) }
    }

    /// Appends a line.
    pub(crate) fn record(&self, event: &str, words: impl IntoIterator<Item = impl ToString>) {
        let mut line = format!("\n{} {} {event}", now_ms(), self.writer);
        for word in words {
            line.push(' ');
            line.push_str(&word.to_string());
        }
        line.push_str(" .\n");
        (&self.file).write_all(line.as_bytes()).expect("append to the journal");
    }
}

/// A line that was read back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Line {
    pub ms: u64,
    /// Process id and name of its writer.
    pub writer: String,
    pub pid: u32,
    pub event: String,
    pub words: Vec<String>,
}

impl Line {
    /// The words that are ids. A number after a colon is ignored.
    pub(crate) fn ids(&self) -> impl Iterator<Item = StreamId> + '_ {
        self.words.iter().filter_map(|word| parse_id(word.split(':').next()?))
    }

    /// Returns the word at an index as a number.
    pub(crate) fn number(&self, at: usize) -> Option<u64> {
        self.words.get(at)?.parse().ok()
    }
}

/// Reads all lines so far.
pub(crate) fn read(path: &Path) -> Vec<Line> {
    parse(&std::fs::read_to_string(path).unwrap_or_default())
}

/// Parses the complete lines of a text.
pub(crate) fn parse(text: &str) -> Vec<Line> {
    text.lines().filter_map(|line| parse_line(line.strip_suffix(" .")?)).collect()
}

fn parse_line(line: &str) -> Option<Line> {
    let mut words = line.split_ascii_whitespace().map(str::to_owned);
    let ms = words.next()?.parse().ok()?;
    let writer = words.next()?;
    let pid = writer.split(':').next()?.parse().ok()?;
    Some(Line { ms, pid, event: words.next()?, words: words.collect(), writer })
}

/// Parses an entry id.
pub(crate) fn parse_id(text: &str) -> Option<StreamId> {
    let (ms, sequence) = text.split_once('-')?;
    Some(StreamId::new(ms.parse().ok()?, sequence.parse().ok()?))
}
