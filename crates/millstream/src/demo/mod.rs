//! `millstream demo`: everything a worker does, in half a minute, on a store in memory.
//!
//! Producers, a pool that grows, a worker that is killed with messages in its hands, messages that cannot be handled,
//! recovery, dead letters, their second chance, and the ledger: every message is in exactly one place.

mod ledger;
mod stage;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clap::Args;
use millstream_worker::dead_letter::Letter;
use millstream_worker::names::dead_letters_of;
use millstream_worker::producer::Producer;
use millstream_worker::redrive::{Filter, Redrive, redrive};
use millstream_worker::{
    Admin, Autoscale, Backoff, HandlerError, Message, Report, Worker, WorkerHandle, WorkerName,
};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use self::ledger::{Books, Ledger};
use self::stage::{Figures, Stage};
use crate::ops::Failure;
use crate::ops::output::{GOOD, print_json, print_line};
use crate::ops::value::{count, counted};

const STREAM: &str = "orders";
const GROUP: &str = "billing";
/// The worker that will not live long.
const DOOMED: &str = "doomed";
const PRODUCERS: u64 = 3;
const MAX_DELIVERIES: u64 = 3;
/// What a message with a bug on its way says, until the bug is fixed.
const BUG: &str = "cannot divide by zero: the tax table is empty";
/// How often the stage is looked at.
const TICK: Duration = Duration::from_millis(50);

const EXAMPLES: &str = "\
Examples:
  millstream demo
  millstream demo --fast
  millstream demo --fast --json

Nothing is written anywhere: the store is in memory and gone with the process. Exit code 5 if a message was lost.";

/// Show it all in half a minute, on a store in memory
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Demo {
    /// In a few seconds, with fewer messages
    #[arg(long)]
    fast: bool,
    /// Tell the ledger as JSON
    #[arg(long)]
    json: bool,
}

/// How much there is to see, and how fast.
#[derive(Clone, Copy, Debug)]
struct Plan {
    messages: u64,
    /// Messages produced in a second.
    rate: f64,
    /// How long handling one takes.
    work: Duration,
    lease: Duration,
    /// How often the autoscaler looks.
    look: Duration,
    slots_max: usize,
    /// One message in so many is poison: no try will ever succeed.
    poison_every: u64,
    /// One message in so many meets the bug.
    bug_every: u64,
}

const FULL: Plan = Plan {
    messages: 12_000,
    rate: 800.0,
    work: Duration::from_millis(8),
    lease: Duration::from_secs(3),
    look: Duration::from_millis(250),
    slots_max: 16,
    poison_every: 3_000,
    bug_every: 500,
};

const FAST: Plan = Plan {
    messages: 600,
    rate: 600.0,
    work: Duration::from_millis(4),
    lease: Duration::from_millis(400),
    look: Duration::from_millis(50),
    slots_max: 8,
    poison_every: 200,
    bug_every: 60,
};

impl Plan {
    /// What is the matter with the n-th message.
    fn kind(&self, n: u64) -> &'static str {
        match () {
            () if n.is_multiple_of(self.poison_every) => "poison",
            () if n.is_multiple_of(self.bug_every) => "bug",
            () => "order",
        }
    }
}

impl Demo {
    pub(crate) async fn run(&self) -> Result<(), Failure> {
        let plan = if self.fast { FAST } else { FULL };
        let backend = millstream_worker::connect("memory:").await?;
        let mut show = Show {
            plan,
            backend,
            books: Arc::new(Books::default()),
            fixed: Arc::new(AtomicBool::new(false)),
            stage: Stage::new(plan.messages),
            slots_most: 0,
            left_behind: 0,
            redriven: 0,
        };
        let played = show.play().await;
        show.stage.clear();
        let (ledger, report) = played?;
        self.tell(&show, &ledger, &report)?;
        if ledger.balances() { Ok(()) } else { Err(Failure::Check) }
    }

    fn tell(&self, show: &Show, ledger: &Ledger, report: &Report) -> Result<(), Failure> {
        let seconds = show.stage.elapsed().as_secs_f64();
        if self.json {
            let mut told = ledger.json();
            told["left_behind"] = show.left_behind.into();
            told["redelivered"] = report.redelivered.into();
            told["retried"] = report.retried.into();
            told["redriven"] = show.redriven.into();
            told["slots_most"] = show.slots_most.into();
            told["seconds"] = ((seconds * 10.0).round() / 10.0).into();
            return print_json(&told);
        }
        print_line(&format!("The ledger after {seconds:.0} s:"))?;
        let rows = [
            ("in", ledger.produced),
            ("done", ledger.done),
            ("dead", ledger.dead),
            ("pending", ledger.pending),
            ("lost", ledger.lost),
        ];
        for (name, number) in rows {
            print_line(&format!("  {name:8} {:>8}", count(number)))?;
        }
        if ledger.balances() {
            print_line(&format!(
                "{GOOD}Every message is in exactly one place.{GOOD:#} {} delivered more than once, {} finished more than once.",
                count(report.redelivered),
                count(ledger.finished_again)
            ))?;
        }
        print_line("Try it on a server: millstream serve, then millstream work --help")
    }
}

