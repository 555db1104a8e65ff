//! XGROUP: groups and consumers come and go.

use millstream_engine::Refusal;
use millstream_protocol::commands::{Xadopt, Xgroup, XgroupCreate, XgroupSetId};
use millstream_protocol::errors::{self, CommandError};
use millstream_protocol::resp::Writer;
use millstream_store::{Reader, Txn};

pub(crate) fn xgroup(txn: &mut Txn<'_>, out: &mut Writer, cmd: &Xgroup<'_>) -> Result<(), CommandError> {
    match cmd {
        Xgroup::Create(create) => {
            let XgroupCreate { key, group, mkstream, entries_read, .. } = *create;
            if txn.stream(key)?.is_none() && !mkstream {
                return Err(Refusal::GroupNeedsKey.into());
            }
            txn.xgroup_create(key, group, create.group_start()?, mkstream, entries_read)?;
            out.ok();
        }
        Xgroup::SetId(set_id) => {
            let XgroupSetId { key, group, entries_read, .. } = *set_id;
            require_group(txn, key, group)?;
            txn.xgroup_set_id(key, group, set_id.group_start()?, entries_read)?;
            out.ok();
        }
        Xgroup::Destroy { key, group } => out.int(txn.xgroup_destroy(key, group)?.into()),
        Xgroup::CreateConsumer { key, group, consumer } => {
            require_group(txn, key, group)?;
            out.int(txn.xgroup_create_consumer(Reader { key, group, consumer })?.into());
        }
        Xgroup::DelConsumer { key, group, consumer } => {
            require_group(txn, key, group)?;
            out.uint(txn.xgroup_delete_consumer(Reader { key, group, consumer })?);
        }
    }
    Ok(())
}

pub(crate) fn xadopt(txn: &mut Txn<'_>, out: &mut Writer, cmd: &Xadopt<'_>) -> Result<(), CommandError> {
    txn.group(cmd.key, cmd.group)?.ok_or_else(|| errors::no_key_or_group(cmd.key, cmd.group))?;
    let from = Reader { key: cmd.key, group: cmd.group, consumer: cmd.from };
    out.uint(txn.xadopt(from, cmd.to)?);
    Ok(())
}

/// The key must be a stream and have the group, in this order.
fn require_group(txn: &Txn<'_>, key: &[u8], group: &[u8]) -> Result<(), CommandError> {
    let stream = txn.stream(key)?.ok_or(Refusal::GroupNeedsKey)?;
    stream.group(group).map(|_| ()).ok_or_else(|| errors::no_group_for_key(group, key))
}
