//! `millstream demo`: shows in about 15 seconds what workers do, on an in-memory store.
//!
//! Producers send orders to a pool that grows. A second worker is killed with messages in flight, and the pool takes
//! them over. Some messages fail and become dead letters. Those that failed because of a bug are redriven after a fix.
//! At the end, the ledger shows that every message is either done, dead or pending.

mod display;
mod ledger;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clap::Args;
use millstream_worker::dead_letter::DeadLetter;
use millstream_worker::names::dead_letters_of;
use millstream_worker::producer::Producer;
use millstream_worker::redrive::{Filter, Redrive, redrive};
use millstream_worker::{
    Admin, Autoscale, Backoff, HandlerError, Message, Reason, Report, Worker, WorkerHandle, WorkerName,
};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use self::display::{DemoDisplay, Figures};
use self::ledger::{Ledger, MessageTracker};
use crate::ops::Failure;
use crate::ops::output::{GOOD, print, print_json, print_line};
use crate::ops::value::{count, counted};

const STREAM: &str = "orders";
const GROUP: &str = "billing";
/// Consumer name of the second worker, which is killed.
const SECOND_WORKER: &str = "second";
const PRODUCERS: u64 = 3;
const MAX_ATTEMPTS: u64 = 3;
/// Error of the messages that trigger the bug, until the bug is fixed.
const BUG: &str = "cannot divide by zero: the tax table is empty";
/// Interval at which the demo reads its progress and updates the display.
const TICK: Duration = Duration::from_millis(50);

const EXAMPLES: &str = "\
Examples:
  millstream demo
  millstream demo --fast
  millstream demo --fast --json

The demo takes about 15 seconds. Its store is in memory: nothing is written to disk.
Exit code 5 means that the ledger does not balance, for example because a message was lost.";

/// Show producers, workers, a crash, dead letters and a redrive on an in-memory store
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Demo {
    /// Send fewer messages and finish in a few seconds
    #[arg(long)]
    fast: bool,
    /// Print the ledger as JSON
    #[arg(long)]
    json: bool,
}

/// The size and the pace of the demo.
#[derive(Clone, Copy, Debug)]
struct Plan {
    messages: u64,
    /// Messages produced per second.
    rate: f64,
    /// Time to handle one message.
    work: Duration,
    lease: Duration,
    /// Interval at which the autoscaler adjusts the size of the pool.
    autoscale_interval: Duration,
    slots_max: usize,
    /// Every n-th message is invalid: the handler rejects it.
    poison_every: u64,
    /// Every n-th message triggers the bug.
    bug_every: u64,
}

const FULL: Plan = Plan {
    messages: 12_000,
    rate: 800.0,
    work: Duration::from_millis(8),
    lease: Duration::from_secs(3),
    autoscale_interval: Duration::from_millis(250),
    slots_max: 16,
    poison_every: 3_000,
    bug_every: 500,
};

const FAST: Plan = Plan {
    messages: 600,
    rate: 600.0,
    work: Duration::from_millis(4),
    lease: Duration::from_millis(400),
    autoscale_interval: Duration::from_millis(50),
    slots_max: 8,
    poison_every: 200,
    bug_every: 60,
};

impl Plan {
    /// Returns the kind of the n-th message.
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
        let mut run = DemoRun {
            plan,
            backend,
            tracker: Arc::new(MessageTracker::default()),
            fixed: Arc::new(AtomicBool::new(false)),
            display: DemoDisplay::new(plan.messages),
            slots_most: 0,
            left_behind: 0,
            redriven: 0,
        };
        let result = run.run().await;
        run.display.clear();
        let (ledger, report) = result?;
        self.print_ledger(&run, &ledger, &report)?;
        if ledger.balances() { Ok(()) } else { Err(Failure::Check) }
    }

    fn print_ledger(&self, run: &DemoRun, ledger: &Ledger, report: &Report) -> Result<(), Failure> {
        let seconds = run.display.elapsed().as_secs_f64();
        if self.json {
            let mut json = ledger.json();
            json["left_behind"] = run.left_behind.into();
            json["redelivered"] = report.redelivered.into();
            json["retried"] = report.retried.into();
            json["redriven"] = run.redriven.into();
            json["slots_most"] = run.slots_most.into();
            json["seconds"] = ((seconds * 10.0).round() / 10.0).into();
            return print_json(&json);
        }
        print_line(&format!("Ledger after {seconds:.0} s:"))?;
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
            print(format_args!(
                "{GOOD}No message was lost: every one is either done, dead or pending.{GOOD:#} {} were redelivered, {} were handled more than once.\n",
                count(report.redelivered),
                count(ledger.finished_again)
            ))?;
        }
        print_line(
            "Next: start a server with: millstream serve. To start a worker, see: millstream work --help",
        )
    }
}