/// Those that send.
type Producers = JoinSet<Result<(), millstream_worker::Error>>;

/// The show as it goes on.
struct Show {
    plan: Plan,
    backend: Arc<dyn Admin>,
    books: Arc<Books>,
    /// Whether the bug has been fixed.
    fixed: Arc<AtomicBool>,
    stage: Stage,
    slots_most: usize,
    left_behind: u64,
    redriven: u64,
}

impl Show {
    async fn play(&mut self) -> Result<(Ledger, Report), Failure> {
        let plan = self.plan;
        self.stage.scene(&format!(
            "{PRODUCERS} producers send {} orders; a pool of 1 to {} slots handles them.",
            count(plan.messages),
            plan.slots_max
        ));
        let pool = self.pool()?;
        let handle = pool.handle();
        let pool = tokio::spawn(pool.run());
        let mut producers = self.produce();
        self.until(&handle, |figures| figures.produced >= plan.messages / 4).await?;
        self.stage.detail(&format!("the pool has grown to {} slots", handle.slots()));
        self.kill_a_worker(&handle).await?;
        while self.held_by_doomed().await? > 0 {
            self.look(&handle).await?;
        }
        self.stage.detail("its leases ran out, and the pool has taken over everything it left");
        self.until_all_is_sent(&handle, &mut producers).await?;
        self.until(&handle, Figures::is_quiet).await?;
        self.read_dead_letters().await?;
        self.redrive(&handle).await?;
        self.stage.scene("The pool drains.");
        handle.drain();
        let report = pool.await.map_err(|error| Failure::Other(format!("the pool failed: {error}")))??;
        let ledger = self.books.close(&*self.backend, STREAM, GROUP, &dead_letters_of(STREAM)).await?;
        Ok((ledger, report))
    }

    /// The pool that stays.
    fn pool(&self) -> Result<Worker, Failure> {
        let (work, books, fixed) = (self.plan.work, Arc::clone(&self.books), Arc::clone(&self.fixed));
        let handler = move |message: Message| {
            let (books, fixed) = (Arc::clone(&books), Arc::clone(&fixed));
            async move {
                sleep(work).await;
                match message.text("kind") {
                    Some("poison") => {
                        return Err(HandlerError::reject("the amount is 'twelve', which is no number"));
                    }
                    Some("bug") if !fixed.load(Ordering::Relaxed) => return Err(HandlerError::retry(BUG)),
                    _ => {}
                }
                books.finished(message.id);
                Ok(())
            }
        };
        let look = self.plan.look;
        let autoscale = Autoscale::between(1..=self.plan.slots_max)
            .every(look)
            .patience(look, look * 8)
            .cool_down(look * 2);
        self.worker("pool").handler(handler).autoscale(autoscale).build().map_err(broken)
    }

    fn worker(&self, name: &str) -> millstream_worker::WorkerBuilder {
        Worker::builder(self.backend.clone())
            .stream(STREAM)
            .group(GROUP)
            .consumer_name(WorkerName::given(name))
            .lease(self.plan.lease)
            .max_deliveries(MAX_DELIVERIES)
            .retry(Backoff::exponential(self.plan.look..self.plan.look * 4))
    }

    /// Starts the producers.
    fn produce(&self) -> Producers {
        let mut producers = JoinSet::new();
        for number in 0..PRODUCERS {
            let (plan, books) = (self.plan, Arc::clone(&self.books));
            let producer = Producer::new(self.backend.clone(), STREAM);
            producers.spawn(async move {
                let began = Instant::now();
                for n in (1..=plan.messages).filter(|n| n % PRODUCERS == number) {
                    tokio::time::sleep_until(began + Duration::from_secs_f64(n as f64 / plan.rate)).await;
                    let order = format!("order {n}");
                    let id = producer.send([("kind", plan.kind(n)), ("order", order.as_str())]).await?;
                    books.produced(&[id]);
                }
                Ok(())
            });
        }
        producers
    }

