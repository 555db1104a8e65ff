//! CLIENT: information about connections, and control over them.

use std::sync::Arc;

use millstream_protocol::commands::{
    ArgList, ClientAttribute, ClientKill, ClientSelection, ClientType, KillFilter, PauseMode, ReplyMode,
    UnblockReason, check_tracking, parse_client_name, parse_on_or_off,
};
use millstream_protocol::errors;
use millstream_protocol::resp::Writer;
use millstream_store::Txn;

use crate::client_line;
use crate::command::{Call, CommandContext, DONE, Reply, reply_ok};
use crate::registry::Client;
use crate::session::{self, AfterReply};
use crate::state::{NANOS_PER_MILLI, Server};

pub(crate) fn id(call: &mut Call<'_, '_, '_>, _: ArgList<'_>) -> Reply {
    call.out.uint(call.context.session.client.id);
    DONE
}

pub(crate) fn getname(call: &mut Call<'_, '_, '_>, _: ArgList<'_>) -> Reply {
    match &*call.context.session.client.labels.lock().name {
        "" => call.out.null_bulk(),
        name => call.out.bulk(name),
    }
    DONE
}

pub(crate) fn setname(call: &mut Call<'_, '_, '_>, argv: ArgList<'_>) -> Reply {
    call.context.session.client.labels.lock().name = text(parse_client_name(argv)?);
    reply_ok(call.out)
}

pub(crate) fn setinfo(call: &mut Call<'_, '_, '_>, argv: ArgList<'_>) -> Reply {
    let (attribute, value) = ClientAttribute::parse(argv)?;
    let mut labels = call.context.session.client.labels.lock();
    match attribute {
        ClientAttribute::LibName => labels.lib_name = text(value),
        ClientAttribute::LibVer => labels.lib_ver = text(value),
    }
    reply_ok(call.out)
}

pub(crate) fn info(call: &mut Call<'_, '_, '_>, _: ArgList<'_>) -> Reply {
    // Publish the current state of this connection first, so that the reply contains it.
    call.context.session.publish();
    call.out.verbatim(line_of(&call.context.session.client, call.context));
    DONE
}

pub(crate) fn list(call: &mut Call<'_, '_, '_>, argv: ArgList<'_>) -> Reply {
    let selection = ClientSelection::parse(argv)?;
    call.context.session.publish();
    let clients = selected(&selection, call.context.server);
    let lines: String = clients.iter().map(|client| line_of(client, call.context)).collect();
    call.out.verbatim(lines);
    DONE
}

pub(crate) fn unblock(call: &mut Call<'_, '_, '_>, argv: ArgList<'_>) -> Reply {
    let (id, reason) = UnblockReason::parse(argv)?;
    let found = u64::try_from(id).ok().and_then(|id| call.context.server.clients.get(id));
    call.out.int(found.is_some_and(|client| client.unblock(reason)).into());
    DONE
}

pub(crate) fn pause(call: &mut Call<'_, '_, '_>, argv: ArgList<'_>) -> Reply {
    let (timeout_ms, mode) = PauseMode::parse(argv)?;
    let server = call.context.server;
    let length_ns = timeout_ms.saturating_mul(NANOS_PER_MILLI);
    server.pause.begin(mode, server.uptime_ns().saturating_add(length_ns));
    call.context.audit("CLIENT PAUSE");
    reply_ok(call.out)
}

pub(crate) fn unpause(call: &mut Call<'_, '_, '_>, _: ArgList<'_>) -> Reply {
    call.context.server.pause.end();
    reply_ok(call.out)
}

pub(crate) fn reply(call: &mut Call<'_, '_, '_>, argv: ArgList<'_>) -> Reply {
    call.context.session.reply = match ReplyMode::parse(argv)? {
        ReplyMode::On => session::ReplyMode::On,
        ReplyMode::Off => session::ReplyMode::Off,
        ReplyMode::Skip => session::ReplyMode::SkipThis,
    };
    reply_ok(call.out)
}

