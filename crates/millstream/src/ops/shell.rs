//! Commands that the tools suggest, quoted so that they can be pasted into a shell.
//!
//! The names in them come from a store: anybody who can add to it chose them.

use millstream_worker::operate::command::Command;

use super::safe_text::printable;

/// Returns a command as a line for a shell.
pub(crate) fn line(command: &Command) -> String {
    let names: Vec<&str> = command.names.iter().map(String::as_str).collect();
    let options = command.options.iter().map(|(name, value)| match value {
        Some(value) => option(name, value),
        None => (*name).to_owned(),
    });
    suggest(command.subcommand, &names, &options.collect::<Vec<_>>().join(" "))
}

/// Returns a command: `millstream`, the subcommand, the names quoted, and the options.
///
/// If a name begins with `-`, the options come first and `--` ends them. Otherwise the name would be taken as an
/// option.
pub(crate) fn suggest(subcommand: &str, names: &[&str], options: &str) -> String {
    let quoted: Vec<String> = names.iter().map(|name| word(name)).collect();
    let quoted = quoted.join(" ");
    let parts = match names.iter().any(|name| name.starts_with('-')) {
        true => ["millstream", subcommand, options, "--", &quoted],
        false => ["millstream", subcommand, &quoted, options, ""],
    };
    parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" ")
}

/// Returns an option with its value quoted: `--group billing`.
pub(crate) fn option(name: &str, value: &str) -> String {
    let separator = if value.starts_with('-') { '=' } else { ' ' };
    format!("{name}{separator}{}", word(value))
}

/// Quotes text as one word of a shell.
///
/// Uses single quotes where they are needed. A word with characters that are not safe on a terminal has these as
/// octal bytes in `$'…'`, which bash, zsh and ksh understand.
pub(crate) fn word(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_./:@%+,=-".contains(c);
    if !text.is_empty() && !text.starts_with('=') && text.chars().all(is_plain) {
        return text.to_owned();
    }
    let shown = printable(text);
    // No argument can contain a NUL byte, so no command can name such a stream. The escaped name does not exist.
    if shown == text || text.contains('\0') {
        return format!("'{}'", shown.replace('\'', r"'\''"));
    }
    let quoted: String = text.chars().map(quoted_char).collect();
    format!("$'{quoted}'")
}

/// Returns a character as it is written inside `$'…'`.
fn quoted_char(c: char) -> String {
    let text = c.to_string();
    match c {
        '\'' | '\\' => format!("\\{c}"),
        _ if printable(&text) == text => text,
        _ => text.bytes().map(|byte| format!("\\{byte:03o}")).collect(),
    }
}

#[cfg(test)]
mod tests {
    use std::process;

    use super::*;

    #[test]
    fn words_are_quoted_where_needed() {
        for plain in ["orders", "a-b_c.d/e:f@g%h+i,j=k", "-x"] {
            assert_eq!(word(plain), plain);
        }
        for (text, quoted) in [
            ("", "''"),
            ("a b", "'a b'"),
            ("$(touch x)", "'$(touch x)'"),
            ("it's", r"'it'\''s'"),
            ("=ls", "'=ls'"),
            ("{orders}:dlq", "'{orders}:dlq'"),
            ("é", "'é'"),
            ("a\n'\\\u{9b}", r"$'a\012\'\\\302\233'"),
            ("a\0b", r"'a\u{0}b'"),
        ] {
            assert_eq!(word(text), quoted);
        }
    }

    #[test]
    fn a_shell_reads_the_words_that_were_quoted() {
        let words = [
            "a b",
            "$(exit 1)`exit 1`",
            "a;b|c&d>e",
            "it's \"q\" \\",
            "!h *?[x] ~ #",
            "\u{1b}[2J\r\n\u{202e}é",
        ];
        for text in words {
            let script = format!("printf %s {}", word(text));
            let output = process::Command::new("bash").args(["-c", &script]).output().expect("run bash");
            assert_eq!(String::from_utf8_lossy(&output.stdout), text, "{script}");
        }
    }

    #[test]
    fn names_that_look_like_options_come_last() {
        assert_eq!(
            suggest("group reset", &["orders", "a b"], "--to-latest"),
            "millstream group reset orders 'a b' --to-latest"
        );
        assert_eq!(
            suggest("group reset", &["--x", "b"], "--to-latest"),
            "millstream group reset --to-latest -- --x b"
        );
        assert_eq!(suggest("dlq ls", &["-x"], ""), "millstream dlq ls -- -x");
        assert_eq!(suggest("dlq ls", &["orders"], ""), "millstream dlq ls orders");
        assert_eq!(option("--heir", "a b"), "--heir 'a b'");
        assert_eq!(option("--heir", "-a"), "--heir=-a");
        let command = Command::new("consumer rm", &["orders", "a b"]).option("--heir", "-c").flag("--yes");
        assert_eq!(line(&command), "millstream consumer rm orders 'a b' --heir=-c --yes");
    }
}
