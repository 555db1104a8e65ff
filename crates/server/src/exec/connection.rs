//! PING ECHO AUTH HELLO RESET QUIT SELECT.

use millstream_protocol::args::Args;
use millstream_protocol::commands::{ArgList, Auth, Hello, Protocol, parse_db};
use millstream_protocol::errors::{self, CommandError};
use millstream_protocol::resp::Writer;
use millstream_store::Txn;

use super::transactions;
use crate::acl::DEFAULT_USER;
use crate::command::{Call, CommandContext, DONE, Outcome, Reply, reply_ok};
use crate::registry::flags;
use crate::session::{AfterReply, ReplyMode};
use crate::version::REDIS_VERSION;

pub(crate) fn ping(_: &mut Txn<'_>, out: &mut Writer, argv: ArgList<'_>) -> Reply {
    match *Args::of_command(argv).rest() {
        [] => out.simple("PONG"),
        [message] => out.bulk(message),
        _ => return Err(errors::wrong_arity("ping")),
    }
    Ok(Outcome::Brief)
}

pub(crate) fn echo(_: &mut Txn<'_>, out: &mut Writer, argv: ArgList<'_>) -> Reply {
    let [message] = Args::of_command(argv).exactly()?;
    out.bulk(message);
    DONE
}

pub(crate) fn auth(call: &mut Call<'_, '_, '_>, argv: ArgList<'_>) -> Reply {
    let auth = Auth::parse(argv)?;
    if auth.user.is_none() && call.context.server.users.default_user().rules().no_password {
        return Err(errors::NO_PASSWORD_SET);
    }
    authenticate(call, auth, "AUTH")?;
    reply_ok(call.out)
}

/// Makes the client the user it names, if the password is right. `command` is AUTH or HELLO.
fn authenticate(call: &mut Call<'_, '_, '_>, auth: Auth<'_>, command: &str) -> Result<(), CommandError> {
    let name = auth.user.unwrap_or(DEFAULT_USER);
    let CommandContext { server, session, .. } = &mut *call.context;
    // In a transaction, a client could try any number of passwords before its connection is closed.
    let may_try = !session.has_too_many_failed_logins();
    let user = may_try.then(|| server.users.authenticate(name, auth.password)).flatten();
    if !user.is_some_and(|user| session.log_in(user)) {
        call.context.note_failed_login(name, command);
        return Err(errors::WRONG_PASS);
    }
    call.context.note_login();
    Ok(())
}

pub(crate) fn hello(call: &mut Call<'_, '_, '_>, argv: ArgList<'_>) -> Reply {
    let hello = Hello::parse(argv)?;
    let name = hello.checked_name()?;
    if let Some(auth) = hello.auth {
        authenticate(call, auth, "HELLO")?;
    }
    let session = &mut *call.context.session;
    if !session.authenticated {
        return Err(errors::NO_AUTH_HELLO);
    }
    if let Some(name) = name {
        session.client.labels.lock().name = String::from_utf8_lossy(name).into_owned();
    }
    if let Some(protocol) = hello.protocol {
        session.resp3 = protocol == Protocol::Resp3;
    }
    call.out.resp3 = session.resp3;
    write_hello(call);
    DONE
}

fn write_hello(call: &mut Call<'_, '_, '_>) {
    let id = call.context.session.client.id;
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

/// Sets the connection to the state of a new one.
pub(crate) fn reset(call: &mut Call<'_, '_, '_>, _: ArgList<'_>) -> Reply {
    let context = &mut *call.context;
    transactions::discard(context.session, context.server);
    let session = &mut *context.session;
    session.db = 0;
    session.resp3 = false;
    session.reply = ReplyMode::On;
    session.log_out(context.server);
    session.client.labels.lock().name.clear();
    session.client.set(flags::NO_EVICT | flags::NO_TOUCH, false);
    call.out.resp3 = false;
    call.out.simple("RESET");
    DONE
}

/// Closes the connection after the reply. Arguments are ignored.
pub(crate) fn quit(call: &mut Call<'_, '_, '_>, _: ArgList<'_>) -> Reply {
    call.context.session.after_reply = AfterReply::Close;
    reply_ok(call.out)
}

pub(crate) fn select(call: &mut Call<'_, '_, '_>, argv: ArgList<'_>) -> Reply {
    let [db] = Args::of_command(argv).exactly()?;
    let db = parse_db(db)?;
    if db >= call.context.server.store.databases() {
        return Err(errors::DB_OUT_OF_RANGE);
    }
    call.context.session.db = db;
    reply_ok(call.out)
}
