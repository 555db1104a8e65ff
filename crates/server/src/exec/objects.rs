//! Commands about how values are stored: OBJECT and MEMORY USAGE.

use millstream_engine::value::Layout;
use millstream_protocol::args::Args;
use millstream_protocol::commands::ArgList;
use millstream_protocol::errors;
use millstream_protocol::resp::Writer;
use millstream_store::Txn;

use crate::command::{DONE, Reply};

pub(crate) fn encoding(txn: &mut Txn<'_>, out: &mut Writer, argv: ArgList<'_>) -> Reply {
    let [key] = Args::of_subcommand(argv).exactly()?;
    match txn.layout(key) {
        Some(layout) => out.bulk(encoding_name(layout)),
        None => out.null_bulk(),
    }
    DONE
}

pub(crate) fn freq(txn: &mut Txn<'_>, out: &mut Writer, argv: ArgList<'_>) -> Reply {
    let [key] = Args::of_subcommand(argv).exactly()?;
    if txn.exists(key) {
        return Err(errors::FREQ_NOT_TRACKED);
    }
    out.null_bulk();
    DONE
}

pub(crate) fn idletime(txn: &mut Txn<'_>, out: &mut Writer, argv: ArgList<'_>) -> Reply {
    let [key] = Args::of_subcommand(argv).exactly()?;
    number(out, txn.idle_s(key));
    DONE
}

/// The count is always 1: values are not shared.
pub(crate) fn refcount(txn: &mut Txn<'_>, out: &mut Writer, argv: ArgList<'_>) -> Reply {
    let [key] = Args::of_subcommand(argv).exactly()?;
    number(out, txn.exists(key).then_some(1));
    DONE
}

/// SAMPLES is checked and has no effect: memory is counted, not sampled.
pub(crate) fn memory_usage(txn: &mut Txn<'_>, out: &mut Writer, argv: ArgList<'_>) -> Reply {
    let mut args = Args::of_subcommand(argv);
    let key = args.next()?;
    while args.keyword_before("SAMPLES", 1) {
        if args.next_i64()? < 0 {
            return Err(errors::SYNTAX);
        }
    }
    args.finish()?;
    number(out, txn.memory_bytes(key).map(|bytes| bytes as u64));
    DONE
}

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
