//! The life of a server: start, run, stop.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;

use millstream_engine::BlockLimits;
use millstream_store::{FolderError, FolderOptions, Recovered, RecoveryProgress, Store, StoreOptions};

use crate::accept;
use crate::descriptors;
use crate::housekeeping;
use crate::io_thread::IoThread;
use crate::listen::{ListenError, Listeners};
use crate::settings::{Id, Settings};
use crate::shutdown::listen_for_signals;
use crate::state::{Server, policy};
use crate::table::COMMANDS;

/// A server that listens, and serves once [`run`](Running::run) is called.
pub struct Running {
    server: Arc<Server>,
    listeners: Listeners,
    threads: Vec<IoThread>,
    timekeeper: Option<JoinHandle<()>>,
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
        allow_clients(&settings);
        let (store, recovered) = open_store(&settings)?;
        let server = Arc::new(Server::new(settings, listeners.addresses(), Arc::new(store), COMMANDS.len()));
        server.apply_store_settings();
        let threads = (0..server.settings.size(Id::IoThreads))
            .map(|number| IoThread::start(number, &server))
            .collect::<io::Result<Vec<_>>>()
            .map_err(StartError::Threads)?;
        let timekeeper = housekeeping::start(&server).map_err(StartError::Threads)?;
        Ok(Running { server, listeners, threads, timekeeper, recovered })
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

    /// Serves until SIGTERM, SIGINT, SHUTDOWN or [`Shutdown::begin`](crate::Shutdown::begin). What runs is finished: a batch that has
    /// begun is answered. A second signal ends the process at once.
    pub fn run(self) -> io::Result<()> {
        let Running { server, listeners, threads, timekeeper, .. } = self;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let _signals = listen_for_signals(server.shutdown.clone())?;
            let entrances: Vec<_> = threads.iter().map(IoThread::entrance).collect();
            let accepted = accept::run(&server, listeners, &entrances).await;
            server.shutdown.begin();
            // Waited for elsewhere, so that a second signal is heard meanwhile.
            let store = Arc::clone(&server.store);
            let joined = tokio::task::spawn_blocking(move || {
                threads.into_iter().for_each(IoThread::join);
                store.stop_time();
                timekeeper.map_or(Ok(()), JoinHandle::join)
            });
            let ended = joined.await.is_ok_and(|ended| ended.is_ok());
            let closed = server.store.close().map_err(io::Error::other);
            accepted.and(if ended { closed } else { Err(io::Error::other("a thread had failed")) })
        })
    }
}

/// Asks the system for as many descriptors as there may be clients, and if it gives fewer, accepts fewer.
fn allow_clients(settings: &Settings) {
    let wanted = settings.number(Id::MaxClients).unsigned_abs();
    let clients = descriptors::clients_possible(wanted, settings.size(Id::IoThreads));
    if clients < wanted {
        let allowed = descriptors::open_files_max();
        eprintln!(
            "millstream: the system allows {allowed} open files, so at most {clients} clients; ulimit -n raises it"
        );
        settings.set(Id::MaxClients, &clients.to_string()).expect("fewer clients than were asked for");
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

/// Long recoveries say how far they are.
fn show_progress(progress: RecoveryProgress) {
    match progress {
        RecoveryProgress::Snapshot { keys } => eprintln!("millstream: read {keys} keys of the snapshot"),
        RecoveryProgress::Log { records } => eprintln!("millstream: replayed {records} records of the log"),
    }
}
