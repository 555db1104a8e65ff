//! The course of a campaign: start all processes, inject faults while producers send, stop the faults, drain, and
//! compute the account.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use millstream_worker::backend::Range;
use millstream_worker::producer::Producer;
use millstream_worker::{Admin, connect};
use rustix::process::Signal;
use tokio::runtime::Runtime;

use crate::account::{Account, Limits};
use crate::faults::Fault;
use crate::journal::{self, Journal, Line};
use crate::kind::MessageKind;
use crate::managed::{ManagedProcess, Program};
use crate::plain;
use crate::proxy::Proxy;
use crate::random::Random;
use crate::role::{GROUP, Role, STREAM};
use crate::snapshot::Snapshot;
use crate::steps::Step;
use crate::store::{self, Store};
use crate::support::wire::Client;

/// Lease of the workers.
const LEASE: Duration = Duration::from_millis(1500);
/// Many enough that a good message does not reach it, although workers die of other causes all the time.
const MAX_DELIVERIES: u64 = 8;
const MAX_ATTEMPTS: u64 = 12;
/// Number of worker processes on a server.
const WORKERS: u64 = 4;
/// Number of producer processes on a server. With plain clients there is one more, which delays its messages.
const PRODUCERS: u64 = 2;
/// Number of messages that are still pending at the end, because their handler delays them. With `--exec` there are
/// none, because a command cannot delay a message.
const DELAYED_MESSAGES: u64 = 5;
/// Number of messages per round of faults.
const MESSAGES_PER_ROUND: u64 = 200;
/// Distance between the steps of two successive deaths. It has no common divisor with the number of steps.
const STEP_STRIDE: u64 = 3;
/// How long all handlers fail in an outage of what they depend on, in leases.
const OUTAGE_LEASES: u32 = 2;
/// Interval at which the supervisor checks its processes.
const TICK: Duration = Duration::from_millis(20);
/// Longest time to finish all messages after the last fault. The machine may be slow.
const FINISH_TIMEOUT: Duration = Duration::from_secs(300);

/// The size of a campaign.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size {
    pub messages: u64,
    /// Approximate time in which the producers send.
    pub time: Duration,
}

/// A campaign on one store.
pub(crate) struct Campaign {
    seed: u64,
    pub size: Size,
    /// Lease of the workers, or of the group of plain clients.
    lease: Duration,
    random: Random,
    folder: PathBuf,
    pub journal: Journal,
    journal_file: PathBuf,
    pub store: Store,
    proxy: Option<Proxy>,
    processes: Vec<ManagedProcess>,
    /// Number of messages that are still pending at the end.
    delayed: u64,
    /// Whether fault injection has stopped. Messages can still kill their handlers.
    faults_stopped: bool,
    starts: u64,
    server_back_at: Option<Instant>,
    stall_ends_at: Option<Instant>,
    outage_ends_at: Option<Instant>,
    runtime: Runtime,
}

impl Campaign {
    /// Runs a campaign and returns its account. Keeps the folder if the account has violations.
    pub(crate) fn run(
        kind: store::StoreKind,
        program: Program,
        seed: u64,
        size: Size,
        folder: &Path,
    ) -> Account {
        let mut campaign = Campaign::new(kind, program, seed, size, folder);
        campaign.inject_faults();
        campaign.stop_faults();
        campaign.add_delayed_messages();
        campaign.drain();
        campaign.account()
    }

    pub(crate) fn new(
        kind: store::StoreKind,
        program: Program,
        seed: u64,
        size: Size,
        folder: &Path,
    ) -> Campaign {
        let journal_file = folder.join("journal");
        let store = Store::start(kind, folder);
        let proxy = store.only_port().map(Proxy::start);
        let mut campaign = Campaign {
            seed,
            size,
            lease: if program == Program::PlainClient { plain::LEASE } else { LEASE },
            random: Random::new(seed),
            folder: folder.to_owned(),
            journal: Journal::open(&journal_file, "supervisor"),
            journal_file,
            store,
            proxy,
            processes: Vec::new(),
            delayed: if program == Program::Crate { DELAYED_MESSAGES } else { 0 },
            faults_stopped: false,
            starts: 0,
            server_back_at: None,
            stall_ends_at: None,
            outage_ends_at: None,
            runtime: tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime"),
        };
        campaign.processes = campaign
            .roles(&program)
            .into_iter()
            .map(|role| ManagedProcess::new(role, program.clone(), folder))
            .collect();
        campaign
    }