/// A running demo.
struct DemoRun {
    plan: Plan,
    backend: Arc<dyn Admin>,
    tracker: Arc<MessageTracker>,
    /// Whether the bug has been fixed.
    fixed: Arc<AtomicBool>,
    display: DemoDisplay,
    /// The largest size of the pool so far.
    slots_most: usize,
    /// Messages that were in flight in the killed worker.
    left_behind: u64,
    redriven: u64,
}

impl DemoRun {
    async fn run(&mut self) -> Result<(Ledger, Report), Failure> {
        let plan = self.plan;
        self.display.step(&format!(
            "{PRODUCERS} producers send {} orders; a pool of 1 to {} slots handles them.",
            count(plan.messages),
            plan.slots_max
        ));
        let pool = self.pool()?;
        let handle = pool.handle();
        let pool = tokio::spawn(pool.run());
        let mut producers = self.produce();
        self.wait_until(&handle, |figures| figures.produced >= plan.messages / 4).await?;
        self.display.detail(&format!("the pool has grown to {} slots", handle.slots()));
        self.kill_second_worker(&handle).await?;
        while self.pending_of_second_worker().await? > 0 {
            self.poll(&handle).await?;
        }
        self.display
            .detail("the leases of the killed worker expired, and the pool has taken over its orders");
        while !producers.is_empty() {
            self.poll(&handle).await?;
            while let Some(sent) = producers.try_join_next() {
                sent.map_err(|error| Failure::Other(format!("a producer failed: {error}")))??;
            }
        }
        self.wait_until(&handle, Figures::is_drained).await?;
        self.show_dead_letters().await?;
        self.redrive(&handle).await?;
        self.display.step("The pool drains.");
        handle.drain();
        let report = pool.await.map_err(|error| Failure::Other(format!("the pool failed: {error}")))??;
        let ledger = self.tracker.ledger(&*self.backend, STREAM, GROUP, &dead_letters_of(STREAM)).await?;
        Ok((ledger, report))
    }

    /// Returns the worker that handles the orders for the whole demo.
    fn pool(&self) -> Result<Worker, Failure> {
        let (work, tracker, fixed) = (self.plan.work, Arc::clone(&self.tracker), Arc::clone(&self.fixed));
        let handler = move |message: Message| {
            let (tracker, fixed) = (Arc::clone(&tracker), Arc::clone(&fixed));
            async move {
                sleep(work).await;
                match message.text("kind") {
                    Some("poison") => {
                        return Err(HandlerError::reject("the amount 'twelve' is not a number"));
                    }
                    Some("bug") if !fixed.load(Ordering::Relaxed) => return Err(HandlerError::retry(BUG)),
                    _ => {}
                }
                tracker.finished(message.id);
                Ok(())
            }
        };
        let interval = self.plan.autoscale_interval;
        let autoscale = Autoscale::between(1..=self.plan.slots_max)
            .every(interval)
            .patience(interval, interval * 8)
            .cool_down(interval * 2);
        self.worker("pool").handler(handler).autoscale(autoscale).build().map_err(build_failure)
    }

    fn worker(&self, name: &str) -> millstream_worker::WorkerBuilder {
        Worker::builder(self.backend.clone())
            .stream(STREAM)
            .group(GROUP)
            .consumer_name(WorkerName::given(name))
            .lease(self.plan.lease)
            .max_attempts(MAX_ATTEMPTS)
            .retry(Backoff::exponential(self.plan.autoscale_interval..self.plan.autoscale_interval * 4))
    }

    /// Starts the producers.
    fn produce(&self) -> JoinSet<Result<(), millstream_worker::Error>> {
        let mut producers = JoinSet::new();
        for number in 0..PRODUCERS {
            let (plan, tracker) = (self.plan, Arc::clone(&self.tracker));
            let producer = Producer::new(self.backend.clone(), STREAM);
            producers.spawn(async move {
                let began = Instant::now();
                for n in (1..=plan.messages).filter(|n| n % PRODUCERS == number) {
                    tokio::time::sleep_until(began + Duration::from_secs_f64(n as f64 / plan.rate)).await;
                    let order = format!("order {n}");
                    let id = producer.send([("kind", plan.kind(n)), ("order", order.as_str())]).await?;
                    tracker.produced(&[id]);
                }
                Ok(())
            });
        }
        producers
    }

