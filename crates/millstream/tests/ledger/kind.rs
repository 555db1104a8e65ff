//! What a message does to its handler, and where it may end.

use millstream_worker::Reason;

/// What a message does to its handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// Is done in a moment.
    Ordinary,
    /// Takes longer than a lease, which is kept meanwhile.
    Slow,
    /// Stops its whole process for longer than a lease, so that nobody keeps it; once.
    Stuck,
    /// Fails at first, and then is done.
    Flaky,
    /// Fails always.
    Failing,
    /// Panics always.
    Panicking,
    /// Is refused.
    Rejected,
    /// Kills its process always.
    Killing,
    /// Ends its process always.
    Exiting,
    /// Asks for another try in an hour.
    Later,
}

impl Kind {
    const ALL: [Kind; 10] = [
        Kind::Ordinary,
        Kind::Slow,
        Kind::Stuck,
        Kind::Flaky,
        Kind::Failing,
        Kind::Panicking,
        Kind::Rejected,
        Kind::Killing,
        Kind::Exiting,
        Kind::Later,
    ];

    /// Its name in the field `kind`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::Ordinary => "ordinary",
            Kind::Slow => "slow",
            Kind::Stuck => "stuck",
            Kind::Flaky => "flaky",
            Kind::Failing => "failing",
            Kind::Panicking => "panicking",
            Kind::Rejected => "rejected",
            Kind::Killing => "killing",
            Kind::Exiting => "exiting",
            Kind::Later => "later",
        }
    }

    /// The kind of this name.
    pub(crate) fn parse(name: &str) -> Option<Kind> {
        Kind::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// The kind of the message with this number: mostly ordinary, and some of every kind among any two hundred in a row.
    pub(crate) fn of(seed: u64, number: u64) -> Kind {
        // Seven and two hundred have no divisor in common, so that every place has its turn.
        match (number.wrapping_mul(7) + seed % 200) % 200 {
            0..6 => Kind::Slow,
            6..8 => Kind::Stuck,
            8..24 => Kind::Flaky,
            24..28 => Kind::Failing,
            28..32 => Kind::Panicking,
            32..36 => Kind::Rejected,
            36 => Kind::Killing,
            37 => Kind::Exiting,
            _ => Kind::Ordinary,
        }
    }

    /// Whether a handler ever finishes it.
    pub(crate) fn can_be_done(self) -> bool {
        matches!(self, Kind::Ordinary | Kind::Slow | Kind::Stuck | Kind::Flaky)
    }

    /// Whether it may be among the dead letters for this reason. Any message may have been delivered too often: it was
    /// in the hands of workers that were killed for other reasons.
    pub(crate) fn may_die_of(self, reason: Reason) -> bool {
        match reason {
            Reason::MaxDeliveries => self != Kind::Later,
            Reason::Panic => self == Kind::Panicking,
            Reason::Rejected => self == Kind::Rejected,
            _ => false,
        }
    }
}
