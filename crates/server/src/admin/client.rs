//! CLIENT: this connection, and the others.

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use millstream_protocol::commands::{
    ClientAttribute, ClientCommand, ClientKill, ClientSelection, ClientType, KillFilter, ReplyMode,
};
use millstream_protocol::errors::{self, CommandError};

use crate::exec::Call;
use crate::registry::{Client, flags};
use crate::server::{NANOS_PER_MILLI, Server};
use crate::session;

pub(crate) fn client(command: &ClientCommand<'_>, call: &mut Call<'_, '_, '_>) -> Result<(), CommandError> {
    let server = call.desk.server;
    let this = Arc::clone(&call.desk.session.client);
    let out = &mut *call.out;
    match command {
        ClientCommand::Id => out.uint(this.id),
        ClientCommand::GetName => match &*this.labels.lock().name {
            "" => out.null_bulk(),
            name => out.bulk(name),
        },
        ClientCommand::SetName(name) => {
            this.labels.lock().name = text(name);
            out.ok();
        }
        ClientCommand::SetInfo(attribute, value) => {
            let mut labels = this.labels.lock();
            match attribute {
                ClientAttribute::LibName => labels.lib_name = text(value),
                ClientAttribute::LibVer => labels.lib_ver = text(value),
            }
            out.ok();
        }
        ClientCommand::Info => out.verbatim(describe(&this, server)),
        ClientCommand::List(selection) => out.verbatim(list(selection, server)),
        ClientCommand::Kill(kill) => return kill_clients(kill, call),
        ClientCommand::Unblock { id, how } => {
            let found = u64::try_from(*id).ok().and_then(|id| server.clients.get(id));
            out.int(found.is_some_and(|client| client.unblock(*how)).into());
        }
        ClientCommand::Pause { timeout_ms, mode } => {
            let length_ns = timeout_ms.saturating_mul(NANOS_PER_MILLI);
            server.pause.begin(*mode, server.uptime_ns().saturating_add(length_ns));
            out.ok();
        }
        ClientCommand::Unpause => {
            server.pause.end();
            out.ok();
        }
        ClientCommand::Reply(mode) => {
            call.desk.session.reply = match mode {
                ReplyMode::On => session::ReplyMode::On,
                ReplyMode::Off => session::ReplyMode::Off,
                ReplyMode::Skip => session::ReplyMode::SkipThis,
            };
            out.ok();
        }
        ClientCommand::NoEvict(on) => {
            this.set(flags::NO_EVICT, *on);
            out.ok();
        }
        ClientCommand::NoTouch(on) => {
            this.set(flags::NO_TOUCH, *on);
            out.ok();
        }
        ClientCommand::TrackingOff => out.ok(),
        ClientCommand::GetRedir => out.int(-1),
        ClientCommand::TrackingInfo => {
            out.map(3);
            out.bulk("flags");
            out.set(1);
            out.bulk("off");
            out.bulk("redirect");
            out.int(-1);
            out.bulk("prefixes");
            out.array(0);
        }
    }
    Ok(())
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn list(selection: &ClientSelection, server: &Server) -> String {
    let clients = match selection {
        ClientSelection::All | ClientSelection::OfType(ClientType::Normal) => server.clients.all(),
        // There is no replication and no publishing: every client is a normal one.
        ClientSelection::OfType(_) => Vec::new(),
        ClientSelection::Ids(ids) => {
            let wanted = ids.iter().filter_map(|id| u64::try_from(*id).ok());
            wanted.filter_map(|id| server.clients.get(id)).collect()
        }
    };
    clients.iter().map(|client| describe(client, server)).collect()
}

/// One line of CLIENT LIST.
fn describe(client: &Client, server: &Server) -> String {
    let now_ms = server.uptime_ms();
    let seconds_since = |ms: u64| now_ms.saturating_sub(ms) / 1000;
    let number = |atomic: &std::sync::atomic::AtomicUsize| atomic.load(Ordering::Relaxed);
    let labels = client.labels.lock().clone();
    let input = number(&client.input_bytes);
    let output = number(&client.output_bytes);
    let queued = number(&client.queued_bytes);
    let mut line = String::new();
    let _ = writeln!(
        line,
        "id={} addr={} laddr={} fd={} name={} age={} idle={} flags={} db={} sub=0 psub=0 ssub=0 multi={} watch={} \
         qbuf={input} qbuf-free=0 argv-mem=0 multi-mem={queued} rbs=0 rbp=0 obl={output} oll=0 omem={output} \
         tot-mem={} events=r cmd={} user=default redir=-1 resp={} lib-name={} lib-ver={}",
        client.id,
        client.addr,
        client.laddr,
        client.fd,
        labels.name,
        seconds_since(client.connected_at_ms),
        seconds_since(client.active_at_ms.load(Ordering::Relaxed)),
        flag_letters(client),
        client.db.load(Ordering::Relaxed),
        client.queued.load(Ordering::Relaxed),
        number(&client.watched),
        input + output + queued + size_of::<Client>(),
        client.last_command().map_or("NULL", |spec| spec.name),
        client.resp.load(Ordering::Relaxed),
        labels.lib_name,
        labels.lib_ver,
    );
    line
}

fn flag_letters(client: &Client) -> String {
    let letters: String = [
        ('x', client.queued.load(Ordering::Relaxed) >= 0),
        ('b', client.has(flags::BLOCKED)),
        ('d', client.has(flags::DIRTY_WATCH)),
        ('U', client.by_unix_socket),
        ('e', client.has(flags::NO_EVICT)),
        ('T', client.has(flags::NO_TOUCH)),
    ]
    .iter()
    .filter_map(|(letter, set)| set.then_some(*letter))
    .collect();
    if letters.is_empty() { "N".into() } else { letters }
}

fn kill_clients(kill: &ClientKill<'_>, call: &mut Call<'_, '_, '_>) -> Result<(), CommandError> {
    let server = call.desk.server;
    let this = call.desk.session.client.id;
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
            // The answer is still sent.
            call.desk.session.close = true;
        } else {
            client.kill();
        }
    }
    match kill {
        ClientKill::Address(_) if killed == 0 => return Err(errors::NO_SUCH_CLIENT),
        ClientKill::Address(_) => call.out.ok(),
        ClientKill::Matching(_) => call.out.uint(killed),
    }
    Ok(())
}

fn matches(filter: &KillFilter<'_>, client: &Client, this: u64, server: &Server) -> bool {
    let age_s = server.uptime_ms().saturating_sub(client.connected_at_ms) / 1000;
    !(filter.skip_me && client.id == this)
        && filter.id.is_none_or(|id| id == client.id)
        && filter.client_type.is_none_or(|kind| kind == ClientType::Normal)
        && filter.address.is_none_or(|address| address == client.addr.as_bytes())
        && filter.local_address.is_none_or(|address| address == client.laddr.as_bytes())
        && filter.age_s_min.is_none_or(|age| age_s >= age)
}
