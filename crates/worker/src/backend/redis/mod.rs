//! The backend for a server that speaks the Redis protocol, or a cluster of such servers.
//!
//! ```text
//! work, admin (the backend traits)
//!   ├─ connection: one connection shared by all calls, or one to each node of a cluster
//!   │    └─ routing: finds the node that owns a slot, and repeats what a node refused
//!   │         └─ nodes: which node owns which slot
//!   ├─ look:       many streams at once, in pipelines
//!   ├─ done:       deletes what every group has acknowledged
//!   ├─ moving:     moves a group unless it has moved
//!   ├─ blocking:   a separate connection for each blocking call
//!   ├─ owning:     which worker owns a stream, over a connection for each owned stream
//!   ├─ dial:       opens the connections of both: to an address, or over streams that a function opens
//!   ├─ limit:      fails a connection on which a reply takes too much memory
//!   ├─ probe:      which commands the server has; scripts replace the missing ones
//!   └─ permissions: which commands and keys the user may use
//! ```

mod admin;
mod blocking;
mod commands;
mod connection;
mod dead_letters;
mod delayed;
mod dial;
mod done;
mod errors;
mod limit;
mod look;
mod moving;
mod nodes;
mod owning;
mod permissions;
mod policies;
mod probe;
mod read;
mod read_many;
mod reply;
mod routing;
mod scripts;
mod server;
mod tls;
mod walk;
mod work;

use std::io;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use redis::{ConnectionAddr, ConnectionInfo, RedisError};

use super::{Error, ErrorKind};
use blocking::BlockingConnections;
use connection::{Connection, Link, ServerConnection};
use dial::Target;
use look::LargeStreams;
use nodes::Nodes;
use owning::OwnerConnections;
use probe::{Feature, FeatureProbe};

/// The consumer that owns released entries on servers without `XNACK … DELAY`, where every pending entry needs an
/// owner.
const RELEASED_CONSUMER: &str = "millstream:released";

/// From this idle time on, about 50 years, an entry of [`RELEASED_CONSUMER`] can be claimed.
///
/// To make an entry wait, a release sets its idle time to this minus the delay. The server itself then counts the time
/// that is left, and it does so across its restarts.
const CLAIMABLE_IDLE_MS: u64 = 50 * 365 * 24 * 3600 * 1000;

/// Number of times that the first call is repeated if the server closes a TLS connection without giving a reason.
const TLS_RETRIES: usize = 3;

/// The backend for a server that speaks the Redis protocol, or a cluster of such servers.
pub struct Redis {
    connection: Connection,
    blocking: BlockingConnections,
    owning: OwnerConnections,
    /// The server, or the first node of a cluster.
    target: Target,
    probe: FeatureProbe,
    large: LargeStreams,
    location: String,
}

/// What [`Redis::connect`] needs in addition to a URL.
#[derive(Clone, Default)]
pub struct ServerOptions {
    /// The certificate authority that signs the server's certificate, in PEM. `None` trusts the public
    /// authorities that are built into this program (Mozilla's list), not those of the system.
    pub ca: Option<Vec<u8>>,
    /// The client's certificate and its private key, in PEM. Needed if the server requests them.
    pub client: Option<(Vec<u8>, Vec<u8>)>,
    /// Whether to accept any certificate of the server.
    pub insecure: bool,
    /// The password, if the URL has none.
    pub password: Option<String>,
}

impl Redis {
    /// Connects to one server: `redis://[user:password@]host[:port][/database]`, or `rediss://` for TLS.
    pub async fn connect(url: &str, options: ServerOptions) -> Result<Redis, Error> {
        let info = connection_info(url, &options)?;
        let location = display_url("", std::slice::from_ref(&info));
        Redis::new(target(&info, &options)?, location).checked(&info).await
    }

