//! Commands on sets.
//!
//! `SADD|SREM key member [member ...]`, `SMEMBERS|SCARD key`, `SISMEMBER key member`

use super::{Arg, ArgList, Command};
use crate::args::Args;
use crate::errors::CommandError;

/// A command on sets, with the key first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetCommand<'a> {
    /// SADD: key, members
    Add(Arg<'a>, ArgList<'a>),
    /// SREM: key, members
    Remove(Arg<'a>, ArgList<'a>),
    /// SMEMBERS
    Members(Arg<'a>),
    /// SISMEMBER: key, member
    IsMember(Arg<'a>, Arg<'a>),
    /// SCARD
    Card(Arg<'a>),
}

pub(crate) fn parse_sadd<'a>(argv: &'a [&'a [u8]]) -> Result<Command<'a>, CommandError> {
    let mut args = Args::of_command(argv);
    let key = args.next()?;
    Ok(Command::Set(SetCommand::Add(key, args.rest())))
}

pub(crate) fn parse_srem<'a>(argv: &'a [&'a [u8]]) -> Result<Command<'a>, CommandError> {
    let mut args = Args::of_command(argv);
    let key = args.next()?;
    Ok(Command::Set(SetCommand::Remove(key, args.rest())))
}

pub(crate) fn parse_smembers<'a>(argv: &'a [&'a [u8]]) -> Result<Command<'a>, CommandError> {
    let [key] = Args::of_command(argv).exactly()?;
    Ok(Command::Set(SetCommand::Members(key)))
}

pub(crate) fn parse_sismember<'a>(argv: &'a [&'a [u8]]) -> Result<Command<'a>, CommandError> {
    let [key, member] = Args::of_command(argv).exactly()?;
    Ok(Command::Set(SetCommand::IsMember(key, member)))
}

pub(crate) fn parse_scard<'a>(argv: &'a [&'a [u8]]) -> Result<Command<'a>, CommandError> {
    let [key] = Args::of_command(argv).exactly()?;
    Ok(Command::Set(SetCommand::Card(key)))
}
