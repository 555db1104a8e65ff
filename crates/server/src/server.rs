//! Starts, runs and stops a server.

use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;

use millstream_engine::BlockLimits;
use millstream_store::{
    FolderError, FolderOptions, MemoryPurpose, Recovered, RecoveryProgress, Store, StoreOptions,
};
use tokio::signal::unix::Signal;

use crate::accept;
use crate::acl::Users;
use crate::descriptors;
use crate::event_log::{EventLog, Level};
use crate::housekeeping;
use crate::in_process::InProcess;
use crate::io_thread::IoThread;
use crate::listen::{ListenError, Listeners, addresses};
use crate::memory;
use crate::policy_rights;
use crate::reload::{Configured, catch_hangups, listen_for_hangups};
use crate::settings::{Id, Settings};
use crate::shutdown::listen_for_signals;
use crate::state::{Server, policy};
use crate::table::{self, COMMANDS};
use crate::tls::{Tls, TlsError};

/// A server that listens on its sockets. It serves clients once [`run`](Running::run) is called.
pub struct Running {
    server: Arc<Server>,
    listeners: Listeners,
    threads: Vec<IoThread>,
    timekeeper: Option<JoinHandle<()>>,
    recovered: Option<Recovered>,
    hangups: Signal,
    configured: Configured,
}

/// Why a server did not start.
#[derive(Debug)]
#[expect(missing_docs, reason = "the texts below say what each means")]
pub enum StartError {
    Listen(ListenError),
    Tls(TlsError),
    Users(String),
    OpenDashboard(SocketAddr),
    Folder { path: PathBuf, source: FolderError },
    Threads(io::Error),
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StartError::Listen(error) => error.fmt(f),
            StartError::Tls(error) => error.fmt(f),
            StartError::Users(reason) => write!(f, "cannot load the users: {reason}"),
            StartError::OpenDashboard(address) => write!(
                f,
                "every client that can reach {address} could use the dashboard, because the user default needs no password. \
                 Set requirepass, or listen on a loopback address such as --http 127.0.0.1:{}",
                address.port()
            ),
            StartError::Folder { path, source } => {
                let dir = path.display();
                writeln!(f, "cannot open the data folder {dir}: {source}.")?;
                // Suggests `millstream check` only if the folder exists and can be damaged.
                match path.is_dir() {
                    true if matches!(source, FolderError::Foreign { .. }) => f.write_str(
                        "The folder was not changed. \
                         Choose a folder that is empty or does not exist yet with --dir",
                    ),
                    true if matches!(source, FolderError::TooFewDatabases { .. }) => {
                        f.write_str("The folder is not damaged and was not changed")
                    }
                    true => write!(
                        f,
                        "The folder was not changed. Choose another folder with --dir, \
                         or examine this one with: millstream check {dir}"
                    ),
                    false => f.write_str("Choose another folder with --dir"),
                }
            }
            StartError::Threads(source) => write!(f, "cannot start a thread of the server: {source}"),
        }
    }
}

impl std::error::Error for StartError {}

impl Server {
    /// Opens the sockets, recovers the data and starts the threads. Clients are served once [`Running::run`] is called.
    pub fn start(settings: Settings) -> Result<Running, StartError> {
        let configured = Configured { settings: settings.copied(), read: None };
        let hangups = catch_hangups().map_err(StartError::Threads)?;
        let listeners = Listeners::open(&settings).map_err(StartError::Listen)?;
        let tls = match settings.number(Id::TlsPort) {
            0 => None,
            _ => Some(Tls::configure(&settings).map_err(StartError::Tls)?),
        };
        let event_log = Arc::new(EventLog::new(&settings));
        limit_clients(&settings, &event_log);
        let users = open_users(&settings)?;
        check_dashboard(&listeners, &users)?;
        memory::refresh();
        let startup_bytes = memory::used_bytes();
        let (store, recovered) = open_store(&settings, &event_log)?;
        let tls = tls.map(Tls::start).transpose().map_err(StartError::Threads)?;
        let tls = tls.map(|tls| (tls, addresses(&listeners.tls)));
        let store = Arc::new(store);
        let mut server = Server::new(settings, addresses(&listeners.tcp), tls, store, users, COMMANDS.len());
        server.startup_bytes = startup_bytes;
        server.event_log = event_log;
        let server = Arc::new(server);
        server.apply_store_settings();
        // A weak reference, because the server owns the store.
        let weak = Arc::downgrade(&server);
        let fits = move |purpose, bytes| {
            weak.upgrade().is_none_or(|server| match purpose {
                MemoryPurpose::Policies => server.fits_into_reserve(bytes),
                MemoryPurpose::Consumers => server.fits_into_consumer_reserve(bytes),
            })
        };
        server.store.limit_memory(fits);
        policy_rights::begin(&server);
        memory::refresh();
        warn_if_open(&server);
        let threads = (0..server.settings.size(Id::IoThreads))
            .map(|number| IoThread::start(number, &server))
            .collect::<io::Result<Vec<_>>>()
            .map_err(StartError::Threads)?;
        let timekeeper = housekeeping::start(&server).map_err(StartError::Threads)?;
        Ok(Running { server, listeners, threads, timekeeper, recovered, hangups, configured })
    }
}

