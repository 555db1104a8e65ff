//! Commands about how values are kept: OBJECT and MEMORY.

use millstream_engine::value::Layout;
use millstream_protocol::commands::ObjectCommand;
use millstream_protocol::errors::{self, CommandError};
use millstream_protocol::resp::Writer;
use millstream_store::Txn;

/// MEMORY STATS counts what the transaction has locked, so that is to be everything.
pub(crate) fn run(
    txn: &mut Txn<'_>,
    out: &mut Writer,
    command: &ObjectCommand<'_>,
) -> Result<(), CommandError> {
    match *command {
        ObjectCommand::Encoding(key) => match txn.layout(key) {
            Some(layout) => out.bulk(encoding_name(layout)),
            None => out.null_bulk(),
        },
        ObjectCommand::Freq(key) if txn.exists(key) => return Err(errors::FREQ_NOT_TRACKED),
        ObjectCommand::Freq(_) => out.null_bulk(),
        ObjectCommand::IdleTime(key) => number(out, txn.idle_s(key)),
        // Values are not shared.
        ObjectCommand::RefCount(key) => number(out, txn.exists(key).then_some(1)),
        ObjectCommand::MemoryUsage(key) => number(out, txn.memory_bytes(key).map(|bytes| bytes as u64)),
        ObjectCommand::MemoryDoctor => out.verbatim("Nothing to report: memory is given back as data goes."),
        ObjectCommand::MemoryPurge => out.ok(),
        ObjectCommand::MemoryStats => memory_stats(txn, out),
    }
    Ok(())
}

fn memory_stats(txn: &Txn<'_>, out: &mut Writer) {
    let (keys, bytes) = txn.totals();
    let pairs = [
        ("keys.count", keys),
        ("keys.bytes-per-key", bytes.checked_div(keys).unwrap_or(0)),
        ("dataset.bytes", bytes),
    ];
    out.map(pairs.len());
    for (name, number) in pairs {
        out.bulk(name);
        out.uint(number);
    }
}

/// A number, unless there is no such key.
fn number(out: &mut Writer, number: Option<u64>) {
    match number {
        Some(number) => out.uint(number),
        None => out.null_bulk(),
    }
}

fn encoding_name(layout: Layout) -> &'static str {
    match layout {
        Layout::Integer => "int",
        Layout::ShortString => "embstr",
        Layout::LongString => "raw",
        Layout::Packed => "listpack",
        Layout::SortedIntegers => "intset",
        Layout::Table => "hashtable",
        Layout::LongList => "quicklist",
        Layout::Blocks => "stream",
    }
}
