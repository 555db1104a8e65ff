//! What all threads share, and the life of a server: start, run, stop.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use millstream_engine::BlockLimits;
use millstream_protocol::errors::{self, CommandError};
use millstream_protocol::table::COMMANDS;
use millstream_store::log::Policy;
use millstream_store::{
    FolderError, FolderOptions, Recovered, RecoveryProgress, Store, StoreOptions, monotonic_ns,
};
use parking_lot::Mutex;

use crate::accept;
use crate::descriptors;
use crate::housekeeping;
use crate::io_thread::IoThread;
use crate::listen::{ListenError, Listeners};
use crate::pause::Pause;
use crate::persistence::Persistence;
use crate::registry::Registry;
use crate::settings::{Id, Settings};
use crate::shutdown::Shutdown;
use crate::slowlog::Slowlog;
use crate::stats::Stats;

pub(crate) const NANOS_PER_MILLI: u64 = 1_000_000;

/// What all threads share.
pub struct Server {
    /// The data. Programs that run the server in their own process share it.
    pub store: Arc<Store>,
    /// The settings in force.
    pub settings: Settings,
    /// Who is connected.
    pub clients: Registry,
    /// What was counted.
    pub stats: Stats,
    /// Commands that took long.
    pub slowlog: Slowlog,
    /// CLIENT PAUSE.
    pub pause: Pause,
    /// Snapshots.
    pub persistence: Persistence,
    /// Asks the server to stop.
    pub shutdown: Shutdown,
    /// The addresses it listens on.
    pub addresses: Vec<SocketAddr>,
    /// Forty hexadecimal digits, new at each start.
    pub run_id: String,
    /// Held by whoever changes settings.
    changing: Mutex<()>,
    started_ns: u64,
}

/// A server that listens, and serves once [`run`](Running::run) is called.
pub struct Running {
    server: Arc<Server>,
    listeners: Listeners,
    threads: Vec<IoThread>,
    recovered: Option<Recovered>,
}

/// Why a server did not start.
#[derive(Debug)]
pub enum StartError {
    /// Nothing to listen on.
    Listen(ListenError),
    /// The folder of the data cannot be opened.
    Folder {
        /// The folder.
        path: PathBuf,
        /// What is wrong with it.
        source: FolderError,
    },
    /// A thread or a runtime could not be made.
    Threads(io::Error),
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StartError::Listen(error) => error.fmt(f),
            StartError::Folder { path, source } => {
                let dir = path.display();
                writeln!(f, "cannot open the data folder {dir}: {source}.")?;
                // Where there is no folder there is nothing to look into, nor is there where the folder is sound.
                match path.is_dir() {
                    true if matches!(source, FolderError::TooFewDatabases { .. }) => {
                        f.write_str("Nothing in it was changed, and nothing is damaged")
                    }
                    true => write!(
                        f,
                        "Nothing in it was changed. Choose another with --dir, \
                         or look into it with: millstream check {dir}"
                    ),
                    false => f.write_str("Choose another with --dir"),
                }
            }
            StartError::Threads(source) => write!(f, "cannot start a thread: {source}"),
        }
    }
}

impl std::error::Error for StartError {}

impl Server {
    /// Opens sockets and starts threads. Clients are served once [`Running::run`] is called.
    pub fn start(settings: Settings) -> Result<Running, StartError> {
        let listeners = Listeners::open(&settings).map_err(StartError::Listen)?;
        descriptors::allow_clients(&settings);
        let (store, recovered) = open_store(&settings)?;
        let server = Arc::new(Server::new(settings, listeners.addresses(), Arc::new(store)));
        server.apply_store_settings();
        let threads = (0..server.settings.size(Id::IoThreads))
            .map(|number| IoThread::start(number, &server))
            .collect::<io::Result<Vec<_>>>()
            .map_err(StartError::Threads)?;
        Ok(Running { server, listeners, threads, recovered })
    }

    fn new(settings: Settings, addresses: Vec<SocketAddr>, store: Arc<Store>) -> Server {
        let persistence = Persistence::new(store.now_ms() / 1000);
        let stats = Stats::new(settings.size(Id::IoThreads), COMMANDS.len(), store.expired_keys());
        Server {
            store,
            clients: Registry::default(),
            stats,
            slowlog: Slowlog::default(),
            pause: Pause::default(),
            persistence,
            shutdown: Shutdown::default(),
            addresses,
            run_id: random_hex(40),
            changing: Mutex::new(()),
            started_ns: monotonic_ns(),
            settings,
        }
    }

    /// Milliseconds since the start.
    pub fn uptime_ms(&self) -> u64 {
        self.uptime_ns() / NANOS_PER_MILLI
    }

    /// Nanoseconds since the start, read for every command.
    #[inline]
    pub(crate) fn uptime_ns(&self) -> u64 {
        self.uptime_at(monotonic_ns())
    }

