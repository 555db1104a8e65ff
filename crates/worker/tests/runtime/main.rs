//! Workers at work on a real store in memory: processing, leases, recovery, scaling, and what the ledger says in the end.

mod dead_letters;
mod ending;
mod leases;
mod outcomes;
mod scaling;
mod support;
