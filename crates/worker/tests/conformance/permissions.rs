//! Users with few permissions: the smallest permissions that docs/workers/security.md lists suffice for each role, and
//! an error names each of them that is missing.

use std::sync::Arc;
use std::time::Duration;

use millstream_worker::backend::{
    Error, ErrorKind, IdOrder, Idempotence, NewEntry, Range, Start, StreamId, Trim,
};
use millstream_worker::heartbeat::{self, Heartbeat};
use millstream_worker::monitor::{Monitor, retry_records};
use millstream_worker::names::{dead_letters_of, workers_key};
use millstream_worker::partitions::Partitions;
use millstream_worker::producer::Producer;
use millstream_worker::redrive::{Destination, Redrive, redrive};
use millstream_worker::{
    Admin, Autoscale, Backoff, ConnectOptions, HandlerError, Message, Worker, WorkerBuilder, connect,
};

use super::peers::{Peer, REDIS_6_2, REDIS_7_0, REDIS_8_2, VALKEY_9_1};
use super::servers::{Program, Server};
use super::{TIMEOUT, cases};

const PAGE: &str = include_str!("../../../../docs/workers/security.md");
const STREAM: &str = "orders";
const GROUP: &str = "billing";

/// Returns the arguments of the commands on the page that create a user. Roles that need scripts on Redis have two such
/// commands; the other is for Millstream.
fn documented(user: &str, uses_scripts: bool, trims_acknowledged: bool) -> Vec<Vec<&'static str>> {
    let lines = PAGE.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    let lines = lines.filter(|words| words.starts_with(&["ACL", "SETUSER", user]));
    let other = if uses_scripts { "+xnack" } else { "+eval" };
    // A producer needs a script, and XLEN in it, if the server has no trims that keep unread entries.
    let other_trim = if trims_acknowledged { "+xlen" } else { "" };
    lines.filter(|words| !words.contains(&other) && !words.contains(&other_trim)).collect()
}

/// What distinguishes the line with the permissions of workers that own streams.
const OF_OWNERS: &str = "+watch";

