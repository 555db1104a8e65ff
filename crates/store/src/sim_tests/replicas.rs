//! Several stores on simulated disks and a simulated network, in one thread: one store works, the others replay its
//! log.
//!
//! Nodes take turns in leading. The clocks differ by hours, and every node tries to do its duties all the time. At
//! equal positions, all stores must be equal. There is no election: a node leads when all have the same log.

use std::sync::Arc;

use super::episode::open_store;
use super::network::SimNetwork;
use super::random::WorkloadRandom;
use super::work::{self, SeenStates};
use crate::clock::Clock;
use crate::disk::SimDisk;
use crate::dump::dump;
use crate::log::{LogOptions, LogReader};
use crate::{ManualClock, Replayer, Store};

const NODES: usize = 3;
const EPISODES: u64 = 25;
/// Number of nodes that lead, one after the other.
const LEADERS: usize = 4;

#[derive(Clone)]
enum Message {
    /// Records, the first of which has position `first`.
    Records { first: u64, payloads: Vec<Arc<[u8]>> },
    /// The receiver's log is durable up to this position.
    Durable(u64),
}

struct Node {
    disk: SimDisk,
    clock: Arc<ManualClock>,
    store: Store,
    replayer: Replayer,
    /// What the others know to be durable.
    acknowledged: u64,
}

impl Node {
    /// Opens the store on a disk. It follows.
    fn start(disk: SimDisk, clock: Arc<ManualClock>, seed: u64) -> Node {
        let mut salts = WorkloadRandom::new(seed);
        let options = LogOptions { segment_bytes: 1500, ..LogOptions::new(move || salts.next()) };
        let opened = open_store(&disk, Arc::clone(&clock), options, None);
        let store = opened.expect("a good disk").0;
        store.set_own_changes(false);
        Node { disk, clock, store, replayer: Replayer::default(), acknowledged: 0 }
    }

    fn log(&self) -> &crate::log::Log {
        &self.store.journal().expect("the store has a log").log
    }

    fn last(&self) -> u64 {
        self.store.appended_position()
    }

    /// Appends and applies records that follow those of this node.
    fn receive(&mut self, first: u64, payloads: &[Arc<[u8]>]) {
        for (position, payload) in (first..).zip(payloads) {
            if position == self.last() + 1 {
                assert_eq!(self.log().append(payload), Ok(position));
                self.replayer.apply(&self.store, position, payload).expect("the record fits");
            }
        }
    }

    /// Does what a timekeeper does.
    fn act(&self) {
        while self.store.run_duties() {}
        self.store.expire_due(self.store.now_ms(), 100);
        self.store.wake_due_readers();
    }
}

struct ReplicaSet {
    nodes: Vec<Node>,
    network: SimNetwork<Message>,
    random: WorkloadRandom,
    /// The state of the leader after each record, by position; `None` within a transaction.
    states: Vec<Option<String>>,
    replayed: u64,
    restarts: u64,
}

impl ReplicaSet {
    fn new(seed: u64) -> ReplicaSet {
        let mut random = WorkloadRandom::new(seed);
        let mut node = |number| {
            let clock = Arc::new(ManualClock::new(1_000_000 + random.below(7_200_000)));
            Node::start(SimDisk::new(seed + number), clock, random.next())
        };
        let nodes = (0..NODES as u64).map(&mut node).collect();
        let states = vec![Some(String::new())];
        ReplicaSet { nodes, network: SimNetwork::new(seed), random, states, replayed: 0, restarts: 0 }
    }