impl Running {
    /// Returns the TCP addresses the server listens on without TLS.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.server.addresses
    }

    /// Returns the TCP addresses the server listens on with TLS.
    pub fn tls_addresses(&self) -> &[SocketAddr] {
        &self.server.tls_addresses
    }

    /// Returns the address of the dashboard; `None` if there is none.
    pub fn http_address(&self) -> Option<SocketAddr> {
        self.listeners.http.as_ref()?.local_addr().ok()
    }

    /// Takes the listener of the dashboard, which the program serves itself. It is in non-blocking mode.
    pub fn take_http_listener(&mut self) -> Option<TcpListener> {
        self.listeners.http.take()
    }

    /// Returns the settings in force.
    pub fn settings(&self) -> &Settings {
        &self.server.settings
    }

    /// Returns a summary of recovery, or `None` if the server keeps no data on disk.
    pub fn recovered(&self) -> Option<&Recovered> {
        self.recovered.as_ref()
    }

    /// Writes a line of the level `notice` to the server's log on standard error.
    pub fn log_notice(&self, message: &str) {
        self.server.event_log.write(Level::Notice, message);
    }

    /// Returns the state that all threads share. To stop the server from another thread, keep this and call
    /// [`Shutdown::begin`](crate::Shutdown::begin) on [`Server::shutdown`].
    pub fn server(&self) -> &Arc<Server> {
        &self.server
    }

    /// Returns what opens connections to this server from within the process. They are served until the server stops.
    pub fn in_process(&self) -> InProcess {
        let threads = self.threads.iter().map(IoThread::handle).collect();
        InProcess::new(Arc::clone(&self.server), threads)
    }

    /// Calls this function at SIGHUP, and changes the settings that have changed since it was last called, or since the
    /// start. Settings that can change only at start are logged. If the function fails, or a value is not possible,
    /// nothing is changed.
    pub fn reload_with(
        mut self,
        read: impl Fn() -> Result<Settings, String> + Send + Sync + 'static,
    ) -> Running {
        self.configured.read = Some(Arc::new(read));
        self
    }

    /// Serves clients until SIGTERM, SIGINT, SHUTDOWN or [`Shutdown::begin`](crate::Shutdown::begin).
    ///
    /// Each thread finishes the batch of requests that it is running. Replies that still wait for the log may not be
    /// sent. A second signal ends the process immediately. SIGHUP reloads the settings (see
    /// [`reload_with`](Running::reload_with)) and the TLS files.
    pub fn run(self) -> io::Result<()> {
        let Running { server, listeners, threads, timekeeper, hangups, configured, .. } = self;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let _signals = listen_for_signals(server.shutdown.clone())?;
            let _reloads = listen_for_hangups(&server, hangups, configured);
            let handles: Vec<_> = threads.iter().map(IoThread::handle).collect();
            let accepted = accept::run(&server, listeners, &handles).await;
            server.shutdown.begin();
            // Joined on another thread, so that this one can handle a second signal.
            let store = Arc::clone(&server.store);
            let event_log = Arc::clone(&server.event_log);
            let joined = tokio::task::spawn_blocking(move || {
                let panicked = threads.into_iter().map(IoThread::join).filter(|ended| !ended).count();
                if panicked > 0 {
                    event_log.write(Level::Warning, "an I/O thread panicked; its clients were disconnected");
                }
                store.stop_timekeeper();
                timekeeper.map_or(Ok(()), JoinHandle::join)
            });
            let ended = joined.await.is_ok_and(|ended| ended.is_ok());
            let closed = server.store.close().map_err(io::Error::other);
            server.event_log.write_last();
            accepted.and(if ended {
                closed
            } else {
                Err(io::Error::other("the timekeeper thread panicked"))
            })?;
            server.event_log.write(Level::Notice, "the server has stopped");
            Ok(())
        })
    }
}

