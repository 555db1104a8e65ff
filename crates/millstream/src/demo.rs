//! `millstream demo`: shows in about 15 seconds what workers do, on an in-memory store.
//!
//! Producers send orders to a pool that grows. A second worker is killed with orders in flight, and the pool takes
//! them over. Some orders fail and become dead letters. Those that failed because of a bug are redriven after a fix.
//! At the end, the ledger shows that every order is either done, dead or pending.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clap::Args;
use indicatif::ProgressBar;
use millstream_worker::backend::StreamId;
use millstream_worker::dead_letter::DeadLetter;
use millstream_worker::names::dead_letters_of;
use millstream_worker::producer::Producer;
use millstream_worker::redrive::{Filter, Redrive, redrive};
use millstream_worker::worker::BuildError;
use millstream_worker::{
    Admin, Autoscale, Backoff, Error, HandlerError, Message, Reason, Worker, WorkerBuilder, WorkerHandle,
    WorkerName,
};
use parking_lot::Mutex;
use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};

use crate::ops::Failure;
use crate::ops::output::{DIM, GOOD, note_styled, print, print_json, print_line, progress_bar};
use crate::ops::value::{count, counted};

const STREAM: &str = "orders";
const GROUP: &str = "billing";
/// Consumer name of the second worker, which is killed.
const SECOND_WORKER: &str = "second";
const PRODUCERS: u64 = 3;
const MAX_ATTEMPTS: u64 = 3;
/// Error of the orders that trigger the bug, until the bug is fixed.
const BUG: &str = "cannot divide by zero: the tax table is empty";
/// Interval at which the demo reads its progress and updates the progress bar.
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

#[derive(Clone, Copy)]
struct Plan {
    orders: u64,
    orders_per_second: f64,
    /// Time to handle one order.
    work: Duration,
    lease: Duration,
    /// Interval at which the autoscaler adjusts the size of the pool.
    autoscale_interval: Duration,
    slots_max: usize,
    /// Every n-th order is invalid: the handler rejects it.
    poison_every: u64,
    bug_every: u64,
}

const FULL: Plan = Plan {
    orders: 12_000,
    orders_per_second: 800.0,
    work: Duration::from_millis(8),
    lease: Duration::from_secs(3),
    autoscale_interval: Duration::from_millis(250),
    slots_max: 16,
    poison_every: 3_000,
    bug_every: 500,
};

const FAST: Plan = Plan {
    orders: 600,
    orders_per_second: 600.0,
    work: Duration::from_millis(4),
    lease: Duration::from_millis(400),
    autoscale_interval: Duration::from_millis(50),
    slots_max: 8,
    poison_every: 200,
    bug_every: 60,
};

/// The orders that producers sent, and how many times each was finished.
#[derive(Default)]
struct Orders {
    sent: BTreeSet<StreamId>,
    finished: BTreeMap<StreamId, u64>,
}

/// The orders, counted by their final state.
#[derive(Debug, PartialEq)]
struct Ledger {
    done: u64,
    dead: u64,
    pending: u64,
    /// Neither done, nor dead, nor pending.
    lost: u64,
    /// Finished once more, because the worker that finished it before has not acknowledged it.
    finished_again: u64,
    /// Whether every order is in exactly one state.
    balances: bool,
}

impl Orders {
    /// Compares the orders with the pending entries and the dead letters of the store.
    async fn ledger(this: &Mutex<Orders>, backend: &dyn Admin) -> Result<Ledger, Error> {
        let entries = backend.all_entries(&dead_letters_of(STREAM)).await?;
        let dead: BTreeSet<_> = entries.iter().filter_map(|entry| DeadLetter::read(entry)?.origin).collect();
        let rows = backend.all_pending(STREAM, GROUP).await?;
        let pending: BTreeSet<_> = rows.iter().map(|row| row.id).collect();
        let orders = this.lock();
        let finished_again = orders.finished.values().map(|times| times - 1).sum();
        let mut ledger = Ledger { done: 0, dead: 0, pending: 0, lost: 0, finished_again, balances: true };
        for id in &orders.sent {
            let is_pending = pending.contains(id);
            let states = [orders.finished.contains_key(id) && !is_pending, dead.contains(id), is_pending];
            let [done, dead, pending] = states.map(u64::from);
            ledger.done += done;
            ledger.dead += dead;
            ledger.pending += pending;
            ledger.lost += u64::from(done + dead + pending == 0);
            ledger.balances &= done + dead + pending == 1;
        }
        Ok(ledger)
    }
}

