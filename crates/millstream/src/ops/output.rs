//! Writing to the standard output: text in colour where a person looks at it, and JSON.

use std::io::{self, IsTerminal, Write};

use anstyle::{AnsiColor, Style};
use serde_json::Value;

use super::failure::Failure;

/// For headings: there, but not in the way.
pub(crate) const DIM: Style = Style::new().dimmed();
/// For what is well.
pub(crate) const GOOD: Style = AnsiColor::Green.on_default();
/// For what wants attention.
pub(crate) const WARN: Style = AnsiColor::Yellow.on_default();
/// For what is wrong.
pub(crate) const BAD: Style = AnsiColor::Red.on_default().bold();

/// Writes text for people.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    let mut out = anstream::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()?;
    Ok(())
}

/// Writes a line for people.
pub(crate) fn print_line(line: &str) -> Result<(), Failure> {
    print(&format!("{line}\n"))
}

/// Writes one JSON document.
pub(crate) fn print_json(value: &Value) -> Result<(), Failure> {
    print_raw(&format!("{value:#}\n"))
}

/// Writes one JSON document on a line of its own, for commands that tell one thing after another.
pub(crate) fn print_json_line(value: &Value) -> Result<(), Failure> {
    print_raw(&format!("{value}\n"))
}

/// Writes text as it is.
pub(crate) fn print_raw(text: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()?;
    Ok(())
}

/// Tells people something that is no data.
pub(crate) fn note(text: &str) {
    // Nobody is there to be told if this fails.
    let _ = writeln!(anstream::stderr(), "{text}");
}

/// Whether a person looks at what goes to standard error, so that progress may be drawn there.
pub(crate) fn progress_is_seen() -> bool {
    io::stderr().is_terminal() && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}
