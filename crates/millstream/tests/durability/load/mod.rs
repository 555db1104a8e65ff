//! Clients under load, each a thread with a connection and a random sequence of its own: producers, consumers, a
//! deleter, transactors and a second reader. Each writes down what it asked and what it was told.
//!
//! A client ends when its connection does, or when it is told to stop.

mod consumer;
mod producer;
mod reader;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::entry::{Id, Mark};
use crate::ledger::{Act, Clock, Nanos, Op};
use crate::random::Random;
use crate::support::resp::{self, Value};
use crate::support::wire::{Client, Outcome};

/// Producers of the shared streams.
pub(crate) const PRODUCERS: [u32; 3] = [0, 1, 2];
/// The only producer of the ring.
pub(crate) const RING_PRODUCER: u32 = 10;
/// Clients that write by transactions.
pub(crate) const TRANSACTORS: [u32; 2] = [20, 21];
const CONSUMERS: [&str; 3] = ["alice", "bob", "carol"];

/// A reply that takes longer than this counts as none.
const PATIENCE: Duration = Duration::from_secs(20);
/// How many recent ids clients know of each other.
const KNOWN_IDS_MAX: usize = 512;

/// The next number of every producer, over all rounds.
#[derive(Clone, Debug, Default)]
pub(crate) struct Numbers(std::collections::BTreeMap<u32, u64>);

impl Numbers {
    /// The number this producer uses next.
    pub(crate) fn next(&self, producer: u32) -> u64 {
        self.0.get(&producer).copied().unwrap_or(0)
    }

    /// Goes past every number used in these commands.
    pub(crate) fn advance(&mut self, ops: &[Op]) {
        for op in ops {
            if let Act::Add { mark, .. } | Act::Transact { mark, .. } = &op.act {
                let next = self.0.entry(mark.producer).or_default();
                *next = (*next).max(mark.number + 1);
            }
        }
    }
}

/// What the clients of one load share.
struct Shared {
    clock: Clock,
    stop: AtomicBool,
    refusals: AtomicU64,
    observations: AtomicU64,
    /// When the last entry was sent of those that are acknowledged.
    last_added: AtomicU64,
    /// Entries that were acknowledged and may still be there.
    added: Mutex<Vec<(&'static str, Id)>>,
    /// Entries that were delivered and may still be pending.
    delivered: Mutex<Vec<(&'static str, Id)>>,
}

/// Running clients.
pub(crate) struct Load {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<Vec<Op>>>,
}

impl Load {
    /// Starts all of them.
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

    /// Asks the clients to end after their present command.
    pub(crate) fn stop(&self) {
        self.shared.stop.store(true, Ordering::Relaxed);
    }

    /// Commands that were answered with an error so far.
    pub(crate) fn refusals(&self) -> u64 {
        self.shared.refusals.load(Ordering::Relaxed)
    }

    /// Times a waiting reader was shown something so far.
    pub(crate) fn observations(&self) -> u64 {
        self.shared.observations.load(Ordering::Relaxed)
    }

    /// When the last entry was sent of those that are acknowledged so far.
    pub(crate) fn last_added(&self) -> Nanos {
        self.shared.last_added.load(Ordering::Relaxed)
    }

    /// Whether every client has ended.
    pub(crate) fn is_over(&self) -> bool {
        self.threads.iter().all(JoinHandle::is_finished)
    }

    /// What all of them wrote down.
    pub(crate) fn join(self) -> Vec<Op> {
        self.threads.into_iter().flat_map(|thread| thread.join().expect("a client of the load")).collect()
    }

    fn client(&mut self, port: u16, seed: u64, act: impl FnOnce(&mut Actor) -> Over + Send + 'static) {
        let shared = Arc::clone(&self.shared);
        let random = Random::new(seed ^ (self.threads.len() as u64 + 1) << 48);
        self.threads.push(std::thread::spawn(move || {
            let Ok(client) = Client::connect(port) else { return Vec::new() };
            let mut actor = Actor { client, random, shared, ops: Vec::new() };
            act(&mut actor);
            actor.ops
        }));
    }
}

/// A client's work is over: its connection is, or it was told to stop.
struct Over;

/// One client.
struct Actor {
    client: Client,
    random: Random,
    shared: Arc<Shared>,
    ops: Vec<Op>,
}

impl Actor {
    /// Waits a little, and says whether to go on.
    fn pause(&mut self, micros_max: u64) -> Result<(), Over> {
        std::thread::sleep(Duration::from_micros(self.random.below(micros_max + 1)));
        if self.shared.stop.load(Ordering::Relaxed) { Err(Over) } else { Ok(()) }
    }

    /// Sends one command, writes it down as `act`, and gives its reply (an error included) and its place in the
    /// ledger. The caller completes what was told there.
    fn call<A: AsRef<[u8]>>(&mut self, argv: &[A], act: Act) -> Result<(Value, usize), Over> {
        let at = self.invoke(act);
        self.client.send_raw(&resp::encode(argv));
        let value = self.wait()?;
        self.settle(at, &value);
        Ok((value, at))
    }

    /// Writes down a command that is about to be sent.
    fn invoke(&mut self, act: Act) -> usize {
        let invoked = self.shared.clock.now();
        self.ops.push(Op { invoked, replied: None, refused: false, act });
        self.ops.len() - 1
    }

    /// Writes down that the reply came.
    fn settle(&mut self, at: usize, reply: &Value) {
        let op = &mut self.ops[at];
        op.replied = Some(self.shared.clock.now());
        op.refused = matches!(reply, Value::Error(_));
        if op.refused {
            self.shared.refusals.fetch_add(1, Ordering::Relaxed);
            // Whoever is refused does not insist.
            std::thread::sleep(Duration::from_millis(5));
        } else if matches!(op.act, Act::Add { .. }) {
            self.shared.last_added.fetch_max(op.invoked, Ordering::Relaxed);
        }
    }

    /// The next reply.
    fn wait(&mut self) -> Result<Value, Over> {
        match self.client.next(PATIENCE) {
            Outcome::Reply(reply) => Ok(reply.value),
            Outcome::Closed | Outcome::Silence => Err(Over),
        }
    }

    /// A few of the ids that others wrote down here, taken out when `take`.
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

/// Adds to a list of ids that clients tell each other, forgetting the oldest.
fn share(list: &Mutex<Vec<(&'static str, Id)>>, ids: impl IntoIterator<Item = (&'static str, Id)>) {
    let mut known = list.lock().expect("no client panics with the lock");
    known.extend(ids);
    let surplus = known.len().saturating_sub(KNOWN_IDS_MAX);
    known.drain(..surplus);
}

/// A command with the fields of this mark at its end.
fn with_payload(head: &[&str], mark: Mark) -> Vec<Vec<u8>> {
    head.iter().map(|part| part.as_bytes().to_vec()).chain(crate::entry::payload(mark)).collect()
}
