//! Checks whether a user may run a request. Denials are counted and logged.

use millstream_protocol::commands::ArgList;
use millstream_protocol::errors::{self, CommandError};
use smallvec::SmallVec;

use super::{CommandSpec, Flags, keys};
use crate::acl::{Denial, DenialContext, DenialReason, KeyAccess, NewDenial, RequiredKey, User};
use crate::client_line;
use crate::registry::Client;
use crate::settings::Id;
use crate::state::Server;
use crate::stats::Event;

/// The keys of a request, each with the access that the command needs to it.
type RequiredKeys<'a> = SmallVec<[RequiredKey<'a>; 4]>;

/// Returns the keys of a request, with the access it needs. If the keys cannot be found, the request has no keys or its
/// parser will reject it.
pub(crate) fn required_keys<'a>(spec: &CommandSpec, argv: &[&'a [u8]]) -> RequiredKeys<'a> {
    let found = keys(spec, argv).unwrap_or_default();
    found.into_iter().map(|(key, usage)| RequiredKey { key, access: access_of(usage) }).collect()
}

fn access_of(usage: &str) -> KeyAccess {
    let mut access = KeyAccess { read: false, write: false };
    for word in usage.split(' ') {
        access.read |= word == "access";
        access.write |= matches!(word, "insert" | "update" | "delete");
    }
    access
}

/// Returns an error if the user may not run the request, which has these keys. Every user may run the commands that are
/// allowed before authentication.
pub(crate) fn check_request(
    user: &User,
    spec: &CommandSpec,
    argv: ArgList<'_>,
    keys: &[RequiredKey<'_>],
) -> Result<(), Denial> {
    if spec.flags.contains(Flags::NO_AUTH) { Ok(()) } else { user.check(spec.index(), argv, keys) }
}

/// Returns an error if the user may not run the request. Counts and logs the denial.
pub(crate) fn check_permission(
    server: &Server,
    client: &Client,
    user: &User,
    (spec, argv): (&CommandSpec, ArgList<'_>),
    context: DenialContext,
) -> Result<(), Denial> {
    let keys = required_keys(spec, argv);
    let checked = check_request(user, spec, argv, &keys);
    if let Err(denial) = checked {
        let (reason, object) = match denial {
            Denial::Command => (DenialReason::Command, spec.name.as_bytes()),
            Denial::Key(number) => (DenialReason::Key, keys[number].key),
        };
        note_denial(server, client, reason, context, (object, user.name(), spec.name));
    }
    checked
}

#[cold]
pub(crate) fn note_denial(
    server: &Server,
    client: &Client,
    reason: DenialReason,
    context: DenialContext,
    (object, user, command): (&[u8], &[u8], &str),
) {
    server.stats.note(match reason {
        DenialReason::Auth => Event::AuthFailure,
        DenialReason::Command => Event::DeniedCommand,
        DenialReason::Key => Event::DeniedKey,
    });
    let client = client_line::describe(client, server.uptime_ms(), command);
    let denial = NewDenial { reason, context, object, user, client };
    server.acl_log.note(denial, server.store.now_ms(), server.settings.size(Id::AclLogMaxLen));
}

pub(crate) fn denied(denial: Denial, user: &User, spec: &CommandSpec) -> CommandError {
    match denial {
        Denial::Command => errors::no_command_permission(user.name(), spec.name),
        Denial::Key(_) => errors::NO_KEY_PERMISSION,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn access_follows_from_the_words_of_the_usage() {
        let access = |usage| (access_of(usage).read, access_of(usage).write);
        assert_eq!(access("RO"), (false, false));
        assert_eq!(access("RO access"), (true, false));
        assert_eq!(access("OW update"), (false, true));
        assert_eq!(access("RW access delete"), (true, true));
        assert_eq!(access("RW insert"), (false, true));
    }
}
