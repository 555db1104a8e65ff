//! The load: producers, consumers, a deleting client, clients with transactions, and readers. Each is a thread with
//! its own connection and random generator, and records its commands and their replies.
//!
//! A client stops when its connection is closed, or when the load is stopped.

mod consumer;
mod producer;
mod reader;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::entry::{Id, Mark};
use crate::ledger::{Action, Clock, Nanos, Op};
use crate::random::Random;
use crate::support::resp::{self, Value};
use crate::support::wire::{Client, Outcome};

/// Producers of the shared streams.
pub(crate) const PRODUCERS: [u32; 3] = [0, 1, 2];
/// The only producer of the ring.
pub(crate) const RING_PRODUCER: u32 = 10;
/// Clients that write with transactions.
pub(crate) const TRANSACTORS: [u32; 2] = [20, 21];
const CONSUMERS: [&str; 3] = ["alice", "bob", "carol"];

/// A reply that takes longer than this counts as missing.
const TIMEOUT: Duration = Duration::from_secs(20);
/// Number of recent ids that clients share.
const KNOWN_IDS_MAX: usize = 512;

/// The next number of each producer, across rounds.
#[derive(Clone, Debug, Default)]
pub(crate) struct Numbers(std::collections::BTreeMap<u32, u64>);

impl Numbers {
    /// Returns the next number of this producer.
    pub(crate) fn next(&self, producer: u32) -> u64 {
        self.0.get(&producer).copied().unwrap_or(0)
    }

    /// Advances past every number used in these commands.
    pub(crate) fn advance(&mut self, ops: &[Op]) {
        for op in ops {
            if let Action::Add { mark, .. } | Action::Transact { mark, .. } = &op.action {
                let next = self.0.entry(mark.producer).or_default();
                *next = (*next).max(mark.number + 1);
            }
        }
    }
}