#[tokio::test(flavor = "multi_thread")]
async fn documented_permissions_suffice_on_redis_6_2() {
    on_peer(&REDIS_6_2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn documented_permissions_suffice_on_redis_7_0() {
    on_peer(&REDIS_7_0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn documented_permissions_suffice_on_redis_8_2() {
    on_peer(&REDIS_8_2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn documented_permissions_suffice_on_valkey_9_1() {
    on_peer(&VALKEY_9_1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn user_names_and_passwords_can_have_special_characters() {
    let Some(server) = Server::peer(&REDIS_7_0, &[]) else { return };
    let (user, password) = ("wö@rk:er", "p@ss:/?#%&é+");
    assert_eq!(server.cli(&["ACL", "SETUSER", user, "on", &format!(">{password}"), "~*", "+@all"]), "OK");
    assert_eq!(server.cli(&["ACL", "SETUSER", "default", "off"]), "OK");
    let at = format!("127.0.0.1:{}", server.port);
    let (user, encoded) = ("w%C3%B6%40rk%3Aer", "p%40ss%3A%2F%3F%23%25%26%C3%A9%2B");
    connect(&format!("redis://{user}:{encoded}@{at}")).await.unwrap();
    let options = ConnectOptions::new().password(password);
    options.connect(&format!("redis://{user}@{at}")).await.unwrap();
    // The password of the URL has precedence.
    let Err(error) = options.connect(&format!("redis://{user}:other@{at}")).await else {
        panic!("connected")
    };
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
    assert!(!format!("{error} {error:?}").contains("other"), "{error:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn documented_permissions_suffice_on_millstream() {
    all_roles(&Server::start(Program::Millstream, &[]), false, true).await;
}

/// A producer for partitions needs the keys that the page names. Without the list, it adds to a plain stream.
#[tokio::test(flavor = "multi_thread")]
async fn producers_for_partitions_need_the_list_and_the_partitions() {
    const RULES: &str = "~{orders}:partitions ~orders:{* +hmget";
    assert!(PAGE.contains(&format!("`{RULES}`")));
    let servers = [Some(Server::start(Program::Millstream, &[])), Server::peer(&REDIS_7_0, &[])];
    for server in servers.into_iter().flatten() {
        let admin = connect(&server.url()).await.unwrap();
        let partitions = Partitions::plan("orders", 2, Some("n")).unwrap();
        partitions.create(&*admin).await.unwrap();
        let url = format!("redis://producer:secret@127.0.0.1:{}", server.port);
        let plain = ["ACL", "SETUSER", "producer", "reset", "on", ">secret", "~orders", "+ping", "+xadd"];
        assert_eq!(server.cli(&plain), "OK");
        let producer = Producer::new(connect(&url).await.unwrap(), "orders");
        producer.send([("n", "1")]).await.unwrap();
        assert_eq!(admin.stream("orders").await.unwrap().map(|info| info.length), Some(1));
        let rules: Vec<&str> = ["ACL", "SETUSER", "producer"].into_iter().chain(RULES.split(' ')).collect();
        assert_eq!(server.cli(&rules), "OK");
        let producer = Producer::new(connect(&url).await.unwrap(), "orders");
        producer.send_all((0..10).map(|n| [("n", n.to_string())])).await.unwrap();
        assert_eq!(admin.stream("orders").await.unwrap().map(|info| info.length), Some(1));
    }
}

/// A client of a cluster asks for its slots first.
#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_that_denies_its_slots_is_an_error() {
    let Some(server) = Server::redis(&["--cluster-enabled", "yes"]) else { return };
    assert_eq!(server.cli(&["CLUSTER", "ADDSLOTSRANGE", "0", "16383"]), "OK");
    for command in documented("producer", true, false) {
        assert_eq!(server.cli(&command), "OK");
    }
    let url = format!("redis+cluster://producer:secret@127.0.0.1:{}", server.port);
    let Err(error) = connect(&url).await else { panic!("connected") };
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
    assert!(error.to_string().ends_with("ACL SETUSER producer +cluster|slots"), "{error}");
    assert_eq!(server.cli(&["ACL", "SETUSER", "producer", "+cluster|slots"]), "OK");
    cases::wait_until(|| async { server.cli(&["CLUSTER", "INFO"]).contains("cluster_state:ok") }).await;
    produce(connect(&url).await.unwrap()).await.unwrap();
}

async fn on_peer(peer: &'static Peer) {
    if let Some(server) = Server::peer(peer, &[]) {
        all_roles(&server, true, peer.redis_version >= (8, 2)).await;
    }
}

async fn all_roles(server: &Server, uses_scripts: bool, trims_acknowledged: bool) {
    let role = |user| Role { server, user, commands: documented(user, uses_scripts, trims_acknowledged) };
    role("producer").check(produce).await;
    let worker = role("worker");
    let (of_owners, others): (Vec<_>, Vec<_>) =
        worker.commands.iter().cloned().partition(|words| words.contains(&OF_OWNERS));
    assert_eq!(of_owners.len(), 1);
    Role { commands: others, ..role("worker") }.check(work).await;
    worker.check_rules(work_in_order, of_owners.concat()).await;
    role("operator").check(look).await;
    role("redriver").check(redrive_all).await;
}

/// A user with the permissions of the page.
struct Role<'a> {
    server: &'a Server,
    user: &'static str,
    commands: Vec<Vec<&'static str>>,
}

impl Role<'_> {
    /// Checks that the user can do the work, and that it fails without any of the user's permissions.
    async fn check<F: Future<Output = Result<(), Error>>>(&self, work: fn(Arc<dyn Admin>) -> F) {
        self.check_rules(work, self.commands.concat()).await;
    }

    /// Checks that the user can do the work, and that it fails without any of these permissions.
    async fn check_rules<F: Future<Output = Result<(), Error>>>(
        &self,
        work: fn(Arc<dyn Admin>) -> F,
        rules: Vec<&str>,
    ) {
        assert!(!self.commands.is_empty(), "the page has no permissions for {}", self.user);
        self.grant_without("");
        self.run(work).await.unwrap_or_else(|error| panic!("{}: {error}", self.user));
        for rule in rules.into_iter().filter(|rule| rule.starts_with(['+', '~'])) {
            self.grant_without(rule);
            let Err(error) = self.run(work).await else { panic!("{} succeeds without {rule}", self.user) };
            assert_eq!(error.kind(), ErrorKind::Denied, "{rule}: {error}");
            let error = error.to_string();
            let (_, granted) = error.split_once("with: ACL SETUSER ").unwrap_or_else(|| panic!("{error}"));
            let mut granted = granted.split(' ');
            assert_eq!(granted.next(), Some(self.user), "{rule}: {error}");
            let named: Vec<&str> = granted.collect();
            // The page has a pattern where the error names a key.
            let is_named = |named: &&str| match rule.strip_suffix('*') {
                Some(prefix) => named.starts_with(prefix),
                None => *named == rule,
            };
            assert!(named.iter().any(is_named), "{rule}: {error}");
        }
    }

    async fn run<F: Future<Output = Result<(), Error>>>(
        &self,
        work: fn(Arc<dyn Admin>) -> F,
    ) -> Result<(), Error> {
        let url = format!("redis://{}:secret@127.0.0.1:{}", self.user, self.server.port);
        fill(&*connect(&self.server.url()).await.unwrap()).await;
        tokio::time::timeout(TIMEOUT, work(connect(&url).await?)).await.expect("the work did not end in time")
    }

    /// Creates the user with the permissions of the page but for one rule.
    fn grant_without(&self, rule: &str) {
        for command in &self.commands {
            let command: Vec<&str> = command.iter().copied().filter(|word| *word != rule).collect();
            assert_eq!(self.server.cli(&command), "OK", "{command:?}");
        }
    }
}

/// Fills the stream with an entry that is pending in another group, and its dead-letter stream with two dead letters of
/// this entry.
async fn fill(admin: &dyn Admin) {
    for stream in admin.streams("*").await.unwrap() {
        admin.delete_stream(&stream).await.unwrap();
    }
    admin.create_group(STREAM, GROUP, Start::Beginning).await.unwrap();
    let ids = admin.add(STREAM, &[cases::entry("n", "1")], None).await.unwrap();
    // A second group has a pending entry.
    admin.create_group(STREAM, "g", Start::Beginning).await.unwrap();
    admin.read(&cases::reader(STREAM, "c", 1)).await.unwrap();
    let letter = [
        ("n", "1".to_owned()),
        ("dlq.stream", STREAM.to_owned()),
        ("dlq.id", ids[0].to_string()),
        ("dlq.group", GROUP.to_owned()),
        ("dlq.reason", "rejected".to_owned()),
    ];
    let fields = letter.into_iter().map(|(name, value)| (name.into(), value.into())).collect();
    let letter = NewEntry { fields, idempotence: None };
    admin.add(&dead_letters_of(STREAM), &[letter.clone(), letter], None).await.unwrap();
    let heartbeat = (GROUP.to_owned(), Heartbeat::default().to_json().into());
    admin.hash_set(&workers_key(STREAM, GROUP), &[heartbeat]).await.unwrap();
}

async fn produce(backend: Arc<dyn Admin>) -> Result<(), Error> {
    Producer::new(backend.clone(), STREAM)
        .idempotent("shop")
        .trim(Trim::exactly(1).keep_unread())
        .send([("n", "2")])
        .await?;
    let idempotence = Idempotence { producer: "shop".into(), iid: "1".into() };
    let once = NewEntry { idempotence: Some(idempotence), ..cases::entry("n", "3") };
    backend.add(STREAM, &[once], None).await.map(drop)
}

/// Handles a message on the second attempt, and dead-letters another.
async fn work(backend: Arc<dyn Admin>) -> Result<(), Error> {
    run_until_dead(worker(&backend).handler(fail_twice), &backend).await
}

/// Does the same as [`work`], as the owner of the stream.
async fn work_in_order(backend: Arc<dyn Admin>) -> Result<(), Error> {
    run_until_dead(worker(&backend).exclusive().handler(fail_twice), &backend).await
}

async fn fail_twice(message: Message) -> Result<(), HandlerError> {
    Err(if message.attempt == 1 { HandlerError::retry("once more") } else { HandlerError::reject("dead") })
}

fn worker(backend: &Arc<dyn Admin>) -> WorkerBuilder {
    Worker::builder(backend.clone())
        .stream(STREAM)
        .group(GROUP)
        .dedupe(Duration::from_secs(60))
        .delete_done(true)
        .autoscale(Autoscale::between(1..=2))
        .lease(Duration::from_millis(100))
        .retry(Backoff::fixed(Duration::from_millis(1)))
}

async fn run_until_dead(worker: WorkerBuilder, backend: &Arc<dyn Admin>) -> Result<(), Error> {
    let worker = worker.build().unwrap();
    let handle = worker.handle();
    let dead = async move { cases::wait_until(|| async { handle.stats().dead > 0 }).await };
    let report = worker.run_until(dead).await?;
    assert_eq!((report.dead, report.retried), (1, 1), "{report}");
    // Checking the permissions and a drained worker leave nothing.
    let left = backend.hash_get_all(&workers_key(STREAM, GROUP)).await?;
    assert!(left.iter().all(|(instance, _)| instance == GROUP), "{left:?}");
    Ok(())
}

async fn look(backend: Arc<dyn Admin>) -> Result<(), Error> {
    backend.ping().await?;
    heartbeat::workers(&*backend, STREAM, GROUP).await?;
    retry_records(&*backend, STREAM, GROUP, &[StreamId::MIN]).await?;
    let streams = Monitor::new(backend.clone()).streams("*").await?;
    assert_eq!(streams.len(), 2);
    let newest = Range { order: IdOrder::Descending, ..Range::starting_at(StreamId::MIN, 1) };
    assert_eq!(backend.range(STREAM, newest).await?.len(), 1);
    backend.follow(STREAM, StreamId::MIN, 1, Duration::from_millis(1)).await?;
    match backend.server(&["appendonly"]).await?.unwrap().denied {
        Some(denied) => Err(Error::new(ErrorKind::Denied, denied)),
        None => Ok(()),
    }
}

async fn redrive_all(backend: Arc<dyn Admin>) -> Result<(), Error> {
    for to in [Destination::Group, Destination::AllGroups] {
        let request = Redrive { to, limit: Some(1), ..Redrive::default() };
        let progress = redrive(&*backend, &dead_letters_of(STREAM), &request, |_| {}).await?;
        assert_eq!((progress.redriven, progress.skipped()), (1, 0), "{progress:?}");
    }
    Ok(())
}
