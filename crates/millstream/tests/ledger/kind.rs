//! How a message behaves in its handler, and the ends that it may have.

use millstream_worker::Reason;

/// How a message behaves in its handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum MessageKind {
    /// Takes a few milliseconds.
    Ordinary,
    /// Takes longer than a lease. The worker extends the lease meanwhile.
    Slow,
    /// Blocks its whole process for longer than a lease on the first attempt, so that the lease is not extended.
    Stuck,
    /// Fails at first, then succeeds.
    Flaky,
    /// Always fails.
    Failing,
    /// Always panics.
    Panicking,
    /// Is rejected.
    Rejected,
    /// Always kills its process.
    Killing,
    /// Always exits its process.
    Exiting,
    /// Asks for another attempt after an hour.
    Later,
}

impl MessageKind {
    const ALL: [MessageKind; 10] = [
        MessageKind::Ordinary,
        MessageKind::Slow,
        MessageKind::Stuck,
        MessageKind::Flaky,
        MessageKind::Failing,
        MessageKind::Panicking,
        MessageKind::Rejected,
        MessageKind::Killing,
        MessageKind::Exiting,
        MessageKind::Later,
    ];

    /// Its name in the field `kind`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            MessageKind::Ordinary => "ordinary",
            MessageKind::Slow => "slow",
            MessageKind::Stuck => "stuck",
            MessageKind::Flaky => "flaky",
            MessageKind::Failing => "failing",
            MessageKind::Panicking => "panicking",
            MessageKind::Rejected => "rejected",
            MessageKind::Killing => "killing",
            MessageKind::Exiting => "exiting",
            MessageKind::Later => "later",
        }
    }

    /// Returns the kind of this name.
    pub(crate) fn parse(name: &str) -> Option<MessageKind> {
        MessageKind::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// Returns the kind of the message with this number: usually ordinary, and some of every kind in each 200
    /// numbers.
    pub(crate) fn of(seed: u64, number: u64) -> MessageKind {
        // 7 and 200 have no common divisor, so 200 numbers in a row reach every value.
        match (number.wrapping_mul(7) + seed % 200) % 200 {
            0..6 => MessageKind::Slow,
            6..8 => MessageKind::Stuck,
            8..24 => MessageKind::Flaky,
            24..28 => MessageKind::Failing,
            28..32 => MessageKind::Panicking,
            32..36 => MessageKind::Rejected,
            36 => MessageKind::Killing,
            37 => MessageKind::Exiting,
            _ => MessageKind::Ordinary,
        }
    }

    /// Whether a handler can finish it.
    pub(crate) fn can_be_done(self) -> bool {
        matches!(self, MessageKind::Ordinary | MessageKind::Slow | MessageKind::Stuck | MessageKind::Flaky)
    }

    /// Whether it may be a dead letter for this reason. A message that a handler can finish may not be dead at all,
    /// although it may be in hand when workers die, and fails during an outage.
    pub(crate) fn may_die_of(self, reason: Reason) -> bool {
        match reason {
            Reason::MaxDeliveries | Reason::MaxAttempts => !self.can_be_done() && self != MessageKind::Later,
            Reason::Panic => self == MessageKind::Panicking,
            Reason::Rejected => self == MessageKind::Rejected,
            _ => false,
        }
    }
}
