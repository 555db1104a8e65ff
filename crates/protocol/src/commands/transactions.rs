//! `MULTI`, `EXEC`, `DISCARD`, `WATCH key [key ...]`, `UNWATCH`

use super::{ArgList, Command};
use crate::args::Args;
use crate::errors::CommandError;

/// A command about transactions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransactionCommand<'a> {
    /// MULTI
    Multi,
    /// EXEC
    Exec,
    /// DISCARD
    Discard,
    /// WATCH
    Watch(ArgList<'a>),
    /// UNWATCH
    Unwatch,
}

pub(crate) fn parse_multi<'a>(argv: &'a [&'a [u8]]) -> Result<Command<'a>, CommandError> {
    Args::of_command(argv).finish()?;
    Ok(Command::Transaction(TransactionCommand::Multi))
}

pub(crate) fn parse_exec<'a>(argv: &'a [&'a [u8]]) -> Result<Command<'a>, CommandError> {
    Args::of_command(argv).finish()?;
    Ok(Command::Transaction(TransactionCommand::Exec))
}

pub(crate) fn parse_discard<'a>(argv: &'a [&'a [u8]]) -> Result<Command<'a>, CommandError> {
    Args::of_command(argv).finish()?;
    Ok(Command::Transaction(TransactionCommand::Discard))
}

pub(crate) fn parse_watch<'a>(argv: &'a [&'a [u8]]) -> Result<Command<'a>, CommandError> {
    Ok(Command::Transaction(TransactionCommand::Watch(Args::of_command(argv).rest())))
}

pub(crate) fn parse_unwatch<'a>(argv: &'a [&'a [u8]]) -> Result<Command<'a>, CommandError> {
    Args::of_command(argv).finish()?;
    Ok(Command::Transaction(TransactionCommand::Unwatch))
}
