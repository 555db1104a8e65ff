//! XGROUP: groups and consumers come and go.

use millstream_engine::Refusal;
use millstream_protocol::commands::{Xadopt, Xgroup, XgroupCreate, XgroupSetId};
use millstream_protocol::errors::{self, CommandError};
use millstream_protocol::resp::Writer;
use millstream_store::Txn;
use millstream_store::verbs::{
    Adopt, ConsumerCreate, ConsumerDelete, GroupCreate, GroupDestroy, GroupSetId, Reader, Verb,
};

use super::no_key_or_group;

pub(crate) fn xgroup(txn: &mut Txn<'_>, out: &mut Writer, cmd: &Xgroup<'_>) -> Result<(), CommandError> {
    match cmd {
        Xgroup::Create(create) => {
            let XgroupCreate { key, group, mkstream: make_stream, entries_read, .. } = *create;
            if txn.stream(key)?.is_none() && !make_stream {
                return Err(Refusal::GroupNeedsKey.into());
            }
            let start = create.group_start()?;
            GroupCreate { key, group, start, make_stream, entries_read }.run(txn)?;
            out.ok();
        }
        Xgroup::SetId(set_id) => {
            let XgroupSetId { key, group, entries_read, .. } = *set_id;
            require_group(txn, key, group)?;
            GroupSetId { key, group, start: set_id.group_start()?, entries_read }.run(txn)?;
            out.ok();
        }
        Xgroup::Destroy { key, group } => out.int(GroupDestroy { key: *key, group: *group }.run(txn)?.into()),
        Xgroup::CreateConsumer { key, group, consumer } => {
            require_group(txn, key, group)?;
            out.int(
                ConsumerCreate(Reader { key: *key, group: *group, consumer: *consumer }).run(txn)?.into(),
            );
        }
        Xgroup::DelConsumer { key, group, consumer } => {
            require_group(txn, key, group)?;
            out.uint(ConsumerDelete(Reader { key: *key, group: *group, consumer: *consumer }).run(txn)?);
        }
    }
    Ok(())
}

pub(crate) fn xadopt(txn: &mut Txn<'_>, out: &mut Writer, cmd: &Xadopt<'_>) -> Result<(), CommandError> {
    let from = Reader { key: cmd.key, group: cmd.group, consumer: cmd.from };
    let adopted = Adopt { from, to: cmd.to }.run(txn);
    out.uint(adopted.map_err(|refusal| no_key_or_group(refusal, cmd.key, cmd.group))?);
    Ok(())
}

/// The key must be a stream and have the group, in this order.
fn require_group(txn: &Txn<'_>, key: &[u8], group: &[u8]) -> Result<(), CommandError> {
    let stream = txn.stream(key)?.ok_or(Refusal::GroupNeedsKey)?;
    stream.group(group).map(|_| ()).ok_or_else(|| errors::no_group_for_key(group, key))
}
