//! `COMMAND LIST [FILTERBY <MODULE name|ACLCAT category|PATTERN pattern>]`

use super::{Arg, ArgList};
use crate::args::Args;
use crate::errors::{self, CommandError};
use crate::glob;

/// Which commands COMMAND LIST returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandFilter<'a> {
    All,
    /// The commands of a module.
    Module(Arg<'a>),
    /// The commands of an access category.
    Category(Arg<'a>),
    /// The commands whose name matches a pattern.
    Pattern(Arg<'a>),
}

impl<'a> CommandFilter<'a> {
    pub fn parse(argv: ArgList<'a>) -> Result<CommandFilter<'a>, CommandError> {
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
        if let CommandFilter::Pattern(pattern) = filter {
            glob::check(pattern)?;
        }
        args.finish()?;
        Ok(filter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::testing::{error_of, with_args};

    #[test]
    fn command_list_accepts_one_filter() {
        with_args("COMMAND LIST filterby aclcat stream", |argv| {
            assert_eq!(CommandFilter::parse(argv), Ok(CommandFilter::Category(b"stream")));
        });
        let rejected = ["FILTERBY", "FILTERBY MODULE", "FILTERBY FOO x", "FOO", "FILTERBY MODULE x y"];
        for options in rejected {
            let line = format!("COMMAND LIST {options}");
            assert_eq!(error_of(CommandFilter::parse, &line), errors::SYNTAX, "{line}");
        }
    }
}
