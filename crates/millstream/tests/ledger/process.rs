//! A process of a campaign: workers, a producer, or both on a store of its own. It drains at SIGTERM.

use std::collections::HashSet;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use millstream_worker::handler::Data;
use millstream_worker::producer::Producer;
use millstream_worker::{Admin, Backoff, HandlerError, Message, Outcome, Worker, WorkerName, connect};
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinSet;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::journal::{self, Journal};
use crate::kind::Kind;
use crate::random::Random;
use crate::recording::Recording;
use crate::role::{GROUP, Role, STREAM};
use crate::steps::{POISON_EXIT, Plan, Step, die};

/// How many entries go in one send at most.
const SENT_AT_ONCE_MAX: u64 = 4;
/// How long after a failure something is tried again.
const AGAIN_AFTER: Duration = Duration::from_millis(50);
/// How often a process that watches looks.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// How long a drain may take.
const DRAIN: Duration = Duration::from_secs(5);
/// The exit code of a process whose worker gave up.
const BROKEN: i32 = 9;
/// The exit code by which a message ends its process.
const EXITED: i32 = 3;

/// Plays the role to its end.
pub(crate) fn play(role: &Role) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(act(role));
}

async fn act(role: &Role) {
    let journal = Arc::new(Journal::open(&role.journal, &role.name));
    let mut terminate = signal(SignalKind::terminate()).expect("listen for SIGTERM");
    let backend = tokio::select! {
        backend = reach(&role.url) => backend,
        _ = terminate.recv() => return,
    };
    let draining = CancellationToken::new();
    let mut workers = start_workers(role, &backend, &draining);
    let producing = async {
        if let Some(numbers) = role.numbers {
            produce(role, &backend, &journal, numbers).await;
            journal.say("produced", [""; 0]);
        }
        if !role.workers.is_empty() {
            pending::<()>().await;
        }
    };
    let watching = async { if role.watches { watch(&backend, &journal).await } else { pending().await } };
    tokio::select! {
        _ = terminate.recv() => {}
        () = producing => {}
        () = watching => {}
    }
    draining.cancel();
    while workers.join_next().await.is_some() {}
}

/// The store, as soon as it can be reached.
async fn reach(url: &str) -> Arc<dyn Admin> {
    loop {
        match connect(url).await {
            Ok(backend) => return backend,
            Err(error) => eprintln!("cannot reach {url}: {error}"),
        }
        sleep(AGAIN_AFTER).await;
    }
}

fn start_workers(role: &Role, backend: &Arc<dyn Admin>, draining: &CancellationToken) -> JoinSet<()> {
    let (step, times) = role.death.unzip();
    let plan = Arc::new(Plan::new(step, times.unwrap_or_default()));
    let mut workers = JoinSet::new();
    for (name, survives_restart) in &role.workers {
        let journal = Arc::new(Journal::open(&role.journal, name));
        let desk = Desk { journal: Arc::clone(&journal), plan: Arc::clone(&plan), lease: role.lease };
        let name = if *survives_restart { WorkerName::given(name.clone()) } else { WorkerName::unique() };
        let recording = Recording {
            inner: Arc::clone(backend),
            journal: Arc::clone(&journal),
            plan: Arc::clone(&plan),
            acknowledges_too_early: role.acknowledges_too_early,
        };
        let worker = Worker::builder(Arc::new(recording))
            .stream(STREAM)
            .group(GROUP)
            .handler(handle)
            .state(desk)
            .consumer_name(name)
            .concurrency(4)
            .retry(Backoff::exponential(Duration::from_millis(50)..Duration::from_millis(500)))
            .max_deliveries(role.max_deliveries)
            .lease(role.lease)
            .drain(DRAIN)
            .build()
            .expect("a worker");
        let draining = draining.clone();
        workers.spawn(async move {
            match worker.run_until(draining.cancelled_owned()).await {
                Ok(report) => journal.say("drained", report.to_string().split(' ')),
                Err(error) => {
                    journal.say("broken", error.to_string().split(' '));
                    std::process::exit(BROKEN);
                }
            }
        });
    }
    workers
}

