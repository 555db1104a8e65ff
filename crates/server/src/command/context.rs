//! Where commands run: the server, the thread, the connection and its batch; and what is counted of each command.

use std::sync::Arc;
use std::time::Duration;

use millstream_protocol::commands::ArgList;
use millstream_protocol::errors::{self, CommandError};
use millstream_protocol::resp::Writer;
use millstream_store::{Txn, monotonic_ns};

use super::{Call, CommandSpec, Flags, LongReply, Outcome, Reply, Run};
use crate::session::Session;
use crate::settings::Id;
use crate::slowlog::{self, SlowEntry};
use crate::state::{NANOS_PER_MILLI, Server};
use crate::stats::ThreadStats;

const NANOS_PER_MICRO: u64 = 1_000;
/// Number of brief commands in a row that may run before the clock is read again: reading it takes longer than some of
/// them…
const UNTIMED_MAX: u32 = 16;
/// … unless the slow log asks about less than this, in microseconds.
const UNTIMED_MICROS: i64 = 1_000;

/// What the commands of one batch have in common: above all, one moment.
pub(crate) struct Batch {
    /// The moment, in Unix milliseconds.
    pub(crate) now_ms: u64,
    /// The same, in milliseconds of uptime.
    pub(crate) uptime_ms: u64,
    /// When the clock was last read, which is when the commands before had ended and the next began, in nanoseconds of uptime.
    /// If the next needs another lock, it writes the record of those before.
    pub(crate) last_ns: u64,
    /// The untimed command that ran since the last clock read, and its count.
    untimed: Option<(&'static CommandSpec, u32)>,
    /// When what is locked now was locked, in nanoseconds of uptime.
    pub(crate) locked_ns: u64,
    /// Whether a command looked at data: its reply must not be sent before what it saw is safe.
    pub(crate) saw_data: bool,
}

impl Batch {
    pub(crate) fn begin(server: &Server) -> Batch {
        let monotonic_ns = monotonic_ns();
        let uptime_ns = server.uptime_at(monotonic_ns);
        Batch {
            now_ms: server.store.at_ms(monotonic_ns),
            uptime_ms: uptime_ns / NANOS_PER_MILLI,
            last_ns: uptime_ns,
            untimed: None,
            locked_ns: uptime_ns,
            saw_data: false,
        }
    }

    /// Reads the clock: the nanoseconds since that was last done, or since the batch began.
    fn lap_ns(&mut self, server: &Server) -> u64 {
        self.untimed = None;
        let before = std::mem::replace(&mut self.last_ns, server.uptime_ns());
        self.last_ns.saturating_sub(before)
    }

    /// Counts the time of what has run since the clock was last read, before something else runs or the batch ends.
    pub(crate) fn end_lap(&mut self, server: &Server, stats: &ThreadStats) {
        if let Some((spec, _)) = self.untimed {
            let took_ns = self.lap_ns(server);
            stats.commands[spec.index()].nanos.add(took_ns);
        }
    }
}

/// About what a command takes in the log.
pub(crate) fn bytes_of(argv: &[&[u8]]) -> u64 {
    argv.iter().map(|arg| arg.len() as u64).sum()
}

/// Where commands run: the server, the thread that counts, the connection and its batch.
pub(crate) struct CommandContext<'a> {
    pub(crate) server: &'a Arc<Server>,
    pub(crate) stats: &'a ThreadStats,
    pub(crate) session: &'a mut Session,
    pub(crate) batch: &'a mut Batch,
    /// Every command there is, by its index.
    pub(crate) commands: &'static [CommandSpec],
    /// Whether the request at hand has few arguments and none is long.
    pub(crate) is_short: bool,
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

    /// Runs a queued command within the transaction that holds everything. What would wait has waited in vain.
    pub(crate) fn run_queued(
        &mut self,
        spec: &'static CommandSpec,
        argv: ArgList<'_>,
        txn: &mut Txn<'_>,
        out: &mut Writer,
    ) {
        let mark = out.len();
        txn.select(self.session.db);
        let result = self.call(spec, argv, txn, out);
        let failed = result.is_err();
        match result {
            Ok(Outcome::Done | Outcome::Brief) => {}
            Ok(Outcome::Long(missing)) => LongReply::new(out, missing).write_all(out),
            Ok(Outcome::Block(_)) => {
                out.truncate(mark);
                out.null_array();
            }
            Ok(Outcome::Later(later)) => match later.instead {
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

    #[cold]
    pub(crate) fn write_error(&self, error: &CommandError, out: &mut Writer) {
        self.server.stats.note_error(error.code());
        out.error(error.as_bytes());
    }

    /// Counts the time of the commands before, unless they were this one.
    #[inline]
    pub(crate) fn end_lap_of_others(&mut self, spec: &CommandSpec) {
        if self.batch.untimed.is_some_and(|(before, _)| before.index() != spec.index()) {
            self.batch.end_lap(self.server, self.stats);
        }
    }

    /// Counts a brief command, but not its time yet. False: the clock must be read.
    #[inline]
    pub(crate) fn leave_untimed(&mut self, spec: &'static CommandSpec) -> bool {
        let before = self.batch.untimed.map_or(0, |(_, count)| count);
        // A negative number of microseconds is never.
        let slow_from = self.server.settings.number(Id::SlowlogLogSlowerThan);
        if before == UNTIMED_MAX || (0..UNTIMED_MICROS).contains(&slow_from) {
            return false;
        }
        self.batch.untimed = Some((spec, before + 1));
        self.stats.commands[spec.index()].calls.add(1);
        true
    }

    /// Counts a command and its time.
    pub(crate) fn count(&mut self, spec: &'static CommandSpec, argv: &[&[u8]], failed: bool) {
        let took_ns = self.batch.lap_ns(self.server);
        let counters = &self.stats.commands[spec.index()];
        counters.calls.add(1);
        counters.nanos.add(took_ns);
        if failed {
            counters.failed.add(1);
        }
        // A negative number of microseconds is never.
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

/// Passwords are not for the slow log.
fn holds_secrets(spec: &CommandSpec, argv: &[&[u8]]) -> bool {
    let names_password = || argv.iter().any(|arg| arg.eq_ignore_ascii_case(b"requirepass"));
    match spec.name {
        "auth" | "hello" => true,
        "config|set" => names_password(),
        _ => false,
    }
}
