//! XGROUP and XADOPT: create, change and delete groups and consumers.

use millstream_engine::Refusal;
use millstream_protocol::args::Args;
use millstream_protocol::commands::{ArgList, Xadopt, XgroupCreate, XgroupSetId};
use millstream_protocol::errors::{self, CommandError};
use millstream_protocol::resp::Writer;
use millstream_store::Txn;
use millstream_store::verbs::{
    Adopt, ConsumerCreate, ConsumerDelete, ConsumerPath, GroupCreate, GroupDestroy, GroupSetId, Verb,
};

use super::no_key_or_group;
use crate::command::{DONE, Reply, reply_ok};

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

pub(crate) fn xgroup_delconsumer(txn: &mut Txn<'_>, out: &mut Writer, argv: ArgList<'_>) -> Reply {
    let [key, group, consumer] = Args::of_subcommand(argv).exactly()?;
    require_group(txn, key, group)?;
    out.uint(ConsumerDelete(ConsumerPath { key, group, consumer }).run(txn)?);
    DONE
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
