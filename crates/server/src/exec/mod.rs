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
use millstream_protocol::commands::{KeyCommand, ObjectCommand, ServerCommand};
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

/// A command's surroundings, for those that are about more than data.
pub(crate) struct Call<'a, 'd, 't> {
    /// The server and the connection.
    pub(crate) desk: &'a mut Desk<'d>,
    /// What is locked.
    pub(crate) txn: &'a mut Txn<'t>,
    /// Where the reply goes.
    pub(crate) out: &'a mut Writer,
}

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
        // INFO and MEMORY STATS count keys; DEBUG SLEEP holds everybody up.
        Command::Server(ServerCommand::Info(_) | ServerCommand::DebugSleep(_)) => Reach::Everything,
        Command::Object(ObjectCommand::MemoryStats) => Reach::Everything,
        _ => Reach::Nothing,
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
pub(crate) fn run_data(
    command: &Command<'_>,
    txn: &mut Txn<'_>,
    out: &mut Writer,
) -> Result<Outcome, CommandError> {
    match command {
        Command::Xadd(command) => streams::xadd(txn, out, command)?,
        Command::Xtrim(command) => streams::xtrim(txn, out, command)?,
        Command::Xdel(command) => streams::xdel(txn, out, command)?,
        Command::Xlen(command) => streams::xlen(txn, out, command)?,
        Command::Xrange(command) => return streams::xrange(txn, out, command),
        Command::Xread(command) => return streams::xread(txn, out, command),
        Command::Xreadgroup(command) => return streams::xreadgroup(txn, out, command),
        Command::Xack(command) => streams::xack(txn, out, command)?,
        Command::Xpending(command) => streams::xpending(txn, out, command)?,
        Command::Xclaim(command) => streams::xclaim(txn, out, command)?,
        Command::Xautoclaim(command) => streams::xautoclaim(txn, out, command)?,
        Command::Xgroup(command) => streams::xgroup(txn, out, command)?,
        Command::Xinfo(command) => streams::xinfo(txn, out, command)?,
        Command::Xsetid(command) => streams::xsetid(txn, out, command)?,
        Command::Xdelex(command) => streams::xdelex(txn, out, command)?,
        Command::Xackdel(command) => streams::xackdel(txn, out, command)?,
        Command::Xnack(command) => streams::xnack(txn, out, command)?,
        Command::Xextend(command) => streams::xextend(txn, out, command)?,
        Command::Xadopt(command) => streams::xadopt(txn, out, command)?,
        Command::Xcfgset(command) => streams::xcfgset(txn, out, command)?,
        Command::Xidmprecord(command) => streams::xidmprecord(txn, out, command)?,
        Command::Key(command) => keys::run(txn, out, command)?,
        Command::String(command) => strings::run(txn, out, command)?,
        Command::Hash(command) => hashes::run(txn, out, command)?,
        Command::List(command) => return lists::run(txn, out, command),
        Command::Set(command) => sets::run(txn, out, command)?,
        Command::Object(command) => objects::run(txn, out, command)?,
        Command::Transaction(_)
        | Command::Connection(_)
        | Command::Client(_)
        | Command::Config(_)
        | Command::Command(_)
        | Command::Acl(_)
        | Command::Server(_)
        | Command::Scripting(_) => unreachable!("`run` keeps commands that are not about data"),
    }
    Ok(Outcome::Done)
}
