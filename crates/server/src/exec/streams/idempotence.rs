//! Commands about the producer history of XADD IDMP: XCFGSET XIDMPRECORD.

use millstream_engine::Refusal;
use millstream_protocol::commands::{ArgList, Xcfgset, Xidmprecord};
use millstream_protocol::resp::Writer;
use millstream_store::Txn;
use millstream_store::verbs::{ConfigureIdempotence, IdempotenceChange, RecordIdempotence, Verb};

use crate::command::{Reply, reply_ok};

pub(crate) fn xcfgset(txn: &mut Txn<'_>, out: &mut Writer, argv: ArgList<'_>) -> Reply {
    let cmd = Xcfgset::parse(argv)?;
    txn.stream(cmd.key)?.ok_or(Refusal::NoSuchKey)?;
    let asked = cmd.request()?;
    let change = IdempotenceChange { duration_s: asked.idmp_duration_s, max_size: asked.idmp_max_size };
    ConfigureIdempotence { key: cmd.key, change }.run(txn)?;
    reply_ok(out)
}

pub(crate) fn xidmprecord(txn: &mut Txn<'_>, out: &mut Writer, argv: ArgList<'_>) -> Reply {
    let cmd = Xidmprecord::parse(argv)?;
    RecordIdempotence { key: cmd.key, producer: cmd.producer, iid: cmd.iid, id: cmd.id }.run(txn)?;
    reply_ok(out)
}
