//! From arguments to a reply: what every command passes through, whatever it does.
//!
//! ```text
//! find in the table -> arity -> password -> pause -> queue, if in MULTI
//!    -> parse -> lock its keys, unless the command before has -> run -> serve waiting readers -> count
//! ```
//!
//! The order is Redis', and so is what a client sees of it.

use std::sync::Arc;
use std::time::Duration;

use millstream_protocol::Command;
use millstream_protocol::commands::{Xread, Xreadgroup};
use millstream_protocol::errors::{self, CommandError};
use millstream_protocol::resp::Writer;
use millstream_protocol::table::{self, CommandSpec, Flags, KeySpec, KeysBegin, KeysFind};
use millstream_store::{Txn, monotonic_ns};

use crate::exec::{self, Call, LongReply, Outcome, Reach, transactions};
use crate::server::{NANOS_PER_MILLI, Server};
use crate::session::Session;
use crate::settings::Id;
use crate::slowlog::{self, SlowEntry};
use crate::stats::ThreadStats;
use crate::waiting::Waiting;

const NANOS_PER_MICRO: u64 = 1_000;
/// A lock is kept from one command to the next, but not for longer than this: other threads may wait for it.
const LOCK_KEPT_NS: u64 = 100 * NANOS_PER_MICRO;
/// So many brief commands in a row may run before the clock is read again: reading it takes longer than some of them…
const UNREAD_MAX: u32 = 16;
/// … unless the slow log asks about less than this.
const UNREAD_MICROS: i64 = 1_000;
/// Who has more to say is not brief.
const BRIEF_REPLY_BYTES: usize = 4 << 10;

/// What the commands of one batch have in common: above all, one moment.
pub(crate) struct Batch {
    /// The moment, in Unix milliseconds.
    pub(crate) now_ms: u64,
    /// The same, in milliseconds of uptime.
    pub(crate) uptime_ms: u64,
    /// When the clock was last read, which is when the commands before had ended and the next began, in nanoseconds of uptime.
    /// If the next needs another lock, it writes the record of those before.
    last_ns: u64,
    /// What has run since then, brief and one command all of it, and how often.
    unread: Option<(&'static CommandSpec, u32)>,
    /// When what is locked now was locked.
    locked_ns: u64,
    /// Whether a command looked at data: its reply must not be sent before what it saw is safe.
    pub(crate) saw_data: bool,
}

/// What is to happen after a command.
pub(crate) enum Step {
    /// The next.
    Done,
    /// Its reply is still to come.
    Wait(Box<Waiting>),
    /// The rest of its reply is to be written in slices.
    Long(Box<LongReply>),
    /// It was not run: commands are held back until then, in milliseconds of uptime.
    Hold(u64),
}

impl Batch {
    pub(crate) fn begin(server: &Server) -> Batch {
        let monotonic_ns = monotonic_ns();
        let uptime_ns = server.uptime_at(monotonic_ns);
        Batch {
            now_ms: server.store.at_ms(monotonic_ns),
            uptime_ms: uptime_ns / NANOS_PER_MILLI,
            last_ns: uptime_ns,
            unread: None,
            locked_ns: uptime_ns,
            saw_data: false,
        }
    }

    /// Reads the clock: the nanoseconds since that was last done, or since the batch began.
    fn lap_ns(&mut self, server: &Server) -> u64 {
        self.unread = None;
        let before = std::mem::replace(&mut self.last_ns, server.uptime_ns());
        self.last_ns.saturating_sub(before)
    }

