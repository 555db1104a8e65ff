//! Crash tests of workers that own their streams: they handle the messages of each key in order, whatever happens.
//!
//! Worker processes share the partitions of a stream, or one of them owns a plain stream. The supervisor kills, freezes
//! and drains them. On a cluster with replicas, slots move and replicas become primaries meanwhile. A [producer]
//! numbers the messages of each key. The [account] checks the order that the handlers recorded, and counts the messages
//! in the store; the [figures] say how long partitions stood still.

pub(crate) mod account;
pub(crate) mod figures;
pub(crate) mod process;
mod producer;
mod sensitivity;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use millstream_worker::backend::{Admin, StreamId};
use millstream_worker::connect;
use millstream_worker::dead_letter::DeadLetter;
use millstream_worker::names::{dead_letters_of, members_key};
use millstream_worker::partitions::Partitions;
use rustix::process::Signal;
use tokio::runtime::Runtime;

use crate::faults::Fault;
use crate::journal::{self, Journal};
use crate::managed::{ManagedProcess, Program};
use crate::random::Random;
use crate::recording::Mistake;
use crate::role::{GROUP, Role, STREAM};
use crate::steps::Step;
use crate::store::{Store, StoreKind};

use account::{Content, OrderAccount};
use producer::OrderProducer;

/// The field that holds the key.
pub(crate) const KEY: &str = "customer";
/// Number of worker processes.
const WORKERS: u64 = 4;
/// Number of partitions.
const PARTITIONS: usize = 12;
/// Average time between two faults of workers.
const FAULT_INTERVAL: Duration = Duration::from_millis(1_100);
/// How long a process is frozen: more than twice as long as a lease of its streams.
const FREEZE: Duration = Duration::from_secs(4);
/// Lease of messages. Owners need none, but it limits how long an acknowledgement that a failover lost goes unnoticed.
const LEASE: Duration = Duration::from_secs(5);
const MAX_DELIVERIES: u64 = 8;
const MAX_ATTEMPTS: u64 = 12;
/// Workers are left alone for this long before and after a change whose pauses are measured.
const CALM: Duration = Duration::from_millis(2_500);
/// Interval at which the supervisor checks its processes.
const TICK: Duration = Duration::from_millis(10);
/// Longest time to finish all messages after the last fault. The machine may be slow.
const FINISH_TIMEOUT: Duration = Duration::from_secs(60);
/// After this time, the owners must have repaired the lag that a failover lost.
const LAG_TIMEOUT: Duration = Duration::from_secs(30);

/// How workers own the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ownership {
    /// They share its partitions.
    Partitions,
    /// One of them owns it and orders messages by key.
    ByKey,
    /// One of them owns it and handles one message after the other.
    Exclusive,
}

impl Ownership {
    const ALL: [(Ownership, &'static str); 3] = [
        (Ownership::Partitions, "partitions"),
        (Ownership::ByKey, "by-key"),
        (Ownership::Exclusive, "exclusive"),
    ];

    pub(crate) fn name(self) -> &'static str {
        Ownership::ALL.into_iter().find_map(|(is, name)| (is == self).then_some(name)).unwrap_or_default()
    }

    pub(crate) fn parse(name: &str) -> Option<Ownership> {
        Ownership::ALL.into_iter().find_map(|(is, other)| (other == name).then_some(is))
    }
}

/// A change of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    MoveSlotsByKey,
    MoveSlotsAtOnce,
    FailOver,
    KillPrimary,
}

impl Change {
    fn name(self) -> &'static str {
        match self {
            Change::MoveSlotsByKey => "slots-moved-by-key",
            Change::MoveSlotsAtOnce => "slots-moved-at-once",
            Change::FailOver => "failover-on-request",
            Change::KillPrimary => "primary-killed",
        }
    }
}

/// What an order campaign does.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OrderPlan {
    pub kind: StoreKind,
    pub ownership: Ownership,
    /// A bug of the workers for the account to find.
    pub mistake: Option<Mistake>,
    pub seed: u64,
    /// How long faults happen.
    pub time: Duration,
    /// Number of messages per second.
    pub rate: u64,
    /// Whether workers kill themselves at the steps of a message, too.
    pub has_step_deaths: bool,
}

/// A running order campaign.
struct OrderCampaign {
    plan: OrderPlan,
    random: Random,
    folder: PathBuf,
    journal: Journal,
    journal_file: PathBuf,
    store: Store,
    streams: Vec<String>,
    processes: Vec<ManagedProcess>,
    starts: u64,
    faults: Vec<Fault>,
    faults_stopped: bool,
    runtime: Runtime,
}

