//! The state that all threads share: data, settings, clients, statistics.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use millstream_protocol::errors::{self, CommandError};
use millstream_store::log::{LogError, Policy};
use millstream_store::{Store, monotonic_ns};
use parking_lot::Mutex;

use crate::acl::{AclLog, Users};
use crate::event_log::{EventKind, EventLog, Level};
use crate::memory;
use crate::memory_monitor::Evicted;
use crate::pause::Pause;
use crate::persistence::Persistence;
use crate::registry::Registry;
use crate::settings::{CLIENT_MEMORY_AUTO, Id, Settings, Value};
use crate::shutdown::Shutdown;
use crate::slowlog::Slowlog;
use crate::stats::{Event, Stats};
use crate::tls::{NewConfig, Tls};

pub(crate) const NANOS_PER_MILLI: u64 = 1_000_000;

/// A reply of up to this many bytes is always sent, whatever `client-output-buffer-limit` is. Otherwise a small limit
/// would close even the connection of the operator who wants to raise it. Redis has a buffer of this size per client
/// that its limit does not count.
const SMALL_REPLY_BYTES: usize = 16 << 10;

/// The smallest reserve above `maxmemory`, in bytes.
const RESERVE_BYTES_MIN: u64 = 16 << 20;
/// The smallest effective `maxmemory-clients`, in bytes, as in Redis. Otherwise a small limit would close even the
/// connection of the operator who wants to raise it.
const CLIENT_BYTES_MAX_MIN: u64 = 128 << 10;
/// With `maxmemory-clients auto`, clients together may always use this much, in bytes. So a small server that is full
/// still serves entries and values of many megabytes.
const CLIENT_BYTES_AUTO_MIN: u64 = 64 << 20;

/// The state that all threads of a server share.
pub struct Server {
    /// The data. A program that runs the server in its own process can use it too.
    pub store: Arc<Store>,
    /// The settings in force.
    pub settings: Settings,
    pub(crate) users: Users,
    pub(crate) acl_log: AclLog,
    pub(crate) clients: Registry,
    pub(crate) stats: Stats,
    pub(crate) slowlog: Slowlog,
    pub(crate) event_log: Arc<EventLog>,
    pub(crate) pause: Pause,
    pub(crate) persistence: Persistence,
    /// Asks the server to stop.
    pub shutdown: Shutdown,
    /// The TCP addresses it listens on without TLS.
    pub addresses: Vec<SocketAddr>,
    /// The TCP addresses it listens on with TLS.
    pub tls_addresses: Vec<SocketAddr>,
    /// Certificates and handshakes. `None` if the setting `tls-port` is 0.
    pub(crate) tls: Option<Tls>,
    /// Forty hexadecimal digits, new at each start.
    pub(crate) run_id: String,
    /// Bytes in use before the data was loaded.
    pub(crate) startup_bytes: u64,
    /// Clients that were closed because of their memory, since the last line of the event log about them.
    pub(crate) evicted: Mutex<Evicted>,
    /// Maximum bytes of a reply, as [`limit_clients`](Server::limit_clients) has computed it.
    reply_bytes_max: AtomicUsize,
    /// The lowest memory since `maxmemory` was exceeded, without that of clients, in bytes. Before that, `maxmemory`.
    lowest_bytes: AtomicU64,
    /// Locked while settings are changed.
    settings_change: Mutex<()>,
    started_ns: u64,
}

impl Server {
    pub(crate) fn new(
        settings: Settings,
        addresses: Vec<SocketAddr>,
        tls: Option<(Tls, Vec<SocketAddr>)>,
        store: Arc<Store>,
        users: Users,
        command_count: usize,
    ) -> Server {
        let (tls, tls_addresses) = tls.unzip();
        let persistence = Persistence::new(store.now_ms() / 1000);
        let stats = Stats::new(settings.size(Id::IoThreads), command_count, store.expired_keys());
        Server {
            store,
            users,
            acl_log: AclLog::default(),
            clients: Registry::default(),
            stats,
            slowlog: Slowlog::default(),
            event_log: Arc::new(EventLog::new(&settings)),
            pause: Pause::default(),
            persistence,
            shutdown: Shutdown::default(),
            addresses,
            tls_addresses: tls_addresses.unwrap_or_default(),
            tls,
            run_id: random_hex(40),
            startup_bytes: 0,
            evicted: Mutex::default(),
            reply_bytes_max: AtomicUsize::new(usize::MAX),
            lowest_bytes: AtomicU64::new(u64::MAX),
            settings_change: Mutex::new(()),
            started_ns: monotonic_ns(),
            settings,
        }
    }

