//! The context in which commands run: server, thread, connection and batch. Also counts and times each command.

use std::sync::Arc;
use std::time::Duration;

use millstream_protocol::commands::ArgList;
use millstream_protocol::errors::{self, CommandError};
use millstream_protocol::resp::Writer;
use millstream_store::{Txn, monotonic_ns};

use super::{Call, CommandSpec, Flags, LongReply, Outcome, Reply, Run, check_permission, note_denial};
use crate::acl::{Denial, DenialContext, DenialReason};
use crate::event_log::EventKind;
use crate::session::{AfterReply, Session};
use crate::settings::Id;
use crate::slowlog::{self, SlowEntry};
use crate::state::{NANOS_PER_MILLI, Server, not_writable};
use crate::stats::ThreadStats;

const NANOS_PER_MICRO: u64 = 1_000;
/// Maximum number of brief commands in a row that are timed together: reading the clock takes longer than some of them.
const UNTIMED_MAX: u32 = 16;
/// If `slowlog-log-slower-than` is below this, in microseconds, each command is timed.
const UNTIMED_SLOWLOG_MICROS_MIN: i64 = 1_000;

/// A batch that has run for longer than this is interrupted after the current command.
const BATCH_NS_MAX: u64 = NANOS_PER_MILLI;

/// State that the commands of one batch share. All of them see the same time.
pub(crate) struct Batch {
    /// The time at which the batch began, in Unix milliseconds.
    pub(crate) now_ms: u64,
    /// The same in milliseconds of uptime.
    pub(crate) uptime_ms: u64,
    /// The same in nanoseconds of uptime.
    began_ns: u64,
    /// When the clock was last read, in nanoseconds of uptime. The next command's time is counted from here.
    ///
    /// If the next command needs other locks, its time includes writing the log record of the previous commands.
    pub(crate) last_ns: u64,
    /// The untimed command that ran since the last clock read, and its count.
    untimed: Option<(&'static CommandSpec, u32)>,
    /// When the open transaction took its locks, in nanoseconds of uptime.
    pub(crate) locked_ns: u64,
    /// Whether a command read or changed data. Then the replies must wait until that data is durable.
    pub(crate) saw_data: bool,
}

impl Batch {
    pub(crate) fn begin(server: &Server) -> Batch {
        let monotonic_ns = monotonic_ns();
        let uptime_ns = server.uptime_at(monotonic_ns);
        Batch {
            now_ms: server.store.at_ms(monotonic_ns),
            uptime_ms: uptime_ns / NANOS_PER_MILLI,
            began_ns: uptime_ns,
            last_ns: uptime_ns,
            untimed: None,
            locked_ns: uptime_ns,
            saw_data: false,
        }
    }

    /// Reads the clock. Returns the nanoseconds since the last read, or since the batch began.
    fn read_clock(&mut self, server: &Server) -> u64 {
        self.untimed = None;
        let before = std::mem::replace(&mut self.last_ns, server.uptime_ns());
        self.last_ns.saturating_sub(before)
    }

    /// Returns whether the batch had run for too long when the clock was last read. Its connection then lets the thread
    /// serve others.
    pub(crate) fn is_long(&self) -> bool {
        self.last_ns.saturating_sub(self.began_ns) > BATCH_NS_MAX
    }

    /// Adds the time since the last clock read to the untimed command. Called before another command runs and when
    /// the batch ends.
    pub(crate) fn account_untimed(&mut self, server: &Server, stats: &ThreadStats) {
        if let Some((spec, _)) = self.untimed {
            let took_ns = self.read_clock(server);
            stats.commands[spec.index()].nanos.add(took_ns);
        }
    }
}

/// Returns about how many bytes a command adds to the log: those of all arguments. The changes of XREADGROUP to a
/// stream, at most three, contain the names of group and consumer.
pub(crate) fn change_bytes(spec: &CommandSpec, argv: &[&[u8]]) -> u64 {
    bytes_of(argv).saturating_add(names_bytes(spec, argv).saturating_mul(argv.len() as u64 * 3 / 2))
}

/// Returns the bytes of the names of group and consumer of XREADGROUP, and 0 for other commands.
fn names_bytes(spec: &CommandSpec, argv: &[&[u8]]) -> u64 {
    match spec.name {
        "xreadgroup" => bytes_of(argv.get(2..4).unwrap_or_default()),
        _ => 0,
    }
}

fn bytes_of(args: &[&[u8]]) -> u64 {
    args.iter().map(|arg| arg.len() as u64).sum()
}

/// The context in which a command runs: the server, the thread's counters, the connection and its batch.
pub(crate) struct CommandContext<'a> {
    pub(crate) server: &'a Arc<Server>,
    pub(crate) stats: &'a ThreadStats,
    pub(crate) session: &'a mut Session,
    pub(crate) batch: &'a mut Batch,
    pub(crate) commands: &'static [CommandSpec],
    /// Whether the current request has few arguments, all of them short.
    pub(crate) is_short: bool,
    /// Whether EXEC runs the command. Then nothing else may run before its end.
    pub(crate) in_exec: bool,
}

