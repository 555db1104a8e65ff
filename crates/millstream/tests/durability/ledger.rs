//! The ledger: what clients asked and what they were told, with times. It lives in this process, so no fault in the
//! server's folder can touch it.
//!
//! A command without a reply is indeterminate: it may have happened, once and as a whole, or not at all. A command
//! that was refused with an error must not have happened.

use std::fmt::Write;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, clock_gettime};

use crate::entry::{Id, Mark};

/// Streams that producers, consumers and the deleter share, each with the group [`GROUP`].
pub(crate) const WORK: [&str; 2] = ["work:0", "work:1"];
/// The consumer group of every shared stream.
pub(crate) const GROUP: &str = "group";
/// A stream with one producer, cut to [`RING_LENGTH`] by the XADD itself.
pub(crate) const RING: &str = "ring";
/// How long [`RING`] stays.
pub(crate) const RING_LENGTH: usize = 20;
/// Two streams that only transactions write, each time both, and cut both to [`PAIR_LENGTH`].
pub(crate) const PAIR: [&str; 2] = ["pair:0", "pair:1"];
/// How long the streams of [`PAIR`] stay.
pub(crate) const PAIR_LENGTH: usize = 50;

/// The key a transaction sets to its number.
pub(crate) fn pair_key(producer: u32) -> String {
    format!("pair:by:{producer}")
}

/// Nanoseconds since the campaign began, on a clock that never jumps.
pub(crate) type Nanos = u64;

/// Tells campaign time. The calendar, from which servers stamp, is set by others meanwhile, by milliseconds in a
/// second on a machine that has just started: so the two are compared whenever both matter, never once for all.
#[derive(Clone, Copy)]
pub(crate) struct Clock {
    start: Nanos,
    /// The beginning by the calendar, as late as it has been seen.
    start_epoch: Duration,
}

impl Clock {
    /// Begins now.
    pub(crate) fn new() -> Clock {
        Clock { start: monotonic(), start_epoch: since_1970() }
    }

    /// Time since the beginning.
    pub(crate) fn now(&self) -> Nanos {
        monotonic() - self.start
    }

    /// Now at the latest, in milliseconds since 1970 as servers count: a server may have started by the calendar
    /// before that was set back.
    pub(crate) fn latest_ms(&mut self) -> u64 {
        let elapsed = Duration::from_nanos(self.now());
        self.start_epoch = self.start_epoch.max(since_1970().saturating_sub(elapsed));
        (self.start_epoch + elapsed).as_millis() as u64
    }

    /// The campaign time of a moment that [`monotonic`] told, here or in another process.
    pub(crate) fn at(&self, moment: Nanos) -> Nanos {
        moment.saturating_sub(self.start)
    }

    /// The beginning by the calendar as it is set now.
    pub(crate) fn beginning(&self) -> Duration {
        since_1970().saturating_sub(Duration::from_nanos(self.now()))
    }

    /// The campaign time, at the latest, of a moment that is told in seconds since 1970: between now and when the
    /// calendar had the beginning at `earlier`.
    pub(crate) fn at_epoch_at_latest(&self, seconds: f64, earlier: Duration) -> Nanos {
        let moment = Duration::try_from_secs_f64(seconds).unwrap_or_default();
        moment.saturating_sub(earlier.min(self.beginning())).as_nanos() as Nanos
    }
}

/// The clock that never jumps and is the same in every process, since the machine started.
pub(crate) fn monotonic() -> Nanos {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as Nanos * 1_000_000_000 + time.tv_nsec as Nanos
}

fn since_1970() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("a calendar after 1970")
}

/// One command of one client.
#[derive(Clone, Debug)]
pub(crate) struct Op {
    /// When it was sent.
    pub invoked: Nanos,
    /// When its reply had come; `None`: it never did.
    pub replied: Option<Nanos>,
    /// The reply was an error.
    pub refused: bool,
    /// What was asked and what was told.
    pub act: Act,
}

impl Op {
    /// It was told to have happened.
    pub(crate) fn is_acknowledged(&self) -> bool {
        self.replied.is_some() && !self.refused
    }

    /// Nothing was told.
    pub(crate) fn is_indeterminate(&self) -> bool {
        self.replied.is_none()
    }

    /// It was told to have happened, and changed something.
    pub(crate) fn is_acknowledged_write(&self) -> bool {
        let wrote = match &self.act {
            Act::Observe { .. } => false,
            Act::Deliver { got, .. } | Act::History { got, .. } => !got.is_empty(),
            Act::Claim { got, .. } => !got.is_empty(),
            Act::Add { .. }
            | Act::Transact { .. }
            | Act::Delete { .. }
            | Act::Trim { .. }
            | Act::Ack { .. } => true,
        };
        wrote && self.is_acknowledged()
    }
}

/// An entry somebody was shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    /// The stream.
    pub key: &'static str,
    /// Its id.
    pub id: Id,
    /// Its content; `None`: the entry itself is deleted, or its bytes are nobody's payload.
    pub mark: Option<Mark>,
}

/// What a command asked for, and what its reply said.
#[derive(Clone, Debug)]
pub(crate) enum Act {
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
    /// XREADGROUP with an id: what the consumer already has, counted as one more delivery
    History { key: &'static str, got: Vec<Seen> },
    /// XACK
    Ack { key: &'static str, ids: Vec<Id> },
    /// XCLAIM of these ids, or XAUTOCLAIM of any (`None`)
    Claim { key: &'static str, consumer: &'static str, asked: Option<Vec<Id>>, counts: bool, got: Vec<Id> },
    /// Any read of a second client
    Observe { got: Vec<Seen>, key: &'static str, last_id: Id, added: u64 },
}

/// The ledger as text, one command a line in order of sending, for whoever looks into a finding.
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
        let _ = writeln!(text, "{:.3} ms\t{replied}\t{:?}", millis(op.invoked), op.act);
    }
    text
}

fn millis(at: Nanos) -> f64 {
    at as f64 / 1e6
}