/// State shared by the clients of one load.
struct Shared {
    clock: Clock,
    stop: AtomicBool,
    refusals: AtomicU64,
    observations: AtomicU64,
    /// Time at which the latest acknowledged entry was sent.
    last_added: AtomicU64,
    /// Acknowledged entries that may still exist.
    added: Mutex<Vec<(&'static str, Id)>>,
    /// Delivered entries that may still be pending.
    delivered: Mutex<Vec<(&'static str, Id)>>,
}

/// The running clients.
pub(crate) struct Load {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<Vec<Op>>>,
}

impl Load {
    /// Starts all clients.
    pub(crate) fn start(port: u16, clock: Clock, seed: u64, numbers: &Numbers) -> Load {
        let shared = Arc::new(Shared {
            clock,
            stop: AtomicBool::new(false),
            refusals: AtomicU64::new(0),
            observations: AtomicU64::new(0),
            last_added: AtomicU64::new(0),
            added: Mutex::default(),
            delivered: Mutex::default(),
        });
        let mut load = Load { shared, threads: Vec::new() };
        for producer in PRODUCERS {
            let first = numbers.next(producer);
            load.client(port, seed, move |actor| producer::produce(actor, producer, first));
        }
        let first = numbers.next(RING_PRODUCER);
        load.client(port, seed, move |actor| producer::produce_ring(actor, RING_PRODUCER, first));
        for producer in TRANSACTORS {
            let first = numbers.next(producer);
            load.client(port, seed, move |actor| producer::transact(actor, producer, first));
        }
        load.client(port, seed, producer::delete);
        for name in CONSUMERS {
            load.client(port, seed, move |actor| consumer::consume(actor, name));
        }
        load.client(port, seed, reader::observe);
        load.client(port, seed, reader::follow);
        load
    }

    /// Asks the clients to stop after their current command.
    pub(crate) fn stop(&self) {
        self.shared.stop.store(true, Ordering::Relaxed);
    }

    /// Number of commands that got an error so far.
    pub(crate) fn refusals(&self) -> u64 {
        self.shared.refusals.load(Ordering::Relaxed)
    }

    /// Number of times that a blocked reader got entries so far.
    pub(crate) fn observations(&self) -> u64 {
        self.shared.observations.load(Ordering::Relaxed)
    }

    /// Time at which the latest acknowledged entry was sent.
    pub(crate) fn last_added(&self) -> Nanos {
        self.shared.last_added.load(Ordering::Relaxed)
    }

    /// Whether every client has stopped.
    pub(crate) fn is_over(&self) -> bool {
        self.threads.iter().all(JoinHandle::is_finished)
    }

    /// Waits for all clients and returns what they recorded.
    pub(crate) fn join(self) -> Vec<Op> {
        self.threads.into_iter().flat_map(|thread| thread.join().expect("a client of the load")).collect()
    }

    fn client(&mut self, port: u16, seed: u64, action: impl FnOnce(&mut Actor) -> Stopped + Send + 'static) {
        let shared = Arc::clone(&self.shared);
        let random = Random::new(seed ^ (self.threads.len() as u64 + 1) << 48);
        self.threads.push(std::thread::spawn(move || {
            let Ok(client) = Client::connect(port) else { return Vec::new() };
            let mut actor = Actor { client, random, shared, ops: Vec::new() };
            action(&mut actor);
            actor.ops
        }));
    }
}

/// The client has stopped: its connection is closed, or the load was stopped.
struct Stopped;

/// One client of the load.
struct Actor {
    client: Client,
    random: Random,
    shared: Arc<Shared>,
    ops: Vec<Op>,
}

impl Actor {
    /// Sleeps for a random time of up to `micros_max`. Returns an error if the load was stopped.
    fn pause(&mut self, micros_max: u64) -> Result<(), Stopped> {
        std::thread::sleep(Duration::from_micros(self.random.below(micros_max + 1)));
        if self.shared.stop.load(Ordering::Relaxed) { Err(Stopped) } else { Ok(()) }
    }

    /// Sends one command, records it as `action`, and returns its reply (which can be an error) and its index in the
    /// ledger. The caller adds the content of the reply there.
    fn call<A: AsRef<[u8]>>(&mut self, argv: &[A], action: Action) -> Result<(Value, usize), Stopped> {
        let at = self.record_command(action);
        self.client.send_raw(&resp::encode(argv));
        let value = self.wait()?;
        self.record_reply(at, &value);
        Ok((value, at))
    }

    /// Records a command that is about to be sent.
    fn record_command(&mut self, action: Action) -> usize {
        let invoked = self.shared.clock.now();
        self.ops.push(Op { invoked, replied: None, refused: false, action });
        self.ops.len() - 1
    }

    /// Records that the reply arrived.
    fn record_reply(&mut self, at: usize, reply: &Value) {
        let op = &mut self.ops[at];
        op.replied = Some(self.shared.clock.now());
        op.refused = matches!(reply, Value::Error(_));
        if op.refused {
            self.shared.refusals.fetch_add(1, Ordering::Relaxed);
            // After a refusal the client waits before its next command.
            std::thread::sleep(Duration::from_millis(5));
        } else if matches!(op.action, Action::Add { .. }) {
            self.shared.last_added.fetch_max(op.invoked, Ordering::Relaxed);
        }
    }

    /// Waits for the next reply.
    fn wait(&mut self) -> Result<Value, Stopped> {
        match self.client.next(TIMEOUT) {
            Outcome::Reply(reply) => Ok(reply.value),
            Outcome::Closed | Outcome::TimedOut => Err(Stopped),
        }
    }

    /// Picks a few ids from a list that the clients share. With `take`, removes them from the list.
    fn some_of(
        &mut self,
        list: impl Fn(&Shared) -> &Mutex<Vec<(&'static str, Id)>>,
        take: bool,
    ) -> Option<(&'static str, Vec<Id>)> {
        let count = self.random.between(1, 3);
        let draw = self.random.next();
        let mut known = list(&self.shared).lock().expect("no client panics with the lock");
        if known.is_empty() {
            return None;
        }
        let first = draw as usize % known.len();
        let key = known[first].0;
        let mut ids = Vec::new();
        let mut at = first;
        while at < known.len() && (ids.len() as u64) < count {
            if known[at].0 != key {
                at += 1;
                continue;
            }
            ids.push(known[at].1);
            if take {
                known.swap_remove(at);
            } else {
                at += 1;
            }
        }
        Some((key, ids))
    }
}

/// Adds ids to a list that the clients share, and drops the oldest.
fn share(list: &Mutex<Vec<(&'static str, Id)>>, ids: impl IntoIterator<Item = (&'static str, Id)>) {
    let mut known = list.lock().expect("no client panics with the lock");
    known.extend(ids);
    let surplus = known.len().saturating_sub(KNOWN_IDS_MAX);
    known.drain(..surplus);
}

/// Appends the fields of this mark to a command.
fn with_payload(head: &[&str], mark: Mark) -> Vec<Vec<u8>> {
    head.iter().map(|part| part.as_bytes().to_vec()).chain(crate::entry::payload(mark)).collect()
}
