//! The operator's commands as processes: their tables, their JSON, their failures, and every example of every
//! `--help`.

mod dead_letters;
mod delayed;
mod examples;
mod extreme;
mod failures;
mod foreign_dead_letters;
mod groups;
mod hostile;
mod partitions;
mod pending;
mod policies;
mod produce;
mod secure;
mod streams;
#[expect(dead_code, reason = "other suites use the rest")]
#[path = "../support/mod.rs"]
mod support;
mod test_store;
mod unhandled;
mod verdicts;
mod watch;
mod watched_partitions;
mod workers;
