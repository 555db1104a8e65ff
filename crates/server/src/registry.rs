//! Who is connected: what one client may know about another, and how it reaches it.
//!
//! A connection belongs to one thread and nobody else touches it. What others may see of it (CLIENT LIST) it
//! publishes here, after each batch; what others want of it (CLIENT KILL, CLIENT UNBLOCK) or made for it (the
//! answer to a command that waits) they leave here and wake it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::Waker;

use millstream_protocol::commands::Unblock;
use millstream_protocol::errors::CommandError;
use parking_lot::{Mutex, RwLock};

/// Every connected client.
#[derive(Default)]
pub(crate) struct Registry {
    clients: RwLock<BTreeMap<u64, Arc<Client>>>,
    last_id: AtomicU64,
    /// How many clients wait in a blocking command; each of them counts itself.
    blocked: Arc<AtomicUsize>,
}

/// A connected client, as others see it.
pub(crate) struct Client {
    /// Its number, never used twice.
    pub(crate) id: u64,
    /// Where it calls from, `host:port`.
    pub(crate) addr: String,
    /// Where it reached us.
    pub(crate) laddr: String,
    /// The file descriptor, which tools show.
    pub(crate) fd: i32,
    /// Whether it came by the Unix socket.
    pub(crate) by_unix_socket: bool,
    /// When it came, in milliseconds of the server's uptime.
    pub(crate) connected_at_ms: u64,
    /// When it last sent something, in milliseconds of the server's uptime.
    pub(crate) active_at_ms: AtomicU64,
    /// What it calls itself.
    pub(crate) labels: Mutex<Labels>,
    /// The selected database.
    pub(crate) db: AtomicU32,
    /// 2 or 3.
    pub(crate) resp: AtomicU8,
    /// See [`flags`].
    pub(crate) flags: AtomicU32,
    /// Commands queued since MULTI; -1 outside a transaction.
    pub(crate) queued: AtomicI64,
    /// Keys it watches.
    pub(crate) watched: AtomicUsize,
    /// Bytes of requests that wait to be completed or run.
    pub(crate) input_bytes: AtomicUsize,
    /// Bytes of replies that it has not taken yet.
    pub(crate) output_bytes: AtomicUsize,
    /// Bytes of commands queued since MULTI.
    pub(crate) queued_bytes: AtomicUsize,
    last_command: AtomicUsize,
    is_killed: AtomicBool,
    wait: Mutex<Wait>,
    blocked: Arc<AtomicUsize>,
    waker: OnceLock<Waker>,
}

/// A command that waits, and what was made of it.
#[derive(Default)]
struct Wait {
    /// Waits are numbered: an answer may come when nobody waits for it any more.
    number: u64,
    /// Whether the client still counts as blocked. It does until it has an answer, whenever its own thread comes to it.
    is_open: bool,
    answer: Option<Answer>,
}

/// What became of a command that waited.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// This is its reply.
    Reply(Vec<u8>),
    /// It was refused.
    Refused(CommandError),
    /// The thread that ran it has panicked: there is no reply.
    Panicked,
    /// CLIENT UNBLOCK ended it.
    Unblocked(Unblock),
}

/// Bits of [`Client::flags`].
pub(crate) mod flags {
    /// Waits in a blocking command.
    pub(crate) const BLOCKED: u32 = 1;
    /// A key it watches was touched: EXEC will run nothing.
    pub(crate) const DIRTY_WATCH: u32 = 2;
    /// CLIENT NO-EVICT ON.
    pub(crate) const NO_EVICT: u32 = 4;
    /// CLIENT NO-TOUCH ON.
    pub(crate) const NO_TOUCH: u32 = 8;
}

/// What a client calls itself.
#[derive(Clone, Default)]
pub(crate) struct Labels {
    /// CLIENT SETNAME.
    pub(crate) name: String,
    /// CLIENT SETINFO LIB-NAME.
    pub(crate) lib_name: String,
    /// CLIENT SETINFO LIB-VER.
    pub(crate) lib_ver: String,
}

/// Where a connection comes from.
pub(crate) struct Peer {
    pub(crate) addr: String,
    pub(crate) laddr: String,
    pub(crate) fd: i32,
    pub(crate) by_unix_socket: bool,
}

