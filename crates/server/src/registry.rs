//! The connected clients, as other threads see them.
//!
//! A connection belongs to one thread, and no other thread uses it. After each batch of commands, the connection
//! publishes here what CLIENT LIST shows. To reach a connection, another thread stores a message here, then wakes the
//! connection. The message is a CLIENT KILL, a CLIENT UNBLOCK, or the result of the connection's blocked command.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::Waker;

use millstream_protocol::commands::UnblockReason;
use millstream_protocol::errors::CommandError;
use parking_lot::{Mutex, RwLock};

use crate::acl::{DEFAULT_USER, User};

/// Approximate memory of a connection that holds no data, in bytes.
const CONNECTION_BYTES: usize = 2048;

#[derive(Default)]
pub(crate) struct Registry {
    clients: RwLock<BTreeMap<u64, Arc<Client>>>,
    last_id: AtomicU64,
    /// The number of blocked clients. Shared with the clients, which update it.
    blocked: Arc<AtomicUsize>,
    /// The clients that have not logged in. Shared with the clients, which update it.
    logged_out: Arc<Mutex<LoggedOut>>,
    /// The number of clients that wait until their thread serves them. Shared with the clients, which update it.
    unserved: Arc<AtomicUsize>,
}

/// The clients that have not logged in, although they must: since when, in milliseconds of the server's uptime, and id.
type LoggedOut = BTreeSet<(u64, u64)>;

/// A connected client, as other threads see it.
pub(crate) struct Client {
    /// Its id, never used twice.
    pub(crate) id: u64,
    /// The client's address: `host:port`, or `path:0` if it connected to the Unix socket.
    pub(crate) addr: String,
    pub(crate) laddr: String,
    pub(crate) fd: i32,
    pub(crate) transport: Transport,
    /// When it connected, in milliseconds of the server's uptime.
    pub(crate) connected_at_ms: u64,
    /// When it last sent something, in milliseconds of the server's uptime.
    pub(crate) active_at_ms: AtomicU64,
    pub(crate) labels: Mutex<Labels>,
    /// The user it has authenticated as; `None` before that.
    user: Mutex<Option<Arc<User>>>,
    pub(crate) db: AtomicU32,
    pub(crate) resp: AtomicU8,
    /// Bits of [`flags`].
    pub(crate) flags: AtomicU32,
    pub(crate) queued: AtomicI64,
    pub(crate) watched: AtomicUsize,
    /// Bytes of the requests received and not run yet.
    pub(crate) input_bytes: AtomicUsize,
    pub(crate) output_bytes: AtomicUsize,
    pub(crate) queued_bytes: AtomicUsize,
    /// Approximate bytes of the keys it watches.
    pub(crate) watched_bytes: AtomicUsize,
    /// Approximate bytes of the command it is blocked in, and of its places in the queues of the keys.
    pub(crate) blocked_bytes: AtomicUsize,
    /// Approximate bytes of its TLS session. 0 if it connected without TLS.
    pub(crate) tls_bytes: AtomicUsize,
    /// The time since which it must log in, in milliseconds of the server's uptime; [`LOGGED_IN`] if it need not.
    login_due_since_ms: AtomicU64,
    last_command: AtomicUsize,
    is_killed: AtomicBool,
    blocked_call: Mutex<BlockedCall>,
    blocked: Arc<AtomicUsize>,
    logged_out: Arc<Mutex<LoggedOut>>,
    pub(crate) unserved: Arc<AtomicUsize>,
    waker: OnceLock<Waker>,
}

/// Value of [`Client::login_due_since_ms`] for a client that has logged in or need not.
const LOGGED_IN: u64 = u64::MAX;