/// What a handler works with.
struct Desk {
    journal: Arc<Journal>,
    plan: Arc<Plan>,
    lease: Duration,
}

impl Desk {
    fn say(&self, what: &str, message: &Message) {
        self.journal.say(what, [message.id.to_string(), message.attempt.to_string()]);
    }
}

async fn handle(message: Message, desk: Data<Desk>) -> Result<Outcome, HandlerError> {
    let kind = message.text("kind").and_then(Kind::parse).expect("a message of ours");
    desk.say("begin", &message);
    desk.plan.pass(Step::Begin, &desk.journal);
    // A few milliseconds, other ones for each message.
    let half = match kind {
        Kind::Slow => desk.lease.mul_f64(0.7),
        _ => Duration::from_millis(message.id.ms % 8 + message.id.seq % 4),
    };
    sleep(half).await;
    desk.plan.pass(Step::Middle, &desk.journal);
    match kind {
        Kind::Ordinary | Kind::Slow => {}
        Kind::Stuck if message.attempt == 1 => std::thread::sleep(desk.lease.mul_f64(1.5)),
        Kind::Stuck => {}
        Kind::Flaky if message.attempt <= 1 + message.id.ms % 2 => {
            return Err(HandlerError::retry("not yet"));
        }
        Kind::Flaky => {}
        Kind::Failing => return Err(HandlerError::retry("never")),
        Kind::Panicking => panic!("as the message wants it"),
        Kind::Rejected => return Ok(Outcome::reject("not this")),
        Kind::Killing => die("poison", &desk.journal),
        Kind::Exiting => {
            desk.journal.say("dying", [POISON_EXIT]);
            std::process::exit(EXITED);
        }
        Kind::Later => return Ok(Outcome::retry_after(Duration::from_secs(60 * 60))),
    }
    sleep(half).await;
    desk.say("done", &message);
    desk.plan.pass(Step::Done, &desk.journal);
    Ok(Outcome::Ack)
}

/// Sends the numbers that the journal does not know as added. One whose answer got lost is sent again.
async fn produce(role: &Role, backend: &Arc<dyn Admin>, journal: &Journal, numbers: (u64, u64)) {
    let added = added(role);
    let mut left: Vec<u64> = (numbers.0..=numbers.1).filter(|number| !added.contains(number)).rev().collect();
    let mut random = Random::new(role.seed ^ u64::from(std::process::id()));
    let producer = Producer::new(backend.clone(), STREAM);
    while !left.is_empty() {
        let count = random.between(1, SENT_AT_ONCE_MAX).min(left.len() as u64) as usize;
        let some = left.split_off(left.len() - count);
        sleep(role.pace.mul_f64(count as f64 * random.below(200) as f64 / 100.0)).await;
        loop {
            journal.say("sent", &some);
            let entries = some.iter().map(|number| fields(role.seed, *number));
            match producer.send_all(entries).await {
                Ok(ids) => {
                    journal.say("added", some.iter().zip(ids).map(|(number, id)| format!("{number}:{id}")));
                    break;
                }
                Err(_) => sleep(AGAIN_AFTER).await,
            }
        }
    }
}

/// The fields of the message with this number.
pub(crate) fn fields(seed: u64, number: u64) -> [(&'static str, String); 2] {
    [("n", number.to_string()), ("kind", Kind::of(seed, number).name().to_owned())]
}

fn added(role: &Role) -> HashSet<u64> {
    let lines = journal::read(&role.journal);
    let added = lines.iter().filter(|line| line.what == "added").flat_map(|line| &line.words);
    added.filter_map(|word| word.split(':').next()?.parse().ok()).collect()
}

/// Writes down how much there is to do, again and again.
async fn watch(backend: &Arc<dyn Admin>, journal: &Journal) {
    loop {
        sleep(LOOK_EVERY).await;
        // There is no group before a worker has made it.
        let groups = backend.groups(STREAM).await.unwrap_or_default();
        if let Some(group) = groups.iter().find(|group| group.name == GROUP) {
            let lag = group.lag.unwrap_or(u64::MAX);
            journal.say("left", [lag, group.pending]);
        }
    }
}