    /// Returns a backend for one server over streams that `dial` opens, already authenticated as `user`. `dial` is
    /// called for each new connection, the first time with the first call, and must not block. `location` is the name
    /// of the store in messages.
    pub fn over(
        dial: impl Fn() -> io::Result<UnixStream> + Send + Sync + 'static,
        user: &str,
        location: &str,
    ) -> Redis {
        Redis::new(Target::streams(dial, user), location.to_owned())
    }

    fn new(target: Target, location: String) -> Redis {
        let link = Link::Server(Box::new(ServerConnection::new(target.clone())));
        Redis::with_link(link, target, location)
    }

    /// `target` is the server, or the first node of a cluster.
    fn with_link(link: Link, target: Target, location: String) -> Redis {
        let connection = Connection { link, user: target.user().to_owned() };
        Redis {
            connection,
            blocking: BlockingConnections::new(target.clone()),
            owning: OwnerConnections::new(target.clone()),
            target,
            probe: FeatureProbe::default(),
            large: LargeStreams::default(),
            location,
        }
    }

    /// Connects to a cluster. `urls` names at least one of its nodes, each in the form that [`Redis::connect`] takes.
    pub async fn connect_cluster(urls: &[String], options: ServerOptions) -> Result<Redis, Error> {
        let infos = urls.iter().map(|url| connection_info(url, &options));
        let infos: Vec<ConnectionInfo> = infos.collect::<Result<_, _>>()?;
        let Some(first) = infos.first().cloned() else {
            return Err(Error::new(
                ErrorKind::BadUrl,
                "invalid URL: a cluster URL needs at least one address, as in redis+cluster://HOST:PORT",
            ));
        };
        let target = target(&first, &options)?;
        let nodes = Arc::new(Nodes::new(target.clone(), &infos));
        let location = display_url("+cluster", &infos);
        match nodes.refresh(nodes.version()).await {
            Ok(()) => Redis::with_link(Link::Cluster(nodes), target, location).checked(&first).await,
            // The first call to a single server explains best what is wrong.
            Err(error) => {
                let node = Redis::new(target, location).checked(&first).await?;
                Err(node.connection.explain(&commands::command!("CLUSTER", "SLOTS"), error))
            }
        }
    }

    /// Returns this backend if the server replies. `info` has the parameters of the connection.
    async fn checked(self, info: &ConnectionInfo) -> Result<Redis, Error> {
        let Redis { connection, location, .. } = &self;
        let mut pinged = connection.command("", redis::cmd("PING")).await;
        // A server that rejects a client certificate says so and closes the connection. If the client is still sending,
        // the message can get lost: try again.
        for _ in 0..TLS_RETRIES {
            if is_tls(info) && pinged.as_ref().is_err_and(is_cut_off) {
                pinged = connection.command("", redis::cmd("PING")).await;
            }
        }
        pinged.map_err(|error| with_hint_about_tls(error, info))?;
        tracing::debug!(location, user = connection.user, "connected");
        Ok(self)
    }

    /// Returns how many commands and pipelines were sent that do not block, to all nodes of a cluster. Each waits for
    /// its reply once.
    pub fn round_trips(&self) -> u64 {
        match &self.connection.link {
            Link::Server(server) => server.round_trips(),
            Link::Cluster(nodes) => nodes.masters().iter().map(|node| node.connection.round_trips()).sum(),
        }
    }

    /// Sets the name that CLIENT LIST shows, on all connections.
    async fn set_client_name(&self, name: &str) {
        self.target.set_name(name);
        match &self.connection.link {
            Link::Server(server) => server.introduce().await,
            Link::Cluster(nodes) => {
                for node in nodes.masters() {
                    node.connection.introduce().await;
                }
            }
        }
    }

    /// Returns whether the server has an optional feature. `stream` is the stream of the call that needs it.
    async fn has(&self, feature: Feature, stream: &str) -> Result<bool, Error> {
        // A server with XEXTEND needs no scripts and has none.
        if feature == Feature::Scripts
            && self.probe.supports(&self.connection, Feature::Extend, stream).await?
        {
            return Ok(false);
        }
        self.probe.supports(&self.connection, feature, stream).await
    }