/// The client's last blocking command and its result.
#[derive(Default)]
struct BlockedCall {
    /// The number of the call. A result carries it, because it may arrive after the call has ended.
    number: u64,
    /// Whether the client counts as blocked: from the start of the call until it has a result or ends.
    is_blocked: bool,
    result: Option<BlockedResult>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum BlockedResult {
    Reply(Vec<u8>),
    Error(CommandError),
    /// With a reply that is longer than `client-output-buffer-limit`, and was not kept.
    ReplyTooLong,
    /// The thread that ran it panicked: there is no reply.
    Panicked,
    Unblocked(UnblockReason),
}

pub(crate) mod flags {
    pub(crate) const BLOCKED: u32 = 1;
    /// A key it watches was changed: EXEC will run no commands.
    pub(crate) const DIRTY_WATCH: u32 = 2;
    pub(crate) const NO_EVICT: u32 = 4;
    pub(crate) const NO_TOUCH: u32 = 8;
}

#[derive(Clone, Default)]
pub(crate) struct Labels {
    pub(crate) name: String,
    pub(crate) lib_name: String,
    pub(crate) lib_ver: String,
}

/// What is known of a connection when it is accepted. The fields are those of [`Client`].
pub(crate) struct ConnectionInfo {
    pub(crate) addr: String,
    pub(crate) laddr: String,
    pub(crate) fd: i32,
    pub(crate) transport: Transport,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transport {
    Tcp,
    UnixSocket,
    /// From within the process (see the module `in_process`).
    InProcess,
}

impl Registry {
    pub(crate) fn in_process_count(&self) -> usize {
        let clients = self.clients.read();
        clients.values().filter(|client| client.transport == Transport::InProcess).count()
    }

    pub(crate) fn add(
        &self,
        info: ConnectionInfo,
        uptime_ms: u64,
        max: usize,
        must_log_in: bool,
    ) -> Option<Arc<Client>> {
        let mut clients = self.clients.write();
        if clients.len() >= max {
            return None;
        }
        let id = self.last_id.fetch_add(1, Ordering::Relaxed) + 1;
        let client = Arc::new(Client::new(id, info, uptime_ms, self));
        if must_log_in {
            client.set_logged_out(uptime_ms);
        }
        clients.insert(id, Arc::clone(&client));
        Some(client)
    }

    /// Makes room for a new client that must log in: if nine tenths of `max` are connected, and a tenth of `max` has
    /// not logged in, closes and returns the client that has been logged out for longest. So clients that do not know
    /// the password cannot keep out those that do and log in at once.
    pub(crate) fn close_longest_logged_out(&self, max: usize) -> Option<Arc<Client>> {
        let clients = self.clients.read();
        let mut logged_out = self.logged_out.lock();
        let is_nearly_full = clients.len().saturating_mul(10) >= max.saturating_mul(9);
        if !is_nearly_full || logged_out.len().saturating_mul(10) < max {
            return None;
        }
        let (_, id) = logged_out.pop_first()?;
        let client = clients.get(&id)?;
        client.kill();
        Some(Arc::clone(client))
    }

    pub(crate) fn remove(&self, id: u64) {
        if let Some(client) = self.clients.write().remove(&id) {
            client.set_logged_in();
        }
    }

    pub(crate) fn logged_out_count(&self) -> usize {
        self.logged_out.lock().len()
    }

    /// Returns the number of clients that wait until their thread serves them: those whose connection the thread has
    /// not begun to serve, and those that wait for a turn (see the module `turns`).
    pub(crate) fn unserved(&self) -> usize {
        self.unserved.load(Ordering::Relaxed)
    }

    pub(crate) fn get(&self, id: u64) -> Option<Arc<Client>> {
        self.clients.read().get(&id).cloned()
    }

    /// Returns all clients, oldest first.
    pub(crate) fn all(&self) -> Vec<Arc<Client>> {
        self.clients.read().values().cloned().collect()
    }

    pub(crate) fn count(&self) -> usize {
        self.clients.read().len()
    }

    pub(crate) fn memory_bytes(&self) -> u64 {
        self.clients.read().values().map(|client| client.memory_bytes() as u64).sum()
    }

    /// Closes clients until the others use at most `bytes_max`, those that use most first. Clients with CLIENT NO-EVICT
    /// count, but are not closed. Returns how many were closed, and their memory in bytes.
    pub(crate) fn evict(&self, bytes_max: u64) -> (u64, u64) {
        if self.memory_bytes() <= bytes_max {
            return (0, 0);
        }
        // The connection of a client that was killed is about to be closed.
        let clients = self.all().into_iter().filter(|client| !client.is_killed());
        close_largest(clients.map(|client| (client.memory_bytes() as u64, client)).collect(), bytes_max)
    }

