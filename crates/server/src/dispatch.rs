//! The steps that every request goes through, from its arguments to its reply.
//!
//! ```text
//! find in the table -> check arity -> check that DEBUG is allowed -> check password and permissions -> check maxmemory
//!    -> check CLIENT PAUSE -> queue, if in MULTI -> check free disk space, if it writes
//!    -> lock its keys, unless the previous command locked them -> parse and run -> serve blocked readers -> count
//! ```
//!
//! The order is the same as in Redis, because clients can see it: it decides which error a request gets.

use millstream_protocol::errors::{self, CommandError};
use millstream_protocol::resp::Writer;
use millstream_store::Txn;

use crate::blocked::BlockedClient;
use crate::command::{
    self, CommandContext, CommandSpec, Flags, LockScope, LongReply, Outcome, change_bytes, only_stream,
};
use crate::exec::transactions;
use crate::settings::Id;
use crate::state::Server;
use crate::table;

/// Maximum nanoseconds for which consecutive commands keep a lock. Other threads may wait for it.
const LOCK_KEPT_NS_MAX: u64 = 100_000;
/// A command with a larger reply is always timed.
const BRIEF_REPLY_BYTES_MAX: usize = 4 << 10;

/// What the connection does after a request, before it looks at the next one.
pub(crate) enum AfterRequest {
    Continue,
    Block(Box<BlockedClient>),
    SendLongReply(Box<LongReply>),
    /// Because of CLIENT PAUSE, the request has not run. It runs when the server's uptime is `until_ns`.
    Pause {
        until_ns: u64,
    },
}

