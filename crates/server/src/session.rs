//! The state of a connection that lasts from one command to the next.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use millstream_store::WatchFlag;

use crate::acl::{DenialContext, User};
use crate::args::OwnedArgs;
use crate::registry::{Client, flags};
use crate::state::Server;

pub(crate) struct Session {
    /// The part that other threads see.
    pub(crate) client: Arc<Client>,
    pub(crate) db: u32,
    pub(crate) resp3: bool,
    /// Whether the client has authenticated, or needed no password when it connected.
    pub(crate) authenticated: bool,
    /// The user it has authenticated as. Before that, a user that may do nothing.
    pub(crate) user: Arc<User>,
    pub(crate) reply: ReplyMode,
    pub(crate) transaction: Option<Transaction>,
    pub(crate) watch: Option<Watch>,
    pub(crate) failed_logins: u32,
    pub(crate) after_reply: AfterReply,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AfterReply {
    Continue,
    /// Because a login has failed, it waits before it sends the reply, and runs no requests meanwhile.
    Delay,
    Close,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReplyMode {
    On,
    /// None, until CLIENT REPLY ON.
    Off,
    /// All except this command, which is CLIENT REPLY SKIP, and the next one.
    SkipThis,
    /// All except the next command.
    SkipNext,
}

#[derive(Default)]
pub(crate) struct Transaction {
    pub(crate) commands: Vec<Queued>,
    /// Whether a command was rejected instead of queued. Then EXEC runs none of them.
    pub(crate) is_aborted: bool,
    pub(crate) writes: bool,
    pub(crate) memory_bytes: usize,
}

/// Above `maxmemory`, a transaction that has this many bytes takes no more commands.
const SMALL_TRANSACTION_BYTES: usize = 1024 * 1024;
/// A transaction with fewer commands is small however long they are. A dead letter and the acknowledgement of its
/// message are two commands.
const SMALL_TRANSACTION_COMMANDS: usize = 2;

impl Transaction {
    /// Whether another command can be queued above `maxmemory`.
    pub(crate) fn is_small(&self) -> bool {
        self.memory_bytes < SMALL_TRANSACTION_BYTES || self.commands.len() < SMALL_TRANSACTION_COMMANDS
    }
}

pub(crate) struct Queued {
    pub(crate) command: usize,
    pub(crate) args: OwnedArgs,
}

#[derive(Default)]
pub(crate) struct Watch {
    /// Set by the store when one of the keys is changed.
    pub(crate) flag: WatchFlag,
    pub(crate) keys: Vec<(u32, Box<[u8]>)>,
    pub(crate) memory_bytes: usize,
}

/// A connection is closed after this many failed logins.
const FAILED_LOGINS_MAX: u32 = 5;
/// Approximate memory of a watched key, in bytes, without the text of the key, which is stored twice.
const WATCHED_KEY_BYTES: usize = 100;

impl Session {
    pub(crate) fn new(client: Arc<Client>, server: &Server) -> Session {
        let mut session = Session {
            client,
            db: 0,
            resp3: false,
            authenticated: false,
            user: Arc::clone(server.users.unauthenticated_user()),
            reply: ReplyMode::On,
            transaction: None,
            watch: None,
            failed_logins: 0,
            after_reply: AfterReply::Continue,
        };
        session.log_out(server);
        session
    }

    /// Logs the client in as this user. Returns false if the user was removed in the meantime.
    pub(crate) fn log_in(&mut self, user: Arc<User>) -> bool {
        if !self.client.set_user(Some(Arc::clone(&user))) {
            return false;
        }
        (self.user, self.authenticated) = (user, true);
        self.client.set_logged_in();
        true
    }

    /// Logs the client out, as if it had just connected. If `default` needs no password, the client is `default` again.
    pub(crate) fn log_out(&mut self, server: &Server) {
        if server.requires_login() {
            self.client.set_user(None);
            self.client.set_logged_out(server.uptime_ms());
            (self.user, self.authenticated) = (Arc::clone(server.users.unauthenticated_user()), false);
        } else {
            self.log_in(Arc::clone(server.users.default_user()));
        }
    }

    /// Returns where a command that is denied now was sent.
    pub(crate) fn denial_context(&self) -> DenialContext {
        if self.transaction.is_some() { DenialContext::Transaction } else { DenialContext::TopLevel }
    }

    pub(crate) fn queue(&mut self, command: usize, argv: &[&[u8]], writes: bool) {
        let transaction = self.transaction.get_or_insert_default();
        let args = OwnedArgs::new(argv.iter().copied());
        transaction.memory_bytes += args.memory_bytes();
        transaction.writes |= writes;
        transaction.commands.push(Queued { command, args });
    }

    pub(crate) fn user_name(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(self.user.name())
    }

    pub(crate) fn has_too_many_failed_logins(&self) -> bool {
        self.failed_logins >= FAILED_LOGINS_MAX
    }

    /// Whether the command that has just run gets a reply. Called once per command.
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

    pub(crate) fn abort_transaction(&mut self) {
        if let Some(transaction) = &mut self.transaction {
            transaction.is_aborted = true;
        }
    }

    /// Stops watching all keys. Must not be called while any key is locked.
    pub(crate) fn unwatch(&mut self, server: &Server) {
        if let Some(watch) = self.watch.take() {
            watch.end(server);
        }
    }

    /// Returns the memory of the queued commands and the watched keys, in bytes. The client controls this size.
    pub(crate) fn kept_bytes(&self) -> usize {
        let queued = self.transaction.as_ref().map_or(0, |transaction| transaction.memory_bytes);
        queued + self.watch.as_ref().map_or(0, |watch| watch.memory_bytes)
    }

    /// Publishes the state that other clients can see, for example with CLIENT LIST.
    pub(crate) fn publish(&self) {
        let client = &*self.client;
        let queued = self.transaction.as_ref();
        client.db.store(self.db, Ordering::Relaxed);
        client.resp.store(if self.resp3 { 3 } else { 2 }, Ordering::Relaxed);
        client.queued.store(queued.map_or(-1, |queued| queued.commands.len() as i64), Ordering::Relaxed);
        client.queued_bytes.store(queued.map_or(0, |queued| queued.memory_bytes), Ordering::Relaxed);
        let watch = self.watch.as_ref();
        client.watched.store(watch.map_or(0, |watch| watch.keys.len()), Ordering::Relaxed);
        client.watched_bytes.store(watch.map_or(0, |watch| watch.memory_bytes), Ordering::Relaxed);
        let dirty = watch.is_some_and(Watch::is_dirty);
        if dirty != client.has(flags::DIRTY_WATCH) {
            client.set(flags::DIRTY_WATCH, dirty);
        }
    }
}

impl Watch {
    pub(crate) fn add(&mut self, db: u32, key: &[u8]) {
        self.memory_bytes += WATCHED_KEY_BYTES + 2 * key.len();
        self.keys.push((db, key.into()));
    }

    /// Whether a watched key was changed: then EXEC runs no commands.
    pub(crate) fn is_dirty(&self) -> bool {
        self.flag.load(Ordering::Relaxed)
    }

    /// Removes the watch from the store. Must not be called while any key is locked.
    pub(crate) fn end(self, server: &Server) {
        server.store.unwatch(self.keys.iter().map(|(db, key)| (*db, &key[..])), &self.flag);
    }
}