    /// Like [`evict`](Self::evict), but closes clients that have not logged in, and counts their requests and replies
    /// only.
    pub(crate) fn evict_logged_out(&self, bytes_max: u64) -> (u64, u64) {
        if self.logged_out_count() == 0 {
            return (0, 0);
        }
        let is_counted = |client: &Arc<Client>| client.is_logged_out() && !client.is_killed();
        let clients = self.all().into_iter().filter(is_counted);
        close_largest(clients.map(|client| (client.buffer_bytes() as u64, client)).collect(), bytes_max)
    }

    pub(crate) fn blocked_count(&self) -> usize {
        self.blocked.load(Ordering::Relaxed)
    }
}

/// Closes clients, each with its bytes, until the others use at most `bytes_max`.
fn close_largest(mut clients: Vec<(u64, Arc<Client>)>, bytes_max: u64) -> (u64, u64) {
    let mut used: u64 = clients.iter().map(|(bytes, _)| bytes).sum();
    clients.retain(|(_, client)| !client.has(flags::NO_EVICT));
    clients.sort_by_key(|(bytes, _)| *bytes);
    let (mut closed, mut freed) = (0, 0);
    while used > bytes_max
        && let Some((bytes, client)) = clients.pop()
    {
        client.kill();
        used -= bytes;
        freed += bytes;
        closed += 1;
    }
    (closed, freed)
}

impl Client {
    fn new(id: u64, info: ConnectionInfo, uptime_ms: u64, registry: &Registry) -> Client {
        Client {
            id,
            addr: info.addr,
            laddr: info.laddr,
            fd: info.fd,
            transport: info.transport,
            connected_at_ms: uptime_ms,
            active_at_ms: AtomicU64::new(uptime_ms),
            labels: Mutex::default(),
            user: Mutex::default(),
            db: AtomicU32::new(0),
            resp: AtomicU8::new(2),
            flags: AtomicU32::new(0),
            queued: AtomicI64::new(-1),
            watched: AtomicUsize::new(0),
            input_bytes: AtomicUsize::new(0),
            output_bytes: AtomicUsize::new(0),
            queued_bytes: AtomicUsize::new(0),
            watched_bytes: AtomicUsize::new(0),
            blocked_bytes: AtomicUsize::new(0),
            tls_bytes: AtomicUsize::new(0),
            login_due_since_ms: AtomicU64::new(LOGGED_IN),
            last_command: AtomicUsize::new(usize::MAX),
            is_killed: AtomicBool::new(false),
            blocked_call: Mutex::default(),
            blocked: Arc::clone(&registry.blocked),
            logged_out: Arc::clone(&registry.logged_out),
            unserved: Arc::clone(&registry.unserved),
            waker: OnceLock::new(),
        }
    }

    /// Sets the user that it has authenticated as. Returns false if the user was removed: then it may not be this user.
    ///
    /// The order matters: the thread that removes a user first marks it and then looks for its clients.
    pub(crate) fn set_user(&self, user: Option<Arc<User>>) -> bool {
        *self.user.lock() = user.clone();
        user.is_none_or(|user| !user.is_removed())
    }

    pub(crate) fn is_user(&self, user: &Arc<User>) -> bool {
        self.user.lock().as_ref().is_some_and(|own| Arc::ptr_eq(own, user))
    }

    /// Returns the name of its user. A client that has yet to authenticate is `default`.
    pub(crate) fn user_name(&self) -> Vec<u8> {
        self.user.lock().as_ref().map_or(DEFAULT_USER, |user| user.name()).to_vec()
    }

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

    /// Returns about how much memory it uses, in bytes: its connection, and everything whose size the client controls.
    pub(crate) fn memory_bytes(&self) -> usize {
        let counts = [
            &self.input_bytes,
            &self.output_bytes,
            &self.queued_bytes,
            &self.watched_bytes,
            &self.blocked_bytes,
            &self.tls_bytes,
        ];
        counts.iter().map(|count| count.load(Ordering::Relaxed)).sum::<usize>() + CONNECTION_BYTES
    }