impl Demo {
    pub(crate) async fn run(&self) -> Result<(), Failure> {
        let plan = if self.fast { FAST } else { FULL };
        let began = Instant::now();
        let mut run = DemoRun {
            plan,
            backend: millstream_worker::connect("memory:").await?,
            orders: Arc::default(),
            is_fixed: Arc::default(),
            bar: progress_bar(plan.orders, "   {bar:40} {human_pos}/{human_len}  {wide_msg}"),
            steps: 0,
            slots_most: 0,
        };
        let result = run.run().await;
        run.bar.finish_and_clear();
        let outcome = result?;
        let ledger = &outcome.ledger;
        let seconds = began.elapsed().as_secs_f64();
        if self.json {
            print_json(&json!({
                "in": plan.orders,
                "done": ledger.done,
                "dead": ledger.dead,
                "pending": ledger.pending,
                "lost": ledger.lost,
                "finished_again": ledger.finished_again,
                "left_behind": outcome.left_behind,
                "redelivered": outcome.report.redelivered,
                "retried": outcome.report.retried,
                "redriven": outcome.redriven,
                "slots_most": run.slots_most,
                "seconds": (seconds * 10.0).round() / 10.0,
            }))?;
        } else {
            print_line(&format!("Ledger after {seconds:.0} s:"))?;
            let Ledger { done, dead, pending, lost, .. } = *ledger;
            for (name, number) in
                [("in", plan.orders), ("done", done), ("dead", dead), ("pending", pending), ("lost", lost)]
            {
                print_line(&format!("  {name:8} {:>8}", count(number)))?;
            }
            if ledger.balances {
                print(format_args!(
                    "{GOOD}No message was lost: every one is either done, dead or pending.{GOOD:#} {} were redelivered, {} were handled more than once.\n",
                    count(outcome.report.redelivered),
                    count(ledger.finished_again)
                ))?;
            }
            print_line(
                "Next: start a server with: millstream serve. To start a worker, see: millstream work --help",
            )?;
        }
        if ledger.balances { Ok(()) } else { Err(Failure::Check) }
    }
}

struct DemoRun {
    plan: Plan,
    backend: Arc<dyn Admin>,
    orders: Arc<Mutex<Orders>>,
    is_fixed: Arc<AtomicBool>,
    bar: ProgressBar,
    steps: u32,
    slots_most: usize,
}

struct Outcome {
    ledger: Ledger,
    report: millstream_worker::Report,
    /// Orders that were in flight in the killed worker.
    left_behind: u64,
    redriven: u64,
}

impl DemoRun {
    async fn run(&mut self) -> Result<Outcome, Failure> {
        let Plan { orders, slots_max, .. } = self.plan;
        self.step(&format!(
            "{PRODUCERS} producers send {} orders; a pool of 1 to {slots_max} slots handles them.",
            count(orders)
        ));
        let pool = self.pool()?;
        let handle = pool.handle();
        let pool = tokio::spawn(pool.run());
        let mut producers = self.produce();
        while self.poll(&handle).await? && (self.orders.lock().sent.len() as u64) < orders / 4 {}
        self.detail(&format!("the pool has grown to {} slots", handle.slots()));

        self.step("A second worker joins, reads some orders, hangs, and is killed.");
        let hanging = |_: Message| async { std::future::pending::<()>().await };
        let second =
            self.worker(SECOND_WORKER).handler(hanging).concurrency(4).build().map_err(build_failure)?;
        let second = tokio::spawn(second.run());
        while self.pending_of_second_worker().await? < 4 {
            self.poll(&handle).await?;
        }
        // Like kill -9: the orders of the worker stay pending under its consumer name.
        second.abort();
        // Ignored: the result only says that the task was aborted.
        let _ = second.await;
        let left_behind = self.pending_of_second_worker().await?;
        self.detail(&format!("killed with {} in flight", counted(left_behind, "order", "orders")));
        while self.pending_of_second_worker().await? > 0 {
            self.poll(&handle).await?;
        }
        self.detail("the leases of the killed worker expired, and the pool has taken over its orders");
        while let Some(sent) = producers.join_next().await {
            sent.map_err(|error| Failure::Other(format!("a producer failed: {error}")))??;
        }
        while self.poll(&handle).await? {}

        self.step("Some orders failed and became dead letters. Their errors:");
        self.show_dead_letters().await?;

        self.step("The tax table is fixed, and the orders that failed because of it are redriven.");
        self.is_fixed.store(true, Ordering::Relaxed);
        let filter = Filter { error: Some(BUG.to_owned()), ..Filter::default() };
        let request = Redrive { filter, ..Redrive::default() };
        let redriven = redrive(&*self.backend, &dead_letters_of(STREAM), &request, |_| {}).await?.redriven;
        while self.poll(&handle).await? {}
        self.detail(&format!("{} redriven and handled", counted(redriven, "order", "orders")));

        self.step("The pool drains.");
        handle.drain();
        let report = pool.await.map_err(|error| Failure::Other(format!("the pool failed: {error}")))??;
        let ledger = Orders::ledger(&self.orders, &*self.backend).await?;
        Ok(Outcome { ledger, report, left_behind, redriven })
    }

    fn step(&mut self, text: &str) {
        self.steps += 1;
        self.bar.suspend(|| note_styled(&format!("{GOOD}{}{GOOD:#}  {text}", self.steps)));
    }

    fn detail(&self, text: &str) {
        self.bar.suspend(|| note_styled(&format!("   {DIM}{text}{DIM:#}")));
    }

