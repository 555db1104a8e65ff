//! The types of a command: its properties ([`CommandSpec`]), what it is given when it runs ([`Call`],
//! [`CommandContext`]) and its result ([`Outcome`]). The module `table` lists the commands; `exec` and `admin`
//! implement them.
//!
//! ```text
//! uses data only:    fn hget(txn: &mut Txn, out: &mut Writer, argv: ArgList) -> Reply
//! all others:        fn auth(call: &mut Call, argv: ArgList) -> Reply
//! ```
//!
//! A command writes its reply and returns. If it returns an error, the caller removes that reply. If it returns
//! [`Outcome::Block`], the client is blocked, and the command runs again when one of its keys is ready.

mod call;
mod context;
mod keys;
mod long_reply;
mod permission;
mod spec;

pub(crate) use call::{BlockOn, Call, DONE, Outcome, Reply, SlowWork, WorkFn, reply_ok};
pub(crate) use context::{Batch, CommandContext, change_bytes};
pub(crate) use keys::{KeyError, Keys, keys, only_stream};
pub(crate) use long_reply::{ENCODER, LongReply, UnwrittenEntries};
pub(crate) use permission::{check_permission, check_request, denied, note_denial, required_keys};
pub(crate) use spec::{
    Categories, CommandSpec, Flags, Group, KeySpec, KeysBegin, KeysFind, LockScope, Run, command,
    counted_keys, dead_letters_key, key, key_range, streams,
};