    fn buffer_bytes(&self) -> usize {
        self.input_bytes.load(Ordering::Relaxed) + self.output_bytes.load(Ordering::Relaxed)
    }

    /// Returns the table index of the command it ran last, or `usize::MAX` if it has run none.
    pub(crate) fn last_command(&self) -> usize {
        self.last_command.load(Ordering::Relaxed)
    }

    pub(crate) fn set_last_command(&self, index: usize) {
        self.last_command.store(index, Ordering::Relaxed);
    }

    pub(crate) fn set_logged_in(&self) {
        let since_ms = self.login_due_since_ms.swap(LOGGED_IN, Ordering::Relaxed);
        if since_ms != LOGGED_IN {
            self.logged_out.lock().remove(&(since_ms, self.id));
        }
    }

    /// Records that the client must log in, from now on. If it must already, nothing changes: RESET gives it no more
    /// time.
    pub(crate) fn set_logged_out(&self, uptime_ms: u64) {
        if !self.is_logged_out() {
            self.login_due_since_ms.store(uptime_ms, Ordering::Relaxed);
            self.logged_out.lock().insert((uptime_ms, self.id));
        }
    }

    fn is_logged_out(&self) -> bool {
        self.login_due_since_ms.load(Ordering::Relaxed) != LOGGED_IN
    }

    /// Returns for how long the client has had to log in and has not, in milliseconds; `None` if it is logged in.
    pub(crate) fn logged_out_ms(&self, uptime_ms: u64) -> Option<u64> {
        let since_ms = self.login_due_since_ms.load(Ordering::Relaxed);
        (since_ms != LOGGED_IN).then(|| uptime_ms.saturating_sub(since_ms))
    }

    /// Asks the connection's thread to close the connection.
    pub(crate) fn kill(&self) {
        self.is_killed.store(true, Ordering::Release);
        self.wake();
    }

    /// Ends its blocked command. Returns false if the client is not blocked, or its command has a result already.
    pub(crate) fn unblock(&self, how: UnblockReason) -> bool {
        let mut call = self.blocked_call.lock();
        if !call.is_blocked {
            return false;
        }
        self.finish(&mut call, BlockedResult::Unblocked(how));
        true
    }

    fn wake(&self) {
        if let Some(waker) = self.waker.get() {
            waker.wake_by_ref();
        }
    }

    /// Marks the client as blocked. Returns the number of the call, which its result must carry.
    pub(crate) fn begin_blocking(&self) -> u64 {
        let mut call = self.blocked_call.lock();
        *call = BlockedCall { number: call.number + 1, is_blocked: true, result: None };
        self.set(flags::BLOCKED, true);
        self.blocked.fetch_add(1, Ordering::Relaxed);
        call.number
    }

    /// Whether the client is still blocked in the call of this number.
    pub(crate) fn is_blocked_in(&self, number: u64) -> bool {
        let call = self.blocked_call.lock();
        call.number == number && call.is_blocked
    }

    /// Stores the result of a blocked command and wakes its connection. Ignored if the call has ended.
    ///
    /// The result replaces an earlier CLIENT UNBLOCK: the command has run by now, and the client must receive the
    /// entries that were delivered to it.
    pub(crate) fn set_result(&self, number: u64, result: BlockedResult) {
        let mut call = self.blocked_call.lock();
        if call.number == number {
            self.finish(&mut call, result);
        }
    }

    pub(crate) fn end_blocking(&self) {
        self.mark_unblocked(&mut self.blocked_call.lock());
    }

    fn finish(&self, call: &mut BlockedCall, result: BlockedResult) {
        call.result = Some(result);
        self.mark_unblocked(call);
        self.wake();
    }

