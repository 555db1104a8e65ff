//! A client in a blocking command. It is blocked until its reply is ready, its timeout passes, another client sends
//! CLIENT UNBLOCK, or it disconnects.
//!
//! Some commands block on slow work, which a separate thread does. The others block on keys. The thread that makes
//! such a key ready runs the command again, under the lock it holds, and stores the reply with the client. A
//! timeout cannot lose such a reply: the connection first ends the blocked call, and then takes the reply if one was
//! stored.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Instant;

use millstream_protocol::errors::CommandError;
use millstream_protocol::resp::Writer;
use millstream_store::{BlockedToken, ServeResult, Txn};

use crate::acl::{DenialContext, User};
use crate::args::OwnedArgs;
use crate::command::{
    BlockOn, CommandSpec, LongReply, Outcome, Run, SlowWork, WorkFn, check_permission, denied,
};
use crate::io_thread::{recycle, spare_buffer};
use crate::registry::{BlockedResult, Client};
use crate::session::Session;
use crate::state::Server;

/// A client that is blocked: it counts as blocked, and CLIENT UNBLOCK works on it. Dropping this unblocks it.
pub(crate) struct BlockedClient {
    server: Arc<Server>,
    client: Arc<Client>,
    /// The store's handle of a command that is blocked on keys.
    token: Option<BlockedToken>,
    pub(crate) deadline: Option<Instant>,
    /// When to run the command again even if no key was changed. By then a pending entry will have been idle for long
    /// enough.
    pub(crate) retry_at: Option<Instant>,
    /// The reply after a timeout; `None`: a null.
    pub(crate) fallback_reply: Option<Vec<u8>>,
}

#[derive(Clone, Copy)]
struct ReplyForm {
    resp3: bool,
    bytes_max: usize,
}

impl ReplyForm {
    fn of(session: &Session, server: &Server) -> ReplyForm {
        ReplyForm { resp3: session.resp3, bytes_max: server.reply_bytes_max() }
    }
}

/// Approximate memory of one key that a client is blocked on, in bytes, without the text of the key, which is stored
/// twice.
const BLOCKED_KEY_BYTES: usize = 500;

impl BlockedClient {
    /// Registers the command with the store. The command found no data, and `txn` still has its keys locked.
    pub(crate) fn begin(
        server: &Arc<Server>,
        session: &Session,
        mut txn: Txn<'_>,
        command: (&'static CommandSpec, &[&[u8]]),
        on: BlockOn,
    ) -> BlockedClient {
        let (spec, argv) = command;
        let deadline = deadline_after(on.timeout_ms);
        let args = with_last_args(argv, &on.last_args);
        let keys_bytes: usize = on.interests.iter().map(|(key, _)| BLOCKED_KEY_BYTES + 2 * key.len()).sum();
        let (client, form) = (Arc::clone(&session.client), ReplyForm::of(session, server));
        client.blocked_bytes.store(keys_bytes + args.memory_bytes(), Ordering::Relaxed);
        let call = client.begin_blocking();
        let (user, for_check) = (Arc::clone(&session.user), Arc::downgrade(server));
        let again = move |txn: &mut Txn<'_>| {
            // CLIENT UNBLOCK may have ended the call, or ACL DELUSER may have removed the user, and the connection has
            // yet to notice.
            if !client.is_blocked_in(call) || user.is_removed() {
                return ServeResult::StillBlocked;
            }
            let result = check_again(&for_check, &client, &user, (spec, &args)).map_or_else(
                |error| Some(BlockedResult::Error(error)),
                |()| run_again((spec, &args), form, txn),
            );
            let Some(result) = result else { return ServeResult::StillBlocked };
            // If the client has disconnected meanwhile, the result is dropped. Entries delivered to a group stay
            // pending, unless the read had NOACK. A value popped from a list is lost.
            client.set_result(call, result);
            ServeResult::Served
        };
        let token = txn.block(&on.interests, again);
        let retry_at = token.retry_at_ms().and_then(|at_ms| instant_at(server, at_ms));
        BlockedClient {
            server: Arc::clone(server),
            client: Arc::clone(&session.client),
            token: Some(token),
            deadline,
            retry_at,
            fallback_reply: None,
        }
    }

    /// Runs the command again in its turn in the queue. If there is a reply now, it is stored with the client.
    pub(crate) fn retry(&mut self) {
        let again = self.token.as_ref().and_then(|token| self.server.store.retry_blocked(token));
        self.retry_at = again.and_then(|at_ms| instant_at(&self.server, at_ms));
    }

    /// Starts slow work on a separate thread. If it panics, the client's connection is closed.
    pub(crate) fn begin_work(server: &Arc<Server>, session: &Session, slow: SlowWork) -> BlockedClient {
        let SlowWork { work, timeout_ms, fallback_reply } = slow;
        let (client, resp3) = (Arc::clone(&session.client), session.resp3);
        let call = client.begin_blocking();
        let for_work = Arc::clone(server);
        tokio::task::spawn_blocking(move || {
            let done = catch_unwind(AssertUnwindSafe(|| reply_of(work, &for_work, resp3)));
            client.set_result(call, done.unwrap_or(BlockedResult::Panicked));
        });
        let deadline = deadline_after(timeout_ms);
        BlockedClient {
            server: Arc::clone(server),
            client: Arc::clone(&session.client),
            token: None,
            deadline,
            retry_at: None,
            fallback_reply,
        }
    }
}

