//! Commands whose replies come from the command table: COMMAND and its subcommands, HELP, ACL CAT, ACL
//! DRYRUN.

use millstream_protocol::args::{Args, subcommand};
use millstream_protocol::commands::{ArgList, CommandFilter};
use millstream_protocol::errors::{self, CommandError};
use millstream_protocol::glob;
use millstream_protocol::resp::Writer;
use millstream_store::Txn;

use super::arguments::{Argument, ArgumentType, arguments};
use super::{COMMANDS, lookup, subcommands};
use crate::acl::Denial;
use crate::command::{
    self, Call, Categories, CommandSpec, DONE, KeyError, KeySpec, Keys, KeysBegin, KeysFind, Reply, reply_ok,
};

/// COMMAND COUNT: the number of commands, without subcommands.
pub(super) fn count(_: &mut Txn<'_>, out: &mut Writer, _: ArgList<'_>) -> Reply {
    out.count(commands().count());
    DONE
}

/// COMMAND, and COMMAND INFO without names.
pub(super) fn info_all(_: &mut Txn<'_>, out: &mut Writer, _: ArgList<'_>) -> Reply {
    out.array(commands().count());
    commands().for_each(|spec| info_one(out, spec));
    DONE
}

/// COMMAND INFO: the commands with these names, or all commands.
pub(super) fn info(txn: &mut Txn<'_>, out: &mut Writer, argv: ArgList<'_>) -> Reply {
    let names = Args::of_subcommand(argv).rest();
    if names.is_empty() {
        return info_all(txn, out, argv);
    }
    out.array(names.len());
    for name in names {
        match lookup::lookup_full_name(name) {
            Some(spec) => info_one(out, spec),
            None => out.null_bulk(),
        }
    }
    DONE
}

/// COMMAND DOCS: the documentation of the commands with these names, or of all commands. Unknown names are skipped.
pub(super) fn docs(_: &mut Txn<'_>, out: &mut Writer, argv: ArgList<'_>) -> Reply {
    let names = Args::of_subcommand(argv).rest();
    let specs: Vec<&CommandSpec> = match names.is_empty() {
        true => commands().collect(),
        false => names.iter().filter_map(|name| lookup::lookup_full_name(name)).collect(),
    };
    out.map(specs.len());
    for spec in specs {
        docs_one(out, spec);
    }
    DONE
}

/// COMMAND LIST: the names of all commands, or of those that match the filter.
pub(super) fn list(_: &mut Txn<'_>, out: &mut Writer, argv: ArgList<'_>) -> Reply {
    let filter = CommandFilter::parse(argv)?;
    let chosen = |spec: &&CommandSpec| match filter {
        CommandFilter::All => true,
        CommandFilter::Module(_) => false,
        CommandFilter::Category(name) => {
            Categories::by_name(name).is_some_and(|category| spec.categories.contains(category))
        }
        CommandFilter::Pattern(pattern) => glob::matches_ignoring_case(pattern, spec.name.as_bytes()),
    };
    names(out, COMMANDS.iter().filter(chosen));
    DONE
}

pub(super) fn getkeys(_: &mut Txn<'_>, out: &mut Writer, argv: ArgList<'_>) -> Reply {
    let keys = keys_of(Args::of_subcommand(argv).rest())?;
    out.array(keys.len());
    keys.iter().for_each(|(key, _)| out.bulk(key));
    DONE
}

/// COMMAND GETKEYSANDFLAGS: the keys in a request, and how the command uses them.
pub(super) fn getkeysandflags(_: &mut Txn<'_>, out: &mut Writer, argv: ArgList<'_>) -> Reply {
    let keys = keys_of(Args::of_subcommand(argv).rest())?;
    out.array(keys.len());
    for (key, usage) in keys {
        out.array(2);
        out.bulk(key);
        simple_set(out, usage.split(' '));
    }
    DONE
}

