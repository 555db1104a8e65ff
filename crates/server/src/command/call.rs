//! The arguments of the function that runs a command, and its result.

use std::sync::Arc;

use millstream_protocol::errors::CommandError;
use millstream_protocol::resp::Writer;
use millstream_store::{Interests, Txn};

use super::{CommandContext, UnwrittenEntries};
use crate::state::Server;

/// The context of a command that needs the server, the thread or the connection, not only data.
pub(crate) struct Call<'a, 'd, 't> {
    pub(crate) context: &'a mut CommandContext<'d>,
    /// The transaction, with the keys that the command needs locked.
    pub(crate) txn: &'a mut Txn<'t>,
    pub(crate) out: &'a mut Writer,
}

pub(crate) type Reply = Result<Outcome, CommandError>;

pub(crate) const DONE: Reply = Ok(Outcome::Done);

pub(crate) fn reply_ok(out: &mut Writer) -> Reply {
    out.ok();
    DONE
}

pub(crate) enum Outcome {
    Done,
    /// The reply is written, and the command took little time. If its arguments and its reply are short too, the
    /// server need not read the clock for it.
    Brief,
    /// The reply is written except for these entries: they are too many to write at once.
    Long(UnwrittenEntries),
    Block(BlockOn),
    /// The reply takes long to produce. A separate thread does the work, and the client blocks until it is done.
    SlowWork(SlowWork),
}

pub(crate) struct BlockOn {
    /// Keys of the selected database, all locked by the command, and what the command waits for under each.
    pub(crate) interests: Interests,
    /// Milliseconds until the client stops waiting; 0: no limit.
    pub(crate) timeout_ms: u64,
    /// Replacements for the command's last arguments when it runs again. They make `$` keep the meaning it had when
    /// the client was blocked.
    pub(crate) last_args: Vec<Box<[u8]>>,
}

pub(crate) type WorkFn = Box<dyn FnOnce(&Arc<Server>, &mut Writer) -> Result<(), CommandError> + Send>;

/// Slow work that produces a command's reply. It starts after the command's locks are released.
pub(crate) struct SlowWork {
    pub(crate) work: WorkFn,
    /// Milliseconds until the client stops waiting; 0: no limit. The work continues after a timeout.
    pub(crate) timeout_ms: u64,
    /// The reply after a timeout, or if the command runs inside a transaction. `None`: a null after a timeout, an error
    /// inside a transaction.
    pub(crate) fallback_reply: Option<Vec<u8>>,
}
