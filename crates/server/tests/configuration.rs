//! `docs/configuration.md` says what the table of settings says.
//!
//! `UPDATE_DOCS=1 cargo test -p millstream-server --test configuration` writes it anew.

use std::fmt::Write;

use millstream_server::settings::{Change, Fallback, Kind, SETTINGS, Setting};

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/configuration.md");
const BEGIN: &str = "<!-- settings: begin -->\n";
const END: &str = "<!-- settings: end -->";

#[test]
fn the_page_of_settings_is_the_table() {
    let page = std::fs::read_to_string(PAGE).unwrap();
    let begin = page.find(BEGIN).expect("the page has its marks") + BEGIN.len();
    let end = page.find(END).expect("the page has its marks");
    let table = table();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(PAGE, format!("{}{table}{}", &page[..begin], &page[end..])).unwrap();
    } else {
        assert_eq!(&page[begin..end], table, "run this test again with UPDATE_DOCS=1");
    }
}

fn table() -> String {
    let mut text =
        String::from("| setting | default | values | changes | meaning |\n|---|---|---|---|---|\n");
    for setting in SETTINGS {
        let (default, values) = (default_of(setting), values_of(setting.kind));
        let changes = match setting.change {
            Change::Anytime => "at any time",
            Change::AtStart => "at start",
            Change::Never => "never",
        };
        writeln!(text, "| `{}` | {default} | {values} | {changes} | {} |", setting.name, setting.doc)
            .unwrap();
    }
    text
}

fn default_of(setting: &Setting) -> String {
    match setting.fallback {
        Fallback::Is("") => "none".to_owned(),
        Fallback::Is(text) => format!("`{text}`"),
        Fallback::HalfTheCores => "half the cores".to_owned(),
    }
}

fn values_of(kind: Kind) -> String {
    match kind {
        Kind::Text => "text".to_owned(),
        Kind::YesNo => "yes, no".to_owned(),
        Kind::Number { min, max: i64::MAX } => format!("from {min}"),
        Kind::Number { min, max } => format!("{min} to {max}"),
        Kind::Bytes { min: 0, .. } => "bytes".to_owned(),
        Kind::Bytes { min, .. } => format!("bytes, from {min}"),
        Kind::Choice(words) => words.join(", "),
        Kind::OutputLimit => "bytes, or `normal` with three numbers".to_owned(),
    }
}
