//! The log of a long-running command, on standard error: which lines it has, and their format.

use std::fmt;
use std::io::{self, IsTerminal, Write};
use std::sync::Arc;

use clap::{Args, ValueEnum};
use serde_json::{Map, Value};
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields, MakeWriter};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;

use super::failure::Failure;
use super::safe_text::{printable_styled, safe_json};
use super::time::{format_time, now_ms};

/// The options of commands that log.
#[derive(Args, Clone, Debug)]
pub(crate) struct LogOptions {
    /// Log level (error, warn, info, debug, trace) or a filter as in RUST_LOG [default: info; warn beside a
    /// status line]
    #[arg(long, value_name = "FILTER", help_heading = "Running")]
    log: Option<String>,
    /// Format of the log: text, or json for one JSON object per line
    #[arg(
        long,
        value_name = "FORMAT",
        value_enum,
        default_value_t,
        hide_possible_values = true,
        help_heading = "Running"
    )]
    log_format: LogFormat,
}

/// The format of the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    #[default]
    Text,
    Json,
}

impl LogOptions {
    pub(crate) fn format(&self) -> LogFormat {
        self.log_format
    }

    /// Starts logging with the filter of `--log`, or else of `RUST_LOG`, or else the default. Passes each line to
    /// `write`, safe for a terminal.
    pub(crate) fn start(
        &self,
        default: &str,
        write: impl Fn(&[u8]) + Send + Sync + 'static,
    ) -> Result<(), Failure> {
        let environment = std::env::var("RUST_LOG").ok().filter(|filter| !filter.is_empty());
        let filter = self.log.clone().or(environment).unwrap_or_else(|| default.to_owned());
        let targets = parse(&filter).map_err(|error| {
            Failure::Usage(format!(
                "invalid log filter {filter:?}: {error}\npass a level such as info, or a filter such as debug,hyper_util=warn"
            ))
        })?;
        let lines = tracing_subscriber::fmt::layer().with_writer(LineWriter(Arc::new(write)));
        let registry = tracing_subscriber::registry().with(targets);
        let started = match self.log_format {
            LogFormat::Json => registry.with(lines.event_format(JsonLines)).try_init(),
            LogFormat::Text => {
                let no_colour = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
                let lines = lines.compact().with_target(false);
                registry.with(lines.with_ansi(io::stderr().is_terminal() && !no_colour)).try_init()
            }
        };
        started.map_err(|error| Failure::Other(format!("cannot start logging: {error}")))
    }
}

/// Parses a log filter. A single word must be a level.
///
/// `tracing_subscriber` would take a misspelt level as the name of a module and silence everything else.
fn parse(filter: &str) -> Result<Targets, String> {
    for part in filter.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        let level = part.rsplit_once('=').map_or(part, |(_, level)| level);
        if level.is_empty() || level.parse::<LevelFilter>().is_err() {
            return Err(format!("unknown level {level:?}; expected off, error, warn, info, debug or trace"));
        }
    }
    filter.parse().map_err(|error| format!("{error}"))
}

/// Passes log lines on, safe for a terminal.
struct LineWriter<F>(Arc<F>);

impl<'a, F: Fn(&[u8])> MakeWriter<'a> for LineWriter<F> {
    type Writer = LineWriter<F>;

    fn make_writer(&'a self) -> LineWriter<F> {
        LineWriter(Arc::clone(&self.0))
    }
}

impl<F: Fn(&[u8])> Write for LineWriter<F> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        (self.0)(printable_styled(&String::from_utf8_lossy(bytes)).as_bytes());
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Returns a line of a log in JSON: time, level, message and other fields.
pub(crate) fn json_line(level: &str, message: Value, fields: Map<String, Value>) -> String {
    let mut line = Map::new();
    line.insert("time".to_owned(), format_time(now_ms()).into());
    line.insert("level".to_owned(), level.into());
    line.insert("message".to_owned(), message);
    for (name, value) in fields {
        line.entry(name).or_insert(value);
    }
    safe_json(&format!("{}\n", Value::Object(line)))
}

struct JsonLines;

impl<S, N> FormatEvent<S, N> for JsonLines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(&self, _: &FmtContext<'_, S, N>, mut out: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let mut fields = JsonFields(Map::new());
        event.record(&mut fields);
        let message = fields.0.remove("message").unwrap_or_default();
        let level = event.metadata().level().as_str().to_ascii_lowercase();
        out.write_str(&json_line(&level, message, fields.0))
    }
}

struct JsonFields(Map<String, Value>);

impl JsonFields {
    fn add(&mut self, field: &Field, value: impl Into<Value>) {
        self.0.insert(field.name().to_owned(), value.into());
    }
}

impl Visit for JsonFields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.add(field, format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.add(field, value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.add(field, value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.add(field, value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.add(field, value);
    }

    fn record_u128(&mut self, field: &Field, value: u128) {
        self.add(field, u64::try_from(value).unwrap_or(u64::MAX));
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.add(field, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_levels_are_refused() {
        for valid in ["info", "WARN", "off", "debug,hyper_util=warn", "millstream_worker=trace, info", ""] {
            assert!(parse(valid).is_ok(), "{valid}");
        }
        for invalid in ["shout", "wran", "bogus=", "=", "info,x=", "x=loud", "loud=very=much"] {
            assert!(parse(invalid).is_err(), "{invalid}");
        }
    }

    #[test]
    fn events_become_json_objects_with_typed_fields() {
        use std::sync::Mutex;

        let lines = Arc::new(Mutex::new(Vec::new()));
        let shared = Arc::clone(&lines);
        let write = move |line: &[u8]| shared.lock().unwrap().extend_from_slice(line);
        let layer = tracing_subscriber::fmt::layer().with_writer(LineWriter(Arc::new(write)));
        let subscriber = tracing_subscriber::registry().with(layer.event_format(JsonLines));
        tracing::subscriber::with_default(subscriber, || {
            let error = io::Error::other("\u{1b}[31mno\nsuch \u{202e}item");
            tracing::warn!(level = "mine", attempt = 3_u64, took_ms = 7_u128, wait = 0.5, fatal = false, %error, "attempt {}", 1);
        });
        let line = String::from_utf8(lines.lock().unwrap().clone()).unwrap();
        assert!(line.starts_with("{\"time\":\"20") && line.ends_with("}\n"), "{line}");
        assert!(!line.trim_end().contains(|c: char| c.is_control() || c == '\u{202e}'), "{line:?}");
        let value: Value = serde_json::from_str(&line).unwrap();
        assert_eq!((&value["level"], &value["message"]), (&"warn".into(), &"attempt 1".into()));
        assert_eq!(
            (&value["attempt"], &value["took_ms"], &value["wait"], &value["fatal"]),
            (&3.into(), &7.into(), &0.5.into(), &false.into())
        );
        assert_eq!(value["error"], "\u{1b}[31mno\nsuch \u{202e}item");
    }
}
