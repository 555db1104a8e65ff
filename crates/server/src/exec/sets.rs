//! Commands on sets.

use millstream_engine::value::Set;
use millstream_protocol::args::Args;
use millstream_protocol::commands::ArgList;
use millstream_protocol::resp::Writer;
use millstream_store::Txn;

use crate::command::{DONE, Reply};

pub(crate) fn sadd(txn: &mut Txn<'_>, out: &mut Writer, argv: ArgList<'_>) -> Reply {
    let mut args = Args::of_command(argv);
    let key = args.next()?;
    out.uint(txn.set_add(key, args.rest())?);
    DONE
}

pub(crate) fn srem(txn: &mut Txn<'_>, out: &mut Writer, argv: ArgList<'_>) -> Reply {
    let mut args = Args::of_command(argv);
    let key = args.next()?;
    out.uint(txn.set_remove(key, args.rest())?);
    DONE
}

pub(crate) fn smembers(txn: &mut Txn<'_>, out: &mut Writer, argv: ArgList<'_>) -> Reply {
    let [key] = Args::of_command(argv).exactly()?;
    let set = txn.members(key)?;
    out.set(set.map_or(0, Set::len));
    if let Some(set) = set {
        set.visit(|member| out.bulk(member));
    }
    DONE
}

pub(crate) fn sismember(txn: &mut Txn<'_>, out: &mut Writer, argv: ArgList<'_>) -> Reply {
    let [key, member] = Args::of_command(argv).exactly()?;
    out.int(txn.set_contains(key, member)?.into());
    DONE
}

pub(crate) fn scard(txn: &mut Txn<'_>, out: &mut Writer, argv: ArgList<'_>) -> Reply {
    let [key] = Args::of_command(argv).exactly()?;
    out.uint(txn.set_len(key)?);
    DONE
}
