//! Checks that `docs/configuration.md` contains the current table of settings.
//!
//! `UPDATE_DOCS=1 cargo test -p millstream-server --test configuration` updates the page.

use std::fmt::Write;

use millstream_server::settings::{Changeable, DefaultValue, SETTINGS, Setting, ValueType};

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/configuration.md");
const BEGIN: &str = "<!-- settings: begin -->\n";
const END: &str = "<!-- settings: end -->";

#[test]
fn page_contains_the_table_of_settings() {
    let page = std::fs::read_to_string(PAGE).unwrap();
    let begin = page.find(BEGIN).expect("the page contains the begin marker") + BEGIN.len();
    let end = page.find(END).expect("the page contains the end marker");
    let table = table();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(PAGE, format!("{}{table}{}", &page[..begin], &page[end..])).unwrap();
    } else {
        assert_eq!(
            &page[begin..end],
            table,
            "docs/configuration.md is out of date: run this test with UPDATE_DOCS=1"
        );
    }
}

fn table() -> String {
    let mut text =
        String::from("| setting | default | values | can change | meaning |\n|---|---|---|---|---|\n");
    for setting in SETTINGS {
        let (default, values) = (default_of(setting), values_of(setting.value_type));
        let changeable = match setting.changeable {
            Changeable::Anytime => "at any time",
            Changeable::AtStart => "at start",
            Changeable::Never => "never",
        };
        writeln!(text, "| `{}` | {default} | {values} | {changeable} | {} |", setting.name, setting.doc)
            .unwrap();
    }
    text
}

fn default_of(setting: &Setting) -> String {
    match setting.default {
        DefaultValue::Fixed("") => "none".to_owned(),
        DefaultValue::Fixed(text) => format!("`{text}`"),
        DefaultValue::HalfTheCores => "half the cores".to_owned(),
    }
}

fn values_of(value_type: ValueType) -> String {
    match value_type {
        ValueType::Text => "text".to_owned(),
        ValueType::YesNo => "yes, no".to_owned(),
        ValueType::Number { min, max: i64::MAX } => format!("{min} or more"),
        ValueType::Number { min, max } => format!("{min} to {max}"),
        ValueType::Bytes { min: 0, .. } => "bytes".to_owned(),
        ValueType::Bytes { min, .. } => format!("bytes, {min} or more"),
        ValueType::MemoryLimit => "bytes, a percentage, `auto`".to_owned(),
        ValueType::ClientMemory => "bytes, a percentage, `auto`".to_owned(),
        ValueType::Permissions => "an octal number up to 777".to_owned(),
        ValueType::Choice(words) => words.join(", "),
        ValueType::OutputLimit => "bytes, or `normal` with three numbers".to_owned(),
    }
}