/// What happens to a request, decided before any key is locked.
enum Admission {
    Run(&'static CommandSpec),
    Queue(&'static CommandSpec),
    Pause { until_ns: u64 },
}

struct Rejection {
    spec: Option<&'static CommandSpec>,
    error: CommandError,
}

impl<'d> CommandContext<'d> {
    /// Runs one request of a client and writes the reply. The transaction stays open in `open`, with its locks, for
    /// the next request.
    pub(crate) fn run(
        &mut self,
        argv: &[&[u8]],
        out: &mut Writer,
        open: &mut Option<Txn<'d>>,
    ) -> AfterRequest {
        let mark = out.len();
        let after = match self.admit(argv) {
            Err(rejection) => {
                *open = None;
                self.reject(rejection, out);
                AfterRequest::Continue
            }
            Ok(Admission::Pause { until_ns }) => return AfterRequest::Pause { until_ns },
            Ok(Admission::Queue(spec)) => {
                self.session.queue(spec.index(), argv, spec.flags.contains(Flags::WRITE));
                out.simple("QUEUED");
                AfterRequest::Continue
            }
            Ok(Admission::Run(spec)) => self.run_now(spec, argv, out, open),
        };
        if matches!(after, AfterRequest::Continue | AfterRequest::SendLongReply(_))
            && !self.session.take_reply()
        {
            out.truncate(mark);
            return AfterRequest::Continue;
        }
        after
    }

    fn admit(&self, argv: &[&[u8]]) -> Result<Admission, Rejection> {
        let spec = table::find(argv).map_err(|error| Rejection { spec: None, error })?;
        let reject = |error| Rejection { spec: Some(spec), error };
        if !spec.arity_ok(argv.len()) {
            return Err(reject(errors::wrong_arity(spec.name)));
        }
        if spec.flags.contains(Flags::PROTECTED) && !self.may_debug() {
            return Err(reject(errors::DEBUG_NOT_ALLOWED));
        }
        if !self.session.user.is_unrestricted() {
            self.check_access(spec, argv).map_err(reject)?;
        }
        let in_transaction = self.session.transaction.is_some();
        if (in_transaction || spec.flags.intersects(Flags::DENYOOM.with(Flags::PENDS)))
            && self.server.is_above_maxmemory()
            && self.is_refused_above_maxmemory(spec, argv)
        {
            return Err(reject(errors::OUT_OF_MEMORY));
        }
        if self.server.pause.may_be_active()
            && let Some(until_ns) = self.paused_until_ns(spec)
        {
            return Ok(Admission::Pause { until_ns });
        }
        if !in_transaction || transactions::runs_inside_multi(spec) {
            return Ok(Admission::Run(spec));
        }
        if spec.flags.contains(Flags::NO_MULTI) {
            return Err(reject(errors::NOT_IN_TRANSACTION));
        }
        Ok(Admission::Queue(spec))
    }

    /// Returns whether the setting `enable-debug-command` allows this client to run DEBUG, the only protected command.
    #[cold]
    fn may_debug(&self) -> bool {
        match &*self.server.settings.text(Id::EnableDebugCommand) {
            "yes" => true,
            "local" => self.session.client.is_local(),
            _ => false,
        }
    }

    /// Returns whether the command is refused because more memory is in use than `maxmemory`.
    ///
    /// Commands that make entries pending run until the consumer reserve is full. In a transaction, EXEC decides about
    /// XADD and SET, because the same transaction may acknowledge entries. Above the limit, only a small transaction
    /// takes more commands.
    #[cold]
    fn is_refused_above_maxmemory(&self, spec: &CommandSpec, argv: &[&[u8]]) -> bool {
        let grows = spec.flags.contains(Flags::DENYOOM);
        if spec.flags.contains(Flags::PENDS) && !self.server.fits_into_consumer_reserve(0) {
            // A consumer can still read its own pending entries, to acknowledge them.
            return spec.name != "xreadgroup" || argv.contains(&&b">"[..]);
        }
        match &self.session.transaction {
            None => grows,
            Some(_) if transactions::runs_inside_multi(spec) => false,
            Some(transaction) => {
                (grows && !transactions::is_decided_by_exec(spec)) || !transaction.is_small()
            }
        }
    }

    /// Checks that the client has authenticated and that its user may run the request. Called unless the user may do
    /// everything.
    #[inline(never)]
    fn check_access(&self, spec: &CommandSpec, argv: &[&[u8]]) -> Result<(), CommandError> {
        let session = &*self.session;
        if spec.flags.contains(Flags::NO_AUTH) {
            return Ok(());
        }
        if !session.authenticated {
            return Err(errors::NO_AUTH);
        }
        let user = &session.user;
        let context = session.denial_context();
        command::check_permission(self.server, &session.client, user, (spec, argv), context)
            .map_err(|denial| command::denied(denial, user, spec))
    }

    /// If CLIENT PAUSE delays the command, returns the uptime at which the pause ends. CLIENT UNPAUSE is never delayed,
    /// so that an operator can end a pause.
    fn paused_until_ns(&self, spec: &CommandSpec) -> Option<u64> {
        if spec.name == "client|unpause" {
            return None;
        }
        let queued_writes = self.session.transaction.as_ref().is_some_and(|queued| queued.writes);
        let writes = spec.flags.contains(Flags::WRITE) || (spec.name == "exec" && queued_writes);
        self.server.pause.paused_until_ns(writes, self.server.uptime_ns())
    }

    /// Replies with an error. In a transaction, the EXEC that follows will fail. If EXEC itself is rejected, the
    /// transaction ends.
    #[cold]
    fn reject(&mut self, rejection: Rejection, out: &mut Writer) {
        let Rejection { spec, error } = rejection;
        if let Some(spec) = spec {
            self.stats.commands[spec.index()].rejected.add(1);
        }
        self.session.abort_transaction();
        let error = if spec.is_some_and(|spec| spec.name == "exec") {
            transactions::discard(self.session, self.server);
            errors::exec_aborted_because(&error)
        } else {
            error
        };
        self.write_error(&error, out);
    }

    /// Locks the keys that the command needs, runs it and counts it.
    fn run_now(
        &mut self,
        spec: &'static CommandSpec,
        argv: &[&[u8]],
        out: &mut Writer,
        open: &mut Option<Txn<'d>>,
    ) -> AfterRequest {
        let mark = out.len();
        self.session.client.set_last_command(spec.index());
        self.account_untimed_others(spec);
        let mut was_locked = false;
        let result = self.check_writable(spec, argv).and_then(|()| {
            was_locked = self.lock(spec, argv, open);
            let Some(txn) = open else {
                unreachable!("`lock` opens a transaction, even for a command without keys")
            };
            self.call(spec, argv, txn, out)
        });
        let failed = result.is_err();
        let can_be_untimed = was_locked && matches!(result, Ok(Outcome::Brief));
        let after = match result {
            Ok(Outcome::Done | Outcome::Brief) => {
                let keeps_lock = open.as_mut().is_some_and(Txn::end);
                let is_brief = can_be_untimed
                    && keeps_lock
                    && self.is_short
                    && out.len() - mark <= BRIEF_REPLY_BYTES_MAX;
                if is_brief && self.count_untimed(spec) {
                    return AfterRequest::Continue;
                }
                if !keeps_lock {
                    *open = None;
                }
                AfterRequest::Continue
            }
            Ok(Outcome::Long(unwritten)) => {
                *open = None;
                AfterRequest::SendLongReply(Box::new(LongReply::new(out, unwritten)))
            }
            Ok(Outcome::Block(on)) => {
                let txn = open.take().expect("a command that blocks has locked its keys");
                let blocked = BlockedClient::begin(self.server, self.session, txn, (spec, argv), on);
                AfterRequest::Block(Box::new(blocked))
            }
            Ok(Outcome::SlowWork(work)) => {
                *open = None;
                AfterRequest::Block(Box::new(BlockedClient::begin_work(self.server, self.session, work)))
            }
            Err(error) => {
                out.truncate(mark);
                self.write_error(&error, out);
                AfterRequest::Continue
            }
        };
        self.count(spec, argv, failed);
        if failed || self.batch.last_ns.saturating_sub(self.batch.locked_ns) > LOCK_KEPT_NS_MAX {
            *open = None;
        }
        after
    }

    /// Returns an error if the command writes and the log cannot take its change, for example because the disk is full
    /// or the change is too large.
    #[inline(always)]
    fn check_writable(&self, spec: &CommandSpec, argv: &[&[u8]]) -> Result<(), CommandError> {
        if !spec.flags.contains(Flags::WRITE) {
            return Ok(());
        }
        if self.is_short {
            return self.server.check_writable(0);
        }
        self.server.check_writable(change_bytes(spec, argv))
    }

    /// Ensures that `open` is a transaction with the locks that the command needs. Returns true if it already had them.
    fn lock(&mut self, spec: &CommandSpec, argv: &[&[u8]], open: &mut Option<Txn<'d>>) -> bool {
        let server: &'d Server = self.server;
        let (store, db, now_ms) = (&server.store, self.session.db, self.batch.now_ms);
        let scope = match spec.lock_scope {
            LockScope::EverythingIf(needed) if needed(argv) => LockScope::Everything,
            LockScope::EverythingIf(_) => LockScope::Nothing,
            scope => scope,
        };
        // Most commands have one key: they need no list of keys.
        let only_key = match scope {
            LockScope::Nothing => return self.lock_nothing(open),
            LockScope::Key(at) => argv.get(at).copied(),
            LockScope::Streams => only_stream(argv),
            _ => None,
        };
        self.batch.saw_data = true;
        if only_key.is_some_and(|key| open.as_mut().is_some_and(|txn| txn.begin_next(db, key))) {
            return true;
        }
        // Unlock first: a thread that locks shards while it holds others can cause a deadlock.
        *open = None;
        self.batch.locked_ns = self.batch.last_ns;
        *open = Some(match (scope, only_key) {
            (_, Some(key)) => store.lock_key(db, key, now_ms),
            (LockScope::Everything, _) => store.lock_all(db, now_ms),
            _ => {
                // If the keys cannot be found, the request has no keys or its parser will reject it.
                let keys = command::keys(spec, argv).unwrap_or_default();
                store.lock(db, keys.iter().map(|(key, _)| *key), now_ms)
            }
        });
        false
    }

    fn lock_nothing(&mut self, open: &mut Option<Txn<'d>>) -> bool {
        let server: &'d Server = self.server;
        if open.as_mut().is_some_and(|txn| txn.begin_next_without_keys(self.session.db)) {
            return true;
        }
        *open = None;
        self.batch.locked_ns = self.batch.last_ns;
        *open = Some(server.store.lock_nothing(self.session.db, self.batch.now_ms));
        false
    }
}