    /// Starts a second worker that reads messages and hangs, and kills it.
    async fn kill_second_worker(&mut self, handle: &WorkerHandle) -> Result<(), Failure> {
        self.display.step("A second worker joins, reads some orders, hangs, and is killed.");
        let hanging = |_: Message| async { std::future::pending::<()>().await };
        let second =
            self.worker(SECOND_WORKER).handler(hanging).concurrency(4).build().map_err(build_failure)?;
        let second = tokio::spawn(second.run());
        while self.pending_of_second_worker().await? < 4 {
            self.poll(handle).await?;
        }
        // Like kill -9: the messages of the worker stay pending under its consumer name.
        second.abort();
        // Ignored: the result only says that the task was aborted.
        let _ = second.await;
        self.left_behind = self.pending_of_second_worker().await?;
        let left = counted(self.left_behind, "order", "orders");
        self.display.detail(&format!("killed with {left} in flight"));
        Ok(())
    }

    async fn pending_of_second_worker(&self) -> Result<u64, Failure> {
        let summary = self.backend.pending_summary(STREAM, GROUP).await?;
        Ok(summary.consumers.iter().find(|(name, _)| name == SECOND_WORKER).map_or(0, |(_, rows)| *rows))
    }

    /// Prints the errors of the dead letters.
    async fn show_dead_letters(&mut self) -> Result<(), Failure> {
        self.display.step("Some orders failed and became dead letters. Their errors:");
        let entries = self.backend.all_entries(&dead_letters_of(STREAM)).await?;
        let mut errors: BTreeMap<(String, u64), u64> = BTreeMap::new();
        for dead_letter in entries.iter().filter_map(DeadLetter::read) {
            // The killed worker may have had the order too, but gave no answer.
            let attempts = match dead_letter.reason {
                Some(Reason::MaxAttempts) => MAX_ATTEMPTS,
                _ => dead_letter.deliveries,
            };
            *errors.entry((dead_letter.error, attempts)).or_default() += 1;
        }
        for ((error, attempts), number) in errors {
            let attempts = counted(attempts, "attempt", "attempts");
            self.display.detail(&format!("{} after {attempts}: {error}", counted(number, "order", "orders")));
        }
        Ok(())
    }

    /// Fixes the bug and redrives the messages that failed because of it.
    async fn redrive(&mut self, handle: &WorkerHandle) -> Result<(), Failure> {
        self.display.step("The tax table is fixed, and the orders that failed because of it are redriven.");
        self.fixed.store(true, Ordering::Relaxed);
        let filter = Filter { error: Some(BUG.to_owned()), ..Filter::default() };
        let request = Redrive { filter, ..Redrive::default() };
        let done = redrive(&*self.backend, &dead_letters_of(STREAM), &request, |_| {}).await?;
        self.redriven = done.redriven;
        self.wait_until(handle, Figures::is_drained).await?;
        self.display.detail(&format!("{} redriven and handled", counted(done.redriven, "order", "orders")));
        Ok(())
    }

    /// Polls until the figures meet a condition.
    async fn wait_until(
        &mut self,
        handle: &WorkerHandle,
        condition: impl Fn(&Figures) -> bool,
    ) -> Result<(), Failure> {
        loop {
            let figures = self.poll(handle).await?;
            if condition(&figures) {
                return Ok(());
            }
        }
    }

    /// Waits for [`TICK`], then reads the current figures and shows them.
    async fn poll(&mut self, handle: &WorkerHandle) -> Result<Figures, Failure> {
        sleep(TICK).await;
        let (produced, finished) = self.tracker.counts();
        let groups = self.backend.groups(STREAM).await?;
        let group = groups.iter().find(|group| group.name == GROUP);
        let dead = self.backend.stream(&dead_letters_of(STREAM)).await?;
        let figures = Figures {
            produced,
            finished,
            slots: handle.slots(),
            busy: handle.busy(),
            // Until the worker has created the group, every message is unread.
            lag: group.map_or(Some(produced), |group| group.lag).unwrap_or_default(),
            pending: group.map_or(0, |group| group.pending),
            dead: dead.map_or(0, |dead| dead.length),
        };
        self.slots_most = self.slots_most.max(figures.slots);
        self.display.show(&figures);
        Ok(figures)
    }
}

impl Figures {
    /// Whether no message is unread or pending.
    fn is_drained(&self) -> bool {
        self.lag == 0 && self.pending == 0
    }
}

fn build_failure(error: millstream_worker::worker::BuildError) -> Failure {
    Failure::Other(error.to_string())
}
