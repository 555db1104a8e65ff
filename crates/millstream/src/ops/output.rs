//! Writing to the standard output: text in colour where a person looks at it, and JSON.

use std::fmt::Display;
use std::io::{self, IsTerminal, Write};

use anstyle::{AnsiColor, Style};
use indicatif::{ProgressBar, ProgressStyle};
use millstream_worker::monitor::Health;
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

/// The colour of a verdict.
pub(crate) fn style_of(health: Health) -> Style {
    match health {
        Health::Ok => GOOD,
        Health::Degraded => WARN,
        Health::Critical => BAD,
    }
}

/// Writes text for people.
pub(crate) fn print(text: impl Display) -> Result<(), Failure> {
    write(anstream::stdout().lock(), text)
}

/// Writes a line for people.
pub(crate) fn print_line(line: &str) -> Result<(), Failure> {
    print(format_args!("{line}\n"))
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
    write(io::stdout().lock(), text)
}

fn write(mut out: impl Write, text: impl Display) -> Result<(), Failure> {
    // In one piece: a line that others write must not come in between.
    out.write_all(text.to_string().as_bytes())?;
    out.flush()?;
    Ok(())
}

/// Tells people something that is no data.
pub(crate) fn note(text: &str) {
    // Nobody is there to be told if this fails.
    let _ = writeln!(anstream::stderr(), "{text}");
}

/// A bar on standard error, hidden where nobody would see it.
pub(crate) fn progress_bar(total: u64, template: &str) -> ProgressBar {
    if !progress_is_seen() {
        return ProgressBar::hidden();
    }
    ProgressBar::new(total).with_style(bar_style(template))
}

/// The style of a bar, from a template of indicatif.
pub(crate) fn bar_style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}

/// Whether a person looks at what goes to standard error, so that progress may be drawn there.
pub(crate) fn progress_is_seen() -> bool {
    io::stderr().is_terminal() && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}