/// CLIENT NO-EVICT and CLIENT NO-TOUCH: sets or clears a flag of the client.
pub(crate) fn switch(call: &mut Call<'_, '_, '_>, argv: ArgList<'_>, flag: u32) -> Reply {
    call.context.session.client.set(flag, parse_on_or_off(argv)?);
    reply_ok(call.out)
}

pub(crate) fn tracking(_: &mut Txn<'_>, out: &mut Writer, argv: ArgList<'_>) -> Reply {
    check_tracking(argv)?;
    reply_ok(out)
}

pub(crate) fn getredir(_: &mut Txn<'_>, out: &mut Writer, _: ArgList<'_>) -> Reply {
    out.int(-1);
    DONE
}

pub(crate) fn trackinginfo(_: &mut Txn<'_>, out: &mut Writer, _: ArgList<'_>) -> Reply {
    out.map(3);
    out.bulk("flags");
    out.set(1);
    out.bulk("off");
    out.bulk("redirect");
    out.int(-1);
    out.bulk("prefixes");
    out.array(0);
    DONE
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn selected(selection: &ClientSelection, server: &Server) -> Vec<Arc<Client>> {
    match selection {
        ClientSelection::All | ClientSelection::OfType(ClientType::Normal) => server.clients.all(),
        // Without replication and publish/subscribe, every client is a normal client.
        ClientSelection::OfType(_) => Vec::new(),
        ClientSelection::Ids(ids) => {
            let wanted = ids.iter().filter_map(|id| u64::try_from(*id).ok());
            wanted.filter_map(|id| server.clients.get(id)).collect()
        }
    }
}

fn line_of(client: &Client, context: &CommandContext<'_>) -> String {
    let last_command = context.commands.get(client.last_command()).map_or("NULL", |spec| spec.name);
    client_line::describe(client, context.server.uptime_ms(), last_command) + "\n"
}

pub(crate) fn kill(call: &mut Call<'_, '_, '_>, argv: ArgList<'_>) -> Reply {
    let kill = &ClientKill::parse(argv)?;
    let server = call.context.server;
    if let ClientKill::Matching(KillFilter { user: Some(user), .. }) = kill
        && server.users.get(user).is_none()
    {
        return Err(errors::no_such_user(user));
    }
    let this = call.context.session.client.id;
    let mut killed = 0;
    for client in server.clients.all() {
        let chosen = match kill {
            ClientKill::Address(address) => client.addr.as_bytes() == *address,
            ClientKill::Matching(filter) => matches(filter, &client, this, server),
        };
        if !chosen {
            continue;
        }
        killed += 1;
        if client.id == this {
            // The reply is sent before the connection is closed.
            call.context.session.after_reply = AfterReply::Close;
        } else {
            client.kill();
        }
    }
    if killed > 0 {
        call.context.audit("CLIENT KILL");
    }
    match kill {
        ClientKill::Address(_) if killed == 0 => return Err(errors::NO_SUCH_CLIENT),
        ClientKill::Address(_) => call.out.ok(),
        ClientKill::Matching(_) => call.out.uint(killed),
    }
    DONE
}

fn matches(filter: &KillFilter<'_>, client: &Client, this: u64, server: &Server) -> bool {
    let age_s = server.uptime_ms().saturating_sub(client.connected_at_ms) / 1000;
    !(filter.skip_me && client.id == this)
        && filter.id.is_none_or(|id| id == client.id)
        && filter.client_type.is_none_or(|kind| kind == ClientType::Normal)
        && filter.address.is_none_or(|address| address == client.addr.as_bytes())
        && filter.local_address.is_none_or(|address| address == client.laddr.as_bytes())
        && filter.user.is_none_or(|user| client.user_name() == user)
        && filter.age_s_min.is_none_or(|age| age_s >= age)
}
