//! XEXTEND and XNACK: a consumer extends its leases on pending entries, or releases pending entries.

use millstream_engine::stream::NackOptions;
use millstream_protocol::commands::{ArgList, NackRequest, Xextend, Xnack};
use millstream_protocol::errors;
use millstream_protocol::resp::Writer;
use millstream_store::Txn;
use millstream_store::verbs::{ConsumerPath, Extend, Nack, Verb};

use crate::command::{DONE, Reply};

pub(crate) fn xnack(txn: &mut Txn<'_>, out: &mut Writer, argv: ArgList<'_>) -> Reply {
    let cmd = Xnack::parse(argv)?;
    let (key, group) = (cmd.key, cmd.group);
    let parsed_first = if cmd.has_delay() { Some(cmd.request()?) } else { None };
    txn.group(key, group)?.ok_or_else(|| errors::no_key_or_group(key, group))?;
    let request = parsed_first.map_or_else(|| cmd.request(), Ok)?;
    let NackRequest { mode, retrycount: deliveries, force, delay_ms, .. } = request;
    let options = NackOptions { mode, deliveries, force, delay_ms };
    out.uint(Nack { key, group, ids: &request.ids[..], options }.run(txn)?);
    DONE
}

pub(crate) fn xextend(txn: &mut Txn<'_>, out: &mut Writer, argv: ArgList<'_>) -> Reply {
    let cmd = Xextend::parse(argv)?;
    txn.group(cmd.key, cmd.group)?.ok_or_else(|| errors::no_key_or_group(cmd.key, cmd.group))?;
    let consumer = ConsumerPath { key: cmd.key, group: cmd.group, consumer: cmd.consumer };
    let extended = Extend { consumer, ids: cmd.parse_ids()? }.run(txn)?;
    out.array(extended.len());
    extended.iter().for_each(|is_extended| out.int(i64::from(*is_extended)));
    DONE
}