/// After the store has removed the blocked call, no thread can run its command again, so a reply is either stored
/// by now or never will be. The thread that made the reply may still hold its locks and have yet to write its log
/// record. Removing the call takes the same locks and so waits for that thread. The log position that the connection
/// asks for next then covers the reply.
impl Drop for BlockedClient {
    fn drop(&mut self) {
        if let Some(token) = &self.token {
            self.server.store.cancel_blocked(token);
            self.client.blocked_bytes.store(0, Ordering::Relaxed);
        }
        self.client.end_blocking();
    }
}

/// Returns the moment at which the store's clock will show `at_ms`.
fn instant_at(server: &Server, at_ms: u64) -> Option<Instant> {
    deadline_after(at_ms.saturating_sub(server.store.now_ms()).max(1))
}

/// Returns the deadline, or `None` if `timeout_ms` is 0 or the deadline is later than an [`Instant`] can be.
fn deadline_after(timeout_ms: u64) -> Option<Instant> {
    let after = std::time::Duration::from_millis(timeout_ms);
    (timeout_ms > 0).then(|| Instant::now().checked_add(after)).flatten()
}

fn with_last_args(argv: &[&[u8]], last_args: &[Box<[u8]>]) -> OwnedArgs {
    let kept = argv.len().saturating_sub(last_args.len());
    OwnedArgs::new(argv[..kept].iter().copied().chain(last_args.iter().map(|arg| &arg[..])))
}

fn reply_of(work: WorkFn, server: &Arc<Server>, resp3: bool) -> BlockedResult {
    let mut out = Writer::new(resp3);
    match work(server, &mut out) {
        Ok(()) => BlockedResult::Reply(out.buf),
        Err(error) => BlockedResult::Error(error),
    }
}

/// Returns an error if the user may no longer run the command that it is blocked in.
fn check_again(
    server: &Weak<Server>,
    client: &Client,
    user: &User,
    (spec, args): (&CommandSpec, &OwnedArgs),
) -> Result<(), CommandError> {
    if user.is_unrestricted() {
        return Ok(());
    }
    let Some(server) = server.upgrade() else { return Ok(()) };
    check_permission(&server, client, user, (spec, &args.argv()), DenialContext::TopLevel)
        .map_err(|denial| denied(denial, user, spec))
}

/// Runs a blocked command again, on the thread that made its keys ready. Returns `None` if it would still block.
///
/// That thread serves another client, so a panic must not end it. Instead the blocked client's connection is closed.
fn run_again(
    command: (&CommandSpec, &OwnedArgs),
    form: ReplyForm,
    txn: &mut Txn<'_>,
) -> Option<BlockedResult> {
    catch_unwind(AssertUnwindSafe(|| result_of(command, form, txn))).unwrap_or(Some(BlockedResult::Panicked))
}

fn result_of(
    (spec, args): (&CommandSpec, &OwnedArgs),
    form: ReplyForm,
    txn: &mut Txn<'_>,
) -> Option<BlockedResult> {
    let argv = args.argv();
    let mut out = Writer::new(form.resp3);
    out.length_max = form.bytes_max;
    out.buf = spare_buffer();
    let Run::Data(run) = spec.run else {
        unreachable!("{} is not a data command and cannot block", spec.name)
    };
    match run(txn, &mut out, &argv) {
        Ok(Outcome::Done | Outcome::Brief) => {}
        Ok(Outcome::Long(unwritten)) => LongReply::new(&mut out, unwritten).write_all(&mut out),
        Ok(Outcome::Block(_) | Outcome::SlowWork(_)) => {
            recycle(out.buf);
            return None;
        }
        Err(error) => return Some(BlockedResult::Error(error)),
    }
    Some(if out.is_full() { BlockedResult::ReplyTooLong } else { BlockedResult::Reply(out.buf) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn with_last_args_replaces_the_last_arguments() {
        let argv: [&[u8]; 4] = [b"XREAD", b"STREAMS", b"k", b"$"];
        let resolved = with_last_args(&argv, &[Box::from(&b"5-1"[..])]);
        assert_eq!(resolved.argv()[..], [&b"XREAD"[..], b"STREAMS", b"k", b"5-1"]);
        assert_eq!(with_last_args(&argv, &[]).argv()[..], argv);
    }

    #[test]
    fn zero_and_huge_timeouts_have_no_deadline() {
        assert!(deadline_after(0).is_none());
        assert!(deadline_after(50).is_some());
        assert!(deadline_after(u64::MAX).is_none_or(|deadline| deadline > Instant::now()));
    }
}
