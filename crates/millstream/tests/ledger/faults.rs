//! The faults that the supervisor injects into processes, connections and the server of a campaign.

use crate::random::Random;

/// A fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Fault {
    /// `kill -9` of a worker process, at any time.
    KillWorker,
    /// `kill -9` of a producer.
    KillProducer,
    /// SIGSTOP for longer than a lease.
    Freeze,
    /// SIGTERM.
    Drain,
    /// `kill -9` of the server, which is restarted after a while.
    KillServer,
    /// All connections are cut.
    Cut,
    /// One connection is cut in the middle of a reply.
    CutInAReply,
    /// One connection becomes half-open.
    HalfOpen,
    /// All connections are stalled for longer than a lease.
    Stall,
}

impl Fault {
    /// Faults for processes with an embedded store.
    const OF_PROCESSES: [Fault; 3] = [Fault::KillWorker, Fault::Freeze, Fault::Drain];
    /// Faults for processes with a server.
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

    /// Returns all possible faults, each this number of times, in random order.
    pub(crate) fn schedule(has_server: bool, rounds: u64, random: &mut Random) -> Vec<Fault> {
        let all: &[Fault] = if has_server { &Fault::OF_SERVERS } else { &Fault::OF_PROCESSES };
        let mut schedule: Vec<Fault> = (0..rounds).flat_map(|_| all).copied().collect();
        for at in (1..schedule.len()).rev() {
            schedule.swap(at, random.below(at as u64 + 1) as usize);
        }
        schedule
    }
}
