//! XGROUP and XADOPT: create, change and delete groups and consumers.

use millstream_engine::Refusal;
use millstream_protocol::args::Args;
use millstream_protocol::commands::{ArgList, Xadopt, XgroupCreate, XgroupSetId};
use millstream_protocol::errors::{self, CommandError};
use millstream_protocol::resp::Writer;
use millstream_store::Txn;
use millstream_store::verbs::{
    Adopt, ConsumerCreate, ConsumerDelete, ConsumerDeleteRest, ConsumerPath, GroupCreate, GroupDestroy,
    GroupSetId, Verb,
};

use super::no_key_or_group;
use crate::command::{Call, DONE, Outcome, Reply, SlowWork, WorkFn, reply_ok};
use crate::state::Server;

pub(crate) fn xgroup_create(txn: &mut Txn<'_>, out: &mut Writer, argv: ArgList<'_>) -> Reply {
    let create = XgroupCreate::parse(argv)?;
    let XgroupCreate { key, group, mkstream: make_stream, entries_read, .. } = create;
    if txn.stream(key)?.is_none() && !make_stream {
        return Err(Refusal::GroupNeedsKey.into());
    }
    let start = create.group_start()?;
    GroupCreate { key, group, start, make_stream, entries_read }.run(txn)?;
    reply_ok(out)
}

pub(crate) fn xgroup_setid(txn: &mut Txn<'_>, out: &mut Writer, argv: ArgList<'_>) -> Reply {
    let set_id = XgroupSetId::parse(argv)?;
    let XgroupSetId { key, group, entries_read, .. } = set_id;
    require_group(txn, key, group)?;
    GroupSetId { key, group, start: set_id.group_start()?, entries_read }.run(txn)?;
    reply_ok(out)
}

pub(crate) fn xgroup_destroy(txn: &mut Txn<'_>, out: &mut Writer, argv: ArgList<'_>) -> Reply {
    let [key, group] = Args::of_subcommand(argv).exactly()?;
    out.int(GroupDestroy { key, group }.run(txn)?.into());
    DONE
}

pub(crate) fn xgroup_createconsumer(txn: &mut Txn<'_>, out: &mut Writer, argv: ArgList<'_>) -> Reply {
    let [key, group, consumer] = Args::of_subcommand(argv).exactly()?;
    require_group(txn, key, group)?;
    out.int(ConsumerCreate(ConsumerPath { key, group, consumer }).run(txn)?.into());
    DONE
}

pub(crate) fn xgroup_delconsumer(call: &mut Call<'_, '_, '_>, argv: ArgList<'_>) -> Reply {
    let [key, group, consumer] = Args::of_subcommand(argv).exactly()?;
    require_group(call.txn, key, group)?;
    let mut delete = ConsumerDelete(ConsumerPath { key, group, consumer });
    let steps = delete.needs_steps(call.txn)?.filter(|_| !call.context.in_exec);
    let Some(rest) = steps else {
        call.out.uint(delete.run(call.txn)?);
        return DONE;
    };
    let path = ConsumerPath { key: key.to_vec(), group: group.to_vec(), consumer: consumer.to_vec() };
    let db = call.txn.db();
    let work: WorkFn = Box::new(move |server, out| delete_in_steps(server, out, db, path, rest));
    Ok(Outcome::SlowWork(SlowWork { work, timeout_ms: 0, fallback_reply: None }))
}

/// Removes a consumer with many pending entries. Other clients run between two steps. If the work ends early, because
/// the disk is full for example, the consumer stays with the rest of its entries.
fn delete_in_steps(
    server: &Server,
    out: &mut Writer,
    db: u32,
    path: ConsumerPath<Vec<u8>>,
    rest: ConsumerDeleteRest,
) -> Result<(), CommandError> {
    let mut delete = ConsumerDelete(path.borrowed());
    let (mut removed, mut next) = (0, Some(rest));
    while let Some(rest) = next {
        server.check_writable(0)?;
        let mut txn = server.store.lock_key(db, &path.key, server.store.now_ms());
        require_group(&txn, &path.key, &path.group)?;
        let (count, then) = delete.step(&mut txn, rest)?;
        (removed, next) = (removed + count, then);
        txn.finish_fairly();
    }
    out.uint(removed);
    Ok(())
}

pub(crate) fn xadopt(txn: &mut Txn<'_>, out: &mut Writer, argv: ArgList<'_>) -> Reply {
    let cmd = Xadopt::parse(argv)?;
    let from = ConsumerPath { key: cmd.key, group: cmd.group, consumer: cmd.from };
    let adopted = Adopt { from, to: cmd.to }.run(txn);
    out.uint(adopted.map_err(|refusal| no_key_or_group(refusal, cmd.key, cmd.group))?);
    DONE
}

/// Returns an error if the key is not a stream or has no such group. Checks in this order.
fn require_group(txn: &Txn<'_>, key: &[u8], group: &[u8]) -> Result<(), CommandError> {
    let stream = txn.stream(key)?.ok_or(Refusal::GroupNeedsKey)?;
    stream.group(group).map(|_| ()).ok_or_else(|| errors::no_group_for_key(group, key))
}