/// Where a change of the cluster is.
enum Progress {
    /// Workers are left alone until it begins.
    Calm(Instant),
    Running(JoinHandle<()>),
    /// Workers are left alone until this time, so that pauses can be measured.
    After(Instant),
}

/// Runs a campaign and returns its account.
pub(crate) fn run(plan: OrderPlan, folder: &Path) -> OrderAccount {
    let mut campaign = OrderCampaign::new(plan, folder);
    let url = campaign.store.url(None);
    let producer = OrderProducer::start(url, campaign.streams.clone(), plan.rate, &campaign.journal_file);
    campaign.inject_faults();
    campaign.journal.record("faults-stopped", [""; 0]);
    campaign.faults_stopped = true;
    producer.stop();
    campaign.thaw_all();
    campaign.wait_until("all messages are done", FINISH_TIMEOUT, OrderCampaign::is_done);
    campaign.wait_until("every lag is known", LAG_TIMEOUT, OrderCampaign::knows_lags);
    campaign.drain();
    let content = campaign.content();
    let warnings = campaign.processes.iter().flat_map(ManagedProcess::warnings).collect();
    OrderAccount::compute(&journal::read(&campaign.journal_file), &content, warnings)
}

impl OrderCampaign {
    fn new(plan: OrderPlan, folder: &Path) -> OrderCampaign {
        let journal_file = folder.join("journal");
        let store = Store::start_in_memory(plan.kind, folder);
        let mut campaign = OrderCampaign {
            plan,
            random: Random::new(plan.seed),
            folder: folder.to_owned(),
            journal: Journal::open(&journal_file, "supervisor"),
            journal_file,
            store,
            streams: Vec::new(),
            processes: Vec::new(),
            starts: 0,
            faults: Vec::new(),
            faults_stopped: false,
            runtime: tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime"),
        };
        campaign.streams = campaign.create_streams();
        campaign.processes = (1..=WORKERS)
            .map(|number| {
                let program = match plan.mistake {
                    Some(mistake) => Program::Mistaken(mistake),
                    None => Program::Crate,
                };
                ManagedProcess::new(campaign.role(number), program, folder)
            })
            .collect();
        campaign
    }

    /// Creates the partitions of the stream, and returns the names of all streams.
    fn create_streams(&self) -> Vec<String> {
        if self.plan.ownership != Ownership::Partitions {
            return vec![STREAM.to_owned()];
        }
        let backend = self.connect();
        let partitions = Partitions::plan(STREAM, PARTITIONS, Some(KEY)).expect("a plan");
        let created = self.runtime.block_on(partitions.create(&*backend));
        assert!(created.expect("create the partitions"));
        partitions.names().into_iter().map(str::to_owned).collect()
    }

    fn role(&self, number: u64) -> Role {
        let name = format!("worker-{number}");
        Role {
            url: self.store.url(None),
            journal: self.journal_file.clone(),
            outage: self.folder.join("outage"),
            // Half of the workers keep their names across restarts.
            workers: vec![(name.clone(), number.is_multiple_of(2))],
            name,
            numbers: None,
            pace: Duration::ZERO,
            seed: self.plan.seed,
            lease: LEASE,
            max_deliveries: MAX_DELIVERIES,
            max_attempts: MAX_ATTEMPTS,
            death: None,
            mistake: self.plan.mistake,
            watches: false,
            is_plain: false,
            delays: false,
            ownership: Some(self.plan.ownership),
        }
    }

    /// Returns the changes of the cluster, each of them once alone and once together with faults of workers.
    fn changes(&self) -> Vec<(Change, bool)> {
        let Some(cluster) = self.store.replicated() else { return Vec::new() };
        // Valkey would take minutes for thousands of slots key by key, because it waits for the replicas at each of
        // them.
        let by_key = !cluster.moves_slots_at_once();
        let moving = if by_key { Change::MoveSlotsByKey } else { Change::MoveSlotsAtOnce };
        // Slots move twice in a row: to another node and back.
        let changes = [moving, moving, Change::FailOver, Change::KillPrimary];
        [true, false].into_iter().flat_map(|alone| changes.map(|change| (change, alone))).collect()
    }

