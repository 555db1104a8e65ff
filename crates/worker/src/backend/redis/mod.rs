//! Any server that speaks Redis' protocol as a backend, and clusters of them.
//!
//! ```text
//! verbs (work, admin) ── link: one shared connection, or a cluster's
//!        │            └─ waiting: a connection each, for calls that wait
//!        └── native commands where probe has found them, scripts where not
//! ```

mod admin;
mod commands;
mod dead_letters;
mod errors;
mod link;
mod probe;
mod read;
mod reply;
mod scripts;
mod waiting;
mod work;

use std::time::Duration;

use redis::cluster::ClusterClientBuilder;
use redis::io::tcp::{TcpSettings, socket2::TcpKeepalive};
use redis::{Client, ConnectionAddr, ConnectionInfo, TlsCertificates};

use super::{Error, ErrorKind};
use errors::from_redis;
use link::{ANSWER_WITHIN, CONNECT_WITHIN, Link, Server};
use probe::{Natives, Probe};
use waiting::Waiters;

/// The consumer of released rows, on servers where a row must have one.
const NOBODY: &str = "millstream:released";

/// How often a cluster's client tries a call elsewhere before it gives up.
const CLUSTER_RETRIES: u32 = 6;

/// A server, or a cluster of servers.
pub struct Redis {
    link: Link,
    waiters: Waiters,
    probe: Probe,
    place: String,
}

/// Where a server is and how to get in: see [`Redis::connect`].
#[derive(Clone, Debug, Default)]
pub struct Certificates {
    /// Who signs the server's certificate, in PEM; otherwise those whom the system trusts.
    pub authority: Option<Vec<u8>>,
    /// Our own certificate and its key, in PEM, if the server asks for them.
    pub own: Option<(Vec<u8>, Vec<u8>)>,
}

impl Redis {
    /// Connects to one server: `redis://[user:password@]host[:port][/database]`, or `rediss://` for TLS.
    pub async fn connect(url: &str, certificates: Certificates) -> Result<Redis, Error> {
        let info = connection_info(url, &certificates)?;
        let place = place_of("", std::slice::from_ref(&info));
        let client = Client::open(info.clone()).map_err(from_redis)?;
        Redis::over(Link::Server(Box::new(Server::new(client))), info, place).await
    }

    /// Connects to a cluster of which these servers are known, each with a URL as above.
    pub async fn connect_cluster(urls: &[String], certificates: Certificates) -> Result<Redis, Error> {
        let infos = urls.iter().map(|url| connection_info(url, &certificates));
        let infos: Vec<ConnectionInfo> = infos.collect::<Result<_, _>>()?;
        let Some(first) = infos.first().cloned() else {
            return Err(Error::new(ErrorKind::BadUrl, "a cluster needs at least one address"));
        };
        let mut builder = ClusterClientBuilder::new(infos.clone())
            .retries(CLUSTER_RETRIES)
            .connection_timeout(CONNECT_WITHIN)
            .response_timeout(ANSWER_WITHIN)
            .tcp_settings(tcp_settings());
        if matches!(first.addr(), ConnectionAddr::TcpTls { .. }) {
            builder = builder.certs(certificates.for_redis());
        }
        let client = builder.build().map_err(from_redis)?;
        let connection = client.get_async_connection().await.map_err(from_redis)?;
        Redis::over(Link::Cluster(connection), first, place_of("+cluster", &infos)).await
    }

    async fn over(link: Link, info: ConnectionInfo, place: String) -> Result<Redis, Error> {
        let probe = Probe::begin(&link).await?;
        tracing::debug!(place, natives = ?probe.found(), "connected");
        Ok(Redis { link, waiters: Waiters::new(info), probe, place })
    }

    /// Whether the server has something beyond Redis 6.2.
    async fn has(&self, native: fn(&Natives) -> Option<bool>) -> Result<bool, Error> {
        self.probe.has(&self.link, native).await
    }
}

impl Certificates {
    fn for_redis(&self) -> TlsCertificates {
        let own = self.own.clone();
        let client_tls =
            own.map(|(client_cert, client_key)| redis::ClientTlsConfig { client_cert, client_key });
        TlsCertificates { client_tls, root_cert: self.authority.clone() }
    }
}

fn connection_info(url: &str, certificates: &Certificates) -> Result<ConnectionInfo, Error> {
    let info: ConnectionInfo = url.parse().map_err(from_redis)?;
    let info = info.set_tcp_settings(tcp_settings());
    if !matches!(info.addr(), ConnectionAddr::TcpTls { .. }) {
        return Ok(info);
    }
    let client = Client::build_with_tls(info, certificates.for_redis()).map_err(from_redis)?;
    Ok(client.get_connection_info().clone())
}

/// A server that is gone without a word is noticed by the system, even on a connection that only waits.
fn tcp_settings() -> TcpSettings {
    let keepalive = TcpKeepalive::new()
        .with_time(Duration::from_secs(10))
        .with_interval(Duration::from_secs(5))
        .with_retries(3);
    TcpSettings::default().set_nodelay(true).set_keepalive(keepalive)
}

/// The URL without what is secret.
fn place_of(kind: &str, infos: &[ConnectionInfo]) -> String {
    let hosts: Vec<String> = infos.iter().map(|info| info.addr().to_string()).collect();
    let (mut scheme, mut database) = ("redis", String::new());
    if let Some(info) = infos.first() {
        if matches!(info.addr(), ConnectionAddr::TcpTls { .. }) {
            scheme = "rediss";
        }
        if matches!(info.addr(), ConnectionAddr::Unix(_)) {
            scheme = "unix";
        }
        if info.redis_settings().db() != 0 {
            database = format!("/{}", info.redis_settings().db());
        }
    }
    format!("{scheme}{kind}://{}{database}", hosts.join(","))
}
