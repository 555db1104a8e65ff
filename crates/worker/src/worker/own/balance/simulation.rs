//! Simulates workers that share partitions, on virtual time. Workers join, drain, crash and freeze, and the store loses
//! writes that it has confirmed, as a failover does. `MILLSTREAM_BALANCE_STEPS` sets the number of these disturbances.
//!
//! The assignment is the real one. Heartbeats, leases and wake-ups are a model of `sharing.rs`, with its times. Checked
//! are:
//!
//! * When nothing disturbs the workers any more, every partition has one owner, nobody has two more than another, and
//!   nothing moves any more. This takes at most three heartbeats after the last lease has expired.
//! * If no write was lost, workers give up only as many partitions as they must.
//! * At no time may two workers begin messages of a partition, if the store has not lost its lease.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;

use fastrand::Rng;

use super::super::members::{INTERVAL, SILENT_AFTER_MS};
use super::super::renewal::RENEW_INTERVAL;
use super::super::sharing::{HELD_PAUSE_MAX, STABLE_FOR};
use super::*;
use crate::worker::message::{LEASE, MARGIN};

/// How long handlers run on while their worker gives a partition up.
const LEAVING_MS: Range<u64> = 1..200;
/// How long an acquisition takes.
const ACQUIRING_MS: Range<u64> = 1..20;
/// How long it takes until a worker hears of an entry in the control stream.
const WAKE_MS: Range<u64> = 1..5;
/// The number of heartbeats after which partitions must be balanced.
const ROUNDS_MAX: u64 = 3;
/// One of this number of writes is lost while the store loses writes.
const LOST_WRITE: usize = 4;
const WORKERS_MAX: usize = 12;

fn ms(time: std::time::Duration) -> u64 {
    time.as_millis() as u64
}

/// The store: the hash of members, and leases that expire.
struct Store {
    members: BTreeMap<String, (u64, BTreeSet<usize>)>,
    leases: Vec<Option<Lease>>,
    loses_writes: bool,
    /// Number of writes that were confirmed and lost.
    lost: usize,
}

#[derive(Clone)]
struct Lease {
    owner: String,
    expires_at: u64,
}

/// A worker that owns a partition, from the worker's point of view.
struct Holding {
    /// Distinguishes it from other ownerships of the same worker.
    number: u64,
    valid_until: u64,
    is_leaving: bool,
    is_lost: bool,
    /// Whether the store has lost the lease: another worker may own the partition, too.
    is_unsafe: bool,
}

#[derive(Default)]
struct SimulatedWorker {
    held: BTreeMap<usize, Holding>,
    in_progress: BTreeSet<usize>,
    retry_at: BTreeMap<usize, u64>,
    live: BTreeSet<String>,
    live_since: u64,
    frozen_until: u64,
    is_draining: bool,
    /// The turn that is due next. Earlier plans are void.
    turn: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Step {
    Turn(u64),
    Bell,
    Acquired(usize),
    Renew(usize, u64),
    Left(usize, u64),
}

struct Simulation {
    now: u64,
    partitions: usize,
    random: Rng,
    store: Store,
    workers: BTreeMap<String, SimulatedWorker>,
    due: BinaryHeap<Reverse<(u64, u64, String, Step)>>,
    /// Number of steps and ownerships so far: numbers for new ones.
    numbered: u64,
    /// Number of partitions that workers gave up because they had too many.
    given_up: usize,
    /// When the owner of a partition changed last.
    moved_at: u64,
}

impl Simulation {
    fn new(partitions: usize, seed: u64) -> Simulation {
        let store =
            Store { members: BTreeMap::new(), leases: vec![None; partitions], loses_writes: false, lost: 0 };
        Simulation {
            now: 1_000_000,
            partitions,
            random: Rng::with_seed(seed),
            store,
            workers: BTreeMap::new(),
            due: BinaryHeap::new(),
            numbered: 0,
            given_up: 0,
            moved_at: 0,
        }
    }

