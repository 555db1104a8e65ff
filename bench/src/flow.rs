//! Sends messages from producers to consumers that wait for them, and measures how long each message takes.
//!
//! At a fixed rate the load is open: one thread sends each message when it is due, whether or not earlier replies have
//! arrived, and one thread per producer reads the replies. At the maximum rate every producer sends its next message
//! when it has the reply to the last. A consumer receives messages, acknowledges all of them at once, and receives
//! again.
//!
//! Every message must be received exactly once. Otherwise the run fails, so a lost message cannot improve a figure.
//! This module knows no protocol: a [`Broker`] opens the connections.

use std::io;
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

use crate::Failure;
use crate::stats::Latencies;

/// Maximum wait for the last acknowledgement after the last message was sent.
const STALLED_AFTER: Duration = Duration::from_secs(15);
/// Share of a run, at its start, whose messages are not measured.
const WARM_UP: f64 = 0.1;

/// A server with streams that have one consumer group each.
pub(crate) trait Broker {
    /// Creates empty streams, each with a group. Deletes existing ones first.
    fn prepare(&self, streams: usize) -> Result<(), Failure>;
    fn delete(&self, streams: usize) -> Result<(), Failure>;
    /// Opens a connection for adding messages to a stream.
    fn producer(&self, stream: usize) -> Result<Producer, Failure>;
    fn consumer(&self, stream: usize, name: usize) -> Result<Box<dyn Consumer>, Failure>;
}

/// The two halves of a connection: one sends messages, the other reads the replies.
pub(crate) type Producer = (Box<dyn Sender>, Box<dyn Replies>);

pub(crate) trait Sender: Send {
    /// Sends a message that carries this number. Does not wait for the reply.
    fn send(&mut self, number: u64) -> Result<(), Failure>;
}

pub(crate) trait Replies: Send {
    /// Waits for the reply to this message. Replies arrive in the order in which messages were sent.
    fn wait_for(&mut self, number: u64) -> Result<(), Failure>;
}

pub(crate) trait Consumer: Send {
    /// Waits for messages. Appends the number of each and when it was received; none if the wait timed out.
    fn receive(&mut self, into: &mut Vec<(u64, Instant)>) -> Result<(), Failure>;
    /// Acknowledges the messages of the last `receive` and waits for the reply.
    fn acknowledge(&mut self) -> Result<(), Failure>;
    /// Returns a handle that can end a `receive` on another thread.
    fn socket(&self) -> io::Result<TcpStream>;
}

/// How fast producers send.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Pace {
    /// Messages per second, all producers together.
    Fixed(u64),
    /// Every producer waits for a reply before its next message.
    Max,
}

/// A load of messages. There are as many consumers as producers; each uses one stream.
pub(crate) struct Flow {
    pub(crate) clients: usize,
    pub(crate) streams: usize,
    pub(crate) pace: Pace,
    pub(crate) time: Duration,
}

/// The latencies of the measured messages.
pub(crate) struct Phases {
    /// From before the add until the producer has the reply.
    pub(crate) added: Latencies,
    /// From before the add until the consumer has the message.
    pub(crate) delivered: Latencies,
    /// From the delivery until the consumer has the reply to its acknowledgement.
    pub(crate) acknowledged: Latencies,
}

/// When a message was sent and when its reply arrived.
#[derive(Clone, Copy)]
struct Sent {
    at: Instant,
    replied: Instant,
}

/// When a message was received and acknowledged.
#[derive(Clone, Copy)]
struct Receipt {
    number: u64,
    delivered: Instant,
    acknowledged: Instant,
}

/// State shared by the threads of a run.
#[derive(Default)]
struct RunState {
    acknowledged: AtomicU64,
    failed: AtomicBool,
    over: AtomicBool,
}

/// The result of a thread. `Failure` cannot be sent between threads.
type Outcome<T> = Result<T, String>;

impl Flow {
    pub(crate) fn run(&self, broker: &dyn Broker) -> Result<Phases, Failure> {
        broker.prepare(self.streams)?;
        let phases = self.run_prepared(broker)?;
        broker.delete(self.streams)?;
        Ok(phases)
    }

