//! Commands about the server as a whole: TIME, ROLE, LATENCY DOCTOR, WAIT, REPLICAOF, DEBUG, SLOWLOG.

use millstream_protocol::args::Args;
use millstream_protocol::commands::{ArgList, DebugCommand, check_replicaof, check_wait, parse_slowlog_get};
use millstream_protocol::resp::Writer;
use millstream_store::Txn;

use super::saving;
use crate::command::{Call, DONE, Reply, reply_ok};
use crate::slowlog::SlowEntry;

/// TIME: Unix seconds, and the microseconds within the second.
pub(crate) fn time(txn: &mut Txn<'_>, out: &mut Writer, _: ArgList<'_>) -> Reply {
    let now_ms = txn.now_ms();
    out.array(2);
    out.bulk((now_ms / 1000).to_string());
    out.bulk((now_ms % 1000 * 1000).to_string());
    DONE
}

pub(crate) fn role(_: &mut Txn<'_>, out: &mut Writer, _: ArgList<'_>) -> Reply {
    out.array(3);
    out.bulk("master");
    out.int(0);
    out.array(0);
    DONE
}

pub(crate) fn latency_doctor(_: &mut Txn<'_>, out: &mut Writer, _: ArgList<'_>) -> Reply {
    out.verbatim("This server does not record latency events. Use SLOWLOG GET to list slow commands.\n");
    DONE
}

/// WAIT: there are no replicas to wait for.
pub(crate) fn wait(_: &mut Txn<'_>, out: &mut Writer, argv: ArgList<'_>) -> Reply {
    check_wait(argv)?;
    out.int(0);
    DONE
}

pub(crate) fn replicaof(_: &mut Txn<'_>, out: &mut Writer, argv: ArgList<'_>) -> Reply {
    check_replicaof(argv)?;
    reply_ok(out)
}

pub(crate) fn debug(call: &mut Call<'_, '_, '_>, argv: ArgList<'_>) -> Reply {
    match DebugCommand::parse(argv)? {
        DebugCommand::Sleep(duration) => {
            call.context.audit("DEBUG SLEEP");
            // Sleeps while all keys are locked, so that all clients wait, as in Redis.
            std::thread::sleep(duration);
            reply_ok(call.out)
        }
        DebugCommand::Reload { save } => {
            call.context.audit("DEBUG RELOAD");
            saving::reload(call, save)
        }
    }
}

pub(crate) fn sleeps(argv: ArgList<'_>) -> bool {
    Args::of_command(argv).keyword("SLEEP")
}

pub(crate) fn slowlog_get(call: &mut Call<'_, '_, '_>, argv: ArgList<'_>) -> Reply {
    let count = parse_slowlog_get(argv)?.and_then(|count| usize::try_from(count).ok());
    let entries = call.context.server.slowlog.newest(count.unwrap_or(usize::MAX));
    call.out.array(entries.len());
    entries.iter().for_each(|entry| write_slow_entry(call.out, entry));
    DONE
}

pub(crate) fn slowlog_len(call: &mut Call<'_, '_, '_>, _: ArgList<'_>) -> Reply {
    call.out.count(call.context.server.slowlog.len());
    DONE
}

pub(crate) fn slowlog_reset(call: &mut Call<'_, '_, '_>, _: ArgList<'_>) -> Reply {
    call.context.server.slowlog.clear();
    call.context.audit("SLOWLOG RESET");
    reply_ok(call.out)
}

fn write_slow_entry(out: &mut Writer, entry: &SlowEntry) {
    out.array(6);
    out.uint(entry.id);
    out.uint(entry.at_s);
    out.uint(entry.micros);
    out.array(entry.args.len());
    entry.args.iter().for_each(|arg| out.bulk(arg));
    out.bulk(&entry.addr);
    out.bulk(&entry.name);
}