    fn number(&mut self) -> u64 {
        self.numbered += 1;
        self.numbered
    }

    fn plan(&mut self, at: u64, worker: &str, step: Step) {
        let number = self.number();
        self.due.push(Reverse((at, number, worker.to_owned(), step)));
    }

    fn plan_turn(&mut self, at: u64, name: &str) {
        let turn = self.number();
        if let Some(worker) = self.workers.get_mut(name) {
            worker.turn = turn;
            self.plan(at, name, Step::Turn(turn));
        }
    }

    /// Whether the store confirms the next write and loses it.
    fn loses_write(&mut self) -> bool {
        let loses = self.store.loses_writes && self.random.usize(..LOST_WRITE) == 0;
        self.store.lost += usize::from(loses);
        loses
    }

    /// Runs everything that is due until this time.
    fn run_until(&mut self, until: u64) {
        while self.due.peek().is_some_and(|Reverse((at, ..))| *at <= until) {
            let Some(Reverse((at, _, name, step))) = self.due.pop() else { break };
            self.now = at;
            let Some(worker) = self.workers.get(&name) else { continue };
            if worker.frozen_until > at {
                self.plan(worker.frozen_until, &name, step);
                continue;
            }
            self.run(&name, step);
            if let Step::Acquired(partition) | Step::Renew(partition, _) = step {
                self.check_owner(partition);
            }
        }
        self.now = until;
    }

    fn run(&mut self, name: &str, step: Step) {
        match step {
            Step::Turn(turn) if self.workers[name].turn == turn => self.turn(name),
            Step::Turn(_) => {}
            Step::Bell => {
                self.worker(name).retry_at.clear();
                self.turn(name);
            }
            Step::Acquired(partition) => self.acquired(name, partition),
            Step::Renew(partition, ownership) => self.renew(name, partition, ownership),
            Step::Left(partition, ownership) => self.left(name, partition, ownership),
        }
    }

    fn worker(&mut self, name: &str) -> &mut SimulatedWorker {
        self.workers.get_mut(name).unwrap()
    }

    /// Exchanges heartbeats and acts on the assignment.
    fn turn(&mut self, name: &str) {
        if self.workers[name].is_draining {
            return;
        }
        let now = self.now;
        let is_first = self.workers[name].live.is_empty();
        self.say(name);
        if is_first {
            self.announce(name);
        }
        let mut view: BTreeMap<&str, BTreeSet<usize>> = BTreeMap::new();
        for (member, (at, held)) in &self.store.members {
            if now.saturating_sub(*at) < SILENT_AFTER_MS {
                view.insert(member, held.clone());
            }
        }
        view.insert(name, claimed(&self.workers[name]));
        let live: BTreeSet<String> = view.keys().map(|member| (*member).to_owned()).collect();
        let Assignment { acquire, surplus } = assign(self.partitions, &view, name);
        let worker = self.worker(name);
        if live != worker.live {
            (worker.live, worker.live_since) = (live, now);
        }
        let mut next = now + ms(INTERVAL);
        for partition in acquire {
            let worker = self.worker(name);
            match worker.retry_at.get(&partition) {
                Some(at) if *at > now => next = next.min(*at),
                _ if worker.held.contains_key(&partition) || !worker.in_progress.insert(partition) => {}
                _ => {
                    let at = now + self.random.u64(ACQUIRING_MS);
                    self.plan(at, name, Step::Acquired(partition));
                }
            }
        }
        if surplus > 0 {
            let settled_at = self.workers[name].live_since + ms(STABLE_FOR);
            if settled_at <= now { self.leave_surplus(name, surplus) } else { next = next.min(settled_at) }
        }
        self.plan_turn(next, name);
    }

    fn say(&mut self, name: &str) {
        let held = claimed(&self.workers[name]);
        if !self.loses_write() {
            self.store.members.insert(name.to_owned(), (self.now, held));
        }
    }

