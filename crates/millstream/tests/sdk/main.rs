//! The packages for Python and Node (`sdk/`): their own tests, their installation with the examples of the documents,
//! how their programs start and end, and a ledger of messages while everything is killed at random.
//!
//! `MILLSTREAM_SDK_KILLS` sets the number of kills, and `MILLSTREAM_SEED` their seed.

mod failures;
mod guide;
mod installed;
mod kills;
mod language;
mod programs;
#[expect(dead_code, reason = "other suites use the rest")]
#[path = "../differential/random.rs"]
mod random;
#[expect(dead_code, reason = "other suites use the rest")]
#[path = "../support/mod.rs"]
mod support;
#[expect(dead_code, reason = "other suites use the rest")]
#[path = "../work/test_store.rs"]
mod test_store;
