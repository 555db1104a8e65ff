//! The course of a campaign: start everything, let things go wrong while producers produce, let it calm down, drain, and
//! draw up the account.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use millstream_worker::backend::Range;
use millstream_worker::producer::Producer;
use millstream_worker::{Admin, connect};
use rustix::process::Signal;
use tokio::runtime::Runtime;

use crate::account::{Account, Limits};
use crate::crew::{Member, Program};
use crate::faults::Fault;
use crate::journal::{self, Journal, Line};
use crate::kind::Kind;
use crate::proxy::Proxy;
use crate::random::Random;
use crate::role::{GROUP, Role, STREAM};
use crate::snapshot::Snapshot;
use crate::steps::Step;
use crate::store::{self, Store};

/// How long a message may be silent in a worker's hands.
const LEASE: Duration = Duration::from_millis(1500);
const MAX_DELIVERIES: u64 = 6;
/// Worker processes on a server, and producers.
const WORKERS: u64 = 4;
const PRODUCERS: u64 = 2;
/// Messages that are pending in the end, by design. A command has no way to ask for that.
const LATER: u64 = 5;
/// Messages for each round of faults.
const MESSAGES_PER_ROUND: u64 = 200;
/// How often the supervisor looks around.
const TICK: Duration = Duration::from_millis(20);
/// How long everything may take to be done once nothing goes wrong any more. A machine may be slow.
const CALM_PATIENCE: Duration = Duration::from_secs(300);

/// How much is done, and how fast.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size {
    pub messages: u64,
    /// About how long producers take.
    pub time: Duration,
}

/// A campaign on one store.
pub(crate) struct Campaign {
    seed: u64,
    size: Size,
    random: Random,
    folder: PathBuf,
    journal: Journal,
    journal_file: PathBuf,
    store: Store,
    proxy: Option<Proxy>,
    members: Vec<Member>,
    /// How many messages are pending in the end, by design.
    later: u64,
    /// Nothing goes wrong any more, but for what messages do.
    calm: bool,
    lives: u64,
    server_back_at: Option<Instant>,
    flowing_again_at: Option<Instant>,
    runtime: Runtime,
}

impl Campaign {
    /// Runs a campaign, and gives its account. The folder is kept if something is wrong with it.
    pub(crate) fn run(kind: store::Kind, program: Program, seed: u64, size: Size, folder: &Path) -> Account {
        let mut campaign = Campaign::new(kind, program, seed, size, folder);
        campaign.disturb();
        campaign.calm_down();
        campaign.leave_some_for_later();
        campaign.drain();
        campaign.account()
    }

    fn new(kind: store::Kind, program: Program, seed: u64, size: Size, folder: &Path) -> Campaign {
        let journal_file = folder.join("journal");
        let store = Store::start(kind, folder);
        let is_hasty = program == Program::Hasty;
        let proxy = store.has_server().then(|| Proxy::start(store.port));
        let mut campaign = Campaign {
            seed,
            size,
            random: Random::new(seed),
            folder: folder.to_owned(),
            journal: Journal::open(&journal_file, "supervisor"),
            journal_file,
            store,
            proxy,
            members: Vec::new(),
            later: if program == Program::Crate { LATER } else { 0 },
            calm: false,
            lives: 0,
            server_back_at: None,
            flowing_again_at: None,
            runtime: tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime"),
        };
        campaign.members = campaign
            .roles(is_hasty)
            .into_iter()
            .map(|role| Member::new(role, program.clone(), folder))
            .collect();
        campaign
    }

    /// Who takes part.
    fn roles(&self, acknowledges_too_early: bool) -> Vec<Role> {
        let port = self.proxy.as_ref().map_or(0, |proxy| proxy.port);
        let pace = self.size.time.div_f64(self.size.messages as f64);
        let role = |name: String| Role {
            url: self.store.url(port),
            journal: self.journal_file.clone(),
            name,
            workers: Vec::new(),
            numbers: None,
            pace,
            seed: self.seed,
            lease: LEASE,
            max_deliveries: MAX_DELIVERIES,
            death: None,
            acknowledges_too_early,
            watches: false,
        };
        if !self.store.has_server() {
            let workers = vec![("worker-1".to_owned(), true), ("worker-2".to_owned(), false)];
            let all = Some((1, self.size.messages));
            return vec![Role { workers, numbers: all, watches: true, ..role("process".to_owned()) }];
        }
        let share = self.size.messages / PRODUCERS;
        let worker = |number| {
            let name = format!("worker-{number}");
            // Half of them keep their names over restarts.
            Role { workers: vec![(name.clone(), number % 2 == 0)], ..role(name) }
        };
        let producer = |number| {
            let last = if number == PRODUCERS { self.size.messages } else { number * share };
            let numbers = Some(((number - 1) * share + 1, last));
            Role { numbers, pace: pace * PRODUCERS as u32, ..role(format!("producer-{number}")) }
        };
        (1..=WORKERS).map(worker).chain((1..=PRODUCERS).map(producer)).collect()
    }