    /// Wakes the other workers.
    fn announce(&mut self, name: &str) {
        if self.loses_write() {
            return;
        }
        let others: Vec<String> = self.workers.keys().filter(|other| *other != name).cloned().collect();
        for other in others {
            let at = self.now + self.random.u64(WAKE_MS);
            self.plan(at, &other, Step::Bell);
        }
    }

    fn acquired(&mut self, name: &str, partition: usize) {
        let (now, number) = (self.now, self.number());
        self.worker(name).in_progress.remove(&partition);
        let lease = self.store.leases[partition].clone().filter(|lease| lease.expires_at > now);
        if let Some(lease) = lease.filter(|lease| lease.owner != name) {
            let pause = (lease.expires_at - now).clamp(5, ms(HELD_PAUSE_MAX));
            self.worker(name).retry_at.insert(partition, now + pause);
            return self.turn(name);
        }
        let is_unsafe = self.loses_write();
        if !is_unsafe {
            self.store.leases[partition] =
                Some(Lease { owner: name.to_owned(), expires_at: now + ms(LEASE) });
        }
        let is_draining = self.workers[name].is_draining;
        let ownership = Holding {
            number,
            valid_until: now + ms(LEASE) - ms(MARGIN),
            is_leaving: is_draining,
            is_lost: false,
            is_unsafe,
        };
        let worker = self.worker(name);
        worker.retry_at.remove(&partition);
        worker.held.insert(partition, ownership);
        self.moved_at = now;
        if is_draining {
            return self.plan(now, name, Step::Left(partition, number));
        }
        self.plan(now + ms(RENEW_INTERVAL), name, Step::Renew(partition, number));
        self.turn(name);
    }

    fn renew(&mut self, name: &str, partition: usize, number: u64) {
        let now = self.now;
        let ownership = self.workers[name].held.get(&partition);
        if ownership.is_none_or(|ownership| ownership.number != number || ownership.is_lost) {
            return;
        }
        let lease = self.store.leases[partition].as_ref();
        let is_ours = lease.is_some_and(|lease| lease.owner == name && lease.expires_at > now);
        let is_unsafe = is_ours && self.loses_write();
        if is_ours && !is_unsafe {
            self.store.leases[partition] =
                Some(Lease { owner: name.to_owned(), expires_at: now + ms(LEASE) });
        }
        let ends_at = now + self.random.u64(LEAVING_MS);
        let Some(ownership) = self.worker(name).held.get_mut(&partition) else { return };
        if is_ours {
            ownership.valid_until = now + ms(LEASE) - ms(MARGIN);
            ownership.is_unsafe = is_unsafe;
            self.plan(now + ms(RENEW_INTERVAL), name, Step::Renew(partition, number));
        } else {
            ownership.is_lost = true;
            if !std::mem::replace(&mut ownership.is_leaving, true) {
                self.plan(ends_at, name, Step::Left(partition, number));
            }
        }
    }

    fn leave_surplus(&mut self, name: &str, surplus: usize) {
        let worker = &self.workers[name];
        let leaving = worker.held.values().filter(|ownership| ownership.is_leaving).count();
        let kept = worker.held.iter().filter(|(_, ownership)| !ownership.is_leaving);
        let leave: Vec<usize> =
            kept.map(|(partition, _)| *partition).take(surplus.saturating_sub(leaving)).collect();
        self.given_up += leave.len();
        self.leave(name, &leave);
    }

    fn leave(&mut self, name: &str, partitions: &[usize]) {
        for partition in partitions {
            let at = self.now + self.random.u64(LEAVING_MS);
            let Some(ownership) = self.worker(name).held.get_mut(partition) else { continue };
            if !std::mem::replace(&mut ownership.is_leaving, true) {
                let number = ownership.number;
                self.plan(at, name, Step::Left(*partition, number));
            }
        }
    }