/// The subcommand HELP of every container command: lists the subcommands.
pub(super) fn help(_: &mut Txn<'_>, writer: &mut Writer, argv: ArgList<'_>) -> Reply {
    let found = argv.first().and_then(|name| lookup::lookup(name));
    let container = found.ok_or_else(|| errors::unknown_command(argv))?;
    let name = container.name.to_ascii_uppercase();
    writer.array(1 + 2 * subcommands(container).len());
    writer.simple(&format!("{name} <subcommand> [<arg> [value] [opt] ...]. Subcommands are:"));
    // HELP itself comes last.
    let subcommands = subcommands(container).iter();
    let (help, others): (Vec<&CommandSpec>, Vec<_>) = subcommands.partition(|spec| spec.own_name() == "help");
    for spec in others.iter().chain(&help) {
        writer.simple(spec.syntax.strip_prefix(&name).map_or(spec.syntax, str::trim_start));
        writer.simple(&format!("    {}", spec.summary));
    }
    DONE
}

/// ACL CAT: the access categories, or the commands in a category.
pub(super) fn acl_cat(_: &mut Txn<'_>, out: &mut Writer, argv: ArgList<'_>) -> Reply {
    match *Args::of_subcommand(argv).rest() {
        [] => {
            out.array(Categories::NAMES.len());
            Categories::NAMES.iter().for_each(|(_, name)| out.bulk(name));
        }
        [name] => {
            let category = Categories::by_name(name).ok_or_else(|| errors::unknown_category(name))?;
            names(out, COMMANDS.iter().filter(|spec| spec.categories.contains(category)));
        }
        _ => return Err(errors::subcommand_syntax(subcommand(argv), "ACL")),
    }
    DONE
}

/// ACL DRYRUN: whether a user may run a request.
pub(super) fn acl_dryrun(call: &mut Call<'_, '_, '_>, argv: ArgList<'_>) -> Reply {
    let mut args = Args::of_subcommand(argv);
    let name = args.next()?;
    let user = call.context.server.users.get(name).ok_or_else(|| errors::user_not_found(name))?;
    let request = args.rest();
    let spec = lookup::find(request).map_err(|_| errors::command_not_found(request[0]))?;
    if !spec.arity_ok(request.len()) {
        return Err(errors::wrong_arity(spec.name));
    }
    let keys = command::required_keys(spec, request);
    let what = match command::check_request(&user, spec, request, &keys) {
        Ok(()) => return reply_ok(call.out),
        Err(Denial::Command) => format!("run the '{}' command", spec.name).into_bytes(),
        Err(Denial::Key(number)) => [b"access the '", keys[number].key, b"' key"].concat(),
    };
    call.out.bulk([b"User ", name, b" has no permissions to ", &what[..]].concat());
    DONE
}

fn commands() -> impl Iterator<Item = &'static CommandSpec> {
    COMMANDS.iter().filter(|spec| !spec.is_subcommand())
}

fn keys_of<'a>(argv: &[&'a [u8]]) -> Result<Keys<'a>, CommandError> {
    let spec = lookup::find(argv).map_err(|_| errors::GETKEYS_UNKNOWN)?;
    if spec.keys.is_empty() {
        return Err(errors::GETKEYS_NO_KEYS);
    }
    if !spec.arity_ok(argv.len()) {
        return Err(errors::GETKEYS_ARITY);
    }
    command::keys(spec, argv).map_err(|error| match error {
        KeyError::NoKeys => errors::GETKEYS_NO_KEYS,
        KeyError::Invalid => errors::GETKEYS_INVALID,
    })
}

/// Writes the ten elements of COMMAND INFO for one command.
fn info_one(writer: &mut Writer, spec: &CommandSpec) {
    let (first, last, step) = spec.key_range();
    writer.array(10);
    writer.bulk(spec.name);
    writer.int(spec.arity.into());
    simple_set(writer, spec.flags.names());
    writer.int(first.into());
    writer.int(last.into());
    writer.int(step.into());
    let categories: Vec<String> = spec.categories.names().map(|name| format!("@{name}")).collect();
    simple_set(writer, categories.iter().map(String::as_str));
    writer.set(spec.tips.len());
    spec.tips.iter().for_each(|tip| writer.bulk(tip));
    writer.set(spec.keys.len());
    spec.keys.iter().for_each(|key| key_spec(writer, key));
    writer.set(subcommands(spec).len());
    subcommands(spec).iter().for_each(|subcommand| info_one(writer, subcommand));
}

