//! Commands by which a consumer keeps what it has, or gives it back: XEXTEND XNACK.

use millstream_engine::stream::NackOptions;
use millstream_protocol::commands::{Xextend, Xnack};
use millstream_protocol::errors::{self, CommandError};
use millstream_protocol::resp::Writer;
use millstream_store::{Reader, Txn};

pub(crate) fn xnack(txn: &mut Txn<'_>, out: &mut Writer, cmd: &Xnack<'_>) -> Result<(), CommandError> {
    txn.group(cmd.key, cmd.group)?.ok_or_else(|| errors::no_key_or_group(cmd.key, cmd.group))?;
    let request = cmd.request()?;
    let options = NackOptions { mode: request.mode, deliveries: request.retrycount, force: request.force };
    out.uint(txn.xnack(cmd.key, cmd.group, &request.ids, options)?);
    Ok(())
}

pub(crate) fn xextend(txn: &mut Txn<'_>, out: &mut Writer, cmd: &Xextend<'_>) -> Result<(), CommandError> {
    txn.group(cmd.key, cmd.group)?.ok_or_else(|| errors::no_key_or_group(cmd.key, cmd.group))?;
    let reader = Reader { key: cmd.key, group: cmd.group, consumer: cmd.consumer };
    let extended = txn.xextend(reader, &cmd.parse_ids()?)?;
    out.array(extended.len());
    extended.iter().for_each(|still_its| out.int(i64::from(*still_its)));
    Ok(())
}
