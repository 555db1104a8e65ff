//! Why a message was done again.

use std::fmt;

use crate::account::Limits;
use crate::runs::{Run, Runs};

/// How long a disturbance is felt at most: a call that nobody answers ends, and so does the wait for the next read.
const FELT_FOR_MS: u64 = 30_000;

/// Why a message was done again though a handler had finished it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Cause {
    /// Its process was killed before the store had answered the acknowledgement.
    Kill,
    /// Its lease ran out, or was somebody else's already.
    LostLease,
    /// The connection broke while it was acknowledged.
    Connection,
    /// The server was killed while it was in hand.
    ServerRestart,
}

impl Cause {
    /// Why what `run` had done was not the end of it; `None` if nothing tells. `until` is where in the journal a handler
    /// last began with the message.
    pub(crate) fn find(run: &Run, until: usize, runs: &Runs, limits: Limits) -> Option<Cause> {
        if run.lost {
            return Some(Cause::LostLease);
        }
        if run.who.ends_with(":exec") {
            return Cause::of_a_command(run, until, runs, limits);
        }
        let acked = run.acked.unwrap_or(usize::MAX);
        let in_hand = |places: &[usize]| places.iter().any(|at| (run.began..acked).contains(at));
        if run.unacked.is_some() {
            return Some(if in_hand(&runs.outages) { Cause::ServerRestart } else { Cause::Connection });
        }
        match run.acked {
            None if run.held_ms >= limits.lease_ms => Some(Cause::LostLease),
            None => runs.deaths.get(&run.pid).filter(|at| **at > run.began).map(|_| Cause::Kill),
            Some(_) if run.held_ms >= limits.lease_ms => Some(Cause::LostLease),
            Some(_) => in_hand(&runs.outages).then_some(Cause::ServerRestart),
        }
    }

    /// A command does not know what its worker told the store: what happened meanwhile must explain it.
    fn of_a_command(run: &Run, until: usize, runs: &Runs, limits: Limits) -> Option<Cause> {
        // What a half-open connection has swallowed is found out a while later.
        let since = runs.times[run.began].saturating_sub(FELT_FOR_MS);
        let happened = |places: &[usize]| places.iter().any(|at| *at < until && runs.times[*at] >= since);
        // One that is nobody's child has outlived its worker.
        let is_orphan = !runs.born.contains(&run.pid);
        let died = runs.deaths.get(&run.pid).is_some_and(|at| (run.began..until).contains(at));
        let causes = [
            (is_orphan || died, Cause::Kill),
            (happened(&runs.outages), Cause::ServerRestart),
            (happened(&runs.disturbances), Cause::Connection),
            (happened(&runs.stops) || limits.leases_lost_untold, Cause::LostLease),
        ];
        causes.into_iter().find_map(|(is_so, cause)| is_so.then_some(cause))
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Cause::Kill => "kill",
            Cause::LostLease => "lost lease",
            Cause::Connection => "broken connection",
            Cause::ServerRestart => "server restart",
        })
    }
}