    fn run_prepared(&self, broker: &dyn Broker) -> Result<Phases, Failure> {
        let clients = 0..self.clients;
        let stream = |client: usize| client % self.streams;
        let consumers: Vec<_> =
            clients.clone().map(|c| broker.consumer(stream(c), c)).collect::<Result<_, _>>()?;
        let producers: Vec<_> = clients.map(|c| broker.producer(stream(c))).collect::<Result<_, _>>()?;
        let sockets = consumers.iter().map(|c| c.socket()).collect::<Result<Vec<_>, _>>()?;
        let state = RunState::default();
        let begun = Instant::now();
        let (sent, receipts) = thread::scope(|scope| {
            let consuming: Vec<_> =
                consumers.into_iter().map(|c| scope.spawn(|| consume(c, &state))).collect();
            let sent = match self.pace {
                Pace::Fixed(rate) => self.send_paced(scope, producers, rate),
                Pace::Max => self.send_at_maximum(scope, producers, &state),
            };
            if let Ok(sent) = &sent {
                state.wait_for(sent.iter().map(|sent| sent.len() as u64).sum());
            }
            state.over.store(true, Ordering::SeqCst);
            // Wakes the consumers. A socket that is closed already does not matter.
            sockets.iter().for_each(|socket| drop(socket.shutdown(Shutdown::Both)));
            (sent, join(consuming))
        });
        // If both failed, report the consumer: at the maximum rate producers stop when a consumer fails.
        let (receipts, sent) = (receipts?, sent?);
        self.phases(match_up(&sent, receipts.into_iter().flatten())?, begun)
    }

    /// Sends every message when it is due. Returns the messages of each producer.
    fn send_paced<'s>(
        &self,
        scope: &'s Scope<'s, '_>,
        producers: Vec<Producer>,
        rate: u64,
    ) -> Outcome<Vec<Vec<Sent>>> {
        let count = (rate as f64 * self.time.as_secs_f64()) as u64;
        let step = producers.len();
        let (mut senders, replies): (Vec<_>, Vec<_>) = producers.into_iter().unzip();
        let reading: Vec<_> = replies
            .into_iter()
            .enumerate()
            .map(|(producer, replies)| {
                let numbers = (producer as u64..count).step_by(step);
                scope.spawn(move || read_replies(replies, numbers).map_err(|e| e.to_string()))
            })
            .collect();
        let mut sent = vec![Vec::new(); step];
        let begun = Instant::now();
        let mut outcome = Ok(());
        for number in 0..count {
            thread::sleep((begun + due(number, rate)).saturating_duration_since(Instant::now()));
            let producer = number as usize % step;
            sent[producer].push(Instant::now());
            outcome = senders[producer].send(number).map_err(|e| e.to_string());
            if outcome.is_err() {
                break;
            }
        }
        let replied = join(reading)?;
        outcome?;
        let pairs = |(sent, replied): (Vec<Instant>, Vec<Instant>)| {
            sent.into_iter().zip(replied).map(|(at, replied)| Sent { at, replied }).collect()
        };
        Ok(sent.into_iter().zip(replied).map(pairs).collect())
    }

    /// Sends on every producer's connection as fast as replies arrive. Returns the messages of each producer.
    fn send_at_maximum<'s>(
        &self,
        scope: &'s Scope<'s, '_>,
        producers: Vec<Producer>,
        state: &'s RunState,
    ) -> Outcome<Vec<Vec<Sent>>> {
        let (step, end) = (producers.len(), Instant::now() + self.time);
        let producing: Vec<_> = producers
            .into_iter()
            .enumerate()
            .map(|(producer, (mut sender, mut replies))| {
                scope.spawn(move || -> Outcome<Vec<Sent>> {
                    let mut all = Vec::new();
                    for number in (producer as u64..).step_by(step) {
                        let at = Instant::now();
                        if at >= end || state.failed.load(Ordering::Relaxed) {
                            break;
                        }
                        sender.send(number).map_err(|e| e.to_string())?;
                        replies.wait_for(number).map_err(|e| e.to_string())?;
                        all.push(Sent { at, replied: Instant::now() });
                    }
                    Ok(all)
                })
            })
            .collect();
        join(producing)
    }

    fn phases(&self, messages: Vec<(Sent, Receipt)>, begun: Instant) -> Result<Phases, Failure> {
        let warm = begun + self.time.mul_f64(WARM_UP);
        let measured: Vec<_> = messages.into_iter().filter(|(sent, _)| sent.at >= warm).collect();
        let latencies = |took: fn(&(Sent, Receipt)) -> Duration| {
            Latencies::of(measured.iter().map(took)).checked("the load after the warm-up")
        };
        Ok(Phases {
            added: latencies(|(sent, _)| sent.replied - sent.at)?,
            delivered: latencies(|(sent, receipt)| receipt.delivered - sent.at)?,
            acknowledged: latencies(|(_, receipt)| receipt.acknowledged - receipt.delivered)?,
        })
    }
}

/// Returns when a message is due, counted from the start of the load.
fn due(number: u64, rate: u64) -> Duration {
    Duration::from_nanos((u128::from(number) * 1_000_000_000 / u128::from(rate)) as u64)
}

fn read_replies(
    mut replies: Box<dyn Replies>,
    numbers: impl Iterator<Item = u64>,
) -> Result<Vec<Instant>, Failure> {
    let reply = |number| replies.wait_for(number).map(|()| Instant::now());
    numbers.map(reply).collect()
}