    /// Returns the milliseconds since the start.
    pub fn uptime_ms(&self) -> u64 {
        self.uptime_ns() / NANOS_PER_MILLI
    }

    /// Returns the nanoseconds since the start. Called for almost every command.
    #[inline]
    pub(crate) fn uptime_ns(&self) -> u64 {
        self.uptime_at(monotonic_ns())
    }

    /// Converts a reading of the monotonic clock to nanoseconds since the start.
    #[inline]
    pub(crate) fn uptime_at(&self, monotonic_ns: u64) -> u64 {
        monotonic_ns.saturating_sub(self.started_ns)
    }

    /// Returns the moment at which the uptime will be `uptime_ns`.
    ///
    /// The moment is computed from the current time, because an [`Instant`] stops while the machine sleeps, and the
    /// uptime does not.
    pub(crate) fn instant_at(&self, uptime_ns: u64) -> Instant {
        let left_ns = uptime_ns.saturating_sub(self.uptime_ns());
        Instant::now() + Duration::from_nanos(left_ns)
    }

    /// Returns whether clients must log in before they can run commands.
    pub fn requires_login(&self) -> bool {
        self.users.requires_login()
    }

    /// Adds an event to the audit log, unless `audit-log` excludes it. For the arguments see [`EventLog::note`].
    pub(crate) fn audit(&self, kind: EventKind, addr: &str, user: Option<&str>, what: &str) {
        let is_wanted = match &*self.settings.text(Id::AuditLog) {
            "no" => false,
            "no-connections" => !matches!(kind, EventKind::Connected | EventKind::LoggedIn),
            _ => true,
        };
        if is_wanted {
            self.note_event(kind, addr, user, what);
        }
    }

    /// Adds an event that a client caused to the event log. For the arguments see [`EventLog::note`].
    pub(crate) fn note_event(&self, kind: EventKind, addr: &str, user: Option<&str>, what: &str) {
        self.event_log.note(kind, addr, user, what, self.uptime_ms());
    }

    #[inline]
    pub(crate) fn reply_bytes_max(&self) -> usize {
        self.reply_bytes_max.load(Ordering::Relaxed)
    }

    /// Closes the clients that use most memory if all together use too much, and computes how long a reply may be: no
    /// longer than what all clients together may use. Called ten times a second, when settings change, and when a
    /// client leaves a large reply unread.
    pub(crate) fn limit_clients(&self) {
        self.note_lowest_bytes();
        let bytes_max = self.client_bytes_max();
        let (closed, freed) = bytes_max.map_or((0, 0), |bytes_max| self.clients.evict(bytes_max));
        if closed > 0 {
            self.note_evicted((closed, freed));
        }
        let setting = match self.settings.size(Id::ClientOutputBufferLimit) {
            0 => usize::MAX,
            limit => limit.max(SMALL_REPLY_BYTES),
        };
        let of_clients = bytes_max.map_or(u64::MAX, |bytes| bytes.max(CLIENT_BYTES_AUTO_MIN));
        let reply_bytes_max = setting.min(usize::try_from(of_clients).unwrap_or(usize::MAX));
        self.reply_bytes_max.store(reply_bytes_max, Ordering::Relaxed);
    }

    /// Counts clients that were closed because of their memory, and their bytes.
    pub(crate) fn note_evicted(&self, (clients, bytes): (u64, u64)) {
        self.stats.note_many(Event::EvictedClient, clients);
        self.evicted.lock().add((clients, bytes));
    }

    /// Returns an error if the log cannot take a change of about `bytes` bytes.
    pub(crate) fn check_writable(&self, bytes: u64) -> Result<(), CommandError> {
        self.store.check_writable(bytes).map_err(|error| not_writable(&error))
    }

    #[inline]
    pub(crate) fn maxmemory(&self) -> u64 {
        self.settings.number(Id::MaxMemory).unsigned_abs()
    }

    /// Returns whether more memory is in use than `maxmemory`. Called for every command that adds data.
    #[inline]
    pub(crate) fn is_above_maxmemory(&self) -> bool {
        let limit = self.maxmemory();
        limit != 0 && memory::used_bytes() > limit
    }