    /// Everything that goes wrong, while producers produce.
    fn disturb(&mut self) {
        let rounds = self.size.messages.div_ceil(MESSAGES_PER_ROUND);
        let mut deck = Fault::deck(self.store.has_server(), rounds, &mut self.random);
        let every = self.size.time.div_f64(deck.len() as f64).as_millis() as u64;
        let mut next = Instant::now() + Duration::from_secs(1);
        while !(deck.is_empty() && self.has_produced()) {
            // Once nothing is left to go wrong, nothing is urgent.
            (0..if deck.is_empty() { 10 } else { 1 }).for_each(|_| self.tick());
            if Instant::now() >= next {
                next = Instant::now() + Duration::from_millis(self.random.between(every / 2, every * 3 / 2));
                if let Some(fault) = deck.pop() {
                    self.do_wrong(fault);
                }
            }
        }
    }

    fn do_wrong(&mut self, fault: Fault) {
        match fault {
            Fault::KillWorker => self.signal_some(fault, true, Signal::KILL),
            Fault::KillProducer => self.signal_some(fault, false, Signal::KILL),
            Fault::Drain => self.signal_some(fault, true, Signal::TERM),
            Fault::Freeze => self.signal_some(fault, true, Signal::STOP),
            Fault::KillServer => {
                self.journal.say(fault.name(), [""; 0]);
                self.store.kill_server();
                let away = Duration::from_millis(self.random.between(100, 2000));
                self.server_back_at = Some(Instant::now() + away);
            }
            Fault::Cut | Fault::CutInAReply | Fault::HalfOpen | Fault::Stall => {
                let Some(proxy) = &self.proxy else { return };
                self.journal.say(fault.name(), [""; 0]);
                match fault {
                    Fault::Cut => proxy.cut_all(),
                    Fault::CutInAReply => proxy.cut_in_a_reply(&mut self.random),
                    Fault::HalfOpen => proxy.open_half(&mut self.random),
                    _ => {
                        proxy.stall(true);
                        self.flowing_again_at = Some(Instant::now() + LEASE.mul_f64(1.5));
                    }
                }
            }
        }
    }

    fn signal_some(&mut self, fault: Fault, works: bool, signal: Signal) {
        let running: Vec<usize> = (0..self.members.len())
            .filter(|at| self.members[*at].works() == works && self.members[*at].pid().is_some())
            .collect();
        if running.is_empty() {
            return;
        }
        let member = &mut self.members[running[self.random.below(running.len() as u64) as usize]];
        member.signal(fault.name(), signal, &self.journal);
        if signal == Signal::STOP {
            member.frozen_until = Some(Instant::now() + LEASE.mul_f64(1.5));
        }
    }

    /// Looks around: starts what has ended, and ends what was to last for a while.
    fn tick(&mut self) {
        std::thread::sleep(TICK);
        let now = Instant::now();
        if self.server_back_at.is_some_and(|time| time <= now) {
            self.server_back_at = None;
            self.store.start_server();
            self.journal.say("server-back", [""; 0]);
        }
        if self.flowing_again_at.is_some_and(|time| time <= now) {
            self.flowing_again_at = None;
            self.proxy.iter().for_each(|proxy| proxy.stall(false));
            self.journal.say("flowing", [""; 0]);
        }
        for at in 0..self.members.len() {
            if self.members[at].frozen_until.is_some_and(|time| time <= now) {
                self.members[at].thaw(&self.journal);
            }
            if self.members[at].reap(&self.journal) && !self.members[at].has_finished {
                self.start_member(at);
            }
        }
    }

    /// Starts a process, with a step at which it will end itself.
    fn start_member(&mut self, at: usize) {
        let death = (!self.calm && self.members[at].works()).then(|| self.next_death());
        self.members[at].role.death = death;
        self.members[at].start(&self.journal);
    }

    /// The steps one after the other, so that each has its turn.
    fn next_death(&mut self) -> (Step, u64) {
        let step = Step::ALL[(self.seed + self.lives) as usize % Step::ALL.len()];
        self.lives += 1;
        let times = match step {
            Step::Begin | Step::Middle | Step::Done => self.random.between(3, 40),
            Step::Got | Step::Acking | Step::AckSent | Step::Acked => self.random.between(2, 15),
            Step::Burying | Step::BurySent | Step::Buried => 1,
        };
        (step, times)
    }

