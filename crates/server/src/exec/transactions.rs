//! MULTI EXEC DISCARD WATCH UNWATCH.
//!
//! EXEC locks everything and then checks whether a watched key was changed. The queued commands run under the same
//! lock. So no other client can change a watched key after the check, or see the effects of only some commands.
//! Blocked readers that the commands make ready are served before the lock is released.

use millstream_protocol::args::Args;
use millstream_protocol::commands::ArgList;
use millstream_protocol::errors;

use crate::command::{Call, CommandSpec, DONE, Reply, bytes_of, reply_ok};
use crate::session::{Session, Transaction, Watch};
use crate::state::Server;

/// Maximum number of keys that a client can watch.
const WATCHED_KEYS_MAX: usize = 65_536;

/// Whether a command runs between MULTI and EXEC instead of being queued.
pub(crate) fn runs_inside_multi(spec: &CommandSpec) -> bool {
    matches!(spec.name, "exec" | "discard" | "multi" | "watch" | "quit" | "reset")
}

/// Drops the queued commands and stops watching keys.
pub(crate) fn discard(session: &mut Session, server: &Server) {
    session.transaction = None;
    session.unwatch(server);
}

pub(crate) fn multi(call: &mut Call<'_, '_, '_>, _: ArgList<'_>) -> Reply {
    let session = &mut *call.context.session;
    if session.transaction.is_some() {
        return Err(errors::NESTED_MULTI);
    }
    session.transaction = Some(Transaction::default());
    reply_ok(call.out)
}

pub(crate) fn run_discard(call: &mut Call<'_, '_, '_>, _: ArgList<'_>) -> Reply {
    if call.context.session.transaction.is_none() {
        return Err(errors::DISCARD_WITHOUT_MULTI);
    }
    discard(call.context.session, call.context.server);
    reply_ok(call.out)
}

pub(crate) fn exec(call: &mut Call<'_, '_, '_>, _: ArgList<'_>) -> Reply {
    let context = &mut *call.context;
    let Some(transaction) = context.session.transaction.take() else {
        return Err(errors::EXEC_WITHOUT_MULTI);
    };
    if transaction.is_aborted {
        context.session.unwatch(context.server);
        return Err(errors::EXEC_ABORTED);
    }
    let server = context.server;
    if transaction.writes {
        let bytes = transaction.commands.iter().map(|queued| bytes_of(&queued.args.argv())).sum();
        if let Err(error) = server.check_writable(bytes) {
            context.session.unwatch(server);
            return Err(error);
        }
    }
    context.batch.saw_data = true;
    let mut txn = server.store.lock_all(context.session.db, context.batch.now_ms);
    // The watch ends now, but the store can remove it only when nothing is locked.
    let watch = context.session.watch.take();
    if watch.as_ref().is_some_and(Watch::is_dirty) {
        call.out.null_array();
    } else {
        call.out.array(transaction.commands.len());
        for queued in &transaction.commands {
            let spec = &context.commands[queued.command];
            context.run_queued(spec, &queued.args.argv(), &mut txn, call.out);
        }
    }
    drop(txn);
    if let Some(watch) = watch {
        watch.end(server);
    }
    DONE
}

pub(crate) fn watch(call: &mut Call<'_, '_, '_>, argv: ArgList<'_>) -> Reply {
    let session = &mut *call.context.session;
    if session.transaction.is_some() {
        return Err(errors::WATCH_IN_MULTI);
    }
    let keys = Args::of_command(argv).rest();
    let watched = session.watch.as_ref().map_or(0, |watch| watch.keys.len());
    if watched + keys.len() > WATCHED_KEYS_MAX {
        return Err(errors::TOO_MANY_WATCHED_KEYS);
    }
    let watch = session.watch.get_or_insert_default();
    for key in keys {
        if call.txn.watch(key, &watch.flag) {
            watch.add(session.db, key);
        }
    }
    reply_ok(call.out)
}

pub(crate) fn unwatch(call: &mut Call<'_, '_, '_>, _: ArgList<'_>) -> Reply {
    call.context.session.unwatch(call.context.server);
    reply_ok(call.out)
}
