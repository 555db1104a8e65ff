//! The command table: one list, [`COMMANDS`], and everything that is read off it.
//!
//! Lookup and arity ([`resolve`]), keys ([`keys`]), what COMMAND, HELP and ACL CAT answer ([`render`]),
//! and COMPAT.md ([`compat_markdown`]). A command that is not in the list does not exist.

mod arguments;
mod commands;
mod compat;
mod extract;
mod lookup;
pub mod render;
mod spec;

#[cfg(test)]
pub(crate) use arguments::{Argument, Kind, arguments};
pub use compat::compat_markdown;
pub use extract::{KeyError, Keys, keys};
pub use lookup::{find, lookup, lookup_full_name, lookup_subcommand, resolve};
pub use spec::{Categories, CommandSpec, Flags, Group, KeySpec, KeysBegin, KeysFind, Parse};

/// The chapters in the order of the manual.
const CHAPTERS: &[&[CommandSpec]] = &[
    commands::streams::COMMANDS,
    commands::keys::COMMANDS,
    commands::values::STRINGS,
    commands::values::HASHES,
    commands::values::LISTS,
    commands::values::SETS,
    commands::connection::TRANSACTIONS,
    commands::connection::CONNECTION,
    commands::server::COMMANDS,
    commands::server::CLUSTER,
    commands::scripting::COMMANDS,
];

const COUNT: usize = {
    let (mut count, mut chapter) = (0, 0);
    while chapter < CHAPTERS.len() {
        count += CHAPTERS[chapter].len();
        chapter += 1;
    }
    count
};

/// Every command and subcommand. The subcommands of a container follow it.
pub static COMMANDS: [CommandSpec; COUNT] = {
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

/// How many subcommands follow the command at this place.
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

#[cfg(test)]
mod tests;
