//! Rows of the commands about the server: ACL to TIME, and CLUSTER.

use millstream_protocol::commands::ArgList;
use millstream_protocol::errors;
use millstream_protocol::resp::Writer;
use millstream_store::Txn;

use super::{
    ANY_TIME, NONDETERMINISTIC, NONDETERMINISTIC_ORDER, READ, READ_FAST, WRITE, WRITE_FAST, container, help,
};
use crate::admin::{acl, config, control, info, memory, saving};
use crate::command::Run::{self, Call, Data};
use crate::command::{Categories, CommandSpec, DONE, Flags, Group, Reply, command, key, reply_ok};
use crate::exec::{keys, objects};
use crate::table::render;

const fn admin(name: &'static str, since: &'static str, arity: i32, run: Run) -> CommandSpec {
    command(name, since, arity, ANY_TIME.with(Flags::ADMIN), run)
}

/// Returns the row of a command that is for operators and cannot be called by scripts.
const fn operator(name: &'static str, since: &'static str, arity: i32, run: Run) -> CommandSpec {
    admin(name, since, arity, run).flags(Flags::NOSCRIPT)
}

const fn about_commands(name: &'static str, since: &'static str, arity: i32, run: Run) -> CommandSpec {
    command(name, since, arity, ANY_TIME, run).category(Categories::CONNECTION)
}

const fn saving(name: &'static str, arity: i32, run: Run) -> CommandSpec {
    command(name, "1.0.0", arity, Flags::ADMIN.with(Flags::NOSCRIPT).with(Flags::NO_ASYNC_LOADING), run)
}

/// Returns the row of a subcommand of CLUSTER. All of them return an error.
const fn of_cluster(name: &'static str, since: &'static str, arity: i32, run: Run) -> CommandSpec {
    command(name, since, arity, Flags::STALE, run)
        .group(Group::Cluster)
        .tips(NONDETERMINISTIC)
        .note("returns an error: cluster support is disabled")
}

fn ok(_: &mut Txn<'_>, out: &mut Writer, _: ArgList<'_>) -> Reply {
    reply_ok(out)
}

fn zero(_: &mut Txn<'_>, out: &mut Writer, _: ArgList<'_>) -> Reply {
    out.int(0);
    DONE
}

fn empty_array(_: &mut Txn<'_>, out: &mut Writer, _: ArgList<'_>) -> Reply {
    out.array(0);
    DONE
}

fn empty_map(_: &mut Txn<'_>, out: &mut Writer, _: ArgList<'_>) -> Reply {
    out.map(0);
    DONE
}

/// For REPLICAOF and SLAVEOF.
const REPLICATION: Flags =
    Flags::ADMIN.with(Flags::NOSCRIPT).with(Flags::STALE).with(Flags::NO_ASYNC_LOADING);
const ALL_KEYS: &str = "O(N), N being the keys removed";
const EVERY_NODE: &[&str] = &["request_policy:all_nodes", "response_policy:all_succeeded"];
const SPECIAL_OF_NODES: &[&str] =
    &["nondeterministic_output", "request_policy:all_nodes", "response_policy:special"];
const SPECIAL_OF_SHARDS: &[&str] =
    &["nondeterministic_output", "request_policy:all_shards", "response_policy:special"];
const ALL_SHARDS: &[&str] = &["request_policy:all_shards", "response_policy:all_succeeded"];

