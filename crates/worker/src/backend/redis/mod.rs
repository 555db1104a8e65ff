//! Any server that speaks Redis' protocol as a backend, and clusters of them.
//!
//! ```text
//! verbs (produce, groups, read, settle, look) ── link: one shared connection, or a cluster's
//!        │                                    └─ waiting: a connection each, for calls that wait
//!        └── native commands where probe has found them, scripts where not
//! ```

mod errors;
mod groups;
mod link;
mod look;
mod probe;
mod produce;
mod read;
mod reply;
mod request;
mod scripts;
mod settle;
mod waiting;

use std::sync::Arc;
use std::time::Duration;

use redis::cluster::ClusterClientBuilder;
use redis::io::tcp::{TcpSettings, socket2::TcpKeepalive};
use redis::{Client, ConnectionAddr, ConnectionInfo, TlsCertificates, cmd};

use super::{
    Acknowledgement, Admin, Answer, Backend, Capabilities, Claimed, ConsumerInfo, DeadLetter, Delivery,
    Entry, Error, GroupInfo, NewEntry, PendingFilter, PendingRow, PendingSummary, Range, Read, Release,
    Start, StreamId, StreamInfo, Trim,
};
use errors::from_redis;
use link::{ANSWER_WITHIN, CONNECT_WITHIN, Link, Server};
use probe::{Natives, Probe};
use scripts::Scripts;
use waiting::Waiters;

/// Whose rows are that were given back, on servers where they must be somebody's.
const NOBODY: &str = "millstream:released";

/// How often a cluster's client tries a call elsewhere before it gives up.
const CLUSTER_RETRIES: u32 = 6;

/// A server, or a cluster of servers.
pub struct Redis {
    link: Link,
    waiters: Waiters,
    probe: Probe,
    scripts: Scripts,
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
            return Err(Error::new(super::ErrorKind::Refused, "a cluster needs at least one address"));
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

    /// A client for questions to one server that no worker ever has. Connects to nobody yet.
    pub fn client(url: &str, certificates: &Certificates) -> Result<Client, Error> {
        Client::open(connection_info(url, certificates)?).map_err(from_redis)
    }

    async fn over(link: Link, info: ConnectionInfo, place: String) -> Result<Redis, Error> {
        let probe = Probe::begin(&link).await?;
        tracing::debug!(place, natives = ?probe.found(), "connected");
        Ok(Redis { link, waiters: Waiters::new(info), probe, scripts: Scripts::new(), place })
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

impl Backend for Redis {
    fn capabilities(&self) -> Capabilities {
        self.probe.capabilities()
    }

    fn place(&self) -> String {
        self.place.clone()
    }

    fn admin(self: Arc<Self>) -> Option<Arc<dyn Admin>> {
        Some(self)
    }

    fn add<'a>(
        &'a self,
        stream: &'a str,
        entries: &'a [NewEntry],
        trim: Option<Trim>,
    ) -> Answer<'a, Vec<StreamId>> {
        Box::pin(async move {
            super::check_entries(entries)?;
            self.add(stream, entries, trim).await
        })
    }

