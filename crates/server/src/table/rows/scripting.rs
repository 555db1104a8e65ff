//! Scripts and functions, of which there are none: these answer as a server that holds none.

use millstream_protocol::errors;

use super::{NONDETERMINISTIC_ORDER, container, help};
use crate::admin::scripting;
use crate::command::Run::{self, Data};
use crate::command::{Categories, CommandSpec, Flags, Group, KeySpec, command, counted_keys};

const fn about_scripts(name: &'static str, arity: i32, run: Run) -> CommandSpec {
    command(name, arity, run)
        .group(Group::Scripting)
        .category(Categories::SCRIPTING)
        .flags(&[Flags::NOSCRIPT])
        .since("2.6.0")
}

/// A command that would run a script or a function.
const fn runs_script(name: &'static str, run: Run) -> CommandSpec {
    about_scripts(name, -3, run)
        .flags(&[Flags::STALE, Flags::SKIP_MONITOR, Flags::NO_MANDATORY_KEYS, Flags::MOVABLEKEYS])
        .keys(SCRIPT_KEYS)
        .complexity("Depends on the script.")
}

/// A command that would run a script or a function that only reads.
const fn runs_reading_script(name: &'static str, run: Run) -> CommandSpec {
    runs_script(name, run).flags(&[Flags::READONLY]).keys(SCRIPT_KEYS_READ).since("7.0.0")
}

const fn scripting_help(name: &'static str, syntax: &'static str) -> CommandSpec {
    help(name, syntax).group(Group::Scripting).category(Categories::SCRIPTING)
}

const SCRIPT_KEYS: &[KeySpec] = &[counted_keys("RW access update", 2)];
const SCRIPT_KEYS_READ: &[KeySpec] = &[counted_keys("RO access", 2)];
const REFUSED: &str = "refused: there are no scripts";
const NO_FUNCTIONS: &str = "refused: there are no functions";
const ALL_SHARDS: &[&str] = &["request_policy:all_shards", "response_policy:all_succeeded"];
const ONE_SHARD: &[&str] = &["request_policy:all_shards", "response_policy:one_succeeded"];
const ALL_NODES: &[&str] = &["request_policy:all_nodes", "response_policy:all_succeeded"];

pub(in crate::table) const COMMANDS: &[CommandSpec] = &[
    runs_script("eval", Data(|_, _, _| Err(errors::NO_SCRIPTING)))
        .note(REFUSED)
        .text("EVAL script numkeys [key [key ...]] [arg [arg ...]]", "Runs a script."),
    runs_reading_script("eval_ro", Data(|_, _, _| Err(errors::NO_SCRIPTING)))
        .note(REFUSED)
        .text("EVAL_RO script numkeys [key [key ...]] [arg [arg ...]]", "Runs a script that only reads."),
    runs_script("evalsha", Data(|_, _, _| Err(errors::NO_SCRIPT)))
        .note(REFUSED)
        .text("EVALSHA sha1 numkeys [key [key ...]] [arg [arg ...]]", "Runs a script by its digest."),
    runs_reading_script("evalsha_ro", Data(|_, _, _| Err(errors::NO_SCRIPT))).note(REFUSED).text(
        "EVALSHA_RO sha1 numkeys [key [key ...]] [arg [arg ...]]",
        "Runs a script that only reads by its digest.",
    ),
    runs_script("fcall", Data(|_, _, _| Err(errors::NO_FUNCTION)))
        .since("7.0.0")
        .note(NO_FUNCTIONS)
        .text("FCALL function numkeys [key [key ...]] [arg [arg ...]]", "Runs a function."),
    runs_reading_script("fcall_ro", Data(|_, _, _| Err(errors::NO_FUNCTION))).note(NO_FUNCTIONS).text(
        "FCALL_RO function numkeys [key [key ...]] [arg [arg ...]]",
        "Runs a function that only reads.",
    ),
    container("function").group(Group::Scripting).since("7.0.0").text("FUNCTION", "Tells about functions."),
    about_scripts("function|delete", 3, Data(|_, _, _| Err(errors::NO_LIBRARY)))
        .since("7.0.0")
        .flags(&[Flags::WRITE])
        .tips(ALL_SHARDS)
        .note("there is no library to delete")
        .text("FUNCTION DELETE library-name", "Removes a library."),
    about_scripts("function|flush", -2, Data(scripting::function_flush))
        .since("7.0.0")
        .flags(&[Flags::WRITE])
        .tips(ALL_SHARDS)
        .text("FUNCTION FLUSH [ASYNC|SYNC]", "Removes all libraries."),
    scripting_help("function|help", "FUNCTION HELP").since("7.0.0"),
    about_scripts("function|kill", 2, Data(|_, _, _| Err(errors::NOT_BUSY)))
        .since("7.0.0")
        .flags(&[Flags::ALLOW_BUSY])
        .tips(ONE_SHARD)
        .text("FUNCTION KILL", "Stops a running function."),
    about_scripts("function|list", -2, Data(scripting::function_list))
        .since("7.0.0")
        .tips(NONDETERMINISTIC_ORDER)
        .note("always empty")
        .text("FUNCTION LIST [LIBRARYNAME pattern] [WITHCODE]", "Lists the libraries."),
    about_scripts("function|load", -3, Data(|_, _, _| Err(errors::NO_FUNCTIONS)))
        .since("7.0.0")
        .flags(&[Flags::WRITE, Flags::DENYOOM])
        .tips(ALL_SHARDS)
        .note(NO_FUNCTIONS)
        .text("FUNCTION LOAD [REPLACE] function-code", "Adds a library."),
    about_scripts("function|stats", 2, Data(scripting::function_stats))
        .since("7.0.0")
        .flags(&[Flags::ALLOW_BUSY])
        .tips(&["nondeterministic_output", "request_policy:all_shards", "response_policy:special"])
        .text("FUNCTION STATS", "Tells about running functions."),
    container("script").group(Group::Scripting).since("2.6.0").text("SCRIPT", "Tells about scripts."),
    about_scripts("script|exists", -3, Data(scripting::script_exists))
        .complexity("O(N), N being the digests named")
        .tips(&["request_policy:all_shards", "response_policy:agg_logical_and"])
        .note("none exists")
        .text("SCRIPT EXISTS sha1 [sha1 ...]", "Says which scripts are loaded."),
    about_scripts("script|flush", -2, Data(scripting::script_flush))
        .tips(ALL_NODES)
        .text("SCRIPT FLUSH [ASYNC|SYNC]", "Removes all scripts."),
    scripting_help("script|help", "SCRIPT HELP").since("5.0.0"),
    about_scripts("script|kill", 2, Data(|_, _, _| Err(errors::NOT_BUSY)))
        .flags(&[Flags::ALLOW_BUSY])
        .tips(ONE_SHARD)
        .text("SCRIPT KILL", "Stops a running script."),
    about_scripts("script|load", 3, Data(|_, _, _| Err(errors::NO_SCRIPTING)))
        .flags(&[Flags::STALE])
        .tips(ALL_NODES)
        .note(REFUSED)
        .text("SCRIPT LOAD script", "Keeps a script for EVALSHA."),
];