impl CommandContext<'_> {
    /// Runs a command whose keys are locked.
    #[inline(always)]
    pub(crate) fn call(
        &mut self,
        spec: &CommandSpec,
        argv: ArgList<'_>,
        txn: &mut Txn<'_>,
        out: &mut Writer,
    ) -> Reply {
        match spec.run {
            Run::Data(run) => run(txn, out, argv),
            Run::Call(run) => run(&mut Call { context: self, txn, out }, argv),
        }
    }

    /// Runs a queued command inside EXEC's transaction, which has everything locked. A command that would block
    /// replies as after a timeout.
    pub(crate) fn run_queued(
        &mut self,
        spec: &'static CommandSpec,
        argv: ArgList<'_>,
        txn: &mut Txn<'_>,
        out: &mut Writer,
    ) {
        let mark = out.len();
        txn.select(self.session.db);
        let result = self
            .check_queued(spec, argv)
            .and_then(|()| check_room(spec, txn))
            .and_then(|()| self.call(spec, argv, txn, out));
        let failed = result.is_err();
        match result {
            Ok(Outcome::Done | Outcome::Brief) => {}
            Ok(Outcome::Long(unwritten)) => LongReply::new(out, unwritten).write_all(out),
            Ok(Outcome::Block(_)) => {
                out.truncate(mark);
                out.null_array();
            }
            Ok(Outcome::SlowWork(slow)) => match slow.fallback_reply {
                Some(reply) => out.raw(&reply),
                None => self.write_error(&errors::NOT_IN_TRANSACTION, out),
            },
            Err(error) => {
                out.truncate(mark);
                self.write_error(&error, out);
            }
        }
        self.count(spec, argv, failed);
    }

    /// Returns an error if the user may no longer run a command that it has queued.
    fn check_queued(&self, spec: &CommandSpec, argv: ArgList<'_>) -> Result<(), CommandError> {
        let user = &self.session.user;
        if user.is_unrestricted() {
            return Ok(());
        }
        let context = DenialContext::Transaction;
        check_permission(self.server, &self.session.client, user, (spec, argv), context).map_err(|denial| {
            match denial {
                Denial::Command => errors::NO_LONGER_PERMITTED,
                Denial::Key(_) => errors::NO_LONGER_PERMITTED_KEY,
            }
        })
    }

    /// Returns the user who owns the policies that the command sets or places; `None` for the server's own connections,
    /// which may do everything.
    pub(crate) fn policy_owner(&self) -> Option<&[u8]> {
        let user = &self.session.user;
        (!Arc::ptr_eq(user, self.server.users.internal_user())).then(|| user.name())
    }

    #[cold]
    pub(crate) fn write_error(&self, error: &CommandError, out: &mut Writer) {
        self.server.stats.note_error(error.code());
        out.error(error.as_bytes());
    }

    /// Adds an administrative command that has changed something to the audit log. `what` must contain no secrets and
    /// no data.
    pub(crate) fn audit(&self, what: &str) {
        self.audit_event(EventKind::Command, what);
    }

    fn audit_event(&self, kind: EventKind, what: &str) {
        self.server.audit(kind, &self.session.client.addr, Some(&self.session.user_name()), what);
    }

    /// Like [`audit`](Self::audit), whatever `audit-log` is.
    pub(crate) fn audit_always(&self, what: &str) {
        let (server, session) = (self.server, &*self.session);
        let (addr, user) = (&session.client.addr, session.user_name());
        server.note_event(EventKind::Command, addr, Some(&user), what);
    }

    /// Counts and logs a failed login. The reply is delayed, and after a few of them the connection is closed.
    /// `command` is AUTH or HELLO. The audit log gets no name of a user that does not exist: it can be a mistyped
    /// password.
    pub(crate) fn note_failed_login(&mut self, user: &[u8], command: &str) {
        let (server, client) = (self.server, &self.session.client);
        let about = (command.as_bytes(), user, &*command.to_ascii_lowercase());
        note_denial(server, client, DenialReason::Auth, self.session.denial_context(), about);
        let known = server.users.get(user).map(|user| String::from_utf8_lossy(user.name()).into_owned());
        server.audit(EventKind::FailedLogin, &client.addr, known.as_deref(), "");
        self.session.failed_logins += 1;
        if self.session.after_reply == AfterReply::Continue {
            self.session.after_reply = AfterReply::Delay;
        }
    }

    /// Logs that the client has logged in as the session's user.
    pub(crate) fn note_login(&self) {
        self.audit_event(EventKind::LoggedIn, "");
    }

    /// Accounts for the time of the untimed commands that ran before this one, unless they are calls of the same
    /// command.
    #[inline]
    pub(crate) fn account_untimed_others(&mut self, spec: &CommandSpec) {
        if self.batch.untimed.is_some_and(|(before, _)| before.index() != spec.index()) {
            self.batch.account_untimed(self.server, self.stats);
        }
    }

    /// Counts a brief command without reading the clock. Returns false if it must be timed.
    #[inline]
    pub(crate) fn count_untimed(&mut self, spec: &'static CommandSpec) -> bool {
        let before = self.batch.untimed.map_or(0, |(_, count)| count);
        // A negative setting turns the slow log off.
        let slow_from = self.server.settings.number(Id::SlowlogLogSlowerThan);
        if before == UNTIMED_MAX || (0..UNTIMED_SLOWLOG_MICROS_MIN).contains(&slow_from) {
            return false;
        }
        self.batch.untimed = Some((spec, before + 1));
        self.stats.commands[spec.index()].calls.add(1);
        true
    }

    /// Counts a command and its time, and adds it to the slow log if it was slow.
    pub(crate) fn count(&mut self, spec: &'static CommandSpec, argv: &[&[u8]], failed: bool) {
        let took_ns = self.batch.read_clock(self.server);
        let counters = &self.stats.commands[spec.index()];
        counters.calls.add(1);
        counters.nanos.add(took_ns);
        if failed {
            counters.failed.add(1);
        }
        // A negative setting turns the slow log off.
        let slow_from = u64::try_from(self.server.settings.number(Id::SlowlogLogSlowerThan));
        if slow_from.is_ok_and(|micros| took_ns >= micros.saturating_mul(NANOS_PER_MICRO)) {
            self.note_slow(spec, argv, Duration::from_nanos(took_ns));
        }
    }

    #[cold]
    fn note_slow(&self, spec: &CommandSpec, argv: &[&[u8]], took: Duration) {
        if spec.flags.contains(Flags::SKIP_SLOWLOG) {
            return;
        }
        let entry = SlowEntry {
            id: 0,
            at_s: self.batch.now_ms / 1000,
            micros: took.as_micros() as u64,
            args: slowlog::shorten(argv, holds_secrets(spec, argv)),
            addr: self.session.client.addr.clone(),
            name: self.session.client.labels.lock().name.clone(),
        };
        self.server.slowlog.note(entry, self.server.settings.size(Id::SlowlogMaxLen));
    }
}

/// Returns an error if a queued command writes and the transaction has changed too much already. EXEC has checked the
/// arguments of all commands, but XREADGROUP, XCLAIM and XAUTOCLAIM can log many more ids than they have arguments.
fn check_room(spec: &CommandSpec, txn: &Txn<'_>) -> Result<(), CommandError> {
    match spec.flags.contains(Flags::WRITE) {
        true => txn.check_room().map_err(|error| not_writable(&error)),
        false => Ok(()),
    }
}

/// Whether the arguments contain a password, which the slow log must not show.
fn holds_secrets(spec: &CommandSpec, argv: &[&[u8]]) -> bool {
    let names_password = || argv.iter().any(|arg| arg.eq_ignore_ascii_case(b"requirepass"));
    match spec.name {
        "auth" | "hello" | "acl|setuser" => true,
        "config|set" => names_password(),
        _ => false,
    }
}
