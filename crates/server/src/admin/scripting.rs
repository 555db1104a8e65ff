//! SCRIPT and FUNCTION. This server supports neither scripts nor functions, so it replies like a server that has none.
//!
//! Commands that would run or load a script or function return an error; see the command table.

use millstream_protocol::args::{Args, subcommand};
use millstream_protocol::commands::{ArgList, check_flush_mode};
use millstream_protocol::errors::{self, CommandError};
use millstream_protocol::resp::Writer;
use millstream_store::Txn;

use crate::command::{DONE, Reply, reply_ok};

pub(crate) fn script_exists(_: &mut Txn<'_>, out: &mut Writer, argv: ArgList<'_>) -> Reply {
    let digests = Args::of_subcommand(argv).rest();
    out.array(digests.len());
    digests.iter().for_each(|_| out.int(0));
    DONE
}

pub(crate) fn script_flush(_: &mut Txn<'_>, out: &mut Writer, argv: ArgList<'_>) -> Reply {
    check_script_flush(argv)?;
    reply_ok(out)
}

fn check_script_flush(argv: ArgList<'_>) -> Result<(), CommandError> {
    check_flush_mode(Args::of_subcommand(argv)).map_err(|_| errors::SCRIPT_FLUSH_MODE)
}

pub(crate) fn function_list(_: &mut Txn<'_>, out: &mut Writer, argv: ArgList<'_>) -> Reply {
    check_function_list(argv)?;
    out.array(0);
    DONE
}

fn check_function_list(argv: ArgList<'_>) -> Result<(), CommandError> {
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
    Ok(())
}

pub(crate) fn function_stats(_: &mut Txn<'_>, out: &mut Writer, _: ArgList<'_>) -> Reply {
    out.map(2);
    out.bulk("running_script");
    out.null_bulk();
    out.bulk("engines");
    out.map(0);
    DONE
}

pub(crate) fn function_flush(_: &mut Txn<'_>, out: &mut Writer, argv: ArgList<'_>) -> Reply {
    check_function_flush(argv)?;
    reply_ok(out)
}

fn check_function_flush(argv: ArgList<'_>) -> Result<(), CommandError> {
    let args = Args::of_subcommand(argv);
    if args.len() > 1 {
        return Err(errors::subcommand_syntax(subcommand(argv), "FUNCTION"));
    }
    check_flush_mode(args).map_err(|_| errors::FUNCTION_FLUSH_MODE)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(check: fn(ArgList<'_>) -> Result<(), CommandError>, line: &str) -> Result<(), CommandError> {
        let argv: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        check(&argv)
    }

    #[test]
    fn function_list_accepts_each_option_once() {
        assert_eq!(check(check_function_list, "FUNCTION LIST withcode LIBRARYNAME x"), Ok(()));
        let cases = [
            ("FUNCTION LIST FOO", errors::unknown_argument(b"FOO")),
            ("FUNCTION LIST LIBRARYNAME", errors::LIBRARY_NAME_MISSING),
            ("FUNCTION LIST WITHCODE WITHCODE", errors::unknown_argument(b"WITHCODE")),
        ];
        for (line, error) in cases {
            assert_eq!(check(check_function_list, line), Err(error), "{line}");
        }
    }

    #[test]
    fn flush_accepts_only_a_mode() {
        assert_eq!(check(check_script_flush, "SCRIPT FLUSH FOO"), Err(errors::SCRIPT_FLUSH_MODE));
        assert_eq!(check(check_script_flush, "SCRIPT FLUSH ASYNC x"), Err(errors::SCRIPT_FLUSH_MODE));
        assert_eq!(check(check_function_flush, "FUNCTION FLUSH FOO"), Err(errors::FUNCTION_FLUSH_MODE));
        let syntax = errors::subcommand_syntax(b"FLUSH", "FUNCTION");
        assert_eq!(check(check_function_flush, "FUNCTION FLUSH ASYNC x"), Err(syntax));
    }

    #[test]
    fn script_error_says_what_to_use_instead() {
        let error = errors::NO_SCRIPTING.to_string();
        assert!(error.contains("MULTI") && error.contains("EXEC"), "{error}");
    }
}
