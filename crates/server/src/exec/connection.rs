//! PING ECHO AUTH HELLO RESET QUIT SELECT.

use std::sync::atomic::Ordering;

use millstream_protocol::commands::{Auth, ConnectionCommand, Hello, Protocol};
use millstream_protocol::errors::{self, CommandError};

use super::{Call, transactions};
use crate::registry::flags;
use crate::server::Server;
use crate::session::ReplyMode;
use crate::settings::Id;
use crate::version::REDIS_VERSION;

/// The only user there is.
const DEFAULT_USER: &[u8] = b"default";

pub(super) fn run(call: &mut Call<'_, '_, '_>, command: &ConnectionCommand<'_>) -> Result<(), CommandError> {
    match *command {
        ConnectionCommand::Ping(None) => call.out.simple("PONG"),
        ConnectionCommand::Ping(Some(message)) | ConnectionCommand::Echo(message) => call.out.bulk(message),
        ConnectionCommand::Auth(auth) => run_auth(call, auth)?,
        ConnectionCommand::Hello(hello) => run_hello(call, &hello)?,
        ConnectionCommand::Reset => reset(call),
        ConnectionCommand::Quit => quit(call),
        ConnectionCommand::Select(db) => select(call, db)?,
    }
    Ok(())
}

fn run_auth(call: &mut Call<'_, '_, '_>, auth: Auth<'_>) -> Result<(), CommandError> {
    if auth.user.is_none() && call.desk.server.settings.is_empty(Id::RequirePass) {
        return Err(errors::NO_PASSWORD_SET);
    }
    authenticate(call, auth)?;
    call.out.ok();
    Ok(())
}

fn authenticate(call: &mut Call<'_, '_, '_>, auth: Auth<'_>) -> Result<(), CommandError> {
    let server = call.desk.server;
    let known = auth.user.is_none_or(|user| user == DEFAULT_USER);
    if !known || !password_fits(server, auth.password) {
        server.stats.rare.auth_failures.fetch_add(1, Ordering::Relaxed);
        return Err(errors::WRONG_PASS);
    }
    call.desk.session.authenticated = true;
    Ok(())
}

/// Any password fits where none is set, as for Redis' user without one.
fn password_fits(server: &Server, given: &[u8]) -> bool {
    let wanted = server.settings.text(Id::RequirePass);
    wanted.is_empty() || equal_in_constant_time(wanted.as_bytes(), given)
}

/// Looks at every byte, so that the time it takes says nothing about where the first difference is.
fn equal_in_constant_time(wanted: &[u8], given: &[u8]) -> bool {
    let mut difference = wanted.len() ^ given.len();
    for (place, byte) in given.iter().enumerate() {
        difference |= usize::from(byte ^ wanted[place % wanted.len()]);
    }
    difference == 0
}

fn run_hello(call: &mut Call<'_, '_, '_>, hello: &Hello<'_>) -> Result<(), CommandError> {
    if let Some(auth) = hello.auth {
        authenticate(call, auth)?;
    }
    let session = &mut *call.desk.session;
    if !session.authenticated && !call.desk.server.settings.is_empty(Id::RequirePass) {
        return Err(errors::NO_AUTH_HELLO);
    }
    if let Some(name) = hello.checked_name()? {
        session.client.labels.lock().name = String::from_utf8_lossy(name).into_owned();
    }
    if let Some(protocol) = hello.protocol {
        session.resp3 = protocol == Protocol::Resp3;
    }
    call.out.resp3 = session.resp3;
    introduce(call);
    Ok(())
}

/// What a client learns of the server when it says hello.
fn introduce(call: &mut Call<'_, '_, '_>) {
    let id = call.desk.session.client.id;
    let out = &mut *call.out;
    out.map(7);
    out.bulk("server");
    out.bulk("redis");
    out.bulk("version");
    out.bulk(REDIS_VERSION);
    out.bulk("proto");
    out.int(if out.resp3 { 3 } else { 2 });
    out.bulk("id");
    out.uint(id);
    out.bulk("mode");
    out.bulk("standalone");
    out.bulk("role");
    out.bulk("master");
    out.bulk("modules");
    out.array(0);
}

/// As if the client had just come.
fn reset(call: &mut Call<'_, '_, '_>) {
    let desk = &mut *call.desk;
    transactions::discard(desk.session, desk.server);
    let session = &mut *desk.session;
    session.db = 0;
    session.resp3 = false;
    session.reply = ReplyMode::On;
    session.authenticated = desk.server.settings.is_empty(Id::RequirePass);
    session.client.labels.lock().name.clear();
    session.client.set(flags::NO_EVICT | flags::NO_TOUCH, false);
    call.out.resp3 = false;
    call.out.simple("RESET");
}

fn quit(call: &mut Call<'_, '_, '_>) {
    call.desk.session.close = true;
    call.out.ok();
}

fn select(call: &mut Call<'_, '_, '_>, db: u32) -> Result<(), CommandError> {
    if db >= call.desk.server.store.databases() {
        return Err(errors::DB_OUT_OF_RANGE);
    }
    call.desk.session.db = db;
    call.out.ok();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_equal_only_when_they_are() {
        assert!(equal_in_constant_time(b"secret", b"secret"));
        for wrong in [&b""[..], b"s", b"secre", b"secret1", b"Secret", b"secretsecret"] {
            assert!(!equal_in_constant_time(b"secret", wrong), "{wrong:?}");
        }
    }
}
