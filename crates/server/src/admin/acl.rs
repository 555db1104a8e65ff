//! ACL: shows and changes users, and shows what was denied to them. ACL CAT and ACL DRYRUN need the command table, so
//! they are in the module `table`.

use std::sync::Arc;

use millstream_protocol::args::{Args, subcommand};
use millstream_protocol::commands::ArgList;
use millstream_protocol::errors::{self, CommandError};
use millstream_protocol::number::parse_i64;
use millstream_protocol::resp::Writer;
use millstream_store::Txn;
use ring::rand::{SecureRandom, SystemRandom};

use crate::acl::{AclFileError, DEFAULT_USER, LogEntry, RulesError, Selector, SetUserError, User, to_hex};
use crate::command::{Call, DONE, Outcome, Reply, SlowWork, reply_ok};
use crate::session::AfterReply;
use crate::settings::Id;
use crate::state::Server;

/// Number of entries that ACL LOG returns unless the client asks for another number.
const LOG_ENTRIES: i64 = 10;
/// Bits of a password that ACL GENPASS returns unless the client asks for another number.
const PASSWORD_BITS: i64 = 256;
const PASSWORD_BITS_MAX: i64 = 4096;

pub(crate) fn whoami(call: &mut Call<'_, '_, '_>, _: ArgList<'_>) -> Reply {
    call.out.bulk(call.context.session.user.name());
    DONE
}

pub(crate) fn list(call: &mut Call<'_, '_, '_>, _: ArgList<'_>) -> Reply {
    let users = call.context.server.users.all();
    call.out.array(users.len());
    users.iter().for_each(|user| call.out.bulk(user.line()));
    DONE
}

pub(crate) fn users(call: &mut Call<'_, '_, '_>, _: ArgList<'_>) -> Reply {
    let users = call.context.server.users.all();
    call.out.array(users.len());
    users.iter().for_each(|user| call.out.bulk(user.name()));
    DONE
}

pub(crate) fn getuser(call: &mut Call<'_, '_, '_>, argv: ArgList<'_>) -> Reply {
    let [name] = Args::of_subcommand(argv).exactly()?;
    let out = &mut *call.out;
    let Some(user) = call.context.server.users.get(name) else {
        out.null_bulk();
        return DONE;
    };
    let rules = user.rules();
    let (flags, passwords) = (rules.flags(), rules.password_hashes());
    out.map(6);
    out.bulk("flags");
    out.set(flags.len());
    flags.iter().for_each(|flag| out.bulk(flag));
    out.bulk("passwords");
    out.array(passwords.len());
    passwords.iter().for_each(|hash| out.bulk(hash));
    write_selector(rules.root(), out);
    out.bulk("selectors");
    out.array(rules.selectors().len());
    for selector in rules.selectors() {
        out.map(3);
        write_selector(selector, out);
    }
    DONE
}

/// Writes the three pairs that describe permissions.
fn write_selector(selector: &Selector, out: &mut Writer) {
    let pairs = [
        ("commands", selector.command_text()),
        ("keys", selector.key_text()),
        ("channels", selector.channel_text()),
    ];
    for (name, text) in pairs {
        out.bulk(name);
        out.bulk(text);
    }
}

pub(crate) fn setuser(call: &mut Call<'_, '_, '_>, argv: ArgList<'_>) -> Reply {
    let mut args = Args::of_subcommand(argv);
    let name = args.next()?;
    let (server, rules) = (call.context.server, args.rest());
    // Taking rights away always works, so that an operator can stop a user.
    if server.users.get(name).is_none() || !rules.iter().all(|rule| only_takes_away(rule)) {
        server.check_reserve(argv)?;
    }
    server.users.set(name, rules).map_err(|error| match error {
        SetUserError::InvalidName => errors::INVALID_USER_NAME,
        SetUserError::NameTooLong => errors::NAME_TOO_LONG,
        SetUserError::Rules(RulesError::Rule { rule, error }) => {
            errors::invalid_acl_rule(&rule, &error.to_string())
        }
        SetUserError::Rules(RulesError::Unmatched { argument }) => errors::unmatched_parenthesis(&argument),
    })?;
    call.context.audit(&format!("ACL SETUSER {}", String::from_utf8_lossy(name)));
    reply_ok(call.out)
}

/// Whether a rule of ACL SETUSER adds nothing to what the server stores about a user.
fn only_takes_away(rule: &[u8]) -> bool {
    const RESETS: [&[u8]; 6] =
        [b"off", b"reset", b"resetkeys", b"resetpass", b"resetchannels", b"clearselectors"];
    matches!(rule.first(), Some(b'<' | b'!')) || RESETS.iter().any(|reset| rule.eq_ignore_ascii_case(reset))
}

