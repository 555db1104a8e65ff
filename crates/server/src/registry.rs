//! Who is connected: what one client may know about another, and how it reaches it.
//!
//! A connection belongs to one thread and nobody else touches it. What others may see of it (CLIENT LIST) it
//! publishes here, after each batch; what others want of it (CLIENT KILL, CLIENT UNBLOCK) or made for it (the
//! answer to a command that waits) they leave here and wake it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};
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
    /// How many clients wait in a blocking command.
    pub(crate) blocked: AtomicUsize,
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
    signals: AtomicU8,
    wait: Mutex<Wait>,
    waker: OnceLock<Waker>,
}

/// A command that waits, and what was made of it.
#[derive(Default)]
struct Wait {
    /// Waits are numbered: an answer may come when nobody waits for it any more.
    number: u64,
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

/// What others want of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Signal {
    /// Close the connection.
    Kill = 1,
    /// Stop waiting as if time had run out.
    UnblockTimeout = 2,
    /// Stop waiting with an error.
    UnblockError = 4,
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
        let client = Arc::new(Client::new(id, peer, uptime_ms));
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
    fn new(id: u64, peer: Peer, uptime_ms: u64) -> Client {
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
            signals: AtomicU8::new(0),
            wait: Mutex::default(),
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
        self.send(Signal::Kill);
    }

    /// Ends its wait in a blocking command. False if it does not wait.
    pub(crate) fn unblock(&self, how: Unblock) -> bool {
        let waits = self.has(flags::BLOCKED);
        if waits {
            self.send(match how {
                Unblock::Timeout => Signal::UnblockTimeout,
                Unblock::Error => Signal::UnblockError,
            });
        }
        waits
    }

    fn send(&self, signal: Signal) {
        self.signals.fetch_or(signal as u8, Ordering::AcqRel);
        self.wake();
    }

    fn wake(&self) {
        if let Some(waker) = self.waker.get() {
            waker.wake_by_ref();
        }
    }

    /// A command begins to wait: the number is for whoever makes the answer.
    pub(crate) fn begin_wait(&self) -> u64 {
        let mut wait = self.wait.lock();
        *wait = Wait { number: wait.number + 1, answer: None };
        wait.number
    }

    /// Leaves the answer to a command that waits. One that comes too late is nobody's.
    pub(crate) fn leave_answer(&self, number: u64, answer: Answer) {
        let mut wait = self.wait.lock();
        if wait.number == number {
            wait.answer = Some(answer);
            drop(wait);
            self.wake();
        }
    }

    pub(crate) fn has_answer(&self) -> bool {
        self.wait.lock().answer.is_some()
    }

    /// The wait is over: takes the answer, if there is one, and no other is left from now on.
    pub(crate) fn end_wait(&self) -> Option<Answer> {
        let mut wait = self.wait.lock();
        wait.number += 1;
        wait.answer.take()
    }

    /// The connection's task says how it is woken: once, before it first looks for signals.
    pub(crate) fn wake_with(&self, waker: &Waker) {
        self.waker.get_or_init(|| waker.clone());
    }

    pub(crate) fn is_killed(&self) -> bool {
        self.signals.load(Ordering::Acquire) & Signal::Kill as u8 != 0
    }

    /// Takes an unblock request, if there is one.
    pub(crate) fn take_unblock(&self) -> Option<Unblock> {
        let mask = Signal::UnblockTimeout as u8 | Signal::UnblockError as u8;
        let signals = self.signals.fetch_and(!mask, Ordering::AcqRel);
        if signals & Signal::UnblockError as u8 != 0 {
            Some(Unblock::Error)
        } else if signals & Signal::UnblockTimeout as u8 != 0 {
            Some(Unblock::Timeout)
        } else {
            None
        }
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
    fn only_a_waiting_client_is_unblocked_and_an_error_wins() {
        let registry = Registry::default();
        let client = registry.add(peer(), 0, 1).unwrap();
        assert!(!client.unblock(Unblock::Error));
        assert_eq!(client.take_unblock(), None);
        client.set(flags::BLOCKED, true);
        assert!(client.unblock(Unblock::Timeout) && client.unblock(Unblock::Error));
        assert_eq!(client.take_unblock(), Some(Unblock::Error));
        assert_eq!(client.take_unblock(), None);
        client.kill();
        assert!(client.is_killed());
    }
}
