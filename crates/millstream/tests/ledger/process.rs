//! A process of a campaign: workers, a producer, or both on an embedded store. It drains on SIGTERM. The processes
//! of plain clients are in [plain].

use std::collections::HashSet;
use std::future::pending;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use millstream_worker::handler::Data;
use millstream_worker::producer::Producer;
use millstream_worker::{
    Admin, Backoff, HandlerError, Message, Outcome, Process, Worker, WorkerName, connect,
};
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinSet;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::FormatTime;

use crate::journal::{self, Journal};
use crate::kind::MessageKind;
use crate::order;
use crate::plain;
use crate::random::Random;
use crate::recording::Recording;
use crate::role::{GROUP, Role, STREAM};
use crate::steps::{POISON_EXIT, Plan, Step, die};

/// Maximum number of entries per send.
const SEND_MAX: u64 = 4;
/// Delay before a failed operation is tried again.
const RETRY_DELAY: Duration = Duration::from_millis(50);
/// Interval at which a watching process records the lag.
const WATCH_INTERVAL: Duration = Duration::from_millis(200);
/// Drain timeout of the workers.
const DRAIN: Duration = Duration::from_secs(5);
/// Exit code of a process whose worker failed.
const BROKEN: i32 = 9;
/// Exit code of a process that a message ended.
const EXITED: i32 = 3;

/// Runs the role until its end.
pub(crate) fn run(role: &Role) {
    if role.is_plain {
        return plain::client::run(role);
    }
    // The output of the process is in its log.
    let log = tracing_subscriber::fmt().with_writer(std::io::stderr).with_ansi(false).with_timer(Millis);
    log.with_max_level(tracing::Level::DEBUG).init();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(run_role(role));
}

/// The time in the log is that of the journal.
struct Millis;

impl FormatTime for Millis {
    fn format_time(&self, w: &mut Writer<'_>) -> std::fmt::Result {
        write!(w, "{}", journal::now_ms())
    }
}