    fn create_group<'a>(&'a self, stream: &'a str, group: &'a str, start: Start) -> Answer<'a, bool> {
        Box::pin(self.create_group(stream, group, start))
    }

    fn stream<'a>(&'a self, stream: &'a str) -> Answer<'a, Option<StreamInfo>> {
        Box::pin(self.stream(stream))
    }

    fn read<'a>(&'a self, read: &'a Read<'a>) -> Answer<'a, Vec<Delivery>> {
        Box::pin(self.read(read))
    }

    fn own_pending<'a>(
        &'a self,
        stream: &'a str,
        group: &'a str,
        consumer: &'a str,
        after: StreamId,
        count: usize,
    ) -> Answer<'a, Vec<Delivery>> {
        Box::pin(self.own_pending(stream, group, consumer, after, count))
    }

    fn autoclaim<'a>(
        &'a self,
        read: &'a Read<'a>,
        min_idle: Duration,
        from: StreamId,
    ) -> Answer<'a, Claimed> {
        Box::pin(self.autoclaim(read, min_idle, from))
    }

    fn acknowledge<'a>(
        &'a self,
        stream: &'a str,
        group: &'a str,
        done: &'a Acknowledgement,
    ) -> Answer<'a, u64> {
        Box::pin(self.acknowledge(stream, group, done))
    }

    fn seen<'a>(&'a self, keys: &'a [String]) -> Answer<'a, Vec<bool>> {
        Box::pin(self.seen(keys))
    }

    fn extend<'a>(
        &'a self,
        stream: &'a str,
        group: &'a str,
        consumer: &'a str,
        ids: &'a [StreamId],
    ) -> Answer<'a, Vec<StreamId>> {
        Box::pin(self.extend(stream, group, consumer, ids))
    }

    fn release<'a>(
        &'a self,
        stream: &'a str,
        group: &'a str,
        consumer: &'a str,
        rows: &'a [Release],
    ) -> Answer<'a, u64> {
        Box::pin(self.release(stream, group, consumer, rows))
    }

    fn dead_letter<'a>(
        &'a self,
        stream: &'a str,
        group: &'a str,
        consumer: &'a str,
        letters: &'a [DeadLetter],
    ) -> Answer<'a, Vec<StreamId>> {
        Box::pin(async move {
            super::check_letters(letters)?;
            self.dead_letter(stream, group, consumer, letters).await
        })
    }
}

impl Admin for Redis {
    fn ping(&self) -> Answer<'_, ()> {
        Box::pin(async { self.link.command("", cmd("PING")).await.map(drop) })
    }

    fn streams<'a>(&'a self, pattern: &'a str) -> Answer<'a, Vec<String>> {
        Box::pin(self.streams(pattern))
    }

    fn range<'a>(&'a self, stream: &'a str, range: Range) -> Answer<'a, Vec<Entry>> {
        Box::pin(self.range(stream, range))
    }

    fn follow<'a>(
        &'a self,
        stream: &'a str,
        after: StreamId,
        count: usize,
        block: Duration,
    ) -> Answer<'a, Vec<Entry>> {
        Box::pin(self.follow(stream, after, count, block))
    }

    fn delete_entries<'a>(&'a self, stream: &'a str, ids: &'a [StreamId]) -> Answer<'a, u64> {
        Box::pin(self.delete_entries(stream, ids))
    }

    fn delete_stream<'a>(&'a self, stream: &'a str) -> Answer<'a, bool> {
        Box::pin(self.delete_stream(stream))
    }

    fn groups<'a>(&'a self, stream: &'a str) -> Answer<'a, Vec<GroupInfo>> {
        Box::pin(self.groups(stream))
    }

    fn move_group<'a>(&'a self, stream: &'a str, group: &'a str, start: Start) -> Answer<'a, ()> {
        Box::pin(self.move_group(stream, group, start))
    }

    fn delete_group<'a>(&'a self, stream: &'a str, group: &'a str) -> Answer<'a, bool> {
        Box::pin(self.delete_group(stream, group))
    }

    fn pending_summary<'a>(&'a self, stream: &'a str, group: &'a str) -> Answer<'a, PendingSummary> {
        Box::pin(self.pending_summary(stream, group))
    }

    fn pending<'a>(
        &'a self,
        stream: &'a str,
        group: &'a str,
        filter: &'a PendingFilter,
    ) -> Answer<'a, Vec<PendingRow>> {
        Box::pin(self.pending(stream, group, filter))
    }

    fn restore<'a>(&'a self, stream: &'a str, group: &'a str, id: StreamId) -> Answer<'a, bool> {
        Box::pin(self.restore(stream, group, id))
    }

    fn consumers<'a>(&'a self, stream: &'a str, group: &'a str) -> Answer<'a, Vec<ConsumerInfo>> {
        Box::pin(self.consumers(stream, group))
    }

    fn remove_consumer<'a>(
        &'a self,
        stream: &'a str,
        group: &'a str,
        consumer: &'a str,
        heir: &'a str,
    ) -> Answer<'a, u64> {
        Box::pin(async move {
            super::check_heir(consumer, heir)?;
            self.remove_consumer(stream, group, consumer, heir).await
        })
    }

    fn remove_empty_consumer<'a>(
        &'a self,
        stream: &'a str,
        group: &'a str,
        consumer: &'a str,
    ) -> Answer<'a, bool> {
        Box::pin(self.remove_empty_consumer(stream, group, consumer))
    }
}