    /// Returns the role of each process.
    fn roles(&self, program: &Program) -> Vec<Role> {
        let proxy = self.proxy.as_ref().map(|proxy| proxy.port);
        let pace = self.size.time.div_f64(self.size.messages as f64);
        let is_plain = *program == Program::PlainClient;
        let producers = PRODUCERS + u64::from(is_plain);
        let role = |name: String| Role {
            url: self.store.url(proxy),
            outage: self.outage_file(),
            journal: self.journal_file.clone(),
            name,
            workers: Vec::new(),
            numbers: None,
            pace,
            seed: self.seed,
            lease: self.lease,
            max_deliveries: MAX_DELIVERIES,
            max_attempts: MAX_ATTEMPTS,
            death: None,
            mistake: if let Program::Mistaken(mistake) = program { Some(*mistake) } else { None },
            watches: false,
            is_plain,
            delays: false,
            ownership: None,
        };
        if !self.store.has_server() {
            let workers = vec![("worker-1".to_owned(), true), ("worker-2".to_owned(), false)];
            let all = Some((1, self.size.messages));
            return vec![Role { workers, numbers: all, watches: true, ..role("process".to_owned()) }];
        }
        let share = self.size.messages / producers;
        let worker = |number| {
            let name = format!("worker-{number}");
            // Half of the workers keep their names across restarts.
            Role { workers: vec![(name.clone(), number % 2 == 0)], ..role(name) }
        };
        let producer = |number| {
            let last = if number == producers { self.size.messages } else { number * share };
            let numbers = Some(((number - 1) * share + 1, last));
            let delays = number > PRODUCERS;
            Role { numbers, delays, pace: pace * producers as u32, ..role(format!("producer-{number}")) }
        };
        (1..=WORKERS).map(worker).chain((1..=producers).map(producer)).collect()
    }

    /// Injects all faults while the producers send.
    pub(crate) fn inject_faults(&mut self) {
        let rounds = self.size.messages.div_ceil(MESSAGES_PER_ROUND);
        let mut schedule =
            Fault::schedule(self.proxy.is_some(), self.store.has_server(), rounds, &mut self.random);
        let every = self.size.time.div_f64(schedule.len() as f64).as_millis() as u64;
        let mut next = Instant::now() + Duration::from_secs(1);
        while !(schedule.is_empty() && self.has_produced()) {
            // After the last fault, it is enough to check the producers after every tenth tick.
            (0..if schedule.is_empty() { 10 } else { 1 }).for_each(|_| self.tick());
            if Instant::now() >= next {
                next = Instant::now() + Duration::from_millis(self.random.between(every / 2, every * 3 / 2));
                if let Some(fault) = schedule.pop() {
                    self.inject(fault);
                }
            }
        }
    }

    fn inject(&mut self, fault: Fault) {
        match fault {
            Fault::KillWorker => self.signal_random(fault, true, Signal::KILL),
            Fault::KillProducer => self.signal_random(fault, false, Signal::KILL),
            Fault::Drain => self.signal_random(fault, true, Signal::TERM),
            Fault::Freeze => self.signal_random(fault, true, Signal::STOP),
            Fault::KillServer => {
                self.journal.record(fault.name(), [""; 0]);
                self.store.kill_servers();
                let away = Duration::from_millis(self.random.between(100, 2000));
                self.server_back_at = Some(Instant::now() + away);
            }
            Fault::Outage => {
                self.journal.record(fault.name(), [""; 0]);
                std::fs::write(self.outage_file(), "").expect("begin an outage");
                self.outage_ends_at = Some(Instant::now() + self.lease * OUTAGE_LEASES);
            }
            Fault::Cut | Fault::CutInAReply | Fault::HalfOpen | Fault::Stall => {
                let Some(proxy) = &self.proxy else { return };
                self.journal.record(fault.name(), [""; 0]);
                match fault {
                    Fault::Cut => proxy.cut_all(),
                    Fault::CutInAReply => proxy.cut_in_a_reply(&mut self.random),
                    Fault::HalfOpen => proxy.make_half_open(&mut self.random),
                    _ => {
                        proxy.stall(true);
                        self.stall_ends_at = Some(Instant::now() + self.lease.mul_f64(1.5));
                    }
                }
            }
        }
    }