impl Registry {
    /// Registers a connection, unless there are `max` already.
    pub(crate) fn add(&self, peer: Peer, uptime_ms: u64, max: usize) -> Option<Arc<Client>> {
        let mut clients = self.clients.write();
        if clients.len() >= max {
            return None;
        }
        let id = self.last_id.fetch_add(1, Ordering::Relaxed) + 1;
        let client = Arc::new(Client::new(id, peer, uptime_ms, Arc::clone(&self.blocked)));
        clients.insert(id, Arc::clone(&client));
        Some(client)
    }

    pub(crate) fn remove(&self, id: u64) {
        self.clients.write().remove(&id);
    }

    /// The client of this number.
    pub(crate) fn get(&self, id: u64) -> Option<Arc<Client>> {
        self.clients.read().get(&id).cloned()
    }

    /// All clients, oldest first.
    pub(crate) fn all(&self) -> Vec<Arc<Client>> {
        self.clients.read().values().cloned().collect()
    }

    /// How many are connected.
    pub(crate) fn count(&self) -> usize {
        self.clients.read().len()
    }

    /// How many wait in a blocking command.
    pub(crate) fn blocked_count(&self) -> usize {
        self.blocked.load(Ordering::Relaxed)
    }
}

impl Client {
    fn new(id: u64, peer: Peer, uptime_ms: u64, blocked: Arc<AtomicUsize>) -> Client {
        Client {
            id,
            addr: peer.addr,
            laddr: peer.laddr,
            fd: peer.fd,
            by_unix_socket: peer.by_unix_socket,
            connected_at_ms: uptime_ms,
            active_at_ms: AtomicU64::new(uptime_ms),
            labels: Mutex::default(),
            db: AtomicU32::new(0),
            resp: AtomicU8::new(2),
            flags: AtomicU32::new(0),
            queued: AtomicI64::new(-1),
            watched: AtomicUsize::new(0),
            input_bytes: AtomicUsize::new(0),
            output_bytes: AtomicUsize::new(0),
            queued_bytes: AtomicUsize::new(0),
            last_command: AtomicUsize::new(usize::MAX),
            is_killed: AtomicBool::new(false),
            wait: Mutex::default(),
            blocked,
            waker: OnceLock::new(),
        }
    }

    /// Whether a flag of [`flags`] is set.
    pub(crate) fn has(&self, flag: u32) -> bool {
        self.flags.load(Ordering::Relaxed) & flag != 0
    }

    pub(crate) fn set(&self, flag: u32, on: bool) {
        if on {
            self.flags.fetch_or(flag, Ordering::Relaxed);
        } else {
            self.flags.fetch_and(!flag, Ordering::Relaxed);
        }
    }

    /// The index in the table of the command it ran last; beyond the end: none.
    pub(crate) fn last_command(&self) -> usize {
        self.last_command.load(Ordering::Relaxed)
    }

    pub(crate) fn set_last_command(&self, index: usize) {
        self.last_command.store(index, Ordering::Relaxed);
    }

    /// Closes its connection, as soon as its thread comes to it.
    pub(crate) fn kill(&self) {
        self.is_killed.store(true, Ordering::Release);
        self.wake();
    }

    /// Ends its wait in a blocking command. False if it does not wait, or has its answer.
    pub(crate) fn unblock(&self, how: Unblock) -> bool {
        let mut wait = self.wait.lock();
        if !wait.is_open {
            return false;
        }
        self.answer(&mut wait, Answer::Unblocked(how));
        true
    }

    fn wake(&self) {
        if let Some(waker) = self.waker.get() {
            waker.wake_by_ref();
        }
    }

    /// A command begins to wait: the client counts as blocked. The number is for whoever makes the answer.
    pub(crate) fn begin_wait(&self) -> u64 {
        let mut wait = self.wait.lock();
        *wait = Wait { number: wait.number + 1, is_open: true, answer: None };
        self.set(flags::BLOCKED, true);
        self.blocked.fetch_add(1, Ordering::Relaxed);
        wait.number
    }