    /// Returns whether the server has a feature that is only for information. If the user may not use it, it counts as
    /// missing from then on: the server logs denied commands.
    async fn has_unless_denied(&self, feature: Feature, stream: &str) -> Result<bool, Error> {
        match self.has(feature, stream).await {
            Err(error) if error.kind() == ErrorKind::Denied => {
                self.probe.assume(feature, false);
                Ok(false)
            }
            has => has,
        }
    }
}

fn connection_info(url: &str, options: &ServerOptions) -> Result<ConnectionInfo, Error> {
    let info: ConnectionInfo = url.parse().map_err(invalid_url)?;
    // The server can deny CLIENT SETINFO, which would fill its log of denied commands.
    let mut settings = info.redis_settings().clone().set_skip_set_lib_name();
    if let Some(password) = options.password.as_ref().filter(|_| settings.password().is_none()) {
        settings = settings.set_password(password);
    }
    let info = info.set_redis_settings(settings);
    Ok(match info.addr().clone() {
        ConnectionAddr::TcpTls { host, port, insecure, tls_params } => {
            let insecure = insecure || options.insecure;
            info.set_addr(ConnectionAddr::TcpTls { host, port, insecure, tls_params })
        }
        _ => info,
    })
}

/// Returns where connections with these parameters lead to.
fn target(info: &ConnectionInfo, options: &ServerOptions) -> Result<Target, Error> {
    let tls = match info.addr() {
        ConnectionAddr::TcpTls { insecure, .. } => Some(tls::connector(options, *insecure)?),
        _ => None,
    };
    Ok(Target::address(info.clone(), tls))
}

fn is_tls(info: &ConnectionInfo) -> bool {
    matches!(info.addr(), ConnectionAddr::TcpTls { .. })
}

/// Whether the server closed the connection without a reason.
fn is_cut_off(error: &Error) -> bool {
    let text = error.to_string().to_lowercase();
    error.kind() == ErrorKind::Unreachable
        && ["reset by peer", "closed", "eof", "broken pipe"].iter().any(|part| text.contains(part))
}

/// Adds a hint to the error of the first call, if the reason can be that only one side speaks TLS.
fn with_hint_about_tls(error: Error, info: &ConnectionInfo) -> Error {
    let is_timeout = error.kind() == ErrorKind::Unreachable && error.to_string().contains("timed out");
    let hint = match info.addr() {
        ConnectionAddr::TcpTls { .. } if is_cut_off(&error) => {
            "the server may require a client certificate, or may not speak TLS on this port"
        }
        ConnectionAddr::TcpTls { .. } if is_timeout => "the server may not speak TLS on this port",
        ConnectionAddr::Tcp(..) if is_cut_off(&error) => "the server may require TLS on this port",
        _ => return error,
    };
    Error::new(error.kind(), format!("{error}; {hint}")).with_source(error)
}

/// The error for a URL that the client library cannot parse. Omits the URL, which can contain a password.
fn invalid_url(error: RedisError) -> Error {
    let reason = error.to_string().replace(" - InvalidClientConfig", "");
    let form = "redis://[USER:PASSWORD@]HOST[:PORT][/DATABASE] or unix://SOCKET";
    Error::new(ErrorKind::BadUrl, format!("invalid URL: {reason}; expected {form}")).with_source(error)
}

/// Returns the URL without user, password and parameters.
fn display_url(scheme_suffix: &str, infos: &[ConnectionInfo]) -> String {
    let hosts: Vec<String> = infos.iter().map(|info| info.addr().to_string()).collect();
    let (mut scheme, mut database) = ("redis", String::new());
    if let Some(info) = infos.first() {
        if is_tls(info) {
            scheme = "rediss";
        }
        if matches!(info.addr(), ConnectionAddr::Unix(_)) {
            scheme = "unix";
        }
        if info.redis_settings().db() != 0 {
            database = format!("/{}", info.redis_settings().db());
        }
    }
    format!("{scheme}{scheme_suffix}://{}{database}", hosts.join(","))
}