    fn signal_random(&mut self, fault: Fault, works: bool, signal: Signal) {
        let running: Vec<usize> = (0..self.processes.len())
            .filter(|at| self.processes[*at].works() == works && self.processes[*at].pid().is_some())
            .collect();
        if running.is_empty() {
            return;
        }
        let process = &mut self.processes[running[self.random.below(running.len() as u64) as usize]];
        process.signal(fault.name(), signal, &self.journal);
        if signal == Signal::STOP {
            process.frozen_until = Some(Instant::now() + self.lease.mul_f64(1.5));
        }
    }

    /// Restarts processes and servers that have ended, and ends faults that last for a while.
    fn tick(&mut self) {
        std::thread::sleep(TICK);
        let now = Instant::now();
        if self.server_back_at.is_some_and(|time| time <= now) {
            self.server_back_at = None;
            self.store.start_servers();
            self.journal.record("server-back", [""; 0]);
        }
        if self.stall_ends_at.is_some_and(|time| time <= now) {
            self.stall_ends_at = None;
            self.proxy.iter().for_each(|proxy| proxy.stall(false));
            self.journal.record("stall-ended", [""; 0]);
        }
        if self.outage_ends_at.is_some_and(|time| time <= now) {
            self.outage_ends_at = None;
            std::fs::remove_file(self.outage_file()).expect("end an outage");
            self.journal.record("outage-ended", [""; 0]);
        }
        for at in 0..self.processes.len() {
            if self.processes[at].frozen_until.is_some_and(|time| time <= now) {
                self.processes[at].thaw(&self.journal);
            }
            if self.processes[at].reap(&self.journal) && !self.processes[at].has_finished {
                self.start_process(at);
            }
        }
    }

    /// Starts a process, with a step at which it will kill itself.
    fn start_process(&mut self, at: usize) {
        let death = (!self.faults_stopped && self.processes[at].works()).then(|| self.next_death());
        self.processes[at].role.death = death;
        self.processes[at].start(&self.journal);
    }

    /// Goes through all steps, so that processes die at each of them.
    ///
    /// Not in order: the next three starts would die while they dead-letter the same message. If a suspect runs alone
    /// each time, the worker cannot know that something else has killed it.
    fn next_death(&mut self) -> (Step, u64) {
        let step = Step::ALL[(self.seed + self.starts * STEP_STRIDE) as usize % Step::ALL.len()];
        self.starts += 1;
        let times = match step {
            Step::Begin | Step::Middle | Step::Done => self.random.between(3, 40),
            Step::Got | Step::Acking | Step::AckSent | Step::Acked => self.random.between(2, 15),
            Step::DeadLettering | Step::DeadLetterSent | Step::DeadLettered => 1,
        };
        (step, times)
    }

    fn has_produced(&self) -> bool {
        let mut producers = self.processes.iter().filter(|process| !process.works()).peekable();
        if producers.peek().is_some() {
            return producers.all(|process| process.has_finished);
        }
        self.lines().iter().any(|line| line.event == "produced")
    }

    pub(crate) fn stop_faults(&mut self) {
        self.faults_stopped = true;
        self.journal.record("faults-stopped", [""; 0]);
        let now = Instant::now();
        self.server_back_at = self.server_back_at.map(|_| now);
        self.stall_ends_at = self.stall_ends_at.map(|_| now);
        self.outage_ends_at = self.outage_ends_at.map(|_| now);
        self.processes.iter_mut().for_each(|process| process.thaw(&self.journal));
        self.wait_until("all messages are done", |campaign| {
            !campaign.has_delayed_messages() && campaign.lag_and_pending() == Some((0, 0))
        });
    }

