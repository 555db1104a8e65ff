//! The command table [`COMMANDS`], and everything derived from it.
//!
//! - [`find`] looks up the command of a request.
//! - [`render`] writes the replies of COMMAND, HELP and ACL CAT.
//! - [`catalog`] tells the rules of users which commands exist.
//! - [`compat_markdown`] writes COMPAT.md.
//!
//! A row describes a command and contains the function that runs it. A command without a row does not exist.

mod arguments;
mod compat;
#[cfg(any(test, fuzzing))]
pub(crate) mod generate;
mod lookup;
mod render;
mod rows;

use crate::acl::{Catalog, CatalogCommand};
use crate::command::{Categories, CommandSpec};

pub use compat::compat_markdown;
pub(crate) use lookup::find;

/// The rows by chapter, in the order of COMPAT.md.
const CHAPTERS: &[&[CommandSpec]] = &[
    rows::streams::COMMANDS,
    rows::keys::COMMANDS,
    rows::values::STRINGS,
    rows::values::HASHES,
    rows::values::LISTS,
    rows::values::SETS,
    rows::connection::TRANSACTIONS,
    rows::connection::CONNECTION,
    rows::server::COMMANDS,
    rows::server::CLUSTER,
    rows::scripting::COMMANDS,
];

const COUNT: usize = {
    let (mut count, mut chapter) = (0, 0);
    while chapter < CHAPTERS.len() {
        count += CHAPTERS[chapter].len();
        chapter += 1;
    }
    count
};

/// Every command and subcommand. The subcommands of a container command follow it.
pub(crate) static COMMANDS: [CommandSpec; COUNT] = {
    let mut all = [CHAPTERS[0][0]; COUNT];
    let (mut index, mut chapter) = (0, 0);
    while chapter < CHAPTERS.len() {
        let specs = CHAPTERS[chapter];
        let mut at = 0;
        while at < specs.len() {
            all[index] = specs[at].complete(index, subcommands_after(specs, at));
            index += 1;
            at += 1;
        }
        chapter += 1;
    }
    all
};

/// Returns the number of subcommands that follow the command at this position.
const fn subcommands_after(specs: &[CommandSpec], at: usize) -> usize {
    if specs[at].is_subcommand() {
        return 0;
    }
    let mut next = at + 1;
    while next < specs.len() && specs[next].is_subcommand() {
        next += 1;
    }
    next - at - 1
}

/// Returns the names and categories of all commands, for the rules of users.
pub(crate) fn catalog() -> Catalog {
    let of = |spec: &CommandSpec| CatalogCommand { name: spec.name, categories: spec.categories.bits() };
    let categories = Categories::NAMES.iter().map(|(category, name)| (*name, category.bits()));
    Catalog { commands: COMMANDS.iter().map(of).collect(), categories: categories.collect() }
}

fn subcommands(spec: &CommandSpec) -> &'static [CommandSpec] {
    &COMMANDS[spec.index() + 1..][..spec.subcommand_count]
}

#[cfg(test)]
mod generated_tests;
#[cfg(test)]
pub(crate) mod tests;