pub(in crate::table) const COMMANDS: &[CommandSpec] = &[
    container("acl", "6.0.0").text("ACL", "Returns and changes what each user may do."),
    command("acl|cat", "6.0.0", -2, ANY_TIME.with(Flags::NOSCRIPT), Data(render::acl_cat))
        .text("ACL CAT [category]", "Lists the access categories, or the commands in a category."),
    operator("acl|deluser", "6.0.0", -3, Call(acl::deluser))
        .complexity("O(N), N being the clients")
        .text("ACL DELUSER username [username ...]", "Removes users and closes their connections."),
    operator("acl|dryrun", "7.0.0", -4, Call(render::acl_dryrun))
        .text("ACL DRYRUN username command [arg [arg ...]]", "Returns whether a user may run a command."),
    command("acl|genpass", "6.0.0", -2, ANY_TIME.with(Flags::NOSCRIPT), Data(acl::genpass))
        .text("ACL GENPASS [bits]", "Returns a random password."),
    operator("acl|getuser", "6.0.0", 3, Call(acl::getuser))
        .complexity("O(N), N being the rules of the user")
        .text("ACL GETUSER username", "Returns the permissions of a user."),
    help("acl|help", "6.0.0", "ACL HELP"),
    operator("acl|list", "6.0.0", 2, Call(acl::list))
        .complexity("O(N), N being the users")
        .text("ACL LIST", "Lists the rules of every user."),
    operator("acl|load", "6.0.0", 2, Call(acl::load))
        .complexity("O(N), N being the users")
        .note("closes the connections of users that the file removes or changes; Redis keeps those of changed users")
        .text("ACL LOAD", "Loads the users from the ACL file."),
    operator("acl|log", "6.0.0", -2, Call(acl::log))
        .complexity("O(N), N being the entries returned")
        .text("ACL LOG [count|RESET]", "Lists what was denied to users, or removes the list."),
    operator("acl|save", "6.0.0", 2, Call(acl::save))
        .complexity("O(N), N being the users")
        .text("ACL SAVE", "Writes the users to the ACL file."),
    operator("acl|setuser", "6.0.0", -3, Call(acl::setuser))
        .complexity("O(N), N being the rules given")
        .note("rules about channels have no effect")
        .text("ACL SETUSER username [rule [rule ...]]", "Creates a user or changes its permissions."),
    operator("acl|users", "6.0.0", 2, Call(acl::users))
        .complexity("O(N), N being the users")
        .text("ACL USERS", "Lists the users."),
    command("acl|whoami", "6.0.0", 2, ANY_TIME.with(Flags::NOSCRIPT), Call(acl::whoami))
        .text("ACL WHOAMI", "Returns the user of this connection."),
    saving("bgrewriteaof", 1, Call(saving::bgrewriteaof))
        .note("takes a snapshot in the background, then removes the part of the log that the snapshot covers")
        .text("BGREWRITEAOF", "Shortens the log, in the background."),
    saving("bgsave", -1, Call(saving::bgsave))
        .note("without a fork; other clients are not blocked")
        .text("BGSAVE [SCHEDULE]", "Takes a snapshot in the background."),
    about_commands("command", "2.8.13", -1, Data(render::info_all))
        .complexity("O(N), N being the commands")
        .tips(NONDETERMINISTIC_ORDER)
        .text("COMMAND", "Returns information about all commands."),
    about_commands("command|count", "2.8.13", 2, Data(render::count))
        .text("COMMAND COUNT", "Returns the number of commands."),
    about_commands("command|docs", "7.0.0", -2, Data(render::docs))
        .complexity("O(N), N being the commands given")
        .tips(NONDETERMINISTIC_ORDER)
        .note("without `history`")
        .text("COMMAND DOCS [command-name [command-name ...]]", "Returns the documentation of commands."),
    about_commands("command|getkeys", "2.8.13", -3, Data(render::getkeys))
        .complexity("O(N), N being the arguments")
        .text("COMMAND GETKEYS command [arg [arg ...]]", "Returns the keys in a request."),
    about_commands("command|getkeysandflags", "7.0.0", -3, Data(render::getkeysandflags))
        .complexity("O(N), N being the arguments")
        .text(
            "COMMAND GETKEYSANDFLAGS command [arg [arg ...]]",
            "Returns the keys in a request, and how the command uses them.",
        ),
    help("command|help", "5.0.0", "COMMAND HELP").category(Categories::CONNECTION),
    about_commands("command|info", "2.8.13", -2, Data(render::info))
        .complexity("O(N), N being the commands given")
        .tips(NONDETERMINISTIC_ORDER)
        .text("COMMAND INFO [command-name [command-name ...]]", "Returns information about commands."),
    about_commands("command|list", "7.0.0", -2, Data(render::list))
        .complexity("O(N), N being the commands")
        .tips(NONDETERMINISTIC_ORDER)
        .text(
            "COMMAND LIST [FILTERBY <MODULE module-name | ACLCAT category | PATTERN pattern>]",
            "Lists the names of commands.",
        ),
    container("config", "2.0.0").text("CONFIG", "Reads and changes settings."),
    operator("config|get", "2.0.0", -3, Call(config::get))
        .complexity("O(N), N being the settings")
        .text("CONFIG GET parameter [parameter ...]", "Returns settings and their values."),
    help("config|help", "5.0.0", "CONFIG HELP"),
    operator("config|resetstat", "2.0.0", 2, Call(config::resetstat))
        .text("CONFIG RESETSTAT", "Sets the statistics of INFO to zero."),
    operator("config|rewrite", "2.8.0", 2, Data(|_, _, _| Err(errors::CONFIG_REWRITE)))
        .note("returns an error: the server never writes its configuration file")
        .text("CONFIG REWRITE", "Writes the current settings to the configuration file."),
    operator("config|set", "2.0.0", -4, Call(config::set))
        .complexity("O(N), N being the settings given")
        .tips(EVERY_NODE)
        .text(
            "CONFIG SET parameter value [parameter value ...]",
            "Changes settings; if one value is invalid, none of them changes.",
        ),
    command("dbsize", "1.0.0", 1, READ_FAST, Data(keys::dbsize))
        .locks_everything()
        .category(Categories::KEYSPACE)
        .tips(&["request_policy:all_shards", "response_policy:agg_sum"])
        .text("DBSIZE", "Returns the number of keys in the database."),
    operator("debug", "1.0.0", -2, Call(control::debug))
        .flags(Flags::PROTECTED)
        .locks_everything_if(control::sleeps)
        .complexity("Depends on the subcommand.")
        .note(
            "only these subcommands. RELOAD takes a snapshot and loads the data folder again; LOADAOF loads \
               it without a snapshot",
        )
        .text(
            "DEBUG SLEEP seconds | RELOAD [NOSAVE] | LOADAOF",
            "For tests: blocks the server for a time, or loads its data again.",
        ),
    command("flushall", "1.0.0", -1, WRITE, Call(keys::flushall))
        .locks_everything()
        .category(Categories::KEYSPACE)
        .category(Categories::DANGEROUS)
        .complexity(ALL_KEYS)
        .tips(ALL_SHARDS)
        .text("FLUSHALL [ASYNC|SYNC]", "Removes every key of every database."),
    command("flushdb", "1.0.0", -1, WRITE, Call(keys::flushdb))
        .locks_everything()
        .category(Categories::KEYSPACE)
        .category(Categories::DANGEROUS)
        .complexity(ALL_KEYS)
        .tips(ALL_SHARDS)
        .text("FLUSHDB [ASYNC|SYNC]", "Removes every key of the database."),
    command("info", "1.0.0", -1, ANY_TIME, Call(info::info))
        .locks_everything_if(info::counts_keys)
        .category(Categories::DANGEROUS)
        .tips(SPECIAL_OF_SHARDS)
        .note("contains the sections and fields that clients, exporters and dashboards use")
        .text("INFO [section [section ...]]", "Returns the server's state and statistics."),
    command("lastsave", "1.0.0", 1, ANY_TIME.with(Flags::FAST), Call(saving::lastsave))
        .category(Categories::ADMIN)
        .category(Categories::DANGEROUS)
        .tips(NONDETERMINISTIC)
        .text("LASTSAVE", "Returns the time of the last snapshot, in Unix seconds."),
    container("latency", "2.8.13").text("LATENCY", "Returns information about latency."),
    operator("latency|doctor", "2.8.13", 2, Data(control::latency_doctor))
        .tips(SPECIAL_OF_NODES)
        .note("refers to SLOWLOG: latency events are not recorded")
        .text("LATENCY DOCTOR", "Explains latency problems."),
    help("latency|help", "2.8.13", "LATENCY HELP"),
    operator("latency|histogram", "7.0.0", -2, Data(empty_map))
        .complexity("O(N), N being the commands given")
        .tips(SPECIAL_OF_NODES)
        .note("always empty: see INFO commandstats for calls and times")
        .text("LATENCY HISTOGRAM [command [command ...]]", "Returns the distribution of command durations."),
    operator("latency|history", "2.8.13", 3, Data(empty_array))
        .tips(SPECIAL_OF_NODES)
        .note("always empty: latency events are not recorded")
        .text("LATENCY HISTORY event", "Returns the latest samples of a latency event."),
    operator("latency|latest", "2.8.13", 2, Data(empty_array))
        .tips(SPECIAL_OF_NODES)
        .note("always empty: latency events are not recorded")
        .text("LATENCY LATEST", "Returns the latest sample of every latency event."),
    operator("latency|reset", "2.8.13", -2, Data(zero))
        .tips(EVERY_NODE)
        .text("LATENCY RESET [event [event ...]]", "Removes the samples of latency events."),
    container("memory", "4.0.0").text("MEMORY", "Returns information about memory."),
    command("memory|doctor", "4.0.0", 2, Flags::NONE, Call(memory::doctor))
        .tips(SPECIAL_OF_SHARDS)
        .text("MEMORY DOCTOR", "Explains memory problems."),
    help("memory|help", "4.0.0", "MEMORY HELP"),
    command("memory|purge", "4.0.0", 2, Flags::NONE, Data(ok))
        .tips(ALL_SHARDS)
        .note("has no effect")
        .text("MEMORY PURGE", "Returns unused memory to the operating system."),
    command("memory|stats", "4.0.0", 2, Flags::NONE, Call(memory::stats))
        .locks_everything()
        .tips(SPECIAL_OF_SHARDS)
        .note("without the fields about the parts of Redis that this server does not have")
        .text("MEMORY STATS", "Returns statistics about memory."),
    command("memory|usage", "4.0.0", -3, READ, Data(objects::memory_usage))
        .keys(&[key("RO", 2)])
        .complexity("O(N), N being the elements of the value")
        .note("counts everything that belongs to a key; SAMPLES has no effect")
        .text("MEMORY USAGE key [SAMPLES count]", "Returns the bytes that a key and its value take."),
    container("module", "4.0.0").text("MODULE", "Returns information about modules."),
    help("module|help", "5.0.0", "MODULE HELP"),
    command("module|list", "4.0.0", 2, Flags::ADMIN.with(Flags::NOSCRIPT), Data(empty_array))
        .complexity("O(N), N being the modules")
        .tips(NONDETERMINISTIC_ORDER)
        .note("always empty")
        .text("MODULE LIST", "Lists the modules."),
    command("replicaof", "5.0.0", 3, REPLICATION, Data(control::replicaof))
        .note("only NO ONE: replication is not supported")
        .text("REPLICAOF NO ONE", "Makes this server a primary, which it always is."),
    command("role", "2.8.12", 1, ANY_TIME.with(Flags::NOSCRIPT).with(Flags::FAST), Data(control::role))
        .category(Categories::ADMIN)
        .category(Categories::DANGEROUS)
        .note("always `master`, without replicas")
        .text("ROLE", "Returns the server's role in replication."),
    saving("save", 1, Call(saving::save))
        .flags(Flags::NO_MULTI)
        .note("waits for the snapshot; other clients are not blocked")
        .text("SAVE", "Takes a snapshot."),
    operator("shutdown", "1.0.0", -1, Call(saving::shutdown))
        .flags(Flags::NO_MULTI.with(Flags::ALLOW_BUSY))
        .note(
            "SAVE takes a snapshot first. Without SAVE, no data is lost either, except with `appendonly no`",
        )
        .text("SHUTDOWN [NOSAVE|SAVE] [NOW] [FORCE] [ABORT]", "Stops the server."),
    command("slaveof", "1.0.0", 3, REPLICATION, Data(control::replicaof))
        .note("only NO ONE: replication is not supported")
        .text("SLAVEOF NO ONE", "Old name of REPLICAOF."),
    container("slowlog", "2.2.12").text("SLOWLOG", "Returns slow commands."),
    admin("slowlog|get", "2.2.12", -2, Call(control::slowlog_get))
        .complexity("O(N), N being the commands returned")
        .tips(&["request_policy:all_nodes", "nondeterministic_output"])
        .text("SLOWLOG GET [count]", "Returns the latest slow commands."),
    help("slowlog|help", "6.2.0", "SLOWLOG HELP"),
    admin("slowlog|len", "2.2.12", 2, Call(control::slowlog_len))
        .tips(&["request_policy:all_nodes", "response_policy:agg_sum", "nondeterministic_output"])
        .text("SLOWLOG LEN", "Returns the number of commands in SLOWLOG."),
    admin("slowlog|reset", "2.2.12", 2, Call(control::slowlog_reset))
        .complexity("O(N), N being the commands in SLOWLOG")
        .tips(EVERY_NODE)
        .text("SLOWLOG RESET", "Removes all commands from SLOWLOG."),
    command("swapdb", "4.0.0", 3, WRITE_FAST, Call(keys::swapdb))
        .locks_everything()
        .category(Categories::KEYSPACE)
        .category(Categories::DANGEROUS)
        .complexity("O(N), N being the clients that watch a key or block on one in the two databases")
        .text("SWAPDB index1 index2", "Exchanges two databases."),
    command("time", "2.6.0", 1, ANY_TIME.with(Flags::FAST), Data(control::time))
        .tips(NONDETERMINISTIC)
        .text("TIME", "Returns the server's time, in seconds and microseconds."),
];

