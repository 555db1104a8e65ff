//! MULTI EXEC DISCARD WATCH UNWATCH.
//!
//! EXEC locks everything, then looks whether a watched key was touched: nobody can touch one in between. The
//! queued commands run under that one lock, so nobody sees half of them, and readers they make ready are
//! served when it is released.

use millstream_protocol::args::Args;
use millstream_protocol::commands::ArgList;
use millstream_protocol::errors;

use crate::command::{Call, CommandSpec, DONE, Reply, bytes_of};
use crate::session::{Session, Transaction, Watch};
use crate::state::Server;

/// Commands that are not queued between MULTI and EXEC.
pub(crate) fn runs_inside_multi(spec: &CommandSpec) -> bool {
    matches!(spec.name, "exec" | "discard" | "multi" | "watch" | "quit" | "reset")
}

/// Forgets what was queued and watched.
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
    call.out.ok();
    DONE
}

pub(crate) fn run_discard(call: &mut Call<'_, '_, '_>, _: ArgList<'_>) -> Reply {
    if call.context.session.transaction.is_none() {
        return Err(errors::DISCARD_WITHOUT_MULTI);
    }
    discard(call.context.session, call.context.server);
    call.out.ok();
    DONE
}

pub(crate) fn exec(call: &mut Call<'_, '_, '_>, _: ArgList<'_>) -> Reply {
    let context = &mut *call.context;
    let Some(transaction) = context.session.transaction.take() else {
        return Err(errors::EXEC_WITHOUT_MULTI);
    };
    if transaction.refused {
        context.session.unwatch(context.server);
        return Err(errors::EXEC_ABORTED);
    }
    let server = context.server;
    if transaction.writes {
        let bytes = transaction.commands.iter().map(|queued| bytes_of(&queued.args.argv())).sum();
        if let Err(refused) = server.check_writable(bytes) {
            context.session.unwatch(server);
            return Err(refused);
        }
    }
    context.batch.saw_data = true;
    let mut txn = server.store.lock_all(context.session.db, context.batch.now_ms);
    // Nothing is watched any more, whatever the queued commands do; the store hears of it when it is unlocked.
    let watch = context.session.watch.take();
    if watch.as_ref().is_some_and(Watch::is_broken) {
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
    let watch = session.watch.get_or_insert_default();
    for key in Args::of_command(argv).rest() {
        if watch.keys.iter().any(|(db, known)| *db == session.db && **known == **key) {
            continue;
        }
        call.txn.watch(key, &watch.flag);
        watch.keys.push((session.db, Box::from(*key)));
    }
    call.out.ok();
    DONE
}

pub(crate) fn unwatch(call: &mut Call<'_, '_, '_>, _: ArgList<'_>) -> Reply {
    call.context.session.unwatch(call.context.server);
    call.out.ok();
    DONE
}
