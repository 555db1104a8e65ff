//! INFO, TIME, ROLE, SLOWLOG, LATENCY, DEBUG SLEEP, WAIT: the server as a whole.

use millstream_protocol::commands::ServerCommand;
use millstream_protocol::errors::{self, CommandError};
use millstream_protocol::resp::Writer;

use super::{info, saving};
use crate::exec::{Call, Outcome};
use crate::slowlog::{SlowEntry, Slowlog};

pub(crate) fn server(
    command: &ServerCommand<'_>,
    call: &mut Call<'_, '_, '_>,
) -> Result<Outcome, CommandError> {
    let server = call.desk.server;
    let out = &mut *call.out;
    match command {
        ServerCommand::Info(sections) => {
            let text = info::render(sections, server, call.txn);
            call.out.verbatim(text);
        }
        ServerCommand::Time => write_time(out, call.txn.now_ms()),
        ServerCommand::Role => {
            out.array(3);
            out.bulk("master");
            out.int(0);
            out.array(0);
        }
        ServerCommand::ModuleList | ServerCommand::LatencyLatest | ServerCommand::LatencyHistory(_) => {
            out.array(0)
        }
        ServerCommand::LatencyHistogram(_) => out.map(0),
        ServerCommand::LatencyReset(_) => out.int(0),
        ServerCommand::LatencyDoctor => {
            out.verbatim("Latency events are not collected here; SLOWLOG GET lists slow commands.\n");
        }
        ServerCommand::SlowlogGet(count) => write_slowlog(out, &server.slowlog, *count),
        ServerCommand::SlowlogLen => out.count(server.slowlog.len()),
        ServerCommand::SlowlogReset => {
            server.slowlog.clear();
            out.ok();
        }
        ServerCommand::DebugSleep(duration) => {
            // With everything locked: what is slow for one is slow for all, which is what this is for.
            std::thread::sleep(*duration);
            out.ok();
        }
        ServerCommand::Save => return saving::save(call),
        ServerCommand::BgSave { schedule } => saving::save_in_background(call, *schedule)?,
        ServerCommand::BgRewriteAof => saving::rewrite_in_background(call)?,
        ServerCommand::LastSave => out.uint(server.persistence.last_save_s()),
        ServerCommand::DebugReload { save } => return saving::reload(call, *save),
        ServerCommand::WaitAof { local, timeout_ms, .. } => return saving::wait(call, *local, *timeout_ms),
        ServerCommand::Shutdown(how) => return saving::shut_down(call, *how),
        ServerCommand::ShutdownAbort => return Err(errors::NO_SHUTDOWN),
        // There are no replicas to wait for.
        ServerCommand::Wait { .. } => out.int(0),
        ServerCommand::ReplicaOfNoOne => out.ok(),
    }
    Ok(Outcome::Done)
}

/// Seconds, and microseconds within the second.
fn write_time(out: &mut Writer, now_ms: u64) {
    out.array(2);
    out.bulk((now_ms / 1000).to_string());
    out.bulk((now_ms % 1000 * 1000).to_string());
}

/// `count`: `None` is all.
fn write_slowlog(out: &mut Writer, slowlog: &Slowlog, count: Option<u64>) {
    let count = count.and_then(|count| usize::try_from(count).ok());
    let entries = slowlog.newest(count.unwrap_or(usize::MAX));
    out.array(entries.len());
    entries.iter().for_each(|entry| write_slow_entry(out, entry));
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