/// Returns an error if other machines could use the dashboard without a login.
fn check_dashboard(listeners: &Listeners, users: &Users) -> Result<(), StartError> {
    let address = listeners.http.as_ref().and_then(|listener| listener.local_addr().ok());
    match address.filter(|address| !address.ip().to_canonical().is_loopback()) {
        Some(address) if !users.requires_login() => Err(StartError::OpenDashboard(address)),
        _ => Ok(()),
    }
}

/// Logs a warning if every machine that reaches the server can use it.
fn warn_if_open(server: &Server) {
    let is_reachable = |address: &&SocketAddr| !address.ip().to_canonical().is_loopback();
    let Some(address) = server.addresses.iter().find(is_reachable) else { return };
    if !server.requires_login() && !server.settings.is_on(Id::ProtectedMode) {
        let message = format!(
            "every client that can reach {address} has full access, because protected-mode is off and the user default \
             needs no password; set requirepass, or bind only to 127.0.0.1"
        );
        server.event_log.write(Level::Warning, &message);
    }
}

/// Makes sure that there are descriptors for `maxclients` clients. If the system allows fewer, lowers the setting.
fn limit_clients(settings: &Settings, event_log: &EventLog) {
    let wanted = settings.number(Id::MaxClients).unsigned_abs();
    let clients =
        descriptors::allow_clients(wanted, settings.size(Id::IoThreads), !settings.is_empty(Id::Http));
    if clients < wanted {
        let allowed = descriptors::open_files_max();
        let message = format!(
            "the system allows {allowed} open files, so maxclients is lowered to {clients}; to allow more, raise the limit \
             with ulimit -n and restart the server"
        );
        event_log.write(Level::Warning, &message);
        settings.set(Id::MaxClients, &clients.to_string()).expect("a lower maxclients is valid");
    }
}

fn open_users(settings: &Settings) -> Result<Users, StartError> {
    let (requirepass, aclfile) = (settings.text(Id::RequirePass), settings.text(Id::AclFile));
    Users::open(table::catalog(), &requirepass, &aclfile)
        .map_err(|error| StartError::Users(error.to_string()))
}

/// Opens the store: recovered from the data folder, or empty and only in memory if `appendonly` is off.
fn open_store(
    settings: &Settings,
    event_log: &Arc<EventLog>,
) -> Result<(Store, Option<Recovered>), StartError> {
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
        known_files: files_in_settings(settings),
        progress: Box::new({
            let event_log = Arc::clone(event_log);
            move |progress| show_progress(&event_log, progress)
        }),
        ..FolderOptions::default()
    };
    match Store::open(&dir, options, folder) {
        Ok((store, recovered)) => Ok((store, Some(recovered))),
        Err(source) => Err(StartError::Folder { path: dir, source }),
    }
}

/// Returns the paths of the files and the socket that settings name. They can be in the data folder.
fn files_in_settings(settings: &Settings) -> Vec<PathBuf> {
    let ids = [Id::AclFile, Id::UnixSocket, Id::TlsCertFile, Id::TlsKeyFile, Id::TlsCaCertFile];
    let paths = ids.into_iter().map(|id| settings.text(id)).filter(|path| !path.is_empty());
    paths.map(PathBuf::from).collect()
}

fn show_progress(event_log: &EventLog, progress: RecoveryProgress) {
    let message = match progress {
        RecoveryProgress::Snapshot { keys } => format!("recovery has loaded {keys} keys from the snapshot"),
        RecoveryProgress::Log { records } => format!("recovery has replayed {records} records of the log"),
    };
    event_log.write(Level::Notice, &message);
}
