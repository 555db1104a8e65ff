//! The command line. `serve` gets a flag for every row of the table of settings; the tools describe their own options.

use std::path::PathBuf;

use clap::builder::styling::{AnsiColor, Styles};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, ArgMatches, Command, Error, FromArgMatches, Subcommand, value_parser};
use millstream_server::settings::{Changeable, Id, SETTINGS, Setting};

use crate::commands::Tool;

pub(crate) enum Invocation {
    Serve {
        config_path: Option<PathBuf>,
        /// Settings given as flags.
        flags: Vec<(Id, String)>,
    },
    Tool(Box<Tool>),
}

const ABOUT: &str =
    "A durable, Redis-compatible stream server, with workers for consumer groups and tools to operate them";

const OVERVIEW: &str = "\
Examples:
  millstream serve                                  Start a server on 127.0.0.1:6379
  millstream add orders item=book                   Add a message to the stream 'orders'
  millstream work -s orders -g billing --exec cat   Run a command for each message of a group
  millstream lag                                    Show how far behind the groups are
  millstream top                                    Watch streams and groups live
  millstream doctor                                 Find problems and suggest fixes

Workers and tools run on Millstream, Redis and Valkey servers and on embedded stores. Choose the store with --url or \
MILLSTREAM_URL.
Run 'millstream COMMAND --help' for the options and examples of a command.";

const EXAMPLES: &str = "\
Examples:
  millstream serve                              Listen on 127.0.0.1:6379
  millstream serve --port 7000 --exact-lag no   Change settings with flags
  MILLSTREAM_PORT=7000 millstream serve         Change settings with environment variables
  millstream serve --config millstream.toml     Read settings from a TOML file

A flag overrides its environment variable, and the variable overrides the file. SIGHUP makes the server read the file \
again. SIGTERM and Ctrl-C stop the server; a second signal, at least a second later, stops it without waiting.

To try it, run in another terminal:
  redis-cli XADD orders '*' item book
  redis-cli XGROUP CREATE orders billing 0
  redis-cli XREADGROUP GROUP billing me STREAMS orders '>'";

/// Parses the command line. Prints a message and exits if it is invalid or asks for help.
pub(crate) fn parse() -> Invocation {
    let matches = command().try_get_matches().unwrap_or_else(|error| explained(error).exit());
    match matches.subcommand() {
        Some(("serve", serve)) => Invocation::Serve {
            config_path: serve.get_one::<PathBuf>("config").cloned(),
            flags: SETTINGS.iter().filter_map(|setting| flag_value(serve, setting)).collect(),
        },
        _ => {
            Invocation::Tool(Box::new(Tool::from_arg_matches(&matches).unwrap_or_else(|error| error.exit())))
        }
    }
}

/// Makes an error of the parser say what to do.
fn explained(error: Error) -> Error {
    // Terms of Rust's standard library.
    const WORDS: [(&str, &str); 4] = [
        ("invalid digit found in string", "expected a whole number"),
        ("cannot parse integer from empty string", "expected a whole number"),
        ("number too large to fit in target type", "the number is too large"),
        ("invalid float literal", "expected a number"),
    ];
    let text = error.to_string();
    let message = match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(file))
            if error.kind() == ErrorKind::UnknownArgument
                && std::env::args().nth(1).is_some_and(|command| command == "serve")
                && !file.starts_with('-') =>
        {
            format!(
                "'{file}' is not an option of serve; if it is a file of settings, pass it with --config FILE. The file is TOML: \
                 a redis.conf must be rewritten, with lines such as port = 6379"
            )
        }
        _ => {
            let Some((from, to)) = WORDS.iter().find(|(from, _)| text.contains(from)) else { return error };
            let first = text.lines().next().unwrap_or_default();
            first.trim_start_matches("error: ").replace(from, to)
        }
    };
    Error::raw(error.kind(), message + "\n\nFor more information, try '--help'.\n")
}

fn flag_value(matches: &ArgMatches, setting: &Setting) -> Option<(Id, String)> {
    matches.get_one::<String>(setting.name).map(|text| (setting.id, text.clone()))
}

pub(crate) fn command() -> Command {
    let server = Command::new("millstream")
        .version(env!("CARGO_PKG_VERSION"))
        .styles(styles())
        .subcommand_required(true)
        .arg_required_else_help(true)
        .after_help(OVERVIEW)
        .subcommand(serve_command());
    Tool::augment_subcommands(server).about(ABOUT)
}

fn serve_command() -> Command {
    let config = Arg::new("config")
        .long("config")
        .value_name("FILE")
        .value_parser(value_parser!(PathBuf))
        .help("Read settings from this TOML file [env: MILLSTREAM_CONFIG]");
    SETTINGS
        .iter()
        .map(setting_arg)
        .fold(Command::new("serve").about("Run the server").after_help(EXAMPLES).arg(config), Command::arg)
}

fn setting_arg(setting: &'static Setting) -> Arg {
    let default = match setting.default_text() {
        text if text.is_empty() => "none".to_owned(),
        text => text,
    };
    Arg::new(setting.name)
        .long(setting.name)
        .value_name(setting.value_type.placeholder())
        .help(format!("{} [default: {default}]", setting.doc))
        .help_heading("Settings")
        .allow_hyphen_values(true)
        .hide(setting.changeable == Changeable::Never)
}

fn styles() -> Styles {
    Styles::styled()
        .header(AnsiColor::Green.on_default().bold())
        .usage(AnsiColor::Green.on_default().bold())
        .literal(AnsiColor::Cyan.on_default().bold())
        .placeholder(AnsiColor::Cyan.on_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clap_accepts_the_definition() {
        command().debug_assert();
    }

    #[test]
    fn every_setting_is_a_flag() {
        for setting in SETTINGS {
            let long = format!("--{}", setting.name);
            let matches =
                command().try_get_matches_from(["millstream", "serve", &long, "-1"]).expect(setting.name);
            let serve = matches.subcommand_matches("serve").unwrap();
            assert_eq!(flag_value(serve, setting), Some((setting.id, "-1".to_owned())));
        }
    }

    #[test]
    fn a_misspelt_flag_gets_a_suggestion() {
        let error = command().try_get_matches_from(["millstream", "serve", "--prot", "1"]).unwrap_err();
        assert_eq!(error.exit_code(), 2);
        assert!(error.to_string().contains("--port"), "{error}");
    }
}
