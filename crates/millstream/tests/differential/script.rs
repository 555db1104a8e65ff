//! A command sequence as data, so that it can be run on any server, shrunk, and printed.

use crate::support::resp::escape;

/// A command's arguments, its name first.
pub(crate) type Argv = Vec<Vec<u8>>;

/// The unit that shrinking keeps or removes as a whole.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Step {
    /// Number of the connection that sends it.
    pub connection: usize,
    /// The commands, in order.
    pub commands: Vec<Argv>,
    /// Whether to wait for all replies before the next step.
    pub flush: bool,
}

/// A whole command sequence.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Script {
    /// Whether its connections use RESP3.
    pub resp3: bool,
    /// Whether `entries-read` and `lag` of this sequence are equal in all versions.
    pub lag_is_comparable: bool,
    /// Whether the reference reports when consumers last received entries.
    pub knows_activity: bool,
    /// The steps, in order.
    pub steps: Vec<Step>,
}

/// Converts words to arguments.
pub(crate) fn argv(words: &[&str]) -> Argv {
    words.iter().map(|word| word.as_bytes().to_vec()).collect()
}

/// Whether the command has this name, ignoring case.
pub(crate) fn is_named(argv: &Argv, name: &str) -> bool {
    argv.first().is_some_and(|first| first.eq_ignore_ascii_case(name.as_bytes()))
}

/// Formats the sequence as lines that can be pasted into `redis-cli`.
pub(crate) fn listing(script: &Script) -> String {
    let lines = script.steps.iter().flat_map(|step| {
        step.commands.iter().map(|command| format!("  {}> {}", step.connection, line(command)))
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// Formats one command as it would be typed.
pub(crate) fn line(argv: &Argv) -> String {
    let word = |arg: &Vec<u8>| {
        let plain = !arg.is_empty()
            && arg.iter().all(|byte| byte.is_ascii_graphic() && *byte != b'"' && *byte != b'\\');
        let text = if arg.len() > 60 {
            format!("{}… {} bytes", escape(&arg[..20]), arg.len())
        } else {
            escape(arg)
        };
        if plain && arg.len() <= 60 { text } else { format!("\"{text}\"") }
    };
    argv.iter().map(word).collect::<Vec<_>>().join(" ")
}