    /// A second worker takes messages, hangs, and is killed.
    async fn kill_a_worker(&mut self, handle: &WorkerHandle) -> Result<(), Failure> {
        self.stage.scene("A second worker joins, takes some orders, hangs, and is killed.");
        let hanging = |_: Message| async { std::future::pending::<()>().await };
        let doomed = self.worker(DOOMED).handler(hanging).concurrency(4).build().map_err(broken)?;
        let doomed = tokio::spawn(doomed.run());
        while self.held_by_doomed().await? < 4 {
            self.look(handle).await?;
        }
        // No farewell: what it has stays with it, as after kill -9.
        doomed.abort();
        // Aborted is how it ends.
        let _ = doomed.await;
        self.left_behind = self.held_by_doomed().await?;
        let left = counted(self.left_behind, "order", "orders");
        self.stage.detail(&format!("killed with {left} in its hands"));
        Ok(())
    }

    async fn held_by_doomed(&self) -> Result<u64, Failure> {
        let summary = self.backend.pending_summary(STREAM, GROUP).await?;
        Ok(summary.consumers.iter().find(|(name, _)| name == DOOMED).map_or(0, |(_, rows)| *rows))
    }

    async fn until_all_is_sent(
        &mut self,
        handle: &WorkerHandle,
        producers: &mut Producers,
    ) -> Result<(), Failure> {
        while !producers.is_empty() {
            self.look(handle).await?;
            while let Some(sent) = producers.try_join_next() {
                sent.map_err(|error| Failure::Other(format!("a producer failed: {error}")))??;
            }
        }
        Ok(())
    }

    /// Tells why messages died.
    async fn read_dead_letters(&mut self) -> Result<(), Failure> {
        self.stage
            .scene("Some orders could not be handled. They are among the dead letters, with the reason:");
        let letters = self.backend.all_entries(&dead_letters_of(STREAM)).await?;
        let mut errors: BTreeMap<(String, u64), u64> = BTreeMap::new();
        for letter in letters.iter().filter_map(Letter::read) {
            *errors.entry((letter.error, letter.deliveries)).or_default() += 1;
        }
        for ((error, deliveries), letters) in errors {
            let tries = counted(deliveries, "try", "tries");
            self.stage.detail(&format!("{} after {tries}: {error}", counted(letters, "order", "orders")));
        }
        Ok(())
    }

    /// Mends the bug and gives those it killed another chance.
    async fn redrive(&mut self, handle: &WorkerHandle) -> Result<(), Failure> {
        self.stage.scene("The tax table is mended, and those that died of it get another chance.");
        self.fixed.store(true, Ordering::Relaxed);
        let filter = Filter { error: Some(BUG.to_owned()), ..Filter::default() };
        let request = Redrive { filter, ..Redrive::default() };
        let done = redrive(&*self.backend, &dead_letters_of(STREAM), &request, |_| {}).await?;
        self.redriven = done.redriven;
        self.until(handle, Figures::is_quiet).await?;
        self.stage.detail(&format!(
            "{} given back to the group and done",
            counted(done.redriven, "order", "orders")
        ));
        Ok(())
    }

    /// Looks on until something is so.
    async fn until(
        &mut self,
        handle: &WorkerHandle,
        is_so: impl Fn(&Figures) -> bool,
    ) -> Result<(), Failure> {
        loop {
            let figures = self.look(handle).await?;
            if is_so(&figures) {
                return Ok(());
            }
        }
    }

    /// Waits a moment and shows how it stands.
    async fn look(&mut self, handle: &WorkerHandle) -> Result<Figures, Failure> {
        sleep(TICK).await;
        let (produced, finished) = self.books.counts();
        let groups = self.backend.groups(STREAM).await?;
        let group = groups.iter().find(|group| group.name == GROUP);
        let dead = self.backend.stream(&dead_letters_of(STREAM)).await?;
        let figures = Figures {
            produced,
            finished,
            slots: handle.slots(),
            busy: handle.busy(),
            // Before the group is there, nothing of it has been read.
            lag: group.map_or(Some(produced), |group| group.lag).unwrap_or_default(),
            pending: group.map_or(0, |group| group.pending),
            dead: dead.map_or(0, |dead| dead.length),
        };
        self.slots_most = self.slots_most.max(figures.slots);
        self.stage.show(&figures);
        Ok(figures)
    }
}

impl Figures {
    /// Whether everything that is there has been dealt with.
    fn is_quiet(&self) -> bool {
        self.lag == 0 && self.pending == 0
    }
}

fn broken(error: millstream_worker::worker::BuildError) -> Failure {
    Failure::Other(error.to_string())
}
