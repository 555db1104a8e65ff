//! The command line, made from the table of settings: every setting is a flag of the same name.

use std::path::PathBuf;

use clap::builder::styling::{AnsiColor, Styles};
use clap::{Arg, ArgMatches, Command, FromArgMatches, Subcommand, value_parser};
use millstream_server::settings::{Change, Id, SETTINGS, Setting};

use crate::commands::Ops;

/// What is to be done.
pub(crate) enum Task {
    /// Run the server.
    Serve {
        /// The configuration file.
        config_path: Option<PathBuf>,
        /// Settings given as flags.
        flags: Vec<(Id, String)>,
    },
    /// Everything else.
    Ops(Ops),
}

const ABOUT: &str =
    "A durable server for streams and consumer groups that speaks Redis' protocol, and its tools";

const OVERVIEW: &str = "\
Examples:
  millstream serve                                  a server on 127.0.0.1:6379
  millstream add orders item=book                   a message
  millstream group create orders billing            a group that will read it
  millstream lag                                    how far behind the groups are
  millstream top                                    the same and more, live
  millstream doctor                                 what is wrong, and the way out

The tools work on any store that speaks Redis' protocol, and on embedded ones: --url, or MILLSTREAM_URL.
Every command has examples: millstream group reset --help";

const EXAMPLES: &str = "\
Examples:
  millstream serve                                  on 127.0.0.1:6379
  millstream serve --port 7000 --exact-lag no       any setting is a flag
  MILLSTREAM_PORT=7000 millstream serve             or an environment variable
  millstream serve --config millstream.toml         or a key of a TOML file

A flag wins over the environment, the environment over the file.
Then, from another terminal:
  redis-cli XADD orders '*' item book
  redis-cli XGROUP CREATE orders billing 0
  redis-cli XREADGROUP GROUP billing me STREAMS orders '>'";

/// Reads the command line. Ends the process with a message if it makes no sense, or asks for help.
pub(crate) fn parse() -> Task {
    let matches = command().get_matches();
    match matches.subcommand() {
        Some(("serve", serve)) => Task::Serve {
            config_path: serve.get_one::<PathBuf>("config").cloned(),
            flags: SETTINGS.iter().filter_map(|setting| flag_of(serve, setting)).collect(),
        },
        _ => Task::Ops(Ops::from_arg_matches(&matches).unwrap_or_else(|error| error.exit())),
    }
}

fn flag_of(matches: &ArgMatches, setting: &Setting) -> Option<(Id, String)> {
    matches.get_one::<String>(setting.name).map(|text| (setting.id, text.clone()))
}

/// The whole command line.
pub(crate) fn command() -> Command {
    let server = Command::new("millstream")
        .version(env!("CARGO_PKG_VERSION"))
        .styles(styles())
        .subcommand_required(true)
        .arg_required_else_help(true)
        .disable_help_subcommand(true)
        .after_help(OVERVIEW)
        .subcommand(serve_command());
    Ops::augment_subcommands(server).about(ABOUT)
}

fn serve_command() -> Command {
    let config = Arg::new("config")
        .long("config")
        .value_name("FILE")
        .value_parser(value_parser!(PathBuf))
        .help("TOML file of settings [env: MILLSTREAM_CONFIG]");
    SETTINGS
        .iter()
        .map(setting_arg)
        .fold(Command::new("serve").about("Run the server").after_help(EXAMPLES).arg(config), Command::arg)
}

fn setting_arg(setting: &'static Setting) -> Arg {
    let fallback = match setting.fallback_text() {
        text if text.is_empty() => "none".to_owned(),
        text => text,
    };
    Arg::new(setting.name)
        .long(setting.name)
        .value_name(setting.kind.placeholder())
        .help(format!("{} [default: {fallback}]", setting.doc))
        .help_heading("Settings")
        .allow_hyphen_values(true)
        .hide(setting.change == Change::Never)
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
    fn the_command_line_is_well_formed() {
        command().debug_assert();
    }

    #[test]
    fn every_setting_is_a_flag() {
        for setting in SETTINGS {
            let long = format!("--{}", setting.name);
            let matches =
                command().try_get_matches_from(["millstream", "serve", &long, "-1"]).expect(setting.name);
            let serve = matches.subcommand_matches("serve").unwrap();
            assert_eq!(flag_of(serve, setting), Some((setting.id, "-1".to_owned())));
        }
    }

    #[test]
    fn a_misspelt_flag_is_refused_with_a_suggestion() {
        let error = command().try_get_matches_from(["millstream", "serve", "--prot", "1"]).unwrap_err();
        assert_eq!(error.exit_code(), 2);
        assert!(error.to_string().contains("--port"), "{error}");
    }
}
