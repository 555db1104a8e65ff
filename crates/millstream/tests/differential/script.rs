//! A sequence of commands as data, so that it can be played on any server, cut down, and printed.

use crate::support::resp::escape;

/// A command's arguments, its name first.
pub(crate) type Argv = Vec<Vec<u8>>;

/// What is kept or left out as a whole when a sequence is cut down.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Step {
    /// Which of the connections sends it.
    pub connection: usize,
    /// The commands, in order.
    pub commands: Vec<Argv>,
    /// Whether replies are awaited before anything further is sent.
    pub flush: bool,
}

/// A whole sequence.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Script {
    /// Whether its connections speak RESP3.
    pub resp3: bool,
    /// Whether entries-read and lag mean the same in every version, given what the sequence leaves out.
    pub lag_is_comparable: bool,
    /// Whether the reference tells when consumers last got something.
    pub knows_activity: bool,
    /// What is sent.
    pub steps: Vec<Step>,
}

/// Arguments from words.
pub(crate) fn argv(words: &[&str]) -> Argv {
    words.iter().map(|word| word.as_bytes().to_vec()).collect()
}

/// Whether the command has this name, in any case.
pub(crate) fn is_named(argv: &Argv, name: &str) -> bool {
    argv.first().is_some_and(|first| first.eq_ignore_ascii_case(name.as_bytes()))
}

/// The sequence as lines that can be pasted into `redis-cli`.
pub(crate) fn listing(script: &Script) -> String {
    let lines = script.steps.iter().flat_map(|step| {
        step.commands.iter().map(|command| format!("  {}> {}", step.connection, line(command)))
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// One command as it would be typed.
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
