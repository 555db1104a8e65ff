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
    /// All handlers fail for a while, as if a service that they call was down.
    Outage,
}

impl Fault {
    /// Faults for processes with any store.
    const OF_PROCESSES: [Fault; 4] = [Fault::KillWorker, Fault::Freeze, Fault::Drain, Fault::Outage];
    /// Faults that need a server.
    const OF_SERVERS: [Fault; 2] = [Fault::KillProducer, Fault::KillServer];
    /// Faults that need a proxy.
    const OF_CONNECTIONS: [Fault; 4] = [Fault::Cut, Fault::CutInAReply, Fault::HalfOpen, Fault::Stall];

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
            Fault::Outage => "outage",
        }
    }

    /// Returns all possible faults, each this number of times, in random order.
    pub(crate) fn schedule(
        has_proxy: bool,
        has_server: bool,
        rounds: u64,
        random: &mut Random,
    ) -> Vec<Fault> {
        let mut all = Fault::OF_PROCESSES.to_vec();
        all.extend(has_server.then_some(Fault::OF_SERVERS).into_iter().flatten());
        all.extend(has_proxy.then_some(Fault::OF_CONNECTIONS).into_iter().flatten());
        let mut schedule: Vec<Fault> = (0..rounds).flat_map(|_| all.clone()).collect();
        for at in (1..schedule.len()).rev() {
            schedule.swap(at, random.below(at as u64 + 1) as usize);
        }
        schedule
    }
}