impl RunState {
    /// Waits until this many messages are acknowledged. Gives up if that takes too long or a consumer failed.
    fn wait_for(&self, messages: u64) {
        let deadline = Instant::now() + STALLED_AFTER;
        while self.acknowledged.load(Ordering::SeqCst) < messages
            && !self.failed.load(Ordering::SeqCst)
            && Instant::now() < deadline
        {
            thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Receives and acknowledges until the run is over.
fn consume(mut consumer: Box<dyn Consumer>, state: &RunState) -> Outcome<Vec<Receipt>> {
    let mut receipts = Vec::new();
    let mut received = Vec::new();
    loop {
        received.clear();
        let outcome = consumer.receive(&mut received);
        if state.over.load(Ordering::SeqCst) {
            return Ok(receipts);
        }
        if let Err(problem) = outcome.and_then(|()| consumer.acknowledge()) {
            state.failed.store(true, Ordering::SeqCst);
            return Err(format!("a consumer failed: {problem}"));
        }
        let acknowledged = Instant::now();
        receipts.extend(received.iter().map(|&(number, delivered)| Receipt {
            number,
            delivered,
            acknowledged,
        }));
        state.acknowledged.fetch_add(received.len() as u64, Ordering::SeqCst);
    }
}

/// Waits for all threads, then returns their results or the first error.
fn join<T>(threads: Vec<ScopedJoinHandle<'_, Outcome<T>>>) -> Outcome<Vec<T>> {
    let all: Vec<_> = threads.into_iter().map(ScopedJoinHandle::join).collect();
    all.into_iter().map(|joined| joined.unwrap_or_else(|_| Err("a thread panicked".into()))).collect()
}

/// Pairs every message with its receipt. Fails unless each was received exactly once.
///
/// Of `n` producers, producer `p` sends the numbers `p`, `p + n`, `p + 2n`, …
fn match_up(
    sent: &[Vec<Sent>],
    receipts: impl IntoIterator<Item = Receipt>,
) -> Result<Vec<(Sent, Receipt)>, Failure> {
    let mut found: Vec<Vec<Option<Receipt>>> = sent.iter().map(|sent| vec![None; sent.len()]).collect();
    for receipt in receipts {
        let (producer, turn) = (receipt.number as usize % sent.len(), receipt.number as usize / sent.len());
        let place = found[producer].get_mut(turn);
        let place = place.ok_or_else(|| format!("received message {}, which nobody sent", receipt.number))?;
        if place.replace(receipt).is_some() {
            return Err(format!("message {} was received twice", receipt.number).into());
        }
    }
    let total: usize = sent.iter().map(Vec::len).sum();
    let sent = sent.iter().flatten().copied();
    let pairs = sent.zip(found.into_iter().flatten()).filter_map(|(sent, receipt)| Some((sent, receipt?)));
    let pairs: Vec<_> = pairs.collect();
    match pairs.len() == total {
        true => Ok(pairs),
        false => Err(format!("{} of {total} messages were not received", total - pairs.len()).into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_due_at_even_distances_without_drift() {
        assert_eq!([0, 1, 2].map(|n| due(n, 500)), [0, 2, 4].map(Duration::from_millis));
        assert_eq!(due(3, 7), Duration::from_nanos(428_571_428));
        assert_eq!(due(7_000_000, 7), Duration::from_secs(1_000_000));
    }

    #[test]
    fn every_message_must_be_received_exactly_once() {
        let now = Instant::now();
        let at = |ms| now + Duration::from_millis(ms);
        let sent = |ms| Sent { at: at(ms), replied: at(ms) };
        // Two producers: the first sent messages 0, 2 and 4, the second message 1.
        let all = [vec![sent(0), sent(2), sent(4)], vec![sent(1)]];
        let receipts = |numbers: &[u64]| {
            let receipt = |&number| Receipt { number, delivered: at(number + 10), acknowledged: now };
            numbers.iter().map(receipt).collect::<Vec<_>>()
        };
        let matched = match_up(&all, receipts(&[4, 1, 0, 2])).unwrap();
        assert_eq!(matched.len(), 4);
        for (sent, receipt) in matched {
            assert_eq!(receipt.delivered - sent.at, Duration::from_millis(10));
        }
        for (numbers, problem) in [
            (&[0, 1, 2][..], "1 of 4 messages were not received"),
            (&[0, 1, 2, 2, 4], "message 2 was received twice"),
            (&[0, 1, 2, 3, 4], "received message 3, which nobody sent"),
            (&[], "4 of 4 messages were not received"),
        ] {
            let Err(error) = match_up(&all, receipts(numbers)) else { panic!("{numbers:?} was accepted") };
            assert_eq!(error.to_string(), problem);
        }
    }
}