    /// Injects faults until the time is over and the cluster has changed in all ways.
    fn inject_faults(&mut self) {
        // All processes have started, and the partitions are shared.
        let began = Instant::now();
        let end = began + self.plan.time;
        let mut changes = self.changes().into_iter();
        let pause = self.plan.time / (changes.len() as u32 + 1);
        let (mut next_change, mut next_fault) = (began + pause.min(CALM * 2), began + CALM);
        let mut current: Option<(Change, bool, Progress)> = None;
        let mut number = 0;
        loop {
            self.tick();
            let now = Instant::now();
            current = match current.take() {
                None if now >= next_change => changes.next().map(|(change, alone)| {
                    if alone {
                        self.thaw_all();
                    }
                    (change, alone, Progress::Calm(now + if alone { CALM } else { Duration::ZERO }))
                }),
                Some((change, alone, Progress::Calm(until))) if now >= until => {
                    number += 1;
                    let mode = if alone { "alone" } else { "mixed" };
                    self.journal.record("changing", [change.name(), mode]);
                    Some((change, alone, Progress::Running(self.begin(change, number))))
                }
                Some((change, alone, Progress::Running(thread))) if thread.is_finished() => {
                    thread.join().expect("the cluster changes as requested");
                    self.journal.record("changed", [change.name()]);
                    self.store.start_dead_nodes();
                    Some((change, alone, Progress::After(now + if alone { CALM } else { Duration::ZERO })))
                }
                Some((_, _, Progress::After(until))) if now >= until => {
                    next_change = now + pause.min(CALM);
                    None
                }
                other => other,
            };
            let is_calm = matches!(current, Some((_, true, _)));
            if now >= next_fault && !is_calm {
                self.inject_fault();
                let every = FAULT_INTERVAL.as_millis() as u64;
                next_fault = now + Duration::from_millis(self.random.between(every / 2, every * 3 / 2));
            }
            if now >= end && current.is_none() && changes.len() == 0 {
                return;
            }
        }
    }

    fn inject_fault(&mut self) {
        if self.faults.is_empty() {
            self.faults =
                vec![Fault::KillWorker, Fault::Drain, Fault::Freeze, Fault::KillWorker, Fault::Drain];
        }
        let at = self.random.below(self.faults.len() as u64) as usize;
        let fault = self.faults.swap_remove(at);
        let running: Vec<usize> = (0..self.processes.len())
            .filter(|at| self.processes[*at].pid().is_some() && self.processes[*at].frozen_until.is_none())
            .collect();
        // One worker is left to take over.
        if running.len() < 2 {
            return;
        }
        // On one stream, faults of workers that stand by change nothing.
        let owners: Vec<usize> = match self.plan.ownership {
            Ownership::Partitions => Vec::new(),
            _ => running.iter().copied().filter(|at| self.owns(self.processes[*at].pid())).collect(),
        };
        let chosen = if owners.is_empty() { running } else { owners };
        let process = &mut self.processes[chosen[self.random.below(chosen.len() as u64) as usize]];
        let signal = match fault {
            Fault::Freeze => Signal::STOP,
            Fault::Drain => Signal::TERM,
            _ => Signal::KILL,
        };
        process.signal(fault.name(), signal, &self.journal);
        if fault == Fault::Freeze {
            process.frozen_until = Some(Instant::now() + FREEZE);
        }
    }

    /// Whether a process has acquired the stream last.
    fn owns(&self, pid: Option<u32>) -> bool {
        let lines = journal::read(&self.journal_file);
        lines.iter().rev().find(|line| line.event == "acquired").is_some_and(|line| Some(line.pid) == pid)
    }

    /// Begins a change of the cluster.
    fn begin(&mut self, change: Change, number: u64) -> JoinHandle<()> {
        let cluster = self.store.replicated().expect("a cluster with replicas");
        if change == Change::KillPrimary {
            let (primary, replica) = cluster.primary_with_replica(number);
            let dead: Vec<&String> =
                self.streams.iter().filter(|stream| cluster.owns(primary, stream)).collect();
            self.journal.record("primary-killed", dead);
            self.store.kill_node(primary);
            let journal = Journal::open(&self.journal_file, "supervisor");
            return std::thread::spawn(move || {
                cluster.wait_for_promotion(replica);
                journal.record("promoted", [""; 0]);
            });
        }
        std::thread::spawn(move || match change {
            Change::MoveSlotsByKey => cluster.move_slots_by_key(),
            Change::MoveSlotsAtOnce => cluster.move_slots_at_once(),
            _ => {
                cluster.wait_until_whole();
                cluster.fail_over(number);
            }
        })
    }

    /// Restarts processes that have ended, and continues those that were frozen for long enough.
    fn tick(&mut self) {
        std::thread::sleep(TICK);
        let now = Instant::now();
        for at in 0..self.processes.len() {
            if self.processes[at].frozen_until.is_some_and(|time| time <= now) {
                self.processes[at].thaw(&self.journal);
            }
            if self.processes[at].reap(&self.journal) {
                self.starts += 1;
                let dies = self.plan.has_step_deaths && !self.faults_stopped && self.starts.is_multiple_of(3);
                let step = Step::ALL[(self.plan.seed + self.starts) as usize % Step::ALL.len()];
                self.processes[at].role.death = dies.then(|| (step, self.random.between(20, 400)));
                self.processes[at].start(&self.journal);
            }
        }
    }

