//! A connection in a blocking command: it waits for its reply, its deadline, a word from another client, or
//! its peer's departure, whichever comes first.
//!
//! Some commands wait for work that takes a while, which is done on a thread beside. The others wait for entries:
//! whoever makes entries ready runs the command again, on its own thread and under its own lock, and leaves
//! the reply with the client. So a reply that was made is never lost to a race: on any other ending the wait is
//! ended first, and if that comes too late the reply is there to be taken.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Instant;

use millstream_protocol::resp::Writer;
use millstream_store::{Retry, Txn, WaitToken};

use crate::args::OwnedArgs;
use crate::command::{Blocked, CommandSpec, Later, LongReply, Outcome, Run, Work};
use crate::io_thread::{give_back, spare_buffer};
use crate::registry::{Answer, Client};
use crate::session::Session;
use crate::state::Server;

/// A wait that has begun: the client counts as blocked, and CLIENT UNBLOCK reaches it. Dropped, it ends.
pub(crate) struct Waiting {
    server: Arc<Server>,
    client: Arc<Client>,
    token: Option<WaitToken>,
    pub(crate) deadline: Option<Instant>,
    /// When to run the command again though nothing has happened: something may have been idle for long enough.
    pub(crate) retry_at: Option<Instant>,
    /// The reply when time runs out, if it is not the usual null.
    pub(crate) instead: Option<Vec<u8>>,
}

impl Waiting {
    /// Registers the command with the store, while the transaction that found nothing still holds its keys.
    pub(crate) fn begin(
        server: &Arc<Server>,
        session: &Session,
        mut txn: Txn<'_>,
        command: (&'static CommandSpec, &[&[u8]]),
        blocked: Blocked,
    ) -> Waiting {
        let (spec, argv) = command;
        let deadline = deadline_after(blocked.timeout_ms);
        let args = with_last_args(argv, &blocked.last_args);
        let (client, resp3) = (Arc::clone(&session.client), session.resp3);
        let wait = client.begin_wait();
        let again = move |txn: &mut Txn<'_>| {
            // CLIENT UNBLOCK may have ended the wait, and its connection has yet to notice.
            let answer = client.is_waiting(wait).then(|| run_again((spec, &args), resp3, txn)).flatten();
            let Some(answer) = answer else { return Retry::NotYet };
            // A peer that left meanwhile loses nothing: what was delivered to it is pending.
            client.leave_answer(wait, answer);
            Retry::Served
        };
        let token = txn.wait(&blocked.interests, again);
        let retry_at = token.retry_at_ms().and_then(|at_ms| instant_at(server, at_ms));
        Waiting {
            server: Arc::clone(server),
            client: Arc::clone(&session.client),
            token: Some(token),
            deadline,
            retry_at,
            instead: None,
        }
    }

    /// Runs the command again, in its turn. The reply, if there is one now, comes as any other.
    pub(crate) fn retry(&mut self) {
        let again = self.token.as_ref().and_then(|token| self.server.store.retry(token));
        self.retry_at = again.and_then(|at_ms| instant_at(&self.server, at_ms));
    }

    /// Begins the work on a thread beside. A panic there closes the client's connection.
    pub(crate) fn begin_work(server: &Arc<Server>, session: &Session, later: Later) -> Waiting {
        let Later { work, timeout_ms, instead } = later;
        let (client, resp3) = (Arc::clone(&session.client), session.resp3);
        let wait = client.begin_wait();
        let for_work = Arc::clone(server);
        tokio::task::spawn_blocking(move || {
            let done = catch_unwind(AssertUnwindSafe(|| reply_of(work, &for_work, resp3)));
            client.leave_answer(wait, done.unwrap_or(Answer::Panicked));
        });
        let deadline = deadline_after(timeout_ms);
        Waiting {
            server: Arc::clone(server),
            client: Arc::clone(&session.client),
            token: None,
            deadline,
            retry_at: None,
            instead,
        }
    }
}

/// Once the store has let go of the reader nobody can be making an answer: one that is not there then never comes.
/// Whoever made it may still hold its locks, and have the record of it to write: taking the same locks waits for that,
/// so that the position asked for afterwards covers what is about to be told.
impl Drop for Waiting {
    fn drop(&mut self) {
        if let Some(token) = &self.token {
            self.server.store.cancel(token);
        }
        self.client.close_wait();
    }
}

/// The moment when the store's clock shows this time.
fn instant_at(server: &Server, at_ms: u64) -> Option<Instant> {
    deadline_after(at_ms.saturating_sub(server.store.now_ms()).max(1))
}

fn deadline_after(timeout_ms: u64) -> Option<Instant> {
    let after = std::time::Duration::from_millis(timeout_ms);
    // A deadline beyond what the clock can hold is no deadline.
    (timeout_ms > 0).then(|| Instant::now().checked_add(after)).flatten()
}

fn with_last_args(argv: &[&[u8]], last_args: &[Box<[u8]>]) -> OwnedArgs {
    let kept = argv.len().saturating_sub(last_args.len());
    OwnedArgs::new(argv[..kept].iter().copied().chain(last_args.iter().map(|arg| &arg[..])))
}

/// The reply that the work writes.
fn reply_of(work: Work, server: &Arc<Server>, resp3: bool) -> Answer {
    let mut out = Writer::new(resp3);
    match work(server, &mut out) {
        Ok(()) => Answer::Reply(out.buf),
        Err(error) => Answer::Refused(error),
    }
}

/// Runs the whole command again on the thread that made its keys ready, unless there is still nothing to say. That thread
/// serves another client: a panic ends here, and without an answer this client's connection closes.
fn run_again(command: (&CommandSpec, &OwnedArgs), resp3: bool, txn: &mut Txn<'_>) -> Option<Answer> {
    catch_unwind(AssertUnwindSafe(|| answer_to(command, resp3, txn))).unwrap_or(Some(Answer::Panicked))
}

fn answer_to((spec, args): (&CommandSpec, &OwnedArgs), resp3: bool, txn: &mut Txn<'_>) -> Option<Answer> {
    let argv = args.argv();
    let mut out = Writer::new(resp3);
    out.buf = spare_buffer();
    let Run::Data(run) = spec.run else {
        unreachable!("{} needs more than data and cannot block", spec.name)
    };
    match run(txn, &mut out, &argv) {
        Ok(Outcome::Done | Outcome::Brief) => {}
        Ok(Outcome::Long(missing)) => LongReply::new(&mut out, missing).write_all(&mut out),
        Ok(Outcome::Block(_) | Outcome::Later(_)) => {
            give_back(out.buf);
            return None;
        }
        Err(error) => return Some(Answer::Refused(error)),
    }
    Some(Answer::Reply(out.buf))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_arguments_are_replaced() {
        let argv: [&[u8]; 4] = [b"XREAD", b"STREAMS", b"k", b"$"];
        let resolved = with_last_args(&argv, &[Box::from(&b"5-1"[..])]);
        assert_eq!(resolved.argv()[..], [&b"XREAD"[..], b"STREAMS", b"k", b"5-1"]);
        assert_eq!(with_last_args(&argv, &[]).argv()[..], argv);
    }

    #[test]
    fn zero_waits_for_ever_and_so_does_what_no_clock_holds() {
        assert!(deadline_after(0).is_none());
        assert!(deadline_after(50).is_some());
        assert!(deadline_after(u64::MAX).is_none_or(|deadline| deadline > Instant::now()));
    }
}
