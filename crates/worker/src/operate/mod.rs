//! What an operator does with a store, for every program that offers it: the command line and the dashboard.
//!
//! The functions here select, count and judge. An [`operation`] changes something: it says what it would do, and does
//! it unless the store has changed. All answers are types that serialize themselves, most of them in [`shapes`], so
//! that `--json`, the dashboard's API and its description agree. Parsing of options, tables, questions and requests
//! belongs to the programs.
//!
//! * [`doctor`] finds problems in a store, its streams and its groups.
//! * [`dead_letters`], [`pending`] and [`delayed`] select and change dead letters, pending entries and delayed
//!   entries; [`idle_times`] and [`life`] describe pending entries and what groups did with an entry.
//! * [`groups`] and [`trim`] move and remove groups, and remove entries. [`server`] changes the server.
//! * [`partitions`] finds, describes and removes the partitions of a logical stream.
//! * A [`plan`] says what an operation would do, and whether that is still so when it is applied.
//! * [`fields`] turns fields into JSON, and [`redaction`](crate::redaction) hides their values.

pub mod command;
pub mod consumers;
pub mod dead_letters;
pub mod delayed;
pub mod doctor;
pub mod error_counts;
pub mod fields;
pub mod groups;
pub mod idle_times;
pub mod life;
pub mod operation;
pub mod partitions;
pub mod pending;
pub mod plan;
pub mod server;
pub mod shapes;
#[cfg(test)]
mod tests;
pub mod trim;

pub use crate::wording;
