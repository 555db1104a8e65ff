//! How values are kept.
//!
//! `OBJECT ENCODING|FREQ|IDLETIME|REFCOUNT key`, `MEMORY USAGE key [SAMPLES n]`, `MEMORY DOCTOR|STATS|PURGE`

use super::{Arg, Command};
use crate::args::Args;
use crate::errors::{self, CommandError};

/// A command about how a value is kept. A missing key is answered with a null.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObjectCommand<'a> {
    /// OBJECT ENCODING
    Encoding(Arg<'a>),
    /// OBJECT FREQ; of a key that exists it is refused with [`errors::FREQ_NOT_TRACKED`].
    Freq(Arg<'a>),
    /// OBJECT IDLETIME
    IdleTime(Arg<'a>),
    /// OBJECT REFCOUNT
    RefCount(Arg<'a>),
    /// MEMORY USAGE. How many elements to sample is checked and forgotten: memory is counted, not sampled.
    MemoryUsage(Arg<'a>),
    /// MEMORY DOCTOR
    MemoryDoctor,
    /// MEMORY STATS
    MemoryStats,
    /// MEMORY PURGE
    MemoryPurge,
}

pub(crate) fn parse_object_encoding<'a>(argv: &'a [&'a [u8]]) -> Result<Command<'a>, CommandError> {
    let [key] = Args::of_subcommand(argv).exactly()?;
    Ok(Command::Object(ObjectCommand::Encoding(key)))
}

pub(crate) fn parse_object_freq<'a>(argv: &'a [&'a [u8]]) -> Result<Command<'a>, CommandError> {
    let [key] = Args::of_subcommand(argv).exactly()?;
    Ok(Command::Object(ObjectCommand::Freq(key)))
}

pub(crate) fn parse_object_idletime<'a>(argv: &'a [&'a [u8]]) -> Result<Command<'a>, CommandError> {
    let [key] = Args::of_subcommand(argv).exactly()?;
    Ok(Command::Object(ObjectCommand::IdleTime(key)))
}

pub(crate) fn parse_object_refcount<'a>(argv: &'a [&'a [u8]]) -> Result<Command<'a>, CommandError> {
    let [key] = Args::of_subcommand(argv).exactly()?;
    Ok(Command::Object(ObjectCommand::RefCount(key)))
}

pub(crate) fn parse_memory_usage<'a>(argv: &'a [&'a [u8]]) -> Result<Command<'a>, CommandError> {
    let mut args = Args::of_subcommand(argv);
    let key = args.next()?;
    while args.keyword_before("SAMPLES", 1) {
        if args.next_i64()? < 0 {
            return Err(errors::SYNTAX);
        }
    }
    args.finish()?;
    Ok(Command::Object(ObjectCommand::MemoryUsage(key)))
}

pub(crate) fn parse_memory_doctor<'a>(argv: &'a [&'a [u8]]) -> Result<Command<'a>, CommandError> {
    Args::of_subcommand(argv).finish()?;
    Ok(Command::Object(ObjectCommand::MemoryDoctor))
}

pub(crate) fn parse_memory_stats<'a>(argv: &'a [&'a [u8]]) -> Result<Command<'a>, CommandError> {
    Args::of_subcommand(argv).finish()?;
    Ok(Command::Object(ObjectCommand::MemoryStats))
}

pub(crate) fn parse_memory_purge<'a>(argv: &'a [&'a [u8]]) -> Result<Command<'a>, CommandError> {
    Args::of_subcommand(argv).finish()?;
    Ok(Command::Object(ObjectCommand::MemoryPurge))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::testing::{error_of, with_args};

    #[test]
    fn samples_are_checked_before_the_key() {
        with_args("MEMORY USAGE k samples 0 SAMPLES 5", |argv| {
            assert_eq!(parse_memory_usage(argv), Ok(Command::Object(ObjectCommand::MemoryUsage(b"k"))));
        });
        let cases = [
            ("MEMORY USAGE k SAMPLES x", errors::NOT_AN_INTEGER),
            ("MEMORY USAGE k SAMPLES -1", errors::SYNTAX),
            ("MEMORY USAGE k SAMPLES", errors::SYNTAX),
            ("MEMORY USAGE k FOO", errors::SYNTAX),
        ];
        for (line, error) in cases {
            assert_eq!(error_of(parse_memory_usage, line), error, "{line}");
        }
    }
}