    /// The handlers of a partition that the worker leaves have ended.
    fn left(&mut self, name: &str, partition: usize, number: u64) {
        let held = &mut self.worker(name).held;
        let Some(ownership) = held.get(&partition).filter(|ownership| ownership.number == number) else {
            return;
        };
        let is_lost = ownership.is_lost;
        held.remove(&partition);
        let is_ours = self.store.leases[partition].as_ref().is_some_and(|lease| lease.owner == name);
        if !is_lost && is_ours && !self.loses_write() {
            self.store.leases[partition] = None;
        }
        self.moved_at = self.now;
        if self.workers[name].is_draining {
            if self.workers[name].held.is_empty() && self.workers[name].in_progress.is_empty() {
                self.announce(name);
                self.workers.remove(name);
            }
            return;
        }
        self.say(name);
        self.announce(name);
        self.turn(name);
    }

    fn join(&mut self) {
        let name = format!("w{}", self.number());
        self.workers.insert(name.clone(), SimulatedWorker::default());
        self.plan_turn(self.now, &name);
    }

    fn drain(&mut self, name: &str) {
        self.worker(name).is_draining = true;
        if !self.loses_write() {
            self.store.members.remove(name);
        }
        self.announce(name);
        let held: Vec<usize> = self.workers[name].held.keys().copied().collect();
        self.leave(name, &held);
        if held.is_empty() && self.workers[name].in_progress.is_empty() {
            self.workers.remove(name);
        }
    }

    fn disturb(&mut self) {
        let names: Vec<String> = self
            .workers
            .iter()
            .filter(|(_, worker)| !worker.is_draining)
            .map(|(name, _)| name.clone())
            .collect();
        let chosen = names.get(self.random.usize(..names.len().max(1))).cloned();
        match (self.random.usize(..10), chosen) {
            (0..3, _) | (_, None) if names.len() < WORKERS_MAX => self.join(),
            (3..5, Some(name)) if names.len() > 1 => self.drain(&name),
            (5..7, Some(name)) if names.len() > 1 => drop(self.workers.remove(&name)),
            (7..9, Some(name)) => {
                let until = self.now + self.random.u64(10..4_000);
                let worker = self.worker(&name);
                worker.frozen_until = worker.frozen_until.max(until);
            }
            _ => self.store.loses_writes = !self.store.loses_writes,
        }
    }

    /// At most one worker may begin messages of a partition.
    fn check_owner(&self, partition: usize) {
        let may_begin = |ownership: &Holding| {
            !ownership.is_lost && !ownership.is_unsafe && ownership.valid_until > self.now
        };
        let held =
            self.workers.iter().filter_map(|(name, worker)| Some((name, worker.held.get(&partition)?)));
        let owners: Vec<&String> =
            held.filter(|(_, ownership)| may_begin(ownership)).map(|(name, _)| name).collect();
        assert!(owners.len() <= 1, "{owners:?} own partition {partition}");
    }

    /// Returns the number of partitions of each worker that stays.
    fn counts(&self) -> Vec<usize> {
        let staying = self.workers.values().filter(|worker| !worker.is_draining);
        staying.map(|worker| worker.held.len()).collect()
    }

    /// Lets the workers come to rest, and checks that they are balanced. Nothing has disturbed them since `since`.
    /// Returns the time from then until nothing moved any more, in milliseconds.
    fn rest(&mut self, since: u64) -> u64 {
        let until = since + ms(LEASE) + ms(STABLE_FOR) + LEAVING_MS.end + ROUNDS_MAX * ms(INTERVAL);
        self.run_until(until);
        let counts = self.counts();
        assert_eq!(counts.iter().sum::<usize>(), self.partitions, "every partition has one owner");
        let (most, fewest) = (counts.iter().max().unwrap(), counts.iter().min().unwrap());
        assert!(most - fewest <= 1, "{counts:?} is not balanced");
        let (moved_at, given_up) = (self.moved_at, self.given_up);
        self.run_until(until + 2 * ms(INTERVAL));
        assert_eq!((self.moved_at, self.given_up), (moved_at, given_up), "partitions move on");
        moved_at.saturating_sub(since)
    }

