//! What each command does, one file per family. Commands over data know only the transaction and the reply.
//!
//! An executor writes its reply and returns, or returns an error and what it wrote is undone. It may also
//! say that it would have to wait: then nothing it wrote counts, and it is run again when there is something to
//! read.
//!
//! ```text
//! data:         fn xadd(txn: &mut Txn, out: &mut Writer, command: &Xadd) -> Result<(), CommandError>
//! may wait:     fn xread(txn: &mut Txn, out: &mut Writer, command: &Xread) -> Result<Outcome, CommandError>
//! all the rest: fn ping(call: &mut Call, …) -> Result<(), CommandError>
//! ```

mod connection;
mod hashes;
mod keys;
mod lists;
mod objects;
mod sets;
mod streams;
mod strings;
pub(crate) mod transactions;

use millstream_protocol::Command;
use millstream_protocol::commands::{
    ConnectionCommand, KeyCommand, ObjectCommand, ServerCommand, Xadd, Xreadgroup,
};
use millstream_protocol::errors::CommandError;
use millstream_protocol::resp::Writer;
use millstream_protocol::table::CommandSpec;
use millstream_store::Txn;

use crate::admin;
use crate::dispatch::Desk;
pub(crate) use crate::waiting::{Blocked, Later};
pub(crate) use streams::{LongReply, Missing};

/// What came of a command.
pub(crate) enum Outcome {
    /// The reply is written.
    Done,
    /// The reply is written but for these entries, which are many.
    Long(Missing),
    /// There is nothing yet: the client waits.
    Block(Blocked),
    /// The reply takes a while to make: the client waits, and nobody else.
    Later(Later),
}

impl From<()> for Outcome {
    /// Most executors know no other.
    fn from((): ()) -> Outcome {
        Outcome::Done
    }
}

/// A command's surroundings, for those that are about more than data.
pub(crate) struct Call<'a, 'd, 't> {
    /// The server and the connection.
    pub(crate) desk: &'a mut Desk<'d>,
    /// What is locked.
    pub(crate) txn: &'a mut Txn<'t>,
    /// Where the reply goes.
    pub(crate) out: &'a mut Writer,
}

/// To read no more than so many is brief.
const FEW_ENTRIES: u64 = 16;

/// What a command must have locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// The keys it names.
    Keys,
    /// Every key of every database.
    Everything,
    /// Nothing.
    Nothing,
}

/// What a command must have locked before it runs.
pub(crate) fn reach(spec: &CommandSpec, command: &Command<'_>) -> Reach {
    use KeyCommand::{DbSize, FlushAll, FlushDb, Keys, RandomKey, Scan, SwapDb};
    match command {
        _ if !spec.keys.is_empty() => Reach::Keys,
        Command::Key(Keys(_) | Scan(_) | RandomKey | DbSize | FlushDb(_) | FlushAll(_) | SwapDb(..)) => {
            Reach::Everything
        }
        Command::Server(ServerCommand::Info(sections)) if admin::counts_keys(sections) => Reach::Everything,
        // It holds everybody up.
        Command::Server(ServerCommand::DebugSleep(_)) => Reach::Everything,
        Command::Object(ObjectCommand::MemoryStats) => Reach::Everything,
        _ => Reach::Nothing,
    }
}

/// Whether a command with few arguments, none of them long, has little to do under a lock that is already held, if it has little to
/// say as well.
#[inline(always)]
pub(crate) fn is_brief(command: &Command<'_>) -> bool {
    match command {
        Command::Xack(_) | Command::Connection(ConnectionCommand::Ping(_)) => true,
        Command::Xadd(Xadd { entry, .. }) => entry.trim.is_none() && entry.idempotence.is_none(),
        // What is not new would have to be searched for.
        Command::Xreadgroup(Xreadgroup { bounds, claim_idle_ms_min: None, streams, .. }) => {
            bounds.count.is_some_and(|count| count <= FEW_ENTRIES) && matches!(streams.ids, [b">"])
        }
        _ => false,
    }
}

