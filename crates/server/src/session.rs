//! What a connection remembers from one command to the next.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use millstream_store::WatchFlag;

use crate::args::OwnedArgs;
use crate::registry::{Client, flags};
use crate::settings::Id;
use crate::state::Server;

/// A connection's state between commands.
pub(crate) struct Session {
    /// What others see of it.
    pub(crate) client: Arc<Client>,
    /// The selected database.
    pub(crate) db: u32,
    /// Whether it speaks RESP3.
    pub(crate) resp3: bool,
    /// Whether it gave the password, or none was asked for when it came.
    pub(crate) authenticated: bool,
    /// CLIENT REPLY.
    pub(crate) reply: ReplyMode,
    /// Since MULTI.
    pub(crate) transaction: Option<Transaction>,
    /// Since WATCH.
    pub(crate) watch: Option<Watch>,
    /// Close the connection when what is written is sent.
    pub(crate) close: bool,
}

/// Whether a client wants replies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReplyMode {
    /// Yes.
    On,
    /// No, until further notice.
    Off,
    /// Not to the command that says so.
    SkipThis,
    /// Not to the next one.
    SkipNext,
}

/// Commands queued since MULTI.
#[derive(Default)]
pub(crate) struct Transaction {
    pub(crate) commands: Vec<Queued>,
    /// A command was refused while queueing: EXEC will run nothing.
    pub(crate) refused: bool,
    /// Whether any of them may write.
    pub(crate) writes: bool,
    pub(crate) memory_bytes: usize,
}

/// A command that waits for EXEC.
pub(crate) struct Queued {
    /// Its index in the table.
    pub(crate) command: usize,
    pub(crate) args: OwnedArgs,
}

/// Keys watched since WATCH.
#[derive(Default)]
pub(crate) struct Watch {
    /// Raised when one of them is touched.
    pub(crate) flag: WatchFlag,
    pub(crate) keys: Vec<(u32, Box<[u8]>)>,
}

impl Session {
    pub(crate) fn new(client: Arc<Client>, server: &Server) -> Session {
        Session {
            client,
            db: 0,
            resp3: false,
            authenticated: server.settings.is_empty(Id::RequirePass),
            reply: ReplyMode::On,
            transaction: None,
            watch: None,
            close: false,
        }
    }

    /// Queues a command for EXEC.
    pub(crate) fn queue(&mut self, command: usize, argv: &[&[u8]], writes: bool) {
        let transaction = self.transaction.get_or_insert_default();
        let args = OwnedArgs::new(argv.iter().copied());
        transaction.memory_bytes += args.memory_bytes();
        transaction.writes |= writes;
        transaction.commands.push(Queued { command, args });
    }

    /// Whether the command that has just run is to be answered.
    pub(crate) fn take_reply(&mut self) -> bool {
        match self.reply {
            ReplyMode::On => true,
            ReplyMode::Off => false,
            ReplyMode::SkipThis => {
                self.reply = ReplyMode::SkipNext;
                false
            }
            ReplyMode::SkipNext => {
                self.reply = ReplyMode::On;
                false
            }
        }
    }

    /// A command was refused: a transaction that is being queued will not run.
    pub(crate) fn refuse_transaction(&mut self) {
        if let Some(transaction) = &mut self.transaction {
            transaction.refused = true;
        }
    }

    /// Forgets all watched keys. Must not be called while any key is locked.
    pub(crate) fn unwatch(&mut self, server: &Server) {
        if let Some(watch) = self.watch.take() {
            watch.end(server);
        }
    }

    /// Shows others how things stand.
    pub(crate) fn publish(&self) {
        let client = &*self.client;
        let queued = self.transaction.as_ref();
        client.db.store(self.db, Ordering::Relaxed);
        client.resp.store(if self.resp3 { 3 } else { 2 }, Ordering::Relaxed);
        client.queued.store(queued.map_or(-1, |queued| queued.commands.len() as i64), Ordering::Relaxed);
        client.queued_bytes.store(queued.map_or(0, |queued| queued.memory_bytes), Ordering::Relaxed);
        client.watched.store(self.watch.as_ref().map_or(0, |watch| watch.keys.len()), Ordering::Relaxed);
        let dirty = self.watch.as_ref().is_some_and(Watch::is_broken);
        if dirty != client.has(flags::DIRTY_WATCH) {
            client.set(flags::DIRTY_WATCH, dirty);
        }
    }
}

impl Watch {
    /// Whether a watched key was touched.
    pub(crate) fn is_broken(&self) -> bool {
        self.flag.load(Ordering::Relaxed)
    }

    /// Tells the store. Must not be called while any key is locked.
    pub(crate) fn end(self, server: &Server) {
        server.store.unwatch(self.keys.iter().map(|(db, key)| (*db, &key[..])), &self.flag);
    }
}
