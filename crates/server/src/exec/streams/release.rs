//! Commands by which a consumer keeps what it has, or gives it back: XEXTEND XNACK.

use millstream_engine::stream::NackOptions;
use millstream_protocol::commands::{Xextend, Xnack};
use millstream_protocol::errors::{self, CommandError};
use millstream_protocol::resp::Writer;
use millstream_store::Txn;
use millstream_store::verbs::{Extend, Nack, Reader, Verb};

pub(crate) fn xnack(txn: &mut Txn<'_>, out: &mut Writer, cmd: &Xnack<'_>) -> Result<(), CommandError> {
    let (key, group) = (cmd.key, cmd.group);
    txn.group(key, group)?.ok_or_else(|| errors::no_key_or_group(key, group))?;
    let request = cmd.request()?;
    let options = NackOptions { mode: request.mode, deliveries: request.retrycount, force: request.force };
    out.uint(Nack { key, group, ids: &request.ids[..], options }.run(txn)?);
    Ok(())
}

pub(crate) fn xextend(txn: &mut Txn<'_>, out: &mut Writer, cmd: &Xextend<'_>) -> Result<(), CommandError> {
    txn.group(cmd.key, cmd.group)?.ok_or_else(|| errors::no_key_or_group(cmd.key, cmd.group))?;
    let reader = Reader { key: cmd.key, group: cmd.group, consumer: cmd.consumer };
    let extended = Extend { reader, ids: cmd.parse_ids()? }.run(txn)?;
    out.array(extended.len());
    extended.iter().for_each(|still_its| out.int(i64::from(*still_its)));
    Ok(())
}