    pub(crate) fn fits_into_maxmemory(&self, bytes: u64) -> bool {
        let limit = self.maxmemory();
        limit == 0 || memory::used_bytes().saturating_add(bytes) <= limit
    }

    /// Returns whether `bytes` more fit into the reserve above `maxmemory`. Data may use it that helps to acknowledge
    /// entries: dead letters, and what is added in a transaction with an acknowledgement.
    pub(crate) fn fits_into_reserve(&self, bytes: u64) -> bool {
        let limit = self.maxmemory();
        limit == 0 || memory::used_bytes().saturating_add(bytes) <= limit.saturating_add(reserve_bytes(limit))
    }

    /// Returns whether `bytes` more fit into the *consumer reserve*: what pending entries and new consumers may use
    /// above `maxmemory`. It is twice the reserve, so that consumers can read and acknowledge while dead letters fill
    /// the reserve.
    ///
    /// It begins at the lowest memory since `maxmemory` was exceeded. So consumers can also empty a server whose data
    /// exceeds the limit, for example after a restart. The memory of clients does not count: they must not keep
    /// consumers from reading.
    pub(crate) fn fits_into_consumer_reserve(&self, bytes: u64) -> bool {
        let limit = self.maxmemory();
        let lowest = self.lowest_bytes.load(Ordering::Relaxed).max(limit);
        limit == 0
            || self.bytes_without_clients().saturating_add(bytes)
                <= lowest.saturating_add(2 * reserve_bytes(limit))
    }

    fn note_lowest_bytes(&self) {
        let (limit, used) = (self.maxmemory(), self.bytes_without_clients());
        let lowest = match limit {
            0 => u64::MAX,
            limit if used <= limit => limit,
            _ => used.min(self.lowest_bytes.load(Ordering::Relaxed)),
        };
        self.lowest_bytes.store(lowest, Ordering::Relaxed);
    }

    fn bytes_without_clients(&self) -> u64 {
        memory::used_bytes().saturating_sub(self.clients.memory_bytes())
    }

    /// Returns an error if the arguments of a command that changes users or settings do not fit into the reserve.
    pub(crate) fn check_reserve(&self, argv: &[&[u8]]) -> Result<(), CommandError> {
        let bytes = argv.iter().map(|arg| arg.len() as u64).sum();
        if self.fits_into_reserve(bytes) { Ok(()) } else { Err(errors::OUT_OF_MEMORY) }
    }

    /// Returns how much memory all clients together may use, in bytes; `None`: no limit.
    pub(crate) fn client_bytes_max(&self) -> Option<u64> {
        let limit = self.settings.number(Id::MaxMemoryClients);
        let bytes = match limit {
            CLIENT_MEMORY_AUTO => return self.client_bytes_auto(),
            0.. => limit.unsigned_abs(),
            // Negative: a share of `maxmemory`.
            _ => self.maxmemory() / 100 * limit.unsigned_abs(),
        };
        (bytes != 0).then_some(bytes.max(CLIENT_BYTES_MAX_MIN))
    }

    /// Returns what `maxmemory-clients auto` allows: half of what everything else leaves, so that data can always be
    /// added while clients do not read their replies. `None` if there is no `maxmemory`.
    fn client_bytes_auto(&self) -> Option<u64> {
        let limit = self.maxmemory();
        let half = limit.saturating_sub(self.bytes_without_clients()) / 2;
        (limit != 0).then_some(half.max(limit / 8).max(CLIENT_BYTES_AUTO_MIN))
    }

    /// Changes all of these settings, or none of them if one is invalid. Returns those that changed.
    pub(crate) fn change_settings(&self, pairs: &[(&str, &str)]) -> Result<Vec<Id>, CommandError> {
        // One change at a time, so that the store gets the values of the latest change last.
        let _turn = self.settings_change.lock();
        let values = self.settings.parse_change(pairs)?;
        let tls = self.tls.as_ref().map_or(Ok(None), |tls| tls.prepare(&self.settings, &values));
        let tls = tls.map_err(|error| {
            let is_cause = |(name, _): &&(&str, &str)| name.eq_ignore_ascii_case(error.setting().name);
            let (name, _) = pairs.iter().find(is_cause).unwrap_or(&pairs[0]);
            errors::invalid_setting(name.as_bytes(), &error.to_string())
        })?;
        Ok(self.apply_settings(values, tls))
    }