/// Runs any command.
pub(crate) fn run(command: &Command<'_>, call: &mut Call<'_, '_, '_>) -> Result<Outcome, CommandError> {
    match command {
        Command::Transaction(command) => transactions::run(call, command)?,
        Command::Connection(command) => connection::run(call, command)?,
        Command::Client(command) => {
            // Who asks about clients sees itself as it is now.
            call.desk.session.publish();
            admin::client(command, call)?;
        }
        Command::Config(command) => admin::config(command, call)?,
        Command::Command(command) => admin::command(command, call)?,
        Command::Acl(command) => admin::acl(command, call)?,
        Command::Server(command) => return admin::server(command, call),
        Command::Scripting(command) => admin::scripting(command, call)?,
        _ => return run_data(command, call.txn, call.out),
    }
    Ok(Outcome::Done)
}

/// Runs a command that is about data and nothing else: the only ones that may wait.
#[inline]
pub(crate) fn run_data(
    command: &Command<'_>,
    txn: &mut Txn<'_>,
    out: &mut Writer,
) -> Result<Outcome, CommandError> {
    match command {
        Command::Xadd(command) => apart(streams::xadd, txn, out, command),
        Command::Xtrim(command) => apart(streams::xtrim, txn, out, command),
        Command::Xdel(command) => apart(streams::xdel, txn, out, command),
        Command::Xlen(command) => apart(streams::xlen, txn, out, command),
        Command::Xrange(command) => apart(streams::xrange, txn, out, command),
        Command::Xread(command) => apart(streams::xread, txn, out, command),
        Command::Xreadgroup(command) => apart(streams::xreadgroup, txn, out, command),
        Command::Xack(command) => apart(streams::xack, txn, out, command),
        Command::Xpending(command) => apart(streams::xpending, txn, out, command),
        Command::Xclaim(command) => apart(streams::xclaim, txn, out, command),
        Command::Xautoclaim(command) => apart(streams::xautoclaim, txn, out, command),
        Command::Xgroup(command) => apart(streams::xgroup, txn, out, command),
        Command::Xinfo(command) => apart(streams::xinfo, txn, out, command),
        Command::Xsetid(command) => apart(streams::xsetid, txn, out, command),
        Command::Xdelex(command) => apart(streams::xdelex, txn, out, command),
        Command::Xackdel(command) => apart(streams::xackdel, txn, out, command),
        Command::Xnack(command) => apart(streams::xnack, txn, out, command),
        Command::Xextend(command) => apart(streams::xextend, txn, out, command),
        Command::Xadopt(command) => apart(streams::xadopt, txn, out, command),
        Command::Xcfgset(command) => apart(streams::xcfgset, txn, out, command),
        Command::Xidmprecord(command) => apart(streams::xidmprecord, txn, out, command),
        Command::Key(command) => apart(keys::run, txn, out, command),
        Command::String(command) => apart(strings::run, txn, out, command),
        Command::Hash(command) => apart(hashes::run, txn, out, command),
        Command::List(command) => apart(lists::run, txn, out, command),
        Command::Set(command) => apart(sets::run, txn, out, command),
        Command::Object(command) => apart(objects::run, txn, out, command),
        Command::Transaction(_)
        | Command::Connection(_)
        | Command::Client(_)
        | Command::Config(_)
        | Command::Command(_)
        | Command::Acl(_)
        | Command::Server(_)
        | Command::Scripting(_) => unreachable!("`run` keeps commands that are not about data"),
    }
}

/// Calls an executor. Not within [`run_data`], where the stack of the largest would be everybody's.
#[inline(never)]
fn apart<C, R: Into<Outcome>>(
    executor: impl FnOnce(&mut Txn<'_>, &mut Writer, &C) -> Result<R, CommandError>,
    txn: &mut Txn<'_>,
    out: &mut Writer,
    command: &C,
) -> Result<Outcome, CommandError> {
    executor(txn, out, command).map(R::into)
}