    fn mark_unblocked(&self, call: &mut BlockedCall) {
        if std::mem::take(&mut call.is_blocked) {
            self.set(flags::BLOCKED, false);
            self.blocked.fetch_sub(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn has_result(&self) -> bool {
        self.blocked_call.lock().result.is_some()
    }

    /// Ends the call and takes its result, if it has one. A later result is ignored.
    pub(crate) fn take_result(&self) -> Option<BlockedResult> {
        let mut call = self.blocked_call.lock();
        self.mark_unblocked(&mut call);
        call.number += 1;
        call.result.take()
    }

    /// Sets the waker of the connection's task. Called once, before the task first checks whether it was killed or has
    /// a result.
    pub(crate) fn set_waker(&self, waker: &Waker) {
        self.waker.get_or_init(|| waker.clone());
    }

    /// Returns whether it runs on this machine: it connected to the Unix socket or from a loopback address.
    pub(crate) fn is_local(&self) -> bool {
        let is_loopback = |addr: SocketAddr| addr.ip().to_canonical().is_loopback();
        self.transport == Transport::UnixSocket || self.addr.parse().is_ok_and(is_loopback)
    }

    pub(crate) fn is_killed(&self) -> bool {
        self.is_killed.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info() -> ConnectionInfo {
        ConnectionInfo {
            addr: "1.2.3.4:5".into(),
            laddr: "127.0.0.1:6379".into(),
            fd: 9,
            transport: Transport::Tcp,
        }
    }

    #[test]
    fn client_ids_rise_and_the_limit_holds() {
        let registry = Registry::default();
        let first = registry.add(info(), 0, 2, false).unwrap();
        let second = registry.add(info(), 0, 2, false).unwrap();
        assert_eq!((first.id, second.id), (1, 2));
        assert!(registry.add(info(), 0, 2, false).is_none());
        registry.remove(1);
        assert_eq!(registry.add(info(), 0, 2, false).unwrap().id, 3);
        assert_eq!(registry.all().iter().map(|client| client.id).collect::<Vec<_>>(), [2, 3]);
    }

    #[test]
    fn clients_that_have_not_logged_in_give_way_to_new_ones_when_places_are_short() {
        let registry = Registry::default();
        let closed = || registry.close_longest_logged_out(20).map(|client| client.id);
        // While the server is not nearly full, any number of clients may be logged out.
        let clients: Vec<_> = (0..17).map(|_| registry.add(info(), 5, 20, true).unwrap()).collect();
        assert_eq!((registry.logged_out_count(), closed()), (17, None));
        registry.add(info(), 4, 20, true).unwrap();
        // The one that has been logged out for longest is closed. The registry forgets it when its connection has
        // ended.
        assert_eq!(closed(), Some(18));
        assert_eq!(closed(), Some(1));
        assert!(clients[0].is_killed() && !clients[1].is_killed());
        clients.iter().skip(3).for_each(|client| client.set_logged_in());
        // Two of 18 are logged out: a tenth of 20.
        assert_eq!((registry.logged_out_count(), closed()), (2, Some(2)));
        assert_eq!((registry.logged_out_count(), closed()), (1, None));
        clients[0].set_logged_in();
        registry.remove(18);
        assert_eq!(registry.logged_out_count(), 1);
    }

    #[test]
    fn time_since_a_client_must_log_in_is_known() {
        let registry = Registry::default();
        let client = registry.add(info(), 100, 1, true).unwrap();
        // RESET does not begin it anew.
        client.set_logged_out(140);
        assert_eq!(client.logged_out_ms(150), Some(50));
        client.set_logged_in();
        assert_eq!(client.logged_out_ms(170), None);
        client.set_logged_out(180);
        assert_eq!((client.logged_out_ms(190), registry.logged_out_count()), (Some(10), 1));
    }

    #[test]
    fn clients_that_have_not_logged_in_are_evicted_by_their_requests_and_replies() {
        let registry = Registry::default();
        let add = |must_log_in, input: usize, output: usize| {
            let client = registry.add(info(), 0, 100, must_log_in).unwrap();
            client.input_bytes.store(input, Ordering::Relaxed);
            client.output_bytes.store(output, Ordering::Relaxed);
            client
        };
        let (small, large) = (add(true, 100, 0), add(true, 5_000, 1_000));
        let logged_in = add(false, 90_000, 0);
        assert_eq!(registry.evict_logged_out(6_100), (0, 0));
        assert_eq!(registry.evict_logged_out(6_099), (1, 6_000));
        assert!(large.is_killed() && !small.is_killed() && !logged_in.is_killed());
    }

    #[test]
    fn clients_of_the_unix_socket_and_of_loopback_addresses_are_local() {
        let is_local = |addr: &str, transport| {
            let info = ConnectionInfo { addr: addr.into(), transport, ..info() };
            Registry::default().add(info, 0, 1, false).unwrap().is_local()
        };
        for addr in ["127.0.0.1:5", "127.9.9.9:5", "[::1]:5", "[::ffff:127.0.0.1]:5"] {
            assert!(is_local(addr, Transport::Tcp), "{addr}");
        }
        for addr in ["1.2.3.4:5", "[2001:db8::1]:5", "[::ffff:1.2.3.4]:5", "/tmp/127.0.0.1:0", ""] {
            assert!(!is_local(addr, Transport::Tcp), "{addr}");
        }
        assert!(!is_local("dashboard:0", Transport::InProcess));
        assert!(is_local("/run/millstream.sock:0", Transport::UnixSocket));
    }

    #[test]
    fn clients_that_use_most_memory_are_evicted_first() {
        let registry = Registry::default();
        let add = |bytes: usize| {
            let client = registry.add(info(), 0, 100, false).unwrap();
            client.input_bytes.store(bytes, Ordering::Relaxed);
            client
        };
        let (small, large, exempt, middle) = (add(1000), add(50_000), add(90_000), add(20_000));
        exempt.set(flags::NO_EVICT, true);
        let total = registry.memory_bytes();
        assert_eq!(total, 161_000 + 4 * CONNECTION_BYTES as u64);
        // At the limit, no client is closed.
        assert_eq!(registry.evict(total), (0, 0));
        assert_eq!(registry.evict(total - 1), (1, 50_000 + CONNECTION_BYTES as u64));
        assert!(large.is_killed() && !middle.is_killed());
        // A client that is about to be closed does not count again.
        assert_eq!(registry.evict(total - 50_000 - CONNECTION_BYTES as u64), (0, 0));
        assert_eq!(registry.evict(0).0, 2);
        assert!(small.is_killed() && middle.is_killed() && !exempt.is_killed());
    }

    #[test]
    fn result_of_an_ended_call_is_ignored() {
        let registry = Registry::default();
        let client = registry.add(info(), 0, 1, false).unwrap();
        let first = client.begin_blocking();
        assert!(!client.has_result());
        assert_eq!(client.take_result(), None);
        client.set_result(first, BlockedResult::Reply(b"late".to_vec()));
        assert!(!client.has_result());
        let second = client.begin_blocking();
        client.set_result(first, BlockedResult::Panicked);
        assert!(!client.has_result());
        client.set_result(second, BlockedResult::Reply(b"in time".to_vec()));
        assert!(client.has_result());
        assert_eq!(client.take_result(), Some(BlockedResult::Reply(b"in time".to_vec())));
        assert_eq!(client.take_result(), None);
    }

    #[test]
    fn unblock_needs_a_call_without_result_and_a_reply_replaces_it() {
        let registry = Registry::default();
        let client = registry.add(info(), 0, 1, false).unwrap();
        assert!(!client.unblock(UnblockReason::Error));
        let call = client.begin_blocking();
        assert!(client.is_blocked_in(call) && client.has(flags::BLOCKED));
        assert_eq!(registry.blocked_count(), 1);
        assert!(client.unblock(UnblockReason::Timeout) && !client.unblock(UnblockReason::Error));
        assert!(!client.is_blocked_in(call) && !client.has(flags::BLOCKED));
        assert_eq!(registry.blocked_count(), 0);
        client.set_result(call, BlockedResult::Reply(b"made meanwhile".to_vec()));
        assert!(!client.unblock(UnblockReason::Timeout));
        assert_eq!(client.take_result(), Some(BlockedResult::Reply(b"made meanwhile".to_vec())));
        assert_eq!(registry.blocked_count(), 0);
        client.kill();
        assert!(client.is_killed());
    }
}
