//! Random sequences of messages, failures and batches run through lanes, while a naive model watches which message
//! begins before which. To test the model, lanes with planted mistakes run too: it must notice each of them.

use std::collections::{BTreeMap, BTreeSet};

use super::*;

const KEYS: u64 = 6;
const STEPS: usize = 400;

/// A message: its key and its number, which is also its id.
type Item = (u64, u64);

/// What the model drives: lanes, or lanes with a planted mistake.
trait Line {
    fn lanes(&mut self) -> &mut Lanes<Item>;

    fn add(&mut self, lane: LaneId, item: Item) -> Option<Item> {
        self.lanes().add(lane, id_of(item), item)
    }

    fn take_run(&mut self, lane: LaneId, max: usize) -> Vec<Item> {
        let mut run = Vec::new();
        self.lanes().take_run(lane, max, |_| true, |item| run.push(item));
        run
    }

    fn end(&mut self, lane: LaneId) -> Option<Item> {
        self.lanes().end(lane)
    }

    fn put_back(&mut self, lane: LaneId, item: Item) -> Option<Item> {
        self.lanes().put_back(lane, id_of(item), item)
    }
}

fn id_of((_, number): Item) -> StreamId {
    StreamId::new(number, 0)
}

struct Sound(Lanes<Item>);

impl Line for Sound {
    fn lanes(&mut self) -> &mut Lanes<Item> {
        &mut self.0
    }
}

/// Every message comes out at once.
struct WithoutOrder(Lanes<Item>);

impl Line for WithoutOrder {
    fn lanes(&mut self) -> &mut Lanes<Item> {
        &mut self.0
    }

    fn add(&mut self, lane: LaneId, item: Item) -> Option<Item> {
        self.0.add(lane, id_of(item), item).or_else(|| self.take_run(lane, 1).pop())
    }
}

/// A lane goes on although other messages of it are out.
struct GoesOnTooEarly(Lanes<Item>);

impl Line for GoesOnTooEarly {
    fn lanes(&mut self) -> &mut Lanes<Item> {
        &mut self.0
    }

    fn end(&mut self, lane: LaneId) -> Option<Item> {
        self.0.end(lane).or_else(|| self.take_run(lane, 1).pop())
    }
}

/// A message that is put back goes behind those that wait.
struct PutsBackAtTheEnd(Lanes<Item>);

impl Line for PutsBackAtTheEnd {
    fn lanes(&mut self) -> &mut Lanes<Item> {
        &mut self.0
    }

    fn put_back(&mut self, lane: LaneId, item: Item) -> Option<Item> {
        self.0.put_back(lane, StreamId::MAX, item)
    }
}

/// A message that backs off no longer blocks its lane.
struct ForgetsBackOff(Lanes<Item>, Option<Item>);

impl Line for ForgetsBackOff {
    fn lanes(&mut self) -> &mut Lanes<Item> {
        &mut self.0
    }

    fn take_run(&mut self, lane: LaneId, max: usize) -> Vec<Item> {
        let mut run = Vec::new();
        self.0.take_run(lane, max, |_| true, |item| run.push(item));
        // The lane believes that one of them has ended.
        self.1 = if run.len() > 1 { self.0.end(lane) } else { None };
        run.extend(self.1);
        run
    }
}

/// The next message is lost when a lane goes on.
struct LosesMessages(Lanes<Item>);

impl Line for LosesMessages {
    fn lanes(&mut self) -> &mut Lanes<Item> {
        &mut self.0
    }

    fn end(&mut self, lane: LaneId) -> Option<Item> {
        self.0.end(lane).filter(|(_, number)| number % 7 != 3)
    }
}

/// What the model knows about a message that has not ended.
#[derive(Default)]
struct KnownLane {
    /// Messages that were out when this one was added. They may begin before it.
    out_before: BTreeSet<u64>,
    is_out: bool,
    is_at_work: bool,
}