    fn has_produced(&self) -> bool {
        let mut producers = self.members.iter().filter(|member| !member.works()).peekable();
        if producers.peek().is_some() {
            return producers.all(|member| member.has_finished);
        }
        self.lines().iter().any(|line| line.what == "produced")
    }

    fn calm_down(&mut self) {
        self.calm = true;
        self.journal.say("calm", [""; 0]);
        let now = Instant::now();
        self.server_back_at = self.server_back_at.map(|_| now);
        self.flowing_again_at = self.flowing_again_at.map(|_| now);
        self.members.iter_mut().for_each(|member| member.thaw(&self.journal));
        self.wait_until("everything is done", |campaign| campaign.left() == Some((0, 0)));
    }

    /// Messages that wait for another try when everybody drains. They stay pending.
    fn leave_some_for_later(&mut self) {
        if !self.store.has_server() {
            // A folder has one owner at a time.
            self.drain();
        }
        let later = self.later;
        let numbers: Vec<u64> = (self.size.messages + 1..=self.size.messages + later).collect();
        self.journal.say("sent", &numbers);
        let backend = self.connect();
        let producer = Producer::new(backend, STREAM);
        let entries =
            numbers.iter().map(|number| [("n", number.to_string()), ("kind", Kind::Later.name().to_owned())]);
        let ids = self.runtime.block_on(producer.send_all(entries)).expect("add the last messages");
        drop(producer);
        self.journal.say("added", numbers.iter().zip(&ids).map(|(number, id)| format!("{number}:{id}")));
        self.wait_until("the last messages wait", |campaign| {
            let begun = |line: &Line| line.what == "begin" && line.ids().any(|id| ids.contains(&id));
            campaign.left() == Some((0, later))
                && campaign.lines().iter().filter(|line| begun(line)).count() >= ids.len()
        });
    }

    fn wait_until(&mut self, what: &str, is_so: impl Fn(&Campaign) -> bool) {
        let deadline = Instant::now() + CALM_PATIENCE;
        while !is_so(self) {
            // A look costs something, and nothing is urgent.
            (0..10).for_each(|_| self.tick());
            assert!(
                Instant::now() < deadline,
                "seed {}: waited in vain until {what}; left are {:?} (lag, pending); see {}\n{}",
                self.seed,
                self.left(),
                self.folder.display(),
                self.members.iter().map(Member::last_words).collect::<Vec<_>>().join("\n--\n"),
            );
        }
    }

    /// How many messages are unread, and how many pending.
    fn left(&self) -> Option<(u64, u64)> {
        if !self.store.has_server() {
            let lines = self.lines();
            let now = self.members[0].pid()?;
            let last = lines.iter().rev().find(|line| line.what == "left" && line.pid == now)?;
            return Some((last.number(0)?, last.number(1)?));
        }
        let backend = self.connect();
        let groups = self.runtime.block_on(backend.groups(STREAM)).ok()?;
        let group = groups.into_iter().find(|group| group.name == GROUP)?;
        let count_unread = || {
            // Redis 6.2 tells no lag.
            let unread = Range::rising(group.last_delivered.next()?, usize::MAX >> 1);
            Some(self.runtime.block_on(backend.range(STREAM, unread)).ok()?.len() as u64)
        };
        Some((group.lag.or_else(count_unread)?, group.pending))
    }

    fn drain(&mut self) {
        self.members.iter_mut().for_each(|member| member.thaw(&self.journal));
        self.members.iter().for_each(|member| member.signal("draining", Signal::TERM, &self.journal));
        self.members.iter_mut().for_each(|member| member.wait_for_end(&self.journal));
    }

    fn account(&self) -> Account {
        let backend = self.connect();
        let snapshot = self.runtime.block_on(Snapshot::take(&*backend)).expect("read the store");
        let forgetful = self.members.iter().any(Member::has_lost_leases);
        let limits = Limits {
            lease_ms: LEASE.as_millis() as u64,
            max_deliveries: MAX_DELIVERIES,
            leases_lost_untold: forgetful,
        };
        Account::draw_up(&self.lines(), &snapshot, limits)
    }

    /// A way to the store of our own, past the proxy.
    fn connect(&self) -> Arc<dyn Admin> {
        self.runtime.block_on(connect(&self.store.url(self.store.port))).expect("reach the store")
    }

    fn lines(&self) -> Vec<Line> {
        journal::read(&self.journal_file)
    }
}
