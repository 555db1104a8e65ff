//! `--child`: long-lived programs that read messages and answer with outcomes, as JSON lines.
//! docs/workers/child-protocol.md describes the protocol.
//!
//! ```text
//! > {"id":"1-1","stream":"orders","group":"billing","attempt":1,"fields":{"item":"book"}}
//! < {"id":"1-1","outcome":"ack"}
//! > {"id":"1-2",…}
//! < {"id":"1-2","outcome":"retry","after_ms":5000,"error":"the bank is closed"}
//! ```
//!
//! This file decides which program gets a message. A program has up to `--pipeline` messages at a time, so there are up
//! to `--concurrency` / `--pipeline` programs. A new one starts when all others are full.
//!
//! If a program ends, or breaks the protocol, while several messages are in flight, any of them can be the cause. The
//! pool sends each of them again to a program with fewer messages, and at last alone. Only a message that ends a
//! program alone has failed. So a message that ends every program does not use up the attempts of others.
//!
//! If a program ends before it has read a message, no handler has begun with it, and another program gets it.
//! Exception: if the program has not read any message, it was not ready. Then the message is delivered again later, and
//! neither its attempt nor its delivery counts.

mod answer;
mod program;

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use millstream_worker::{Message, Outcome, Reason};
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};

use self::program::{Place, Program, Reply};
use super::broken_command::CommandCheck;
use super::exec::{detail, not_ready, not_started, retry, time_limit, timed_out};
use super::payload::payload;
use super::process::Shell;

/// Time without messages after which a program is stopped.
const IDLE_MAX: Duration = Duration::from_secs(60);
/// Time that a program has to answer a message that exceeded the timeout, or to end.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(2);

/// A pool of programs that stay running between messages.
pub(super) struct ChildPool {
    shell: Shell,
    /// Maximum number of messages that a program has at a time.
    pipeline: usize,
    programs: Mutex<Vec<Arc<Program>>>,
    /// For each smaller number of messages: how many can be sent now to a program that takes no more than that. The
    /// numbers fall to 1.
    isolation: Vec<(usize, Semaphore)>,
}

impl ChildPool {
    pub(super) fn new(shell: Shell, pipeline: usize) -> ChildPool {
        let smaller = std::iter::successors(Some(pipeline), |messages| Some(messages.isqrt()));
        let smaller = smaller.skip(1).take_while(|messages| *messages > 1).chain((pipeline > 1).then_some(1));
        let isolation = smaller.map(|messages| (messages, Semaphore::new(messages))).collect();
        ChildPool { shell, pipeline, programs: Mutex::new(Vec::new()), isolation }
    }

    /// Returns the check whether the program can run.
    pub(super) fn check(&self) -> &CommandCheck {
        &self.shell.check
    }

    pub(super) async fn run(&self, message: &Message) -> Outcome {
        let check = &self.shell.check;
        let (id, line) = (message.id.to_string(), format!("{}\n", payload(message)));
        let mut smaller = self.isolation.iter();
        let mut isolation: Option<&(usize, Semaphore)> = None;
        loop {
            let _permit = match isolation {
                Some((_, permits)) => permits.acquire().await.ok(),
                None => None,
            };
            if let Some(outcome) = check.outcome_if_broken() {
                return outcome;
            }
            let capacity = isolation.map_or(self.pipeline, |(messages, _)| *messages);
            let place = match self.place(capacity, &id, &line) {
                Ok(place) => place,
                Err(error) => return not_started(&error),
            };
            let ending = match self.reply(place, message).await {
                Ok(Reply::Answered(outcome)) => return check.judge(message, None, outcome),
                Ok(Reply::Unread) => continue,
                Ok(Reply::NotReady(ending)) => {
                    let outcome = not_ready(ending.description());
                    return check.judge(message, ending.status, outcome);
                }
                Ok(Reply::Ended(ending)) => ending,
                Err(outcome) => return check.judge(message, None, outcome),
            };
            match smaller.next() {
                Some(next) if !ending.alone => isolation = Some(next),
                _ => {
                    let outcome = retry(ending.description(), "child", Reason::Failed);
                    return check.judge(message, ending.status, outcome);
                }
            }
        }
    }

    /// Waits for the reply to a message. `Err` is the outcome of a message that exceeded the timeout.
    async fn reply(&self, mut place: Place, message: &Message) -> Result<Reply, Outcome> {
        tokio::select! {
            reply = place.reply() => Ok(reply),
            limit = time_limit(self.shell.timeout) => {
                let is_read = place.is_read();
                place.cancel();
                let stderr_line = match timeout(CANCEL_TIMEOUT, place.reply()).await {
                    Ok(Reply::Ended(ending) | Reply::NotReady(ending)) => ending.stderr_line,
                    Ok(Reply::Answered(_) | Reply::Unread) | Err(_) => None,
                };
                let detail = detail(stderr_line.as_deref());
                Err(match is_read {
                    true => timed_out(limit, stderr_line),
                    false => not_ready(format!("the child did not read the message within {limit:?}{detail}")),
                })
            }
            () = message.cancelled.cancelled() => {
                place.cancel();
                // A cancelled message has no outcome. The worker soon drops this future.
                pending().await
            }
        }
    }

    /// Closes the standard input of all programs and waits until they have ended. Stops those that do not end in time.
    pub(super) async fn stop(&self) {
        let programs = std::mem::take(&mut *self.programs.lock());
        programs.iter().for_each(|program| program.close());
        for program in programs {
            program.ended().await;
        }
    }

    /// Sends a message to a program with this capacity. Prefers the program with the fewest messages, then the one that
    /// was used last. Starts a program if all are full. Closes those that have been idle for too long.
    fn place(&self, capacity: usize, id: &str, line: &str) -> std::io::Result<Place> {
        let now = Instant::now();
        let mut programs = self.programs.lock();
        programs.retain(|program| !program.has_ended());
        let with_room =
            programs.iter().filter(|program| program.capacity() == capacity && program.has_room_for(id));
        let best = with_room.min_by_key(|program| program.load());
        let placed = best.and_then(|program| program.send(id, line));
        for program in programs.iter().filter(|program| program.idle_since() + IDLE_MAX < now) {
            program.close();
        }
        if let Some(place) = placed {
            return Ok(place);
        }
        let program = Program::start(&self.shell, capacity, self.pipeline)?;
        let place = program.send(id, line).ok_or_else(|| std::io::Error::other("the program has no room"))?;
        programs.push(program);
        Ok(place)
    }
}