struct Model<L> {
    line: L,
    subscription: SubscriptionId,
    /// The messages of each key that have not ended.
    open: BTreeMap<u64, BTreeMap<u64, KnownLane>>,
    /// Messages that can begin: ready, or their back-off is over.
    ready: Vec<Item>,
    at_work: Vec<Vec<Item>>,
    random: fastrand::Rng,
    next: u64,
}

impl<L: Line> Model<L> {
    fn lane(&self, key: u64) -> LaneId {
        let key = key.to_string();
        LaneId::new(self.subscription, Some(key.as_bytes()))
    }

    fn came_out(&mut self, item: Option<Item>) -> Result<(), String> {
        let Some((key, number)) = item else { return Ok(()) };
        let known =
            self.open.entry(key).or_default().get_mut(&number).ok_or("an unknown message came out")?;
        if std::mem::replace(&mut known.is_out, true) {
            return Err(format!("message {number} came out twice"));
        }
        self.ready.push((key, number));
        Ok(())
    }

    /// Adds a message. Some are delivered again: they have a smaller id than those that were added before.
    fn add(&mut self) -> Result<(), String> {
        let key = self.random.u64(0..KEYS);
        let number = if self.random.u8(0..10) == 0 { self.next - 5 } else { self.next };
        self.next += 10;
        let of_key = self.open.entry(key).or_default();
        let out_before = of_key.iter().filter(|(_, known)| known.is_out).map(|(number, _)| *number).collect();
        of_key.insert(number, KnownLane { out_before, ..KnownLane::default() });
        let lane = self.lane(key);
        let head = self.line.add(lane, (key, number));
        self.came_out(head)
    }

    /// Checks that a message may begin: every earlier one of its key has ended, or is before it in its batch.
    fn begin(&mut self, (key, number): Item, batch: &[Item]) -> Result<(), String> {
        let of_key = self.open.get_mut(&key).ok_or("a message of an unknown key begins")?;
        for (earlier, known) in of_key.range(..number) {
            if !known.out_before.contains(&number) && !batch.contains(&(key, *earlier)) {
                return Err(format!("message {number} begins before {earlier} has ended"));
            }
        }
        if let Some((other, _)) =
            of_key.iter().find(|(other, known)| known.is_at_work && !batch.contains(&(key, **other)))
        {
            return Err(format!("messages {number} and {other} of a key are at work at the same time"));
        }
        of_key.get_mut(&number).ok_or("an unknown message begins")?.is_at_work = true;
        Ok(())
    }

    fn start_batch(&mut self) -> Result<(), String> {
        if self.ready.is_empty() {
            return Ok(());
        }
        let first = self.ready.swap_remove(self.random.usize(0..self.ready.len()));
        let mut batch = vec![first];
        let size = self.random.usize(0..4);
        for item in self.line.take_run(self.lane(first.0), size) {
            self.came_out(Some(item))?;
            self.ready.retain(|ready| *ready != item);
            batch.push(item);
        }
        for at in 0..batch.len() {
            let (before, rest) = batch.split_at(at);
            self.begin(rest[0], before)?;
        }
        self.at_work.push(batch);
        Ok(())
    }

    /// Ends a batch: some messages succeed, one fails and backs off, and those after it are put back.
    fn end_batch(&mut self) -> Result<(), String> {
        if self.at_work.is_empty() {
            return Ok(());
        }
        let batch = self.at_work.swap_remove(self.random.usize(0..self.at_work.len()));
        let mut has_failed = false;
        for (key, number) in batch {
            let lane = self.lane(key);
            let of_key = self.open.entry(key).or_default();
            let known = of_key.get_mut(&number).ok_or("an unknown message ends")?;
            known.is_at_work = false;
            let head = if has_failed {
                known.is_out = false;
                self.line.put_back(lane, (key, number))
            } else if self.random.u8(0..3) == 0 {
                has_failed = true;
                self.ready.push((key, number));
                None
            } else {
                of_key.remove(&number);
                self.line.end(lane)
            };
            self.came_out(head)?;
        }
        Ok(())
    }

