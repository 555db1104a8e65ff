//! The rows of the command table, one file per chapter.

pub(super) mod connection;
pub(super) mod keys;
pub(super) mod scripting;
pub(super) mod server;
pub(super) mod streams;
pub(super) mod values;

use super::render;
use crate::command::Run::Data;
use crate::command::{CommandSpec, Flags, command};

const READ: Flags = Flags::READONLY;
const READ_FAST: Flags = Flags::READONLY.with(Flags::FAST);
const WRITE: Flags = Flags::WRITE;
const WRITE_FAST: Flags = Flags::WRITE.with(Flags::FAST);
/// For commands that can increase memory use.
const GROW: Flags = Flags::WRITE.with(Flags::DENYOOM);
const GROW_FAST: Flags = GROW.with(Flags::FAST);
/// For commands that access no data, so that they can run while data is loaded or stale.
const ANY_TIME: Flags = Flags::LOADING.with(Flags::STALE);

/// Returns the row of a container command: it has only subcommands, and without a subcommand its arity is wrong.
const fn container(name: &'static str, since: &'static str) -> CommandSpec {
    command(name, since, -2, Flags::NONE, Data(render::help)).complexity("Depends on the subcommand.")
}

/// Returns the row of a container command's subcommand HELP.
const fn help(name: &'static str, since: &'static str, syntax: &'static str) -> CommandSpec {
    command(name, since, 2, ANY_TIME, Data(render::help)).text(syntax, "Lists the subcommands.")
}

/// Hints for cluster clients: send the command to all shards of its keys, and add up the replies.
const SUM_OF_SHARDS: &[&str] = &["request_policy:multi_shard", "response_policy:agg_sum"];
const NONDETERMINISTIC: &[&str] = &["nondeterministic_output"];
const NONDETERMINISTIC_ORDER: &[&str] = &["nondeterministic_output_order"];
