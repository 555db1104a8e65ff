//! Scripts and functions, of which there are none: these answer as a server that holds none.

use super::{NONDETERMINISTIC_ORDER, container, help};
use crate::commands;
use crate::table::spec::{Categories, CommandSpec, Flags, Group, KeySpec, Parse, command, counted_keys};

const fn scripting(name: &'static str, arity: i32, parse: Parse) -> CommandSpec {
    command(name, arity, parse)
        .group(Group::Scripting)
        .category(Categories::SCRIPTING)
        .flags(&[Flags::NOSCRIPT])
        .since("2.6.0")
}

/// A command that would run a script or a function.
const fn run(name: &'static str, parse: Parse) -> CommandSpec {
    scripting(name, -3, parse)
        .flags(&[Flags::STALE, Flags::SKIP_MONITOR, Flags::NO_MANDATORY_KEYS, Flags::MOVABLEKEYS])
        .keys(SCRIPT_KEYS)
        .complexity("Depends on the script.")
}

/// A command that would run a script or a function that only reads.
const fn run_readonly(name: &'static str, parse: Parse) -> CommandSpec {
    run(name, parse).flags(&[Flags::READONLY]).keys(SCRIPT_KEYS_READ).since("7.0.0")
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
    run("eval", commands::parse_eval)
        .note(REFUSED)
        .text("EVAL script numkeys [key [key ...]] [arg [arg ...]]", "Runs a script."),
    run_readonly("eval_ro", commands::parse_eval_ro)
        .note(REFUSED)
        .text("EVAL_RO script numkeys [key [key ...]] [arg [arg ...]]", "Runs a script that only reads."),
    run("evalsha", commands::parse_evalsha)
        .note(REFUSED)
        .text("EVALSHA sha1 numkeys [key [key ...]] [arg [arg ...]]", "Runs a script by its digest."),
    run_readonly("evalsha_ro", commands::parse_evalsha_ro).note(REFUSED).text(
        "EVALSHA_RO sha1 numkeys [key [key ...]] [arg [arg ...]]",
        "Runs a script that only reads by its digest.",
    ),
    run("fcall", commands::parse_fcall)
        .since("7.0.0")
        .note(NO_FUNCTIONS)
        .text("FCALL function numkeys [key [key ...]] [arg [arg ...]]", "Runs a function."),
    run_readonly("fcall_ro", commands::parse_fcall_ro).note(NO_FUNCTIONS).text(
        "FCALL_RO function numkeys [key [key ...]] [arg [arg ...]]",
        "Runs a function that only reads.",
    ),
    container("function").group(Group::Scripting).since("7.0.0").text("FUNCTION", "Tells about functions."),
    scripting("function|delete", 3, commands::parse_function_delete)
        .since("7.0.0")
        .flags(&[Flags::WRITE])
        .tips(ALL_SHARDS)
        .note("there is no library to delete")
        .text("FUNCTION DELETE library-name", "Removes a library."),
    scripting("function|flush", -2, commands::parse_function_flush)
        .since("7.0.0")
        .flags(&[Flags::WRITE])
        .tips(ALL_SHARDS)
        .text("FUNCTION FLUSH [ASYNC|SYNC]", "Removes all libraries."),
    scripting_help("function|help", "FUNCTION HELP").since("7.0.0"),
    scripting("function|kill", 2, commands::parse_function_kill)
        .since("7.0.0")
        .flags(&[Flags::ALLOW_BUSY])
        .tips(ONE_SHARD)
        .text("FUNCTION KILL", "Stops a running function."),
    scripting("function|list", -2, commands::parse_function_list)
        .since("7.0.0")
        .tips(NONDETERMINISTIC_ORDER)
        .note("always empty")
        .text("FUNCTION LIST [LIBRARYNAME pattern] [WITHCODE]", "Lists the libraries."),
    scripting("function|load", -3, commands::parse_function_load)
        .since("7.0.0")
        .flags(&[Flags::WRITE, Flags::DENYOOM])
        .tips(ALL_SHARDS)
        .note(NO_FUNCTIONS)
        .text("FUNCTION LOAD [REPLACE] function-code", "Adds a library."),
    scripting("function|stats", 2, commands::parse_function_stats)
        .since("7.0.0")
        .flags(&[Flags::ALLOW_BUSY])
        .tips(&["nondeterministic_output", "request_policy:all_shards", "response_policy:special"])
        .text("FUNCTION STATS", "Tells about running functions."),
    container("script").group(Group::Scripting).since("2.6.0").text("SCRIPT", "Tells about scripts."),
    scripting("script|exists", -3, commands::parse_script_exists)
        .complexity("O(N), N being the digests named")
        .tips(&["request_policy:all_shards", "response_policy:agg_logical_and"])
        .note("none exists")
        .text("SCRIPT EXISTS sha1 [sha1 ...]", "Says which scripts are loaded."),
    scripting("script|flush", -2, commands::parse_script_flush)
        .tips(ALL_NODES)
        .text("SCRIPT FLUSH [ASYNC|SYNC]", "Removes all scripts."),
    scripting_help("script|help", "SCRIPT HELP").since("5.0.0"),
    scripting("script|kill", 2, commands::parse_script_kill)
        .flags(&[Flags::ALLOW_BUSY])
        .tips(ONE_SHARD)
        .text("SCRIPT KILL", "Stops a running script."),
    scripting("script|load", 3, commands::parse_script_load)
        .flags(&[Flags::STALE])
        .tips(ALL_NODES)
        .note(REFUSED)
        .text("SCRIPT LOAD script", "Keeps a script for EVALSHA."),
];