    /// Counts the time of what has run since the clock was last read, before something else runs or the batch ends.
    pub(crate) fn end_lap(&mut self, server: &Server, stats: &ThreadStats) {
        if let Some((spec, _)) = self.unread {
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
pub(crate) struct Desk<'a> {
    pub(crate) server: &'a Arc<Server>,
    pub(crate) stats: &'a ThreadStats,
    pub(crate) session: &'a mut Session,
    pub(crate) batch: &'a mut Batch,
    /// Whether the request at hand has few arguments and none is long.
    pub(crate) is_short: bool,
}

impl<'d> Desk<'d> {
    /// Runs one request of a client and writes the reply. What it had locked stays locked for the next, in `open`.
    pub(crate) fn run(&mut self, argv: &[&[u8]], out: &mut Writer, open: &mut Option<Txn<'d>>) -> Step {
        let mark = out.len();
        let step = match self.admit(argv) {
            Err(refused) => {
                *open = None;
                self.refuse(refused, argv, out);
                Step::Done
            }
            Ok(Admitted::Hold(until_ns)) => return Step::Hold(until_ns),
            Ok(Admitted::Queue(spec)) => {
                self.session.queue(spec, argv, spec.flags.contains(Flags::WRITE));
                out.simple("QUEUED");
                Step::Done
            }
            Ok(Admitted::Run(spec)) => self.run_now(spec, argv, out, open),
        };
        if matches!(step, Step::Done | Step::Long(_)) && !self.session.take_reply() {
            out.truncate(mark);
            return Step::Done;
        }
        step
    }

    /// Decides what happens with a request before anything does.
    fn admit(&self, argv: &[&[u8]]) -> Result<Admitted, Refused> {
        let spec = table::find(argv).map_err(|why| Refused { spec: None, why })?;
        let refuse = |why| Refused { spec: Some(spec), why };
        if !spec.arity_ok(argv.len()) {
            return Err(refuse(errors::wrong_arity(spec.name)));
        }
        if !self.session.authenticated && !spec.flags.contains(Flags::NO_AUTH) && self.needs_password() {
            return Err(refuse(errors::NO_AUTH));
        }
        if self.server.pause.may_hold()
            && let Some(until_ns) = self.held_until_ns(spec)
        {
            return Ok(Admitted::Hold(until_ns));
        }
        if self.session.transaction.is_none() || transactions::runs_inside_multi(spec) {
            return Ok(Admitted::Run(spec));
        }
        if spec.flags.contains(Flags::NO_MULTI) {
            return Err(refuse(errors::NOT_IN_TRANSACTION));
        }
        Ok(Admitted::Queue(spec))
    }

    fn needs_password(&self) -> bool {
        !self.server.settings.is_empty(Id::RequirePass)
    }

    /// CLIENT UNPAUSE is never held: somebody must be able to end what nobody meant.
    fn held_until_ns(&self, spec: &CommandSpec) -> Option<u64> {
        if spec.name == "client|unpause" {
            return None;
        }
        let queued_writes = self.session.transaction.as_ref().is_some_and(|queued| queued.writes);
        let writes = spec.flags.contains(Flags::WRITE) || (spec.name == "exec" && queued_writes);
        self.server.pause.held_until_ns(writes, self.server.uptime_ns())
    }

    /// A refused command spoils the transaction it was meant for; a refused EXEC ends it.
    #[cold]
    fn refuse(&mut self, refused: Refused, argv: &[&[u8]], out: &mut Writer) {
        let Refused { spec, why } = refused;
        if let Some(spec) = spec {
            self.stats.commands[spec.index()].rejected.add(1);
        } else if is_http(argv) {
            // A browser was tricked into talking to us: nothing after its first line is to be run.
            self.session.close = true;
            return;
        }
        self.session.refuse_transaction();
        let why = if spec.is_some_and(|spec| spec.name == "exec") {
            transactions::discard(self.session, self.server);
            errors::exec_aborted_because(&why)
        } else {
            why
        };
        self.write_error(&why, out);
    }

    /// Locks what the command needs, and runs it.
    fn run_now(
        &mut self,
        spec: &'static CommandSpec,
        argv: &[&[u8]],
        out: &mut Writer,
        open: &mut Option<Txn<'d>>,
    ) -> Step {
        let mark = out.len();
        self.session.client.set_last_command(spec);
        if self.batch.unread.is_some_and(|(before, _)| before.index() != spec.index()) {
            self.batch.end_lap(self.server, self.stats);
        }
        let result = self.lock_and_run(spec, argv, out, open);
        let failed = result.is_err();
        let step = match result {
            Ok(Ran::Briefly) if self.leave_unread(spec) => return Step::Done,
            Ok(Ran::Briefly) => Step::Done,
            Ok(Ran::Until(step)) => step,
            Err(error) => {
                out.truncate(mark);
                self.write_error(&error, out);
                Step::Done
            }
        };
        self.count(spec, argv, failed);
        if failed || self.batch.last_ns.saturating_sub(self.batch.locked_ns) > LOCK_KEPT_NS {
            *open = None;
        }
        step
    }

    /// Counts a brief command, but not its time yet. False: the clock must be read.
    #[inline]
    fn leave_unread(&mut self, spec: &'static CommandSpec) -> bool {
        let before = self.batch.unread.map_or(0, |(_, count)| count);
        // A negative number of microseconds is never.
        let slow_from = self.server.settings.number(Id::SlowlogLogSlowerThan);
        if before == UNREAD_MAX || (0..UNREAD_MICROS).contains(&slow_from) {
            return false;
        }
        self.batch.unread = Some((spec, before + 1));
        self.stats.commands[spec.index()].calls.add(1);
        true
    }

    fn lock_and_run(
        &mut self,
        spec: &'static CommandSpec,
        argv: &[&[u8]],
        out: &mut Writer,
        open: &mut Option<Txn<'d>>,
    ) -> Result<Ran, CommandError> {
        let Some(parse) = spec.parse else {
            table::render::help(out, spec);
            return Ok(Ran::Until(Step::Done));
        };
        let mark = out.len();
        // Looked at where it was made: it is large.
        let parsed = parse(argv);
        let command = match &parsed {
            Ok(command) => command,
            Err(error) => return Err(error.clone()),
        };
        if spec.flags.contains(Flags::WRITE) {
            let bytes = if self.is_short { 0 } else { bytes_of(argv) };
            self.server.check_writable(bytes)?;
        }
        let goes_on = self.lock(spec, argv, command, open);
        let Some(txn) = open else { unreachable!("something is locked, be it nothing") };
        let step = match exec::run(command, &mut Call { desk: self, txn, out })? {
            Outcome::Done if txn.end() => {
                let says_little = out.len() - mark <= BRIEF_REPLY_BYTES;
                let briefly = goes_on && self.is_short && says_little && exec::is_brief(command);
                return Ok(if briefly { Ran::Briefly } else { Ran::Until(Step::Done) });
            }
            Outcome::Done => Step::Done,
            Outcome::Long(missing) => Step::Long(Box::new(LongReply::new(out, missing))),
            Outcome::Block(blocked) => {
                let command = (spec, argv);
                Step::Wait(Box::new(Waiting::begin(self.server, self.session, txn, command, blocked)))
            }
            Outcome::Later(later) => {
                *open = None;
                Step::Wait(Box::new(Waiting::begin_work(self.server, self.session, later)))
            }
        };
        *open = None;
        Ok(Ran::Until(step))
    }

    /// Makes `open` what the command needs. True: it was so already.
    fn lock(
        &mut self,
        spec: &CommandSpec,
        argv: &[&[u8]],
        command: &Command<'_>,
        open: &mut Option<Txn<'d>>,
    ) -> bool {
        let server: &'d Server = self.server;
        let (store, db, now_ms) = (&server.store, self.session.db, self.batch.now_ms);
        let reach = exec::reach(spec, command);
        self.batch.saw_data |= reach != Reach::Nothing;
        let only_key = if reach == Reach::Keys { only_key(spec, argv, command) } else { None };
        let goes_on = open.as_mut().is_some_and(|txn| match (reach, only_key) {
            (Reach::Nothing, _) => txn.go_on_without_keys(db),
            (_, Some(key)) => txn.go_on(db, key),
            _ => false,
        });
        if goes_on {
            return true;
        }
        // Whoever locks while something is locked may wait for ever.
        *open = None;
        self.batch.locked_ns = self.batch.last_ns;
        *open = Some(match (reach, only_key) {
            (Reach::Nothing, _) => store.lock_nothing(db, now_ms),
            (Reach::Everything, _) => store.lock_all(db, now_ms),
            (Reach::Keys, Some(key)) => store.lock_key(db, key, now_ms),
            (Reach::Keys, None) => {
                // A request whose keys cannot be told apart did not parse, or names none.
                let keys = table::keys(spec, argv).unwrap_or_default();
                store.lock(db, keys.iter().map(|(key, _)| *key), now_ms)
            }
        });
        false
    }

    /// Runs a queued command within the transaction that holds everything. What would wait has waited in vain.
    pub(crate) fn run_queued(
        &mut self,
        spec: &'static CommandSpec,
        argv: &[&[u8]],
        txn: &mut Txn<'_>,
        out: &mut Writer,
    ) {
        let mark = out.len();
        txn.select(self.session.db);
        let result = match spec.parse {
            Some(parse) => parse(argv)
                .and_then(|command| exec::run(&command, &mut Call { desk: self, txn, out: &mut *out })),
            None => {
                table::render::help(out, spec);
                Ok(Outcome::Done)
            }
        };
        let failed = result.is_err();
        match result {
            Ok(Outcome::Done) => {}
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

    fn count(&mut self, spec: &'static CommandSpec, argv: &[&[u8]], failed: bool) {
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

/// How a command ran.
enum Ran {
    /// To its end, with so little to do that nobody need know how long it took.
    Briefly,
    /// Until this is to happen.
    Until(Step),
}

/// What happens with a request.
enum Admitted {
    Run(&'static CommandSpec),
    Queue(&'static CommandSpec),
    Hold(u64),
}

/// Why nothing happens with it.
struct Refused {
    spec: Option<&'static CommandSpec>,
    why: CommandError,
}

/// Most commands name one key, at a fixed place or where the parser has found it: no list is made for it.
fn only_key<'a>(spec: &CommandSpec, argv: &[&'a [u8]], command: &Command<'a>) -> Option<&'a [u8]> {
    if let Command::Xreadgroup(Xreadgroup { streams, .. }) | Command::Xread(Xread { streams, .. }) = command {
        return <[_; 1]>::try_from(streams.keys).ok().map(|[key]| key);
    }
    match spec.keys {
        [KeySpec { begin: KeysBegin::At(at), find: KeysFind::Range { last: 0, .. }, .. }] => {
            argv.get(usize::try_from(*at).ok()?).copied()
        }
        _ => None,
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

/// The first words of a request of HTTP that could carry commands.
fn is_http(argv: &[&[u8]]) -> bool {
    let first = argv.first().copied().unwrap_or_default();
    first.eq_ignore_ascii_case(b"POST") || first.eq_ignore_ascii_case(b"Host:")
}