    /// Whether the command still waits for an answer.
    pub(crate) fn is_waiting(&self, number: u64) -> bool {
        let wait = self.wait.lock();
        wait.number == number && wait.is_open
    }

    /// Leaves the answer to a command that waits. One that comes too late is nobody's. If CLIENT UNBLOCK came while it was
    /// made, it takes precedence: what was delivered must be told.
    pub(crate) fn leave_answer(&self, number: u64, answer: Answer) {
        let mut wait = self.wait.lock();
        if wait.number == number {
            self.answer(&mut wait, answer);
        }
    }

    /// The client waits no more, with or without an answer.
    pub(crate) fn close_wait(&self) {
        self.close(&mut self.wait.lock());
    }

    fn answer(&self, wait: &mut Wait, answer: Answer) {
        wait.answer = Some(answer);
        self.close(wait);
        self.wake();
    }

    fn close(&self, wait: &mut Wait) {
        if std::mem::take(&mut wait.is_open) {
            self.set(flags::BLOCKED, false);
            self.blocked.fetch_sub(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn has_answer(&self) -> bool {
        self.wait.lock().answer.is_some()
    }

    /// The wait is over: takes the answer, if there is one, and no other is left from now on.
    pub(crate) fn end_wait(&self) -> Option<Answer> {
        let mut wait = self.wait.lock();
        self.close(&mut wait);
        wait.number += 1;
        wait.answer.take()
    }

    /// The connection's task says how it is woken: once, before it first looks for signals.
    pub(crate) fn wake_with(&self, waker: &Waker) {
        self.waker.get_or_init(|| waker.clone());
    }

    pub(crate) fn is_killed(&self) -> bool {
        self.is_killed.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer() -> Peer {
        Peer { addr: "1.2.3.4:5".into(), laddr: "127.0.0.1:6379".into(), fd: 9, by_unix_socket: false }
    }

    #[test]
    fn numbers_rise_and_the_limit_holds() {
        let registry = Registry::default();
        let first = registry.add(peer(), 0, 2).unwrap();
        let second = registry.add(peer(), 0, 2).unwrap();
        assert_eq!((first.id, second.id), (1, 2));
        assert!(registry.add(peer(), 0, 2).is_none());
        registry.remove(1);
        assert_eq!(registry.add(peer(), 0, 2).unwrap().id, 3);
        assert_eq!(registry.all().iter().map(|client| client.id).collect::<Vec<_>>(), [2, 3]);
    }

    #[test]
    fn an_answer_is_for_the_wait_it_was_made_for() {
        let registry = Registry::default();
        let client = registry.add(peer(), 0, 1).unwrap();
        let first = client.begin_wait();
        assert!(!client.has_answer());
        assert_eq!(client.end_wait(), None);
        client.leave_answer(first, Answer::Reply(b"late".to_vec()));
        assert!(!client.has_answer());
        let second = client.begin_wait();
        client.leave_answer(first, Answer::Panicked);
        assert!(!client.has_answer());
        client.leave_answer(second, Answer::Reply(b"in time".to_vec()));
        assert!(client.has_answer());
        assert_eq!(client.end_wait(), Some(Answer::Reply(b"in time".to_vec())));
        assert_eq!(client.end_wait(), None);
    }

    #[test]
    fn only_a_client_without_an_answer_is_unblocked_and_a_reply_wins() {
        let registry = Registry::default();
        let client = registry.add(peer(), 0, 1).unwrap();
        assert!(!client.unblock(Unblock::Error));
        let wait = client.begin_wait();
        assert!(client.is_waiting(wait) && client.has(flags::BLOCKED));
        assert_eq!(registry.blocked_count(), 1);
        assert!(client.unblock(Unblock::Timeout) && !client.unblock(Unblock::Error));
        assert!(!client.is_waiting(wait) && !client.has(flags::BLOCKED));
        assert_eq!(registry.blocked_count(), 0);
        client.leave_answer(wait, Answer::Reply(b"made meanwhile".to_vec()));
        assert!(!client.unblock(Unblock::Timeout));
        assert_eq!(client.end_wait(), Some(Answer::Reply(b"made meanwhile".to_vec())));
        assert_eq!(registry.blocked_count(), 0);
        client.kill();
        assert!(client.is_killed());
    }
}
