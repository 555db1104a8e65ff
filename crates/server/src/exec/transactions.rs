//! MULTI EXEC DISCARD WATCH UNWATCH.
//!
//! EXEC locks everything, then looks whether a watched key was touched: nobody can touch one in between. The
//! queued commands run under that one lock, so nobody sees half of them, and readers they make ready are
//! served when it is released.

use millstream_protocol::commands::TransactionCommand;
use millstream_protocol::errors::{self, CommandError};
use millstream_protocol::table::CommandSpec;

use super::Call;
use crate::dispatch::bytes_of;
use crate::server::Server;
use crate::session::{Session, Transaction, Watch};

/// Commands that are not queued between MULTI and EXEC.
pub(crate) fn runs_inside_multi(spec: &CommandSpec) -> bool {
    matches!(spec.name, "exec" | "discard" | "multi" | "watch" | "quit" | "reset")
}

/// Forgets what was queued and watched.
pub(crate) fn discard(session: &mut Session, server: &Server) {
    session.transaction = None;
    session.unwatch(server);
}

pub(super) fn run(call: &mut Call<'_, '_, '_>, command: &TransactionCommand<'_>) -> Result<(), CommandError> {
    match command {
        TransactionCommand::Multi => multi(call),
        TransactionCommand::Exec => exec(call),
        TransactionCommand::Discard => run_discard(call),
        TransactionCommand::Watch(keys) => watch(call, keys),
        TransactionCommand::Unwatch => unwatch(call),
    }
}

fn multi(call: &mut Call<'_, '_, '_>) -> Result<(), CommandError> {
    let session = &mut *call.desk.session;
    if session.transaction.is_some() {
        return Err(errors::NESTED_MULTI);
    }
    session.transaction = Some(Transaction::default());
    call.out.ok();
    Ok(())
}

fn run_discard(call: &mut Call<'_, '_, '_>) -> Result<(), CommandError> {
    if call.desk.session.transaction.is_none() {
        return Err(errors::DISCARD_WITHOUT_MULTI);
    }
    discard(call.desk.session, call.desk.server);
    call.out.ok();
    Ok(())
}

fn exec(call: &mut Call<'_, '_, '_>) -> Result<(), CommandError> {
    let desk = &mut *call.desk;
    let Some(transaction) = desk.session.transaction.take() else { return Err(errors::EXEC_WITHOUT_MULTI) };
    if transaction.refused {
        desk.session.unwatch(desk.server);
        return Err(errors::EXEC_ABORTED);
    }
    let server = desk.server;
    if transaction.writes {
        let bytes = transaction.commands.iter().map(|queued| bytes_of(&queued.args.argv())).sum();
        if let Err(refused) = server.check_writable(bytes) {
            desk.session.unwatch(server);
            return Err(refused);
        }
    }
    desk.batch.saw_data = true;
    let mut txn = server.store.lock_all(desk.session.db, desk.batch.now_ms);
    // Nothing is watched any more, whatever the queued commands do; the store hears of it when it is unlocked.
    let watch = desk.session.watch.take();
    if watch.as_ref().is_some_and(Watch::is_broken) {
        call.out.null_array();
    } else {
        call.out.array(transaction.commands.len());
        for queued in &transaction.commands {
            desk.run_queued(queued.spec, &queued.args.argv(), &mut txn, call.out);
        }
    }
    drop(txn);
    if let Some(watch) = watch {
        watch.end(server);
    }
    Ok(())
}

fn watch(call: &mut Call<'_, '_, '_>, keys: &[&[u8]]) -> Result<(), CommandError> {
    let session = &mut *call.desk.session;
    if session.transaction.is_some() {
        return Err(errors::WATCH_IN_MULTI);
    }
    let watch = session.watch.get_or_insert_default();
    for key in keys {
        if watch.keys.iter().any(|(db, known)| *db == session.db && **known == **key) {
            continue;
        }
        call.txn.watch(key, &watch.flag);
        watch.keys.push((session.db, Box::from(*key)));
    }
    call.out.ok();
    Ok(())
}

fn unwatch(call: &mut Call<'_, '_, '_>) -> Result<(), CommandError> {
    call.desk.session.unwatch(call.desk.server);
    call.out.ok();
    Ok(())
}
