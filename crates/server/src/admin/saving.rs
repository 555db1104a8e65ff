//! SAVE, BGSAVE, BGREWRITEAOF, WAITAOF, DEBUG RELOAD and LOADAOF, SHUTDOWN: what has to do with the disk.
//!
//! There is one kind of snapshot, and every snapshot releases the log it covers: SAVE waits for it, BGSAVE and
//! BGREWRITEAOF do not. What takes a while runs beside, so that other clients go on.

use std::sync::Arc;

use millstream_protocol::commands::{ArgList, ShutdownCommand, WaitAof, parse_bgsave};
use millstream_protocol::errors::{self, CommandError};
use millstream_protocol::resp::Writer;

use crate::command::{Call, DONE, Later, Outcome, Reply};
use crate::persistence::{Background, Purpose};
use crate::state::Server;

pub(crate) fn save(call: &mut Call<'_, '_, '_>, _: ArgList<'_>) -> Reply {
    let server = call.context.server;
    check_durable(server)?;
    if server.persistence.running().is_some() {
        return Err(errors::SAVE_RUNS);
    }
    Ok(later(|server, out| {
        save_now(server)?;
        out.ok();
        Ok(())
    }))
}

pub(crate) fn bgsave(call: &mut Call<'_, '_, '_>, argv: ArgList<'_>) -> Reply {
    let schedule = parse_bgsave(argv)?;
    match begin(call, Purpose::Save, schedule)? {
        Background::Begun => call.out.simple("Background saving started"),
        Background::Scheduled => call.out.simple("Background saving scheduled"),
        Background::Refused(Purpose::Save) => return Err(errors::SAVE_RUNS),
        Background::Refused(Purpose::Rewrite) => return Err(errors::REWRITE_RUNS_INSTEAD),
    }
    DONE
}

pub(crate) fn bgrewriteaof(call: &mut Call<'_, '_, '_>, _: ArgList<'_>) -> Reply {
    match begin(call, Purpose::Rewrite, true)? {
        Background::Begun => call.out.simple("Background append only file rewriting started"),
        Background::Scheduled => call.out.simple("Background append only file rewriting scheduled"),
        Background::Refused(_) => return Err(errors::REWRITE_RUNS),
    }
    DONE
}

fn begin(call: &Call<'_, '_, '_>, purpose: Purpose, schedule: bool) -> Result<Background, CommandError> {
    let server = call.context.server;
    check_durable(server)?;
    server.save_in_background(purpose, schedule).map_err(|error| errors::not_saved(&error.to_string()))
}

/// Reads everything back, a snapshot first if it is asked for.
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

/// `[local, replicas]`: whether this server's disk has everything there is, and no replicas.
pub(crate) fn waitaof(call: &mut Call<'_, '_, '_>, argv: ArgList<'_>) -> Reply {
    let WaitAof { local, timeout_ms } = WaitAof::parse(argv)?;
    let store = &call.context.server.store;
    if local && store.durability().is_none() {
        return Err(errors::WAITAOF_NOT_DURABLE);
    }
    let position = store.seen();
    let is_durable = store.is_durable(position);
    if is_durable || !local {
        write_counts(call.out, is_durable);
        return DONE;
    }
    let mut instead = Writer::new(call.out.resp3);
    write_counts(&mut instead, false);
    Ok(Outcome::Later(Later {
        work: Box::new(|server, out| {
            server.store.make_durable().map_err(|error| errors::not_writable(&error.to_string()))?;
            write_counts(out, true);
            Ok(())
        }),
        timeout_ms,
        instead: Some(instead.buf),
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

/// SAVE asks for a snapshot, and without one nothing stops unless by FORCE. Otherwise there is nothing to do but to
/// stop: everything is in the log.
pub(crate) fn shutdown(call: &mut Call<'_, '_, '_>, argv: ArgList<'_>) -> Reply {
    let ShutdownCommand::Stop(how) = ShutdownCommand::parse(argv)? else { return Err(errors::NO_SHUTDOWN) };
    if how.save != Some(true) {
        call.context.server.shutdown.begin();
        call.context.session.close = true;
        return DONE;
    }
    if !how.force {
        check_durable(call.context.server)?;
    }
    Ok(later(move |server, _| {
        let saved = save_now(server);
        if !how.force {
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

/// Work without a time limit, which cannot be part of a transaction.
fn later(
    work: impl FnOnce(&Arc<Server>, &mut Writer) -> Result<(), CommandError> + Send + 'static,
) -> Outcome {
    Outcome::Later(Later { work: Box::new(work), timeout_ms: 0, instead: None })
}