    /// Adds messages that wait for their next attempt when all workers drain. They stay pending.
    fn add_delayed_messages(&mut self) {
        if !self.store.has_server() {
            // Only one process at a time can open a folder.
            self.drain();
        }
        let delayed = self.delayed;
        let numbers: Vec<u64> = (self.size.messages + 1..=self.size.messages + delayed).collect();
        self.journal.record("sent", &numbers);
        let backend = self.connect();
        let producer = Producer::new(backend, STREAM);
        let entries = numbers
            .iter()
            .map(|number| [("n", number.to_string()), ("kind", MessageKind::Later.name().to_owned())]);
        let ids = self.runtime.block_on(producer.send_all(entries)).expect("add the last messages");
        drop(producer);
        self.journal.record("added", numbers.iter().zip(&ids).map(|(number, id)| format!("{number}:{id}")));
        self.wait_until("the last messages are delayed", |campaign| {
            let began = |line: &Line| line.event == "begin" && line.ids().any(|id| ids.contains(&id));
            campaign.lag_and_pending() == Some((0, delayed))
                && campaign.lines().iter().filter(|line| began(line)).count() >= ids.len()
        });
    }

    fn wait_until(&mut self, what: &str, is_true: impl Fn(&Campaign) -> bool) {
        let deadline = Instant::now() + FINISH_TIMEOUT;
        while !is_true(self) {
            // Reading the state costs time, and there is no hurry.
            (0..10).for_each(|_| self.tick());
            assert!(
                Instant::now() < deadline,
                "seed {}: timed out waiting until {what}; (lag, pending) is {:?}; see {}\n{}",
                self.seed,
                self.lag_and_pending(),
                self.folder.display(),
                self.processes.iter().map(ManagedProcess::log_end).collect::<Vec<_>>().join("\n--\n"),
            );
        }
    }

    /// Number of unread messages and number of pending messages.
    fn lag_and_pending(&self) -> Option<(u64, u64)> {
        if !self.store.has_server() {
            let lines = self.lines();
            let now = self.processes[0].pid()?;
            let last = lines.iter().rev().find(|line| line.event == "left" && line.pid == now)?;
            return Some((last.number(0)?, last.number(1)?));
        }
        let backend = self.connect();
        let groups = self.runtime.block_on(backend.groups(STREAM)).ok()?;
        let group = groups.into_iter().find(|group| group.name == GROUP)?;
        let count_unread = || {
            // Redis 6.2 does not report the lag.
            let unread = Range::starting_at(group.last_delivered.next()?, usize::MAX >> 1);
            Some(self.runtime.block_on(backend.range(STREAM, unread)).ok()?.len() as u64)
        };
        Some((group.lag.or_else(count_unread)?, group.pending))
    }

    pub(crate) fn drain(&mut self) {
        self.processes.iter_mut().for_each(|process| process.thaw(&self.journal));
        self.processes.iter().for_each(|process| process.signal("draining", Signal::TERM, &self.journal));
        self.processes.iter_mut().for_each(|process| process.wait_for_end(&self.journal));
    }

    fn account(&self) -> Account {
        let snapshot = self.snapshot();
        let unknown_lost_leases = self.processes.iter().any(ManagedProcess::has_lost_leases);
        let limits = Limits {
            lease_ms: LEASE.as_millis() as u64,
            max_deliveries: MAX_DELIVERIES,
            max_attempts: MAX_ATTEMPTS,
            unknown_lost_leases,
        };
        Account::compute(&self.lines(), &snapshot, limits)
    }

    /// Returns the content of the store.
    pub(crate) fn snapshot(&self) -> Snapshot {
        let backend = self.connect();
        self.runtime.block_on(Snapshot::take(&*backend)).expect("read the store")
    }

    /// Whether its processes are plain clients.
    pub(crate) fn is_plain(&self) -> bool {
        self.processes.iter().any(|process| process.role.is_plain)
    }

    /// Opens a plain connection of the supervisor to the server, not through the proxy.
    pub(crate) fn client(&self) -> Client {
        Client::connect(self.store.only_port().expect("a server")).expect("reach the server")
    }

    /// Opens a connection of the supervisor to the store, not through the proxy.
    fn connect(&self) -> Arc<dyn Admin> {
        self.runtime.block_on(connect(&self.store.url(None))).expect("reach the store")
    }

    /// While this file exists, all handlers fail.
    fn outage_file(&self) -> PathBuf {
        self.folder.join("outage")
    }

    pub(crate) fn lines(&self) -> Vec<Line> {
        journal::read(&self.journal_file)
    }
}
