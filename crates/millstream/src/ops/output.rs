//! Output: text and JSON on standard output; remarks and progress bars on standard error.
//!
//! All text is made safe for a terminal here. Only [`print()`] and [`note_styled`] let styles through: their callers
//! make names and other text from a store [`printable`](super::safe_text::printable) first. A
//! [`Table`](super::table::Table) does this itself.

use std::fmt::Display;
use std::io::{self, IsTerminal, Write};

use anstyle::{AnsiColor, Style};
use indicatif::{ProgressBar, ProgressStyle};
use millstream_worker::monitor::Health;
use serde::Serialize;
use serde_json::json;

use super::failure::Failure;
use super::safe_text::{printable_lines, printable_styled, safe_json};

/// Style of headings and secondary text.
pub(crate) const DIM: Style = Style::new().dimmed();
/// Style of good news.
pub(crate) const GOOD: Style = AnsiColor::Green.on_default();
/// Style of warnings.
pub(crate) const WARN: Style = AnsiColor::Yellow.on_default();
/// Style of errors.
pub(crate) const BAD: Style = AnsiColor::Red.on_default().bold();

pub(crate) fn health_style(health: Health) -> Style {
    match health {
        Health::Ok => GOOD,
        Health::Unknown => Style::new(),
        Health::Degraded => WARN,
        Health::Critical => BAD,
    }
}

/// Prints text with styles. Strips the styles unless standard output is a terminal.
pub(crate) fn print(text: impl Display) -> Result<(), Failure> {
    write(anstream::stdout().lock(), &printable_styled(&text.to_string()))
}

/// Prints text without styles, of one or several lines.
pub(crate) fn print_plain(text: &str) -> Result<(), Failure> {
    write(io::stdout().lock(), &printable_lines(text))
}

/// Prints a line of text without styles.
pub(crate) fn print_line(line: &str) -> Result<(), Failure> {
    print_plain(&format!("{line}\n"))
}

/// Prints one JSON document over several lines.
pub(crate) fn print_json(value: &impl Serialize) -> Result<(), Failure> {
    write(io::stdout().lock(), &safe_json(&format!("{:#}\n", json!(value))))
}

/// Prints one JSON document on one line, for commands that print a sequence of them.
pub(crate) fn print_json_line(value: &impl Serialize) -> Result<(), Failure> {
    write(io::stdout().lock(), &safe_json(&format!("{}\n", json!(value))))
}

/// Prints text in the format of another program, unchanged unless standard output is a terminal.
pub(crate) fn print_for_program(text: &str) -> Result<(), Failure> {
    if io::stdout().is_terminal() { print_plain(text) } else { write(io::stdout().lock(), text) }
}

fn write(mut out: impl Write, text: &str) -> Result<(), Failure> {
    // One write, so that output of other processes cannot appear in the middle.
    out.write_all(text.as_bytes())?;
    out.flush()?;
    Ok(())
}

/// Prints a remark to standard error.
pub(crate) fn note(text: &str) {
    // If standard error is closed, there is no place left to report it.
    let _ = writeln!(io::stderr(), "{}", printable_lines(text));
}

/// Prints a remark with styles to standard error. Strips the styles unless standard error is a terminal.
pub(crate) fn note_styled(text: &str) {
    // If standard error is closed, there is no place left to report it.
    let _ = writeln!(anstream::stderr(), "{}", printable_styled(text));
}

/// Returns a progress bar on standard error. It is hidden unless standard error is a terminal.
pub(crate) fn progress_bar(total: u64, template: &str) -> ProgressBar {
    if !progress_is_visible() {
        return ProgressBar::hidden();
    }
    ProgressBar::new(total).with_style(bar_style(template))
}

/// Returns the style of a progress bar for an indicatif template.
pub(crate) fn bar_style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}

/// Whether standard error is a terminal that can show progress bars.
pub(crate) fn progress_is_visible() -> bool {
    io::stderr().is_terminal() && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}
