//! Why a message was done more than once.

use std::fmt;

use crate::account::Limits;
use crate::runs::{Run, Runs};

/// Longest effect of a connection fault: a call without a reply times out, and so does the next blocking read.
const EFFECT_MAX_MS: u64 = 30_000;

/// Why a message was done again although a handler had finished it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Cause {
    /// Its process was killed before the store replied to the acknowledgement.
    Kill,
    /// Its lease expired, or another consumer already owned it.
    LostLease,
    /// The connection broke during the acknowledgement.
    Connection,
    /// The server was killed while the message was in flight.
    ServerRestart,
}

impl Cause {
    /// Returns why the completed `run` was not the last one of its message. `None` if there is no known cause.
    ///
    /// `until` is the journal line at which a handler last started the message.
    pub(crate) fn find(run: &Run, until: usize, runs: &Runs, limits: Limits) -> Option<Cause> {
        if run.lost {
            return Some(Cause::LostLease);
        }
        if run.writer.ends_with(":exec") {
            return Cause::of_a_command(run, until, runs, limits);
        }
        let acked = run.acked.unwrap_or(usize::MAX);
        let in_flight = |lines: &[usize]| lines.iter().any(|at| (run.began..acked).contains(at));
        if run.unacked.is_some() {
            return Some(if in_flight(&runs.outages) { Cause::ServerRestart } else { Cause::Connection });
        }
        match run.acked {
            None if run.lease_age_ms >= limits.lease_ms => Some(Cause::LostLease),
            None => runs.deaths.get(&run.pid).filter(|at| **at > run.began).map(|_| Cause::Kill),
            Some(_) if run.lease_age_ms >= limits.lease_ms => Some(Cause::LostLease),
            Some(_) => in_flight(&runs.outages).then_some(Cause::ServerRestart),
        }
    }

    /// Finds the cause for a run of an `--exec` command. The command does not record what its worker sent to the store,
    /// so a fault at that time must be the cause.
    fn of_a_command(run: &Run, until: usize, runs: &Runs, limits: Limits) -> Option<Cause> {
        // The loss of data on a half-open connection is noticed only later.
        let since = runs.times[run.began].saturating_sub(EFFECT_MAX_MS);
        let happened = |lines: &[usize]| lines.iter().any(|at| *at < until && runs.times[*at] >= since);
        // A process that the supervisor did not start is a child of a dead worker.
        let is_orphan = !runs.born.contains(&run.pid);
        let died = runs.deaths.get(&run.pid).is_some_and(|at| (run.began..until).contains(at));
        let causes = [
            (is_orphan || died, Cause::Kill),
            (happened(&runs.outages), Cause::ServerRestart),
            (happened(&runs.disturbances), Cause::Connection),
            (happened(&runs.stops) || limits.unknown_lost_leases, Cause::LostLease),
        ];
        causes.into_iter().find_map(|(is_true, cause)| is_true.then_some(cause))
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
