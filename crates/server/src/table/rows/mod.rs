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

const READ: Flags = Flags::READONLY;
const READ_FAST: Flags = Flags::READONLY.with(Flags::FAST);
const WRITE: Flags = Flags::WRITE;
const WRITE_FAST: Flags = Flags::WRITE.with(Flags::FAST);
/// For commands that may need more memory.
const GROW: Flags = Flags::WRITE.with(Flags::DENYOOM);
const GROW_FAST: Flags = GROW.with(Flags::FAST);
/// For commands that look at no data, and so run at any time.
const ANY_TIME: Flags = Flags::LOADING.with(Flags::STALE);

/// A command that does nothing but hold subcommands: without one, its number of arguments is wrong.
const fn container(name: &'static str, since: &'static str) -> CommandSpec {
    command(name, since, -2, Flags::NONE, Data(render::help)).complexity("Depends on the subcommand.")
}

/// The subcommand that explains the others.
const fn help(name: &'static str, since: &'static str, syntax: &'static str) -> CommandSpec {
    command(name, since, 2, ANY_TIME, Data(render::help)).text(syntax, "Shows this text.")
}

/// What a cluster client does with the answers of several shards.
const SUM_OF_SHARDS: &[&str] = &["request_policy:multi_shard", "response_policy:agg_sum"];
const NONDETERMINISTIC: &[&str] = &["nondeterministic_output"];
const NONDETERMINISTIC_ORDER: &[&str] = &["nondeterministic_output_order"];
