//! Writes the text format of Prometheus, version 0.0.4: the metrics of the server and of workers.

use std::fmt::{self, Display, Write};

/// The Content-Type header for the text over HTTP.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The kind of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    /// A value that only increases.
    Counter,
    /// A value that goes up and down.
    Gauge,
    /// Observed values, counted in buckets by size.
    Histogram,
}

impl Display for MetricKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            MetricKind::Counter => "counter",
            MetricKind::Gauge => "gauge",
            MetricKind::Histogram => "histogram",
        })
    }
}

/// Builds the text of metrics, family by family.
#[derive(Debug, Default)]
pub struct PrometheusText(String);

impl PrometheusText {
    /// Starts a family. Its samples must follow.
    pub fn family(&mut self, name: &str, help: &str, kind: MetricKind) {
        self.line(format_args!("# HELP {name} {}", Escaped { text: help, quotes: false }));
        self.line(format_args!("# TYPE {name} {kind}"));
    }

    /// Adds a sample.
    pub fn sample<N: AsRef<str>, V: AsRef<str>>(
        &mut self,
        name: &str,
        labels: &[(N, V)],
        value: impl Display,
    ) {
        self.sample_with(name, &render_labels(labels), value);
    }

    /// Adds a sample with labels that [`render_labels`] returned.
    pub fn sample_with(&mut self, name: &str, labels: &str, value: impl Display) {
        self.line(format_args!("{name}{labels} {value}"));
    }

    /// Returns the text.
    pub fn finish(self) -> String {
        self.0
    }

    fn line(&mut self, line: fmt::Arguments<'_>) {
        writeln!(self.0, "{line}").expect("writing to a string cannot fail");
    }
}

/// Returns the labels of a sample, in braces. Empty if there are none.
pub fn render_labels<N: AsRef<str>, V: AsRef<str>>(labels: &[(N, V)]) -> String {
    let mut rendered = String::new();
    for (position, (label, value)) in labels.iter().enumerate() {
        rendered.push(if position == 0 { '{' } else { ',' });
        let value = Escaped { text: value.as_ref(), quotes: true };
        write!(rendered, "{}=\"{value}\"", label.as_ref()).expect("writing to a string cannot fail");
    }
    if !labels.is_empty() {
        rendered.push('}');
    }
    rendered
}

struct Escaped<'a> {
    text: &'a str,
    quotes: bool,
}

impl Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.text.chars().try_for_each(|c| match c {
            '\\' => f.write_str("\\\\"),
            '\n' => f.write_str("\\n"),
            '"' if self.quotes => f.write_str("\\\""),
            c => f.write_char(c),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_and_samples_are_escaped() {
        let mut text = PrometheusText::default();
        text.family("up", "Is it \"up\"\\down?\nSay.", MetricKind::Gauge);
        text.sample::<&str, &str>("up", &[], 1);
        text.sample("up", &[("a", "say \"hi\"\\\n"), ("b", "")], 2.5);
        assert_eq!(
            text.finish(),
            "# HELP up Is it \"up\"\\\\down?\\nSay.\n# TYPE up gauge\nup 1\nup{a=\"say \\\"hi\\\"\\\\\\n\",b=\"\"} 2.5\n"
        );
    }
}