    fn thaw_all(&mut self) {
        self.processes.iter_mut().for_each(|process| process.thaw(&self.journal));
    }

    fn wait_until(&mut self, what: &str, limit: Duration, is_true: impl Fn(&OrderCampaign) -> bool) {
        let deadline = Instant::now() + limit;
        while !is_true(self) {
            (0..10).for_each(|_| self.tick());
            assert!(
                Instant::now() < deadline,
                "seed {}: timed out waiting until {what}; {}; see {}\n{}",
                self.plan.seed,
                self.describe(),
                self.folder.display(),
                self.processes.iter().map(ManagedProcess::log_end).collect::<Vec<_>>().join("\n--\n"),
            );
        }
    }

    /// Returns the lag and the number of pending messages of each stream, if the store says so.
    fn left(&self) -> Vec<Option<(Option<u64>, u64, StreamId)>> {
        let backend = self.connect();
        let look = async |stream: &String| {
            let groups = backend.groups(stream).await.ok()?;
            let group = groups.into_iter().find(|group| group.name == GROUP)?;
            Some((group.lag, group.pending, group.last_delivered))
        };
        self.streams.iter().map(|stream| self.runtime.block_on(look(stream))).collect()
    }

    /// Describes what is left in each stream, and who owns what, for the investigation of a failure.
    fn describe(&self) -> String {
        let backend = self.connect();
        let owner = |stream: &String| self.runtime.block_on(backend.owner(stream, GROUP));
        let streams = self.streams.iter().zip(self.left());
        let streams: Vec<String> =
            streams.map(|(stream, left)| format!("{stream}: {left:?} {:?}", owner(stream))).collect();
        let members = self.runtime.block_on(backend.hash_get_all(&members_key(STREAM, GROUP)));
        format!(
            "(lag, pending, position) and owner of each stream: {}; members: {members:?}",
            streams.join(", ")
        )
    }

    fn is_done(&self) -> bool {
        let backend = self.connect();
        let last_id = |stream: &String| {
            let info = self.runtime.block_on(backend.stream(stream));
            info.ok().flatten().map(|info| info.last_id)
        };
        self.left().into_iter().zip(&self.streams).all(|(left, stream)| {
            left.is_some_and(|(_, pending, position)| pending == 0 && Some(position) == last_id(stream))
        })
    }

    fn knows_lags(&self) -> bool {
        self.left().into_iter().all(|left| left.is_some_and(|(lag, ..)| lag == Some(0)))
    }

    fn drain(&mut self) {
        self.processes.iter().for_each(|process| process.signal("draining", Signal::TERM, &self.journal));
        self.processes.iter_mut().for_each(|process| process.wait_for_end(&self.journal));
    }

    fn content(&self) -> Content {
        let backend = self.connect();
        let mut content = Content::default();
        for stream in &self.streams {
            self.runtime.block_on(read_content(&*backend, stream, &mut content));
        }
        content
    }

    fn connect(&self) -> Arc<dyn Admin> {
        self.runtime.block_on(connect(&self.store.url(None))).expect("reach the store")
    }
}

/// Adds the content of a stream.
async fn read_content(backend: &dyn Admin, stream: &str, content: &mut Content) {
    let name = |id: StreamId| (stream.to_owned(), id);
    let groups = backend.groups(stream).await.expect("read the groups");
    let group = groups.iter().find(|group| group.name == GROUP).expect("the group exists");
    for entry in backend.all_entries(stream).await.expect("read the entries") {
        let field = |name: &str| {
            let value = entry.fields.iter().find(|(key, _)| key == name.as_bytes());
            value
                .map(|(_, value)| String::from_utf8_lossy(value).into_owned())
                .expect("a message of this campaign")
        };
        if entry.id > group.last_delivered {
            content.pending.insert(name(entry.id));
        }
        content.entries.insert(name(entry.id), (field(KEY), field("n").parse().expect("a number")));
    }
    let rows = backend.all_pending(stream, GROUP).await.expect("read what is pending");
    content.pending.extend(rows.into_iter().map(|row| name(row.id)));
    let dead = backend.all_entries(&dead_letters_of(stream)).await.expect("read the dead letters");
    for entry in dead {
        let letter = DeadLetter::read(&entry).expect("a dead letter");
        content.dead.insert(name(letter.origin.expect("a worker wrote it")));
    }
}
