//! Rows of the commands about scripts and functions.
//!
//! Neither is supported: a command replies like a server that has no scripts or functions, or returns an error.

use millstream_protocol::errors;

use super::{NONDETERMINISTIC_ORDER, container, help};
use crate::admin::scripting;
use crate::command::Run::{self, Data};
use crate::command::{Categories, CommandSpec, Flags, Group, KeySpec, command, counted_keys};

const fn about_scripts(name: &'static str, since: &'static str, arity: i32, run: Run) -> CommandSpec {
    command(name, since, arity, Flags::NOSCRIPT, run).group(Group::Scripting).category(Categories::SCRIPTING)
}

/// Returns the row of a command that would run a script or a function.
const fn runs_script(name: &'static str, since: &'static str, run: Run) -> CommandSpec {
    about_scripts(name, since, -3, run)
        .flags(Flags::STALE.with(Flags::SKIP_MONITOR).with(Flags::NO_MANDATORY_KEYS).with(Flags::MOVABLEKEYS))
        .keys(SCRIPT_KEYS)
        .complexity("Depends on the script.")
}

const fn runs_readonly_script(name: &'static str, run: Run) -> CommandSpec {
    runs_script(name, "7.0.0", run).flags(Flags::READONLY).keys(SCRIPT_KEYS_READ)
}

const fn scripting_help(name: &'static str, since: &'static str, syntax: &'static str) -> CommandSpec {
    help(name, since, syntax).group(Group::Scripting).category(Categories::SCRIPTING)
}

const SCRIPT_KEYS: &[KeySpec] = &[counted_keys("RW access update", 2)];
const SCRIPT_KEYS_READ: &[KeySpec] = &[counted_keys("RO access", 2)];
const NO_SCRIPTS: &str = "returns an error: scripts are not supported";
const NO_FUNCTIONS: &str = "returns an error: functions are not supported";
const ALL_SHARDS: &[&str] = &["request_policy:all_shards", "response_policy:all_succeeded"];
const ONE_SHARD: &[&str] = &["request_policy:all_shards", "response_policy:one_succeeded"];
const ALL_NODES: &[&str] = &["request_policy:all_nodes", "response_policy:all_succeeded"];

pub(in crate::table) const COMMANDS: &[CommandSpec] = &[
    runs_script("eval", "2.6.0", Data(|_, _, _| Err(errors::NO_SCRIPTING)))
        .note(NO_SCRIPTS)
        .text("EVAL script numkeys [key [key ...]] [arg [arg ...]]", "Runs a script."),
    runs_readonly_script("eval_ro", Data(|_, _, _| Err(errors::NO_SCRIPTING)))
        .note(NO_SCRIPTS)
        .text("EVAL_RO script numkeys [key [key ...]] [arg [arg ...]]", "Runs a read-only script."),
    runs_script("evalsha", "2.6.0", Data(|_, _, _| Err(errors::NO_SCRIPT)))
        .note(NO_SCRIPTS)
        .text("EVALSHA sha1 numkeys [key [key ...]] [arg [arg ...]]", "Runs a script by its SHA1 digest."),
    runs_readonly_script("evalsha_ro", Data(|_, _, _| Err(errors::NO_SCRIPT))).note(NO_SCRIPTS).text(
        "EVALSHA_RO sha1 numkeys [key [key ...]] [arg [arg ...]]",
        "Runs a read-only script by its SHA1 digest.",
    ),
    runs_script("fcall", "7.0.0", Data(|_, _, _| Err(errors::NO_FUNCTION)))
        .note(NO_FUNCTIONS)
        .text("FCALL function numkeys [key [key ...]] [arg [arg ...]]", "Runs a function."),
    runs_readonly_script("fcall_ro", Data(|_, _, _| Err(errors::NO_FUNCTION)))
        .note(NO_FUNCTIONS)
        .text("FCALL_RO function numkeys [key [key ...]] [arg [arg ...]]", "Runs a read-only function."),
    container("function", "7.0.0").group(Group::Scripting).text("FUNCTION", "Manages functions."),
    about_scripts("function|delete", "7.0.0", 3, Data(|_, _, _| Err(errors::NO_LIBRARY)))
        .flags(Flags::WRITE)
        .tips(ALL_SHARDS)
        .note("returns an error: functions are not supported")
        .text("FUNCTION DELETE library-name", "Removes a library of functions."),
    about_scripts("function|flush", "7.0.0", -2, Data(scripting::function_flush))
        .flags(Flags::WRITE)
        .tips(ALL_SHARDS)
        .text("FUNCTION FLUSH [ASYNC|SYNC]", "Removes all libraries of functions."),
    scripting_help("function|help", "7.0.0", "FUNCTION HELP"),
    about_scripts("function|kill", "7.0.0", 2, Data(|_, _, _| Err(errors::NOT_BUSY)))
        .flags(Flags::ALLOW_BUSY)
        .tips(ONE_SHARD)
        .text("FUNCTION KILL", "Stops a running function."),
    about_scripts("function|list", "7.0.0", -2, Data(scripting::function_list))
        .tips(NONDETERMINISTIC_ORDER)
        .note("always empty")
        .text("FUNCTION LIST [LIBRARYNAME pattern] [WITHCODE]", "Lists the libraries of functions."),
    about_scripts("function|load", "7.0.0", -3, Data(|_, _, _| Err(errors::NO_FUNCTIONS)))
        .flags(Flags::WRITE.with(Flags::DENYOOM))
        .tips(ALL_SHARDS)
        .note(NO_FUNCTIONS)
        .text("FUNCTION LOAD [REPLACE] function-code", "Adds a library of functions."),
    about_scripts("function|stats", "7.0.0", 2, Data(scripting::function_stats))
        .flags(Flags::ALLOW_BUSY)
        .tips(&["nondeterministic_output", "request_policy:all_shards", "response_policy:special"])
        .text("FUNCTION STATS", "Returns information about the running function."),
    container("script", "2.6.0").group(Group::Scripting).text("SCRIPT", "Manages scripts."),
    about_scripts("script|exists", "2.6.0", -3, Data(scripting::script_exists))
        .complexity("O(N), N being the digests given")
        .tips(&["request_policy:all_shards", "response_policy:agg_logical_and"])
        .note("always 0: scripts are not supported")
        .text("SCRIPT EXISTS sha1 [sha1 ...]", "Returns which of the scripts are loaded."),
    about_scripts("script|flush", "2.6.0", -2, Data(scripting::script_flush))
        .tips(ALL_NODES)
        .text("SCRIPT FLUSH [ASYNC|SYNC]", "Removes all scripts."),
    scripting_help("script|help", "5.0.0", "SCRIPT HELP"),
    about_scripts("script|kill", "2.6.0", 2, Data(|_, _, _| Err(errors::NOT_BUSY)))
        .flags(Flags::ALLOW_BUSY)
        .tips(ONE_SHARD)
        .text("SCRIPT KILL", "Stops a running script."),
    about_scripts("script|load", "2.6.0", 3, Data(|_, _, _| Err(errors::NO_SCRIPTING)))
        .flags(Flags::STALE)
        .tips(ALL_NODES)
        .note(NO_SCRIPTS)
        .text("SCRIPT LOAD script", "Loads a script for EVALSHA."),
];