pub(crate) fn deluser(call: &mut Call<'_, '_, '_>, argv: ArgList<'_>) -> Reply {
    let names = Args::of_subcommand(argv).rest();
    if names.contains(&DEFAULT_USER) {
        return Err(errors::DEFAULT_USER_STAYS);
    }
    let removed = call.context.server.users.remove(names);
    for user in &removed {
        call.context.audit(&format!("ACL DELUSER {}", String::from_utf8_lossy(user.name())));
    }
    close_clients_of(&removed, call);
    call.out.count(removed.len());
    DONE
}

/// Closes the connections of these users. This connection is closed after its reply is sent.
fn close_clients_of(users: &[Arc<User>], call: &mut Call<'_, '_, '_>) {
    let session = &mut *call.context.session;
    for client in call.context.server.clients.all() {
        if !users.iter().any(|user| client.is_user(user)) {
            continue;
        }
        if client.id == session.client.id {
            session.after_reply = AfterReply::Close;
        } else {
            client.kill();
        }
    }
}

pub(crate) fn load(call: &mut Call<'_, '_, '_>, _: ArgList<'_>) -> Reply {
    let server = call.context.server;
    let changed = server.users.load(&server.settings.text(Id::RequirePass)).map_err(file_error)?;
    call.context.audit("ACL LOAD");
    close_clients_of(&changed, call);
    reply_ok(call.out)
}

/// Writes the file on another thread, because this one serves other clients too.
pub(crate) fn save(call: &mut Call<'_, '_, '_>, _: ArgList<'_>) -> Reply {
    call.context.audit("ACL SAVE");
    let work = Box::new(|server: &Arc<Server>, out: &mut Writer| {
        server.users.save().map_err(file_error)?;
        out.ok();
        Ok(())
    });
    Ok(Outcome::SlowWork(SlowWork { work, timeout_ms: 0, fallback_reply: None }))
}

fn file_error(error: AclFileError) -> CommandError {
    errors::acl_file(&error.to_string())
}

pub(crate) fn genpass(_: &mut Txn<'_>, out: &mut Writer, argv: ArgList<'_>) -> Reply {
    let bits = match *Args::of_subcommand(argv).rest() {
        [] => PASSWORD_BITS,
        [bits] => parse_i64(bits).ok_or(errors::NOT_AN_INTEGER)?,
        _ => return Err(errors::subcommand_syntax(subcommand(argv), "ACL")),
    };
    if !(1..=PASSWORD_BITS_MAX).contains(&bits) {
        return Err(errors::GENPASS_BITS);
    }
    let digits = bits.unsigned_abs().div_ceil(4) as usize;
    let mut bytes = vec![0; digits.div_ceil(2)];
    SystemRandom::new().fill(&mut bytes).map_err(|_| errors::NO_RANDOM_BYTES)?;
    out.bulk(&to_hex(&bytes)[..digits]);
    DONE
}

pub(crate) fn log(call: &mut Call<'_, '_, '_>, argv: ArgList<'_>) -> Reply {
    let server = call.context.server;
    let count = match *Args::of_subcommand(argv).rest() {
        [] => LOG_ENTRIES,
        [word] if word.eq_ignore_ascii_case(b"RESET") => {
            server.acl_log.clear();
            call.context.audit("ACL LOG RESET");
            return reply_ok(call.out);
        }
        [count] => parse_i64(count).ok_or(errors::NOT_AN_INTEGER)?,
        _ => return Err(errors::subcommand_syntax(subcommand(argv), "ACL")),
    };
    let entries = server.acl_log.newest(usize::try_from(count).unwrap_or(0));
    let now_ms = server.store.now_ms();
    call.out.array(entries.len());
    entries.iter().for_each(|entry| write_entry(entry, now_ms, call.out));
    DONE
}

fn write_entry(entry: &LogEntry, now_ms: u64, out: &mut Writer) {
    out.map(10);
    out.bulk("count");
    out.uint(entry.count);
    let texts: [(&str, &[u8]); 4] = [
        ("reason", entry.reason.name().as_bytes()),
        ("context", entry.context.name().as_bytes()),
        ("object", &entry.object),
        ("username", &entry.user),
    ];
    for (name, text) in texts {
        out.bulk(name);
        out.bulk(text);
    }
    out.bulk("age-seconds");
    out.double(now_ms.saturating_sub(entry.updated_ms) as f64 / 1000.0);
    out.bulk("client-info");
    out.bulk(&entry.client);
    let numbers = [
        ("entry-id", entry.id),
        ("timestamp-created", entry.created_ms),
        ("timestamp-last-updated", entry.updated_ms),
    ];
    for (name, number) in numbers {
        out.bulk(name);
        out.uint(number);
    }
}
