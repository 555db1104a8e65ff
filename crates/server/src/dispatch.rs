//! From arguments to a reply: what every command passes through, whatever it does.
//!
//! ```text
//! find in the table -> arity -> password -> pause -> queue, if in MULTI
//!    -> room on the disk, if it writes -> lock its keys, unless the command before has
//!    -> parse and run -> serve waiting readers -> count
//! ```
//!
//! The order is Redis', and so is what a client sees of it.

use millstream_protocol::errors::{self, CommandError};
use millstream_protocol::resp::Writer;
use millstream_store::Txn;

use crate::command::{
    self, CommandContext, CommandSpec, Flags, LongReply, Outcome, Reach, bytes_of, only_stream,
};
use crate::exec::transactions;
use crate::settings::Id;
use crate::state::Server;
use crate::table;
use crate::waiting::Waiting;

/// Nanoseconds for which a lock is kept from one command to the next: other threads may wait for it.
const LOCK_KEPT_NS: u64 = 100_000;
/// Larger replies always read the clock.
const BRIEF_REPLY_BYTES: usize = 4 << 10;

/// The dispatcher's decision after a request: what the connection does before it looks at the next.
pub(crate) enum Step {
    /// Nothing: it goes on with the next.
    Done,
    /// It waits for the reply.
    Wait(Box<Waiting>),
    /// It writes the rest of the reply in slices.
    Long(Box<LongReply>),
    /// The request was not run: the connection holds it until this uptime, in nanoseconds.
    Hold { until_ns: u64 },
}

/// The decision about a request before anything is locked.
enum Admitted {
    /// The dispatcher runs it now.
    Run(&'static CommandSpec),
    /// MULTI has begun: the session queues it for EXEC.
    Queue(&'static CommandSpec),
    /// CLIENT PAUSE holds it back until this uptime, in nanoseconds.
    Hold { until_ns: u64 },
}

/// Why a request is neither run, queued nor held back.
struct Refused {
    spec: Option<&'static CommandSpec>,
    why: CommandError,
}

impl<'d> CommandContext<'d> {
    /// Runs one request of a client and writes the reply. What it had locked stays locked for the next, in `open`.
    pub(crate) fn run(&mut self, argv: &[&[u8]], out: &mut Writer, open: &mut Option<Txn<'d>>) -> Step {
        let mark = out.len();
        let step = match self.admit(argv) {
            Err(refused) => {
                *open = None;
                self.refuse(refused, argv, out);
                Step::Done
            }
            Ok(Admitted::Hold { until_ns }) => return Step::Hold { until_ns },
            Ok(Admitted::Queue(spec)) => {
                self.session.queue(spec.index(), argv, spec.flags.contains(Flags::WRITE));
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
            return Ok(Admitted::Hold { until_ns });
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

    /// Locks what the command needs, runs it and counts it.
    fn run_now(
        &mut self,
        spec: &'static CommandSpec,
        argv: &[&[u8]],
        out: &mut Writer,
        open: &mut Option<Txn<'d>>,
    ) -> Step {
        let mark = out.len();
        self.session.client.set_last_command(spec.index());
        self.end_lap_of_others(spec);
        let mut locked_before = false;
        let result = self.check_room(spec, argv).and_then(|()| {
            locked_before = self.lock(spec, argv, open);
            let Some(txn) = open else { unreachable!("something is locked, be it nothing") };
            self.call(spec, argv, txn, out)
        });
        let failed = result.is_err();
        let was_brief = matches!(result, Ok(Outcome::Brief)) && locked_before;
        let step = match result {
            Ok(Outcome::Done | Outcome::Brief) => {
                let keeps_lock = open.as_mut().is_some_and(Txn::end);
                let is_brief =
                    was_brief && keeps_lock && self.is_short && out.len() - mark <= BRIEF_REPLY_BYTES;
                if is_brief && self.leave_untimed(spec) {
                    return Step::Done;
                }
                if !keeps_lock {
                    *open = None;
                }
                Step::Done
            }
            Ok(Outcome::Long(missing)) => {
                *open = None;
                Step::Long(Box::new(LongReply::new(out, missing)))
            }
            Ok(Outcome::Block(blocked)) => {
                let txn = open.take().expect("a command that waits has locked its keys");
                Step::Wait(Box::new(Waiting::begin(self.server, self.session, txn, (spec, argv), blocked)))
            }
            Ok(Outcome::Later(later)) => {
                *open = None;
                Step::Wait(Box::new(Waiting::begin_work(self.server, self.session, later)))
            }
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

    /// Refuses a command that writes if there is no room for it.
    #[inline(always)]
    fn check_room(&self, spec: &CommandSpec, argv: &[&[u8]]) -> Result<(), CommandError> {
        if !spec.flags.contains(Flags::WRITE) {
            return Ok(());
        }
        let bytes = if self.is_short { 0 } else { bytes_of(argv) };
        self.server.check_writable(bytes)
    }

    /// Makes `open` what the command needs. True: it was so already.
    fn lock(&mut self, spec: &CommandSpec, argv: &[&[u8]], open: &mut Option<Txn<'d>>) -> bool {
        let server: &'d Server = self.server;
        let (store, db, now_ms) = (&server.store, self.session.db, self.batch.now_ms);
        let reach = match spec.reach {
            Reach::EverythingIf(needed) if needed(argv) => Reach::Everything,
            Reach::EverythingIf(_) => Reach::Nothing,
            reach => reach,
        };
        // Most commands name one key: no list is made for it.
        let only_key = match reach {
            Reach::Nothing => return self.lock_nothing(open),
            Reach::Key(at) => argv.get(at).copied(),
            Reach::Streams => only_stream(argv),
            _ => None,
        };
        self.batch.saw_data = true;
        if only_key.is_some_and(|key| open.as_mut().is_some_and(|txn| txn.go_on(db, key))) {
            return true;
        }
        // Whoever locks while something is locked may wait for ever.
        *open = None;
        self.batch.locked_ns = self.batch.last_ns;
        *open = Some(match (reach, only_key) {
            (_, Some(key)) => store.lock_key(db, key, now_ms),
            (Reach::Everything, _) => store.lock_all(db, now_ms),
            _ => {
                // A request whose keys cannot be told apart does not parse, or names none.
                let keys = command::keys(spec, argv).unwrap_or_default();
                store.lock(db, keys.iter().map(|(key, _)| *key), now_ms)
            }
        });
        false
    }

    fn lock_nothing(&mut self, open: &mut Option<Txn<'d>>) -> bool {
        let server: &'d Server = self.server;
        if open.as_mut().is_some_and(|txn| txn.go_on_without_keys(self.session.db)) {
            return true;
        }
        *open = None;
        self.batch.locked_ns = self.batch.last_ns;
        *open = Some(server.store.lock_nothing(self.session.db, self.batch.now_ms));
        false
    }
}

/// The first words of a request of HTTP that could carry commands.
fn is_http(argv: &[&[u8]]) -> bool {
    let first = argv.first().copied().unwrap_or_default();
    first.eq_ignore_ascii_case(b"POST") || first.eq_ignore_ascii_case(b"Host:")
}