fn key_spec(writer: &mut Writer, spec: &KeySpec) {
    writer.map(3);
    writer.bulk("flags");
    simple_set(writer, spec.usage.split(' '));
    writer.bulk("begin_search");
    match spec.begin {
        KeysBegin::At(at) => {
            typed(writer, "index", 1);
            number(writer, "index", at);
        }
        KeysBegin::AfterStreams { from } | KeysBegin::AfterDlq { from } => {
            typed(writer, "keyword", 2);
            writer.bulk("keyword");
            writer.bulk(if matches!(spec.begin, KeysBegin::AfterDlq { .. }) { "DLQ" } else { "STREAMS" });
            number(writer, "startfrom", from);
        }
    }
    writer.bulk("find_keys");
    match spec.find {
        KeysFind::Range { last, step, limit } => {
            typed(writer, "range", 3);
            number(writer, "lastkey", last);
            number(writer, "keystep", step);
            number(writer, "limit", limit);
        }
        KeysFind::Counted => {
            typed(writer, "keynum", 3);
            number(writer, "keynumidx", 0);
            number(writer, "firstkey", 1);
            number(writer, "keystep", 1);
        }
    }
}

/// Writes `{type: name, spec: {`. The caller then writes the pairs of the inner map.
fn typed(writer: &mut Writer, name: &str, pairs: usize) {
    writer.map(2);
    writer.bulk("type");
    writer.bulk(name);
    writer.bulk("spec");
    writer.map(pairs);
}

fn number(writer: &mut Writer, name: &str, number: i32) {
    writer.bulk(name);
    writer.int(number.into());
}

fn docs_one(writer: &mut Writer, spec: &CommandSpec) {
    let (subcommands, arguments) = (subcommands(spec), arguments(spec));
    writer.bulk(spec.name);
    writer.map(4 + usize::from(!arguments.is_empty()) + usize::from(!subcommands.is_empty()));
    let properties = [
        ("summary", spec.summary),
        ("since", spec.since),
        ("group", spec.group.name()),
        ("complexity", spec.complexity),
    ];
    for (name, text) in properties {
        writer.bulk(name);
        writer.bulk(text);
    }
    if !arguments.is_empty() {
        argument_list(writer, &arguments);
    }
    if !subcommands.is_empty() {
        writer.bulk("subcommands");
        writer.map(subcommands.len());
        subcommands.iter().for_each(|subcommand| docs_one(writer, subcommand));
    }
}

fn argument_list(writer: &mut Writer, arguments: &[Argument]) {
    writer.bulk("arguments");
    writer.array(arguments.len());
    arguments.iter().for_each(|argument| argument_one(writer, argument));
}

fn argument_one(writer: &mut Writer, argument: &Argument) {
    let inner = match &argument.argument_type {
        ArgumentType::OneOf(inner) | ArgumentType::Block(inner) => Some(inner),
        _ => None,
    };
    let key_spec = if let ArgumentType::Key(index) = argument.argument_type { Some(index) } else { None };
    let flags = [(argument.optional, "optional"), (argument.multiple, "multiple")];
    let flags: Vec<&str> = flags.iter().filter(|(set, _)| *set).map(|(_, name)| *name).collect();
    let optional_pairs = [key_spec.is_some(), argument.token.is_some(), !flags.is_empty(), inner.is_some()];
    writer.map(2 + optional_pairs.iter().filter(|present| **present).count());
    writer.bulk("name");
    writer.bulk(&argument.name);
    writer.bulk("type");
    writer.bulk(argument.argument_type.name());
    if let Some(index) = key_spec {
        writer.bulk("key_spec_index");
        writer.int(index as i64);
    }
    if let Some(token) = argument.token {
        writer.bulk("token");
        writer.bulk(token);
    }
    if !flags.is_empty() {
        writer.bulk("flags");
        simple_set(writer, flags.into_iter());
    }
    if let Some(inner) = inner {
        argument_list(writer, inner);
    }
}

fn simple_set<'a>(writer: &mut Writer, names: impl Iterator<Item = &'a str>) {
    let names: Vec<&str> = names.collect();
    writer.set(names.len());
    names.into_iter().for_each(|name| writer.simple(name));
}

fn names<'a>(writer: &mut Writer, specs: impl Iterator<Item = &'a CommandSpec>) {
    let mark = writer.array_deferred(10);
    let mut count = 0;
    for spec in specs {
        writer.bulk(spec.name);
        count += 1;
    }
    writer.finish(mark, count);
}