    /// Lets a node lead for a while. Then all nodes have its log.
    fn lead(&mut self, leader: usize) {
        let node = &self.nodes[leader];
        node.clock.advance_to(node.replayer.newest_ms());
        node.store.set_own_changes(true);
        let steps = 40 + self.random.below(80);
        // What each node is known to have.
        let mut known = [node.last(); NODES];
        for step in 0.. {
            let is_ending = step >= steps;
            self.network.set_perfect(is_ending);
            if is_ending && self.nodes.iter().all(|node| node.acknowledged == self.nodes[leader].last()) {
                break;
            }
            if !is_ending {
                self.work(leader, &known);
            }
            self.send_records(leader, &known);
            let elapsed_ms = self.random.below(200);
            self.nodes.iter().for_each(|node| node.clock.advance(elapsed_ms));
            for (from, to, message) in self.network.advance(elapsed_ms) {
                match message {
                    Message::Durable(position) => known[from] = known[from].max(position),
                    Message::Records { first, payloads } if to != leader => {
                        self.nodes[to].receive(first, &payloads);
                    }
                    Message::Records { .. } => {}
                }
            }
            self.follow(leader, is_ending);
        }
        let node = &mut self.nodes[leader];
        node.store.set_own_changes(false);
        node.replayer = Replayer::default();
        // Messages to or of this leader mean nothing to the next one.
        self.network.advance(u64::from(u32::MAX));
    }

    fn work(&mut self, leader: usize, known: &[u64; NODES]) {
        let node = &self.nodes[leader];
        match self.random.below(12) {
            0 => {
                // The snapshot must not remove what the others need.
                let _readers = known.map(|position| node.log().read_from(position + 1).expect("it is there"));
                node.store.take_snapshot().expect("a good disk");
            }
            1 => self.network.toggle_link(leader, (leader + 1) % NODES),
            2 => self.network.toggle_link((leader + 2) % NODES, leader),
            3 => node.act(),
            _ => drop(work::transaction(&node.store, &mut self.random, &SeenStates::default())),
        }
        self.states.resize(node.last() as usize + 1, None);
        self.states[node.last() as usize] = Some(dump(&node.store));
        if self.random.one_in(4) {
            node.store.make_durable().expect("a good disk");
        }
    }

    /// Sends to each follower some of the records that it is not known to have.
    fn send_records(&mut self, leader: usize, known: &[u64; NODES]) {
        for follower in (0..NODES).filter(|number| *number != leader) {
            let mut reader =
                self.nodes[leader].log().read_from(known[follower] + 1).expect("it was not removed");
            let count = self.random.below(9) as usize;
            let payloads = records(&mut reader, count);
            self.network.send(leader, follower, Message::Records { first: known[follower] + 1, payloads });
        }
    }

    /// Lets the followers sync and restart, and compares them with the leader.
    fn follow(&mut self, leader: usize, is_ending: bool) {
        for number in 0..NODES {
            let syncs = is_ending || self.random.one_in(3);
            if number != leader && self.random.one_in(40) {
                let node = &self.nodes[number];
                let (disk, clock) = (node.disk.crash(self.random.next()), Arc::clone(&node.clock));
                let acknowledged = node.acknowledged;
                self.nodes[number] = Node { acknowledged, ..Node::start(disk, clock, self.random.next()) };
                self.restarts += 1;
                assert!(self.nodes[number].last() >= acknowledged, "node {number} lost acknowledged records");
            }
            let node = &mut self.nodes[number];
            let last = node.last();
            if number != leader {
                node.act();
                assert_eq!(node.last(), last, "node {number} made a change of its own");
                if let Some(Some(state)) = self.states.get(last as usize) {
                    assert_eq!(dump(&node.store), *state, "node {number} at position {last}");
                    self.replayed += 1;
                }
            }
            if syncs {
                node.store.make_durable().expect("a good disk");
                node.acknowledged = last;
                self.network.send(number, leader, Message::Durable(last));
            }
        }
    }
}

/// Reads up to `count` records.
fn records(reader: &mut LogReader<'_>, count: usize) -> Vec<Arc<[u8]>> {
    let next = || reader.read().expect("a good disk").map(|(_, payload)| payload);
    std::iter::from_fn(next).take(count).collect()
}

#[test]
fn stores_that_replay_a_log_are_equal_to_its_leader_at_every_position() {
    let (mut replayed, mut restarts) = (0, 0);
    for seed in 1..=EPISODES {
        let mut set = ReplicaSet::new(seed);
        for turn in 0..LEADERS {
            set.lead((seed as usize + turn) % NODES);
        }
        (replayed, restarts) = (replayed + set.replayed, restarts + set.restarts);
    }
    assert!(replayed > 100 * EPISODES && restarts > EPISODES, "{replayed} {restarts}");
}