    fn run(mut self) -> Result<(), String> {
        for _ in 0..STEPS {
            match self.random.u8(0..3) {
                0 => self.add()?,
                1 => self.start_batch()?,
                _ => self.end_batch()?,
            }
            self.line.lanes().check();
        }
        for _ in 0..100 * STEPS {
            self.start_batch()?;
            self.end_batch()?;
        }
        if let Some(lost) = self.open.values().flat_map(|of_key| of_key.keys()).next() {
            return Err(format!("message {lost} never ended"));
        }
        let lanes = self.line.lanes();
        if !lanes.is_empty() || lanes.in_hand(self.subscription) > 0 || lanes.waiting() > 0 {
            return Err("the lanes are not empty".to_owned());
        }
        Ok(())
    }
}

fn run<L: Line>(seed: u64, line: L) -> Result<(), String> {
    Model {
        line,
        subscription: SubscriptionId::new(),
        open: BTreeMap::new(),
        ready: Vec::new(),
        at_work: Vec::new(),
        random: fastrand::Rng::with_seed(seed),
        next: 10,
    }
    .run()
}

#[test]
fn a_message_begins_only_when_every_earlier_one_of_its_key_has_ended() {
    for seed in 0..200 {
        run(seed, Sound(Lanes::new(4096))).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    }
}

#[test]
fn the_model_notices_planted_mistakes() {
    let notices = |name: &str, run: &dyn Fn(u64) -> Result<(), String>| {
        let caught = |seed| std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| run(seed)));
        let noticed = (0..20).any(|seed| !matches!(caught(seed), Ok(Ok(()))));
        assert!(noticed, "the model does not notice: {name}");
    };
    notices("no order", &|seed| run(seed, WithoutOrder(Lanes::new(64))));
    notices("a lane goes on too early", &|seed| run(seed, GoesOnTooEarly(Lanes::new(64))));
    notices("put back at the end", &|seed| run(seed, PutsBackAtTheEnd(Lanes::new(64))));
    notices("a back-off does not block", &|seed| run(seed, ForgetsBackOff(Lanes::new(64), None)));
    notices("messages are lost", &|seed| run(seed, LosesMessages(Lanes::new(64))));
}

fn lane(subscription: SubscriptionId, key: &str) -> LaneId {
    LaneId::new(subscription, Some(key.as_bytes()))
}

#[test]
fn messages_without_a_key_share_a_lane_and_the_empty_key_has_its_own() {
    let (one, two) = (SubscriptionId::new(), SubscriptionId::new());
    assert_eq!(LaneId::new(one, None), LaneId::new(one, None));
    assert_ne!(LaneId::new(one, None), lane(one, ""));
    assert_ne!(LaneId::new(one, None), LaneId::new(two, None));
    assert_ne!(lane(one, "a"), lane(two, "a"));
}

#[test]
fn the_window_limits_the_messages_of_each_stream() {
    let (one, two) = (SubscriptionId::new(), SubscriptionId::new());
    let mut lanes = Lanes::new(16);
    for number in 0..16 {
        assert_eq!(lanes.room(one), if number < 15 { 16 - number } else { 0 });
        let id = StreamId::new(number as u64, 0);
        lanes.add(lane(one, "a"), id, ());
    }
    assert_eq!((lanes.room(one), lanes.room(two), lanes.info(one).blocked_keys), (0, 16, 1));
    // The worker reads again when an eighth of the window is free.
    assert!(lanes.end(lane(one, "a")).is_some());
    assert_eq!((lanes.room(one), lanes.has_just_got_room(one)), (0, false));
    assert!(lanes.end(lane(one, "a")).is_some());
    assert_eq!((lanes.room(one), lanes.has_just_got_room(one)), (2, true));
    assert_eq!(lanes.clear().len(), 13);
    assert_eq!((lanes.in_hand(one), lanes.waiting()), (0, 0));
    // A lane that was cleared need not be ended.
    assert!(lanes.end(lane(one, "a")).is_none());
    let mut smallest = Lanes::new(0);
    assert!(smallest.add(lane(one, "a"), StreamId::MIN, ()).is_some());
    assert_eq!(smallest.room(one), 0);
    assert!(smallest.end(lane(one, "a")).is_none());
    assert_eq!(smallest.room(one), 1);
}
