//! The table as replies: COMMAND and its subcommands, HELP, ACL CAT.

use super::arguments::{Argument, Kind, arguments};
use super::{COMMANDS, Categories, CommandSpec, KeyError, KeySpec, KeysBegin, KeysFind, extract, lookup};
use crate::commands::CommandFilter;
use crate::errors::{self, CommandError};
use crate::glob;
use crate::resp::Writer;

/// COMMAND COUNT: how many commands there are, subcommands not counted.
pub fn command_count() -> usize {
    commands().count()
}

/// COMMAND, and COMMAND INFO without names.
pub fn info_all(writer: &mut Writer) {
    writer.array(command_count());
    commands().for_each(|spec| info_one(writer, spec));
}

/// COMMAND INFO of these names; without names, of all commands.
pub fn info(writer: &mut Writer, names: &[&[u8]]) {
    if names.is_empty() {
        return info_all(writer);
    }
    writer.array(names.len());
    for name in names {
        match lookup::lookup_full_name(name) {
            Some(spec) => info_one(writer, spec),
            None => writer.null_bulk(),
        }
    }
}

/// COMMAND DOCS of these names, as far as they exist; without names, of all commands.
pub fn docs(writer: &mut Writer, names: &[&[u8]]) {
    let specs: Vec<&CommandSpec> = match names.is_empty() {
        true => commands().collect(),
        false => names.iter().filter_map(|name| lookup::lookup_full_name(name)).collect(),
    };
    writer.map(specs.len());
    for spec in specs {
        docs_one(writer, spec);
    }
}

/// COMMAND LIST.
pub fn list(writer: &mut Writer, filter: CommandFilter<'_>) {
    let chosen = |spec: &&CommandSpec| match filter {
        CommandFilter::All => true,
        CommandFilter::Module(_) => false,
        CommandFilter::Category(name) => {
            Categories::by_name(name).is_some_and(|category| spec.categories.contains(category))
        }
        CommandFilter::Pattern(pattern) => glob::matches_ignoring_case(pattern, spec.name.as_bytes()),
    };
    names(writer, COMMANDS.iter().filter(chosen));
}

/// COMMAND GETKEYS of a whole request.
pub fn getkeys(writer: &mut Writer, argv: &[&[u8]]) -> Result<(), CommandError> {
    let keys = keys_of(argv)?;
    writer.array(keys.len());
    keys.iter().for_each(|(key, _)| writer.bulk(key));
    Ok(())
}

/// COMMAND GETKEYSANDFLAGS of a whole request.
pub fn getkeysandflags(writer: &mut Writer, argv: &[&[u8]]) -> Result<(), CommandError> {
    let keys = keys_of(argv)?;
    writer.array(keys.len());
    for (key, usage) in keys {
        writer.array(2);
        writer.bulk(key);
        simple_set(writer, usage.split(' '));
    }
    Ok(())
}

/// HELP of a container, asked of the container or of any of its subcommands.
pub fn help(writer: &mut Writer, spec: &CommandSpec) {
    let container = container_of(spec);
    let name = container.name.to_ascii_uppercase();
    writer.array(1 + 2 * container.subcommands().len());
    writer.simple(&format!("{name} <subcommand> [<arg> [value] [opt] ...]. Subcommands are:"));
    // HELP itself comes last.
    let subcommands = container.subcommands().iter();
    let (help, others): (Vec<&CommandSpec>, Vec<_>) = subcommands.partition(|spec| spec.own_name() == "help");
    for spec in others.iter().chain(&help) {
        writer.simple(spec.syntax.strip_prefix(&name).map_or(spec.syntax, str::trim_start));
        writer.simple(&format!("    {}", spec.summary));
    }
}

/// ACL CAT: the categories.
pub fn acl_categories(writer: &mut Writer) {
    writer.array(Categories::NAMES.len());
    Categories::NAMES.iter().for_each(|(_, name)| writer.bulk(name));
}

/// ACL CAT of a category: its commands.
pub fn acl_category(writer: &mut Writer, name: &[u8]) -> Result<(), CommandError> {
    let category = Categories::by_name(name).ok_or_else(|| errors::unknown_category(name))?;
    names(writer, COMMANDS.iter().filter(|spec| spec.categories.contains(category)));
    Ok(())
}

fn commands() -> impl Iterator<Item = &'static CommandSpec> {
    COMMANDS.iter().filter(|spec| !spec.is_subcommand())
}

fn container_of(spec: &CommandSpec) -> &'static CommandSpec {
    let mut index = spec.index();
    while COMMANDS[index].is_subcommand() {
        index -= 1;
    }
    &COMMANDS[index]
}

fn keys_of<'a>(argv: &[&'a [u8]]) -> Result<extract::Keys<'a>, CommandError> {
    let spec = lookup::find(argv).map_err(|_| errors::GETKEYS_UNKNOWN)?;
    if spec.keys.is_empty() {
        return Err(errors::GETKEYS_NO_KEYS);
    }
    if !spec.arity_ok(argv.len()) {
        return Err(errors::GETKEYS_ARITY);
    }
    extract::keys(spec, argv).map_err(|error| match error {
        KeyError::NoKeys => errors::GETKEYS_NO_KEYS,
        KeyError::Invalid => errors::GETKEYS_INVALID,
    })
}

/// A command as COMMAND INFO tells it: ten elements.
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
    writer.set(spec.subcommands().len());
    spec.subcommands().iter().for_each(|subcommand| info_one(writer, subcommand));
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
        KeysBegin::AfterWord { word, from } => {
            typed(writer, "keyword", 2);
            writer.bulk("keyword");
            writer.bulk(word);
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

/// `{type: name, spec: {…}}`, up to the pairs of the inner map.
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
    let (subcommands, arguments) = (spec.subcommands(), arguments(spec));
    writer.bulk(spec.name);
    writer.map(4 + usize::from(!arguments.is_empty()) + usize::from(!subcommands.is_empty()));
    let facts = [
        ("summary", spec.summary),
        ("since", spec.since),
        ("group", spec.group.name()),
        ("complexity", spec.complexity),
    ];
    for (name, text) in facts {
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
    let inner = match &argument.kind {
        Kind::OneOf(inner) | Kind::Block(inner) => Some(inner),
        _ => None,
    };
    let key_spec = if let Kind::Key(index) = argument.kind { Some(index) } else { None };
    let flags = [(argument.optional, "optional"), (argument.multiple, "multiple")];
    let flags: Vec<&str> = flags.iter().filter(|(set, _)| *set).map(|(_, name)| *name).collect();
    let further = [key_spec.is_some(), argument.token.is_some(), !flags.is_empty(), inner.is_some()];
    writer.map(2 + further.iter().filter(|there| **there).count());
    writer.bulk("name");
    writer.bulk(&argument.name);
    writer.bulk("type");
    writer.bulk(argument.kind.name());
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
