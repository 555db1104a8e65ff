//! What a command is given when it runs, and what it may answer.

use std::sync::Arc;

use millstream_protocol::errors::CommandError;
use millstream_protocol::resp::Writer;
use millstream_store::{Interests, Txn};

use super::{CommandContext, Missing};
use crate::state::Server;

/// A command's surroundings, for those that are about more than data.
pub(crate) struct Call<'a, 'd, 't> {
    /// The server and the connection.
    pub(crate) context: &'a mut CommandContext<'d>,
    /// What is locked.
    pub(crate) txn: &'a mut Txn<'t>,
    /// Where the reply goes.
    pub(crate) out: &'a mut Writer,
}

/// What a command answers.
pub(crate) type Reply = Result<Outcome, CommandError>;

/// The answer of most commands: the reply is written.
pub(crate) const DONE: Reply = Ok(Outcome::Done);

/// The executor's decision about the reply of its command.
pub(crate) enum Outcome {
    /// The reply is written.
    Done,
    /// The reply is written, and with few arguments and a short reply that took so little time that it need not be
    /// measured.
    Brief,
    /// The reply is written but for these entries, which are many.
    Long(Missing),
    /// There is nothing yet: the client waits.
    Block(Blocked),
    /// The reply takes a while to make: the client waits, and nobody else.
    Later(Later),
}

/// What a command waits for, as its executor says it.
pub(crate) struct Blocked {
    /// Keys of the selected database, all of them locked by the command, and what is waited for under each.
    pub(crate) interests: Interests,
    /// Milliseconds until it gives up; 0 is never.
    pub(crate) timeout_ms: u64,
    /// These take the place of the command's last arguments when it runs again: `$` is what it was when
    /// the wait began.
    pub(crate) last_args: Vec<Box<[u8]>>,
}

/// Does what was asked and writes the reply, on a thread beside.
pub(crate) type Work = Box<dyn FnOnce(&Arc<Server>, &mut Writer) -> Result<(), CommandError> + Send>;

/// Work that a command's reply waits for, as its executor says it. It is begun when nothing is locked.
pub(crate) struct Later {
    /// Writes the reply.
    pub(crate) work: Work,
    /// Milliseconds until the client waits no longer; 0 is never. The work is done all the same.
    pub(crate) timeout_ms: u64,
    /// The reply to who does not wait: because time ran out, or in a transaction. `None`: not in a transaction.
    pub(crate) instead: Option<Vec<u8>>,
}