pub(in crate::table) const CLUSTER: &[CommandSpec] = &[
    container("cluster", "3.0.0")
        .group(Group::Cluster)
        .text("CLUSTER", "Returns information about the cluster."),
    help("cluster|help", "5.0.0", "CLUSTER HELP").group(Group::Cluster),
    of_cluster("cluster|info", "3.0.0", 2, Data(|_, _, _| Err(errors::NO_CLUSTER)))
        .text("CLUSTER INFO", "Returns the state of the cluster."),
    of_cluster("cluster|myid", "3.0.0", 2, Data(|_, _, _| Err(errors::NO_CLUSTER)))
        .tips(&[])
        .text("CLUSTER MYID", "Returns the id of this node."),
    of_cluster("cluster|nodes", "3.0.0", 2, Data(|_, _, _| Err(errors::NO_CLUSTER)))
        .text("CLUSTER NODES", "Lists the nodes of the cluster."),
    of_cluster("cluster|shards", "7.0.0", 2, Data(|_, _, _| Err(errors::NO_CLUSTER)))
        .text("CLUSTER SHARDS", "Lists the shards of the cluster."),
    of_cluster("cluster|slots", "3.0.0", 2, Data(|_, _, _| Err(errors::NO_CLUSTER)))
        .text("CLUSTER SLOTS", "Lists the hash slots of each node."),
];
