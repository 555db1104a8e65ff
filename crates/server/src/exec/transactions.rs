//! MULTI EXEC DISCARD WATCH UNWATCH.
//!
//! EXEC locks everything and then checks whether a watched key was changed. The queued commands run under the same
//! lock. So no other client can change a watched key after the check, or see the effects of only some commands.
//! Blocked readers that the commands make ready are served before the lock is released.

use std::collections::{BTreeMap, BTreeSet};

use millstream_engine::StreamId;
use millstream_protocol::args::Args;
use millstream_protocol::commands::{ArgList, Xack, Xackdel, Xnack};
use millstream_protocol::errors;
use millstream_protocol::ids::Ids;
use millstream_store::Txn;

use crate::command::{Call, CommandSpec, DONE, Flags, Reply, change_bytes, reply_ok};
use crate::session::{Queued, Session, Transaction, Watch};
use crate::state::Server;
use crate::stats::Event;

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
        let bytes_of = |queued: &Queued| change_bytes(&context.commands[queued.command], &queued.args.argv());
        let bytes = transaction.commands.iter().map(bytes_of).fold(0, u64::saturating_add);
        if let Err(error) = server.check_writable(bytes) {
            context.session.unwatch(server);
            return Err(error);
        }
    }
    context.batch.saw_data = true;
    let mut txn = server.store.lock_all(context.session.db, context.batch.now_ms);
    if server.is_above_maxmemory() && !may_exceed_maxmemory(&transaction, context.commands, server, &txn) {
        drop(txn);
        context.session.unwatch(server);
        server.stats.note(Event::OutOfMemory);
        return Err(errors::exec_aborted_because(&errors::OUT_OF_MEMORY));
    }
    // The watch ends now, but the store can remove it only when nothing is locked.
    let watch = context.session.watch.take();
    if watch.as_ref().is_some_and(Watch::is_dirty) {
        call.out.null_array();
    } else {
        call.out.array(transaction.commands.len());
        context.in_exec = true;
        for queued in &transaction.commands {
            let spec = &context.commands[queued.command];
            context.run_queued(spec, &queued.args.argv(), &mut txn, call.out);
        }
        context.in_exec = false;
    }
    drop(txn);
    if let Some(watch) = watch {
        watch.end(server);
    }
    DONE
}

/// Whether the command is queued above `maxmemory` although it adds data, because EXEC decides about it.
pub(crate) fn is_decided_by_exec(spec: &CommandSpec) -> bool {
    matches!(spec.name, "xadd" | "set" | "hset")
}

/// Returns whether a transaction may run while more memory is in use than `maxmemory`.
///
/// It may if it adds nothing. It also may if it acknowledges at least as many pending entries as it adds entries and
/// strings, releases at least as many as it sets fields of hashes, and adds nothing else. So a worker can acknowledge a
/// message together with its dead letter, or with the key that marks it as processed, and can release a message
/// together with the record of its failure. The reserve limits how much memory this can take.
#[cold]
fn may_exceed_maxmemory(
    transaction: &Transaction,
    commands: &[CommandSpec],
    server: &Server,
    txn: &Txn<'_>,
) -> bool {
    let (mut added, mut fields) = (0, 0);
    let (mut acknowledged, mut released) = (PendingIds::new(), PendingIds::new());
    for queued in &transaction.commands {
        let (spec, argv) = (&commands[queued.command], queued.args.argv());
        match spec.name {
            "xack" | "xackdel" => note_pending(spec, &argv, txn, &mut acknowledged),
            "xnack" => note_pending(spec, &argv, txn, &mut released),
            "hset" => fields += argv.len().saturating_sub(2) / 2,
            _ if is_decided_by_exec(spec) => added += 1,
            _ if spec.flags.contains(Flags::DENYOOM) => return false,
            _ => {}
        }
    }
    let count = |ids: &PendingIds| ids.values().map(BTreeSet::len).sum::<usize>();
    let is_settled = added <= count(&acknowledged) && fields <= count(&released);
    (added == 0 && fields == 0) || (is_settled && server.fits_into_reserve(transaction.memory_bytes as u64))
}

/// Pending entries that a transaction acknowledges or releases, for each key and group.
type PendingIds = BTreeMap<(Vec<u8>, Vec<u8>), BTreeSet<StreamId>>;

/// Adds the pending entries that XACK, XACKDEL or XNACK names. An entry counts once, and an invalid command names none.
fn note_pending(spec: &CommandSpec, argv: ArgList<'_>, txn: &Txn<'_>, noted: &mut PendingIds) {
    let parsed = match spec.name {
        "xnack" => Xnack::parse(argv).and_then(|cmd| Ok((cmd.key, cmd.group, cmd.request()?.ids.to_vec()))),
        "xack" => Xack::parse(argv).and_then(|cmd| {
            let mut ids = Ids::new();
            cmd.read_ids(&mut ids).map(|()| (cmd.key, cmd.group, ids.to_vec()))
        }),
        _ => Xackdel::parse(argv)
            .and_then(|cmd| Ok((cmd.key, cmd.group, cmd.request()?.parse_ids()?.to_vec()))),
    };
    let Ok((key, group, ids)) = parsed else { return };
    let Ok(Some(found)) = txn.group(key, group) else { return };
    let pending = ids.into_iter().filter(|id| found.pending().get(*id).is_some());
    noted.entry((key.to_vec(), group.to_vec())).or_default().extend(pending);
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
