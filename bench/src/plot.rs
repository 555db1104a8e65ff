//! Draws plots as SVG, without a plotting library. They are readable on light and on dark pages.

use std::fmt::Write as _;

use crate::stats::{significant, thousands};

/// One small plot with logarithmic axes.
pub(crate) struct Panel {
    pub(crate) title: String,
    pub(crate) lines: Vec<Line>,
}

/// The line of one operation on one server.
pub(crate) struct Line {
    pub(crate) label: String,
    /// 0 is the subject, drawn solid; peers are dashed.
    pub(crate) server: usize,
    pub(crate) server_name: String,
    /// Pairs of size and cost, both above 0.
    pub(crate) points: Vec<(f64, f64)>,
}

/// One bar of a bar chart.
pub(crate) struct Bar {
    pub(crate) label: String,
    /// How many times better the subject is than the peer.
    pub(crate) times: f64,
    /// Text to the right of the bar.
    pub(crate) text: String,
}

const STYLE: &str = "\
    .page { fill: #ffffff; stroke: #d8dee6; }
    .grid { stroke: #e3e8ee; stroke-width: 1; }
    .axis { stroke: #7a8794; stroke-width: 1.2; }
    .text { fill: #1d2733; font-size: 13px; }
    .head { fill: #1d2733; font-size: 15px; font-weight: 600; }
    .note { fill: #5b6876; font-size: 11px; }
    .bar { fill: #2f7d6d; }
    .line { fill: none; stroke-width: 2; }
    .s0 { stroke: #2f7d6d; } .f0 { fill: #2f7d6d; }
    .s1 { stroke: #b5560c; } .f1 { fill: #b5560c; }
    .s2 { stroke: #4a5fc1; } .f2 { fill: #4a5fc1; }
    .s3 { stroke: #8a3ea3; } .f3 { fill: #8a3ea3; }
    @media (prefers-color-scheme: dark) {
      .page { fill: #11161c; stroke: #2b343e; }
      .grid { stroke: #222b35; }
      .axis { stroke: #8794a2; }
      .text, .head { fill: #e4eaf0; }
      .note { fill: #98a5b3; }
      .bar { fill: #5cc2ae; }
      .s0 { stroke: #5cc2ae; } .f0 { fill: #5cc2ae; }
      .s1 { stroke: #e8a548; } .f1 { fill: #e8a548; }
      .s2 { stroke: #93a4f4; } .f2 { fill: #93a4f4; }
      .s3 { stroke: #d394e8; } .f3 { fill: #d394e8; }
    }
";
const COLOURS: usize = 4;

/// Font sizes of the classes in `STYLE`, in pixels.
const TEXT_PX: f64 = 13.0;
const HEAD_PX: f64 = 15.0;
const NOTE_PX: f64 = 11.0;

/// Space between the page's border and its content, in pixels.
const MARGIN: f64 = 24.0;

/// Draws a bar chart on a logarithmic axis. Bars start at 1 and grow to the right.
pub(crate) fn bars(title: &str, bars: &[Bar]) -> String {
    const WIDTH: f64 = 440.0;
    const TOP: f64 = 64.0;
    const STEP: f64 = 24.0;
    const LABEL_GAP: f64 = 12.0;
    const TEXT_GAP: f64 = 8.0;
    let left = MARGIN + widest(bars.iter().map(|bar| bar.label.as_str()), TEXT_PX) + LABEL_GAP;
    let bottom = TOP + bars.len() as f64 * STEP;
    let axis = Axis::over(bars.iter().map(|bar| bar.times).chain([1.0, 2.0]), left, left + WIDTH);
    let end_of_text =
        |bar: &Bar| axis.at(bar.times).max(axis.at(1.0)) + TEXT_GAP + text_width(&bar.text, NOTE_PX);
    let right = bars.iter().map(end_of_text).fold(axis.end, f64::max);
    let width = right.max(MARGIN + text_width(title, HEAD_PX)) + MARGIN;
    let mut out = begin(title, width.ceil(), bottom + 40.0);
    for tick in axis.ticks() {
        let x = axis.at(tick);
        let _ = writeln!(out, r#"  <line class="grid" x1="{x:.1}" y1="{TOP}" x2="{x:.1}" y2="{bottom}"/>"#);
        text(&mut out, "note", x, bottom + 18.0, "middle", &format!("{}×", short(tick)));
    }
    let one = axis.at(1.0);
    for (at, bar) in bars.iter().enumerate() {
        let y = TOP + at as f64 * STEP;
        let end = axis.at(bar.times);
        let (from, width) = (one.min(end), (end - one).abs().max(1.0));
        text(&mut out, "text", left - LABEL_GAP, y + 16.0, "end", &bar.label);
        let _ = writeln!(
            out,
            r#"  <rect class="bar" x="{from:.1}" y="{:.1}" width="{width:.1}" height="15" rx="2"/>"#,
            y + 4.0
        );
        text(&mut out, "note", one.max(end) + TEXT_GAP, y + 16.0, "start", &bar.text);
    }
    let _ = writeln!(out, r#"  <line class="axis" x1="{one:.1}" y1="{TOP}" x2="{one:.1}" y2="{bottom}"/>"#);
    out.push_str("</svg>\n");
    out
}

/// Draws panels, three in a row. Each shows cost on the vertical axis and size on the horizontal axis.
pub(crate) fn panels(title: &str, panels: &[Panel]) -> String {
    const WIDTH: f64 = 300.0;
    const HEIGHT: f64 = 300.0;
    const TOP: f64 = 84.0;
    let rows = panels.len().div_ceil(3) as f64;
    let mut out = begin(title, 3.0 * WIDTH, TOP + rows * HEIGHT);
    legend(&mut out, panels);
    for (at, panel) in panels.iter().enumerate() {
        let (column, row) = ((at % 3) as f64, (at / 3) as f64);
        draw_panel(&mut out, panel, column * WIDTH, TOP + row * HEIGHT);
    }
    out.push_str("</svg>\n");
    out
}

/// Draws the dashes and the name of each server.
fn legend(out: &mut String, panels: &[Panel]) {
    let mut servers: Vec<(usize, &str)> =
        panels.iter().flat_map(|p| &p.lines).map(|l| (l.server, l.server_name.as_str())).collect();
    servers.sort_unstable();
    servers.dedup();
    for (at, (server, name)) in servers.iter().enumerate() {
        let x = 24.0 + at as f64 * 160.0;
        let dashes = dashes(*server);
        let _ = writeln!(
            out,
            r#"  <line class="axis" x1="{x}" y1="58" x2="{}" y2="58" stroke-dasharray="{dashes}"/>"#,
            x + 32.0
        );
        text(out, "text", x + 40.0, 62.0, "start", name);
    }
}

fn dashes(server: usize) -> &'static str {
    ["none", "5 4", "2 3", "8 3 2 3"][server.min(3)]
}

fn draw_panel(out: &mut String, panel: &Panel, left: f64, top: f64) {
    let points = || panel.lines.iter().flat_map(|line| &line.points);
    let across = Axis::over(points().map(|point| point.0), left + 52.0, left + 284.0);
    let up = Axis::over(points().map(|point| point.1), top + 200.0, top + 24.0);
    text(out, "head", left + 52.0, top + 10.0, "start", &panel.title);
    text(out, "note", left + 284.0, top + 10.0, "end", "CPU µs/op");
    for tick in up.ticks() {
        let y = up.at(tick);
        let (from, to) = (across.begin, across.end);
        let _ = writeln!(out, r#"  <line class="grid" x1="{from}" y1="{y:.1}" x2="{to}" y2="{y:.1}"/>"#);
        text(out, "note", from - 6.0, y + 4.0, "end", &short(tick));
    }
    for tick in across.ticks() {
        text(out, "note", across.at(tick), up.begin + 16.0, "middle", &short(tick));
    }
    let _ = writeln!(
        out,
        r#"  <line class="axis" x1="{0}" y1="{2}" x2="{1}" y2="{2}"/>"#,
        across.begin, across.end, up.begin
    );
    let mut labels: Vec<&str> = Vec::new();
    for line in &panel.lines {
        let colour = labels.iter().position(|label| *label == line.label).unwrap_or_else(|| {
            labels.push(&line.label);
            labels.len() - 1
        });
        draw_line(out, line, colour % COLOURS, &across, &up);
    }
    for (at, label) in labels.iter().enumerate() {
        let (x, y) = (left + 56.0, top + 237.0 + at as f64 * 15.0);
        let colour = at % COLOURS;
        let _ = writeln!(out, r#"  <circle class="f{colour}" cx="{x}" cy="{:.1}" r="4"/>"#, y - 4.0);
        text(out, "note", x + 9.0, y, "start", label);
    }
}

fn draw_line(out: &mut String, line: &Line, colour: usize, across: &Axis, up: &Axis) {
    let places: Vec<_> = line.points.iter().map(|(x, y)| (across.at(*x), up.at(*y))).collect();
    let path: Vec<_> = places.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
    let _ = writeln!(
        out,
        r#"  <polyline class="line s{colour}" stroke-dasharray="{}" points="{}"/>"#,
        dashes(line.server),
        path.join(" ")
    );
    for ((x, y), (size, cost)) in places.iter().zip(&line.points) {
        let tooltip =
            format!("{} {}, {}: {} µs", line.server_name, line.label, thousands(*size), significant(*cost));
        let _ = writeln!(
            out,
            r#"  <circle class="f{colour}" cx="{x:.1}" cy="{y:.1}" r="2.6"><title>{}</title></circle>"#,
            escaped(&tooltip)
        );
    }
}

/// A logarithmic axis between whole powers of ten.
struct Axis {
    /// Exponents of ten at both ends.
    low: f64,
    high: f64,
    /// Coordinates of both ends, in pixels.
    begin: f64,
    end: f64,
}

impl Axis {
    fn over(values: impl Iterator<Item = f64>, begin: f64, end: f64) -> Axis {
        let logs: Vec<f64> = values.filter(|v| *v > 0.0).map(f64::log10).collect();
        let low = logs.iter().copied().fold(f64::INFINITY, f64::min);
        let high = logs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let (low, high) = if logs.is_empty() { (0.0, 1.0) } else { (low.floor(), high.ceil()) };
        Axis { low, high: high.max(low + 1.0), begin, end }
    }

    fn at(&self, value: f64) -> f64 {
        let part = (value.log10() - self.low) / (self.high - self.low);
        self.begin + part * (self.end - self.begin)
    }

    fn ticks(&self) -> impl Iterator<Item = f64> + use<> {
        (self.low as i32..=self.high as i32).map(|power| 10f64.powi(power))
    }
}

fn begin(title: &str, width: f64, height: f64) -> String {
    let title = escaped(title);
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" role=\"img\" \
         aria-labelledby=\"title\" font-family=\"system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif\">\n  \
         <title id=\"title\">{title}</title>\n  <style>\n{STYLE}  </style>\n  \
         <rect class=\"page\" x=\"0.5\" y=\"0.5\" width=\"{}\" height=\"{}\" rx=\"8\"/>\n  \
         <text class=\"head\" x=\"24\" y=\"32\">{title}</text>\n",
        width - 1.0,
        height - 1.0
    )
}

fn text(out: &mut String, class: &str, x: f64, y: f64, anchor: &str, words: &str) {
    let words = escaped(words);
    let _ = writeln!(
        out,
        r#"  <text class="{class}" x="{x:.1}" y="{y:.1}" text-anchor="{anchor}">{words}</text>"#
    );
}

/// Returns an upper estimate of the width of the widest text, in pixels.
fn widest<'a>(texts: impl Iterator<Item = &'a str>, font_px: f64) -> f64 {
    texts.map(|words| text_width(words, font_px)).fold(0.0, f64::max)
}

/// Returns an upper estimate of a text's width in pixels. The reader's font is unknown, so the estimate takes the
/// advance widths of a wide sans-serif font (DejaVu Sans).
fn text_width(words: &str, font_px: f64) -> f64 {
    let em = |letter: char| match letter {
        'A'..='Z' | '×' => 0.74,
        ' ' | ',' | '.' | ':' | '(' | ')' => 0.36,
        _ => 0.63,
    };
    words.chars().map(em).sum::<f64>() * font_px
}

fn escaped(words: &str) -> String {
    words.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// Formats a power of ten for an axis: `1k`, `10M`.
fn short(value: f64) -> String {
    match value {
        v if v >= 1e6 => format!("{}M", v / 1e6),
        v if v >= 1e3 => format!("{}k", v / 1e3),
        v if v >= 1.0 => format!("{v:.0}"),
        v => format!("{v}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(server: usize, points: &[(f64, f64)]) -> Line {
        Line {
            label: "XADD".into(),
            server,
            server_name: format!("server {server}"),
            points: points.to_vec(),
        }
    }

    #[test]
    fn axis_ends_at_powers_of_ten() {
        let axis = Axis::over([2.0, 30.0].into_iter(), 100.0, 300.0);
        assert_eq!(axis.ticks().collect::<Vec<_>>(), [1.0, 10.0, 100.0]);
        assert_eq!([1.0, 10.0, 100.0].map(|v| axis.at(v)), [100.0, 200.0, 300.0]);
        assert_eq!(Axis::over([].into_iter(), 0.0, 1.0).ticks().count(), 2);
    }

    #[test]
    fn every_line_and_every_point_is_drawn() {
        let panel = Panel {
            title: "entries <all>".into(),
            lines: vec![
                line(0, &[(1.0, 1.0), (10.0, 1.1)]),
                line(1, &[(1.0, 3.0), (10.0, 4.0), (100.0, 5.0)]),
            ],
        };
        let svg = panels("Growth", &[panel]);
        assert_eq!(svg.matches("<polyline").count(), 2);
        assert_eq!(svg.matches("r=\"2.6\"").count(), 5);
        assert!(svg.contains("entries &lt;all&gt;"));
        assert!(svg.contains("prefers-color-scheme: dark"));
        assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
        assert!(!svg.contains("NaN") && !svg.contains("inf"));
    }

    #[test]
    fn bars_begin_at_one() {
        let bar = |times| Bar { label: "XADD".into(), times, text: String::new() };
        let svg = bars("Speed", &[bar(10.0), bar(0.5)]);
        assert_eq!(svg.matches("<rect class=\"bar\"").count(), 2);
        let left = MARGIN + text_width("XADD", TEXT_PX) + 12.0;
        let axis = Axis::over([10.0, 0.5, 1.0, 2.0].into_iter(), left, left + 440.0);
        assert!(svg.contains(&format!("x=\"{:.1}\" y=\"68.0\"", axis.at(1.0))), "{svg}");
        assert!(svg.contains(&format!("x=\"{:.1}\" y=\"92.0\"", axis.at(0.5))), "{svg}");
    }

    #[test]
    fn bar_chart_has_space_for_its_longest_label_and_text() {
        let label = "10 XADD, XREADGROUP COUNT 10, XACK 10, step by step".to_owned();
        let text = "1,000× (900–1,100) valkey-9.1".to_owned();
        let (label_px, text_px) = (text_width(&label, TEXT_PX), text_width(&text, NOTE_PX));
        let svg = bars("Speed", &[Bar { label, times: 1000.0, text }]);
        let number_behind = |mark: &str| -> f64 {
            let rest = &svg[svg.find(mark).unwrap() + mark.len()..];
            rest.split([' ', '"']).next().unwrap().parse().unwrap()
        };
        let label_end = number_behind("class=\"text\" x=\"");
        assert!(label_end - label_px >= MARGIN - 1.0, "{svg}");
        let width = number_behind("viewBox=\"0 0 ");
        let bar_end = label_end + 12.0 + 440.0;
        assert!(bar_end + 8.0 + text_px + MARGIN <= width + 1.0, "{svg}");
    }
}
