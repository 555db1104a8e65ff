//! What an operator does with a store, for every program that offers it: the command line and the dashboard.
//!
//! The functions here select, count, judge and act, and return typed results. [`shapes`] has their JSON form: one function
//! for each object, so that `--json` and the dashboard's API agree. Parsing of options, tables, questions and requests belongs
//! to the programs.
//!
//! * [`doctor`] finds problems in a store, its streams and its groups.
//! * [`redaction`] hides the values of fields, and [`fields`] turns fields into JSON.

pub mod command;
pub mod consumers;
pub mod doctor;
pub mod fields;
pub mod redaction;
pub mod shapes;
pub mod wording;
