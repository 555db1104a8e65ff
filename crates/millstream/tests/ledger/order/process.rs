//! The workers of an order campaign, and their handler: it records the key and the number of each message, when it
//! begins and when it ends.

use std::sync::Arc;
use std::time::{Duration, Instant};

use millstream_worker::handler::Data;
use millstream_worker::{HandlerError, Message, Outcome, WorkerBuilder};
use tokio::time::sleep;

use super::{KEY, Ownership};
use crate::journal::Journal;
use crate::steps::{Plan, Step};

/// How often a process looks whether it runs.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);
/// A process records that it did not run if it did not for this long.
const STALL_MIN: Duration = Duration::from_millis(300);
/// Longest time of most handlers, in milliseconds.
const HANDLER_MS: u64 = 8;
/// Time of a few handlers.
const SLOW: Duration = Duration::from_millis(40);

/// State of the handlers.
pub(crate) struct OrderContext {
    journal: Arc<Journal>,
    plan: Arc<Plan>,
}

/// Completes a worker: it owns its stream, or shares its partitions.
pub(crate) fn complete(
    builder: WorkerBuilder,
    ownership: Ownership,
    journal: &Arc<Journal>,
    plan: &Arc<Plan>,
) -> WorkerBuilder {
    watch_stalls(Arc::clone(journal));
    let builder = match ownership {
        Ownership::Partitions => builder,
        Ownership::ByKey => builder.order_by(KEY),
        Ownership::Exclusive => builder.exclusive(),
    };
    builder.handler(handle).state(OrderContext { journal: Arc::clone(journal), plan: Arc::clone(plan) })
}

/// Records when the process did not run: it was frozen, or the machine was busy.
fn watch_stalls(journal: Arc<Journal>) {
    std::thread::spawn(move || {
        loop {
            let began = Instant::now();
            std::thread::sleep(LOOK_INTERVAL);
            if began.elapsed() > STALL_MIN {
                journal.record("stalled", [began.elapsed().as_millis()]);
            }
        }
    });
}

/// A message at work. If its handler is cancelled, records this.
struct AtWork<'h> {
    journal: &'h Journal,
    words: [String; 5],
    has_ended: bool,
}

impl AtWork<'_> {
    fn begin<'h>(journal: &'h Journal, message: &Message, key: &str, number: u64) -> AtWork<'h> {
        let fence = message.fence.unwrap_or_default().to_string();
        let stream = message.stream.to_string();
        let words = [key.to_owned(), number.to_string(), stream, message.id.to_string(), fence];
        journal.record("begin", &words);
        AtWork { journal, words, has_ended: false }
    }

    fn end(mut self, event: &str) {
        self.has_ended = true;
        self.journal.record(event, &self.words);
    }
}

impl Drop for AtWork<'_> {
    fn drop(&mut self) {
        if !self.has_ended {
            self.journal.record("cancelled", &self.words);
        }
    }
}

/// What happens to a message in its handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Ordinary,
    Slow,
    /// Fails at its first attempt.
    Flaky,
    Rejected,
}

impl Kind {
    /// Keys differ in which of their messages fail: if all of them failed at once, the circuit breaker would open.
    fn of(key: &str, number: u64) -> Kind {
        match (number + key.bytes().map(|byte| u64::from(byte) * 7).sum::<u64>()) % 61 {
            0 => Kind::Rejected,
            20 | 40 => Kind::Flaky,
            30 => Kind::Slow,
            _ => Kind::Ordinary,
        }
    }
}

async fn handle(message: Message, context: Data<OrderContext>) -> Result<Outcome, HandlerError> {
    let key = message.text(KEY).expect("a message of this campaign").to_owned();
    let number: u64 = message.text("n").and_then(|n| n.parse().ok()).expect("a message of this campaign");
    let run = AtWork::begin(&context.journal, &message, &key, number);
    context.plan.pass(Step::Begin, &context.journal);
    let kind = Kind::of(&key, number);
    let time = match kind {
        Kind::Slow => SLOW,
        _ => Duration::from_millis(1 + message.id.ms % HANDLER_MS),
    };
    sleep(time / 2).await;
    context.plan.pass(Step::Middle, &context.journal);
    sleep(time / 2).await;
    if kind == Kind::Flaky && message.attempt == 1 {
        run.end("failed");
        return Err(HandlerError::retry("not yet"));
    }
    if kind == Kind::Rejected {
        run.end("rejected");
        return Ok(Outcome::reject("not this"));
    }
    run.end("done");
    context.plan.pass(Step::Done, &context.journal);
    Ok(Outcome::Ack)
}