async fn run_role(role: &Role) {
    let journal = Arc::new(Journal::open(&role.journal, &role.name));
    let mut terminate = signal(SignalKind::terminate()).expect("listen for SIGTERM");
    let backend = tokio::select! {
        backend = connect_with_retries(&role.url) => backend,
        _ = terminate.recv() => return,
    };
    let draining = CancellationToken::new();
    let mut workers = start_workers(role, &backend, &draining);
    let producing = async {
        if let Some(numbers) = role.numbers {
            produce(role, &backend, &journal, numbers).await;
            journal.record("produced", [""; 0]);
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

/// Connects to the store, and retries until it can be reached.
async fn connect_with_retries(url: &str) -> Arc<dyn Admin> {
    loop {
        match connect(url).await {
            Ok(backend) => return backend,
            Err(error) => eprintln!("cannot reach {url}: {error}"),
        }
        sleep(RETRY_DELAY).await;
    }
}

fn start_workers(role: &Role, backend: &Arc<dyn Admin>, draining: &CancellationToken) -> JoinSet<()> {
    let (step, times) = role.death.unzip();
    let plan = Arc::new(Plan::new(step, times.unwrap_or_default()));
    let (mut workers, process) = (JoinSet::new(), Process::default());
    for (name, survives_restart) in &role.workers {
        let journal = Arc::new(Journal::open(&role.journal, name));
        let context = HandlerContext {
            journal: Arc::clone(&journal),
            plan: Arc::clone(&plan),
            lease: role.lease,
            outage: role.outage.clone(),
        };
        let name = if *survives_restart { WorkerName::given(name.clone()) } else { WorkerName::unique() };
        let recording = Recording {
            inner: Arc::clone(backend),
            journal: Arc::clone(&journal),
            plan: Arc::clone(&plan),
            mistake: role.mistake,
        };
        let builder = Worker::builder(Arc::new(recording)).stream(STREAM).group(GROUP);
        let builder = match role.ownership {
            None => builder.handler(handle).state(context),
            Some(ownership) => order::process::complete(builder, ownership, &journal, &plan),
        };
        let worker = builder
            .consumer_name(name)
            .process(&process)
            .concurrency(4)
            .retry(Backoff::exponential(Duration::from_millis(50)..Duration::from_millis(500)))
            .max_deliveries(role.max_deliveries)
            .max_attempts(role.max_attempts)
            .lease(role.lease)
            .drain(DRAIN)
            .build()
            .expect("a worker");
        let draining = draining.clone();
        workers.spawn(async move {
            match worker.run_until(draining.cancelled_owned()).await {
                Ok(report) => journal.record("drained", report.to_string().split(' ')),
                Err(error) => {
                    journal.record("broken", error.to_string().split(' '));
                    std::process::exit(BROKEN);
                }
            }
        });
    }
    workers
}

/// State of the handlers.
struct HandlerContext {
    journal: Arc<Journal>,
    plan: Arc<Plan>,
    lease: Duration,
    /// While this file exists, every handler fails.
    outage: PathBuf,
}

impl HandlerContext {
    fn record(&self, event: &str, message: &Message) {
        self.journal.record(event, [message.id.to_string(), message.attempt.to_string()]);
    }
}

async fn handle(message: Message, context: Data<HandlerContext>) -> Result<Outcome, HandlerError> {
    let kind = message.text("kind").and_then(MessageKind::parse).expect("a message of this campaign");
    context.record("begin", &message);
    context.plan.pass(Step::Begin, &context.journal);
    // A few milliseconds that depend on the message.
    let half = match kind {
        MessageKind::Slow => context.lease.mul_f64(0.7),
        _ => Duration::from_millis(message.id.ms % 8 + message.id.seq % 4),
    };
    sleep(half).await;
    context.plan.pass(Step::Middle, &context.journal);
    if context.outage.exists() {
        context.record("failed", &message);
        return Err(HandlerError::retry("the service is down"));
    }
    match kind {
        MessageKind::Ordinary | MessageKind::Slow => {}
        MessageKind::Stuck if message.attempt == 1 => std::thread::sleep(context.lease.mul_f64(1.5)),
        MessageKind::Stuck => {}
        MessageKind::Flaky if message.attempt <= 1 + message.id.ms % 2 => {
            context.record("failed", &message);
            return Err(HandlerError::retry("not yet"));
        }
        MessageKind::Flaky => {}
        MessageKind::Failing => {
            context.record("failed", &message);
            return Err(HandlerError::retry("never"));
        }
        MessageKind::Panicking => {
            context.record("failed", &message);
            panic!("the message asks for a panic");
        }
        MessageKind::Rejected => {
            context.record("failed", &message);
            return Ok(Outcome::reject("not this"));
        }
        MessageKind::Killing => die("poison", &context.journal),
        MessageKind::Exiting => {
            context.journal.record("dying", [POISON_EXIT]);
            std::process::exit(EXITED);
        }
        MessageKind::Later => return Ok(Outcome::retry_after(Duration::from_secs(60 * 60))),
    }
    sleep(half).await;
    context.record("done", &message);
    context.plan.pass(Step::Done, &context.journal);
    Ok(Outcome::Ack)
}

/// Sends the messages that the journal does not record as added. A message whose reply was lost is sent again.
async fn produce(role: &Role, backend: &Arc<dyn Admin>, journal: &Journal, numbers: (u64, u64)) {
    let added = added(role);
    let mut left: Vec<u64> = (numbers.0..=numbers.1).filter(|number| !added.contains(number)).rev().collect();
    let mut random = Random::new(role.seed ^ u64::from(std::process::id()));
    let producer = Producer::new(backend.clone(), STREAM);
    while !left.is_empty() {
        let count = random.between(1, SEND_MAX).min(left.len() as u64) as usize;
        let some = left.split_off(left.len() - count);
        sleep(role.pace.mul_f64(count as f64 * random.below(200) as f64 / 100.0)).await;
        loop {
            journal.record("sent", &some);
            let entries = some.iter().map(|number| fields(role.seed, *number));
            match producer.send_all(entries).await {
                Ok(ids) => {
                    journal
                        .record("added", some.iter().zip(ids).map(|(number, id)| format!("{number}:{id}")));
                    break;
                }
                Err(_) => sleep(RETRY_DELAY).await,
            }
        }
    }
}

/// The fields of the message with this number.
pub(crate) fn fields(seed: u64, number: u64) -> [(&'static str, String); 2] {
    [("n", number.to_string()), ("kind", MessageKind::of(seed, number).name().to_owned())]
}

fn added(role: &Role) -> HashSet<u64> {
    let lines = journal::read(&role.journal);
    let added = lines.iter().filter(|line| line.event == "added").flat_map(|line| &line.words);
    added.filter_map(|word| word.split(':').next()?.parse().ok()).collect()
}

/// Records the lag and the number of pending messages at regular intervals.
async fn watch(backend: &Arc<dyn Admin>, journal: &Journal) {
    loop {
        sleep(WATCH_INTERVAL).await;
        // The group does not exist before a worker has created it.
        let groups = backend.groups(STREAM).await.unwrap_or_default();
        if let Some(group) = groups.iter().find(|group| group.name == GROUP) {
            let lag = group.lag.unwrap_or(u64::MAX);
            journal.record("left", [lag, group.pending]);
        }
    }
}
