//! What to do about a problem, as sentences and as commands of the command line.
//!
//! A [`Command`] is data. How it is quoted for a shell, and whether it is a line or a button, is up to the program
//! that shows it.

/// A command of the `millstream` program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command {
    /// The subcommand, such as `group reset`.
    pub subcommand: &'static str,
    /// The stream, the group, the consumer and other positional arguments.
    pub names: Vec<String>,
    /// The options, such as `--min-idle` with the value `5m`, or `--to-latest` without one.
    pub options: Vec<(&'static str, Option<String>)>,
}

impl Command {
    /// Creates a command with positional arguments.
    pub fn new(subcommand: &'static str, names: &[&str]) -> Command {
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        Command { subcommand, names, options: Vec::new() }
    }

    /// Adds an option with a value.
    #[must_use]
    pub fn option(mut self, name: &'static str, value: &str) -> Command {
        self.options.push((name, Some(value.to_owned())));
        self
    }

    /// Adds an option without a value.
    #[must_use]
    pub fn flag(mut self, name: &'static str) -> Command {
        self.options.push((name, None));
        self
    }
}

/// What an operator can do about a problem: text, with commands in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WayOut(Vec<WayOutPart>);

/// A part of a [`WayOut`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WayOutPart {
    /// Text, with the spaces and punctuation around commands.
    Text(String),
    /// A command to run.
    Command(Command),
}

impl WayOut {
    /// Starts with text.
    pub fn text(text: impl Into<String>) -> WayOut {
        WayOut::default().then(text)
    }

    /// Appends text.
    #[must_use]
    pub fn then(mut self, text: impl Into<String>) -> WayOut {
        self.0.push(WayOutPart::Text(text.into()));
        self
    }

    /// Appends a command.
    #[must_use]
    pub fn run(mut self, command: Command) -> WayOut {
        self.0.push(WayOutPart::Command(command));
        self
    }

    /// Appends all parts of another one.
    #[must_use]
    pub fn append(mut self, other: WayOut) -> WayOut {
        self.0.extend(other.0);
        self
    }

    /// Returns the parts, in order.
    pub fn parts(&self) -> &[WayOutPart] {
        &self.0
    }

    /// Returns the commands in the text.
    pub fn commands(&self) -> impl Iterator<Item = &Command> {
        self.0.iter().filter_map(|part| match part {
            WayOutPart::Text(_) => None,
            WayOutPart::Command(command) => Some(command),
        })
    }

    /// Returns the whole text. `line_of` writes a command as a line for a shell.
    pub fn to_text(&self, line_of: impl Fn(&Command) -> String) -> String {
        let parts = self.0.iter().map(|part| match part {
            WayOutPart::Text(text) => text.clone(),
            WayOutPart::Command(command) => line_of(command),
        });
        parts.collect()
    }
}

impl From<&str> for WayOut {
    fn from(text: &str) -> WayOut {
        WayOut::text(text)
    }
}
