//! The journal of a campaign: one file to which every process appends what it is about to do and what it has done.
//!
//! A line is one `write` to a file opened for appending, so that it is there and in order whatever happens to its
//! writer a moment later, `kill -9` included:
//!
//! ```text
//! 1731670000123 4711:worker-2 begin 1731670000100-0 1 .
//! milliseconds  process:name  what  words             the end
//! ```
//!
//! A process that is killed while it writes may leave half a line. Such a line has no end and is left out, and the next
//! one begins with a line feed of its own.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use millstream_worker::backend::StreamId;

/// Milliseconds since 1970.
pub(crate) fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as u64
}

/// Appends the lines of one writer.
pub(crate) struct Journal {
    file: File,
    who: String,
}

impl Journal {
    /// Opens the journal for a writer of this process.
    pub(crate) fn open(path: &Path, name: &str) -> Journal {
        let file = OpenOptions::new().create(true).append(true).open(path).expect("open the journal");
        Journal { file, who: format!("{}:{name}", std::process::id()) }
    }

    /// Appends a line.
    pub(crate) fn say(&self, what: &str, words: impl IntoIterator<Item = impl ToString>) {
        let mut line = format!("\n{} {} {what}", now_ms(), self.who);
        for word in words {
            line.push(' ');
            line.push_str(&word.to_string());
        }
        line.push_str(" .\n");
        (&self.file).write_all(line.as_bytes()).expect("append to the journal");
    }
}

/// A line read back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Line {
    pub ms: u64,
    /// Who wrote it: process and name.
    pub who: String,
    pub pid: u32,
    pub what: String,
    pub words: Vec<String>,
}

impl Line {
    /// The words that are ids; one may carry a number after a colon, which is left out.
    pub(crate) fn ids(&self) -> impl Iterator<Item = StreamId> + '_ {
        self.words.iter().filter_map(|word| parse_id(word.split(':').next()?))
    }

    /// The word at a place, as a number.
    pub(crate) fn number(&self, at: usize) -> Option<u64> {
        self.words.get(at)?.parse().ok()
    }
}

/// All lines so far.
pub(crate) fn read(path: &Path) -> Vec<Line> {
    parse(&std::fs::read_to_string(path).unwrap_or_default())
}

/// The whole lines of a text.
pub(crate) fn parse(text: &str) -> Vec<Line> {
    text.lines().filter_map(|line| parse_line(line.strip_suffix(" .")?)).collect()
}

fn parse_line(line: &str) -> Option<Line> {
    let mut words = line.split_ascii_whitespace().map(str::to_owned);
    let ms = words.next()?.parse().ok()?;
    let who = words.next()?;
    let pid = who.split(':').next()?.parse().ok()?;
    Some(Line { ms, pid, what: words.next()?, words: words.collect(), who })
}

/// An id as it is written.
pub(crate) fn parse_id(text: &str) -> Option<StreamId> {
    let (ms, sequence) = text.split_once('-')?;
    Some(StreamId::new(ms.parse().ok()?, sequence.parse().ok()?))
}
