//! Commands that use the disk: SAVE, BGSAVE, BGREWRITEAOF, WAITAOF, DEBUG RELOAD and LOADAOF, SHUTDOWN.
//!
//! There is one kind of snapshot. After every snapshot, the server removes the part of the log that the snapshot
//! covers. SAVE waits for the snapshot; BGSAVE and BGREWRITEAOF do not. Slow work runs on another thread, so that it
//! does not delay other clients.

use std::sync::Arc;

use millstream_protocol::commands::{ArgList, ShutdownCommand, WaitAof, parse_bgsave};
use millstream_protocol::errors::{self, CommandError};
use millstream_protocol::resp::Writer;

use crate::command::{Call, DONE, Outcome, Reply, SlowWork};
use crate::persistence::{BackgroundSave, SnapshotPurpose};
use crate::session::AfterReply;
use crate::state::Server;

pub(crate) fn save(call: &mut Call<'_, '_, '_>, _: ArgList<'_>) -> Reply {
    let server = call.context.server;
    check_durable(server)?;
    if server.persistence.running().is_some() {
        return Err(errors::SAVE_IN_PROGRESS);
    }
    Ok(later(|server, out| {
        save_now(server)?;
        out.ok();
        Ok(())
    }))
}

pub(crate) fn bgsave(call: &mut Call<'_, '_, '_>, argv: ArgList<'_>) -> Reply {
    let schedule = parse_bgsave(argv)?;
    match begin(call, SnapshotPurpose::Save, schedule)? {
        BackgroundSave::Started => call.out.simple("Background saving started"),
        BackgroundSave::Scheduled => call.out.simple("Background saving scheduled"),
        BackgroundSave::Refused(SnapshotPurpose::Save) => return Err(errors::SAVE_IN_PROGRESS),
        BackgroundSave::Refused(SnapshotPurpose::Rewrite) => return Err(errors::BGSAVE_DURING_REWRITE),
    }
    DONE
}

pub(crate) fn bgrewriteaof(call: &mut Call<'_, '_, '_>, _: ArgList<'_>) -> Reply {
    match begin(call, SnapshotPurpose::Rewrite, true)? {
        BackgroundSave::Started => call.out.simple("Background append only file rewriting started"),
        BackgroundSave::Scheduled => call.out.simple("Background append only file rewriting scheduled"),
        BackgroundSave::Refused(_) => return Err(errors::REWRITE_IN_PROGRESS),
    }
    DONE
}

fn begin(
    call: &Call<'_, '_, '_>,
    purpose: SnapshotPurpose,
    schedule: bool,
) -> Result<BackgroundSave, CommandError> {
    let server = call.context.server;
    check_durable(server)?;
    server.save_in_background(purpose, schedule).map_err(|error| errors::not_saved(&error.to_string()))
}

/// Loads all data from the data folder again. If `save` is set, takes a snapshot first.
pub(super) fn reload(call: &mut Call<'_, '_, '_>, save: bool) -> Reply {
    let is_durable = call.context.server.store.durability().is_some();
    if !save {
        check_durable(call.context.server)?;
    }
    Ok(later(move |server, out| {
        if save && is_durable {
            save_now(server)?;
        }
        server.store.reload().map_err(|error| errors::not_saved(&error.to_string()))?;
        out.ok();
        Ok(())
    }))
}

/// Replies `[local, replicas]`: `local` is 1 if all writes so far are durable on this server's disk, and `replicas` is
/// always 0.
pub(crate) fn waitaof(call: &mut Call<'_, '_, '_>, argv: ArgList<'_>) -> Reply {
    let WaitAof { local, timeout_ms } = WaitAof::parse(argv)?;
    let store = &call.context.server.store;
    if local && store.durability().is_none() {
        return Err(errors::WAITAOF_NOT_DURABLE);
    }
    let position = store.appended_position();
    let is_durable = store.is_durable(position);
    if is_durable || !local {
        write_counts(call.out, is_durable);
        return DONE;
    }
    let mut fallback_reply = Writer::new(call.out.resp3);
    write_counts(&mut fallback_reply, false);
    Ok(Outcome::SlowWork(SlowWork {
        work: Box::new(|server, out| {
            server.store.make_durable().map_err(|error| errors::not_writable(&error.to_string()))?;
            write_counts(out, true);
            Ok(())
        }),
        timeout_ms,
        fallback_reply: Some(fallback_reply.buf),
    }))
}

fn write_counts(out: &mut Writer, is_durable: bool) {
    out.array(2);
    out.int(is_durable.into());
    out.int(0);
}

pub(crate) fn lastsave(call: &mut Call<'_, '_, '_>, _: ArgList<'_>) -> Reply {
    call.out.uint(call.context.server.persistence.last_save_s());
    DONE
}

/// With SAVE, the server stops after a snapshot. If the snapshot fails, it stops only with FORCE. Without SAVE, it
/// stops immediately, because the log, if there is one, contains all data.
pub(crate) fn shutdown(call: &mut Call<'_, '_, '_>, argv: ArgList<'_>) -> Reply {
    let ShutdownCommand::Stop(options) = ShutdownCommand::parse(argv)? else {
        return Err(errors::NO_SHUTDOWN);
    };
    call.context.audit("SHUTDOWN");
    if options.save != Some(true) {
        call.context.server.shutdown.begin();
        call.context.session.after_reply = AfterReply::Close;
        return DONE;
    }
    if !options.force {
        check_durable(call.context.server)?;
    }
    Ok(later(move |server, _| {
        let saved = save_now(server);
        if !options.force {
            saved?;
        }
        server.shutdown.begin();
        Ok(())
    }))
}

fn check_durable(server: &Server) -> Result<(), CommandError> {
    server.store.durability().map(|_| ()).ok_or(errors::NOT_DURABLE)
}

fn save_now(server: &Arc<Server>) -> Result<(), CommandError> {
    server.save().map_err(|error| errors::not_saved(&error.to_string()))
}

/// Returns an outcome that runs `work` without a time limit. A command with this outcome cannot run in a transaction.
fn later(
    work: impl FnOnce(&Arc<Server>, &mut Writer) -> Result<(), CommandError> + Send + 'static,
) -> Outcome {
    Outcome::SlowWork(SlowWork { work: Box::new(work), timeout_ms: 0, fallback_reply: None })
}