    /// Returns the worker that handles the orders for the whole demo.
    fn pool(&self) -> Result<Worker, Failure> {
        let (work, orders, is_fixed) = (self.plan.work, Arc::clone(&self.orders), Arc::clone(&self.is_fixed));
        let handler = move |message: Message| {
            let (orders, is_fixed) = (Arc::clone(&orders), Arc::clone(&is_fixed));
            async move {
                sleep(work).await;
                match message.text("kind") {
                    Some("poison") => Err(HandlerError::reject("the amount 'twelve' is not a number")),
                    Some("bug") if !is_fixed.load(Ordering::Relaxed) => Err(HandlerError::retry(BUG)),
                    _ => {
                        *orders.lock().finished.entry(message.id).or_default() += 1;
                        Ok(())
                    }
                }
            }
        };
        let interval = self.plan.autoscale_interval;
        let autoscale = Autoscale::between(1..=self.plan.slots_max)
            .every(interval)
            .patience(interval, interval * 8)
            .cool_down(interval * 2);
        self.worker("pool").handler(handler).autoscale(autoscale).build().map_err(build_failure)
    }

    fn worker(&self, name: &str) -> WorkerBuilder {
        Worker::builder(self.backend.clone())
            .stream(STREAM)
            .group(GROUP)
            .consumer_name(WorkerName::given(name))
            .lease(self.plan.lease)
            .max_attempts(MAX_ATTEMPTS)
            .retry(Backoff::exponential(self.plan.autoscale_interval..self.plan.autoscale_interval * 4))
    }

    fn produce(&self) -> JoinSet<Result<(), Error>> {
        let mut producers = JoinSet::new();
        for number in 0..PRODUCERS {
            let (plan, orders) = (self.plan, Arc::clone(&self.orders));
            let producer = Producer::new(self.backend.clone(), STREAM);
            producers.spawn(async move {
                let began = Instant::now();
                for n in (1..=plan.orders).filter(|n| n % PRODUCERS == number) {
                    sleep_until(began + Duration::from_secs_f64(n as f64 / plan.orders_per_second)).await;
                    let kind = match () {
                        () if n.is_multiple_of(plan.poison_every) => "poison",
                        () if n.is_multiple_of(plan.bug_every) => "bug",
                        () => "order",
                    };
                    let id = producer.send([("kind", kind), ("order", &format!("order {n}"))]).await?;
                    orders.lock().sent.insert(id);
                }
                Ok(())
            });
        }
        producers
    }

    async fn pending_of_second_worker(&self) -> Result<u64, Failure> {
        let summary = self.backend.pending_summary(STREAM, GROUP).await?;
        Ok(summary.consumers.iter().find(|(name, _)| name == SECOND_WORKER).map_or(0, |(_, rows)| *rows))
    }

    async fn show_dead_letters(&self) -> Result<(), Failure> {
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
            self.detail(&format!("{} after {attempts}: {error}", counted(number, "order", "orders")));
        }
        Ok(())
    }

    /// Waits for [`TICK`], then shows the progress. Returns whether an order is unread or pending.
    async fn poll(&mut self, handle: &WorkerHandle) -> Result<bool, Failure> {
        sleep(TICK).await;
        let groups = self.backend.groups(STREAM).await?;
        let group = groups.iter().find(|group| group.name == GROUP);
        // Until the worker has created the group, every order is unread.
        let (lag, pending) = group.map_or((1, 0), |group| (group.lag.unwrap_or_default(), group.pending));
        let (slots, busy) = (handle.slots(), handle.busy());
        self.slots_most = self.slots_most.max(slots);
        self.bar.set_position(self.orders.lock().finished.len() as u64);
        self.bar.set_message(format!("{busy} of {slots} slots busy, lag {lag}, {pending} pending"));
        Ok(lag > 0 || pending > 0)
    }
}

fn build_failure(error: BuildError) -> Failure {
    Failure::Other(error.to_string())
}

#[cfg(test)]
mod tests {
    use millstream_worker::backend::{NewEntry, Read, Start};

    use super::*;

    #[tokio::test]
    async fn an_unaccounted_order_is_counted_as_lost() {
        let backend = millstream_worker::connect("memory:").await.unwrap();
        let entry = NewEntry { fields: vec![("n".into(), "1".into())], idempotence: None };
        let ids = backend.add(STREAM, &[entry.clone(), entry.clone(), entry], None).await.unwrap();
        backend.create_group(STREAM, GROUP, Start::Beginning).await.unwrap();
        let read =
            Read { stream: STREAM, group: GROUP, consumer: "c", count: 1, block: None, claim_idle: None };
        backend.read(&read).await.unwrap();
        let orders = Orders { sent: ids.iter().copied().collect(), finished: BTreeMap::from([(ids[1], 2)]) };
        let ledger = Orders::ledger(&Mutex::new(orders), &*backend).await.unwrap();
        let expected = Ledger { done: 1, dead: 0, pending: 1, lost: 1, finished_again: 1, balances: false };
        assert_eq!(ledger, expected);
    }
}
