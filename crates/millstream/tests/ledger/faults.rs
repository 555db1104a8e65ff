//! What a supervisor does to the processes, the connections and the server of a campaign.

use crate::random::Random;

/// Something that goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Fault {
    /// `kill -9` of a process with workers, at any moment.
    KillWorker,
    /// `kill -9` of a producer.
    KillProducer,
    /// SIGSTOP for longer than a lease.
    Freeze,
    /// SIGTERM.
    Drain,
    /// `kill -9` of the server; it is away for a while.
    KillServer,
    /// All connections are cut.
    Cut,
    /// One connection is cut in the middle of a reply.
    CutInAReply,
    /// One connection becomes half-open.
    HalfOpen,
    /// All connections are held up for longer than a lease.
    Stall,
}

impl Fault {
    /// What can happen to processes with a store of their own.
    const OF_PROCESSES: [Fault; 3] = [Fault::KillWorker, Fault::Freeze, Fault::Drain];
    /// What can happen where there is a server.
    const OF_SERVERS: [Fault; 9] = [
        Fault::KillWorker,
        Fault::KillProducer,
        Fault::Freeze,
        Fault::Drain,
        Fault::KillServer,
        Fault::Cut,
        Fault::CutInAReply,
        Fault::HalfOpen,
        Fault::Stall,
    ];

    /// Its name in the journal.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Fault::KillWorker | Fault::KillProducer => "killed",
            Fault::Freeze => "frozen",
            Fault::Drain => "draining",
            Fault::KillServer => "server-killed",
            Fault::Cut => "cut",
            Fault::CutInAReply => "cut-in-a-reply",
            Fault::HalfOpen => "half-open",
            Fault::Stall => "stalled",
        }
    }

    /// So many rounds of everything that can happen, in some order.
    pub(crate) fn deck(has_server: bool, rounds: u64, random: &mut Random) -> Vec<Fault> {
        let all: &[Fault] = if has_server { &Fault::OF_SERVERS } else { &Fault::OF_PROCESSES };
        let mut deck: Vec<Fault> = (0..rounds).flat_map(|_| all).copied().collect();
        for at in (1..deck.len()).rev() {
            deck.swap(at, random.below(at as u64 + 1) as usize);
        }
        deck
    }
}
