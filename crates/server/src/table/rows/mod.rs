//! The commands, chapter by chapter.

pub(super) mod connection;
pub(super) mod keys;
pub(super) mod scripting;
pub(super) mod server;
pub(super) mod streams;
pub(super) mod values;

use super::render;
use crate::command::Run::Data;
use crate::command::{CommandSpec, Flags, command};

/// A command that does nothing but hold subcommands: without one, its number of arguments is wrong.
const fn container(name: &'static str) -> CommandSpec {
    command(name, -2, Data(render::help)).complexity("Depends on the subcommand.")
}

/// The subcommand that explains the others.
const fn help(name: &'static str, syntax: &'static str) -> CommandSpec {
    command(name, 2, Data(render::help))
        .flags(&[Flags::LOADING, Flags::STALE])
        .text(syntax, "Shows this text.")
}

/// What a cluster client does with the answers of several shards.
const SUM_OF_SHARDS: &[&str] = &["request_policy:multi_shard", "response_policy:agg_sum"];
const NONDETERMINISTIC: &[&str] = &["nondeterministic_output"];
const NONDETERMINISTIC_ORDER: &[&str] = &["nondeterministic_output_order"];
