//! SAVE, BGSAVE, BGREWRITEAOF, WAITAOF, DEBUG RELOAD and LOADAOF, SHUTDOWN: what has to do with the disk.
//!
//! There is one kind of snapshot, and every snapshot releases the log it covers: SAVE waits for it, BGSAVE and
//! BGREWRITEAOF do not. What takes a while runs beside, so that other clients go on.

use std::sync::Arc;

use millstream_protocol::commands::Shutdown;
use millstream_protocol::errors::{self, CommandError};
use millstream_protocol::resp::Writer;

use crate::exec::{Call, Later, Outcome};
use crate::persistence::{Background, Purpose};
use crate::server::Server;

pub(super) fn save(call: &mut Call<'_, '_, '_>) -> Result<Outcome, CommandError> {
    let server = call.desk.server;
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

pub(super) fn save_in_background(call: &mut Call<'_, '_, '_>, schedule: bool) -> Result<(), CommandError> {
    match begin(call, Purpose::Save, schedule)? {
        Background::Begun => call.out.simple("Background saving started"),
        Background::Scheduled => call.out.simple("Background saving scheduled"),
        Background::Refused(Purpose::Save) => return Err(errors::SAVE_RUNS),
        Background::Refused(Purpose::Rewrite) => return Err(errors::REWRITE_RUNS_INSTEAD),
    }
    Ok(())
}

pub(super) fn rewrite_in_background(call: &mut Call<'_, '_, '_>) -> Result<(), CommandError> {
    match begin(call, Purpose::Rewrite, true)? {
        Background::Begun => call.out.simple("Background append only file rewriting started"),
        Background::Scheduled => call.out.simple("Background append only file rewriting scheduled"),
        Background::Refused(_) => return Err(errors::REWRITE_RUNS),
    }
    Ok(())
}

fn begin(call: &Call<'_, '_, '_>, purpose: Purpose, schedule: bool) -> Result<Background, CommandError> {
    let server = call.desk.server;
    check_durable(server)?;
    server.save_in_background(purpose, schedule).map_err(|error| errors::not_saved(&error.to_string()))
}

/// Reads everything back, a snapshot first if it is asked for.
pub(super) fn reload(call: &mut Call<'_, '_, '_>, save: bool) -> Result<Outcome, CommandError> {
    let is_durable = call.desk.server.store.durability().is_some();
    if !save {
        check_durable(call.desk.server)?;
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
pub(super) fn wait(
    call: &mut Call<'_, '_, '_>,
    local: bool,
    timeout_ms: u64,
) -> Result<Outcome, CommandError> {
    let store = &call.desk.server.store;
    if local && store.durability().is_none() {
        return Err(errors::WAITAOF_NOT_DURABLE);
    }
    let position = store.seen();
    let is_durable = store.is_durable(position);
    if is_durable || !local {
        write_counts(call.out, is_durable);
        return Ok(Outcome::Done);
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

/// SAVE asks for a snapshot, and without one nothing stops unless by FORCE. Otherwise there is nothing to do but to
/// stop: everything is in the log.
pub(super) fn shut_down(call: &mut Call<'_, '_, '_>, how: Shutdown) -> Result<Outcome, CommandError> {
    if how.save != Some(true) {
        call.desk.server.shutdown.begin();
        call.desk.session.close = true;
        return Ok(Outcome::Done);
    }
    if !how.force {
        check_durable(call.desk.server)?;
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