    /// Changes all of these settings and reads the TLS files again, or does nothing if a value or a file is invalid.
    /// Returns whether there are TLS files.
    pub(crate) fn reload(&self, values: Vec<(Id, Value)>) -> Result<bool, String> {
        let _turn = self.settings_change.lock();
        for (id, value) in &values {
            let name = id.setting().name;
            self.settings.check_clients(*id, value).map_err(|error| format!("{name}: {error}"))?;
        }
        let tls = self.tls.as_ref().map(|tls| tls.read_again(&self.settings, &values)).transpose();
        let tls = tls.map_err(|error| {
            format!("the server cannot use the TLS files, and keeps the earlier ones: {error}")
        })?;
        let has_tls = tls.is_some();
        self.apply_settings(values, tls);
        Ok(has_tls)
    }

    fn apply_settings(&self, values: Vec<(Id, Value)>, new_tls: Option<NewConfig>) -> Vec<Id> {
        let changed = self.settings.apply(values);
        if let (Some(tls), Some(config)) = (&self.tls, new_tls) {
            tls.replace(config);
        }
        self.apply_store_settings();
        self.event_log.configure(&self.settings);
        if changed.contains(&Id::RequirePass) {
            self.users.set_default_password(&self.settings.text(Id::RequirePass));
        }
        changed
    }

    /// Reads the TLS files again, and logs whether the server uses them.
    pub(crate) fn reload_tls(&self, reason: &str) {
        let Some(tls) = &self.tls else { return };
        let _turn = self.settings_change.lock();
        let (level, result) = match tls.read_again(&self.settings, &[]).map(|new| tls.replace(new)) {
            Ok(()) => (
                Level::Notice,
                "the server has read the TLS files again, and uses them for new connections".to_owned(),
            ),
            Err(error) => (
                Level::Warning,
                format!("the server cannot use the new TLS files, and keeps the earlier ones: {error}"),
            ),
        };
        self.event_log.write(level, &format!("{reason}: {result}"));
    }

    /// Updates the store's copies of the settings that the store uses.
    pub(crate) fn apply_store_settings(&self) {
        use std::sync::atomic::Ordering::Relaxed;
        let number = |id| u64::try_from(self.settings.number(id)).unwrap_or(0);
        let store = self.store.settings();
        store.stream_node_max_bytes.store(number(Id::StreamNodeMaxBytes), Relaxed);
        store.stream_node_max_entries.store(number(Id::StreamNodeMaxEntries), Relaxed);
        store.stream_idmp_duration.store(number(Id::StreamIdmpDuration), Relaxed);
        store.stream_idmp_maxsize.store(number(Id::StreamIdmpMaxsize), Relaxed);
        store.string_max_bytes.store(number(Id::ProtoMaxBulkLen), Relaxed);
        store.exact_lag.store(self.settings.is_on(Id::ExactLag), Relaxed);
        self.store.set_policy(policy(&self.settings));
        self.limit_clients();
    }
}

fn reserve_bytes(limit: u64) -> u64 {
    (limit / 8).max(RESERVE_BYTES_MIN)
}

/// Returns the error reply to a change that the log cannot take.
#[cold]
pub(crate) fn not_writable(error: &LogError) -> CommandError {
    match error {
        LogError::ChangeTooLarge { .. } => errors::change_too_large(&error.to_string()),
        _ => errors::not_writable(&error.to_string()),
    }
}

pub(crate) fn policy(settings: &Settings) -> Policy {
    match &*settings.text(Id::AppendFsync) {
        "everysec" => Policy::EverySecond,
        "no" => Policy::Never,
        _ => Policy::Always,
    }
}

/// Returns random hexadecimal digits, from the random source that seeds hash tables.
fn random_hex(digits: usize) -> String {
    use std::hash::{BuildHasher, RandomState};
    let mut text = String::with_capacity(digits + 16);
    while text.len() < digits {
        text.push_str(&format!("{:016x}", RandomState::new().hash_one(text.len())));
    }
    text.truncate(digits);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_hex_has_the_given_length_and_differs() {
        let (one, two) = (random_hex(40), random_hex(40));
        assert_eq!(one.len(), 40);
        assert!(one.bytes().all(|digit| digit.is_ascii_hexdigit()));
        assert_ne!(one, two);
    }
}