    /// Returns how many partitions workers must give up at least, from a state of rest.
    fn moves_min(&self) -> usize {
        let mut counts = self.counts();
        counts.sort_unstable_by_key(|count| Reverse(*count));
        let (each, larger) = (self.partitions / counts.len(), self.partitions % counts.len());
        let share = |rank| each + usize::from(rank < larger);
        counts.iter().enumerate().map(|(rank, count)| count.saturating_sub(share(rank))).sum()
    }
}

/// The partitions that a worker says it owns.
fn claimed(worker: &SimulatedWorker) -> BTreeSet<usize> {
    worker.held.keys().chain(&worker.in_progress).copied().collect()
}

struct PrintSeed(u64);

impl Drop for PrintSeed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("seed {}", self.0);
        }
    }
}

/// The number of disturbances of a test.
fn steps() -> usize {
    std::env::var("MILLSTREAM_BALANCE_STEPS").ok().and_then(|text| text.parse().ok()).unwrap_or(1_000)
}

#[test]
fn workers_come_to_rest_and_are_balanced_after_any_disturbances() {
    let (mut disturbances, mut lost, mut seed, mut rest_ms_max) = (0, 0, 0, 0);
    while disturbances < steps() {
        seed += 1;
        let _print = PrintSeed(seed);
        let partitions = [1, 2, 8, 24, 2, 8, 24, 96][seed as usize % 8];
        let mut simulation = Simulation::new(partitions, seed);
        simulation.join();
        for _ in 0..20 {
            for _ in 0..simulation.random.usize(1..8) {
                simulation.disturb();
                disturbances += 1;
                let until = simulation.now + simulation.random.u64(1..800);
                simulation.run_until(until);
            }
            simulation.store.loses_writes = false;
            let thawed = simulation.workers.values().map(|worker| worker.frozen_until).max().unwrap_or(0);
            let since = simulation.now.max(thawed);
            rest_ms_max = rest_ms_max.max(simulation.rest(since));
        }
        lost += simulation.store.lost;
    }
    println!("{disturbances} disturbances, {lost} lost writes; at rest after {rest_ms_max} ms at most");
    assert!(lost > disturbances / 10, "too few writes are lost");
}

#[test]
fn workers_give_up_only_as_many_partitions_as_they_must() {
    for seed in 1..=steps() as u64 / 100 {
        let _print = PrintSeed(seed);
        let partitions = [1, 8, 24, 8, 24, 96][seed as usize % 6];
        let mut simulation = Simulation::new(partitions, seed);
        simulation.join();
        for _ in 0..20 {
            simulation.rest(simulation.now);
            let before = simulation.given_up;
            let names: Vec<String> = simulation.workers.keys().cloned().collect();
            let name = &names[simulation.random.usize(..names.len())];
            let (mut expected, counts) = (None, simulation.counts());
            let disturbance = simulation.random.usize(..4);
            match disturbance {
                // Several workers start at about the same time.
                0 if names.len() < WORKERS_MAX => {
                    for _ in 0..simulation.random.usize(1..4) {
                        simulation.join();
                        let until = simulation.now + simulation.random.u64(1..100);
                        simulation.run_until(until);
                    }
                    expected = Some(before + simulation.moves_min());
                }
                1 if names.len() > 1 => simulation.drain(name),
                2 if names.len() > 1 => drop(simulation.workers.remove(name)),
                // A short freeze moves nothing.
                _ => {
                    let until = simulation.now + simulation.random.u64(1..1_000);
                    simulation.worker(name).frozen_until = until;
                    let moved_at = simulation.moved_at;
                    simulation.run_until(until + ms(LEASE));
                    assert_eq!(simulation.moved_at, moved_at, "a freeze moved partitions");
                }
            }
            simulation.rest(simulation.now);
            let now = simulation.counts();
            assert_eq!(
                simulation.given_up,
                expected.unwrap_or(before),
                "disturbance {disturbance}: {counts:?} became {now:?}"
            );
        }
    }
}
