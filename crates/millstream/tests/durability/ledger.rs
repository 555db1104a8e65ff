//! The ledger: every command and reply of the clients, with times. It is kept in the memory of the test, so no fault
//! in the server's folder can damage it.
//!
//! A command without a reply is indeterminate: it may have happened completely and once, or not at all. A command
//! that the server refused with an error must not have happened.

use std::fmt::Write;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, clock_gettime};

use crate::entry::{Id, Mark};

/// Streams shared by producers, consumers and the deleting client, each with the group [`GROUP`].
pub(crate) const WORK: [&str; 2] = ["work:0", "work:1"];
/// The consumer group of every shared stream.
pub(crate) const GROUP: &str = "group";
/// A stream with one producer. Each XADD trims it to [`RING_LENGTH`].
pub(crate) const RING: &str = "ring";
/// Length of [`RING`].
pub(crate) const RING_LENGTH: usize = 20;
/// Two streams that only transactions write. Each transaction adds to both and trims both to [`PAIR_LENGTH`].
pub(crate) const PAIR: [&str; 2] = ["pair:0", "pair:1"];
/// Length of the streams of [`PAIR`].
pub(crate) const PAIR_LENGTH: usize = 50;

/// Returns the key that a producer's transactions set to their number.
pub(crate) fn pair_key(producer: u32) -> String {
    format!("pair:by:{producer}")
}

/// Nanoseconds since the start of the campaign, on the monotonic clock.
pub(crate) type Nanos = u64;

/// The clock of a campaign.
///
/// Servers use the wall clock for timestamps. The operating system adjusts it while a campaign runs, by milliseconds
/// per second on a machine that has just started. So both clocks are read whenever both matter, not only once.
#[derive(Clone, Copy)]
pub(crate) struct Clock {
    start: Nanos,
    /// Start of the campaign by the wall clock, the latest value seen.
    start_epoch: Duration,
}

impl Clock {
    /// Starts the clock.
    pub(crate) fn new() -> Clock {
        Clock { start: monotonic(), start_epoch: unix_time() }
    }

    /// Time since the start.
    pub(crate) fn now(&self) -> Nanos {
        monotonic() - self.start
    }

    /// Upper bound of the current wall-clock time, in Unix milliseconds.
    ///
    /// A server may have read the wall clock before it was set back.
    pub(crate) fn latest_ms(&mut self) -> u64 {
        let elapsed = Duration::from_nanos(self.now());
        self.start_epoch = self.start_epoch.max(unix_time().saturating_sub(elapsed));
        (self.start_epoch + elapsed).as_millis() as u64
    }

    /// Converts a time of [`monotonic`], from this or another process, to campaign time.
    pub(crate) fn at(&self, moment: Nanos) -> Nanos {
        moment.saturating_sub(self.start)
    }

    /// Start of the campaign by the wall clock as it is set now.
    pub(crate) fn beginning(&self) -> Duration {
        unix_time().saturating_sub(Duration::from_nanos(self.now()))
    }

    /// Converts a wall-clock time, in Unix seconds, to campaign time. Returns an upper bound. `earlier` is an earlier
    /// result of [`Clock::beginning`].
    pub(crate) fn latest_campaign_time(&self, seconds: f64, earlier: Duration) -> Nanos {
        let moment = Duration::try_from_secs_f64(seconds).unwrap_or_default();
        moment.saturating_sub(earlier.min(self.beginning())).as_nanos() as Nanos
    }
}

/// Nanoseconds since the machine started, by the monotonic clock, which all processes share.
pub(crate) fn monotonic() -> Nanos {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as Nanos * 1_000_000_000 + time.tv_nsec as Nanos
}

fn unix_time() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("a wall clock after 1970")
}

/// One command of one client.
#[derive(Clone, Debug)]
pub(crate) struct Op {
    /// Time at which it was sent.
    pub invoked: Nanos,
    /// Time at which its reply arrived. `None` if no reply arrived.
    pub replied: Option<Nanos>,
    /// Whether the reply was an error.
    pub refused: bool,
    /// The command and the content of its reply.
    pub action: Action,
}

impl Op {
    /// Whether the server acknowledged it.
    pub(crate) fn is_acknowledged(&self) -> bool {
        self.replied.is_some() && !self.refused
    }

    /// Whether no reply arrived.
    pub(crate) fn is_indeterminate(&self) -> bool {
        self.replied.is_none()
    }

    /// Whether the server acknowledged it, and it changed data.
    pub(crate) fn is_acknowledged_write(&self) -> bool {
        let wrote = match &self.action {
            Action::Observe { .. } => false,
            Action::Deliver { got, .. } | Action::History { got, .. } => !got.is_empty(),
            Action::Claim { got, .. } => !got.is_empty(),
            Action::Add { .. }
            | Action::Transact { .. }
            | Action::Delete { .. }
            | Action::Trim { .. }
            | Action::Ack { .. } => true,
        };
        wrote && self.is_acknowledged()
    }
}

/// An entry that a client has read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    /// The stream.
    pub key: &'static str,
    /// Its id.
    pub id: Id,
    /// Its content. `None` if the entry is deleted, or its bytes are not a valid payload.
    pub mark: Option<Mark>,
}

/// A command with its arguments, and the content of its reply.
#[derive(Clone, Debug)]
pub(crate) enum Action {
    /// XADD to a shared stream or the ring.
    Add { key: &'static str, mark: Mark, id: Option<Id> },
    /// MULTI, XADD to both of [`PAIR`], trim both, SET, EXEC. The id is the one in the first stream.
    Transact { mark: Mark, id: Option<Id> },
    /// XDEL
    Delete { key: &'static str, ids: Vec<Id>, deleted: usize },
    /// XTRIM MINID
    Trim { key: &'static str, below: Id },
    /// XREADGROUP with `>` on both of [`WORK`]
    Deliver { consumer: &'static str, got: Vec<Seen> },
    /// XREADGROUP with an id: the consumer's own pending entries. Counts as one more delivery.
    History { key: &'static str, got: Vec<Seen> },
    /// XACK
    Ack { key: &'static str, ids: Vec<Id> },
    /// XCLAIM of these ids, or XAUTOCLAIM of any (`None`)
    Claim {
        key: &'static str,
        consumer: &'static str,
        requested: Option<Vec<Id>>,
        counts: bool,
        got: Vec<Id>,
    },
    /// Any read by a client that only reads
    Observe { got: Vec<Seen>, key: &'static str, last_id: Id, added: u64 },
}

/// Formats the ledger as text, one command per line in the order of sending, for the investigation of findings.
pub(crate) fn listing(ops: &[Op]) -> String {
    let mut sorted: Vec<&Op> = ops.iter().collect();
    sorted.sort_by_key(|op| op.invoked);
    let mut text = String::new();
    for op in sorted {
        let replied = match (op.replied, op.refused) {
            (None, _) => "no reply".to_owned(),
            (Some(at), true) => format!("refused {:.3} ms", millis(at)),
            (Some(at), false) => format!("replied {:.3} ms", millis(at)),
        };
        let _ = writeln!(text, "{:.3} ms\t{replied}\t{:?}", millis(op.invoked), op.action);
    }
    text
}

fn millis(at: Nanos) -> f64 {
    at as f64 / 1e6
}
