//! What a command is: the facts about it ([`CommandSpec`]), what it is given when it runs ([`Call`], [`CommandContext`]),
//! and what comes of it ([`Outcome`]). Which commands there are is said in `table`, what each does in `exec` and `admin`.
//!
//! ```text
//! data only:    fn hget(txn: &mut Txn, out: &mut Writer, argv: ArgList) -> Reply
//! all the rest: fn ping(call: &mut Call, argv: ArgList) -> Reply
//! ```
//!
//! A command writes its reply and returns, or returns an error and what it wrote is undone. It may also say that
//! it would have to wait: then nothing it wrote counts, and it is run again when there is something to read.

mod call;
mod context;
mod keys;
mod long_reply;
mod spec;

pub(crate) use call::{Blocked, Call, DONE, Later, Outcome, Reply, Work};
pub(crate) use context::{Batch, CommandContext, bytes_of};
pub(crate) use keys::{KeyError, Keys, keys, only_stream};
pub(crate) use long_reply::{ENCODER, LongReply, Missing};
pub(crate) use spec::{
    Categories, CommandSpec, Flags, Group, KeySpec, KeysBegin, KeysFind, Reach, Run, command, counted_keys,
    key, key_range, streams,
};
