//! Scripts and functions, of which there are none.
//!
//! `SCRIPT EXISTS sha [sha ...]`, `SCRIPT FLUSH [ASYNC|SYNC]`, `SCRIPT LOAD|KILL`,
//! `FUNCTION LIST [LIBRARYNAME pattern] [WITHCODE]`, `FUNCTION STATS`, `FUNCTION FLUSH [ASYNC|SYNC]`,
//! `FUNCTION DELETE|LOAD|KILL`, `EVAL`, `EVALSHA`, `FCALL` and their read-only forms
//!
//! Questions are answered as by a server that holds none; what would run or keep one is refused.

use super::keys::{FlushMode, flush_mode};
use super::{ArgList, Command};
use crate::args::{Args, subcommand};
use crate::errors::{self, CommandError};

/// A command about scripts or functions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScriptingCommand<'a> {
    /// SCRIPT EXISTS: a 0 for each.
    ScriptExists(ArgList<'a>),
    /// SCRIPT FLUSH
    ScriptFlush(FlushMode),
    /// FUNCTION LIST: nothing.
    FunctionList,
    /// FUNCTION STATS
    FunctionStats,
    /// FUNCTION FLUSH
    FunctionFlush(FlushMode),
}

pub(crate) fn parse_eval<'a>(_argv: &'a [&'a [u8]]) -> Result<Command<'a>, CommandError> {
    Err(errors::NO_SCRIPTING)
}

pub(crate) fn parse_eval_ro<'a>(_argv: &'a [&'a [u8]]) -> Result<Command<'a>, CommandError> {
    Err(errors::NO_SCRIPTING)
}

/// Clients answer this refusal with EVAL, which then says what to do instead.
pub(crate) fn parse_evalsha<'a>(_argv: &'a [&'a [u8]]) -> Result<Command<'a>, CommandError> {
    Err(errors::NO_SCRIPT)
}

pub(crate) fn parse_evalsha_ro<'a>(_argv: &'a [&'a [u8]]) -> Result<Command<'a>, CommandError> {
    Err(errors::NO_SCRIPT)
}

pub(crate) fn parse_fcall<'a>(_argv: &'a [&'a [u8]]) -> Result<Command<'a>, CommandError> {
    Err(errors::NO_FUNCTION)
}

pub(crate) fn parse_fcall_ro<'a>(_argv: &'a [&'a [u8]]) -> Result<Command<'a>, CommandError> {
    Err(errors::NO_FUNCTION)
}

pub(crate) fn parse_script_load<'a>(_argv: &'a [&'a [u8]]) -> Result<Command<'a>, CommandError> {
    Err(errors::NO_SCRIPTING)
}

pub(crate) fn parse_script_kill<'a>(_argv: &'a [&'a [u8]]) -> Result<Command<'a>, CommandError> {
    Err(errors::NOT_BUSY)
}

pub(crate) fn parse_script_exists<'a>(argv: &'a [&'a [u8]]) -> Result<Command<'a>, CommandError> {
    Ok(Command::Scripting(ScriptingCommand::ScriptExists(Args::of_subcommand(argv).rest())))
}

pub(crate) fn parse_script_flush<'a>(argv: &'a [&'a [u8]]) -> Result<Command<'a>, CommandError> {
    let mode = flush_mode(Args::of_subcommand(argv)).map_err(|_| errors::SCRIPT_FLUSH_MODE)?;
    Ok(Command::Scripting(ScriptingCommand::ScriptFlush(mode)))
}

pub(crate) fn parse_function_list<'a>(argv: &'a [&'a [u8]]) -> Result<Command<'a>, CommandError> {
    let mut args = Args::of_subcommand(argv);
    let (mut with_code, mut library) = (false, false);
    while !args.is_empty() {
        if !with_code && args.keyword("WITHCODE") {
            with_code = true;
        } else if !library && args.keyword("LIBRARYNAME") {
            args.next().map_err(|_| errors::LIBRARY_NAME_MISSING)?;
            library = true;
        } else {
            return Err(errors::unknown_argument(args.next()?));
        }
    }
    Ok(Command::Scripting(ScriptingCommand::FunctionList))
}

pub(crate) fn parse_function_stats<'a>(argv: &'a [&'a [u8]]) -> Result<Command<'a>, CommandError> {
    Args::of_subcommand(argv).finish()?;
    Ok(Command::Scripting(ScriptingCommand::FunctionStats))
}

pub(crate) fn parse_function_flush<'a>(argv: &'a [&'a [u8]]) -> Result<Command<'a>, CommandError> {
    let args = Args::of_subcommand(argv);
    if args.len() > 1 {
        return Err(errors::subcommand_syntax(subcommand(argv), "FUNCTION"));
    }
    let mode = flush_mode(args).map_err(|_| errors::FUNCTION_FLUSH_MODE)?;
    Ok(Command::Scripting(ScriptingCommand::FunctionFlush(mode)))
}

pub(crate) fn parse_function_delete<'a>(_argv: &'a [&'a [u8]]) -> Result<Command<'a>, CommandError> {
    Err(errors::NO_LIBRARY)
}

pub(crate) fn parse_function_load<'a>(_argv: &'a [&'a [u8]]) -> Result<Command<'a>, CommandError> {
    Err(errors::NO_FUNCTIONS)
}

pub(crate) fn parse_function_kill<'a>(_argv: &'a [&'a [u8]]) -> Result<Command<'a>, CommandError> {
    Err(errors::NOT_BUSY)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::testing::{error_of, with_args};

    #[test]
    fn function_list_reads_its_options_once_each() {
        with_args("FUNCTION LIST withcode LIBRARYNAME x", |argv| {
            let expected = ScriptingCommand::FunctionList;
            assert_eq!(parse_function_list(argv), Ok(Command::Scripting(expected)));
        });
        let cases = [
            ("FUNCTION LIST FOO", errors::unknown_argument(b"FOO")),
            ("FUNCTION LIST LIBRARYNAME", errors::LIBRARY_NAME_MISSING),
            ("FUNCTION LIST WITHCODE WITHCODE", errors::unknown_argument(b"WITHCODE")),
        ];
        for (line, error) in cases {
            assert_eq!(error_of(parse_function_list, line), error, "{line}");
        }
    }

    #[test]
    fn flushing_nothing_still_takes_only_a_mode() {
        assert_eq!(error_of(parse_script_flush, "SCRIPT FLUSH FOO"), errors::SCRIPT_FLUSH_MODE);
        assert_eq!(error_of(parse_script_flush, "SCRIPT FLUSH ASYNC x"), errors::SCRIPT_FLUSH_MODE);
        assert_eq!(error_of(parse_function_flush, "FUNCTION FLUSH FOO"), errors::FUNCTION_FLUSH_MODE);
        let syntax = errors::subcommand_syntax(b"FLUSH", "FUNCTION");
        assert_eq!(error_of(parse_function_flush, "FUNCTION FLUSH ASYNC x"), syntax);
    }

    #[test]
    fn a_script_is_refused_with_what_to_use_instead() {
        let refusal = error_of(parse_eval, "EVAL return 0").to_string();
        assert!(refusal.contains("MULTI") && refusal.contains("EXEC"), "{refusal}");
    }
}
