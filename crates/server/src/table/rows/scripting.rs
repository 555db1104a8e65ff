//! Scripts and functions, of which there are none: these answer as a server that holds none.

use millstream_protocol::errors;

use super::{NONDETERMINISTIC_ORDER, container, help};
use crate::admin::scripting;
use crate::command::Run::{self, Data};
use crate::command::{Categories, CommandSpec, Flags, Group, KeySpec, command, counted_keys};

const fn about_scripts(name: &'static str, since: &'static str, arity: i32, run: Run) -> CommandSpec {
    command(name, since, arity, Flags::NOSCRIPT, run).group(Group::Scripting).category(Categories::SCRIPTING)
}

/// A command that would run a script or a function.
const fn runs_script(name: &'static str, since: &'static str, run: Run) -> CommandSpec {
    about_scripts(name, since, -3, run)
        .flags(Flags::STALE.with(Flags::SKIP_MONITOR).with(Flags::NO_MANDATORY_KEYS).with(Flags::MOVABLEKEYS))
        .keys(SCRIPT_KEYS)
        .complexity("Depends on the script.")
}

/// A command that would run a script or a function that only reads.
const fn runs_reading_script(name: &'static str, run: Run) -> CommandSpec {
    runs_script(name, "7.0.0", run).flags(Flags::READONLY).keys(SCRIPT_KEYS_READ)
}

const fn scripting_help(name: &'static str, since: &'static str, syntax: &'static str) -> CommandSpec {
    help(name, since, syntax).group(Group::Scripting).category(Categories::SCRIPTING)
}

const SCRIPT_KEYS: &[KeySpec] = &[counted_keys("RW access update", 2)];
const SCRIPT_KEYS_READ: &[KeySpec] = &[counted_keys("RO access", 2)];
const REFUSED: &str = "refused: there are no scripts";
const NO_FUNCTIONS: &str = "refused: there are no functions";
const ALL_SHARDS: &[&str] = &["request_policy:all_shards", "response_policy:all_succeeded"];
const ONE_SHARD: &[&str] = &["request_policy:all_shards", "response_policy:one_succeeded"];
const ALL_NODES: &[&str] = &["request_policy:all_nodes", "response_policy:all_succeeded"];

pub(in crate::table) const COMMANDS: &[CommandSpec] = &[
    runs_script("eval", "2.6.0", Data(|_, _, _| Err(errors::NO_SCRIPTING)))
        .note(REFUSED)
        .text("EVAL script numkeys [key [key ...]] [arg [arg ...]]", "Runs a script."),
    runs_reading_script("eval_ro", Data(|_, _, _| Err(errors::NO_SCRIPTING)))
        .note(REFUSED)
        .text("EVAL_RO script numkeys [key [key ...]] [arg [arg ...]]", "Runs a script that only reads."),
    runs_script("evalsha", "2.6.0", Data(|_, _, _| Err(errors::NO_SCRIPT)))
        .note(REFUSED)
        .text("EVALSHA sha1 numkeys [key [key ...]] [arg [arg ...]]", "Runs a script by its digest."),
    runs_reading_script("evalsha_ro", Data(|_, _, _| Err(errors::NO_SCRIPT))).note(REFUSED).text(
        "EVALSHA_RO sha1 numkeys [key [key ...]] [arg [arg ...]]",
        "Runs a script that only reads by its digest.",
    ),
    runs_script("fcall", "7.0.0", Data(|_, _, _| Err(errors::NO_FUNCTION)))
        .note(NO_FUNCTIONS)
        .text("FCALL function numkeys [key [key ...]] [arg [arg ...]]", "Runs a function."),
    runs_reading_script("fcall_ro", Data(|_, _, _| Err(errors::NO_FUNCTION))).note(NO_FUNCTIONS).text(
        "FCALL_RO function numkeys [key [key ...]] [arg [arg ...]]",
        "Runs a function that only reads.",
    ),
    container("function", "7.0.0").group(Group::Scripting).text("FUNCTION", "Tells about functions."),
    about_scripts("function|delete", "7.0.0", 3, Data(|_, _, _| Err(errors::NO_LIBRARY)))
        .flags(Flags::WRITE)
        .tips(ALL_SHARDS)
        .note("there is no library to delete")
        .text("FUNCTION DELETE library-name", "Removes a library."),
    about_scripts("function|flush", "7.0.0", -2, Data(scripting::function_flush))
        .flags(Flags::WRITE)
        .tips(ALL_SHARDS)
        .text("FUNCTION FLUSH [ASYNC|SYNC]", "Removes all libraries."),
    scripting_help("function|help", "7.0.0", "FUNCTION HELP"),
    about_scripts("function|kill", "7.0.0", 2, Data(|_, _, _| Err(errors::NOT_BUSY)))
        .flags(Flags::ALLOW_BUSY)
        .tips(ONE_SHARD)
        .text("FUNCTION KILL", "Stops a running function."),
    about_scripts("function|list", "7.0.0", -2, Data(scripting::function_list))
        .tips(NONDETERMINISTIC_ORDER)
        .note("always empty")
        .text("FUNCTION LIST [LIBRARYNAME pattern] [WITHCODE]", "Lists the libraries."),
    about_scripts("function|load", "7.0.0", -3, Data(|_, _, _| Err(errors::NO_FUNCTIONS)))
        .flags(Flags::WRITE.with(Flags::DENYOOM))
        .tips(ALL_SHARDS)
        .note(NO_FUNCTIONS)
        .text("FUNCTION LOAD [REPLACE] function-code", "Adds a library."),
    about_scripts("function|stats", "7.0.0", 2, Data(scripting::function_stats))
        .flags(Flags::ALLOW_BUSY)
        .tips(&["nondeterministic_output", "request_policy:all_shards", "response_policy:special"])
        .text("FUNCTION STATS", "Tells about running functions."),
    container("script", "2.6.0").group(Group::Scripting).text("SCRIPT", "Tells about scripts."),
    about_scripts("script|exists", "2.6.0", -3, Data(scripting::script_exists))
        .complexity("O(N), N being the digests named")
        .tips(&["request_policy:all_shards", "response_policy:agg_logical_and"])
        .note("none exists")
        .text("SCRIPT EXISTS sha1 [sha1 ...]", "Says which scripts are loaded."),
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
        .note(REFUSED)
        .text("SCRIPT LOAD script", "Keeps a script for EVALSHA."),
];
