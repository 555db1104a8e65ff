//! What a command is given when it runs, and what it returns.

use std::sync::Arc;

use millstream_protocol::errors::CommandError;
use millstream_protocol::resp::Writer;
use millstream_store::{Interests, Txn};

use super::{CommandContext, UnwrittenEntries};
use crate::state::Server;

/// The environment of a command that uses more than data.
pub(crate) struct Call<'a, 'd, 't> {
    /// The server, the thread and the connection.
    pub(crate) context: &'a mut CommandContext<'d>,
    /// The transaction, with the keys that the command needs locked.
    pub(crate) txn: &'a mut Txn<'t>,
    /// The output buffer for the reply.
    pub(crate) out: &'a mut Writer,
}

/// What a command returns.
pub(crate) type Reply = Result<Outcome, CommandError>;

/// The result of most commands: the reply is written.
pub(crate) const DONE: Reply = Ok(Outcome::Done);

/// How a command that did not fail ends.
pub(crate) enum Outcome {
    /// The reply is written.
    Done,
    /// The reply is written, and the command took little time. If its arguments and its reply are short too, it
    /// need not be timed.
    Brief,
    /// The reply is written except for these entries, which are many.
    Long(UnwrittenEntries),
    /// There is no data to return yet: the client is blocked.
    Block(BlockOn),
    /// The reply takes long to produce: a separate thread does the work, and the client is blocked meanwhile.
    SlowWork(SlowWork),
}

/// What a command blocks on.
pub(crate) struct BlockOn {
    /// Keys of the selected database, all locked by the command, and what the command needs of each.
    pub(crate) interests: Interests,
    /// Milliseconds until the client stops waiting; 0: no limit.
    pub(crate) timeout_ms: u64,
    /// Replacements for the command's last arguments when it runs again. So `$` keeps the meaning it had when the
    /// client was blocked.
    pub(crate) last_args: Vec<Box<[u8]>>,
}

/// Does slow work on a separate thread and writes the reply.
pub(crate) type WorkFn = Box<dyn FnOnce(&Arc<Server>, &mut Writer) -> Result<(), CommandError> + Send>;

/// Slow work that produces a command's reply. It starts after the command's locks are freed.
pub(crate) struct SlowWork {
    /// Does the work and writes the reply.
    pub(crate) work: WorkFn,
    /// Milliseconds until the client stops waiting; 0: no limit. The work is finished in any case.
    pub(crate) timeout_ms: u64,
    /// The reply after the timeout and inside a transaction. `None`: the command is an error inside a transaction.
    pub(crate) fallback_reply: Option<Vec<u8>>,
}
