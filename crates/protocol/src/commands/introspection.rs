//! What the server says about its commands, its settings and its users.
//!
//! `COMMAND`, `COMMAND COUNT`, `COMMAND INFO|DOCS [name ...]`,
//! `COMMAND LIST [FILTERBY <MODULE name|ACLCAT category|PATTERN pattern>]`,
//! `COMMAND GETKEYS|GETKEYSANDFLAGS command [arg ...]`, `CONFIG GET pattern [pattern ...]`,
//! `CONFIG SET name value [name value ...]`, `CONFIG RESETSTAT|REWRITE`,
//! `ACL WHOAMI|LIST|USERS`, `ACL CAT [category]`, `ACL GETUSER name`

use super::{Arg, ArgList, Command};
use crate::args::{Args, subcommand};
use crate::errors::{self, CommandError};

/// COMMAND and its subcommands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandCommand<'a> {
    /// COMMAND: all of them.
    All,
    /// COMMAND COUNT
    Count,
    /// COMMAND INFO; no names are all of them.
    Info(ArgList<'a>),
    /// COMMAND DOCS; no names are all of them.
    Docs(ArgList<'a>),
    /// COMMAND LIST
    List(CommandFilter<'a>),
    /// COMMAND GETKEYS: an argv.
    GetKeys(ArgList<'a>),
    /// COMMAND GETKEYSANDFLAGS: an argv.
    GetKeysAndFlags(ArgList<'a>),
}

/// Which commands COMMAND LIST names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandFilter<'a> {
    /// All.
    All,
    /// Those of a module.
    Module(Arg<'a>),
    /// Those of a category.
    Category(Arg<'a>),
    /// Those whose name matches.
    Pattern(Arg<'a>),
}

/// CONFIG and its subcommands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConfigCommand<'a> {
    /// CONFIG GET
    Get(ArgList<'a>),
    /// CONFIG SET: name, value, name, value…
    Set(ArgList<'a>),
    /// CONFIG RESETSTAT
    ResetStat,
    /// CONFIG REWRITE
    Rewrite,
}

/// ACL and its subcommands, on a server with one user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AclCommand<'a> {
    /// ACL WHOAMI
    WhoAmI,
    /// ACL CAT
    Cat(Option<Arg<'a>>),
    /// ACL LIST
    List,
    /// ACL USERS
    Users,
    /// ACL GETUSER
    GetUser(Arg<'a>),
}

pub(crate) fn parse_command<'a>(_argv: &'a [&'a [u8]]) -> Result<Command<'a>, CommandError> {
    Ok(Command::Command(CommandCommand::All))
}

pub(crate) fn parse_command_count<'a>(argv: &'a [&'a [u8]]) -> Result<Command<'a>, CommandError> {
    Args::of_subcommand(argv).finish()?;
    Ok(Command::Command(CommandCommand::Count))
}

pub(crate) fn parse_command_info<'a>(argv: &'a [&'a [u8]]) -> Result<Command<'a>, CommandError> {
    Ok(Command::Command(CommandCommand::Info(Args::of_subcommand(argv).rest())))
}

pub(crate) fn parse_command_docs<'a>(argv: &'a [&'a [u8]]) -> Result<Command<'a>, CommandError> {
    Ok(Command::Command(CommandCommand::Docs(Args::of_subcommand(argv).rest())))
}

pub(crate) fn parse_command_list<'a>(argv: &'a [&'a [u8]]) -> Result<Command<'a>, CommandError> {
    let mut args = Args::of_subcommand(argv);
    let mut filter = CommandFilter::All;
    if args.keyword_before("FILTERBY", 2) {
        let kind: fn(Arg<'a>) -> CommandFilter<'a> = match () {
            () if args.keyword("MODULE") => CommandFilter::Module,
            () if args.keyword("ACLCAT") => CommandFilter::Category,
            () if args.keyword("PATTERN") => CommandFilter::Pattern,
            () => return Err(errors::SYNTAX),
        };
        filter = kind(args.next()?);
    }
    args.finish()?;
    Ok(Command::Command(CommandCommand::List(filter)))
}

pub(crate) fn parse_command_getkeys<'a>(argv: &'a [&'a [u8]]) -> Result<Command<'a>, CommandError> {
    Ok(Command::Command(CommandCommand::GetKeys(Args::of_subcommand(argv).rest())))
}

pub(crate) fn parse_command_getkeysandflags<'a>(argv: &'a [&'a [u8]]) -> Result<Command<'a>, CommandError> {
    Ok(Command::Command(CommandCommand::GetKeysAndFlags(Args::of_subcommand(argv).rest())))
}

pub(crate) fn parse_config_get<'a>(argv: &'a [&'a [u8]]) -> Result<Command<'a>, CommandError> {
    Ok(Command::Config(ConfigCommand::Get(Args::of_subcommand(argv).rest())))
}

pub(crate) fn parse_config_set<'a>(argv: &'a [&'a [u8]]) -> Result<Command<'a>, CommandError> {
    let pairs = Args::of_subcommand(argv).pairs("config|set").map_err(|_| errors::SYNTAX)?;
    Ok(Command::Config(ConfigCommand::Set(pairs)))
}

pub(crate) fn parse_config_resetstat<'a>(argv: &'a [&'a [u8]]) -> Result<Command<'a>, CommandError> {
    Args::of_subcommand(argv).finish()?;
    Ok(Command::Config(ConfigCommand::ResetStat))
}

pub(crate) fn parse_config_rewrite<'a>(argv: &'a [&'a [u8]]) -> Result<Command<'a>, CommandError> {
    Args::of_subcommand(argv).finish()?;
    Ok(Command::Config(ConfigCommand::Rewrite))
}

pub(crate) fn parse_acl_whoami<'a>(argv: &'a [&'a [u8]]) -> Result<Command<'a>, CommandError> {
    Args::of_subcommand(argv).finish()?;
    Ok(Command::Acl(AclCommand::WhoAmI))
}

pub(crate) fn parse_acl_cat<'a>(argv: &'a [&'a [u8]]) -> Result<Command<'a>, CommandError> {
    match *Args::of_subcommand(argv).rest() {
        [] => Ok(Command::Acl(AclCommand::Cat(None))),
        [category] => Ok(Command::Acl(AclCommand::Cat(Some(category)))),
        _ => Err(errors::subcommand_syntax(subcommand(argv), "ACL")),
    }
}

pub(crate) fn parse_acl_list<'a>(argv: &'a [&'a [u8]]) -> Result<Command<'a>, CommandError> {
    Args::of_subcommand(argv).finish()?;
    Ok(Command::Acl(AclCommand::List))
}

pub(crate) fn parse_acl_users<'a>(argv: &'a [&'a [u8]]) -> Result<Command<'a>, CommandError> {
    Args::of_subcommand(argv).finish()?;
    Ok(Command::Acl(AclCommand::Users))
}

pub(crate) fn parse_acl_getuser<'a>(argv: &'a [&'a [u8]]) -> Result<Command<'a>, CommandError> {
    let [name] = Args::of_subcommand(argv).exactly()?;
    Ok(Command::Acl(AclCommand::GetUser(name)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::testing::{error_of, with_args};

    #[test]
    fn command_list_takes_one_filter() {
        with_args("COMMAND LIST filterby aclcat stream", |argv| {
            let expected = CommandCommand::List(CommandFilter::Category(b"stream"));
            assert_eq!(parse_command_list(argv), Ok(Command::Command(expected)));
        });
        let refused = ["FILTERBY", "FILTERBY MODULE", "FILTERBY FOO x", "FOO", "FILTERBY MODULE x y"];
        for options in refused {
            let line = format!("COMMAND LIST {options}");
            assert_eq!(error_of(parse_command_list, &line), errors::SYNTAX, "{line}");
        }
    }

    #[test]
    fn config_set_takes_pairs() {
        with_args("CONFIG SET a 1 b 2", |argv| {
            let pairs: [&[u8]; 4] = [b"a", b"1", b"b", b"2"];
            assert_eq!(parse_config_set(argv), Ok(Command::Config(ConfigCommand::Set(&pairs))));
        });
        assert_eq!(error_of(parse_config_set, "CONFIG SET a b c"), errors::SYNTAX);
    }

    #[test]
    fn acl_cat_takes_one_category() {
        let syntax = errors::subcommand_syntax(b"CAT", "ACL");
        assert_eq!(error_of(parse_acl_cat, "ACL CAT stream x"), syntax);
    }
}