    /// The same for whoever has just read the monotonic clock.
    #[inline]
    pub(crate) fn uptime_at(&self, monotonic_ns: u64) -> u64 {
        monotonic_ns.saturating_sub(self.started_ns)
    }

    /// The moment when the uptime will be this. Counted from now: an [`Instant`] stands still while the machine sleeps, and the
    /// uptime does not.
    pub(crate) fn instant_at(&self, uptime_ns: u64) -> Instant {
        let left_ns = uptime_ns.saturating_sub(self.uptime_ns());
        Instant::now() + Duration::from_nanos(left_ns)
    }

    /// Refuses a command that would change something and takes about so many bytes in the log, if that cannot be kept.
    pub(crate) fn check_writable(&self, bytes: u64) -> Result<(), CommandError> {
        self.store.check_writable(bytes).map_err(|error| errors::not_writable(&error.to_string()))
    }

    /// Changes all of these settings or none, and says which.
    pub(crate) fn change_settings(&self, pairs: &[(&str, &str)]) -> Result<Vec<Id>, CommandError> {
        // One at a time: of two changes, the later one is what the store must get last.
        let _turn = self.changing.lock();
        let changed = self.settings.change(pairs)?;
        self.apply_store_settings();
        Ok(changed)
    }

    /// Hands the store what it reads by itself.
    fn apply_store_settings(&self) {
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
    }
}

impl Running {
    /// The addresses it listens on.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.server.addresses
    }

    /// The settings in force.
    pub fn settings(&self) -> &Settings {
        &self.server.settings
    }

    /// What was found in the data folder; `None` if everything is in memory.
    pub fn recovered(&self) -> Option<&Recovered> {
        self.recovered.as_ref()
    }

    /// What all threads share; to stop the server from elsewhere, keep it and use [`Server::shutdown`].
    pub fn server(&self) -> &Arc<Server> {
        &self.server
    }

    /// Serves until SIGTERM, SIGINT, SHUTDOWN or [`Shutdown::begin`]. What runs is finished: a batch that has
    /// begun is answered. A second signal ends the process at once.
    pub fn run(self) -> io::Result<()> {
        let Running { server, listeners, threads, .. } = self;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let _signals = crate::shutdown::listen_for_signals(&server)?;
            let housekeeping = housekeeping::start(&server)?;
            let entrances: Vec<_> = threads.iter().map(IoThread::entrance).collect();
            let accepted = accept::run(&server, listeners, &entrances).await;
            server.shutdown.begin();
            // Waited for elsewhere, so that a second signal is heard meanwhile.
            let joined = tokio::task::spawn_blocking(|| {
                threads.into_iter().for_each(IoThread::join);
                housekeeping.join()
            });
            let ended = joined.await.is_ok_and(|ended| ended.is_ok());
            let closed = server.store.close().map_err(io::Error::other);
            accepted.and(if ended { closed } else { Err(io::Error::other("a thread had failed")) })
        })
    }
}

/// The data: from its folder, or empty and in memory.
fn open_store(settings: &Settings) -> Result<(Store, Option<Recovered>), StartError> {
    let options = StoreOptions {
        databases: u32::try_from(settings.number(Id::Databases)).unwrap_or(1),
        shards: settings.size(Id::Shards),
        ..StoreOptions::default()
    };
    if !settings.is_on(Id::AppendOnly) {
        return Ok((Store::new(options), None));
    }
    let dir = PathBuf::from(settings.text(Id::Dir));
    let number = |id| u64::try_from(settings.number(id)).unwrap_or(0);
    let folder = FolderOptions {
        policy: policy(settings),
        block_limits: BlockLimits {
            max_bytes: number(Id::StreamNodeMaxBytes),
            max_entries: number(Id::StreamNodeMaxEntries),
        },
        progress: Box::new(show_progress),
        ..FolderOptions::default()
    };
    match Store::open(&dir, options, folder) {
        Ok((store, recovered)) => Ok((store, Some(recovered))),
        Err(source) => Err(StartError::Folder { path: dir, source }),
    }
}

fn policy(settings: &Settings) -> Policy {
    match &*settings.text(Id::AppendFsync) {
        "everysec" => Policy::EverySecond,
        "no" => Policy::Never,
        _ => Policy::Always,
    }
}

/// Long recoveries say how far they are.
fn show_progress(progress: RecoveryProgress) {
    match progress {
        RecoveryProgress::Snapshot { keys } => eprintln!("millstream: read {keys} keys of the snapshot"),
        RecoveryProgress::Log { records } => eprintln!("millstream: replayed {records} records of the log"),
    }
}

/// Digits that nobody can guess or repeat, from the randomness that seeds hash tables.
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
    fn run_ids_are_forty_digits_and_differ() {
        let (one, two) = (random_hex(40), random_hex(40));
        assert_eq!(one.len(), 40);
        assert!(one.bytes().all(|digit| digit.is_ascii_hexdigit()));
        assert_ne!(one, two);
    }
}
