//! What an operator does with a store, for every program that offers it: the command line and the dashboard.
//!
//! The functions here select, count, judge and act, and return typed results. [`shapes`] has their JSON form: one function
//! for each object, so that `--json` and the dashboard's API agree. Parsing of options, tables, questions and requests belongs
//! to the programs.
//!
//! * [`doctor`] finds problems in a store, its streams and its groups.
//! * [`dead_letters`] and [`pending`] select and change dead letters and pending entries; [`idle_times`] and [`life`] describe
//!   pending entries and what groups did with an entry.
//! * [`groups`] and [`trim`] move and remove groups, and remove entries.
//! * [`partitions`] describes and removes the partitions of a logical stream.
//! * A [`plan`] says what an action would do, and whether that is still so when the action is executed.
//! * [`fields`] turns fields into JSON, and [`redaction`](crate::redaction) hides their values.

pub mod command;
pub mod consumers;
pub mod dead_letters;
pub mod doctor;
pub mod error_counts;
pub mod fields;
pub mod groups;
pub mod idle_times;
pub mod life;
pub mod partitions;
pub mod pending;
pub mod plan;
pub mod shapes;
#[cfg(test)]
mod tests;
pub mod trim;

pub use crate::wording;
